//! `src/traces`: reading Mooncake rows from a file.

#[path = "support/lcg.rs"]
mod lcg;
#[path = "support/measure.rs"]
mod measure;

use std::error::Error;
use std::io::{BufWriter, Write};

use criterion::{Criterion, Throughput};
use dynosim::interrupt::Interrupt;
use dynosim::traces::{LineReader, Prompts, RowFormat, StartOrder, TraceFile, TraceSource};
use dynosim_systems::traffic::UnitSource;
use tempfile::NamedTempFile;

use lcg::Lcg;

const ROWS: u64 = 20_000;

/// Rows like those of the conversation trace: about 24 ids of 512 tokens, the first one shared.
fn trace() -> Result<NamedTempFile, Box<dyn Error>> {
    let mut file = NamedTempFile::new()?;
    let mut numbers = Lcg::new(7);
    let mut output = BufWriter::new(&mut file);
    let mut next_id = 1;
    for row in 0..ROWS {
        let ids = 12 + (numbers.unit() * 25.0) as u64;
        let input_tokens = ids * 512 - (numbers.unit() * 500.0) as u64;
        let output_tokens = 1 + (numbers.unit() * 500.0) as u64;
        let timestamp = row * 300;
        write!(
            output,
            r#"{{"timestamp": {timestamp}, "input_length": {input_tokens}, "output_length": {output_tokens}, "#
        )?;
        write!(output, r#""hash_ids": [0"#)?;
        for _ in 1..ids {
            write!(output, ", {next_id}")?;
            next_id += 1;
        }
        writeln!(output, "]}}")?;
    }
    output.flush()?;
    drop(output);
    Ok(file)
}

/// Units of the whole file.
fn read(path: &str, whole: bool) -> u64 {
    let file = TraceFile {
        path: path.to_owned(),
        format: RowFormat::Mooncake(512),
        order: StartOrder::Timestamps,
        prompts: Prompts::Complete,
        whole,
    };
    let (mut source, thread) = TraceSource::open(file, &Interrupt::default()).expect("the trace opens");
    let mut units = 0;
    while source.next_unit().expect("the trace is in order").is_some() {
        units += 1;
    }
    let report = thread.join().expect("the reader ends").expect("the trace is well-formed");
    assert_eq!((units, report.rows), (ROWS, ROWS));
    units
}

fn bench(c: &mut Criterion) {
    let file = trace().expect("a temporary trace can be written");
    let path = file.path().to_str().expect("temporary paths are text");
    let bytes = file.as_file().metadata().expect("the trace is there").len();

    let mut group = c.benchmark_group("traces/mooncake");
    group.throughput(Throughput::Elements(ROWS));
    group.bench_function("streamed", |b| b.iter(|| read(path, false)));
    group.bench_function("read_whole", |b| b.iter(|| read(path, true)));
    group.finish();

    let mut group = c.benchmark_group("traces/lines");
    group.throughput(Throughput::Bytes(bytes));
    group.bench_function("read_and_hashed", |b| {
        b.iter(|| {
            let mut lines = LineReader::open(path).expect("the trace opens");
            while lines.next_line().expect("the trace is text").is_some() {}
            lines.finish().expect("the trace is there")
        });
    });
    group.finish();
}

fn main() {
    measure::run(&[bench]);
}
