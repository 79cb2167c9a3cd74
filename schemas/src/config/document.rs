//! From text to a tree of YAML values.

use serde_yaml::Value;

use super::Problem;
use super::fields::describe;
use super::positions::{Positions, join, nests_too_deeply};

/// Parses a file, which must hold one mapping.
pub(super) fn parse(text: &str) -> Result<Value, Problem> {
    let document = value(text, "").map_err(|problem| problem.located(text, &[]))?;
    match &document {
        Value::Mapping(_) => Ok(document),
        Value::Null => Err(whole("the file is empty")),
        other => Err(whole(format!("the file holds {}", describe(other)))),
    }
}

/// Parses one YAML value, which stands at `path`, and resolves its merge keys (`<<`).
pub(super) fn value(text: &str, path: &str) -> Result<Value, Problem> {
    if nests_too_deeply(text) {
        return Err(Problem::at(path, "not valid YAML: nested too deeply"));
    }
    let mut parsed: Value = serde_yaml::from_str(text).map_err(|error| refusal(&error, text, path))?;
    parsed.apply_merge().map_err(|error| refusal(&error, text, path))?;
    match tagged(&parsed, path) {
        Some(path) => Err(Problem::at(path, "YAML tags have no meaning here").help("remove the tag")),
        None => Ok(parsed),
    }
}

fn whole(message: impl Into<String>) -> Problem {
    Problem::at("", message).help("a configuration is one mapping of sections, of which `engine` is required")
}

fn refusal(error: &serde_yaml::Error, text: &str, path: &str) -> Problem {
    let reason = reason(error);
    if reason.contains("duplicate entry")
        && let Some((inner, position)) = Positions::of(text).duplicate()
    {
        let problem = Problem::at(below(path, inner), "this field is written twice").help("keep one of the two");
        return Problem { position: Some(*position), ..problem };
    }
    let problem = match huge_integer(&reason) {
        Some((inner, digits)) => Problem::at(below(path, inner), format!("{digits} does not fit into 64 bits")),
        None => Problem::at(path, format!("not valid YAML: {reason}")),
    };
    Problem { position: error.location().map(|at| (at.line(), at.column())), ..problem }
}

/// A parser's message without the place that it ends with.
fn reason(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    let place = error.location().map(|at| format!(" at line {} column {}", at.line(), at.column()));
    place.map_or_else(|| text.clone(), |place| text.replacen(&place, "", 1))
}

/// The place and the digits of an integer beyond 64 bits, out of the parser's message about it.
fn huge_integer(reason: &str) -> Option<(&str, &str)> {
    let (place, rest) = reason.split_once("invalid type: integer `")?;
    let (digits, _) = rest.split_once('`')?;
    Some((place.trim_end_matches(": "), digits))
}

/// The path of the first value with a tag that is not one of YAML's own.
fn tagged(value: &Value, path: &str) -> Option<String> {
    match value {
        Value::Tagged(_) => Some(path.to_owned()),
        Value::Mapping(entries) => entries.iter().find_map(|(key, value)| {
            tagged(key, path).or_else(|| tagged(value, &join(path, key.as_str().unwrap_or("?"))))
        }),
        Value::Sequence(elements) => {
            elements.iter().enumerate().find_map(|(index, element)| tagged(element, &join(path, &index.to_string())))
        }
        _ => None,
    }
}

fn below(path: &str, inner: &str) -> String {
    if inner.is_empty() { path.to_owned() } else { join(path, inner) }
}
