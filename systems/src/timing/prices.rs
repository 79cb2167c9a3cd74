//! Prices of whole passes, remembered exactly.
//!
//! A pass depends on few whole numbers. What depends on tokens alone is a number for each count of them. Attention of a
//! decode step is linear between the lengths that were measured for the batch, and each length elsewhere is computed once.
//! Nothing is rounded to a coarser grid: kernels change with the batch, so that a coarse surface would be off by ten
//! percent at places.

use std::fmt;
use std::sync::OnceLock;

use super::attention::AttentionLayers;
use super::estimate::{Bases, Basis, Estimate, Operator};
use super::memo::Memo;
use super::operators::OperatorModel;
use super::{DecodeBatch, PrefillBatch};

/// Largest batch with a row of its own.
const ROWS: usize = 4096;

/// Prices of the passes of one model on one rank.
#[derive(Debug)]
pub struct PassPrices {
    model: OperatorModel,
    /// Whether prompts and decode steps of one pass share their matrix products.
    fused: bool,
    prefill_tokens: Memo,
    prefill_logits: Memo,
    rows: Box<[OnceLock<DecodeRow>]>,
}

/// A handle to the prices, which live as long as the process: every rank of a run has one, and runs that serve a model
/// in the same way share them.
#[derive(Clone, Copy)]
pub struct MeasuredTiming(&'static PassPrices);

impl fmt::Debug for MeasuredTiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeasuredTiming").field("fused", &self.0.fused).finish_non_exhaustive()
    }
}

impl PartialEq for MeasuredTiming {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

/// Decode steps of one batch size.
#[derive(Debug)]
struct DecodeRow {
    /// What does not depend on lengths, in ms.
    by_tokens_ms: f64,
    /// Attention.
    layers: Vec<LayersRow>,
}

#[derive(Debug)]
struct LayersRow {
    /// The lengths where a segment starts, ascending.
    starts: Vec<u64>,
    /// From each to the next, if all that is blended was measured at both.
    lines: Vec<Option<Line>>,
    /// Lengths on no line have a price each.
    others: Memo,
}

/// The times from one measured length up to the next.
#[derive(Clone, Copy, Debug)]
struct Line {
    start: f64,
    from_ms: f64,
    ms_per_token: f64,
}

impl MeasuredTiming {
    /// Prices from those operators.
    #[must_use]
    pub fn new(model: OperatorModel, fused: bool) -> Self {
        let rows = (0..ROWS).map(|_| OnceLock::new()).collect();
        let (prefill_tokens, prefill_logits) = Default::default();
        let prices = PassPrices { model, fused, prefill_tokens, prefill_logits, rows };
        Self(Box::leak(Box::new(prices)))
    }

    /// The operators that it prices with.
    #[must_use]
    pub fn operators(&self) -> &'static OperatorModel {
        &self.0.model
    }

    /// The prompts of a pass, in ms.
    #[must_use]
    pub fn prefill_ms(&self, batch: &PrefillBatch) -> f64 {
        let Some((new, prefix)) = batch.means() else { return 0.0 };
        self.0.prefill_ms(batch.requests, new, prefix)
    }

    /// The decode steps of a pass, in ms. The reference prices the batch at its mean length, floored.
    #[inline]
    #[must_use]
    pub fn decode_ms(&self, batch: &DecodeBatch) -> f64 {
        match batch.context_tokens.checked_div(batch.requests) {
            Some(mean) if mean > 0 => self.0.decode_ms(batch.requests, mean),
            _ => 0.0,
        }
    }

    /// A pass with both, in ms, if they share what they can.
    #[must_use]
    pub fn fused_ms(&self, prefill: &PrefillBatch, decode: &DecodeBatch) -> Option<f64> {
        if !self.0.fused || decode.requests == 0 {
            return None;
        }
        let (new, prefix) = prefill.means()?;
        let mean = decode.context_tokens / decode.requests;
        Some(self.0.fused_ms((prefill.requests, new, prefix), (decode.requests, mean.max(1))))
    }
}

impl PassPrices {
    fn prefill_ms(&self, requests: u64, new: u64, prefix: u64) -> f64 {
        self.prefill_tokens_ms(requests * new)
            + self.prefill_logits_ms(requests)
            + self.model.context_ms(requests, new, prefix)
    }

    fn prefill_tokens_ms(&self, tokens: u64) -> f64 {
        self.prefill_tokens.get(tokens, || self.model.prefill_tokens_ms(tokens))
    }

    fn prefill_logits_ms(&self, requests: u64) -> f64 {
        self.prefill_logits.get(requests, || self.model.prefill_logits_ms(requests))
    }

    #[inline]
    fn decode_ms(&self, requests: u64, tokens: u64) -> f64 {
        match self.row(requests) {
            Some(row) => row.by_tokens_ms + self.generation_in(row, requests, tokens),
            None => self.model.decode_ms(requests, tokens),
        }
    }

    fn generation_ms(&self, requests: u64, tokens: u64) -> f64 {
        match self.row(requests) {
            Some(row) => self.generation_in(row, requests, tokens),
            None => self.model.generation_ms(requests, tokens),
        }
    }

    #[inline]
    fn row(&self, requests: u64) -> Option<&DecodeRow> {
        let row = self.rows.get(requests as usize)?;
        Some(row.get_or_init(|| DecodeRow::new(&self.model, requests)))
    }

    #[inline]
    fn generation_in(&self, row: &DecodeRow, requests: u64, tokens: u64) -> f64 {
        let of_layers = row.layers.iter().zip(&self.model.generation);
        of_layers.map(|(row, layers)| row.generation(layers, &self.model.bases, requests, tokens)).sum()
    }

    /// The matrix products see all tokens at once, so that weights are read once; each attention is as it is alone.
    fn fused_ms(&self, (prompts, new, prefix): (u64, u64, u64), (requests, tokens): (u64, u64)) -> f64 {
        self.prefill_tokens_ms(prompts * new + requests)
            + self.prefill_logits_ms(prompts + requests)
            + self.model.context_ms(prompts, new, prefix)
            + self.generation_ms(requests, tokens)
    }
}

impl DecodeRow {
    fn new(model: &OperatorModel, requests: u64) -> Self {
        let layers = model.generation.iter().map(|layers| LayersRow::new(layers, requests)).collect();
        Self { by_tokens_ms: model.decode_tokens_ms(requests), layers }
    }
}

impl LayersRow {
    fn new(layers: &AttentionLayers, requests: u64) -> Self {
        let starts = layers.knots(requests);
        let line = |pair: &[u64]| match *pair {
            [from, to] if [from, to].iter().all(|&length| layers.is_complete_at(requests, length)) => {
                let from_ms = layers.at_length(requests, from).ms;
                let ms_per_token = (layers.at_length(requests, to).ms - from_ms) / (to - from) as f64;
                Some(Line { start: from as f64, from_ms, ms_per_token })
            }
            _ => None,
        };
        let lines = starts.windows(2).map(line).collect();
        Self { starts, lines, others: Memo::default() }
    }

    /// The time that [`AttentionLayers::generation`] gives.
    #[inline]
    fn generation(&self, layers: &AttentionLayers, bases: &Bases, requests: u64, tokens: u64) -> f64 {
        let samples = layers.samples(tokens);
        let (Some(&shortest), Some(&longest)) = (samples.first(), samples.last()) else { return 0.0 };
        let count = samples.len() as f64;
        // On one line the mean of the times is the time of the mean.
        if let Some((line, end)) = self.line(shortest)
            && longest < end
        {
            let mean = samples.iter().sum::<u64>() as f64 / count;
            return layers.count * bases.note(Operator::GenerationAttention, line.at(mean));
        }
        let sum: f64 = samples.iter().map(|&length| self.at(layers, bases, requests, length)).sum();
        layers.count * sum / count
    }

    /// The line that a length is on, and where it ends.
    #[inline]
    fn line(&self, length: u64) -> Option<(&Line, u64)> {
        let after = self.starts.partition_point(|&start| start <= length);
        Some((self.lines.get(after.checked_sub(1)?)?.as_ref()?, *self.starts.get(after)?))
    }

    #[inline]
    fn at(&self, layers: &AttentionLayers, bases: &Bases, requests: u64, length: u64) -> f64 {
        let note = |estimate| bases.note(Operator::GenerationAttention, estimate);
        match self.line(length) {
            Some((line, _)) => note(line.at(length as f64)),
            None => self.others.get(length, || note(layers.at_length(requests, length))),
        }
    }
}

impl Line {
    #[inline]
    fn at(&self, length: f64) -> Estimate {
        Estimate::new(self.from_ms + self.ms_per_token * (length - self.start), Basis::Interpolated)
    }
}
