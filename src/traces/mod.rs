//! Trace files: from lines to units of load, or to graphs of requests.
//!
//! [`LineReader`] gives numbered lines of a file, packed or not, and hashes what it reads, `mooncake` makes requests of
//! rows, and [`TraceSource`] does both on a thread of its own, ahead of the simulation. Formats that have to be read whole
//! anyway are `applied`, [`dynamo`], and those of agents: [`agentic`] and [`weka`].

pub mod agentic;
mod applied;
mod components;
pub mod dynamo;
mod error;
mod files;
mod json;
mod lines;
mod listed;
mod mooncake;
mod open;
mod packed;
mod place;
mod sessions;
mod source;
pub mod weka;

pub use error::{NeedsWholeFile, ReaderStopped, TraceError};
pub use files::FileReport;
pub use lines::{LineReader, MAX_LINE_BYTES};
pub use listed::ListedUnits;
pub use open::{OpenedTrace, TraceContent, WholeTrace, open_whole};
pub use packed::FileDigest;
pub use place::SourcePlace;
pub use sessions::Prompts;
pub use source::{StartOrder, TraceFile, TraceReport, TraceSource, TraceThread};
