//! Documents that nobody writes by accident: refused, quickly, without a panic.

use std::fmt::Write as _;

use dynosim_schemas::config::{Problem, parse_override};

use crate::{BASE, problem, read};

fn refused_with(text: &str, message: &str) -> Problem {
    let problem = problem(text);
    let shown: String = text.chars().take(60).collect();
    assert!(problem.message.contains(message), "{shown:?}: {problem}");
    problem
}

#[test]
fn a_file_that_is_no_mapping_is_refused() {
    for (text, message) in [
        ("", "the file is empty"),
        ("# only a comment", "the file is empty"),
        ("---\n", "the file is empty"),
        ("~", "the file is empty"),
        ("3", "the file holds the number 3"),
        ("vllm", "the file holds the text \"vllm\""),
        ("- engine", "the file holds a list"),
        ("engine: 1\n---\nengine: 2\n", "more than one document"),
    ] {
        let problem = refused_with(text, message);
        assert_eq!(problem.path, "", "{text:?}");
    }
}

#[test]
fn text_that_is_no_yaml_is_refused() {
    for text in
        ["engine: [", "engine: 'abc", "engine: *nobody", "...", "engine: \0", "a: b: c", "{", "&a &a x: 1", "%X\n---\n"]
    {
        refused_with(text, "");
    }
    let tab = refused_with("engine:\n\tmodel: x\n", "not valid YAML");
    assert_eq!(tab.position, Some((2, 1)));
}

#[test]
fn field_names_that_are_no_text_are_refused() {
    for (text, found) in [
        ("1: 2", "the number 1"),
        ("null: 1", "null"),
        ("true: 1", "true"),
        ("? [a]\n: 1", "a list"),
        ("? {a: 1}\n: 1\nengine: {}", "a mapping"),
    ] {
        refused_with(text, &format!("a field name must be text, found {found}"));
    }
    assert_eq!(problem("\"\": 1").message, "unknown section");
    assert_eq!(problem("engine.model: 1").path, "engine.model");
}

#[test]
fn a_field_that_is_written_twice_is_refused() {
    let twice = refused_with("engine:\n  model: a\n  mode: aggregated\n  model: b\n", "written twice");
    assert_eq!((twice.path.as_str(), twice.position), ("engine.model", Some((4, 3))));
    let flow = refused_with("engine: {model: a, model: a}", "written twice");
    assert_eq!((flow.path.as_str(), flow.position), ("engine.model", Some((1, 20))));
    refused_with("engine: {? [1] : 3, ? [1] : 4}", "written twice");
}

#[test]
fn yaml_tags_are_refused() {
    assert_eq!(refused_with("engine: !custom {model: x}", "tags").path, "engine");
    assert_eq!(refused_with("!custom {engine: {}}", "tags").path, "");
    let listed = "traffic: {source: {type: trace, paths: [a, !custom b]}}";
    assert_eq!(refused_with(listed, "tags").path, "traffic.source.paths.1");
}

#[test]
fn numbers_beyond_64_bits_are_refused_where_they_stand() {
    let path = "engine.workers.aggregated.parallelism.replicas";
    for (number, message) in [
        ("18446744073709551615", "out of range"),
        ("18446744073709551616", "does not fit into 64 bits"),
        ("-9223372036854775809", "does not fit into 64 bits"),
        ("1e400", "expected a whole number"),
        (&"9".repeat(10_000), "expected a whole number"),
        (".inf", "expected a whole number"),
    ] {
        let text = BASE.replace("replicas: 2", &format!("replicas: {number}"));
        assert_eq!(refused_with(&text, message).path, path);
    }
    assert_eq!(parse_override("a.b=18446744073709551616").unwrap_err().path, "a.b");
}

#[test]
fn numbers_that_are_not_finite_are_refused() {
    for number in [".inf", "-.inf", ".nan", "1e308", "1e400"] {
        let text = BASE.replace("prefill_ms: 4", &format!("prefill_ms: {number}"));
        assert_eq!(problem(&text).path, "engine.workers.aggregated.timing.prefill_ms", "{number}");
    }
}

#[test]
fn deep_nesting_is_refused_at_once() {
    const DEPTH: usize = 100_000;
    for text in [
        format!("engine: {}", "[".repeat(DEPTH)),
        format!("engine: {}{}", "[".repeat(DEPTH), "]".repeat(DEPTH)),
        format!("engine: {}", "{a: ".repeat(DEPTH)),
        format!("engine:\n{}", "- ".repeat(DEPTH)),
        (0..1000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(),
    ] {
        refused_with(&text, "nested too deeply");
    }
    let set = format!("engine={}", "[".repeat(DEPTH));
    assert!(parse_override(&set).unwrap_err().message.contains("nested too deeply"));
}

#[test]
fn aliases_that_multiply_are_refused() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (outer, inner) in ('b'..='i').zip('a'..) {
        writeln!(bomb, "{outer}: &{outer} [{}]", vec![format!("*{inner}"); 9].join(", ")).unwrap();
    }
    refused_with(&bomb, "repetition limit");
    refused_with("engine: &a {model: *a}", "recursion limit");
}

#[test]
fn merge_keys_merge_or_are_refused() {
    let merged = BASE.replace("parallelism:", "<<: {startup_seconds: 7}\n      parallelism:");
    let worker = read(&merged).unwrap().engine.workers.aggregated.unwrap();
    assert_eq!(worker.startup_seconds, 7.0);
    refused_with("<<: 3\nengine: {}", "merging");
    refused_with("<<: [{traffic: {}}, 2]", "merging");
}

/// Cuts and repeats pieces of a valid document: whatever comes out is read or refused.
#[test]
fn a_damaged_document_never_panics() {
    for start in (0..BASE.len()).step_by(3) {
        for length in [1, 2, 5, 17] {
            let end = (start + length).min(BASE.len());
            let (head, piece, tail) = (&BASE[..start], &BASE[start..end], &BASE[end..]);
            for text in [format!("{head}{tail}"), format!("{head}{piece}{piece}{tail}"), head.to_owned()] {
                if let Err(problem) = read(&text) {
                    assert!(!problem.render("damaged.yaml").is_empty());
                }
            }
        }
    }
}
