//! `prediction.json`, and the one line that `--format json` prints.

use dynosim_schemas::summary::Summary;
use serde_json::{Map, Value, json};

/// Figures that may be null: there is no power data, and not every trace says what its prompts share.
const NULL_FIGURES: &[&str] =
    &["power_w", "power_coverage", "prefix_cache_reused_ratio", "first_admission_prefix_cache_reused_ratio"];

/// A file that the run read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputFile {
    /// Where it was, as the user named it.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// The rows that were read from it.
    pub rows: u64,
    /// BLAKE3 hash of its content, in hexadecimal.
    pub blake3: String,
}

/// What a result came from: enough to run it again, and to notice that it is not the same run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// Version of dynosim.
    pub version: String,
    /// Version of the layout of the report and of the table.
    pub schema_version: String,
    /// Hash of the resolved config.
    pub config_digest: String,
    /// Seed of the synthetic traffic, if there was any.
    pub seed: Option<u64>,
    /// The files that were read.
    pub inputs: Vec<InputFile>,
    /// Identity of the graph that was played, if it was one.
    pub graph: Option<Value>,
    /// What else a reader of the figures should know.
    pub notes: Vec<String>,
}

impl Provenance {
    fn to_json(&self) -> Value {
        let inputs: Vec<Value> = self
            .inputs
            .iter()
            .map(|f| json!({ "path": f.path, "bytes": f.bytes, "rows": f.rows, "blake3": f.blake3 }))
            .collect();
        let mut provenance = json!({
            "version": self.version,
            "schema_version": self.schema_version,
            "config_digest": self.config_digest,
            "seed": self.seed,
            "inputs": inputs,
            "notes": self.notes,
        });
        if let Some(graph) = &self.graph {
            provenance["agentic_graph"] = graph.clone();
        }
        provenance
    }
}

/// How fast the simulation itself was. It differs from run to run, so it is kept apart from what is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WallClock {
    /// Real time of the run, in ms.
    pub wall_time_ms: f64,
    /// Prompt and output tokens of completed requests.
    pub processed_tokens: u64,
    /// The same per second of real time.
    pub processed_tokens_per_s: f64,
    /// Output tokens per second of real time.
    pub processed_output_tokens_per_s: f64,
}

impl WallClock {
    /// The figures of a run that took `wall_time_ms`. Rates are 0 if no time passed.
    #[must_use]
    pub fn new(wall_time_ms: f64, summary: &Summary) -> Self {
        let rate = |tokens: u64| if wall_time_ms > 0.0 { tokens as f64 * 1000.0 / wall_time_ms } else { 0.0 };
        let processed_tokens = summary.total_input_tokens.saturating_add(summary.total_output_tokens);
        Self {
            wall_time_ms,
            processed_tokens,
            processed_tokens_per_s: rate(processed_tokens),
            processed_output_tokens_per_s: rate(summary.total_output_tokens),
        }
    }

    fn to_json(self) -> Value {
        json!({
            "wall_time_ms": self.wall_time_ms,
            "processed_tokens": self.processed_tokens,
            "processed_tokens_per_s": self.processed_tokens_per_s,
            "processed_output_tokens_per_s": self.processed_output_tokens_per_s,
        })
    }
}

/// Everything that goes into `prediction.json`.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The figures.
    pub summary: &'a Summary,
    /// The config with every default filled in.
    pub config: &'a Value,
    /// What they came from.
    pub provenance: &'a Provenance,
    /// Whether `requests.jsonl` was asked for.
    pub capture_per_request: bool,
    /// Rows of the per-request table.
    pub per_request_records: u64,
    /// How fast the simulation was.
    pub wall_clock: WallClock,
}

impl Report<'_> {
    /// The report, with sorted keys.
    #[must_use]
    pub fn to_json(&self) -> Value {
        sorted(json!({
            "summary": figures(self.summary),
            "config": self.config,
            "provenance": self.provenance.to_json(),
            "coverage": {
                "capture_per_request": self.capture_per_request,
                "per_request_records": self.per_request_records,
            },
            "wall_clock": self.wall_clock.to_json(),
        }))
    }

    /// The text of `prediction.json`.
    #[must_use]
    pub fn to_text(&self) -> String {
        to_pretty_json(self.to_json())
    }
}

/// JSON as dynosim writes it to files: 2 spaces of indent, sorted keys, a newline at the end.
#[must_use]
pub fn to_pretty_json(value: Value) -> String {
    format!("{:#}\n", sorted(value))
}

/// The figures as one compact line with sorted keys, without a newline: what `--format json` prints.
#[must_use]
pub fn summary_line(summary: &Summary) -> String {
    sorted(Value::Object(figures(summary))).to_string()
}

fn figures(summary: &Summary) -> Map<String, Value> {
    let figures = summary.to_json();
    // JSON has no infinity: a figure that became null was not a number.
    debug_assert!(
        figures.iter().all(|(name, value)| !value.is_null() || NULL_FIGURES.contains(&name.as_str())),
        "a figure of the summary is not finite"
    );
    figures
}

/// Sorts keys at every depth. The JSON map may keep insertion order, depending on a feature that another crate sets.
fn sorted(mut value: Value) -> Value {
    value.sort_all_objects();
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report_text() -> String {
        let summary = Summary {
            num_requests: 2,
            completed_requests: 2,
            total_input_tokens: 900,
            total_output_tokens: 100,
            ..Summary::default()
        };
        let provenance = Provenance {
            version: "0.1.0".into(),
            seed: Some(u64::MAX),
            inputs: vec![InputFile { path: "trace.jsonl".into(), bytes: 12, rows: 2, blake3: "ab".into() }],
            ..Provenance::default()
        };
        let config = json!({ "b": 1, "a": { "d": [{ "z": 1, "y": 2 }], "c": 3 } });
        let report = Report {
            summary: &summary,
            config: &config,
            provenance: &provenance,
            capture_per_request: false,
            per_request_records: 2,
            wall_clock: WallClock::new(500.0, &summary),
        };
        report.to_text()
    }

    #[test]
    fn report_has_sorted_keys_at_every_depth() {
        let text = report_text();
        let config = "  \"config\": {\n    \"a\": {\n      \"c\": 3,\n      \"d\": [\n        {\n          \"y\": 2,\n";
        assert!(text.starts_with(&format!("{{\n{config}")), "{text}");
        assert!(text.ends_with("\n  }\n}\n"));
        let value: Value = serde_json::from_str(&text).unwrap();
        let keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["config", "coverage", "provenance", "summary", "wall_clock"]);
    }

    #[test]
    fn report_holds_its_parts() {
        let value: Value = serde_json::from_str(&report_text()).unwrap();
        assert_eq!(value["coverage"], json!({ "capture_per_request": false, "per_request_records": 2 }));
        assert_eq!(value["provenance"]["seed"], json!(u64::MAX));
        assert_eq!(value["provenance"]["inputs"][0]["path"], json!("trace.jsonl"));
        assert_eq!(value["wall_clock"]["processed_tokens_per_s"], json!(2000.0));
        assert_eq!(value["wall_clock"]["processed_output_tokens_per_s"], json!(200.0));
        assert_eq!(value["summary"]["num_requests"], json!(2));
        assert!(value["summary"].get("wall_time_ms").is_none(), "it would spoil comparisons");
    }

    #[test]
    fn summary_is_one_sorted_line() {
        let line = summary_line(&Summary { num_requests: 7, ..Summary::default() });
        assert!(!line.contains('\n') && !line.contains(": "));
        let value: Map<String, Value> = serde_json::from_str(&line).unwrap();
        let keys: Vec<_> = value.keys().collect();
        assert!(keys.is_sorted());
        assert_eq!(value["num_requests"], json!(7));
    }

    #[test]
    fn no_time_gives_no_rate() {
        let summary = Summary { total_output_tokens: 5, ..Summary::default() };
        assert_eq!(WallClock::new(0.0, &summary).processed_tokens_per_s, 0.0);
    }
}
