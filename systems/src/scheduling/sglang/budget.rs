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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_charged_in_whole_pages_and_must_leave_room() {
        let budget = PrefillBudget::new(224.0, 16_384, 8192);
        assert_eq!(budget.fit(64, 40, 16), Some(64), "104 of 224");
        assert_eq!(budget.fit(64, 160, 16), None, "224 are not below 224");
        assert_eq!(budget.fit(63, 159, 16), Some(63), "64 and 159 are");
    }

    #[test]
    fn a_prompt_is_cut_at_whole_pages_and_sets_its_output_aside_with_its_last_part() {
        let mut budget = PrefillBudget::new(1000.0, 16_384, 100);
        assert_eq!(budget.fit(500, 900, 16), Some(96));
        budget.take(96, 0, 16);
        assert_eq!(budget.fit(404, 0, 16), None, "four tokens are no page");
        assert!(!budget.is_used_up());
        let mut budget = PrefillBudget::new(1000.0, 16_384, 96);
        budget.take(96, 0, 16);
        assert!(budget.is_used_up());
    }

    #[test]
    fn a_pass_computes_no_more_than_its_input() {
        let mut budget = PrefillBudget::new(1e6, 100, 8192);
        assert_eq!(budget.fit(101, 0, 1), None);
        assert_eq!(budget.fit(100, 0, 1), Some(100));
        budget.take(60, 10, 1);
        assert_eq!(budget.fit(41, 0, 1), None);
    }

    #[test]
    fn a_prompt_that_is_all_cached_needs_no_budget_but_room_for_its_output() {
        let budget = PrefillBudget::new(10.0, 16_384, 0);
        assert_eq!(budget.fit(0, 9, 16), Some(0));
        assert_eq!(budget.fit(0, 10, 16), None);
    }
}
