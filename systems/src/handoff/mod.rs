//! Handing requests over from prefill to decode workers: who reserves room when, how long the KV
//! takes, and when the source lets go of it.

mod components;
mod links;
mod settle;
mod transfer;

pub use components::{Command, Handoff, HandoffDesk, HandoffTimes};
pub use settle::{HandoffDesks, hand_over, reserve_for_arrivals};
pub use transfer::{TransferSpec, TransferTokens, Transfers};
