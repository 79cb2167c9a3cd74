//! Writes a corpus of made-up agents in the `weka` format: a `.json` file for each play.
//!
//! `cargo run --release --example agent-corpus -- FOLDER [PLAYS]` writes 24 plays unless told otherwise, always the same
//! ones. `data/traces/agents/` was written by it.

mod plays;

use std::fs;
use std::path::PathBuf;

/// Plays, unless told otherwise.
const PLAYS: u32 = 24;

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: agent-corpus FOLDER [PLAYS]")?);
    let count = match arguments.next() {
        Some(text) => text.parse().map_err(|_| format!("PLAYS: {text:?} is not a whole number"))?,
        None => PLAYS,
    };
    let failed = |path: &PathBuf, error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
    for number in 0..count {
        let path = folder.join(plays::file_name(number));
        fs::write(&path, plays::play(number)).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}
