//! Deployments for the benches.

use dynosim_systems::deployment::{Deployment, TokenLimits};
use dynosim_systems::scheduling::EngineSpec;
use dynosim_systems::timing::PassTiming;

/// Constant times, so that the size of a pool does not change how many passes a request takes.
pub const FIXED: PassTiming = PassTiming::Fixed { prefill_ms: 30.0, decode_ms: 8.0 };

/// Requests may have any number of tokens.
pub const NO_LIMITS: TokenLimits = TokenLimits { context_length: u32::MAX, pool_tokens: u32::MAX };

/// `workers` vLLM-style workers, each with a pool of `num_blocks` blocks of `block_size` tokens.
pub fn deployment(workers: u32, num_blocks: u32, block_size: u32, timing: PassTiming) -> Deployment {
    Deployment::aggregated(EngineSpec::vllm(block_size, num_blocks, timing), workers)
}
