//! The JSON Schema of the configuration, for editors.
//!
//! Generated from the types. The attributes' transforms below close the gap between what a resolved configuration
//! holds and what a file may leave out. Rules that span several fields are not part of it.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::{Value, json};

use super::Prediction;
use super::limits::MAX_NUMBER;

/// The JSON Schema of a prediction file.
#[must_use]
pub fn json_schema() -> Value {
    // The names of Rust's number types are no formats that validators know.
    let no_format = RecursiveTransform(|schema: &mut Schema| {
        schema.remove("format");
    });
    let settings = SchemaSettings::draft2020_12().for_deserialize().with_transform(no_format);
    settings.into_generator().into_root_schema_for::<Prediction>().to_value()
}

/// A field that may be left out but not be null, although its type is an `Option`.
pub(super) fn no_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|one| one != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    let Some(Value::Array(variants)) = schema.get_mut("anyOf") else { return };
    variants.retain(|one| one.get("type").is_none_or(|kind| kind != "null"));
    if let [Value::Object(only)] = variants.as_slice() {
        let only = only.clone();
        schema.remove("anyOf");
        for (key, value) in only {
            schema.insert(key, value);
        }
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
}

/// A field that may be left out, with a default that depends on other fields (its description says how).
pub(super) fn no_default(schema: &mut Schema) {
    schema.remove("default");
}

/// A tagged union whose tag may be left out, which then means `variant`.
pub(super) fn default_tag(tag: &'static str, variant: &'static str) -> impl Transform {
    move |schema: &mut Schema| {
        let Some(Value::Array(variants)) = schema.get_mut("oneOf") else { return };
        for one in variants {
            let is_default = one.pointer(&format!("/properties/{tag}/const")).is_some_and(|name| name == variant);
            if !is_default {
                continue;
            }
            if let Some(Value::Array(required)) = one.get_mut("required") {
                required.retain(|name| name != tag);
            }
            if let Some(Value::Object(tag_schema)) = one.pointer_mut(&format!("/properties/{tag}")) {
                tag_schema.insert("default".to_owned(), json!(variant));
            }
        }
    }
}

/// A number above 0. Its `range`, if any, sets the upper bound.
pub(super) fn positive(schema: &mut Schema) {
    schema.insert("exclusiveMinimum".to_owned(), json!(0));
    if schema.get("maximum").is_none() {
        schema.insert("maximum".to_owned(), json!(MAX_NUMBER));
    }
}

/// The schema of a whole number or one word in its place.
pub(super) fn int_or_word(word: &str, highest: u64) -> Schema {
    let number = json!({ "type": "integer", "minimum": 1, "maximum": highest });
    let schema = json!({ "oneOf": [number, { "type": "string", "const": word }] });
    Schema::try_from(schema).unwrap_or_default()
}
