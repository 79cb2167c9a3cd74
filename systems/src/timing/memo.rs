//! Prices by a small whole number, each computed once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Prices of one chunk.
const CHUNK: usize = 1024;
/// Chunks: numbers beyond them are computed each time.
const CHUNKS: usize = 256;
/// Bits of a price that nobody has computed: no price is such a NaN.
const UNKNOWN: u64 = u64::MAX;

/// Prices by a whole number. Threads that ask for the same one at once compute the same.
#[derive(Debug)]
pub struct Memo {
    chunks: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl Default for Memo {
    fn default() -> Self {
        Self { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect() }
    }
}

impl Memo {
    /// The price at `x`, which is what `price` gives.
    #[inline]
    pub fn get(&self, x: u64, price: impl FnOnce() -> f64) -> f64 {
        let x = x as usize;
        let Some(chunk) = self.chunks.get(x / CHUNK) else { return price() };
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| AtomicU64::new(UNKNOWN)).collect());
        let Some(place) = chunk.get(x % CHUNK) else { return price() };
        let known = place.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return f64::from_bits(known);
        }
        let ms = price();
        place.store(ms.to_bits(), Ordering::Relaxed);
        ms
    }
}
