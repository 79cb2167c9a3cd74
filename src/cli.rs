//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::trace::TraceCommand;

/// Simulate LLM serving clusters on a virtual clock.
///
/// dynosim plays a workload (synthetic, or a recorded trace) against a deployment (model, GPU,
/// backend, workers, router) and says what its users would have felt. No GPU is needed.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Evaluate one workload on one deployment
    Predict(PredictArgs),
    /// Check a configuration without running it, and say how the memory of each rank is spent
    Check(ConfigArgs),
    /// Import, list or show the measured operator times behind `timing: {type: default}`
    #[command(subcommand)]
    PerfDb(PerfDbCommand),
    /// Print the JSON Schema of the configuration, for editors that complete and check YAML
    ///
    /// Save it and name it in the first line of a configuration:
    /// `# yaml-language-server: $schema=./prediction.schema.json`
    Schema,
    /// Work with traces: convert them, export workloads as traces, say what is in them
    #[command(subcommand)]
    Trace(TraceCommand),
}

/// The commands of `perf-db`.
#[derive(Debug, Subcommand)]
pub enum PerfDbCommand {
    /// Turn the public aiconfigurator-core wheel (Apache-2.0, PyPI) into tables of dynosim's own layout
    ///
    /// `pip download --no-deps aiconfigurator-core` fetches one. A folder that it was unpacked to does as well.
    Import {
        /// The wheel, or the folder
        #[arg(value_name = "WHEEL_OR_DIR")]
        package: PathBuf,
        /// Folder that gets `perf/<hardware>/<backend>/<table>.parquet`; name it in DYNOSIM_DATA to use it
        #[arg(long, value_name = "PATH")]
        output_dir: PathBuf,
        /// Accelerators to import
        #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = DEFAULT_HARDWARE)]
        hardware: Vec<String>,
    },
    /// Compare the operator model with latencies that another estimator gave, row by row
    ///
    /// The file is CSV with the columns model, hardware, backend, version, tp, pp, dp, moe_tp, moe_ep, phase (`prefill`
    /// or `decode`; others are counted and left out), bs, isl, osl_or_prefix, latency_ms. Fails with exit code 1 if a row
    /// differs by more than 1e-6 of its value.
    Check {
        /// The file
        golden: PathBuf,
    },
    /// List the accelerators and backends that were measured, and the models that have a name
    List,
    /// Say what each table of an accelerator and a backend holds, and where it comes from
    Show {
        /// The accelerator, such as h200_sxm
        hardware: String,
        /// The backend: vllm, sglang, trtllm, or nccl for collectives
        backend: String,
    },
}

const DEFAULT_HARDWARE: &str = "h100_sxm,h200_sxm,b200_sxm,a100_sxm,l40s,gb200";

/// Where a configuration comes from.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// YAML configuration of the prediction
    ///
    /// Sections: `traffic` (source, load, stop), `engine` (model, hardware, backend, workers),
    /// `evaluation` (SLA), and with `--stack dynamo` also `router` and `planner`. Every value is
    /// concrete: search domains (`choices`, `range`, `preset`) are refused.
    #[arg(short, long, value_name = "PATH")]
    pub config: PathBuf,

    /// What runs the engines
    #[arg(long, value_enum, default_value_t = StackArg::Engine)]
    pub stack: StackArg,

    /// Override a value of the configuration; repeatable, later ones win
    ///
    /// The path is dotted, the value is YAML: `--set engine.workers.aggregated.parallelism.replicas=4`
    /// or `--set 'traffic.load={type: poisson, requests_per_second: 8}'`. The field need not be in
    /// the file. Replace a whole mapping to change its `type`.
    #[arg(long = "set", value_name = "PATH=YAML")]
    pub overrides: Vec<String>,
}

/// Options of `predict`.
#[derive(Debug, Args)]
#[command(after_long_help = PREDICT_NOTES)]
pub struct PredictArgs {
    /// The configuration.
    #[command(flatten)]
    pub source: ConfigArgs,

    /// Folder for the results: prediction.json, requests.parquet and what else is asked for
    #[arg(long, value_name = "PATH", default_value = "./aisimulate-output")]
    pub output_dir: PathBuf,

    /// Replace dynosim's own files in a folder that is not empty; others stay
    #[arg(long)]
    pub overwrite: bool,

    /// What to print on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Also write one JSON object per request to requests.jsonl
    #[arg(long)]
    pub capture_per_request: bool,

    /// Also write why the KV router sent each request where it did, to decisions.parquet
    ///
    /// One row for each worker that it could have chosen, with what the router knew of it
    /// (docs/decisions.md). Needs `router.policy: kv_router`.
    #[arg(long)]
    pub decisions: bool,

    /// Also say where the run's own time went: ns per stage, passes, blocks, rows, bytes
    ///
    /// Printed below the table, and written under `profile` in prediction.json. The results stay the
    /// same; the run gets a little slower.
    #[arg(long)]
    pub profile: bool,

    /// Refuse to estimate an operator from peak rates where nothing like it was measured
    ///
    /// For `timing: {type: default}`. Without it, `timing_provenance` in prediction.json names such operators.
    #[arg(long)]
    pub strict_timing: bool,

    /// Also check, as the run goes, that nothing gets lost: requests, KV blocks, transfers, slots
    ///
    /// A violated rule is a bug in dynosim: the run stops with exit code 1 and a dump of its state.
    #[arg(long)]
    pub check: bool,
}

const PREDICT_NOTES: &str = "\
Results: prediction.json has the summary, the resolved configuration and where everything came from;
requests.parquet has one row per request (docs/requests.md describes its columns). Progress goes to
standard error when it is a terminal; standard output has the result only.

Exit codes: 0 success; 1 the run failed (a trace that cannot be read, a full disk); 2 the command
line, the configuration or the output folder is wrong; 130 interrupted. After anything but 0 no file
has been created, replaced or removed.

Example:
  dynosim predict --stack dynamo -c data/examples/prediction.yaml --output-dir /tmp/out";

/// The stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StackArg {
    /// Engines alone, requests spread round robin; refuses the `router` and `planner` sections
    Engine,
    /// Engines behind a router, with an optional planner
    Dynamo,
}

/// What `predict` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people
    Table,
    /// The summary as one line of JSON
    Json,
}
