//! `dynosim check`.

use dynosim_schemas::config::{Capacity, Role, Worker};

use crate::cli::ConfigArgs;
use crate::config_file::LoadedConfig;
use crate::error::CommandError;
use crate::perf_db::data_files;
use crate::resolve::{RankMemory, memory_of, resolve};

/// Checks a configuration and gives the text for standard output: how the memory of each rank is spent.
///
/// # Errors
/// With the message for the user if it could not be run.
pub fn check(args: &ConfigArgs) -> Result<String, CommandError> {
    let loaded = LoadedConfig::read(args)?;
    let files = data_files()?;
    let engine = &loaded.prediction.engine;
    let resolved = resolve(&loaded.prediction, &files, false).map_err(|problem| loaded.refuse(problem))?;
    let mut text =
        format!("{}: is valid; requests may have {} tokens\n", args.config.display(), resolved.context_length);
    match memory_of(&loaded.prediction, &files) {
        Ok(ranks) => {
            for ((_, worker), (role, rank)) in engine.workers.roles().zip(ranks) {
                describe(&mut text, (role, worker), &rank);
            }
        }
        // Nothing in the configuration depends on it.
        Err(problem) => text.push_str(&format!("memory: {problem}\n")),
    }
    Ok(text)
}

const GIB: f64 = (1_u64 << 30) as f64;

fn describe(text: &mut String, (role, worker): (Role, &Worker), rank: &RankMemory) {
    let gpus = worker.parallelism.gpus_per_worker();
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    line(format!("{}: memory of one rank ({} x {gpus} GPUs)", role.name(), worker.parallelism.replicas));
    let memory = &rank.memory;
    let parts = [
        ("device", memory.capacity),
        ("weights", memory.weights),
        ("activations", memory.activations),
        ("runtime", memory.runtime),
        ("collectives", memory.collectives),
        ("left for KV", memory.kv),
    ];
    for (name, bytes) in parts {
        line(format!("  {name:<12} {:>9.2} GiB", bytes / GIB));
    }
    line(format!("  {:<12} {:>9.0} bytes", "KV per token", rank.kv_bytes.per_token));
    let size = worker.kv_cache.block_size;
    let blocks = rank.tokens / size;
    line(format!("  {:<12} {blocks:>9} of {size} tokens: {} tokens", "KV blocks", blocks * size));
    if let Capacity::Fixed { blocks } = worker.kv_cache.capacity {
        line(format!("  {:<12} {blocks:>9} of {size} tokens, as the configuration has it", "used"));
    }
}
