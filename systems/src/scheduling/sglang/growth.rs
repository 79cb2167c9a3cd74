//! How many pages the next decode step needs, without a look at each running request.

use fxhash::FxHashMap;

/// Running requests by where they are in their last page.
///
/// Every decode step gives every request one token, so relative to the number of the step a request
/// stays in its place: it needs a page at each step that is congruent to the place modulo the page
/// size.
#[derive(Clone, Debug)]
pub struct DecodeGrowth {
    page_size: u64,
    /// How many requests need a page at the steps of each residue class.
    requests: FxHashMap<u64, u32>,
}

impl DecodeGrowth {
    /// No requests, on pages of `page_size` tokens.
    #[must_use]
    pub fn new(page_size: u32) -> Self {
        Self { page_size: u64::from(page_size), requests: FxHashMap::default() }
    }

    /// Adds a request that has `len` tokens before step `step`.
    pub fn add(&mut self, len: u32, step: u64) {
        *self.requests.entry(self.class(len, step)).or_default() += 1;
    }

    /// Takes a request out that has `len` tokens before step `step`.
    pub fn remove(&mut self, len: u32, step: u64) {
        let class = self.class(len, step);
        match self.requests.get_mut(&class) {
            Some(1) => _ = self.requests.remove(&class),
            Some(count) => *count -= 1,
            None => debug_assert!(false, "only who was added can be removed"),
        }
    }

    /// Pages that step `step` needs: one for each request whose pages are full before it.
    #[must_use]
    pub fn pages(&self, step: u64) -> u32 {
        self.requests.get(&(step % self.page_size)).copied().unwrap_or_default()
    }

    /// The steps, modulo the page size, at which a request's pages are full.
    fn class(&self, len: u32, step: u64) -> u64 {
        let to_fill = (self.page_size - u64::from(len) % self.page_size) % self.page_size;
        (step + to_fill) % self.page_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefix::mix;

    #[test]
    fn it_counts_what_a_look_at_every_request_counts() {
        for page_size in [1, 2, 3, 16, 64, 1000] {
            let mut growth = DecodeGrowth::new(page_size);
            let mut lens: Vec<u32> = Vec::new();
            for step in 7..500_u64 {
                let dice = mix(step, u64::from(page_size));
                if dice.is_multiple_of(3) && !lens.is_empty() {
                    growth.remove(lens.swap_remove(dice as usize % lens.len()), step);
                } else {
                    lens.push((mix(dice, 1) % 3000) as u32);
                    growth.add(lens[lens.len() - 1], step);
                }
                let needs = lens.iter().filter(|&&len| len % page_size == 0).count();
                assert_eq!(growth.pages(step), needs as u32);
                lens.iter_mut().for_each(|len| *len += 1);
            }
        }
    }

    #[test]
    fn an_empty_batch_remembers_nothing() {
        let mut growth = DecodeGrowth::new(16);
        growth.add(100, 5);
        growth.remove(103, 8);
        assert!(growth.requests.is_empty());
    }
}
