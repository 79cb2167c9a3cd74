//! A Mooncake trace of any length that is the same on every machine.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::workloads::TOKENS_PER_ID;

/// Bytes of a row, rather too many.
pub const ROW_BYTES: u64 = 128;

/// Ids that many prompts start with.
const SHARED_IDS: u64 = 64;
/// Mean time between arrivals, in ms. Four workers are busy with that, and keep up.
const MEAN_GAP_MS: u64 = 12;

/// Writes a trace: prompts of 512 to 2048 tokens, half of the longer ones with a shared first id,
/// and outputs of 16 to 128 tokens.
pub fn write(path: &Path, rows: u64) -> io::Result<()> {
    let mut output = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut draws = Draws(42);
    let (mut timestamp, mut next_id) = (0, SHARED_IDS);
    for _ in 0..rows {
        let input = draws.between(512, 2048);
        let output_length = draws.between(16, 128);
        write!(output, r#"{{"timestamp": {timestamp}, "input_length": {input}, "output_length": {output_length}, "#)?;
        let ids = input.div_ceil(TOKENS_PER_ID);
        let is_shared = ids > 1 && draws.between(0, 1) == 1;
        let shared = is_shared.then(|| draws.between(0, SHARED_IDS - 1));
        let own = ids - u64::from(is_shared);
        let ids = shared.into_iter().chain(next_id..next_id + own);
        for (position, id) in ids.enumerate() {
            write!(output, "{}{id}", if position == 0 { r#""hash_ids": ["# } else { ", " })?;
        }
        output.write_all(b"]}\n")?;
        next_id += own;
        timestamp += draws.between(0, 2 * MEAN_GAP_MS);
    }
    output.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// A linear congruential generator (Knuth's MMIX constants).
struct Draws(u64);

impl Draws {
    /// The next number from `low` to `high`, both included.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The high bits are the good ones.
        low + (self.0 >> 33) * (high - low + 1) / (1 << 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_repeats_and_its_ids_cover_its_prompts() {
        let folder = tempfile::tempdir().unwrap();
        let text = |name: &str| {
            let path = folder.path().join(name);
            write(&path, 1000).unwrap();
            std::fs::read_to_string(path).unwrap()
        };
        let trace = text("a");
        assert_eq!(trace, text("b"));
        assert!(trace.len() as u64 <= 1000 * ROW_BYTES);
        assert_eq!(trace.lines().count(), 1000);
        for line in trace.lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let ids = row["hash_ids"].as_array().unwrap().len() as u64;
            let input = row["input_length"].as_u64().unwrap();
            assert!((512..=2048).contains(&input) && ids == input.div_ceil(TOKENS_PER_ID), "{line}");
            assert!((16..=128).contains(&row["output_length"].as_u64().unwrap()), "{line}");
        }
    }
}
