//! Takes rows from the simulation and writes them on a thread of its own.
//!
//! Requests end in any order; the files are sorted by `request_index`. A row that is early waits in a ring until those
//! before it have come, which also makes the files independent of how the threads are scheduled.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use dynosim_schemas::request_row::RequestRow;

use super::error::OutputError;
use super::folder::PartialFile;
use super::jsonl::JsonlRows;
use super::parquet::ParquetRows;

/// Batches that may wait for the writer before the simulation has to. Few, to bound the memory.
const WAITING_BATCHES: usize = 8;

/// Where rows are written: any output that has a name for messages.
pub trait RowFile: Write + Send + 'static {
    /// The path that a message about it should give.
    fn path(&self) -> &Path;
}

impl RowFile for PartialFile {
    fn path(&self) -> &Path {
        self.target()
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowStats {
    /// Rows of each file.
    pub rows: u64,
    /// Size of the Parquet file.
    pub parquet_bytes: u64,
    /// Size of the JSON Lines file, if it was asked for.
    pub jsonl_bytes: Option<u64>,
}

/// The complete files of a [`RowSink`].
#[derive(Debug)]
pub struct FinishedRows<F> {
    /// What was written.
    pub stats: RowStats,
    /// The files, to be given to [`OutputFolder::publish`](super::OutputFolder::publish).
    pub files: Vec<F>,
}

enum Message {
    Rows(Vec<RequestRow>),
    Finish,
}

type Outcome<F> = Result<FinishedRows<F>, OutputError>;

/// Writes rows to `requests.parquet`, and to `requests.jsonl` if asked.
///
/// Dropped without [`finish`](Self::finish), it stops the thread and drops the files.
pub struct RowSink<F: RowFile = PartialFile> {
    sender: Option<Sender<Message>>,
    thread: Option<JoinHandle<Outcome<F>>>,
    /// The first error, for every call after it.
    failure: Option<OutputError>,
}

impl<F: RowFile> RowSink<F> {
    /// Starts the thread. `metadata` goes into the Parquet file.
    ///
    /// # Errors
    ///
    /// If a file cannot be written to or the thread not be started.
    pub fn start(parquet: F, jsonl: Option<F>, metadata: &[(String, String)]) -> Result<Self, OutputError> {
        let files = RowFiles::new(parquet, jsonl, metadata)?;
        let (sender, receiver) = bounded(WAITING_BATCHES);
        let thread = thread::Builder::new()
            .name("dynosim-rows".to_owned())
            .spawn(move || write_all(files, &receiver))
            .map_err(|e| OutputError::execution(format!("cannot start the thread that writes the requests: {e}")))?;
        Ok(Self { sender: Some(sender), thread: Some(thread), failure: None })
    }

    /// Hands over rows, in any order; waits if the disk cannot keep up.
    ///
    /// # Errors
    ///
    /// The error that stopped the thread, again at every call.
    pub fn send(&mut self, batch: Vec<RequestRow>) -> Result<(), OutputError> {
        self.post(Message::Rows(batch))
    }

    /// Hands over the last rows; the thread completes the files while the caller goes on. Nothing can be sent
    /// after that.
    ///
    /// # Errors
    ///
    /// The error that stopped the thread, again at every call.
    pub fn send_last(&mut self, batch: Vec<RequestRow>) -> Result<(), OutputError> {
        self.post(Message::Rows(batch))?;
        self.post(Message::Finish)?;
        self.sender = None;
        Ok(())
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    ///
    /// The first error of the thread, or that a row is missing.
    pub fn finish(mut self) -> Outcome<F> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.sender.is_some() {
            self.post(Message::Finish)?;
        }
        self.join()
    }

    fn post(&mut self, message: Message) -> Result<(), OutputError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.sender.as_ref().is_some_and(|sender| sender.send(message).is_ok()) {
            return Ok(());
        }
        // Only a thread that has ended closes the channel, and before `Finish` it ends only by an error.
        let failure = self.join().err().unwrap_or_else(thread_lost);
        self.failure = Some(failure.clone());
        Err(failure)
    }

    fn join(&mut self) -> Outcome<F> {
        self.sender = None;
        let thread = self.thread.take().ok_or_else(thread_lost)?;
        thread.join().unwrap_or_else(|_| Err(thread_lost()))
    }
}

impl<F: RowFile> Drop for RowSink<F> {
    fn drop(&mut self) {
        // Waits, so that no partial file is left in the folder once this is gone.
        drop(self.join());
    }
}

fn thread_lost() -> OutputError {
    OutputError::execution("the thread that writes the requests stopped; this is a bug in dynosim, please report it")
}

/// The thread.
fn write_all<F: RowFile>(mut files: RowFiles<F>, messages: &Receiver<Message>) -> Outcome<F> {
    let mut order = Reorder::default();
    for message in messages {
        match message {
            Message::Rows(batch) => {
                for row in batch {
                    order.push(row, |row| files.push(row))?;
                }
            }
            Message::Finish => {
                order.check_complete()?;
                return files.finish(order.next);
            }
        }
    }
    Err(OutputError::execution("the requests were not written to their end, because the run was given up"))
}

/// Brings rows into the order of `request_index`.
#[derive(Default)]
struct Reorder {
    /// The index of the next row to be written.
    next: u64,
    /// The rows from `next` on, as far as they have come.
    waiting: VecDeque<Option<RequestRow>>,
}

impl Reorder {
    /// Gives `row`, and those that waited for it, to `write`; or keeps it.
    fn push(
        &mut self,
        row: RequestRow,
        mut write: impl FnMut(RequestRow) -> Result<(), OutputError>,
    ) -> Result<(), OutputError> {
        let ahead = row.request_index.checked_sub(self.next).ok_or_else(|| sent_twice(row.request_index))?;
        if ahead == 0 {
            write(row)?;
            self.advance();
        } else {
            self.keep(row, usize::try_from(ahead).unwrap_or(usize::MAX))?;
        }
        while let Some(Some(row)) = self.waiting.front_mut().map(Option::take) {
            write(row)?;
            self.advance();
        }
        Ok(())
    }

    fn advance(&mut self) {
        self.next += 1;
        self.waiting.pop_front();
    }

    fn keep(&mut self, row: RequestRow, ahead: usize) -> Result<(), OutputError> {
        let length = ahead.saturating_add(1);
        if length > self.waiting.len() {
            // An absurd index must not end in an abort for want of memory.
            self.waiting.try_reserve(length - self.waiting.len()).map_err(|e| too_far_ahead(row.request_index, &e))?;
            self.waiting.resize_with(length, || None);
        }
        match self.waiting.get_mut(ahead) {
            Some(slot @ None) => *slot = Some(row),
            _ => return Err(sent_twice(row.request_index)),
        }
        Ok(())
    }

    fn check_complete(&self) -> Result<(), OutputError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        Err(OutputError::execution(format!(
            "request {} never ended, although later ones did; this is a bug in dynosim, please report it",
            self.next
        )))
    }
}

fn sent_twice(index: u64) -> OutputError {
    OutputError::execution(format!("request {index} ended twice; this is a bug in dynosim, please report it"))
}

fn too_far_ahead(index: u64, cause: &impl std::fmt::Display) -> OutputError {
    OutputError::execution(format!("no memory to keep request {index} until all before it have ended: {cause}"))
}

/// Both files, with their names for messages.
struct RowFiles<F: RowFile> {
    parquet: ParquetRows<F>,
    parquet_path: PathBuf,
    jsonl: Option<(JsonlRows<F>, PathBuf)>,
}

impl<F: RowFile> RowFiles<F> {
    fn new(parquet: F, jsonl: Option<F>, metadata: &[(String, String)]) -> Result<Self, OutputError> {
        let parquet_path = parquet.path().to_owned();
        let parquet = ParquetRows::new(parquet, metadata).map_err(|e| OutputError::write(&parquet_path, &e))?;
        let jsonl = jsonl.map(|file| {
            let path = file.path().to_owned();
            (JsonlRows::new(file), path)
        });
        Ok(Self { parquet, parquet_path, jsonl })
    }

    fn push(&mut self, row: RequestRow) -> Result<(), OutputError> {
        if let Some((jsonl, path)) = &mut self.jsonl {
            jsonl.push(&row).map_err(|e| OutputError::write(path, &e))?;
        }
        self.parquet.push(row).map_err(|e| OutputError::write(&self.parquet_path, &e))
    }

    fn finish(self, rows: u64) -> Outcome<F> {
        let close = |outcome: io::Result<(F, u64)>, path: &Path| outcome.map_err(|e| OutputError::write(path, &e));
        let (file, parquet_bytes) = close(self.parquet.finish(), &self.parquet_path)?;
        let mut files = vec![file];
        let mut jsonl_bytes = None;
        if let Some((jsonl, path)) = self.jsonl {
            let (file, bytes) = close(jsonl.finish(), &path)?;
            files.push(file);
            jsonl_bytes = Some(bytes);
        }
        Ok(FinishedRows { stats: RowStats { rows, parquet_bytes, jsonl_bytes }, files })
    }
}

#[cfg(test)]
mod tests {
    use super::super::ErrorClass;
    use super::super::test_rows::{Disk, empty_row, mixed_row};
    use super::*;

    /// Numbers below `count` in an order that is neither sorted nor far from it.
    fn shuffled(count: u64) -> Vec<u64> {
        let mut order: Vec<_> = (0..count).collect();
        order.sort_by_key(|i| i + (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58));
        order
    }

    fn run(order: &[u64], batch: usize) -> FinishedRows<Disk> {
        let mut sink = RowSink::start(Disk::unlimited(), Some(Disk::unlimited()), &[]).unwrap();
        for indices in order.chunks(batch) {
            sink.send(indices.iter().map(|&i| mixed_row(i)).collect()).unwrap();
        }
        sink.finish().unwrap()
    }

    fn message_of(order: &[u64]) -> String {
        let mut sink = RowSink::start(Disk::unlimited(), None, &[]).unwrap();
        let sent = sink.send(order.iter().map(|&i| empty_row(i)).collect());
        sent.and_then(|()| sink.finish().map(drop)).unwrap_err().to_string()
    }

    #[test]
    fn files_are_the_same_in_whatever_order_and_batches_rows_come() {
        let sorted = run(&(0..3000).collect::<Vec<_>>(), 1000);
        let backwards = run(&(0..3000).rev().collect::<Vec<_>>(), 17);
        let mixed = run(&shuffled(3000), 64);
        assert_eq!(sorted.stats.rows, 3000);
        for other in [backwards, mixed] {
            assert_eq!(sorted.stats, other.stats);
            for (a, b) in sorted.files.iter().zip(&other.files) {
                assert!(a.content == b.content);
            }
        }
        let lines = String::from_utf8(sorted.files[1].content.clone()).unwrap();
        for (index, line) in lines.lines().enumerate() {
            assert!(line.contains(&format!("\"request_index\":{index},")), "{line}");
        }
        assert_eq!(sorted.stats.jsonl_bytes, Some(lines.len() as u64));
    }

    #[test]
    fn no_rows_and_no_jsonl_are_fine() {
        let sink = RowSink::start(Disk::unlimited(), None, &[]).unwrap();
        let finished = sink.finish().unwrap();
        assert_eq!((finished.stats.rows, finished.stats.jsonl_bytes, finished.files.len()), (0, None, 1));
    }

    #[test]
    fn full_disk_stops_every_later_call_with_the_path() {
        // Room for the magic number, so that it is the thread that fails.
        let mut sink = RowSink::start(Disk::unlimited(), Some(Disk::new(1000)), &[]).unwrap();
        let mut index = 0;
        let error = loop {
            let batch = (index..index + 500).map(mixed_row).collect();
            index += 500;
            if let Err(error) = sink.send(batch) {
                break error;
            }
            assert!(index < 1_000_000, "the error never came");
        };
        assert_eq!(error.class(), ErrorClass::Execution);
        let text = error.to_string();
        assert!(text.contains("out/requests.parquet") && text.contains("free some space"), "{text}");
        assert_eq!(sink.send(Vec::new()).unwrap_err(), error);
        assert_eq!(sink.finish().unwrap_err(), error);
    }

    #[test]
    fn full_disk_at_the_end_is_reported_by_finish() {
        let mut sink = RowSink::start(Disk::new(100), None, &[]).unwrap();
        sink.send(vec![empty_row(0)]).unwrap();
        assert!(sink.finish().unwrap_err().to_string().contains("cannot write out/requests.parquet"));
    }

    #[test]
    fn rows_that_are_missing_or_double_are_reported() {
        assert!(message_of(&[0, 1, 3]).contains("request 2 never ended"));
        assert!(message_of(&[0, 1, 1]).contains("request 1 ended twice"));
        assert!(message_of(&[0, 5, 5]).contains("request 5 ended twice"));
        assert!(message_of(&[u64::MAX]).contains("no memory"));
    }

    #[test]
    fn panicking_output_is_an_error() {
        #[derive(Debug)]
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                assert!(bytes.len() < 5, "on purpose");
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        impl RowFile for Broken {
            fn path(&self) -> &Path {
                Path::new("broken")
            }
        }
        let mut sink = RowSink::start(Broken, None, &[]).unwrap();
        sink.send(vec![empty_row(0)]).unwrap();
        assert!(sink.finish().unwrap_err().to_string().contains("bug in dynosim"));
    }
}
