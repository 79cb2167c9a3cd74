//! The KV cache of an SGLang-style rank: a pool of pages, and a radix tree of those that are cached.
//!
//! Which physical page holds what makes no difference to anybody, so there are none: the pool counts
//! pages, and the tree knows runs of them. At SGLang's usual page size of one token a prompt has as
//! many pages as tokens, but it is still only a few runs.

mod cache;
mod node;
mod tree;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use cache::{RadixCache, RadixHold, RadixUsage};
pub use tree::Stamp;
