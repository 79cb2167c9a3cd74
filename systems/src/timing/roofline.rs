//! The least time that an operator can take: its arithmetic at the peak rate, or its memory traffic at full bandwidth.

use dynosim_schemas::dtype::Dtype;
use dynosim_schemas::hardware::Hardware;

/// The operators whose time depends on three numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GridOperator {
    /// Grouped attention of prompts: heads, tokens, requests.
    Context(HeadShape),
    /// Grouped attention of a decode step: heads, requests, tokens.
    Generation(HeadShape),
    /// Latent attention of prompts: heads, tokens, requests.
    ContextLatent,
    /// Latent attention of a decode step: heads, requests, tokens.
    GenerationLatent,
    /// The same with its projections.
    GenerationLatentModule {
        /// Rate of the projections, in operations/s.
        gemm_flops: f64,
        /// Bytes of one weight.
        gemm_bytes: f64,
    },
}

/// What the heads of a grouped attention are like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadShape {
    /// Key and value heads of a rank; `None` if as many as query heads.
    pub kv_heads: Option<u64>,
    /// Width of a head.
    pub head_dim: u64,
    /// Tokens looked back at; 0 for all.
    pub window: u64,
}

/// The least time of an operator over three numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Which operator.
    pub operator: GridOperator,
    /// Peak rate of its arithmetic, in operations/s.
    pub flops: f64,
    /// Bandwidth of memory, in bytes/s.
    pub bandwidth: f64,
    /// Bytes of one element of the KV cache.
    pub kv_bytes: f64,
}

impl Roofline {
    /// The least time at these three numbers, in ms.
    #[must_use]
    pub fn ms(&self, [first, second, third]: [u64; 3]) -> f64 {
        let (heads, y, z) = (first as f64, second as f64, third as f64);
        let (operations, bytes) = match self.operator {
            GridOperator::Context(shape) => context(shape, self.kv_bytes, heads, y, z),
            GridOperator::Generation(shape) => generation(shape, self.kv_bytes, heads, y, z),
            GridOperator::ContextLatent => {
                (z * heads * 320.0 * y * y, z * heads * (self.kv_bytes * y * 320.0 + 2.0 * y * 320.0))
            }
            GridOperator::GenerationLatent => self.latent_step(heads, y, z),
            GridOperator::GenerationLatentModule { gemm_flops, gemm_bytes } => {
                let (operations, bytes) = self.latent_step(heads, y, z);
                let projections = 4.0 * y * heads * 65_536.0 * self.flops / gemm_flops;
                (operations + projections, bytes + 2.0 * heads * (y * 640.0 + 65_536.0) * gemm_bytes)
            }
        };
        (operations / self.flops).max(bytes / self.bandwidth) * 1e3
    }

    fn latent_step(&self, heads: f64, requests: f64, tokens: f64) -> (f64, f64) {
        let bytes = requests * (heads * 2176.0 + (tokens - 1.0) * 576.0 * self.kv_bytes);
        (2.0 * requests * heads * 1088.0 * tokens, bytes)
    }
}

/// Operations and bytes of attention over prompts: half of all pairs of tokens, or those in the window.
fn context(shape: HeadShape, kv_bytes: f64, heads: f64, tokens: f64, requests: f64) -> (f64, f64) {
    let (width, window) = (shape.head_dim as f64, shape.window as f64);
    let seen = if shape.window > 0 && tokens > window { window } else { tokens / 2.0 };
    let kv_heads = shape.kv_heads.map_or(heads, |kv_heads| kv_heads as f64);
    let bytes = 4.0 * requests * heads * tokens * width + kv_bytes * requests * 2.0 * kv_heads * tokens * width;
    (4.0 * requests * tokens * seen * heads * width, bytes)
}

/// Operations and bytes of attention in a decode step whose own token is the last of `tokens`.
fn generation(shape: HeadShape, kv_bytes: f64, heads: f64, requests: f64, tokens: f64) -> (f64, f64) {
    let (width, past) = (shape.head_dim as f64, tokens - 1.0);
    let seen = if shape.window > 0 { past.min(shape.window as f64) } else { past };
    let kv_heads = shape.kv_heads.map_or(heads, |kv_heads| kv_heads as f64);
    let bytes = requests * (4.0 * heads * width + 2.0 * kv_heads * seen * width * kv_bytes);
    (4.0 * requests * heads * width * seen, bytes)
}

/// The least time of matrix products of one number format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GemmLight {
    flops: f64,
    bytes: f64,
    bandwidth: f64,
}

impl GemmLight {
    /// On that hardware.
    #[must_use]
    pub fn new(hardware: &Hardware, dtype: Dtype) -> Self {
        let flops = hardware.flops(dtype.rate());
        Self { flops, bytes: dtype.bytes(), bandwidth: hardware.memory_bytes_per_second }
    }

    /// Of `m` by `k` with `k` by `n`, in ms.
    #[must_use]
    pub fn ms(&self, m: u64, n: u64, k: u64) -> f64 {
        let (m, n, k) = (m as f64, n as f64, k as f64);
        (2.0 * m * n * k / self.flops).max(self.bytes * (m * n + m * k + n * k) / self.bandwidth) * 1e3
    }
}

/// The shape of a layer of routed experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpertShape {
    /// Experts that a token goes to.
    pub top_k: u64,
    /// Experts.
    pub experts: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Width of an expert.
    pub inter: u64,
    /// Ranks that share an expert.
    pub tensor: u64,
    /// Ranks that the experts are spread over.
    pub expert: u64,
}

/// The least time of routed experts of one number format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertLight(GemmLight);

impl ExpertLight {
    /// On that hardware.
    #[must_use]
    pub fn new(hardware: &Hardware, dtype: Dtype) -> Self {
        Self(GemmLight::new(hardware, dtype))
    }

    /// For `tokens` tokens, in ms. Divisions are whole, as in the reference.
    #[must_use]
    pub fn ms(&self, shape: ExpertShape, tokens: u64) -> f64 {
        let ExpertShape { top_k, experts, hidden, inter, tensor, expert } = shape;
        // Wide enough for any dimensions that a configuration may claim.
        let [top_k, experts, hidden, inter, tensor, expert] =
            [top_k, experts, hidden, inter, tensor, expert].map(u128::from);
        let routed = u128::from(tokens) * top_k;
        let operations = routed * hidden * inter * 6 / expert / tensor;
        let busy = (experts / expert).min(routed / expert);
        let elements =
            routed / expert * hidden * 2 + routed / expert * inter * 3 / tensor + hidden * inter * 3 / tensor * busy;
        let Self(GemmLight { flops, bytes, bandwidth }) = self;
        (operations as f64 / flops).max(elements as f64 * bytes / bandwidth) * 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: HeadShape = HeadShape { kv_heads: Some(8), head_dim: 128, window: 0 };

    fn light(operator: GridOperator, flops: f64) -> Roofline {
        Roofline { operator, flops, bandwidth: 1e12, kv_bytes: 1.0 }
    }

    #[test]
    fn arithmetic_halves_with_twice_the_rate_and_memory_does_not() {
        for operator in [GridOperator::Context(SHAPE), GridOperator::Generation(SHAPE)] {
            let at = [32, 4096, 4096];
            let slow = light(operator, 1e9).ms(at);
            assert!((slow / light(operator, 2e9).ms(at) - 2.0).abs() < 1e-12);
            let bound_by_memory = light(operator, 1e30).ms(at);
            assert_eq!(bound_by_memory, light(operator, 2e30).ms(at));
        }
    }

    #[test]
    fn attention_by_hand() {
        // Two heads of width 4 over 8 tokens: 4 * 8 * 4 * 2 * 4 operations, half of all pairs of tokens.
        let tiny = HeadShape { kv_heads: None, head_dim: 4, window: 0 };
        assert_eq!(light(GridOperator::Context(tiny), 1e3).ms([2, 8, 1]), 1024.0);
        // With a window of 2 tokens: 4 * 8 * 2 * 2 * 4.
        let near = HeadShape { window: 2, ..tiny };
        assert_eq!(light(GridOperator::Context(near), 1e3).ms([2, 8, 1]), 512.0);
        // A step looks back at 7 tokens, or at 2: 4 * 2 * 4 * 7, and * 2.
        assert_eq!(light(GridOperator::Generation(tiny), 1e3).ms([2, 1, 8]), 224.0);
        assert_eq!(light(GridOperator::Generation(near), 1e3).ms([2, 1, 8]), 64.0);
    }
}
