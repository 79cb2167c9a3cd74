//! The engine that a rank runs.

use bevy_ecs::prelude::*;
pub use dynosim_schemas::config::Backend;

use super::Sequence;
use crate::fleet::Role;
use crate::timing::PassTiming;

/// The engine that a rank runs.
#[derive(Component, Clone, Copy, Debug, PartialEq)]
pub struct EngineSpec {
    /// Whose scheduler it is.
    pub backend: Backend,
    /// What the worker is for.
    pub role: Role,
    /// Tokens per KV block.
    pub block_size: u32,
    /// Blocks in the KV pool.
    pub num_blocks: u32,
    /// Tokens that one pass may compute. SGLang: prompt tokens, that is, the size of a chunk.
    pub max_batched_tokens: u32,
    /// Requests that may run at once.
    pub max_sequences: u32,
    /// Prompt and output tokens that a request may have in total.
    pub context_length: u32,
    /// Whether complete blocks can be found by later requests.
    pub prefix_caching: bool,
    /// Passes of a worker from one that may compute prompts to the next; vLLM with attention data
    /// parallelism only.
    pub prefill_schedule_interval: u32,
    /// Whether waiting requests go in order of their cached prefixes, longest first; SGLang only.
    pub longest_prefix_first: bool,
    /// How long a pass takes.
    pub timing: PassTiming,
}

impl EngineSpec {
    /// Tokens that the KV pool holds.
    #[must_use]
    pub fn pool_tokens(&self) -> f64 {
        f64::from(self.num_blocks) * f64::from(self.block_size)
    }

    /// Blocks that are entities. SGLang's pages are not: its tree knows stretches of them.
    #[must_use]
    pub fn block_entities(&self) -> u32 {
        if self.backend == Backend::Sglang { 0 } else { self.num_blocks }
    }

    /// Whether a request is only admitted when the blocks for its last token are there, and they are
    /// set aside for it: TensorRT-LLM's "guaranteed no evict".
    #[must_use]
    pub fn sets_blocks_aside(&self) -> bool {
        self.backend == Backend::Trtllm
    }

    /// Whether a request gets room on a decode worker before its prompt is computed.
    #[must_use]
    pub fn hands_over_destination_first(&self) -> bool {
        self.backend == Backend::Sglang
    }

    /// Blocks that a request holds when it gets its last token.
    #[must_use]
    pub const fn blocks_at_the_end(&self, sequence: &Sequence) -> u32 {
        (sequence.prompt_tokens + sequence.output_limit).div_ceil(self.block_size)
    }

    /// Whether the pool can hold that many known tokens of a request and let it go on.
    #[must_use]
    pub fn can_hold(&self, tokens: u32) -> bool {
        let blocks = tokens.div_ceil(self.block_size);
        blocks < self.num_blocks || (blocks == self.num_blocks && !self.fills_pool(tokens))
    }

    /// Whether that many tokens leave no room for an output that has to be set aside.
    fn fills_pool(&self, tokens: u32) -> bool {
        self.sets_blocks_aside() && f64::from(tokens) >= self.pool_tokens()
    }

    /// An engine of vLLM's kind with that many blocks, the rest as by default.
    #[must_use]
    pub const fn vllm(block_size: u32, num_blocks: u32, timing: PassTiming) -> Self {
        Self {
            backend: Backend::Vllm,
            role: Role::Aggregated,
            block_size,
            num_blocks,
            max_batched_tokens: 8192,
            max_sequences: 256,
            context_length: u32::MAX,
            prefix_caching: true,
            prefill_schedule_interval: 1,
            longest_prefix_first: false,
            timing,
        }
    }
}
