//! What a run leaves behind: the report, the per-request table and the lines on the terminal.
//!
//! Read it in this order:
//!
//! * [`OutputFolder`] checks the folder before the run, hands out hidden partial files and renames all of them at the
//!   end. A run that fails or is interrupted changes nothing that was there.
//! * [`RowSink`] takes finished requests in any order and writes them sorted, on a thread of its own, through
//!   [`ParquetRows`] and [`JsonlRows`]. Both follow the one description of the table,
//!   [`COLUMNS`](dynosim_schemas::request_row::COLUMNS).
//! * [`Sinks`] holds that and, on request, the table of the router's decisions.
//! * [`Report`] makes `prediction.json`; [`summary_line`] and [`summary_table`] are what the terminal shows.
//!
//! Nothing here prints or exits: functions return text, or write where they are told to.

mod columns_doc;
mod error;
mod folder;
mod jsonl;
mod parquet;
mod prediction;
mod row_sink;
mod sinks;
mod table;
#[cfg(test)]
mod test_rows;

pub use columns_doc::{decisions_doc, plays_doc, requests_doc};
pub use error::{ErrorClass, OutputError};
pub use folder::{KnownOutput, OutputFolder, PartialFile};
pub use jsonl::JsonlRows;
pub use parquet::{ParquetRows, file_metadata};
pub use prediction::{InputFile, Provenance, Report, WallClock, summary_line, to_pretty_json};
pub use row_sink::{FinishedRows, RowFile, RowSink, RowStats};
pub use sinks::{FinishedSinks, Sinks};
pub use table::{TABLE_STYLE, summary_table};

pub(crate) use table::{decimals, separated};
