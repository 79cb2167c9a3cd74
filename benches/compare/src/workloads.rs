//! What is run: the same workload and deployment in the words of both programs.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::Failure;
use crate::measure::{self, Cost};

/// Tokens of a KV block.
const BLOCK_SIZE: u64 = 64;
/// Tokens of a request, at most.
const CONTEXT_LENGTH: u64 = 131_072;
/// Requests of a worker's batch, at most.
const MAX_SEQUENCES: u64 = 256;
/// Tokens of a pass, at most.
const MAX_BATCHED_TOKENS: u64 = 8192;
/// Size of a token's KV.
const BYTES_PER_TOKEN: u64 = 131_072;
/// Bandwidth of a transfer.
const GB_PER_SECOND: f64 = 64.0;
/// Blocks of a worker's pool.
pub const POOL_BLOCKS: u64 = 16_384;
/// Tokens that an id of a trace stands for.
pub const TOKENS_PER_ID: u64 = 512;

/// What both programs are given, and what the row of the table is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// For `--only`.
    pub name: &'static str,
    /// For the table.
    pub title: &'static str,
    /// The `traffic` section of dynosim's configuration.
    pub traffic: Value,
    /// `source`, `load` and `via` of the reference's scenario.
    pub scenario: Value,
    /// How the four workers are used.
    pub layout: Layout,
}

/// How the workers of a side-by-side run are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Aggregated workers that take turns.
    #[default]
    RoundRobin,
    /// Aggregated workers behind the KV router.
    KvRouter,
    /// Half of them compute prompts, half generate, behind KV routers.
    DisaggregatedKvRouter,
}

/// The workloads of the side-by-side table.
pub fn table(conversation: &Path, synthetic_trace: &Path) -> Vec<Workload> {
    vec![
        trace("conversation", "conversation trace, 12,031 requests", conversation),
        Workload { layout: Layout::KvRouter, ..trace("kv-router", "conversation trace, KV router", conversation) },
        Workload {
            layout: Layout::DisaggregatedKvRouter,
            ..trace("disaggregated", "conversation trace, disaggregated 2+2, KV router", conversation)
        },
        trace("synthetic-trace", "synthetic trace, 3,993 requests", synthetic_trace),
        synthetic("synthetic-100k", "synthetic 2048/128, 100,000 requests, concurrency 256", 100_000),
        synthetic("synthetic-1m", "synthetic 2048/128, 1,000,000 requests, concurrency 256", 1_000_000),
        sessions("sessions", "200,000 sessions of 4 turns of 1024/128, concurrency 256", 1024, 128),
        sessions("short-turns", "200,000 sessions of 4 turns of 256/32, concurrency 256", 256, 32),
    ]
}

fn trace(name: &'static str, title: &'static str, path: &Path) -> Workload {
    Workload {
        name,
        title,
        traffic: trace_traffic(path),
        scenario: json!({
            "source": { "type": "trace", "path": absolute(path), "format": "mooncake", "block_size": TOKENS_PER_ID },
            "load": { "type": "trace_timestamps", "speedup": 1.0 },
        }),
        layout: Layout::RoundRobin,
    }
}

/// A Mooncake trace, played as recorded.
pub fn trace_traffic(path: &Path) -> Value {
    json!({
        "source": { "type": "trace", "format": "mooncake", "block_size": TOKENS_PER_ID, "paths": [absolute(path)] },
        "load": { "type": "trace_timestamps" },
    })
}

fn synthetic(name: &'static str, title: &'static str, requests: u64) -> Workload {
    // `generated` is the reference's leanest way: it makes requests as it needs them.
    let source = json!({
        "type": "synthetic", "input_tokens": 2048, "output_tokens": 128, "count": requests, "mode": "generated",
    });
    Workload {
        name,
        title,
        traffic: synthetic_traffic(2048, 128, requests, 256),
        scenario: json!({
            "source": source,
            "load": { "type": "concurrency", "concurrency": 256 },
            "via": "aisim",
        }),
        layout: Layout::RoundRobin,
    }
}

/// Independent requests in a closed loop.
pub fn synthetic_traffic(input_tokens: u64, output_tokens: u64, requests: u64, concurrency: u64) -> Value {
    json!({
        "source": { "type": "synthetic", "input_tokens": input_tokens, "output_tokens": output_tokens },
        "load": { "type": "concurrency", "concurrency": concurrency },
        "stop": { "requests": requests },
    })
}

fn sessions(name: &'static str, title: &'static str, new_input_tokens: u64, output_tokens: u64) -> Workload {
    let sessions = 200_000;
    let load = json!({ "type": "concurrency", "concurrency": 256 });
    Workload {
        name,
        title,
        traffic: json!({
            "source": {
                "type": "synthetic-session",
                "new_input_tokens_per_turn": new_input_tokens,
                "output_tokens_per_turn": output_tokens,
                "session": { "turns": 4 },
            },
            "load": load,
            "stop": { "sessions": sessions },
        }),
        scenario: json!({
            "source": {
                "type": "synthetic-session",
                "new_input_tokens_per_turn": new_input_tokens,
                "output_tokens_per_turn": output_tokens,
                "turns": 4,
                "sessions": sessions,
                "accumulate": true,
            },
            "load": load,
        }),
        layout: Layout::RoundRobin,
    }
}

/// A deployment for dynosim. The side-by-side runs all use the default.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// Workers.
    pub workers: u64,
    /// Blocks of each one's pool.
    pub blocks: u64,
    /// The timing model.
    pub timing: Value,
    /// How the workers are used.
    pub layout: Layout,
}

impl Deployment {
    /// The sections of dynosim's configuration other than `traffic`.
    fn sections(&self) -> Value {
        let worker = |replicas: u64| {
            json!({
                "parallelism": { "replicas": replicas },
                "scheduler": { "max_batched_tokens": MAX_BATCHED_TOKENS, "max_sequences": MAX_SEQUENCES },
                "kv_cache": {
                    "block_size": BLOCK_SIZE,
                    "prefix_caching": true,
                    "capacity": { "type": "fixed", "blocks": self.blocks },
                },
                "timing": self.timing,
            })
        };
        let mut engine = json!({
            "model": "meta-llama/Meta-Llama-3.1-8B-Instruct",
            "hardware": "h200_sxm",
            "backend": "vllm",
            "context_length": CONTEXT_LENGTH,
        });
        if self.layout == Layout::DisaggregatedKvRouter {
            engine["mode"] = json!("disaggregated");
            engine["workers"] = json!({ "prefill": worker(self.workers / 2), "decode": worker(self.workers / 2) });
            engine["kv_transfer"] = json!({
                "bytes_per_token": BYTES_PER_TOKEN,
                "bandwidth_gb_per_second": GB_PER_SECOND,
                "timing_mode": "destination_missing",
            });
        } else {
            engine["workers"] = json!({ "aggregated": worker(self.workers) });
        }
        let policy = if self.layout == Layout::RoundRobin { "round_robin" } else { "kv_router" };
        json!({ "engine": engine, "router": { "policy": policy } })
    }

    /// The reference's `topology` and `router`.
    fn topology(&self) -> (Value, Value) {
        let topology = match self.layout {
            Layout::RoundRobin | Layout::KvRouter => json!({ "type": "aggregated", "num_workers": self.workers }),
            Layout::DisaggregatedKvRouter => json!({
                "type": "disaggregated",
                "prefill_workers": self.workers / 2,
                "decode_workers": self.workers / 2,
                "kv_bytes_per_token": BYTES_PER_TOKEN,
                "kv_transfer_bandwidth": GB_PER_SECOND,
                "kv_transfer_timing_mode": "destination_missing",
            }),
        };
        let mode = if self.layout == Layout::RoundRobin { "round_robin" } else { "kv_router" };
        (topology, json!({ "mode": mode }))
    }
}

impl Default for Deployment {
    fn default() -> Self {
        Self { workers: 4, blocks: POOL_BLOCKS, timing: json!({ "type": "polynomial" }), layout: Layout::default() }
    }
}

/// The programs, and where their inputs and results go.
#[derive(Clone, Debug)]
pub struct Programs<'a> {
    /// dynosim.
    pub dynosim: PathBuf,
    /// The reference.
    pub peer: PathBuf,
    /// An existing folder.
    pub folder: &'a Path,
}

impl Programs<'_> {
    /// Runs dynosim; gives what that cost, and its report.
    pub fn run_dynosim(&self, traffic: &Value, on: &Deployment, profiled: bool) -> Result<(Cost, Value), Failure> {
        let mut config = on.sections();
        config["traffic"] = traffic.clone();
        // Every JSON document is YAML.
        let path = self.write("dynosim.yaml", &config)?;
        let output = self.folder.join("dynosim-output");
        clear(&output, fs::remove_dir_all)?;
        let words = ["predict", "--stack", "dynamo", "--format", "json", "--config"];
        let mut arguments: Vec<&OsStr> = words.map(OsStr::new).into();
        arguments.extend([path.as_os_str(), OsStr::new("--output-dir"), output.as_os_str()]);
        if profiled {
            arguments.push(OsStr::new("--profile"));
        }
        let cost = measure::run(&self.dynosim, &arguments)?;
        Ok((cost, read(&output.join("prediction.json"))?))
    }

    /// Runs the reference; gives what that cost, and its report.
    pub fn run_peer(&self, workload: &Workload) -> Result<(Cost, Value), Failure> {
        let mut scenario = workload.scenario.clone();
        scenario["name"] = workload.name.into();
        scenario["engine"] = json!({
            "backend": "vllm",
            "block_size": BLOCK_SIZE,
            "num_gpu_blocks": POOL_BLOCKS,
            "max_num_seqs": MAX_SEQUENCES,
            "max_num_batched_tokens": MAX_BATCHED_TOKENS,
            "max_model_len": CONTEXT_LENGTH,
            "enable_prefix_caching": true,
            "enable_chunked_prefill": true,
            "timing_model": { "type": "polynomial" },
        });
        let deployment = Deployment { layout: workload.layout, ..Deployment::default() };
        (scenario["topology"], scenario["router"]) = deployment.topology();
        let path = self.write("peer.json", &scenario)?;
        let report = self.folder.join("peer-report.json");
        clear(&report, fs::remove_file)?;
        let cost = measure::run(&self.peer, &[path.as_os_str(), report.as_os_str()])?;
        Ok((cost, read(&report)?))
    }

    fn write(&self, name: &str, value: &Value) -> Result<PathBuf, Failure> {
        let path = self.folder.join(name);
        match fs::write(&path, value.to_string()) {
            Ok(()) => Ok(path),
            Err(e) => Err(Failure::new(format!("cannot write {}: {e}", path.display()))),
        }
    }
}

/// Removes what an earlier run has left: to replace a file makes the file system wait for the disk.
fn clear<'a>(path: &'a Path, remove: impl FnOnce(&'a Path) -> io::Result<()>) -> Result<(), Failure> {
    match remove(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(Failure::new(format!("cannot remove {}: {e}", path.display())))
        }
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<Value, Failure> {
    let text = fs::read(path).map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?;
    serde_json::from_slice(&text).map_err(|e| Failure::new(format!("{} is not JSON: {e}", path.display())))
}

/// Paths are read by programs with rules of their own for relative ones.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
