//! How device memory is spent, and how many tokens of KV are left room for.
//!
//! Formulas as in the reference's estimator (AIConfigurator 0.12.0); all figures are bytes of one rank.

use dynosim_schemas::config::{Backend, Parallelism};
use dynosim_schemas::dtype::Dtype;
use dynosim_schemas::model::{Attention, FeedForward};

use super::layout::{LATENT_AND_ROPE, Served, latent_products};

/// Ranks beyond which activations do not get smaller.
const WIDEST: u64 = 8;
/// Least room for activations.
const LEAST_ACTIVATIONS: f64 = (70 << 20) as f64;
const LEAST_SGLANG_ACTIVATIONS: f64 = (90 << 20) as f64;
/// What SGLang takes more of.
const SGLANG_ACTIVATIONS: f64 = 1.15;
const SGLANG_RUNTIME: f64 = 1.2;
/// Width of activations of latent attention for each head.
const LATENT_ACTIVATION_WIDTH: u64 = 56;
/// Tokens of a tile of the experts' workspace, and bytes of one of its numbers.
const TILE: f64 = 128.0;
const WORKSPACE_BYTES: f64 = 4.0;
const ACTIVATION_BYTES: f64 = 2.0;

/// The memory of one rank, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// What the device has.
    pub capacity: f64,
    /// Weights.
    pub weights: f64,
    /// Activations of the largest pass.
    pub activations: f64,
    /// The runtime.
    pub runtime: f64,
    /// Collectives.
    pub collectives: f64,
    /// What is left for KV under the engine's share of the device; below 0 if the rest does not fit.
    pub kv: f64,
}

/// Bytes of KV of a sequence on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvBytes {
    /// Of a token, as long as every layer keeps it.
    pub per_token: f64,
    /// Of a token beyond the window of those layers that have one.
    pub beyond_window: f64,
    /// The window, in tokens.
    pub window: u64,
}

impl KvBytes {
    /// The longest sequence whose KV fits into `bytes`.
    #[must_use]
    pub fn tokens_in(&self, bytes: f64) -> u64 {
        let in_window = self.per_token * self.window as f64;
        if self.window == 0 || bytes <= in_window {
            return (bytes / self.per_token).max(0.0) as u64;
        }
        self.window + ((bytes - in_window) / self.beyond_window) as u64
    }
}

impl Served<'_> {
    /// The memory of one rank, with passes of up to `max_tokens` tokens and the share `fraction` of the device: of all of
    /// it, or for TensorRT-LLM of what the rest leaves.
    #[must_use]
    pub fn memory(&self, max_tokens: u64, fraction: f64) -> Memory {
        let capacity = self.hardware.memory_bytes as f64;
        let weights = self.weight_bytes();
        let activations = self.activation_bytes(max_tokens);
        let more = if self.backend == Backend::Sglang { SGLANG_RUNTIME } else { 1.0 };
        let runtime = self.hardware.runtime_bytes as f64 * more;
        let collectives = self.hardware.collective_bytes(self.parallelism.tensor) as f64;
        let rest = weights + activations + runtime + collectives;
        let kv = match self.backend {
            Backend::Vllm | Backend::Sglang => capacity * fraction - rest,
            Backend::Trtllm => (capacity - rest) * fraction,
        };
        Memory { capacity, weights, activations, runtime, collectives, kv: kv.floor() }
    }

    /// What a sequence's KV takes.
    #[must_use]
    pub fn kv_bytes(&self) -> KvBytes {
        let layers = self.model.layers as f64;
        let element = self.model.quantisation.kv_cache.bytes();
        match self.model.attention {
            Attention::Grouped { kv_heads, head_dim, window, .. } => {
                let of_layer = 2.0 * (kv_heads.div_ceil(self.parallelism.tensor) * head_dim) as f64 * element;
                KvBytes { per_token: layers * of_layer, beyond_window: layers / 2.0 * of_layer, window }
            }
            Attention::Latent { .. } => {
                let per_token = layers * LATENT_AND_ROPE as f64 * element;
                KvBytes { per_token, beyond_window: per_token, window: 0 }
            }
        }
    }

    fn weight_bytes(&self) -> f64 {
        let Parallelism { tensor, pipeline, moe_tensor, moe_expert, .. } = *self.parallelism;
        let model = self.model;
        let (gemm, layers) = (model.quantisation.gemm.bytes(), model.layers as f64);
        let words = (model.vocabulary / tensor * model.hidden) as f64 * Dtype::Bfloat16.bytes();
        let (embedding, attention) = match model.attention {
            Attention::Grouped { heads, kv_heads, head_dim, .. } => {
                let (query, key) = (heads / tensor * head_dim, kv_heads.div_ceil(tensor) * head_dim);
                (words, ((query + 2 * key) * model.hidden + model.hidden * query) as f64)
            }
            Attention::Latent { heads } => {
                let products = latent_products(heads / tensor, model.hidden);
                let elements: u64 = products.iter().map(|(n, k)| n * k).sum();
                // Every rank has the whole embedding.
                ((model.vocabulary * model.hidden) as f64 * Dtype::Bfloat16.bytes(), elements as f64)
            }
        };
        let gated = |inter: u64| (2 * inter / tensor * model.hidden + model.hidden * (inter / tensor)) as f64;
        let of_layer = match model.feed_forward {
            FeedForward::Dense { inter } => gated(inter) * gemm,
            FeedForward::Experts { experts, inter, shares_one, .. } => {
                let all = 3.0 * model.hidden as f64 * inter as f64 * experts as f64 * model.quantisation.moe.bytes();
                let own = ((all / moe_expert as f64).floor() / moe_tensor as f64).floor();
                let router = (experts * model.hidden) as f64 * Dtype::Bfloat16.bytes();
                own + router + if shares_one { gated(inter) * gemm } else { 0.0 }
            }
        };
        // The reference's estimator does not count the logits of grouped attention with experts.
        let logits = if self.has_prefill_logits() { words } else { 0.0 };
        (layers * (attention * gemm + of_layer) + embedding + logits) / pipeline as f64
    }

    fn activation_bytes(&self, max_tokens: u64) -> f64 {
        let model = self.model;
        let width = match model.attention {
            Attention::Grouped { heads, head_dim, .. } => heads * head_dim,
            Attention::Latent { heads } => heads * LATENT_ACTIVATION_WIDTH,
        };
        let is_sglang = self.backend == Backend::Sglang;
        let copies = copies(is_sglang, model.has_experts(), self.parallelism.tensor);
        let least = if is_sglang { LEAST_SGLANG_ACTIVATIONS } else { LEAST_ACTIVATIONS };
        let bytes = ACTIVATION_BYTES * max_tokens as f64 * width as f64 * copies;
        let all = (bytes + self.workspace_bytes(max_tokens)).max(least);
        if is_sglang { all * SGLANG_ACTIVATIONS } else { all }
    }

    /// What the experts of models with latent attention work in.
    fn workspace_bytes(&self, max_tokens: u64) -> f64 {
        match (self.model.attention, self.model.feed_forward) {
            (Attention::Latent { .. }, FeedForward::Experts { experts, top_k, .. }) => {
                let tokens = max_tokens as f64 * self.parallelism.attention_data as f64;
                let routed = tokens * (experts * top_k) as f64 / self.parallelism.moe_expert as f64;
                routed * self.model.hidden as f64 / TILE * WORKSPACE_BYTES
            }
            _ => 0.0,
        }
    }
}

/// Activations that live at once, in multiples of a layer's width.
fn copies(is_sglang: bool, has_experts: bool, tensor: u64) -> f64 {
    let [one, two, four, more] = match (is_sglang, has_experts) {
        (false, false) => [11.0, 6.5, 5.0, 5.0],
        (false, true) => [22.0, 13.0, 10.0, 10.0],
        (true, false) => [14.0, 8.5, 6.5, 6.5],
        (true, true) => [28.0, 17.0, 13.0, 13.0],
    };
    match tensor.min(WIDEST) {
        0 | 1 => one,
        2 | 3 => two,
        4..=7 => four,
        _ => more,
    }
}
