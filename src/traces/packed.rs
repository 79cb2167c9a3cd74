//! Files as they lie on disk: plain, gzip or Zstandard, unpacked and hashed on the way.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use zstd::stream::read::Decoder as ZstdDecoder;

/// Packed bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 18;
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// A Zstandard file may ask for a window of 2^this bytes: what its own command line tool grants.
const ZSTD_WINDOW_LOG: u32 = 27;

/// What a file holds, as it lies on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDigest {
    /// Size.
    pub bytes: u64,
    /// BLAKE3 hash, in hexadecimal.
    pub blake3: String,
}

/// A stream of bytes, unpacked if its first bytes are those of gzip or Zstandard. Names do not matter.
///
/// Gzip members and Zstandard frames may follow each other, as `cat` makes them.
pub(super) enum PackedReader {
    Plain(Hashing<Input>),
    Gzip(Box<MultiGzDecoder<BufReader<Hashing<Input>>>>),
    Zstd(Box<ZstdDecoder<'static, BufReader<Hashing<Input>>>>),
}

type Input = io::Chain<Cursor<Vec<u8>>, Box<dyn Read + Send>>;

pub(super) struct Hashing<R> {
    inner: R,
    hasher: Box<blake3::Hasher>,
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

impl<R> Hashing<R> {
    fn digest(&self) -> FileDigest {
        FileDigest { bytes: self.bytes, blake3: self.hasher.finalize().to_hex().to_string() }
    }
}

impl PackedReader {
    /// Looks at the first bytes of `input` and reads it accordingly.
    pub fn new(mut input: Box<dyn Read + Send>) -> io::Result<Self> {
        let mut head = Vec::new();
        input.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut head)?;
        let (gzip, zstd) = (head.starts_with(GZIP_MAGIC), head.starts_with(ZSTD_MAGIC));
        let plain = Hashing { inner: Cursor::new(head).chain(input), hasher: Box::default(), bytes: 0 };
        if !gzip && !zstd {
            return Ok(Self::Plain(plain));
        }
        let chunks = BufReader::with_capacity(CHUNK_BYTES, plain);
        if gzip {
            return Ok(Self::Gzip(Box::new(MultiGzDecoder::new(chunks))));
        }
        let mut decoder = ZstdDecoder::with_buffer(chunks)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG)?;
        Ok(Self::Zstd(Box::new(decoder)))
    }

    /// What the file is called that cannot be unpacked, for a message.
    pub const fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Plain(_) => None,
            Self::Gzip(_) => Some("gzip"),
            Self::Zstd(_) => Some("Zstandard"),
        }
    }

    /// The digest of what has been read; of the whole file, once it has been read to its end.
    pub fn digest(&self) -> FileDigest {
        match self {
            Self::Plain(input) => input.digest(),
            Self::Gzip(decoder) => decoder.get_ref().get_ref().digest(),
            Self::Zstd(decoder) => decoder.get_ref().get_ref().digest(),
        }
    }

    /// Whether the packed data ends where the file ends.
    pub fn is_at_end(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Gzip(decoder) => Ok(decoder.get_mut().fill_buf()?.is_empty()),
            Self::Zstd(decoder) => Ok(decoder.get_mut().fill_buf()?.is_empty()),
        }
    }
}

impl Read for PackedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(input) => input.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}
