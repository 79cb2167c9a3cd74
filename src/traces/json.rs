//! Decodes one JSON object, and says in a reader's words what is wrong with it.

use serde::de::DeserializeOwned;

/// Decodes a row.
///
/// # Errors
/// The field, the fault and the column.
pub(super) fn decode<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    decode_at(line, Some(1)).map_err(|(_, message)| message)
}

/// Decodes an object that stands on line `line` of its file, or that is a whole file.
///
/// # Errors
/// The line, if it is known, and the field, the fault and the column.
pub(super) fn decode_at<T: DeserializeOwned>(text: &str, line: Option<u64>) -> Result<T, (Option<u64>, String)> {
    // Serde would take an array for the fields in their order.
    if !text.starts_with('{') {
        let what =
            if line.is_some() { "the row is not a JSON object; every line is one" } else { "is no JSON object, as in" };
        return Err((line, format!("{what} `{{...}}`")));
    }
    serde_json::from_str(text).map_err(|_| explain::<T>(text, line))
}

/// Reads the object once more, slower, with an eye on the path.
fn explain<T: DeserializeOwned>(text: &str, line: Option<u64>) -> (Option<u64>, String) {
    let mut json = serde_json::Deserializer::from_str(text);
    let what = if line.is_some() { "row" } else { "file" };
    let error = match serde_path_to_error::deserialize::<_, T>(&mut json) {
        Err(error) => error,
        Ok(_) => {
            let advice = if line.is_some() { "every line is one `{...}`" } else { "it holds one play" };
            return (line, format!("something follows the {what}'s JSON object; {advice}"));
        }
    };
    let field = match error.path().to_string() {
        path if path == "." || path == "?" => String::new(),
        path => format!("{path}: "),
    };
    let error = error.into_inner();
    let (line, column) = (line.or(Some(error.line() as u64)), error.column());
    if error.is_eof() {
        let message =
            format!("the {what} ends in the middle of its JSON object (column {column}); is the file cut off?");
        return (line, message);
    }
    let text = error.to_string();
    let fault = text.split(" at line ").next().unwrap_or(&text);
    let mut fault = fault.to_owned();
    for (rust, words) in [
        ("u64", "a whole number from 0 on"),
        ("u32", "a whole number from 0 on"),
        ("i32", "a whole number"),
        ("f64", "a number"),
    ] {
        fault = fault.replace(rust, words);
    }
    (line, format!("{field}{fault} (column {column})"))
}
