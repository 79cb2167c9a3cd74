//! From a model and its layout to the operators of a pass.

use std::collections::BTreeMap;

use dynosim_schemas::config::{Backend, Parallelism};
use dynosim_schemas::dtype::Dtype;
use dynosim_schemas::hardware::Hardware;
use dynosim_schemas::model::{Attention, FeedForward, Model};
use dynosim_schemas::perf_table::TableKind;

use super::attention::{AttentionContext, AttentionLayers, GroupedHeads};
use super::collective::Collective;
use super::curve::Curve;
use super::estimate::{Bases, Operator};
use super::experts::{BALANCED, ExpertLayer, SKEWED};
use super::gemm::{Gemms, Product};
use super::operators::{Counted, LatentProduct, OperatorModel, TokenOperator, TokenWork};
use super::roofline::ExpertShape;
use super::tables::{Tables, table_rows};

/// Bytes of an activation.
const ACTIVATION_BYTES: u64 = 2;
/// Streaming multiprocessors whose engines gather tokens in the experts' number format.
const NARROW_GATHER_SM: u32 = 100;
/// What latent attention multiplies with: ranks and widths of DeepSeek-V3.
const QUERY_RANK: u64 = 1536;
const LATENT: u64 = 512;
pub const LATENT_AND_ROPE: u64 = 576;
const QUERY_WIDTH: u64 = 192;
const HEAD: u64 = 128;

/// A model as it is served.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// The model.
    pub model: &'a Model,
    /// The accelerator.
    pub hardware: &'a Hardware,
    /// The engine.
    pub backend: Backend,
    /// How a worker is spread over GPUs.
    pub parallelism: &'a Parallelism,
}

impl Served<'_> {
    /// Checks that the model can be spread like that.
    ///
    /// # Errors
    /// Which number does not go into which, with the name of the degree.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let Parallelism { tensor, pipeline, attention_data, moe_tensor, moe_expert, .. } = *self.parallelism;
        let heads = self.model.heads();
        if !heads.is_multiple_of(tensor) {
            let degrees: Vec<String> = (0..10)
                .map(|power| 1 << power)
                .filter(|&d| heads.is_multiple_of(d))
                .map(|d: u64| d.to_string())
                .collect();
            let message =
                format!("{tensor} does not divide the {heads} attention heads; possible are {}", degrees.join(", "));
            return Err(("tensor", message));
        }
        if pipeline > self.model.layers {
            return Err(("pipeline", format!("the model has {} layers only", self.model.layers)));
        }
        let FeedForward::Experts { experts, .. } = self.model.feed_forward else {
            return match moe_tensor.max(moe_expert) {
                1 => Ok(()),
                _ => {
                    Err(("moe_tensor", "the model has no experts; `moe_tensor` and `moe_expert` must be 1".to_owned()))
                }
            };
        };
        if moe_tensor.saturating_mul(moe_expert) != tensor.saturating_mul(attention_data) {
            let message = format!(
                "`moe_tensor` {moe_tensor} times `moe_expert` {moe_expert} must be `tensor` {tensor} times `attention_data` \
                 {attention_data}: the experts use the same GPUs"
            );
            return Err(("moe_expert", message));
        }
        if !experts.is_multiple_of(moe_expert) {
            return Err(("moe_expert", format!("{moe_expert} does not divide the {experts} experts")));
        }
        Ok(())
    }

    /// Number format of attention kernels over prompts: vLLM's compute in bfloat16 whatever the cache holds.
    #[must_use]
    pub fn prompt_attention(&self) -> Dtype {
        match (self.backend, self.model.quantisation.kv_cache) {
            (Backend::Sglang | Backend::Trtllm, Dtype::Fp8) => Dtype::Fp8,
            _ => Dtype::Bfloat16,
        }
    }

    /// Whether a prefill ends with logits: the reference's has none with grouped attention and experts.
    pub(super) fn has_prefill_logits(&self) -> bool {
        !self.model.has_experts() || matches!(self.model.attention, Attention::Latent { .. })
    }

    /// Formats of matrix products that it needs.
    #[must_use]
    pub fn gemm_formats(&self) -> [Dtype; 2] {
        [Dtype::Bfloat16, self.model.quantisation.gemm]
    }

    /// The operators of its passes, timed by those tables. To be asked for after [`Self::check`].
    #[must_use]
    pub fn operators(&self, tables: &Tables) -> OperatorModel {
        Builder::new(*self, tables).build()
    }
}

struct Builder<'a> {
    served: Served<'a>,
    tables: &'a Tables,
    gemms: BTreeMap<Dtype, Gemms>,
    layers: f64,
    hidden: u64,
    tensor: u64,
    attention_data: u64,
    heads: u64,
    prefill: TokenWork,
    decode: TokenWork,
}

/// Which of the two phases an operator belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Prefill,
    Decode,
    Both,
}

impl<'a> Builder<'a> {
    fn new(served: Served<'a>, tables: &'a Tables) -> Self {
        let formats = served.gemm_formats();
        let Parallelism { tensor, attention_data, .. } = *served.parallelism;
        Self {
            served,
            tables,
            gemms: formats.into_iter().map(|dtype| (dtype, Gemms::new(tables, served.hardware, dtype))).collect(),
            layers: served.model.layers as f64,
            hidden: served.model.hidden,
            tensor,
            attention_data,
            heads: served.model.heads() / tensor,
            prefill: TokenWork::default(),
            decode: TokenWork::default(),
        }
    }

    fn build(mut self) -> OperatorModel {
        self.around_layers();
        let (context, generation) = match self.served.model.attention {
            Attention::Grouped { kv_heads, head_dim, normalises_qk, window, .. } => {
                let kv_heads = kv_heads.div_ceil(self.tensor);
                let heads = GroupedHeads { heads: self.heads, kv_heads, head_dim, normalises_qk, window: 0 };
                self.grouped_projections(heads);
                self.grouped_attention(heads, window)
            }
            Attention::Latent { .. } => self.latent_attention(),
        };
        match self.served.model.feed_forward {
            FeedForward::Dense { inter } => self.dense(inter),
            FeedForward::Experts { .. } => self.experts(),
        }
        let logits = self.product(Dtype::Bfloat16, self.served.model.vocabulary / self.tensor, self.hidden);
        self.push(Phase::Decode, 1.0, Operator::Gemm, TokenOperator::Product(logits.clone()));
        OperatorModel {
            prefill: self.prefill,
            prefill_logits: self.served.has_prefill_logits().then_some(logits),
            context,
            decode: self.decode,
            generation,
            bases: Bases::default(),
        }
    }

    fn is_latent(&self) -> bool {
        matches!(self.served.model.attention, Attention::Latent { .. })
    }

    fn push(&mut self, phase: Phase, count: f64, name: Operator, operator: TokenOperator) {
        if phase != Phase::Decode {
            self.prefill.serial.push(Counted { count, name, operator: operator.clone() });
        }
        if phase != Phase::Prefill {
            self.decode.serial.push(Counted { count, name, operator });
        }
    }

    fn product(&self, dtype: Dtype, n: u64, k: u64) -> Product {
        let known = self.gemms.get(&dtype);
        known.map_or_else(
            || Gemms::new(self.tables, self.served.hardware, dtype).product(n, k),
            |gemms| gemms.product(n, k),
        )
    }

    fn push_product(&mut self, phase: Phase, n: u64, k: u64) {
        let product = self.product(self.served.model.quantisation.gemm, n, k);
        self.push(phase, self.layers, Operator::Gemm, TokenOperator::Product(product));
    }

    fn moves(&self, bytes: u64) -> TokenOperator {
        let (seconds_per_byte, kernel_seconds) = self.served.hardware.move_seconds();
        TokenOperator::Moves { bytes, seconds_per_byte, kernel_seconds }
    }

    /// Embedding, norms, and transfers between pipeline stages. A pass goes through all layers, whatever the stage.
    fn around_layers(&mut self) {
        let hidden_bytes = self.hidden * ACTIVATION_BYTES;
        self.push(Phase::Both, 1.0, Operator::Elementwise, self.moves(hidden_bytes));
        self.push(Phase::Both, 2.0 * self.layers, Operator::Elementwise, self.moves(4 * hidden_bytes));
        let hops = (self.served.parallelism.pipeline - 1) as f64;
        if hops > 0.0 {
            let hardware = self.served.hardware;
            let transfer = TokenOperator::Moves {
                bytes: hidden_bytes,
                seconds_per_byte: 1.0 / hardware.inter_node_bytes_per_second,
                kernel_seconds: hardware.p2p_seconds,
            };
            self.push(Phase::Both, hops, Operator::PointToPoint, transfer);
        }
    }

    fn all_reduce(&self, ranks: u64) -> TokenOperator {
        let collective = Collective::all_reduce(self.tables, self.served.hardware);
        TokenOperator::Collective { collective, elements: self.hidden, ranks }
    }

    fn nccl(&self, name: &str, elements: u64, ranks: u64) -> TokenOperator {
        let collective = Collective::nccl(self.tables, self.served.hardware, name);
        TokenOperator::Collective { collective, elements, ranks }
    }

    fn grouped_projections(&mut self, heads: GroupedHeads) {
        let query = heads.heads * heads.head_dim;
        self.push_product(Phase::Both, query + 2 * heads.kv_heads * heads.head_dim, self.hidden);
        self.push_product(Phase::Both, self.hidden, query);
    }

    fn attention_context(&self) -> AttentionContext<'a> {
        AttentionContext {
            tables: self.tables,
            hardware: self.served.hardware,
            backend: self.served.backend,
            prompts: self.served.prompt_attention(),
            kv_cache: self.served.model.quantisation.kv_cache,
        }
    }

    /// Where layers with a window alternate with others, half of them have it.
    fn grouped_attention(&self, heads: GroupedHeads, window: u64) -> (Vec<AttentionLayers>, Vec<AttentionLayers>) {
        let context = self.attention_context();
        let windows =
            if window == 0 { vec![(self.layers, 0)] } else { [window, 0].map(|w| (self.layers / 2.0, w)).to_vec() };
        windows
            .into_iter()
            .map(|(count, window)| {
                let heads = GroupedHeads { window, ..heads };
                (context.grouped_context(count, heads), context.grouped_generation(count, heads))
            })
            .unzip()
    }

    /// Latent attention: with its projections in one measurement where there is one, else piece by piece.
    fn latent_attention(&mut self) -> (Vec<AttentionLayers>, Vec<AttentionLayers>) {
        let (attention, layers, heads) = (self.attention_context(), self.layers, self.heads);
        let gemm = self.served.model.quantisation.gemm;
        let modules = (
            attention.latent_context(layers, heads, Some(gemm)),
            attention.latent_generation(layers, heads, Some(gemm)),
        );
        if self.served.backend == Backend::Vllm {
            // The reference prices the reduction of the attention's output again, beside the experts' dispatch.
            let reduce = self.all_reduce(self.tensor);
            self.push(Phase::Both, 2.0 * layers, Operator::AllReduce, reduce);
        }
        if !modules.0.is_unmeasured() && !modules.1.is_unmeasured() {
            return (vec![modules.0], vec![modules.1]);
        }
        self.latent_projections();
        (vec![attention.latent_context(layers, heads, None)], vec![attention.latent_generation(layers, heads, None)])
    }

    fn latent_projections(&mut self) {
        for ((n, k), phase) in latent_products(self.heads, self.hidden).into_iter().zip(LATENT_PHASES) {
            self.push_product(phase, n, k);
        }
        for name in ["mla_gen_pre", "mla_gen_post"] {
            let product = TokenOperator::LatentProduct(self.latent_product(name));
            self.push(Phase::Decode, self.layers, Operator::Gemm, product);
        }
    }

    /// In fp8 where the model's products are and it was measured, else in bfloat16.
    fn latent_product(&self, name: &str) -> LatentProduct {
        let gemm = self.served.model.quantisation.gemm;
        let wanted = if gemm == Dtype::Bfloat16 { gemm } else { Dtype::Fp8 };
        let points = |dtype: Dtype| {
            let mut points = Vec::new();
            table_rows(self.tables, TableKind::MlaBmm, |words, numbers, ms| {
                if words == [dtype.name(), name]
                    && let &[heads, tokens] = numbers
                    && heads == self.heads
                {
                    points.push((tokens, ms));
                }
            });
            points
        };
        let own = points(wanted);
        let points = if own.is_empty() { points(Dtype::Bfloat16) } else { own };
        let (hardware, heads) = (self.served.hardware, self.heads as f64);
        let weights = (HEAD * LATENT) as f64;
        let byte_ms = 1e3 * wanted.bytes() * heads / hardware.memory_bytes_per_second;
        LatentProduct {
            curve: Curve::new(points),
            arithmetic_ms: 1e3 * 2.0 * heads * weights / hardware.flops(wanted.rate()),
            memory_ms: [byte_ms * weights, byte_ms * (HEAD + LATENT) as f64],
        }
    }

    fn gated(&self, inter: u64) -> [TokenOperator; 3] {
        let gemm = self.served.model.quantisation.gemm;
        [
            TokenOperator::Product(self.product(gemm, 2 * inter / self.tensor, self.hidden)),
            self.moves(ACTIVATION_BYTES * (3 * inter / self.tensor)),
            TokenOperator::Product(self.product(gemm, self.hidden, inter / self.tensor)),
        ]
    }

    fn dense(&mut self, inter: u64) {
        for operator in self.gated(inter) {
            self.push(Phase::Both, self.layers, name_of(&operator), operator);
        }
        // After the embedding, the attention and the feed-forward part.
        let reduce = self.all_reduce(self.tensor);
        self.push(Phase::Both, 2.0 * self.layers + 1.0, Operator::AllReduce, reduce);
    }

    fn experts(&mut self) {
        let FeedForward::Experts { experts, top_k, inter, shares_one } = self.served.model.feed_forward else { return };
        let Parallelism { moe_tensor, moe_expert, .. } = *self.served.parallelism;
        let dtype = self.served.model.quantisation.moe;
        let shape = ExpertShape { top_k, experts, hidden: self.hidden, inter, tensor: moe_tensor, expert: moe_expert };
        let distribution = if self.is_latent() { BALANCED } else { SKEWED };
        let layer = ExpertLayer::new(self.tables, self.served.hardware, dtype, distribution, shape);
        let mut routed = vec![
            TokenOperator::Product(self.product(Dtype::Bfloat16, experts, self.hidden)),
            TokenOperator::Experts { layer, attention_ranks: self.attention_data },
        ];
        routed.extend(self.dispatch(moe_tensor * moe_expert));
        let counted = |operators: Vec<TokenOperator>| -> Vec<Counted> {
            let count = self.layers;
            operators.into_iter().map(|operator| Counted { count, name: name_of(&operator), operator }).collect()
        };
        let routed = counted(routed);
        let shared = if shares_one { counted(self.gated(inter).to_vec()) } else { Vec::new() };
        self.prefill.serial.extend(routed.iter().chain(&shared).cloned());
        if shares_one {
            // In a decode step the shared expert runs beside the routed ones.
            self.decode.beside = [routed, shared];
        } else {
            self.decode.serial.extend(routed);
        }
        if !self.is_latent() {
            let reduce = self.all_reduce(self.tensor);
            self.push(Phase::Both, 1.0, Operator::AllReduce, reduce);
        }
    }

    /// What brings tokens to the experts of `ranks` ranks and back.
    fn dispatch(&self, ranks: u64) -> Vec<TokenOperator> {
        let (attention, all) = (self.hidden, self.hidden * self.attention_data);
        match (self.tensor > 1, self.attention_data > 1) {
            (false, false) => Vec::new(),
            (true, false) => vec![self.all_reduce(ranks), self.all_reduce(ranks)],
            (false, true) => self.gather_and_scatter(all, ranks),
            (true, true) if self.served.backend == Backend::Vllm => {
                let mut both = vec![self.all_reduce(ranks), self.all_reduce(ranks)];
                both.extend(self.gather_and_scatter(all, ranks));
                both
            }
            (true, true) => {
                let mut both = self.gather_and_scatter(all, ranks);
                both.push(self.nccl("reduce_scatter", attention, self.tensor));
                both.push(self.nccl("all_gather", attention, self.tensor));
                both
            }
        }
    }

    fn gather_and_scatter(&self, elements: u64, ranks: u64) -> Vec<TokenOperator> {
        let narrows = self.served.backend == Backend::Trtllm && self.served.hardware.sm_version == NARROW_GATHER_SM;
        let gathered = match self.served.model.quantisation.moe {
            Dtype::Fp8 | Dtype::Fp8Block if narrows => elements / 2,
            // A quarter, and the scales.
            Dtype::Nvfp4 if narrows => elements * 9 / 32,
            _ => elements,
        };
        vec![self.nccl("all_gather", gathered, ranks), self.nccl("reduce_scatter", elements, ranks)]
    }
}

/// The matrices of latent attention on a rank with that many heads, as (columns, rows).
pub fn latent_products(heads: u64, hidden: u64) -> [(u64, u64); 4] {
    [
        (QUERY_RANK + LATENT_AND_ROPE, hidden),
        (heads * QUERY_WIDTH, QUERY_RANK),
        (heads * 2 * HEAD, LATENT),
        (hidden, heads * HEAD),
    ]
}

/// When they are multiplied with: a decode step folds the third into its batched products.
const LATENT_PHASES: [Phase; 4] = [Phase::Both, Phase::Both, Phase::Prefill, Phase::Both];

/// What reports call an operator within a layer.
fn name_of(operator: &TokenOperator) -> Operator {
    match operator {
        TokenOperator::Moves { .. } => Operator::Elementwise,
        TokenOperator::Product(_) | TokenOperator::LatentProduct(_) => Operator::Gemm,
        TokenOperator::Experts { .. } => Operator::Moe,
        TokenOperator::Collective { .. } => Operator::Dispatch,
    }
}
