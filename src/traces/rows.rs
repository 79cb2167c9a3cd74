//! Rows of the formats that are played while they are read: one request each, with its recorded time.

use super::files::{ROWS_PER_LOOK, no_requests};
use super::logs::{AZURE_LLM, BURST_GPT, LogRows, VIDUR};
use super::mooncake::{MooncakeRows, TraceTurn};
use super::qwen::QwenRows;
use super::{FileDigest, LineReader, TraceError};
use crate::interrupt::Interrupt;

/// A format of rows, and what it leaves to the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Mooncake, with so many tokens per hash id.
    Mooncake(u32),
    /// Qwen on Bailian, with so many tokens per hash id.
    QwenBailian(u32),
    /// Azure's LLM inference traces.
    AzureLlm,
    /// BurstGPT.
    BurstGpt,
    /// Vidur's processed traces.
    Vidur,
}

impl RowFormat {
    /// The field that holds a row's time.
    pub(super) const fn time_field(self) -> &'static str {
        match self {
            Self::Mooncake(_) | Self::QwenBailian(_) => "timestamp",
            Self::AzureLlm => AZURE_LLM.time,
            Self::BurstGpt => BURST_GPT.time,
            Self::Vidur => VIDUR.time,
        }
    }

    fn layout(self) -> Box<dyn RowLayout> {
        match self {
            Self::Mooncake(tokens_per_id) => Box::new(MooncakeRows::new(tokens_per_id)),
            Self::QwenBailian(tokens_per_id) => Box::new(QwenRows { tokens_per_id }),
            Self::AzureLlm => Box::new(LogRows::new(&AZURE_LLM)),
            Self::BurstGpt => Box::new(LogRows::new(&BURST_GPT)),
            Self::Vidur => Box::new(LogRows::new(&VIDUR)),
        }
    }
}

/// What a line turns out to be.
pub(super) enum Parsed {
    /// A request.
    Row(TraceTurn),
    /// The names of the columns.
    Header,
    /// A request that was not served, so that there is nothing to send again.
    LeftOut,
}

/// How the lines of a format are read.
pub(super) trait RowLayout: Send {
    /// Reads line `number`, or says what is wrong with it.
    fn parse(&mut self, line: &str, number: u64) -> Result<Parsed, String>;
}

/// Reads the rows of a file.
pub struct RowReader {
    lines: LineReader,
    layout: Box<dyn RowLayout>,
    left_out: u64,
}

impl RowReader {
    /// Opens a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(path: &str, format: RowFormat) -> Result<Self, TraceError> {
        Ok(Self { lines: LineReader::open(path)?, layout: format.layout(), left_out: 0 })
    }

    /// The next request.
    ///
    /// # Errors
    /// If the file cannot be read on, or a row is wrong.
    pub fn next_row(&mut self) -> Result<Option<TraceTurn>, TraceError> {
        while let Some((number, line)) = self.lines.next_line()? {
            let parsed = self.layout.parse(line, number);
            match parsed.map_err(|message| self.lines.failed(message))? {
                Parsed::Row(row) => return Ok(Some(row)),
                Parsed::Header => {}
                Parsed::LeftOut => self.left_out += 1,
            }
        }
        Ok(None)
    }

    /// An error at the current line.
    pub(super) fn failed(&self, message: String) -> TraceError {
        self.lines.failed(message)
    }

    /// Reads what is left without looking at it, and says what was read; `rows` were requests.
    pub(super) fn finish(self, rows: u64) -> Result<TraceReport, TraceError> {
        Ok(TraceReport { rows, left_out: self.left_out, digest: self.lines.finish()? })
    }
}

/// What is known of a file of rows once it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceReport {
    /// Rows that are requests.
    pub rows: u64,
    /// Rows that were left out, because what they record was not served.
    pub left_out: u64,
    /// The file as a whole.
    pub digest: FileDigest,
}

/// Gives every request of a file to `take`, which says what is wrong with it, if anything is.
///
/// # Errors
/// If the file cannot be read, a row is wrong, there is none, or reading was interrupted.
pub fn each_row(
    path: &str,
    format: RowFormat,
    interrupt: &Interrupt,
    mut take: impl FnMut(TraceTurn) -> Result<(), String>,
) -> Result<TraceReport, TraceError> {
    let mut reader = RowReader::open(path, format)?;
    let mut rows: u64 = 0;
    while let Some(row) = reader.next_row()? {
        if rows.is_multiple_of(ROWS_PER_LOOK) && interrupt.is_set() {
            return Err(reader.failed("reading was interrupted".to_owned()));
        }
        take(row).map_err(|message| reader.failed(message))?;
        rows += 1;
    }
    if rows == 0 {
        return Err(no_requests(path));
    }
    reader.finish(rows)
}
