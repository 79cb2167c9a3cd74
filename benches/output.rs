//! `src/output`: rows to Parquet and JSON Lines, on the thread that does it and through the sink.

#[path = "support/lcg.rs"]
mod lcg;
#[path = "support/measure.rs"]
mod measure;

use std::io;
use std::path::Path;

use criterion::{BatchSize, Criterion, Throughput};
use dynosim::output::{JsonlRows, ParquetRows, RowFile, RowSink, file_metadata};
use dynosim_schemas::config::Role;
use dynosim_schemas::request_row::{Admission, Placement, RequestRow, RequestStatus};
use smallvec::smallvec;

use lcg::Lcg;

/// One row group of the Parquet file.
const ROWS: u64 = 122_880;
/// Rows that the run loop hands over together.
const BATCH: usize = 1024;

/// Completed requests of a trace with irregular times.
fn rows() -> Vec<RequestRow> {
    let mut numbers = Lcg::new(3);
    let mut arrival_ms = 0.0;
    let row = |index| {
        arrival_ms += numbers.unit() * 20.0;
        let first_token_ms = arrival_ms + 20.0 + numbers.unit() * 300.0;
        let second_token_ms = first_token_ms + 6.0 + numbers.unit() * 20.0;
        let last_token_ms = second_token_ms + numbers.unit() * 4000.0;
        RequestRow {
            request_index: index,
            request_id: None,
            session_id: None,
            session_index: index,
            turn_index: 0,
            play_index: None,
            source_line: Some(index + 1),
            placement: Some(Placement {
                worker_id: (index % 4) as u32,
                rank: 0,
                placed_ms: arrival_ms,
                overlap_blocks: 0,
            }),
            handoff: None,
            status: RequestStatus::Completed,
            reason: None,
            arrival_ms,
            first_token_ms: Some(first_token_ms),
            second_token_ms: Some(second_token_ms),
            last_token_ms: Some(last_token_ms),
            end_ms: Some(last_token_ms),
            input_tokens: 500 + (numbers.unit() * 8000.0) as u64,
            requested_output_tokens: 128,
            output_tokens: 128,
            preemptions: 0,
            knows_prefixes: true,
            admissions: smallvec![Admission {
                role: Role::Aggregated,
                at_ms: arrival_ms + 1.5,
                worker_id: (index % 4) as u32,
                reused_tokens: 512
            }],
            sla_met: None,
        }
    };
    (0..ROWS).map(row).collect()
}

/// An output that takes everything and keeps nothing.
struct Nowhere;

impl io::Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl RowFile for Nowhere {
    fn path(&self) -> &Path {
        Path::new("nowhere")
    }
}

fn bench(c: &mut Criterion) {
    let rows = rows();
    let metadata = file_metadata("0.1.0", "1", "digest");
    let mut group = c.benchmark_group("output/rows");
    group.throughput(Throughput::Elements(ROWS));

    let parquet = |rows: Vec<RequestRow>| {
        let mut table = ParquetRows::new(Nowhere, &metadata).expect("nowhere takes everything");
        for row in rows {
            table.push(row).expect("nowhere takes everything");
        }
        table.finish().expect("nowhere takes everything").1
    };
    group.bench_function("parquet", |b| b.iter_batched(|| rows.clone(), parquet, BatchSize::PerIteration));

    let batches = || rows.chunks(BATCH).map(<[RequestRow]>::to_vec).collect::<Vec<_>>();
    let sink = |batches: Vec<Vec<RequestRow>>| {
        let mut sink = RowSink::start(Nowhere, None, &metadata).expect("a thread starts");
        for batch in batches {
            sink.send(batch).expect("nowhere takes everything");
        }
        sink.finish().expect("nowhere takes everything").stats
    };
    group.bench_function("sink_with_parquet", |b| b.iter_batched(batches, sink, BatchSize::PerIteration));

    let some = &rows[..rows.len() / 4];
    group.throughput(Throughput::Elements(some.len() as u64));
    group.bench_function("jsonl", |b| {
        b.iter(|| {
            let mut lines = JsonlRows::new(Nowhere);
            for row in some {
                lines.push(row).expect("nowhere takes everything");
            }
            lines.finish().expect("nowhere takes everything").1
        });
    });
    group.finish();
}

fn main() {
    measure::run(&[bench]);
}
