//! The files of a corpus: found in a fixed order, read once, hashed.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use dynosim_schemas::config::WekaRules;
use dynosim_schemas::trace::weka::WekaTrace;

use super::play::Basis;
use crate::interrupt::Interrupt;
use crate::traces::files::{FileReport, open_regular, some_requests};
use crate::traces::{FileDigest, SourcePlace, TraceError, json};

/// Keeps the digests apart from others; they are the reference's, so that corpora can be compared.
const CORPUS_DOMAIN: &[u8] = b"aisimulate-weka-corpus-v1\0";
const SEMANTICS_DOMAIN: &[u8] = b"aisimulate-weka-corpus-semantics-v2\0";

/// The longest `.json` file, one play: about 25 million hash ids.
const MAX_PLAY_BYTES: u64 = 1 << 28;
/// The longest `.jsonl` file, many plays.
const MAX_PLAYS_BYTES: u64 = 1 << 31;

/// A play as it stands in a file.
pub(super) struct TraceObject {
    /// The file, as it can be opened.
    pub path: Arc<str>,
    /// The line, from 1, in a file of lines.
    pub line: Option<u64>,
    /// What the play's names and the ids of its blocks come from: the file relative to the corpus, joined with `/`, and
    /// in a file of lines its number there.
    pub identity: String,
    /// The play.
    pub trace: WekaTrace,
}

impl TraceObject {
    /// An error of the play as a whole.
    pub fn error(&self, message: String) -> TraceError {
        TraceError { path: self.path.to_string(), line: self.line, message }
    }

    /// An error at an entry of the play.
    pub fn error_at(&self, entry: &str, message: String) -> TraceError {
        SourcePlace::entry(&self.path, self.line, entry).error(message)
    }
}

/// Files, and the plays in them.
pub(super) struct Corpus {
    pub objects: Vec<TraceObject>,
    pub reports: Vec<FileReport>,
    digest: blake3::Hash,
}

struct Found {
    path: String,
    relative: String,
    has_lines: bool,
}

impl Found {
    /// The longest file that is read. It is read whole, because its digest begins with its length.
    const fn max_bytes(&self) -> u64 {
        if self.has_lines { MAX_PLAYS_BYTES } else { MAX_PLAY_BYTES }
    }
}

impl Corpus {
    /// Reads a file, or all files of a folder and of those below.
    pub fn read(path: &str, rules: WekaRules, interrupt: &Interrupt) -> Result<Self, TraceError> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(CORPUS_DOMAIN);
        let (mut objects, mut reports) = (Vec::new(), Vec::new());
        for file in find(path, rules)? {
            if interrupt.is_set() {
                return Err(failed(&file.path, "reading was interrupted".to_owned()));
            }
            let bytes = read_bounded(&file.path, file.max_bytes())?;
            for part in [file.relative.as_bytes(), &bytes] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
            let before = objects.len();
            decode(&file, &bytes, &mut objects)?;
            let digest = FileDigest { bytes: bytes.len() as u64, blake3: blake3::hash(&bytes).to_hex().to_string() };
            reports.push(FileReport { path: file.path, rows: (objects.len() - before) as u64, digest });
        }
        some_requests(&reports)?;
        Ok(Self { objects, reports, digest: hasher.finalize() })
    }

    /// The digest of the content, and of how it is understood.
    pub fn digest(&self, basis: Basis) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(SEMANTICS_DOMAIN);
        for part in [self.digest.to_hex().as_str(), basis.name()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }
}

/// Reads a file whole, unless it is too long for that.
fn read_bounded(path: &str, max_bytes: u64) -> Result<Vec<u8>, TraceError> {
    let (file, length) = open_regular(path)?;
    let mut bytes = Vec::new();
    if length <= max_bytes {
        // It may have grown since.
        let read = file.take(max_bytes + 1).read_to_end(&mut bytes);
        read.map_err(|e| failed(path, format!("cannot read the trace: {e}")))?;
    }
    if length > max_bytes || bytes.len() as u64 > max_bytes {
        return Err(failed(
            path,
            format!(
                "is longer than {} MiB, more than a file of plays may have; is this a trace? If so, put its plays into \
                 several files of one folder",
                max_bytes >> 20
            ),
        ));
    }
    Ok(bytes)
}

fn failed(path: &str, message: String) -> TraceError {
    TraceError { path: path.to_owned(), line: None, message }
}

/// The files of a corpus, in order of their relative paths.
fn find(path: &str, rules: WekaRules) -> Result<Vec<Found>, TraceError> {
    let kind = kind_of(Path::new(path), path)?;
    if kind.is_dir() {
        let mut files = Vec::new();
        walk(Path::new(path), "", rules, &mut files)?;
        files.sort_by(|a, b| a.relative.cmp(&b.relative));
        if files.is_empty() {
            return Err(failed(path, format!("the folder has no trace in it; {}", wanted(rules))));
        }
        return Ok(files);
    }
    let name = Path::new(path).file_name().map_or_else(|| path.into(), |name| name.to_string_lossy());
    match has_lines(&name, rules) {
        Some(has_lines) => Ok(vec![Found { path: path.to_owned(), relative: name.into_owned(), has_lines }]),
        None => Err(failed(path, format!("is no Weka trace by its name; {}", wanted(rules)))),
    }
}

fn wanted(rules: WekaRules) -> &'static str {
    match rules {
        WekaRules::Strict => "a play is a `.json` file (`.jsonl` needs `traffic.source.weka_rules: lenient`)",
        WekaRules::Lenient => "plays are in `.json` and `.jsonl` files",
    }
}

/// Whether a file's name makes it a trace, and if so, whether it is one of lines.
fn has_lines(name: &str, rules: WekaRules) -> Option<bool> {
    match Path::new(name).extension()?.to_str()? {
        "json" => Some(false),
        "jsonl" if rules == WekaRules::Lenient => Some(true),
        _ => None,
    }
}

/// What stands at a path. Links are refused: what is behind them is not part of the corpus.
fn kind_of(path: &Path, shown: &str) -> Result<fs::FileType, TraceError> {
    let found = fs::symlink_metadata(path).map_err(|e| failed(shown, format!("cannot open the trace: {e}")))?;
    if found.file_type().is_symlink() {
        return Err(failed(shown, "is a symbolic link; put the file itself into the corpus".to_owned()));
    }
    Ok(found.file_type())
}

fn walk(folder: &Path, prefix: &str, rules: WekaRules, files: &mut Vec<Found>) -> Result<(), TraceError> {
    let shown = folder.display().to_string();
    let cannot = |e: std::io::Error| failed(&shown, format!("cannot read the folder: {e}"));
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let path = entry.path();
        let shown = path.display().to_string();
        let name =
            entry.file_name().into_string().map_err(|_| failed(&shown, "has a name that is not UTF-8".to_owned()))?;
        let kind = kind_of(&path, &shown)?;
        let relative = format!("{prefix}{name}");
        if kind.is_dir() {
            walk(&path, &format!("{relative}/"), rules, files)?;
        } else if let Some(has_lines) = has_lines(&name, rules) {
            files.push(Found { path: shown, relative, has_lines });
        }
    }
    Ok(())
}

fn decode(file: &Found, bytes: &[u8], objects: &mut Vec<TraceObject>) -> Result<(), TraceError> {
    let text = std::str::from_utf8(bytes).map_err(|_| failed(&file.path, "is not UTF-8 text".to_owned()))?;
    let path: Arc<str> = file.path.as_str().into();
    let mut push = |text: &str, line: Option<u64>, identity: String| {
        let trace = json::decode_at(text, line).map_err(|(line, message)| TraceError {
            path: file.path.clone(),
            line,
            message,
        })?;
        objects.push(TraceObject { path: Arc::clone(&path), line, identity, trace });
        Ok(())
    };
    if !file.has_lines {
        return push(text.trim(), None, file.relative.clone());
    }
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines.enumerate().try_for_each(|(index, (number, line))| {
        push(line.trim(), Some(number), format!("{}#{index:06}", file.relative))
    })
}
