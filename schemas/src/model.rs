//! A model: what dynosim needs of a Hugging Face `config.json`.

use serde_json::Value;

use crate::dtype::Dtype;

/// A model that can be served.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Layers, all alike.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Words that it knows.
    pub vocabulary: u64,
    /// Prompt and output tokens that it was made for.
    pub context_length: u64,
    /// How it attends.
    pub attention: Attention,
    /// What follows the attention.
    pub feed_forward: FeedForward,
    /// How its checkpoint is quantised.
    pub quantisation: Quantisation,
}

/// How a model attends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Grouped query heads.
    Grouped {
        /// Query heads.
        heads: u64,
        /// Key and value heads.
        kv_heads: u64,
        /// Width of a head.
        head_dim: u64,
        /// Whether queries and keys are normalised.
        normalises_qk: bool,
        /// Tokens that every other layer looks back at; 0 if all look at everything.
        window: u64,
    },
    /// Multi-head latent attention in the dimensions of DeepSeek-V3: query rank 1536, latent 512, rope 64, heads of 128.
    Latent {
        /// Heads.
        heads: u64,
    },
}

/// What follows the attention in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedForward {
    /// A gated network.
    Dense {
        /// Its width.
        inter: u64,
    },
    /// Routed experts.
    Experts {
        /// How many there are.
        experts: u64,
        /// How many a token goes to.
        top_k: u64,
        /// Width of one.
        inter: u64,
        /// Whether one more expert sees every token.
        shares_one: bool,
    },
}

/// Number formats of a checkpoint as it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantisation {
    /// Of the weights outside the experts.
    pub gemm: Dtype,
    /// Of the experts.
    pub moe: Dtype,
    /// Of the KV cache.
    pub kv_cache: Dtype,
}

impl Quantisation {
    /// Everything in bfloat16.
    pub const NONE: Self = Self { gemm: Dtype::Bfloat16, moe: Dtype::Bfloat16, kv_cache: Dtype::Bfloat16 };
}

/// Largest dimension that is believed.
const MAX_DIMENSION: u64 = 1 << 24;

/// Architectures with their attention and feed-forward parts.
const ARCHITECTURES: [(&str, Shape); 8] = [
    ("LlamaForCausalLM", Shape::Dense),
    ("MistralForCausalLM", Shape::Dense),
    ("Qwen2ForCausalLM", Shape::Dense),
    ("Qwen3ForCausalLM", Shape::DenseNormalised),
    ("Qwen3MoeForCausalLM", Shape::Experts { normalised: true }),
    ("MixtralForCausalLM", Shape::Experts { normalised: false }),
    ("MiniMaxM2ForCausalLM", Shape::Experts { normalised: true }),
    ("GptOssForCausalLM", Shape::Experts { normalised: false }),
];
/// Architectures with latent attention.
const LATENT: &str = "DeepseekV3ForCausalLM";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Dense,
    DenseNormalised,
    Experts { normalised: bool },
}

impl Model {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// What is wrong with it or not known here, with the name of the field.
    pub fn parse(json: &str) -> Result<Self, String> {
        let document: Value = serde_json::from_str(json).map_err(|e| e.to_string())?;
        let fields = Fields(&document);
        let architecture = document.pointer("/architectures/0").and_then(Value::as_str).unwrap_or_default();
        if architecture == LATENT {
            return Self::latent(&fields);
        }
        let shape = ARCHITECTURES.iter().find(|(name, _)| *name == architecture).map(|(_, shape)| *shape);
        let Some(shape) = shape else { return Err(unknown_architecture(architecture)) };
        let heads = fields.required("num_attention_heads")?;
        let hidden = fields.required("hidden_size")?;
        let normalises_qk = matches!(shape, Shape::DenseNormalised | Shape::Experts { normalised: true });
        let attention = Attention::Grouped {
            heads,
            kv_heads: fields.optional("num_key_value_heads")?.unwrap_or(heads),
            head_dim: fields.optional("head_dim")?.unwrap_or(hidden / heads).max(1),
            normalises_qk: document.get("use_qk_norm").and_then(Value::as_bool).unwrap_or(normalises_qk),
            window: if architecture == "GptOssForCausalLM" { fields.required("sliding_window")? } else { 0 },
        };
        let feed_forward = match shape {
            Shape::Dense | Shape::DenseNormalised => {
                FeedForward::Dense { inter: fields.required("intermediate_size")? }
            }
            Shape::Experts { .. } => FeedForward::Experts {
                experts: fields.one_of(&["num_local_experts", "num_experts"])?,
                top_k: fields.required("num_experts_per_tok")?,
                inter: fields.one_of(&["moe_intermediate_size", "intermediate_size"])?,
                shares_one: false,
            },
        };
        Self::of_parts(&fields, attention, feed_forward)
    }

    fn latent(fields: &Fields<'_>) -> Result<Self, String> {
        let wanted = [
            ("q_lora_rank", 1536),
            ("kv_lora_rank", 512),
            ("qk_rope_head_dim", 64),
            ("qk_nope_head_dim", 128),
            ("v_head_dim", 128),
        ];
        for (name, value) in wanted {
            if fields.required(name)? != value {
                return Err(format!("{name}: latent attention is known with {value} only"));
            }
        }
        let attention = Attention::Latent { heads: fields.required("num_attention_heads")? };
        let feed_forward = FeedForward::Experts {
            experts: fields.required("n_routed_experts")?,
            top_k: fields.required("num_experts_per_tok")?,
            inter: fields.required("moe_intermediate_size")?,
            shares_one: fields.optional("n_shared_experts")?.is_some(),
        };
        Self::of_parts(fields, attention, feed_forward)
    }

    fn of_parts(fields: &Fields<'_>, attention: Attention, feed_forward: FeedForward) -> Result<Self, String> {
        Ok(Self {
            layers: fields.required("num_hidden_layers")?,
            hidden: fields.required("hidden_size")?,
            vocabulary: fields.required("vocab_size")?,
            context_length: fields.required("max_position_embeddings")?,
            attention,
            feed_forward,
            quantisation: quantisation(fields.0)?,
        })
    }

    /// Query heads.
    #[must_use]
    pub fn heads(&self) -> u64 {
        match self.attention {
            Attention::Grouped { heads, .. } | Attention::Latent { heads } => heads,
        }
    }

    /// Whether it has routed experts.
    #[must_use]
    pub fn has_experts(&self) -> bool {
        matches!(self.feed_forward, FeedForward::Experts { .. })
    }
}

fn unknown_architecture(name: &str) -> String {
    let known: Vec<&str> = ARCHITECTURES.iter().map(|(known, _)| *known).chain([LATENT]).collect();
    format!("architectures: `{name}` is not known; known are {}", known.join(", "))
}

/// Number formats that a checkpoint's `quantization_config` stands for. Quantised checkpoints are served with an fp8
/// cache, as the reference has it.
fn quantisation(document: &Value) -> Result<Quantisation, String> {
    let Some(config) = document.get("quantization_config").filter(|config| !config.is_null()) else {
        return Ok(Quantisation::NONE);
    };
    let word = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default().to_lowercase();
    let all = |dtype| Quantisation { gemm: dtype, moe: dtype, kv_cache: Dtype::Fp8 };
    match (word("quant_method").as_str(), word("quant_algo").as_str()) {
        ("fp8", _) if config.get("weight_block_size").is_some_and(Value::is_array) => Ok(all(Dtype::Fp8Block)),
        ("fp8", _) | ("modelopt", "fp8") => Ok(all(Dtype::Fp8)),
        ("modelopt", "nvfp4") => Ok(all(Dtype::Nvfp4)),
        ("mxfp4", _) => Ok(Quantisation { moe: Dtype::W4a16Mxfp4, ..Quantisation::NONE }),
        (method, algorithm) => Err(format!(
            "quantization_config: `{method}` {algorithm} is not known; known are fp8, mxfp4, and modelopt with \
             `quant_algo` FP8 or NVFP4"
        )),
    }
}

struct Fields<'a>(&'a Value);

impl Fields<'_> {
    fn optional(&self, name: &str) -> Result<Option<u64>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) if (1..=MAX_DIMENSION).contains(&number) => Ok(Some(number)),
                _ => Err(format!("{name}: must be a whole number from 1 to {MAX_DIMENSION}, not `{value}`")),
            },
        }
    }

    fn required(&self, name: &str) -> Result<u64, String> {
        self.optional(name)?.ok_or_else(|| format!("{name}: is missing"))
    }

    fn one_of(&self, names: &[&str]) -> Result<u64, String> {
        for name in names {
            if let Some(number) = self.optional(name)? {
                return Ok(number);
            }
        }
        Err(format!("{}: is missing", names.join(" or ")))
    }
}
