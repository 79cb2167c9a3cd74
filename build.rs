//! Lists the files under `data/` that the program carries, so that a copied program works alone.

use std::fmt::Write;
use std::path::{Path, PathBuf};

const FOLDERS: [&str; 3] = ["hardware", "models", "perf"];

fn main() -> std::io::Result<()> {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("data");
    let mut files = Vec::new();
    for folder in FOLDERS {
        list(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut code = String::from("/// Sorted by path.\nconst EMBEDDED: &[Embedded] = &[\n");
    for file in &files {
        let name = file.strip_prefix(&root).unwrap_or(file).to_string_lossy().replace('\\', "/");
        writeln!(code, "    ({name:?}, include_bytes!({:?})),", file.display().to_string())
            .map_err(std::io::Error::other)?;
    }
    code.push_str("];\n");
    let output = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("embedded_data.rs");
    std::fs::write(output, code)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    // Cargo's own line protocol.
    writeln_cargo(&format!("cargo::rerun-if-changed={}", folder.display()))?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|ending| ending != "md") {
            files.push(path);
        }
    }
    Ok(())
}

fn writeln_cargo(line: &str) -> std::io::Result<()> {
    use std::io::Write;
    writeln!(std::io::stdout(), "{line}")
}
