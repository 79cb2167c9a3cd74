//! dynosim: simulate LLM serving clusters on a virtual clock.
//!
//! This crate is what a person touches: commands, trace readers, world assembly, the run loop and
//! the writers. What happens in the simulation is in [`dynosim_systems`], what data looks like in
//! [`dynosim_schemas`].

pub mod assemble;
pub mod check;
pub mod cli;
pub mod command;
pub mod config_file;
pub mod error;
pub mod interrupt;
pub mod output;
pub mod perf_check;
pub mod perf_data;
pub mod perf_db;
pub mod predict;
pub mod profile;
pub mod progress;
pub mod resolve;
pub mod run;
pub mod trace;
pub mod traces;
pub mod workload;
