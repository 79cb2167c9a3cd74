//! `engine`: model, hardware, backend and the workers that serve.

mod read;

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use super::limits::{MAX_BLOCKS, MAX_NUMBER, MAX_REPLICAS, MAX_TOKENS};
use super::schema::{default_tag, int_or_word, no_default, no_null, positive};

/// Model, hardware, backend and workers.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Engine {
    /// Whether one worker does a whole request, or prefill and decode workers share it.
    #[schemars(default)]
    pub mode: Mode,
    /// The model, by its Hugging Face name.
    #[schemars(length(min = 1))]
    pub model: String,
    /// The accelerator, such as `h200_sxm`.
    #[schemars(length(min = 1), extend("not" = { "const": "auto" }))]
    pub hardware: String,
    /// The inference engine.
    #[schemars(default)]
    pub backend: Backend,
    /// The engine's version; quote it.
    #[schemars(default, length(min = 1))]
    pub backend_version: Option<String>,
    /// Longest prompt and output together. `max`: what the model allows.
    #[schemars(default)]
    pub context_length: ContextLength,
    /// The workers of each role that the mode has.
    pub workers: Workers,
    /// How KV moves from prefill to decode workers: required when disaggregated, refused when aggregated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = no_null)]
    pub kv_transfer: Option<KvTransfer>,
}

/// How the phases of a request are spread over workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every worker does prefill and decode.
    #[default]
    Aggregated,
    /// Prefill workers hand requests over to decode workers.
    Disaggregated,
}

/// An inference engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// vLLM.
    #[default]
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM (aggregated only).
    Trtllm,
}

impl Backend {
    /// Tokens per KV block, unless the file says otherwise.
    #[must_use]
    pub fn default_block_size(self) -> u64 {
        match self {
            Self::Vllm => 64,
            Self::Sglang => 1,
            Self::Trtllm => 32,
        }
    }

    /// The smallest KV block that the engine can run.
    #[must_use]
    pub fn smallest_block_size(self) -> u64 {
        match self {
            Self::Vllm | Self::Trtllm => 2,
            Self::Sglang => 1,
        }
    }

    /// Share of device memory that the engine takes, unless the file says otherwise.
    #[must_use]
    pub fn default_memory_fraction(self) -> f64 {
        match self {
            Self::Vllm | Self::Trtllm => 0.9,
            Self::Sglang => 0.88,
        }
    }
}

/// Longest prompt and output together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextLength {
    /// What the model allows.
    #[default]
    Max,
    /// This many tokens.
    Tokens(u64),
}

impl Serialize for ContextLength {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Max => serializer.serialize_str("max"),
            Self::Tokens(tokens) => serializer.serialize_u64(*tokens),
        }
    }
}

impl JsonSchema for ContextLength {
    fn schema_name() -> Cow<'static, str> {
        "ContextLength".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        int_or_word("max", MAX_TOKENS)
    }
}

/// The workers of each role. Aggregated mode has `aggregated` alone; disaggregated mode `prefill` and `decode`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Workers {
    /// Workers that do whole requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = no_null)]
    pub aggregated: Option<Worker>,
    /// Workers that compute prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = no_null)]
    pub prefill: Option<Worker>,
    /// Workers that generate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = no_null)]
    pub decode: Option<Worker>,
}

/// What a worker is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Whole requests.
    Aggregated,
    /// Prompts.
    Prefill,
    /// Generation.
    Decode,
}

impl Role {
    /// The role's name under `engine.workers`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aggregated => "aggregated",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    /// Sequences that a worker runs at once, unless the file says otherwise.
    #[must_use]
    pub fn default_max_sequences(self) -> u64 {
        match self {
            Self::Aggregated | Self::Decode => 256,
            Self::Prefill => 1,
        }
    }
}

impl Workers {
    /// The roles that are present, with their workers.
    pub fn roles(&self) -> impl Iterator<Item = (Role, &Worker)> {
        let all = [(Role::Aggregated, &self.aggregated), (Role::Prefill, &self.prefill), (Role::Decode, &self.decode)];
        all.into_iter().filter_map(|(role, worker)| worker.as_ref().map(|worker| (role, worker)))
    }
}

/// One role's workers, all alike.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Worker {
    /// How many workers, and how each is spread over GPUs.
    #[schemars(default)]
    pub parallelism: Parallelism,
    /// What fits into one forward pass.
    #[schemars(default = "Scheduler::of_schema", transform = no_default)]
    pub scheduler: Scheduler,
    /// The KV cache of each rank.
    #[schemars(default = "KvCache::of_schema", transform = no_default)]
    pub kv_cache: KvCache,
    /// How long a forward pass takes.
    #[schemars(default)]
    pub timing: Timing,
    /// Time from the decision to add a worker until it can serve.
    #[schemars(default, range(min = 0.0, max = MAX_NUMBER))]
    pub startup_seconds: f64,
}

/// How many workers, and how each is spread over GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct Parallelism {
    /// Number of workers.
    #[schemars(range(min = 1, max = MAX_REPLICAS))]
    pub replicas: u64,
    /// Tensor-parallel ranks.
    #[schemars(range(min = 1, max = MAX_REPLICAS))]
    pub tensor: u64,
    /// Pipeline stages.
    #[schemars(range(min = 1, max = MAX_REPLICAS))]
    pub pipeline: u64,
    /// Data-parallel attention ranks, each with its own scheduler and KV cache.
    #[schemars(range(min = 1, max = MAX_REPLICAS))]
    pub attention_data: u64,
    /// Tensor-parallel ranks of the experts; they use the worker's GPUs and add none.
    #[schemars(range(min = 1, max = MAX_REPLICAS))]
    pub moe_tensor: u64,
    /// Expert-parallel ranks; they use the worker's GPUs and add none.
    #[schemars(range(min = 1, max = MAX_REPLICAS))]
    pub moe_expert: u64,
}

impl Default for Parallelism {
    fn default() -> Self {
        Self { replicas: 1, tensor: 1, pipeline: 1, attention_data: 1, moe_tensor: 1, moe_expert: 1 }
    }
}

impl Parallelism {
    /// GPUs of one worker.
    #[must_use]
    pub fn gpus_per_worker(&self) -> u64 {
        self.tensor.saturating_mul(self.pipeline).saturating_mul(self.attention_data)
    }
}

/// What fits into one forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Scheduler {
    /// Tokens of one pass.
    #[schemars(default = "default_max_batched_tokens", range(min = 1, max = MAX_TOKENS))]
    pub max_batched_tokens: u64,
    /// Sequences that run at once. 256 by default, 1 for prefill workers.
    #[schemars(default, transform = no_default, range(min = 1, max = MAX_TOKENS))]
    pub max_sequences: u64,
    /// Which waiting request goes first; only sglang knows another order than that of arrival. Not in the reference's
    /// file.
    #[schemars(default)]
    pub policy: SchedulePolicy,
    /// While requests decode, only every so many passes compute prompts. For vllm with `attention_data` above 1. Not
    /// in the reference's file.
    #[schemars(default = "default_interval", range(min = 1, max = MAX_TOKENS))]
    pub prefill_schedule_interval: u64,
}

/// Which waiting request goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchedulePolicy {
    /// The one that came first.
    #[default]
    Fifo,
    /// The one with the longest cached prefix.
    Lpm,
}

/// The KV cache of each rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct KvCache {
    /// Tokens per block. By default 64 for vllm, 1 for sglang, 32 for trtllm; only sglang runs with 1.
    #[schemars(default, transform = no_default, range(min = 1, max = MAX_TOKENS))]
    pub block_size: u64,
    /// Whether prompts reuse the blocks of earlier ones.
    #[schemars(default = "default_prefix_caching")]
    pub prefix_caching: bool,
    /// How many blocks there are.
    #[schemars(default = "Capacity::of_schema", transform = no_default)]
    pub capacity: Capacity,
}

/// How many KV blocks a rank has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(deny_unknown_fields, transform = default_tag("type", "default"))]
pub enum Capacity {
    /// As many as fit into the memory that the model leaves.
    Default {
        /// Share of device memory that the engine takes. 0.9 by default, 0.88 for sglang.
        #[schemars(default, transform = no_default, transform = positive, range(max = 1.0))]
        memory_fraction: f64,
    },
    /// A number.
    Fixed {
        /// Blocks of one rank.
        #[schemars(range(min = 1, max = MAX_BLOCKS))]
        blocks: u64,
    },
}

/// How long a forward pass takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(deny_unknown_fields, transform = default_tag("type", "default"))]
pub enum Timing {
    /// Estimated from measured operators for the model, the hardware and the batch.
    Default {
        /// How prompts and decode steps of one pass add up. Not in the reference's file.
        #[schemars(default)]
        mixed: MixedPass,
    },
    /// The same for every pass.
    Fixed {
        /// Duration of a pass that computes prompt tokens.
        #[schemars(range(min = 0.0, max = MAX_NUMBER))]
        prefill_ms: f64,
        /// Duration of a pass that only generates.
        #[schemars(range(min = 0.0, max = MAX_NUMBER))]
        decode_ms: f64,
    },
    /// A built-in polynomial of the batch.
    Polynomial,
}

impl Default for Timing {
    fn default() -> Self {
        Self::Default { mixed: MixedPass::default() }
    }
}

/// How prompts and decode steps of one pass add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MixedPass {
    /// One after the other, each as if it were alone.
    #[default]
    Sum,
    /// Together, so that weights are read once.
    Fused,
}

/// How KV moves from prefill to decode workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct KvTransfer {
    /// Size of one token's KV. `auto`: from the model.
    #[schemars(default)]
    pub bytes_per_token: BytesPerToken,
    /// Bandwidth of one transfer. Null: transfers take no time.
    #[schemars(default, transform = positive)]
    pub bandwidth_gb_per_second: Option<f64>,
    /// Which tokens are moved.
    #[schemars(default)]
    pub timing_mode: TransferTiming,
    /// Whether transfers get in each other's way. Not in the reference's file.
    #[schemars(default)]
    pub links: TransferLinks,
}

/// Whether transfers get in each other's way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransferLinks {
    /// Each has the whole bandwidth.
    #[default]
    Independent,
    /// Those out of one prefill worker share it, and so do those into one decode worker.
    Shared,
}

/// Size of one token's KV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BytesPerToken {
    /// From the model.
    #[default]
    Auto,
    /// This many bytes.
    Bytes(u64),
}

impl Serialize for BytesPerToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Bytes(bytes) => serializer.serialize_u64(*bytes),
        }
    }
}

impl JsonSchema for BytesPerToken {
    fn schema_name() -> Cow<'static, str> {
        "BytesPerToken".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        int_or_word("auto", MAX_TOKENS)
    }
}

/// Which tokens a transfer moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransferTiming {
    /// The whole prompt.
    FullPrompt,
    /// What the decode worker does not have yet.
    #[default]
    DestinationMissing,
}

// The values of `of_schema` only tell the schema's generator that a field may be left out; `no_default` removes them.

impl Scheduler {
    fn of_schema() -> Self {
        let max_sequences = Role::Aggregated.default_max_sequences();
        Self {
            max_batched_tokens: default_max_batched_tokens(),
            max_sequences,
            policy: SchedulePolicy::Fifo,
            prefill_schedule_interval: default_interval(),
        }
    }
}

impl KvCache {
    fn of_schema() -> Self {
        Self {
            block_size: Backend::Vllm.default_block_size(),
            prefix_caching: default_prefix_caching(),
            capacity: Capacity::of_schema(),
        }
    }
}

impl Capacity {
    fn of_schema() -> Self {
        Self::Default { memory_fraction: Backend::Vllm.default_memory_fraction() }
    }
}

fn default_max_batched_tokens() -> u64 {
    8192
}

fn default_interval() -> u64 {
    1
}

fn default_prefix_caching() -> bool {
    true
}
