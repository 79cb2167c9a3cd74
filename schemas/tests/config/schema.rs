//! The JSON Schema that ships with the crate is the one the types give.

use dynosim_schemas::config::json_schema;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/json/prediction.schema.json");

#[test]
fn the_schema_file_is_up_to_date() {
    let generated = format!("{:#}\n", json_schema());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(FILE, &generated).unwrap();
    }
    let shipped = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(shipped == generated, "{FILE} is stale: run `UPDATE=1 cargo test -p dynosim-schemas`");
}

#[test]
fn every_field_is_described() {
    fn visit(schema: &serde_json::Value, place: &str) {
        let Some(fields) = schema.as_object() else { return };
        for (name, field) in fields.get("properties").and_then(|all| all.as_object()).into_iter().flatten() {
            let is_tag = field.get("const").is_some();
            assert!(is_tag || field.get("description").is_some(), "{place}.{name} has no description");
        }
        for (name, inner) in fields {
            visit(inner, &format!("{place}.{name}"));
            for one in inner.as_array().into_iter().flatten() {
                visit(one, &format!("{place}.{name}"));
            }
        }
    }
    visit(&json_schema(), "schema");
}
