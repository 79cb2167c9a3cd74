//! The generated pages under `docs/` say what the code does.

use std::fs;
use std::path::Path;

use dynosim::output::{decisions_doc, plays_doc, requests_doc};

fn assert_current(name: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    if std::env::var_os("UPDATE").is_some_and(|v| v == "1") {
        fs::write(&path, generated).expect("the page can be written");
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == generated, "docs/{name} is out of date; run: UPDATE=1 cargo test --test output_docs");
}

#[test]
fn requests_doc_is_current() {
    assert_current("requests.md", &requests_doc());
}

#[test]
fn decisions_doc_is_current() {
    assert_current("decisions.md", &decisions_doc());
}

#[test]
fn plays_doc_is_current() {
    assert_current("plays.md", &plays_doc());
}
