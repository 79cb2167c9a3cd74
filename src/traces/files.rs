//! Reads line files whole.

use super::{FileDigest, LineReader, TraceError};
use crate::interrupt::Interrupt;

/// Rows between looks at Ctrl-C.
const ROWS_PER_LOOK: u64 = 1024;

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// Its path.
    pub path: String,
    /// Rows that are requests.
    pub rows: u64,
    /// The file as a whole.
    pub digest: FileDigest,
}

/// Gives every line to `take`, which says whether it was a request or what is wrong with it.
pub(super) fn each_line(
    path: &str,
    interrupt: &Interrupt,
    mut take: impl FnMut(&str, u64) -> Result<bool, String>,
) -> Result<FileReport, TraceError> {
    let mut lines = LineReader::open(path)?;
    let (mut rows, mut looked) = (0, 0_u64);
    while let Some((number, line)) = lines.next_line()? {
        let taken = take(line, number);
        rows += u64::from(taken.map_err(|message| lines.failed(message))?);
        looked += 1;
        if looked.is_multiple_of(ROWS_PER_LOOK) && interrupt.is_set() {
            return Err(lines.failed("reading was interrupted".to_owned()));
        }
    }
    Ok(FileReport { path: path.to_owned(), rows, digest: lines.finish()? })
}

/// Refuses what has no requests.
pub(super) fn some_requests(reports: &[FileReport]) -> Result<(), TraceError> {
    if reports.iter().any(|report| report.rows > 0) {
        return Ok(());
    }
    let paths: Vec<&str> = reports.iter().map(|report| report.path.as_str()).collect();
    Err(TraceError { path: paths.join(", "), line: None, message: NO_REQUESTS.to_owned() })
}

/// What a trace without a request is told.
const NO_REQUESTS: &str = "has no requests: it is empty, or nothing in it is one";
