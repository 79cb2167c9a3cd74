//! Worlds that follow from a seed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Desk, in_parallel};

/// Plays the worlds of many seeds, or of `DYNOSIM_TEST_SEED` alone. `play` says what happened, or what is
/// wrong; every `expected` outcome has to happen somewhere, since worlds in which nothing does prove little.
pub fn play_worlds(count: u64, expected: &[&str], play: impl Fn(u64) -> Result<BTreeMap<String, u64>, String> + Sync) {
    let seeds: Vec<u64> = match std::env::var("DYNOSIM_TEST_SEED") {
        Ok(seed) => vec![seed.parse().expect("DYNOSIM_TEST_SEED is a number")],
        Err(_) => (0..count).collect(),
    };
    let verdicts = in_parallel(&seeds, |&seed| play(seed).map_err(|broken| format!("seed {seed}: {broken}")));
    let mut seen = BTreeMap::new();
    let mut broken = Vec::new();
    for verdict in verdicts {
        match verdict {
            Ok(outcomes) => outcomes.into_iter().for_each(|(what, n)| *seen.entry(what).or_insert(0) += n),
            Err(message) => broken.push(message),
        }
    }
    assert!(broken.is_empty(), "{} of {} worlds:\n{}", broken.len(), seeds.len(), broken.join("\n"));
    if seeds.len() > 1 {
        for outcome in expected {
            assert!(seen.contains_key(*outcome), "no world had a request that was {outcome}: {seen:?}");
        }
    }
}

/// A linear congruential generator (Knuth's MMIX), for worlds that follow from a seed.
pub struct Lcg(u64);

impl Lcg {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        let mut lcg = Self(seed);
        lcg.next();
        lcg.next();
        lcg
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// A number from `low` to `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// One of the choices.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.next() as usize % choices.len()]
    }
}

/// Traffic, its number of requests, and the wait between turns.
pub fn traffic(lcg: &mut Lcg, desk: &Desk, pool: u64) -> (Value, u64, Option<f64>) {
    let count = lcg.between(1, 60);
    let rate = lcg.between(1, 200);
    let load = |lcg: &mut Lcg, unit: &str| match lcg.between(0, 2) {
        0 => json!({ "type": "concurrency", "concurrency": lcg.between(1, 20) }),
        1 => json!({ "type": "constant_rate", unit: rate }),
        _ => json!({ "type": "poisson", unit: rate, "seed": lcg.next() }),
    };
    match lcg.between(0, 2) {
        0 => {
            let (input, output) = (lcg.between(1, pool + pool / 8), lcg.between(1, pool / 2));
            let source = json!({ "type": "synthetic", "input_tokens": input, "output_tokens": output });
            let load = load(lcg, "requests_per_second");
            (json!({ "source": source, "load": load, "stop": { "requests": count } }), count, None)
        }
        1 => {
            let (turns, sessions, delay_ms) = (lcg.between(2, 4), count / 3 + 1, lcg.between(0, 300));
            let source = json!({
                "type": "synthetic-session",
                "new_input_tokens_per_turn": lcg.between(1, pool / 4),
                "output_tokens_per_turn": lcg.between(1, pool / 8),
                "session": {
                    "turns": turns,
                    "inter_turn_delay_ms": delay_ms,
                    "shared_prefix_ratio": lcg.one_of(&[0.0, 0.5, 1.0]),
                    "prefix_groups": lcg.between(1, 3),
                },
            });
            let load = load(lcg, "sessions_per_second");
            let traffic = json!({ "source": source, "load": load, "stop": { "sessions": sessions } });
            (traffic, sessions * turns, Some(delay_ms as f64))
        }
        _ => {
            let tokens_per_id = lcg.between(1, 100);
            let lines: Vec<_> = (0..count).map(|_| trace_row(lcg, tokens_per_id, pool)).collect();
            let path = desk.write("trace.jsonl", lines.join("\n"));
            let mut traffic = super::recorded(&path, tokens_per_id);
            if lcg.between(0, 1) == 0 {
                traffic["load"] = json!({ "type": "concurrency", "concurrency": lcg.between(1, 20) });
            }
            if lcg.between(0, 3) == 0 {
                traffic["stop"] = json!({ "max_virtual_time_seconds": lcg.between(1, 3000) as f64 / 1000.0 });
            }
            (traffic, count, None)
        }
    }
}

/// Few different ids, so that prompts share prefixes; times out of order.
fn trace_row(lcg: &mut Lcg, tokens_per_id: u64, pool: u64) -> String {
    let input = lcg.between(1, pool + 2);
    let ids: Vec<_> = (0..input.div_ceil(tokens_per_id)).map(|index| index * 10 + lcg.between(0, 20) / 20).collect();
    let output = lcg.between(0, pool / 3);
    json!({ "timestamp": lcg.between(0, 2000), "input_length": input, "output_length": output, "hash_ids": ids })
        .to_string()
}
