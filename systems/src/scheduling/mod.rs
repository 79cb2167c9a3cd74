//! Scheduling: what a worker's passes compute, and when they end.

mod advance;
mod calendar;
mod components;
mod pass_log;
mod vllm;

pub use advance::{Fleet, PassHorizon, PassQueue, Signal, Signals, flush_logs, run_passes};
pub use calendar::Calendar;
pub use components::{
    Due, Ending, EngineSpec, Member, PassClock, Phase, RunningBatch, Sequence, Timeline, TokenRun, WaitingQueue,
    Worker, WorkerData,
};
pub use pass_log::PassLog;
pub use vllm::{Requests, Scratch};
