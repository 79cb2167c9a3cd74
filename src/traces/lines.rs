//! Numbered lines of a text file that may be compressed, hashed on the way.

use std::io::{self, BufRead, BufReader, Read};

use super::TraceError;
use super::files::open_regular;
use super::packed::{FileDigest, PackedReader};

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 18;

/// The longest line that is read, in bytes. A prompt of a million tokens with an id for each 16 of them,
/// and as many recorded output tokens, takes an eighth of it.
pub const MAX_LINE_BYTES: usize = 1 << 26;

/// Reads a text file line by line: a plain one, or one that is packed with gzip or Zstandard.
///
/// Memory is bounded by [`MAX_LINE_BYTES`], whatever the file holds.
pub struct LineReader {
    path: String,
    input: BufReader<PackedReader>,
    line: Vec<u8>,
    number: u64,
}

impl LineReader {
    /// Opens a file.
    ///
    /// # Errors
    /// If it does not exist, is not a file, or may not be read.
    pub fn open(path: &str) -> Result<Self, TraceError> {
        Self::new(path, open_regular(path)?.0)
    }

    /// Reads from anything; messages call it `path`.
    ///
    /// # Errors
    /// If its first bytes cannot be read.
    pub fn new(path: &str, input: impl Read + Send + 'static) -> Result<Self, TraceError> {
        let packed = PackedReader::new(Box::new(input)).map_err(|e| TraceError {
            path: path.to_owned(),
            line: None,
            message: format!("cannot read the trace: {e}"),
        })?;
        let input = BufReader::with_capacity(CHUNK_BYTES, packed);
        Ok(Self { path: path.to_owned(), input, line: Vec::new(), number: 0 })
    }

    /// The next line that is not blank, with its number from 1.
    ///
    /// # Errors
    /// If the file cannot be read on, a line is not UTF-8 text, or it is longer than [`MAX_LINE_BYTES`].
    pub fn next_line(&mut self) -> Result<Option<(u64, &str)>, TraceError> {
        loop {
            if !self.fill_line()? {
                return Ok(None);
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        if self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf") {
            return Err(self.failed("starts with a byte order mark; save the file as UTF-8 without one".to_owned()));
        }
        let number = self.number;
        match std::str::from_utf8(&self.line) {
            // Only the line's end goes: what else is blank around a row is JSON's business.
            Ok(text) => Ok(Some((number, text.trim()))),
            Err(_) => Err(self.failed("is not UTF-8 text".to_owned())),
        }
    }

    /// Reads a line as it is; `false` at the end.
    fn fill_line(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        let mut bounded = self.input.by_ref().take(MAX_LINE_BYTES as u64 + 1);
        let outcome = bounded.read_until(b'\n', &mut self.line);
        self.number += 1;
        if let Err(error) = outcome {
            return Err(self.unreadable(&error));
        }
        if self.line.len() > MAX_LINE_BYTES {
            return Err(self.failed(format!(
                "the line is longer than {} MiB, more than any request needs; is this a trace, one row a line?",
                MAX_LINE_BYTES >> 20
            )));
        }
        Ok(!self.line.is_empty())
    }

    /// Reads what is left without looking at it, and gives the digest of the whole file.
    ///
    /// # Errors
    /// If the file cannot be read on.
    pub fn finish(mut self) -> Result<FileDigest, TraceError> {
        let read = io::copy(&mut self.input, &mut io::sink());
        let at_end = read.and_then(|_| self.input.get_mut().is_at_end());
        match at_end {
            Ok(true) => Ok(self.input.get_ref().digest()),
            Ok(false) => Err(self.unreadable(&io::Error::other("something else follows it"))),
            Err(error) => Err(self.unreadable(&error)),
        }
    }

    /// An error at the current line.
    #[must_use]
    pub fn failed(&self, message: String) -> TraceError {
        TraceError { path: self.path.clone(), line: Some(self.number), message }
    }

    fn unreadable(&self, error: &io::Error) -> TraceError {
        self.failed(match self.input.get_ref().kind() {
            None => format!("cannot read on: {error}"),
            Some(kind) => format!("cannot unpack on; the {kind} data is damaged or cut off: {error}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const TEXT: &[u8] = b"one\r\n\n  two\nthree";

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        zstd::stream::encode_all(text, 3).unwrap()
    }

    /// The lines with their numbers, and the digest.
    fn read(bytes: &[u8]) -> Result<(Vec<(u64, String)>, FileDigest), TraceError> {
        let mut lines = LineReader::new("trace", Cursor::new(bytes.to_vec()))?;
        let mut read = Vec::new();
        while let Some((number, line)) = lines.next_line()? {
            read.push((number, line.to_owned()));
        }
        Ok((read, lines.finish()?))
    }

    #[test]
    fn packed_files_have_the_lines_of_the_plain_one_and_the_digest_of_their_bytes() {
        let two_members = [gzip(&TEXT[..9]), gzip(&TEXT[9..])].concat();
        let two_frames = [zstd(&TEXT[..2]), zstd(&TEXT[2..])].concat();
        for bytes in [TEXT.to_vec(), gzip(TEXT), zstd(TEXT), two_members, two_frames] {
            let (lines, digest) = read(&bytes).unwrap();
            assert_eq!(lines, [(1, "one".to_owned()), (3, "two".to_owned()), (4, "three".to_owned())]);
            let blake3 = blake3::hash(&bytes).to_hex().to_string();
            assert_eq!(digest, FileDigest { bytes: bytes.len() as u64, blake3 });
        }
    }

    #[test]
    fn damaged_packed_data_is_refused_where_it_is_met() {
        for (packed, kind) in [(gzip(TEXT), "gzip"), (zstd(TEXT), "Zstandard")] {
            let cut = &packed[..packed.len() - 3];
            let followed = [&packed[..], b"\nplain text"].concat();
            for bytes in [cut, &followed] {
                let error = read(bytes).unwrap_err();
                assert!(error.message.contains(&format!("the {kind} data is damaged or cut off")), "{error}");
                assert!(error.line.is_some());
            }
        }
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let endless = Cursor::new(TEXT.to_vec()).chain(io::repeat(b'7'));
        let mut lines = LineReader::new("trace", endless).unwrap();
        let ends = [lines.next_line().is_ok(), lines.next_line().is_ok()];
        assert_eq!(ends, [true, true]);
        let error = lines.next_line().unwrap_err();
        assert_eq!(error.line, Some(4));
        assert!(error.message.contains("longer than 64 MiB"), "{error}");
        assert!(lines.line.capacity() <= 2 * MAX_LINE_BYTES + CHUNK_BYTES);
    }

    #[test]
    fn a_line_of_the_greatest_length_is_read() {
        let mut bytes = vec![b'7'; MAX_LINE_BYTES - 1];
        bytes.push(b'\n');
        assert_eq!(read(&zstd(&bytes)).unwrap().0.len(), 1);
        bytes.insert(0, b'7');
        assert_eq!(read(&zstd(&bytes)).unwrap_err().line, Some(1));
    }

    #[test]
    fn a_byte_order_mark_is_named() {
        let error = read(b"\xef\xbb\xbf{}").unwrap_err();
        assert!(error.message.contains("byte order mark"), "{error}");
    }
}
