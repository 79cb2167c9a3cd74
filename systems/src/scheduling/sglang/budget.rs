//! What a pass may compute of prompts.

/// The budget of a pass that computes prompts, in tokens. Rules measured on the reference
/// (aisimulate-core 0.13.0).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefillBudget {
    /// Room for prompts and the outputs that are set aside for them.
    total: f64,
    /// Prompt tokens of all requests together.
    input: u32,
    /// Prompt tokens, where the last request may be cut.
    chunk: u32,
}

impl PrefillBudget {
    /// The budget of a new pass.
    #[must_use]
    pub const fn new(total: f64, input: u32, chunk: u32) -> Self {
        Self { total, input, chunk }
    }

    /// How many of `extend` tokens a request gets; `None` if it has to wait. `reserve` is the output
    /// that is set aside with its last prompt token.
    #[must_use]
    pub fn fit(&self, extend: u32, reserve: u32, page_size: u32) -> Option<u32> {
        let whole = whole_pages(extend, page_size) <= u64::from(self.chunk);
        let tokens = if whole { extend } else { self.chunk / page_size * page_size };
        if tokens == 0 && extend > 0 {
            return None;
        }
        let charge = whole_pages(tokens, page_size);
        let reserved = if whole { u64::from(reserve) } else { 0 };
        let fits = ((charge + reserved) as f64) < self.total
            && charge <= u64::from(self.input)
            && charge <= u64::from(self.chunk);
        fits.then_some(tokens)
    }

    /// Takes what a request gets.
    pub fn take(&mut self, tokens: u32, reserve: u32, page_size: u32) {
        let charge = whole_pages(tokens, page_size) as u32;
        self.total -= f64::from(charge) + f64::from(reserve);
        self.input -= charge;
        self.chunk -= charge;
    }

    /// Whether nobody can get anything any more.
    #[must_use]
    pub const fn is_used_up(&self) -> bool {
        self.chunk == 0
    }
}

/// The tokens of the pages that hold `tokens`.
fn whole_pages(tokens: u32, page_size: u32) -> u64 {
    u64::from(tokens.div_ceil(page_size)) * u64::from(page_size)
}
