//! Numbered lines of a text file, hashed on the way.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::TraceError;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// What a file holds, as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDigest {
    /// Size.
    pub bytes: u64,
    /// BLAKE3 hash, in hexadecimal.
    pub blake3: String,
}

/// Reads a text file line by line.
pub struct LineReader {
    path: String,
    input: BufReader<Hashing<File>>,
    line: Vec<u8>,
    number: u64,
}

struct Hashing<R> {
    inner: R,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

impl LineReader {
    /// Opens a file.
    ///
    /// # Errors
    /// If it does not exist, is not a file, or may not be read.
    pub fn open(path: &str) -> Result<Self, TraceError> {
        let failed = |message: String| TraceError { path: path.to_owned(), line: None, message };
        if Path::new(path).is_dir() {
            return Err(failed("is a folder; give the trace file itself".to_owned()));
        }
        let inner = File::open(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => failed(format!(
                "there is no such trace file (relative paths start at the current folder, {})",
                std::env::current_dir().map_or_else(|_| "unknown".into(), |folder| folder.display().to_string())
            )),
            _ => failed(format!("cannot open the trace: {e}")),
        })?;
        let hashing = Hashing { inner, hasher: blake3::Hasher::new(), bytes: 0 };
        let input = BufReader::with_capacity(CHUNK_BYTES, hashing);
        Ok(Self { path: path.to_owned(), input, line: Vec::new(), number: 0 })
    }

    /// The next line that is not blank, with its number from 1.
    ///
    /// # Errors
    /// If the file cannot be read on, or a line is not UTF-8 text.
    pub fn next_line(&mut self) -> Result<Option<(u64, &str)>, TraceError> {
        loop {
            self.line.clear();
            let count = self
                .input
                .read_until(b'\n', &mut self.line)
                .map_err(|e| self.failed(format!("cannot read on: {e}")))?;
            if count == 0 {
                return Ok(None);
            }
            self.number += 1;
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        if self.number == 1 {
            self.refuse_other_kinds()?;
        }
        let number = self.number;
        match std::str::from_utf8(&self.line) {
            // Only the line's end goes: what else is blank around a row is JSON's business.
            Ok(text) => Ok(Some((number, text.trim()))),
            Err(_) => Err(self.failed("is not UTF-8 text".to_owned())),
        }
    }

    /// Reads what is left without looking at it, and gives the digest of the whole file.
    ///
    /// # Errors
    /// If the file cannot be read on.
    pub fn finish(mut self) -> Result<FileDigest, TraceError> {
        io::copy(&mut self.input, &mut io::sink()).map_err(|e| self.failed(format!("cannot read on: {e}")))?;
        let hashing = self.input.into_inner();
        Ok(FileDigest { bytes: hashing.bytes, blake3: hashing.hasher.finalize().to_hex().to_string() })
    }

    /// An error at the current line.
    #[must_use]
    pub fn failed(&self, message: String) -> TraceError {
        TraceError { path: self.path.clone(), line: Some(self.number), message }
    }

    fn refuse_other_kinds(&self) -> Result<(), TraceError> {
        if self.line.starts_with(&[0x1f, 0x8b]) {
            return Err(self.failed("is gzip data; this format is read as plain text, so unpack it first".to_owned()));
        }
        if self.line.starts_with(b"\xef\xbb\xbf") {
            return Err(self.failed("starts with a byte order mark; save the file as UTF-8 without one".to_owned()));
        }
        Ok(())
    }
}
