#![no_main]

use dynosim_schemas::config::{self, Stack};
use libfuzzer_sys::fuzz_target;

// A document, or an override and a document with a NUL between them.
fuzz_target!(|text: &str| {
    let (overrides, text) = match text.split_once('\0') {
        Some((assignment, text)) => (config::parse_override(assignment).into_iter().collect(), text),
        None => (Vec::new(), text),
    };
    for stack in [Stack::Engine, Stack::Dynamo] {
        match config::load(text, &overrides, stack) {
            Err(problem) => drop(problem.render("fuzz.yaml")),
            Ok(prediction) => match config::not_available_yet(&prediction) {
                Some(problem) => drop(problem.located(text, &overrides).render("fuzz.yaml")),
                None => drop(serde_json::to_value(&prediction).expect("a configuration can be written")),
            },
        }
    }
});
