//! What a target costs, and which of them is chosen.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::spec::{Candidate, KvRouterSpec};

/// What a cost is made of besides the [`Candidate`] itself.
pub(super) struct CostTerms {
    /// Prompt length of the request.
    pub(super) prompt_tokens: u32,
    /// Least prefill load of any candidate, in tokens.
    pub(super) least_prefill_tokens: u64,
    /// Requests that are active on the target.
    pub(super) active_requests: u32,
}

/// The cost of sending a request to a target, in blocks:
///
/// ```text
/// raw    = (prefill_tokens + prompt_tokens) / block_size            (0 unless prefill is tracked)
/// decay  = 1 / (1 + credit_decay * ((prefill_tokens - least) / block_size) / max(1, ceil(prompt_tokens / block_size)))
/// credit = overlap_score_credit * decay * overlap_blocks
/// cost   = prefill_load_scale * max(0, raw - credit) + decode_blocks + request_weight * active_requests
/// ```
pub(super) fn cost(spec: &KvRouterSpec, candidate: &Candidate, terms: &CostTerms) -> f64 {
    let block_size = f64::from(spec.block_size);
    let prefill = if spec.tracks_prefill {
        let raw = (candidate.prefill_tokens + u64::from(terms.prompt_tokens)) as f64 / block_size;
        let excess = (candidate.prefill_tokens - terms.least_prefill_tokens) as f64 / block_size;
        let prompt_blocks = f64::from(terms.prompt_tokens.div_ceil(spec.block_size).max(1));
        let decay = 1.0 / (1.0 + spec.overlap_score_credit_decay * excess / prompt_blocks);
        let credit = spec.overlap_score_credit * decay * f64::from(candidate.overlap_blocks);
        (raw - credit).max(0.0)
    } else {
        0.0
    };
    spec.prefill_load_scale * prefill
        + candidate.decode_blocks as f64
        + spec.decode_active_request_weight * f64::from(terms.active_requests)
}

/// Chooses among targets by their costs.
#[derive(Clone, Debug)]
pub(super) struct Chooser {
    temperature: f64,
    /// The stream of draws of this router; nothing else draws from it.
    draws: Xoshiro256PlusPlus,
    weights: Vec<f64>,
}

impl Chooser {
    pub(super) fn new(temperature: f64, seed: u64) -> Self {
        Self { temperature, draws: Xoshiro256PlusPlus::seed_from_u64(seed), weights: Vec::new() }
    }

    /// The position of the chosen target. There must be one.
    ///
    /// At temperature 0 the cheapest, with one draw if several cost the same: uniformly among
    /// them, in order. Above it one draw by the weights `exp(-((cost - least) / (most - least)) / temperature)`.
    pub(super) fn choose(&mut self, candidates: &[Candidate]) -> usize {
        let costs = || candidates.iter().map(|candidate| candidate.cost);
        let least = costs().fold(f64::INFINITY, f64::min);
        let most = costs().fold(f64::NEG_INFINITY, f64::max);
        if self.temperature > 0.0 && least < most {
            let scaled = |cost: f64| (cost - least) / (most - least) / self.temperature;
            self.weights.clear();
            self.weights.extend(costs().map(|cost| (-scaled(cost)).exp()));
            return self.draw_by_weight();
        }
        let cheapest = || (0..candidates.len()).filter(|&position| candidates[position].cost == least);
        let tied = cheapest().count();
        let nth = if tied > 1 { (self.uniform() * tied as f64) as usize } else { 0 };
        cheapest().nth(nth).unwrap_or_default()
    }

    /// The first position at which the running sum of probabilities reaches a uniform draw.
    fn draw_by_weight(&mut self) -> usize {
        let uniform = self.uniform();
        let total: f64 = self.weights.iter().sum();
        let mut sum = 0.0;
        let reached = self.weights.iter().position(|weight| {
            sum += weight / total;
            sum >= uniform
        });
        // Rounding may leave the sum just below 1.
        reached.unwrap_or(self.weights.len() - 1)
    }

    /// A uniform draw from [0, 1).
    fn uniform(&mut self) -> f64 {
        (self.draws.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(target: usize, cost: f64) -> Candidate {
        Candidate { target, worker_id: 0, rank: 0, overlap_blocks: 0, prefill_tokens: 0, decode_blocks: 0, cost }
    }

    /// How often each of the costs is chosen in 20,000 draws.
    fn frequencies(temperature: f64, costs: &[f64]) -> Vec<f64> {
        let candidates: Vec<_> = costs.iter().enumerate().map(|(i, &cost)| candidate(i, cost)).collect();
        let mut chooser = Chooser::new(temperature, 42);
        let mut counts = vec![0.0; costs.len()];
        for _ in 0..20_000 {
            counts[chooser.choose(&candidates)] += 1.0 / 20_000.0;
        }
        counts
    }

    #[test]
    fn costs_are_those_of_the_worked_example() {
        let mut spec = KvRouterSpec::aggregated(64);
        let a = Candidate { overlap_blocks: 8, prefill_tokens: 1280, decode_blocks: 40, ..candidate(0, 0.0) };
        let b = Candidate { decode_blocks: 55, ..candidate(1, 0.0) };
        let terms = CostTerms { prompt_tokens: 640, least_prefill_tokens: 0, active_requests: 3 };
        assert_eq!([cost(&spec, &a, &terms), cost(&spec, &b, &terms)], [62.0, 65.0]);
        spec.overlap_score_credit = 0.0;
        assert_eq!([cost(&spec, &a, &terms), cost(&spec, &b, &terms)], [70.0, 65.0]);
        (spec.overlap_score_credit, spec.overlap_score_credit_decay) = (1.0, 0.5);
        assert_eq!(cost(&spec, &a, &terms), 30.0 - 8.0 / (1.0 + 0.5 * 20.0 / 10.0) + 40.0);
        (spec.prefill_load_scale, spec.decode_active_request_weight) = (2.0, 0.25);
        assert_eq!(cost(&spec, &b, &terms), 20.0 + 55.0 + 0.75);
        spec.tracks_prefill = false;
        assert_eq!(cost(&spec, &a, &terms), 40.75);
    }

    #[test]
    fn the_cheapest_is_chosen_and_ties_are_drawn_evenly() {
        assert_eq!(frequencies(0.0, &[3.0, 1.0, 2.0]), frequencies(0.0, &[9.0, 8.0, 9.0]));
        let tied = frequencies(0.0, &[1.0, 2.0, 1.0, 1.0]);
        assert_eq!(tied[1], 0.0);
        assert!([0, 2, 3].iter().all(|&i| (tied[i] - 1.0 / 3.0).abs() < 0.01), "{tied:?}");
    }

    #[test]
    fn a_temperature_weighs_costs_within_their_range() {
        for (temperature, scale) in [(0.4, 1.0), (1.0, 1000.0)] {
            let drawn = frequencies(temperature, &[2.0 * scale, 1.0 * scale, 3.0 * scale]);
            let weights = [0.5_f64, 0.0, 1.0].map(|share| (-share / temperature).exp());
            let total: f64 = weights.iter().sum();
            for (drawn, weight) in drawn.iter().zip(weights) {
                assert!((drawn - weight / total).abs() < 0.012, "{drawn} instead of {}", weight / total);
            }
        }
        let even = frequencies(0.4, &[7.0, 7.0]);
        assert!((even[0] - 0.5).abs() < 0.012, "{even:?}");
        assert_eq!(frequencies(5e-324, &[7.0, 6.0]), [0.0, frequencies(0.0, &[7.0, 6.0])[1]]);
    }
}
