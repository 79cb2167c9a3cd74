//! What dynosim's data looks like.
//!
//! Plain types, their defaults and their validation. This crate knows nobody: it opens no file,
//! runs nothing and prints nothing.

pub mod config;
pub mod decision_row;
pub mod dtype;
pub mod hardware;
pub mod model;
pub mod perf_table;
pub mod play_row;
pub mod request_row;
pub mod summary;
pub mod table;
pub mod trace;
