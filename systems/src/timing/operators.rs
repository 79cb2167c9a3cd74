//! The operators of a pass: what they are for a model and its layout, and what they take together.

use super::attention::AttentionLayers;
use super::collective::Collective;
use super::curve::Curve;
use super::estimate::{Bases, Basis, Estimate, Operator};
use super::experts::ExpertLayer;
use super::gemm::Product;

/// An operator whose time depends on the tokens of one rank.
#[derive(Clone, Debug)]
pub enum TokenOperator {
    /// A simple kernel that moves memory.
    Moves {
        /// Bytes of each token.
        bytes: u64,
        /// Seconds for a byte.
        seconds_per_byte: f64,
        /// Seconds on top.
        kernel_seconds: f64,
    },
    /// A matrix product.
    Product(Product),
    /// Batched products of latent attention.
    LatentProduct(LatentProduct),
    /// Routed experts, which see the tokens of all attention ranks.
    Experts {
        /// The layer.
        layer: ExpertLayer,
        /// Attention ranks.
        attention_ranks: u64,
    },
    /// A collective.
    Collective {
        /// Which.
        collective: Collective,
        /// Elements of each token.
        elements: u64,
        /// Between how many ranks.
        ranks: u64,
    },
}

/// Batched products around latent attention.
#[derive(Clone, Debug)]
pub struct LatentProduct {
    /// Measured times over the number of tokens.
    pub curve: Curve,
    /// The least time is this much for no token, in ms, and this much for each: by arithmetic, and by memory.
    pub arithmetic_ms: f64,
    /// See there.
    pub memory_ms: [f64; 2],
}

impl LatentProduct {
    fn at(&self, tokens: u64) -> Estimate {
        let light = |tokens: u64| {
            let [fixed, each] = self.memory_ms;
            (self.arithmetic_ms * tokens as f64).max(fixed + each * tokens as f64)
        };
        let known = self.curve.at(tokens, light, 1);
        known.unwrap_or_else(|| Estimate::new(light(tokens), Basis::SpeedOfLight))
    }
}

impl TokenOperator {
    /// The time for `tokens` tokens.
    #[must_use]
    pub fn at(&self, tokens: u64) -> Estimate {
        match self {
            Self::Moves { bytes, seconds_per_byte, kernel_seconds } => {
                let seconds = (tokens * bytes) as f64 * seconds_per_byte + kernel_seconds;
                Estimate::new(seconds * 1e3, Basis::Formula)
            }
            Self::Product(product) => product.at(tokens),
            Self::LatentProduct(product) => product.at(tokens),
            Self::Experts { layer, attention_ranks } => layer.at(tokens * attention_ranks),
            Self::Collective { collective, elements, ranks } => collective.at(tokens * elements, *ranks),
        }
    }
}

/// An operator as often as a pass runs it.
#[derive(Clone, Debug)]
pub struct Counted {
    /// How often.
    pub count: f64,
    /// What reports call it.
    pub name: Operator,
    /// The operator.
    pub operator: TokenOperator,
}

/// The operators of a pass whose time depends on its tokens alone.
#[derive(Clone, Debug, Default)]
pub struct TokenWork {
    /// One after the other.
    pub serial: Vec<Counted>,
    /// Beside each other: the longer one counts.
    pub beside: [Vec<Counted>; 2],
}

impl TokenWork {
    fn ms(&self, tokens: u64, bases: &Bases) -> f64 {
        let sum = |operators: &[Counted]| -> f64 {
            operators.iter().map(|each| each.count * bases.note(each.name, each.operator.at(tokens))).sum()
        };
        let [one, other] = &self.beside;
        sum(&self.serial) + sum(one).max(sum(other))
    }

    /// Its operators.
    pub fn all(&self) -> impl Iterator<Item = &Counted> {
        self.serial.iter().chain(self.beside.iter().flatten())
    }
}

/// Everything that a pass of a model does on one rank.
#[derive(Debug)]
pub struct OperatorModel {
    /// Over prompts.
    pub prefill: TokenWork,
    /// The words of the prompts' last tokens, if the model's prefill has them; it sees a token of each request.
    pub prefill_logits: Option<Product>,
    /// Attention of prompts.
    pub context: Vec<AttentionLayers>,
    /// In a decode step, which sees a token of each request.
    pub decode: TokenWork,
    /// Attention of a decode step.
    pub generation: Vec<AttentionLayers>,
    /// What its answers came from.
    pub bases: Bases,
}

impl OperatorModel {
    /// A pass over `requests` prompts: `new` tokens each, after `prefix` that are in the cache. In ms.
    #[must_use]
    pub fn prefill_ms(&self, requests: u64, new: u64, prefix: u64) -> f64 {
        self.prefill_tokens_ms(requests * new)
            + self.prefill_logits_ms(requests)
            + self.context_ms(requests, new, prefix)
    }

    /// A decode step of `requests` requests with `tokens` tokens each, the new ones included. In ms.
    #[must_use]
    pub fn decode_ms(&self, requests: u64, tokens: u64) -> f64 {
        self.decode_tokens_ms(requests) + self.generation_ms(requests, tokens)
    }

    /// The part of a prefill that depends on its tokens alone, in ms.
    #[must_use]
    pub fn prefill_tokens_ms(&self, tokens: u64) -> f64 {
        self.prefill.ms(tokens, &self.bases)
    }

    /// The part of a prefill that depends on its requests alone, in ms.
    #[must_use]
    pub fn prefill_logits_ms(&self, requests: u64) -> f64 {
        let logits = self.prefill_logits.as_ref();
        logits.map_or(0.0, |logits| self.bases.note(Operator::Gemm, logits.at(requests)))
    }

    /// The attention of a prefill, in ms.
    #[must_use]
    pub fn context_ms(&self, requests: u64, new: u64, prefix: u64) -> f64 {
        let note = |layers: &AttentionLayers| {
            self.bases.note(Operator::ContextAttention, layers.context(requests, new + prefix, prefix))
        };
        self.context.iter().map(note).sum()
    }

    /// The part of a decode step that depends on its requests alone, in ms.
    #[must_use]
    pub fn decode_tokens_ms(&self, requests: u64) -> f64 {
        self.decode.ms(requests, &self.bases)
    }

    /// The attention of a decode step, in ms.
    #[must_use]
    pub fn generation_ms(&self, requests: u64, tokens: u64) -> f64 {
        let note = |layers: &AttentionLayers| {
            self.bases.note(Operator::GenerationAttention, layers.generation(requests, tokens))
        };
        self.generation.iter().map(note).sum()
    }

    /// The operators of which nothing was measured that could answer for them, each once, in order.
    #[must_use]
    pub fn unmeasured(&self) -> Vec<Operator> {
        let counted = self.prefill.all().chain(self.decode.all());
        let mut names: Vec<Operator> = counted
            .filter(|each| each.operator.at(1).basis == Basis::SpeedOfLight)
            .map(|each| each.name)
            .chain(self.context.iter().filter(|layers| layers.is_unmeasured()).map(|_| Operator::ContextAttention))
            .chain(self.generation.iter().filter(|l| l.is_unmeasured()).map(|_| Operator::GenerationAttention))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
