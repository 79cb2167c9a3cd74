//! The corpus of agents that comes with the repository is what its generator writes.

mod common;
#[path = "../examples/agent-corpus/plays.rs"]
mod plays;

use std::fs;

use common::root;

#[test]
fn the_committed_corpus_is_what_the_generator_writes() {
    let folder = root().join("data/traces/agents");
    let entries = fs::read_dir(&folder).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    let wanted: Vec<_> = (0..24).map(plays::file_name).collect();
    assert_eq!(files, wanted);
    for (number, file) in (0..).zip(&files) {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        assert!(
            text == plays::play(number),
            "{file} differs; run: cargo run --example agent-corpus -- data/traces/agents"
        );
    }
}
