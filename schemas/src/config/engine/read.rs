//! Decoding of `engine`, and the rules inside it.

use super::{
    Backend, BytesPerToken, Capacity, ContextLength, Engine, KvCache, KvTransfer, MixedPass, Mode, Parallelism, Role,
    SchedulePolicy, Scheduler, Timing, TransferLinks, TransferTiming, Worker, Workers, default_interval,
    default_max_batched_tokens, default_prefix_caching,
};
use crate::config::Problem;
use crate::config::fields::{At, Bound, Choice, Fields};
use crate::config::limits::{MAX_BLOCKS, MAX_REPLICAS, MAX_TOKENS};

const ENGINE: [&str; 8] =
    ["mode", "model", "hardware", "backend", "backend_version", "context_length", "workers", "kv_transfer"];

impl Choice for Mode {
    const WHAT: &'static str = "mode";
    const ALL: &'static [(&'static str, Self)] =
        &[("aggregated", Self::Aggregated), ("disaggregated", Self::Disaggregated)];
}

impl Choice for Backend {
    const WHAT: &'static str = "backend";
    const ALL: &'static [(&'static str, Self)] =
        &[("vllm", Self::Vllm), ("sglang", Self::Sglang), ("trtllm", Self::Trtllm)];
}

impl Choice for TransferTiming {
    const WHAT: &'static str = "timing mode";
    const ALL: &'static [(&'static str, Self)] =
        &[("full_prompt", Self::FullPrompt), ("destination_missing", Self::DestinationMissing)];
}

impl Choice for TransferLinks {
    const WHAT: &'static str = "kind of links";
    const ALL: &'static [(&'static str, Self)] = &[("independent", Self::Independent), ("shared", Self::Shared)];
}

impl Choice for MixedPass {
    const WHAT: &'static str = "kind of mixed pass";
    const ALL: &'static [(&'static str, Self)] = &[("sum", Self::Sum), ("fused", Self::Fused)];
}

impl Choice for SchedulePolicy {
    const WHAT: &'static str = "scheduling policy";
    const ALL: &'static [(&'static str, Self)] = &[("fifo", Self::Fifo), ("lpm", Self::Lpm)];
}

#[derive(Clone, Copy)]
enum CapacityKind {
    Default,
    Fixed,
}

impl Choice for CapacityKind {
    const WHAT: &'static str = "capacity";
    const ALL: &'static [(&'static str, Self)] = &[("default", Self::Default), ("fixed", Self::Fixed)];
}

#[derive(Clone, Copy)]
enum TimingKind {
    Default,
    Fixed,
    Polynomial,
}

impl Choice for TimingKind {
    const WHAT: &'static str = "timing";
    const ALL: &'static [(&'static str, Self)] =
        &[("default", Self::Default), ("fixed", Self::Fixed), ("polynomial", Self::Polynomial)];
}

impl Engine {
    pub(in crate::config) fn read(at: At<'_>) -> Result<Self, Problem> {
        let fields = Fields::open_known(at, &ENGINE)?;
        let backend = fields.choice("backend")?.unwrap_or_default();
        let engine = Self {
            mode: fields.choice("mode")?.unwrap_or_default(),
            model: fields.text("model")?,
            hardware: read_hardware(&fields)?,
            backend,
            backend_version: fields.text_or_null("backend_version")?,
            context_length: read_context_length(&fields)?,
            workers: Workers::read(fields.required("workers")?, backend)?,
            kv_transfer: fields.value("kv_transfer").map(KvTransfer::read).transpose()?,
        };
        check_roles(&fields, &engine)?;
        check_block_sizes(&fields, &engine)?;
        check_schedulers(&fields, &engine)?;
        Ok(engine)
    }
}

fn read_hardware(fields: &Fields<'_>) -> Result<String, Problem> {
    let hardware = fields.text("hardware")?;
    if hardware == "auto" {
        return Err(Problem::at(fields.required("hardware")?.path, "`auto` belongs to a search over configurations")
            .help("name the accelerator, for example h200_sxm"));
    }
    Ok(hardware)
}

fn read_context_length(fields: &Fields<'_>) -> Result<ContextLength, Problem> {
    let tokens = int_or_word(fields, "context_length", "max")?;
    Ok(tokens.flatten().map_or(ContextLength::Max, ContextLength::Tokens))
}

/// A whole number, or a word for which the answer is `Some(None)`.
fn int_or_word(fields: &Fields<'_>, key: &str, word: &str) -> Result<Option<Option<u64>>, Problem> {
    let Some(at) = fields.value(key) else { return Ok(None) };
    if at.value.as_str() == Some(word) {
        return Ok(Some(None));
    }
    if at.value.is_number() {
        return at.int(1..=MAX_TOKENS).map(|number| Some(Some(number)));
    }
    Err(at.wrong(&format!("a whole number or `{word}`")))
}

impl Workers {
    fn read(at: At<'_>, backend: Backend) -> Result<Self, Problem> {
        let fields = Fields::open_known(at, &["aggregated", "prefill", "decode"])?;
        let role = |role: Role| fields.value(role.name()).map(|at| Worker::read(at, role, backend)).transpose();
        Ok(Self { aggregated: role(Role::Aggregated)?, prefill: role(Role::Prefill)?, decode: role(Role::Decode)? })
    }
}

impl Worker {
    fn read(at: At<'_>, role: Role, backend: Backend) -> Result<Self, Problem> {
        let known = ["parallelism", "scheduler", "kv_cache", "timing", "startup_seconds"];
        let fields = Fields::open_known(at, &known)?;
        Ok(Self {
            parallelism: Parallelism::read(&fields)?,
            scheduler: Scheduler::read(&fields, role)?,
            kv_cache: KvCache::read(&fields, backend)?,
            timing: fields.value("timing").map_or(Ok(Timing::default()), Timing::read)?,
            startup_seconds: fields.number("startup_seconds", Bound::NonNegative)?.unwrap_or(0.0),
        })
    }
}

impl Parallelism {
    fn read(worker: &Fields<'_>) -> Result<Self, Problem> {
        let known = ["replicas", "tensor", "pipeline", "attention_data", "moe_tensor", "moe_expert"];
        let fields = worker.section("parallelism", &known)?;
        let degree = |key| Ok(fields.int(key, 1..=MAX_REPLICAS)?.unwrap_or(1));
        Ok(Self {
            replicas: degree("replicas")?,
            tensor: degree("tensor")?,
            pipeline: degree("pipeline")?,
            attention_data: degree("attention_data")?,
            moe_tensor: degree("moe_tensor")?,
            moe_expert: degree("moe_expert")?,
        })
    }
}

impl Scheduler {
    fn read(worker: &Fields<'_>, role: Role) -> Result<Self, Problem> {
        let known = ["max_batched_tokens", "max_sequences", "policy", "prefill_schedule_interval"];
        let fields = worker.section("scheduler", &known)?;
        let interval = fields.int("prefill_schedule_interval", 1..=MAX_TOKENS)?;
        let tokens = fields.int("max_batched_tokens", 1..=MAX_TOKENS)?;
        let sequences = fields.int("max_sequences", 1..=MAX_TOKENS)?;
        Ok(Self {
            max_batched_tokens: tokens.unwrap_or_else(default_max_batched_tokens),
            max_sequences: sequences.unwrap_or_else(|| role.default_max_sequences()),
            policy: fields.choice("policy")?.unwrap_or_default(),
            prefill_schedule_interval: interval.unwrap_or_else(default_interval),
        })
    }
}

impl KvCache {
    fn read(worker: &Fields<'_>, backend: Backend) -> Result<Self, Problem> {
        let fields = worker.section("kv_cache", &["block_size", "prefix_caching", "capacity"])?;
        let block_size = fields.int("block_size", 1..=MAX_TOKENS)?;
        Ok(Self {
            block_size: block_size.unwrap_or_else(|| backend.default_block_size()),
            prefix_caching: fields.flag("prefix_caching")?.unwrap_or_else(default_prefix_caching),
            capacity: Capacity::read(&fields, backend)?,
        })
    }
}

impl Capacity {
    fn read(cache: &Fields<'_>, backend: Backend) -> Result<Self, Problem> {
        let fields = cache.section("capacity", &["type", "memory_fraction", "blocks"])?;
        let kind = fields.choice("type")?.unwrap_or(CapacityKind::Default);
        let memory_fraction = fields.number("memory_fraction", Bound::Share)?;
        let blocks = fields.int("blocks", 1..=MAX_BLOCKS)?;
        match kind {
            CapacityKind::Default => {
                fields.only_for("default", &["type", "memory_fraction"])?;
                let memory_fraction = memory_fraction.unwrap_or_else(|| backend.default_memory_fraction());
                Ok(Self::Default { memory_fraction })
            }
            CapacityKind::Fixed => {
                fields.only_for("fixed", &["type", "blocks"])?;
                let missing = || Problem::at(fields.path(), "`fixed` needs `blocks`").help("add `blocks: N`");
                Ok(Self::Fixed { blocks: blocks.ok_or_else(missing)? })
            }
        }
    }
}

impl Timing {
    fn read(at: At<'_>) -> Result<Self, Problem> {
        let fields = Fields::open_known(at, &["type", "mixed", "prefill_ms", "decode_ms"])?;
        let kind = fields.choice("type")?.unwrap_or(TimingKind::Default);
        let mixed = fields.choice("mixed")?.unwrap_or_default();
        let prefill_ms = fields.number("prefill_ms", Bound::NonNegative)?;
        let decode_ms = fields.number("decode_ms", Bound::NonNegative)?;
        match (kind, prefill_ms, decode_ms) {
            (TimingKind::Fixed, Some(prefill_ms), Some(decode_ms)) => {
                fields.only_for("fixed", &["type", "prefill_ms", "decode_ms"])?;
                Ok(Self::Fixed { prefill_ms, decode_ms })
            }
            (TimingKind::Fixed, ..) => {
                Err(Problem::at(fields.path(), "`fixed` needs both `prefill_ms` and `decode_ms`")
                    .help("add the missing one"))
            }
            (TimingKind::Default, ..) => {
                fields.only_for("default", &["type", "mixed"]).map(|()| Self::Default { mixed })
            }
            (TimingKind::Polynomial, ..) => fields.only_for("polynomial", &["type"]).map(|()| Self::Polynomial),
        }
    }
}

impl KvTransfer {
    fn read(at: At<'_>) -> Result<Self, Problem> {
        let fields = Fields::open_known(at, &["bytes_per_token", "bandwidth_gb_per_second", "timing_mode", "links"])?;
        let bytes = int_or_word(&fields, "bytes_per_token", "auto")?;
        Ok(Self {
            bytes_per_token: bytes.flatten().map_or(BytesPerToken::Auto, BytesPerToken::Bytes),
            bandwidth_gb_per_second: fields.number_or_null("bandwidth_gb_per_second", Bound::Positive)?,
            timing_mode: fields.choice("timing_mode")?.unwrap_or_default(),
            links: fields.choice("links")?.unwrap_or_default(),
        })
    }
}

/// The mode decides which roles there are and whether KV moves between them.
fn check_roles(fields: &Fields<'_>, engine: &Engine) -> Result<(), Problem> {
    let refuse = |message: &str, help: &str| Err(Problem::at(fields.path(), message).help(help));
    let workers = &engine.workers;
    let present = (workers.aggregated.is_some(), workers.prefill.is_some(), workers.decode.is_some());
    match (engine.mode, present) {
        (Mode::Aggregated, (true, false, false)) if engine.kv_transfer.is_some() => {
            refuse("aggregated workers transfer no KV", "remove `kv_transfer`, or set `mode: disaggregated`")
        }
        (Mode::Aggregated, (true, false, false)) => Ok(()),
        (Mode::Aggregated, _) => {
            refuse("mode `aggregated` needs exactly `workers.aggregated`", "add it if missing, remove other roles")
        }
        (Mode::Disaggregated, _) if engine.backend == Backend::Trtllm => {
            refuse("trtllm is simulated in aggregated mode only", "set `mode: aggregated` or another backend")
        }
        (Mode::Disaggregated, (false, true, true)) if engine.kv_transfer.is_none() => {
            fields.required("kv_transfer").map(|_| ())
        }
        (Mode::Disaggregated, (false, true, true)) => Ok(()),
        (Mode::Disaggregated, _) => refuse(
            "mode `disaggregated` needs exactly `workers.prefill` and `workers.decode`",
            "add what is missing, remove other roles",
        ),
    }
}

/// Block sizes that the backend can run, and that agree where KV moves.
fn check_block_sizes(fields: &Fields<'_>, engine: &Engine) -> Result<(), Problem> {
    let smallest = engine.backend.smallest_block_size();
    for (role, worker) in engine.workers.roles() {
        if worker.kv_cache.block_size < smallest {
            let message = format!("workers.{}.kv_cache.block_size is below what the backend runs", role.name());
            return Err(Problem::at(fields.path(), message).help(format!("use {smallest} or more")));
        }
    }
    let mut sizes = engine.workers.roles().map(|(_, worker)| worker.kv_cache.block_size);
    match (sizes.next(), sizes.next()) {
        (Some(prefill), Some(decode)) if prefill != decode => {
            let message = format!("prefill workers have KV blocks of {prefill} tokens and decode workers of {decode}");
            Err(Problem::at(fields.path(), message).help("give both the same `kv_cache.block_size`"))
        }
        _ => Ok(()),
    }
}

/// Schedulers that the backend has.
fn check_schedulers(fields: &Fields<'_>, engine: &Engine) -> Result<(), Problem> {
    for (role, worker) in engine.workers.roles() {
        let path = |field: &str| format!("{}.workers.{}.scheduler.{field}", fields.path(), role.name());
        let Scheduler { policy, prefill_schedule_interval: interval, max_batched_tokens: tokens, .. } =
            worker.scheduler;
        let ranks = worker.parallelism.attention_data;
        if policy != SchedulePolicy::Fifo && engine.backend != Backend::Sglang {
            return Err(Problem::at(path("policy"), "only sglang orders waiting requests by their cached prefixes")
                .help("use `fifo`, or `backend: sglang`"));
        }
        if interval > 1 && (engine.backend != Backend::Vllm || ranks < 2) {
            let message = "only vllm with `attention_data` above 1 has a schedule of prefill passes";
            return Err(Problem::at(path("prefill_schedule_interval"), message).help("use 1"));
        }
        let block_size = worker.kv_cache.block_size;
        if engine.backend == Backend::Sglang && (tokens % block_size != 0 || tokens / ranks < block_size) {
            let message = format!("sglang computes prompts in chunks of whole KV blocks, here of {block_size} tokens");
            let help = format!("use a multiple of {block_size}, and at least {block_size} for each attention rank");
            return Err(Problem::at(path("max_batched_tokens"), message).help(help));
        }
    }
    Ok(())
}
