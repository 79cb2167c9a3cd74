//! `dynosim perf-db check`: the operator model against latencies that another estimator gave for the same tables.

use std::collections::BTreeMap;
use std::path::Path;

use csv::StringRecord;
use dynosim_schemas::config::{Backend, Parallelism};
use dynosim_systems::timing::{OperatorModel, Served};

use crate::error::CommandError;
use crate::perf_data::{DataFiles, folder_of, hardware, model, tables_for};

/// The columns of the file, in order.
const COLUMNS: [&str; 14] = [
    "model",
    "hardware",
    "backend",
    "version",
    "tp",
    "pp",
    "dp",
    "moe_tp",
    "moe_ep",
    "phase",
    "bs",
    "isl",
    "osl_or_prefix",
    "latency_ms",
];
/// Largest relative difference that counts as equal: tables hold times in single precision.
pub const TOLERANCE: f64 = 1e-6;

/// A configuration of the file: model, hardware, backend, then the degrees of parallelism.
type Key = (String, String, String, [u64; 5]);

/// How well some rows agree.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Agreement {
    /// Rows that were compared.
    pub rows: u64,
    /// Those that agree within the tolerance.
    pub equal: u64,
    /// Largest relative difference.
    pub largest: f64,
}

/// Rows that agree, by model, hardware, backend and phase; and rows of phases that are not compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// By what they have in common.
    pub groups: BTreeMap<[String; 4], Agreement>,
    /// Rows of other phases.
    pub skipped: u64,
    /// Rows that do not agree: what they are, the file's latency, and ours.
    pub different: Vec<(String, f64, f64)>,
}

/// One row: what is asked, and the answer.
struct Row {
    key: Key,
    phase: Phase,
    name: String,
    latency_ms: f64,
}

enum Phase {
    Prefill { requests: u64, new: u64, prefix: u64 },
    Decode { requests: u64, tokens: u64 },
    Other,
}

/// Compares every row of a file.
///
/// # Errors
/// If the file cannot be read, or names something that is not known.
pub fn compare(files: &DataFiles, path: &Path) -> Result<Comparison, CommandError> {
    let wrong = |line: u64, problem: String| CommandError::usage(format!("{}:{line}: {problem}", path.display()));
    let mut reader =
        csv::Reader::from_path(path).map_err(|e| CommandError::usage(format!("{}: {e}", path.display())))?;
    let header = reader.headers().map_err(|e| wrong(1, e.to_string()))?;
    if header.iter().ne(COLUMNS) {
        return Err(wrong(1, format!("the columns must be {}", COLUMNS.join(","))));
    }
    let mut models: BTreeMap<Key, OperatorModel> = BTreeMap::new();
    let mut comparison = Comparison::default();
    for record in reader.records() {
        let record = record.map_err(|e| wrong(e.position().map_or(0, csv::Position::line), e.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        let row = Row::read(&record).map_err(|problem| wrong(line, problem))?;
        if !models.contains_key(&row.key) {
            let built = build(files, &row.key).map_err(|problem| wrong(line, problem))?;
            models.insert(row.key.clone(), built);
        }
        if let Some(model) = models.get(&row.key) {
            comparison.add(&row, model);
        }
    }
    Ok(comparison)
}

/// The operators of a configuration. A remark in brackets after the model's name is not part of it.
fn build(files: &DataFiles, (name, system, backend, degrees): &Key) -> Result<OperatorModel, String> {
    let name = name.split('(').next().unwrap_or_default();
    let model = model(files, name).map_err(|e| e.to_string())?;
    let of_system = hardware(files, system).map_err(|e| e.to_string())?;
    let backends = [Backend::Vllm, Backend::Sglang, Backend::Trtllm];
    let known = backends.into_iter().find(|known| folder_of(*known) == backend);
    let backend = known.ok_or_else(|| format!("backend: `{backend}` is not known"))?;
    let [tensor, pipeline, attention_data, moe_tensor, moe_expert] = *degrees;
    let parallelism = Parallelism { replicas: 1, tensor, pipeline, attention_data, moe_tensor, moe_expert };
    let served = Served { model: &model, hardware: &of_system, backend, parallelism: &parallelism };
    served.check().map_err(|(degree, problem)| format!("{degree}: {problem}"))?;
    let tables = tables_for(files, system, &served).map_err(|e| e.to_string())?;
    Ok(served.operators(&tables))
}

impl Row {
    fn read(record: &StringRecord) -> Result<Self, String> {
        let text = |column: usize| record.get(column).unwrap_or_default();
        let number = |column: usize| match text(column) {
            "" => Ok(1),
            digits => {
                let name = COLUMNS.get(column).copied().unwrap_or_default();
                digits.parse::<u64>().map_err(|_| format!("{name}: `{digits}` is no whole number"))
            }
        };
        let degrees = [number(4)?, number(5)?, number(6)?, number(7)?, number(8)?];
        if degrees.contains(&0) {
            return Err("a degree of parallelism is 0".to_owned());
        }
        let (requests, length, rest) = (number(10)?, number(11)?, number(12)?);
        let phase = match text(9) {
            "prefill" if requests > 0 && rest < length => Phase::Prefill { requests, new: length - rest, prefix: rest },
            "decode" if requests > 0 => Phase::Decode { requests, tokens: length + 1 },
            "prefill" | "decode" => return Err("a pass without tokens".to_owned()),
            _ => Phase::Other,
        };
        let latency_ms = text(13).parse::<f64>().ok().filter(|ms| ms.is_finite() && *ms > 0.0);
        let latency_ms = latency_ms.ok_or_else(|| format!("latency_ms: `{}` is no duration", text(13)))?;
        let key = (text(0).to_owned(), text(1).to_owned(), text(2).to_owned(), degrees);
        let name = record.iter().take(COLUMNS.len() - 1).collect::<Vec<_>>().join(",");
        Ok(Self { key, phase, name, latency_ms })
    }
}

impl Comparison {
    fn add(&mut self, row: &Row, model: &OperatorModel) {
        let (phase, ms) = match row.phase {
            Phase::Prefill { requests, new, prefix } => ("prefill", model.prefill_ms(requests, new, prefix)),
            Phase::Decode { requests, tokens } => ("decode", model.decode_ms(requests, tokens)),
            Phase::Other => {
                self.skipped += 1;
                return;
            }
        };
        let difference = (ms - row.latency_ms).abs() / row.latency_ms;
        let (name, system, backend, _) = &row.key;
        let group = [name.clone(), system.clone(), backend.clone(), phase.to_owned()];
        let agreement = self.groups.entry(group).or_default();
        agreement.rows += 1;
        agreement.largest = agreement.largest.max(difference);
        if difference <= TOLERANCE {
            agreement.equal += 1;
        } else {
            self.different.push((row.name.clone(), row.latency_ms, ms));
        }
    }

    /// Rows that were compared.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.groups.values().map(|group| group.rows).sum()
    }

    /// The comparison as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::from("model, hardware, backend, phase: rows, equal, largest relative difference\n");
        for ([name, system, backend, phase], group) in &self.groups {
            let Agreement { rows, equal, largest } = group;
            text.push_str(&format!(
                "{name:<42} {system:<9} {backend:<7} {phase:<8} {rows:>4} {equal:>4} {largest:>9.1e}\n"
            ));
        }
        for (name, theirs, ours) in &self.different {
            text.push_str(&format!("differs: {name}: {theirs} in the file, {ours} here\n"));
        }
        let (rows, skipped) = (self.rows(), self.skipped);
        let equal = rows - self.different.len() as u64;
        text.push_str(&format!("{equal} of {rows} rows equal within {TOLERANCE:.0e}; {skipped} of other phases\n"));
        text
    }
}
