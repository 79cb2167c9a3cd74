//! A trace file as a source of load, read on a thread of its own.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use dynosim_systems::traffic::{Script, SourceError, Unit, UnitSource};

use super::error::ReaderStopped;
use super::files::no_requests;
use super::rows::{RowFormat, RowReader, TraceReport, each_row};
use super::sessions::{self, Prompts, SessionTable};
use super::{NeedsWholeFile, TraceError};
use crate::interrupt::Interrupt;

/// Units that travel together from the reader to the simulation.
const BATCH_UNITS: usize = 512;
/// Batches that may wait: the reader is at most this far ahead.
const BATCHES_AHEAD: usize = 16;

/// What decides the order in which units start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartOrder {
    /// Their recorded times.
    Timestamps,
    /// Their order in the file.
    File,
}

/// A trace file and how to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFile {
    /// The file.
    pub path: String,
    /// How it is written.
    pub format: RowFormat,
    /// What decides the order of starts.
    pub order: StartOrder,
    /// What the row of a later turn holds.
    pub prompts: Prompts,
    /// Whether to read everything before the first unit is given out. Without it, memory stays
    /// small, but a trace that is out of order or has sessions ends in [`NeedsWholeFile`].
    pub whole: bool,
}

type Batch = Result<Vec<Unit>, SourceError>;

/// Units of load from a trace.
pub struct TraceSource {
    batches: std::sync::Mutex<Receiver<Batch>>,
    current: std::vec::IntoIter<Unit>,
    has_sessions: bool,
}

/// The reader's thread, to be joined after the simulation.
pub type TraceThread = JoinHandle<Result<TraceReport, SourceError>>;

impl TraceSource {
    /// Opens a trace and starts reading it.
    ///
    /// # Errors
    /// If the file cannot be opened, or, when read whole, cannot be used, or reading was interrupted.
    pub fn open(file: TraceFile, interrupt: &Interrupt) -> Result<(Self, TraceThread), TraceError> {
        if file.whole {
            return Self::read_whole(&file, interrupt);
        }
        let reader = RowReader::open(&file.path, file.format)?;
        let (sender, receiver) = sync_channel(BATCHES_AHEAD);
        let thread = spawn(&file.path.clone(), move || stream(reader, &file, &sender))?;
        Ok((Self::new(receiver, Vec::new(), false), thread))
    }

    fn read_whole(file: &TraceFile, interrupt: &Interrupt) -> Result<(Self, TraceThread), TraceError> {
        let mut table = SessionTable::default();
        let report = each_row(&file.path, file.format, interrupt, |row| table.add(row))?;
        let units = table.into_units(file.order, file.prompts).map_err(|line| TraceError {
            path: file.path.clone(),
            line,
            message: missing_time(file.format),
        })?;
        let has_sessions = units.iter().any(|unit| unit.script.turns_to_come() > 1);
        let thread = spawn(&file.path, move || Ok(report))?;
        let (_, receiver) = sync_channel(1);
        Ok((Self::new(receiver, units, has_sessions), thread))
    }

    fn new(batches: Receiver<Batch>, current: Vec<Unit>, has_sessions: bool) -> Self {
        Self { batches: std::sync::Mutex::new(batches), current: current.into_iter(), has_sessions }
    }
}

impl UnitSource for TraceSource {
    fn next_unit(&mut self) -> Result<Option<Unit>, SourceError> {
        loop {
            if let Some(unit) = self.current.next() {
                return Ok(Some(unit));
            }
            let received = self.batches.get_mut().map(|batches| batches.recv());
            match received {
                Ok(Ok(batch)) => self.current = batch?.into_iter(),
                // The reader has ended and let go of its side.
                Ok(Err(_)) | Err(_) => return Ok(None),
            }
        }
    }

    fn has_sessions(&self) -> bool {
        self.has_sessions
    }
}

fn spawn(
    path: &str,
    work: impl FnOnce() -> Result<TraceReport, SourceError> + Send + 'static,
) -> Result<TraceThread, TraceError> {
    std::thread::Builder::new().name("dynosim-trace".to_owned()).spawn(work).map_err(|e| TraceError {
        path: path.to_owned(),
        line: None,
        message: format!("cannot start the thread that reads the trace: {e}"),
    })
}

/// Reads to the end, sending units as they come.
///
/// It reads to the end even if the simulation was cut off and nobody listens any more: a later row
/// can be wrong, or belong before the cut.
fn stream(mut reader: RowReader, file: &TraceFile, sender: &SyncSender<Batch>) -> Result<TraceReport, SourceError> {
    let mut rows = 0;
    if let Err(error) = send_rows(&mut reader, file, sender, &mut rows) {
        // Stop the simulation; whoever joins this thread gets the error itself.
        drop(sender.send(Err(ReaderStopped.into())));
        return Err(error);
    }
    Ok(reader.finish(rows)?)
}

fn send_rows(
    reader: &mut RowReader,
    file: &TraceFile,
    sender: &SyncSender<Batch>,
    rows: &mut u64,
) -> Result<(), SourceError> {
    let mut clock = RecordedClock::default();
    let mut batch = Vec::with_capacity(BATCH_UNITS);
    while let Some(row) = reader.next_row()? {
        *rows += 1;
        if row.session_id.is_some() {
            return Err(NeedsWholeFile.into());
        }
        sessions::check_first_turn(&row).map_err(|message| reader.failed(message))?;
        let start_ms = match file.order {
            StartOrder::File => 0.0,
            StartOrder::Timestamps => {
                let missing = || reader.failed(missing_time(file.format));
                clock.start_ms(row.timestamp_ms.ok_or_else(missing)?)?
            }
        };
        batch.push(Unit { start_ms, session_id: row.conversation, script: Script::single(row.turn) });
        if batch.len() == BATCH_UNITS {
            let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH_UNITS));
            drop(sender.send(Ok(full)));
        }
    }
    if *rows == 0 {
        return Err(no_requests(&file.path).into());
    }
    drop(sender.send(Ok(batch)));
    Ok(())
}

/// What a request without a time is told under the timestamps load.
fn missing_time(format: RowFormat) -> String {
    format!(
        "{}: is missing; `traffic.load.type: trace_timestamps` needs it (`concurrency` does not)",
        format.time_field()
    )
}

/// Recorded times of rows that come in order.
struct RecordedClock {
    origin_ms: Option<f64>,
    previous_ms: f64,
}

impl Default for RecordedClock {
    fn default() -> Self {
        Self { origin_ms: None, previous_ms: f64::NEG_INFINITY }
    }
}

impl RecordedClock {
    /// A row's start, measured from the first row.
    fn start_ms(&mut self, timestamp_ms: f64) -> Result<f64, NeedsWholeFile> {
        if timestamp_ms < self.previous_ms {
            return Err(NeedsWholeFile);
        }
        self.previous_ms = timestamp_ms;
        Ok(timestamp_ms - *self.origin_ms.get_or_insert(timestamp_ms))
    }
}
