//! Whole runs: the engine alone, and the command with its files.

#[path = "support/measure.rs"]
mod measure;

use std::io::{self, Write};
use std::path::Path;

use clap::Parser;
use criterion::{Bencher, Criterion, SamplingMode, Throughput};
use dynosim::assemble;
use dynosim::cli::{Cli, Command};
use dynosim::interrupt::Interrupt;
use dynosim::perf_data::DataFiles;
use dynosim::predict::predict;
use dynosim::resolve::resolve;
use dynosim::workload;
use dynosim_schemas::config::{self, Stack};
use dynosim_systems::simulation::Simulation;

const REQUESTS: u64 = 10_000;

/// 10,000 synthetic requests of 2048/128 tokens on four workers, 256 at a time.
fn synthetic(c: &mut Criterion) {
    let source = "{type: synthetic, input_tokens: 2048, output_tokens: 128}";
    let config = config(source, "{type: concurrency, concurrency: 256}");
    let config = format!("{config}  stop: {{requests: {REQUESTS}}}\n");
    let mut group = c.benchmark_group("whole_run/synthetic_10k");
    group.sampling_mode(SamplingMode::Flat).throughput(Throughput::Elements(REQUESTS));
    group.bench_function("engine", |b| engine(b, &config));
    group.bench_function("command", |b| command(b, &config));
    group.finish();
}

/// The repository's own chat trace, as recorded.
fn own_chat(c: &mut Criterion) {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/traces/own_chat.jsonl");
    if !trace.exists() {
        // Without it there is nothing to run; the rest of the benches are still worth having.
        drop(writeln!(io::stdout(), "whole_run/own_chat: skipped, there is no {}", trace.display()));
        return;
    }
    let source =
        format!("{{type: trace, format: mooncake, block_size: 512, paths: [{:?}]}}", trace.display().to_string());
    let config = config(&source, "{type: trace_timestamps}");
    let mut group = c.benchmark_group("whole_run/own_chat");
    group.sampling_mode(SamplingMode::Flat);
    group.bench_function("command", |b| command(b, &config));
    group.finish();
}

fn config(source: &str, load: &str) -> String {
    format!(
        "engine:
  mode: aggregated
  model: meta-llama/Meta-Llama-3.1-8B-Instruct
  hardware: h200_sxm
  backend: vllm
  context_length: 131072
  workers:
    aggregated:
      parallelism: {{replicas: 4}}
      scheduler: {{max_batched_tokens: 8192, max_sequences: 256}}
      kv_cache: {{block_size: 64, prefix_caching: true, capacity: {{type: fixed, blocks: 16384}}}}
      timing: {{type: polynomial}}
traffic:
  source: {source}
  load: {load}
"
    )
}

/// `dynosim predict` within this process, with all its files.
fn command(bencher: &mut Bencher<'_>, config: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("prediction.yaml");
    std::fs::write(&path, config).expect("the temporary folder takes files");
    let output = folder.path().join("out");
    let words = ["dynosim", "predict", "--stack", "dynamo", "--overwrite", "--format", "json"];
    let mut words: Vec<_> = words.map(std::ffi::OsString::from).into();
    words.extend(["-c".into(), path.into(), "--output-dir".into(), output.into()]);
    let Command::Predict(args) = Cli::parse_from(words).command else { return };
    bencher.iter(|| predict(&args, &Interrupt::default(), |_| Ok(())).expect("the configuration is valid"));
}

/// The simulation alone: rows are taken out and thrown away.
fn engine(bencher: &mut Bencher<'_>, config: &str) {
    let prediction = config::load(config, &[], Stack::Dynamo).expect("the configuration is valid");
    let resolved = resolve(&prediction, &DataFiles::default(), false).expect("the configuration can be simulated");
    let deployment = assemble::deployment(&prediction, &resolved);
    bencher.iter(|| {
        let opened = workload::open(&prediction, &deployment, false, &Interrupt::default()).expect("it is synthetic");
        let mut simulation = Simulation::new(deployment.clone(), opened.traffic);
        while simulation.step().expect("synthetic sources do not fail") {
            if simulation.rows_waiting() >= 1024 {
                drop(simulation.take_rows());
            }
        }
        simulation.close();
        let completed = simulation.summarize().0.completed_requests;
        assert_eq!(completed, REQUESTS);
    });
}

fn main() {
    measure::run(&[synthetic, own_chat]);
}
