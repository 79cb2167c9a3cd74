//! Attention: of prompts and of decode steps, grouped and latent.

use dynosim_schemas::config::Backend;
use dynosim_schemas::dtype::Dtype;
use dynosim_schemas::hardware::{Hardware, TensorRate};
use dynosim_schemas::perf_table::TableKind;

use super::estimate::{Basis, Estimate};
use super::roofline::{GridOperator, HeadShape, Roofline};
use super::tables::{Slice, Tables, table_rows};

/// Lengths around the mean that a decode step is priced at, and the shares of it between which they lie: requests of a
/// batch differ in length.
const SAMPLES: u64 = 5;
const SHORTEST: f64 = 0.9;
const LONGEST: f64 = 1.1;
/// Weight of the small kernels around the attention of prompts.
const LAUNCH_WEIGHT: f64 = 1.1;
/// The first streaming multiprocessors with fp8 units.
const FP8_SM: u32 = 89;

/// The attention of some layers that are alike.
#[derive(Clone, Debug)]
pub struct AttentionLayers {
    /// How many layers.
    pub count: f64,
    heads: u64,
    slice: Slice,
    /// Small kernels of one layer, in ms.
    launch_ms: f64,
    /// Whether lengths around the mean count.
    averages: bool,
}

/// What attention kernels of one rank work on.
#[derive(Clone, Copy, Debug)]
pub struct GroupedHeads {
    /// Query heads of a rank.
    pub heads: u64,
    /// Key and value heads of a rank.
    pub kv_heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Whether queries and keys are normalised.
    pub normalises_qk: bool,
    /// Tokens looked back at; 0 for all.
    pub window: u64,
}

/// Where attention is measured, and in which number formats it is computed.
#[derive(Clone, Copy, Debug)]
pub struct AttentionContext<'a> {
    /// The measurements.
    pub tables: &'a Tables,
    /// The accelerator.
    pub hardware: &'a Hardware,
    /// The engine, which decides among kernels.
    pub backend: Backend,
    /// Format of the kernels over prompts, if it was measured; bfloat16 otherwise.
    pub prompts: Dtype,
    /// Format of the cache.
    pub kv_cache: Dtype,
}

impl AttentionLayers {
    /// The time of a pass over `requests` prompts, of which `prefix` of `full` tokens each are in the cache.
    #[must_use]
    pub fn context(&self, requests: u64, full: u64, prefix: u64) -> Estimate {
        let whole = self.slice.at([self.heads, full, requests]);
        // The new tokens' share of all pairs of tokens.
        let (all, known) = ((full * full) as f64, (prefix * prefix) as f64);
        Estimate::new(self.count * (whole.ms * (all - known) / all + self.launch_ms), whole.basis)
    }

    /// The time of a decode step of `requests` requests with `tokens` tokens each, the new ones included.
    #[must_use]
    pub fn generation(&self, requests: u64, tokens: u64) -> Estimate {
        let (mut sum, mut basis) = (0.0, Basis::Formula);
        let samples = self.samples(tokens);
        for &length in samples.iter() {
            let estimate = self.at_length(requests, length);
            sum += estimate.ms;
            basis = basis.max(estimate.basis);
        }
        Estimate::new(self.count * sum / samples.len() as f64, basis)
    }

    /// The lengths that a decode step of that mean length is priced at.
    #[must_use]
    pub fn samples(&self, tokens: u64) -> LengthSamples {
        LengthSamples::new(tokens, self.averages)
    }

    /// The time of one layer in a decode step at one length.
    #[must_use]
    pub fn at_length(&self, requests: u64, length: u64) -> Estimate {
        self.slice.at([self.heads, requests, length])
    }

    /// Whether nothing like it was measured.
    #[must_use]
    pub fn is_unmeasured(&self) -> bool {
        self.slice.grid().is_none()
    }

    /// Lengths between which the time of decode steps of `requests` requests is linear wherever it is complete.
    #[must_use]
    pub fn knots(&self, requests: u64) -> Vec<u64> {
        self.slice.grid().map_or_else(Vec::new, |grid| grid.knots([self.heads, requests]))
    }

    /// Whether all that a decode step of that length is blended from was measured.
    #[must_use]
    pub fn is_complete_at(&self, requests: u64, length: u64) -> bool {
        self.slice.grid().is_some_and(|grid| grid.is_complete_at([self.heads, requests], length))
    }
}

/// The lengths that a decode step is priced at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthSamples {
    /// The mean alone.
    Mean([u64; 1]),
    /// Five around it, ascending.
    Around([u64; SAMPLES as usize]),
}

impl LengthSamples {
    #[inline]
    fn new(tokens: u64, averages: bool) -> Self {
        if !averages {
            return Self::Mean([tokens]);
        }
        let shortest = ((tokens as f64 * SHORTEST) as u64).max(1);
        let longest = ((tokens as f64 * LONGEST) as u64).max(shortest);
        Self::Around([0, 1, 2, 3, 4].map(|step| shortest + (longest - shortest) * step / (SAMPLES - 1)))
    }
}

impl std::ops::Deref for LengthSamples {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        match self {
            Self::Mean(lengths) => lengths,
            Self::Around(lengths) => lengths,
        }
    }
}

type Rows = Vec<([u64; 3], f64)>;

impl AttentionContext<'_> {
    /// Grouped attention of prompts.
    #[must_use]
    pub fn grouped_context(&self, count: f64, heads: GroupedHeads) -> AttentionLayers {
        let (dtype, rows) = self.of_prompts(|dtype| self.grouped_rows(heads, Some(dtype)));
        let operator = GridOperator::Context(head_shape(heads));
        let slice = Slice::new(&rows, self.roofline(operator, dtype.rate()), dtype, true);
        AttentionLayers { count, heads: heads.heads, slice, launch_ms: self.launch_ms(heads, dtype), averages: false }
    }

    /// Grouped attention of a decode step.
    #[must_use]
    pub fn grouped_generation(&self, count: f64, heads: GroupedHeads) -> AttentionLayers {
        let mut rows = self.grouped_rows(heads, None);
        let roofline = self.roofline(GridOperator::Generation(head_shape(heads)), self.cache_rate());
        // Nothing is faster than light: such rows are noise.
        rows.iter_mut().for_each(|(at, ms)| *ms = ms.max(roofline.ms(*at)));
        let slice = Slice::new(&rows, roofline, self.kv_cache, false);
        AttentionLayers { count, heads: heads.heads, slice, launch_ms: 0.0, averages: true }
    }

    /// Latent attention of prompts; with its projections where `gemm` says their format.
    #[must_use]
    pub fn latent_context(&self, count: f64, heads: u64, gemm: Option<Dtype>) -> AttentionLayers {
        let kv = self.kv_cache.name();
        let (dtype, rows) = self.of_prompts(|dtype| match gemm {
            Some(gemm) => self.rows(TableKind::MlaContextModule, &[dtype.name(), kv, gemm.name()]),
            None => self.rows(TableKind::ContextMla, &[dtype.name(), kv]),
        });
        let slice = Slice::new(&rows, self.roofline(GridOperator::ContextLatent, dtype.rate()), dtype, true);
        AttentionLayers { count, heads, slice, launch_ms: 0.0, averages: false }
    }

    /// Latent attention of a decode step; with its projections where `gemm` says their format.
    #[must_use]
    pub fn latent_generation(&self, count: f64, heads: u64, gemm: Option<Dtype>) -> AttentionLayers {
        let kv = self.kv_cache.name();
        let (operator, rows) = match gemm {
            Some(gemm) => {
                let gemm_flops = self.hardware.flops(gemm.rate());
                let operator = GridOperator::GenerationLatentModule { gemm_flops, gemm_bytes: gemm.bytes() };
                (operator, self.rows(TableKind::MlaGenerationModule, &[kv, gemm.name()]))
            }
            None => (GridOperator::GenerationLatent, self.rows(TableKind::GenerationMla, &[kv])),
        };
        let slice = Slice::new(&rows, self.roofline(operator, self.cache_rate()), self.kv_cache, false);
        AttentionLayers { count, heads, slice, launch_ms: 0.0, averages: false }
    }

    /// The rows of the first format of kernels over prompts that was measured, and that format.
    fn of_prompts(&self, rows: impl Fn(Dtype) -> Rows) -> (Dtype, Rows) {
        let own = rows(self.prompts);
        if own.is_empty() { (Dtype::Bfloat16, rows(Dtype::Bfloat16)) } else { (self.prompts, own) }
    }

    /// The units that attend in a decode step.
    fn cache_rate(&self) -> TensorRate {
        if self.kv_cache != Dtype::Bfloat16 && self.hardware.sm_version >= FP8_SM {
            TensorRate::Fp8
        } else {
            TensorRate::Bf16
        }
    }

    fn roofline(&self, operator: GridOperator, rate: TensorRate) -> Roofline {
        let flops = self.hardware.flops(rate);
        let bandwidth = self.hardware.memory_bytes_per_second;
        Roofline { operator, flops, bandwidth, kv_bytes: self.kv_cache.bytes() }
    }

    /// Rotary embedding, writing to the cache and norms: small kernels beside the attention of prompts, in ms.
    fn launch_ms(&self, heads: GroupedHeads, dtype: Dtype) -> f64 {
        let moves = |bytes: f64| self.hardware.moves_ms(bytes);
        let query = (heads.heads * heads.head_dim) as f64;
        let key = (heads.kv_heads * heads.head_dim) as f64;
        let embedding_and_cache = 2.0 * moves(2.0 * query + 2.0 * key) + 2.0 * moves(key * dtype.bytes());
        let norms = if heads.normalises_qk { 4.0 * moves(2.0 * query) + 4.0 * moves(2.0 * key) } else { 0.0 };
        LAUNCH_WEIGHT * (embedding_and_cache + norms)
    }

    /// Rows of the kernel that the engine would choose, for prompts if their format is given.
    fn grouped_rows(&self, heads: GroupedHeads, prompts: Option<Dtype>) -> Rows {
        let kind = if prompts.is_some() { TableKind::ContextAttention } else { TableKind::GenerationAttention };
        let mut lanes: Vec<(&str, Rows)> = Vec::new();
        table_rows(self.tables, kind, |words, numbers, ms| {
            let (kernel, attention, kv_cache) = match *words {
                [kernel, attention, kv_cache] => (kernel, Some(attention), kv_cache),
                [kernel, kv_cache] => (kernel, None, kv_cache),
                _ => return,
            };
            let &[head_dim, window, kv_heads, query_heads, outer, inner] = numbers else { return };
            let fits = attention == prompts.map(Dtype::name)
                && kv_cache == self.kv_cache.name()
                && (head_dim, window) == (heads.head_dim, heads.window)
                && key_group(query_heads, kv_heads) == key_group(heads.heads, heads.kv_heads);
            if !fits {
                return;
            }
            let row = ([query_heads, outer, inner], ms);
            match lanes.iter_mut().find(|(lane, _)| *lane == kernel) {
                Some((_, rows)) => rows.push(row),
                None => lanes.push((kernel, vec![row])),
            }
        });
        let place = |lane: &str| {
            let order = preferred_kernels(self.backend, self.hardware.sm_version).iter().chain(OTHER_KERNELS);
            order.into_iter().position(|known| *known == lane).unwrap_or(usize::MAX)
        };
        // Of kernels that nobody prefers the first in the table.
        lanes.into_iter().min_by_key(|(lane, _)| place(lane)).map_or_else(Vec::new, |(_, rows)| rows)
    }

    fn rows(&self, kind: TableKind, wanted: &[&str]) -> Rows {
        let mut rows = Rows::new();
        table_rows(self.tables, kind, |words, numbers, ms| {
            if words == wanted
                && let &[first, second, third] = numbers
            {
                rows.push(([first, second, third], ms));
            }
        });
        rows
    }
}

/// Rows with as many key as query heads are one group, whatever their number.
fn key_group(heads: u64, kv_heads: u64) -> u64 {
    if heads == kv_heads { 0 } else { kv_heads }
}

fn head_shape(heads: GroupedHeads) -> HeadShape {
    let kv_heads = (heads.heads != heads.kv_heads).then_some(heads.kv_heads);
    HeadShape { kv_heads, head_dim: heads.head_dim, window: heads.window }
}

/// Kernels after those that the engine prefers.
const OTHER_KERNELS: &[&str] = &["fa3", "fla", "flashinfer", "triton", "trtllm_mha", "default"];

/// The kernels that an engine uses, the first that it has for a shape.
fn preferred_kernels(backend: Backend, sm_version: u32) -> &'static [&'static str] {
    match (backend, sm_version) {
        (Backend::Vllm, 100..) => {
            &["vllm_flashinfer_trtllmprefill", "vllm_flashinfer_trtllmdecode", "vllm_triton_attn"]
        }
        (Backend::Vllm, _) => &["vllm_flash_attn_fa3", "vllm_flash_attn_fa4"],
        (Backend::Sglang, 120..) => &["flashinfer"],
        (Backend::Sglang, 100..) => &["triton", "trtllm_mha", "flashinfer"],
        (Backend::Sglang, _) => &["fa3", "triton"],
        (Backend::Trtllm, _) => &["default"],
    }
}
