//! `docs/requests.md` says what the code does.

use std::fs;
use std::path::Path;

use dynosim::output::requests_doc;

#[test]
fn requests_doc_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/requests.md");
    let generated = requests_doc();
    if std::env::var_os("UPDATE").is_some_and(|v| v == "1") {
        fs::write(&path, &generated).expect("docs/requests.md can be written");
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == generated, "docs/requests.md is out of date; run: UPDATE=1 cargo test --test output_docs");
}
