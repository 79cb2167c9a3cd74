//! Trace files: from lines to units of load, or to graphs of requests.
//!
//! [`LineReader`] gives numbered lines of a file, packed or not, and hashes what it reads; [`RowReader`] makes requests of
//! them, by the rules of `mooncake`, `qwen` or `logs`; and [`TraceSource`] does both on a thread of its own, ahead of the
//! simulation. Formats that have to be read whole anyway are `applied`, [`dynamo`], and those of agents: [`agentic`] and
//! [`weka`].

pub mod agentic;
mod applied;
mod components;
pub mod dynamo;
mod error;
mod files;
mod json;
mod lines;
mod listed;
mod logs;
mod mooncake;
mod open;
mod packed;
mod place;
mod plain_row;
mod qwen;
mod rows;
mod sessions;
mod source;
mod time;
pub mod weka;

pub use error::{NeedsWholeFile, ReaderStopped, TraceError};
pub use files::FileReport;
pub use lines::{LineReader, MAX_LINE_BYTES};
pub use listed::ListedUnits;
pub use mooncake::TraceTurn;
pub use open::{OpenedTrace, TraceContent, TraceReading, TraceRequest, read_trace};
pub use packed::FileDigest;
pub use place::SourcePlace;
pub use rows::{RowFormat, RowReader, TraceReport, each_row};
pub use sessions::Prompts;
pub use source::{StartOrder, TraceFile, TraceSource, TraceThread};
