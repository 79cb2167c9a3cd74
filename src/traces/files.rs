//! Opens files, and reads those of lines whole.

use std::fs::File;
use std::io;
use std::path::Path;

use super::{FileDigest, LineReader, TraceError};
use crate::interrupt::Interrupt;

/// Rows between looks at Ctrl-C.
pub(super) const ROWS_PER_LOOK: u64 = 1024;

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

/// Opens a regular file, and says how long it is.
///
/// A pipe or a device is refused before it is opened: opening it might wait for ever, it may have no end, and a trace
/// that is out of order is read twice.
pub(super) fn open_regular(path: &str) -> Result<(File, u64), TraceError> {
    let failed = |message: String| TraceError { path: path.to_owned(), line: None, message };
    let cannot_open = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => failed(format!(
            "there is no such trace file (relative paths start at the current folder, {})",
            std::env::current_dir().map_or_else(|_| "unknown".into(), |folder| folder.display().to_string())
        )),
        _ => failed(format!("cannot open the trace: {e}")),
    };
    let found = Path::new(path).metadata().map_err(cannot_open)?;
    if found.is_dir() {
        return Err(failed("is a folder; give the trace file itself".to_owned()));
    }
    if !found.is_file() {
        return Err(failed(
            "is a pipe or a device; save the trace to a file (it may be packed), and name that".to_owned(),
        ));
    }
    Ok((File::open(path).map_err(cannot_open)?, found.len()))
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
    Err(no_requests(&paths.join(", ")))
}

/// What a trace without a request is told.
pub(super) fn no_requests(path: &str) -> TraceError {
    let message = "has no requests: it is empty, or nothing in it is one".to_owned();
    TraceError { path: path.to_owned(), line: None, message }
}
