//! Everything that a run writes while it goes.

use std::io;
use std::path::PathBuf;

use dynosim_schemas::decision_row::DecisionRow;
use dynosim_schemas::request_row::RequestRow;

use super::error::OutputError;
use super::folder::PartialFile;
use super::parquet::ParquetRows;
use super::row_sink::{FinishedRows, RowSink, RowStats};

/// Where a run's rows go.
pub struct Sinks {
    rows: RowSink,
    decisions: Option<DecisionFile>,
}

struct DecisionFile {
    path: PathBuf,
    table: ParquetRows<PartialFile, DecisionRow>,
}

/// The complete files of [`Sinks`].
#[derive(Debug)]
pub struct FinishedSinks {
    /// What was written of requests.
    pub stats: RowStats,
    /// Size of the table of decisions, if it was asked for.
    pub decisions_bytes: Option<u64>,
    /// The files, to be given to [`OutputFolder::publish`](super::OutputFolder::publish).
    pub files: Vec<PartialFile>,
}

impl Sinks {
    /// Rows of requests go to `rows`, and those of decisions to `decisions` if they are asked for, with
    /// this metadata.
    ///
    /// # Errors
    /// If the file of decisions cannot be started.
    pub fn new(
        rows: RowSink,
        decisions: Option<PartialFile>,
        metadata: &[(String, String)],
    ) -> Result<Self, OutputError> {
        let start = |file: PartialFile| {
            let path = file.target().to_owned();
            match ParquetRows::new(file, metadata) {
                Ok(table) => Ok(DecisionFile { path, table }),
                Err(error) => Err(OutputError::write(&path, &error)),
            }
        };
        Ok(Self { rows, decisions: decisions.map(start).transpose()? })
    }

    /// Writes rows of requests that have ended, in any order.
    ///
    /// # Errors
    /// If what came before could not be written.
    pub fn send(&mut self, rows: Vec<RequestRow>) -> Result<(), OutputError> {
        self.rows.send(rows)
    }

    /// Writes the last rows of requests, and lets their files be completed meanwhile.
    ///
    /// # Errors
    /// If what came before could not be written.
    pub fn send_last(&mut self, rows: Vec<RequestRow>) -> Result<(), OutputError> {
        self.rows.send_last(rows)
    }

    /// Writes rows of decisions, in their order.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn send_decisions(&mut self, rows: impl IntoIterator<Item = DecisionRow>) -> Result<(), OutputError> {
        let Some(DecisionFile { path, table }) = &mut self.decisions else { return Ok(()) };
        rows.into_iter().try_for_each(|row| table.push(row)).map_err(|error| OutputError::write(path, &error))
    }

    /// Completes the files.
    ///
    /// # Errors
    /// If anything cannot be written.
    pub fn finish(self) -> Result<FinishedSinks, OutputError> {
        let FinishedRows { stats, mut files } = self.rows.finish()?;
        let mut decisions_bytes = None;
        if let Some(DecisionFile { path, table }) = self.decisions {
            let finished: io::Result<(PartialFile, u64)> = table.finish();
            let (file, bytes) = finished.map_err(|error| OutputError::write(&path, &error))?;
            decisions_bytes = Some(bytes);
            files.push(file);
        }
        Ok(FinishedSinks { stats, decisions_bytes, files })
    }
}
