//! What a backend's scheduler has to be able to do.

use dynosim_schemas::config::Backend;

use super::components::{RankDataItem, RequestDataItem, RequestDataReadOnlyItem};
use super::vllm::{PassStart, Requests, Scratch};
use super::{hand_over, sglang, vllm};
use crate::handoff::Handoff;
use crate::kv::Blocks;

/// What came of asking a rank for room for a request's KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// The room is set aside.
    Made,
    /// There is not enough room now.
    Refused,
    /// There can never be enough.
    Impossible,
}

/// The functions of a scheduler. Everything else about a backend is data in its
/// [`super::EngineSpec`].
pub struct Scheduler {
    /// Starts a pass: decides what it computes, applies that to the world, and notes when it ends.
    pub begin_pass: fn(&mut RankDataItem<'_, '_>, &mut Requests<'_, '_>, Blocks<'_>, &mut Scratch, PassStart),
    /// Sets room aside on a decode rank for the prompt of a request.
    pub reserve:
        fn(&mut RankDataItem<'_, '_>, &RequestDataReadOnlyItem<'_, '_>, &mut Handoff, Blocks<'_>) -> Reservation,
    /// Gives a decode rank a request whose KV has arrived.
    pub activate: fn(&mut RankDataItem<'_, '_>, &mut RequestDataItem<'_, '_>, &mut Handoff, Blocks<'_>),
    /// Takes the room for a request back that was reserved and is not needed after all.
    pub cancel: fn(&mut RankDataItem<'_, '_>, &mut Handoff, Blocks<'_>),
    /// Lets go of a request's KV on its prefill rank, once it is on the decode rank.
    pub release_source: fn(&mut RankDataItem<'_, '_>, &RequestDataReadOnlyItem<'_, '_>, &mut Handoff, Blocks<'_>),
}

const VLLM: Scheduler = Scheduler {
    begin_pass: vllm::begin_pass,
    reserve: hand_over::reserve,
    activate: hand_over::activate,
    cancel: hand_over::cancel,
    release_source: hand_over::release_source,
};

const SGLANG: Scheduler = Scheduler {
    begin_pass: sglang::begin_pass,
    reserve: sglang::reserve,
    activate: sglang::activate,
    cancel: sglang::cancel,
    release_source: sglang::release_source,
};

/// The scheduler of a backend.
#[must_use]
pub fn scheduler(backend: Backend) -> &'static Scheduler {
    match backend {
        // TensorRT-LLM differs from vLLM in whom it admits only.
        Backend::Vllm | Backend::Trtllm => &VLLM,
        Backend::Sglang => &SGLANG,
    }
}
