//! Trace files: from lines to units of load.
//!
//! [`LineReader`] gives numbered lines and hashes what it reads, `mooncake` makes requests of rows,
//! and [`TraceSource`] does both on a thread of its own, ahead of the simulation.

mod error;
mod lines;
mod mooncake;
mod sessions;
mod source;

pub use error::{NeedsWholeFile, ReaderStopped, TraceError};
pub use lines::{FileDigest, LineReader};
pub use source::{StartOrder, TraceFile, TraceReport, TraceSource, TraceThread};
