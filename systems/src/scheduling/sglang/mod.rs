//! SGLang's scheduler.

mod budget;
mod growth;
mod hand_over;
mod lpm;
mod pass;
mod ratio;
mod state;

pub use budget::PrefillBudget;
pub use growth::DecodeGrowth;
pub use ratio::NewTokenRatio;
pub use state::{ReservedOutputs, SglangRank};

pub(super) use hand_over::{activate, cancel, release_source, reserve};
pub(super) use pass::begin_pass;
