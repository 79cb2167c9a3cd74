//! What the whole-program tests share: playing a configuration in a folder of its own, and reading what came out.
#![allow(dead_code)] // Every test program uses its own part.

pub mod fixtures;
pub mod random;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// The root of the repository, where the commands of these tests run.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a command that has ended left on its streams.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The command, to be run at the root of the repository.
pub fn dynosim() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dynosim"));
    command.current_dir(root());
    command
}

/// `dynosim predict` of a configuration into a folder.
pub fn predict(config: &Path, out: &Path) -> Command {
    let mut command = dynosim();
    command.args(["predict", "--stack", "dynamo", "--format", "json", "--config"]).arg(config);
    command.arg("--output-dir").arg(out);
    command
}

/// Runs a command to its end.
pub fn finish(command: &mut Command) -> Finished {
    let output = command.output().expect("the command can be started");
    let text = |bytes| String::from_utf8(bytes).expect("what it prints is UTF-8");
    Finished { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Starts a command whose streams are kept.
pub fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command can be started")
}

/// Waits for the end of a child that prints little. `None` if it takes too long; it is stopped then.
pub fn wait_at_most(limit: Duration, mut child: Child) -> Option<Finished> {
    let started = Instant::now();
    while child.try_wait().expect("the child can be asked").is_none() {
        if started.elapsed() > limit {
            child.kill().expect("the child can be stopped");
            child.wait().expect("the child ends");
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().expect("the child's streams can be read");
    let text = |bytes| String::from_utf8(bytes).expect("what it prints is UTF-8");
    Some(Finished { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) })
}

/// A temporary folder in which a test keeps its files.
pub struct Desk(TempDir);

impl Desk {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder can be made"))
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Where the results of this desk's runs go.
    pub fn out(&self) -> PathBuf {
        self.path("out")
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("the desk's folder can be written");
        path
    }

    /// Writes a configuration. JSON is YAML too.
    pub fn config(&self, config: &Value) -> PathBuf {
        self.write("config.yaml", config.to_string())
    }

    /// Plays a configuration that must succeed.
    pub fn play(&self, config: &Value) -> Played {
        self.play_with(config, &[])
    }

    /// Plays a configuration that must succeed, with further options.
    pub fn play_with(&self, config: &Value, options: &[&str]) -> Played {
        let out = self.out();
        let finished = finish(predict(&self.config(config), &out).arg("--overwrite").args(options));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        Played::read(&out)
    }

    /// Every file below the desk with its content, and every folder.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut found = BTreeMap::new();
        collect(self.folder(), &mut found);
        found
    }
}

fn collect(folder: &Path, found: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
    for entry in fs::read_dir(folder).expect("a folder of the desk can be read") {
        let path = entry.expect("an entry of the desk can be read").path();
        if path.is_dir() {
            collect(&path, found);
            found.insert(path, None);
        } else {
            // What is not a regular file, such as a pipe, counts by its name.
            let content = if path.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
            found.insert(path, Some(content));
        }
    }
}

/// The results of a run that succeeded.
pub struct Played {
    pub report: Value,
    pub rows: Vec<Row>,
}

impl Played {
    pub fn read(out: &Path) -> Self {
        let text = fs::read_to_string(out.join("prediction.json")).expect("there is a report");
        let report = serde_json::from_str(&text).expect("the report is JSON");
        Self { report, rows: read_rows(&out.join("requests.parquet")) }
    }

    pub fn summary(&self) -> &Map<String, Value> {
        self.report["summary"].as_object().expect("the report has a summary")
    }

    /// A figure of the summary.
    pub fn figure(&self, name: &str) -> f64 {
        self.report["summary"][name].as_f64().unwrap_or_else(|| panic!("the summary has no number `{name}`"))
    }

    /// How many requests ended in which way: `completed`, or with the reason as `rejected: ...`.
    pub fn outcomes(&self) -> BTreeMap<String, u64> {
        let mut outcomes = BTreeMap::new();
        for row in &self.rows {
            *outcomes.entry(row.outcome()).or_insert(0) += 1;
        }
        outcomes
    }

    /// The rows without some columns.
    pub fn rows_without(&self, columns: &[&str]) -> Vec<Row> {
        let mut rows = self.rows.clone();
        rows.iter_mut().for_each(|row| row.0.retain(|name, _| !columns.contains(&name.as_str())));
        rows
    }
}

/// A row of the per-request table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row(BTreeMap<String, Field>);

impl Row {
    fn field(&self, column: &str) -> &Field {
        self.0.get(column).unwrap_or_else(|| panic!("there is no column `{column}`"))
    }

    pub fn int_or_null(&self, column: &str) -> Option<i64> {
        match self.field(column) {
            Field::Null => None,
            Field::Long(value) => Some(*value),
            other => panic!("`{column}` is not an integer: {other:?}"),
        }
    }

    pub fn float_or_null(&self, column: &str) -> Option<f64> {
        match self.field(column) {
            Field::Null => None,
            Field::Double(value) => Some(*value),
            other => panic!("`{column}` is not a float: {other:?}"),
        }
    }

    pub fn text_or_null(&self, column: &str) -> Option<&str> {
        match self.field(column) {
            Field::Null => None,
            Field::Str(value) => Some(value),
            other => panic!("`{column}` is not text: {other:?}"),
        }
    }

    pub fn bool_or_null(&self, column: &str) -> Option<bool> {
        match self.field(column) {
            Field::Null => None,
            Field::Bool(value) => Some(*value),
            other => panic!("`{column}` is not a boolean: {other:?}"),
        }
    }

    pub fn int(&self, column: &str) -> i64 {
        self.int_or_null(column).unwrap_or_else(|| panic!("`{column}` is null"))
    }

    pub fn float(&self, column: &str) -> f64 {
        self.float_or_null(column).unwrap_or_else(|| panic!("`{column}` is null"))
    }

    pub fn status(&self) -> &str {
        self.text_or_null("status").unwrap_or_default()
    }

    pub fn outcome(&self) -> String {
        match self.text_or_null("reason") {
            Some(reason) => format!("{}: {reason}", self.status()),
            None => self.status().to_owned(),
        }
    }

    /// A value as JSON, for comparing with expectations in files. `None` if there is no such column.
    pub fn json(&self, column: &str) -> Option<Value> {
        Some(match self.0.get(column)? {
            Field::Null => Value::Null,
            Field::Bool(value) => json!(value),
            Field::Long(value) => json!(value),
            Field::Double(value) => json!(value),
            Field::Str(value) => json!(value),
            other => panic!("`{column}` has an unexpected type: {other:?}"),
        })
    }
}

/// Reads the per-request table.
pub fn read_rows(path: &Path) -> Vec<Row> {
    let file = File::open(path).expect("there is a table of requests");
    let reader = SerializedFileReader::new(file).expect("the table is Parquet");
    let rows = reader.get_row_iter(None).expect("the table has rows");
    rows.map(|row| Row(row.expect("the row can be read").into_columns().into_iter().collect())).collect()
}

/// A configuration: this traffic on workers like this.
pub fn config(traffic: Value, worker: Value) -> Value {
    json!({
        "traffic": traffic,
        "engine": {
            "model": "meta-llama/Meta-Llama-3.1-8B-Instruct",
            "hardware": "h200_sxm",
            "backend": "vllm",
            "context_length": 131_072,
            "workers": { "aggregated": worker },
        },
    })
}

/// A worker with a pool of so many blocks, and a fixed time per pass: 10 ms with prefill, 1 ms of decode.
pub fn worker(block_size: u64, blocks: u64) -> Value {
    json!({
        "kv_cache": { "block_size": block_size, "capacity": { "type": "fixed", "blocks": blocks } },
        "timing": { "type": "fixed", "prefill_ms": 10, "decode_ms": 1 },
    })
}

/// Independent requests of one shape, so many at a time.
pub fn closed_loop(input_tokens: u64, output_tokens: u64, concurrency: u64, requests: u64) -> Value {
    json!({
        "source": { "type": "synthetic", "input_tokens": input_tokens, "output_tokens": output_tokens },
        "load": { "type": "concurrency", "concurrency": concurrency },
        "stop": { "requests": requests },
    })
}

/// A trace, played at its own pace.
pub fn recorded(path: &Path, tokens_per_id: u64) -> Value {
    json!({
        "source": { "type": "trace", "paths": [path], "block_size": tokens_per_id },
        "load": { "type": "trace_timestamps" },
    })
}

/// The chat workload that comes with the repository, on workers that serve it comfortably.
pub fn own_chat() -> Value {
    own_chat_from(&root().join("data/traces/own_chat.jsonl"))
}

/// The same deployment with another file of the same kind.
pub fn own_chat_from(path: &Path) -> Value {
    let mut worker = worker(64, 16_384);
    worker["parallelism"] = json!({ "replicas": 2 });
    worker["timing"] = json!({ "type": "polynomial" });
    config(recorded(path, 512), worker)
}

/// The lines of the chat workload.
pub fn own_chat_lines() -> Vec<String> {
    let path = root().join("data/traces/own_chat.jsonl");
    fs::read_to_string(path).expect("the trace can be read").lines().map(str::to_owned).collect()
}

/// Whether two figures agree within a relative tolerance.
pub fn close(got: f64, want: f64, tolerance: f64) -> bool {
    (got - want).abs() <= f64::max(1e-6, tolerance * want.abs())
}

/// Does `work` for every item on all processors, and gives the results in the order of the items.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let claim = || {
        let mut done = Vec::new();
        while let Some((index, item)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?)))
        {
            done.push((index, work(item)));
        }
        done
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len().max(1));
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(claim)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no test of the batch panics")).collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Says why a test cannot check anything here.
pub fn skip(test: &str, reason: &str) {
    // Not captured by the test runner, so that it is seen.
    drop(writeln!(std::io::stderr(), "skipped {test}: {reason}"));
}
