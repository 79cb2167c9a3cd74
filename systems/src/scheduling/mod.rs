//! Scheduling: what a rank's passes compute, and when they end.

mod advance;
mod calendar;
mod components;
mod endings;
mod hand_over;
mod pass_log;
mod quiet;
mod scheduler;
pub mod sglang;
mod spec;
mod vllm;

pub use advance::{Engine, PassHorizon, PassQueue, Signal, Signals, run_passes, with_block_columns};
pub use calendar::Calendar;
pub use components::{
    Due, Ending, Member, PassClock, Phase, RankData, RankDataItem, RequestData, RequestDataItem,
    RequestDataReadOnlyItem, RunningBatch, Sequence, Timeline, TokenRun, WaitingQueue,
};
pub use endings::flush_logs;
pub use pass_log::PassLog;
pub use scheduler::{Reservation, Scheduler, scheduler};
pub use spec::EngineSpec;
pub use vllm::{PassStart, Requests, Scratch};
