//! What a configuration leaves to the model and the accelerator: context length, memory, and how long passes take.

use dynosim_schemas::config::limits::MAX_BLOCKS;
use dynosim_schemas::config::{
    BytesPerToken, Capacity, ContextLength, MixedPass, Parallelism, Prediction, Problem, Role, Timing, Worker,
};
use dynosim_schemas::hardware::Hardware;
use dynosim_schemas::model::Model;
use dynosim_schemas::perf_table::TableKind;
use dynosim_systems::timing::{KvBytes, MeasuredTiming, Memory, PassTiming, Served};
use serde_json::{Map, Value, json};

use crate::perf_data::{self, DataError, DataFiles, TableInfo, folder_of, table_info, tables_for};

/// What a configuration comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Prompt and output tokens that a request may have in total.
    pub context_length: u64,
    /// The workers of each role.
    pub workers: Vec<ResolvedWorker>,
    /// Size of one token's KV on its way between workers.
    pub transfer_bytes_per_token: u64,
}

/// What the workers of one role come to.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedWorker {
    /// The role.
    pub role: Role,
    /// KV blocks of a rank.
    pub blocks: u64,
    /// Where they were found from the memory that the model leaves: how.
    pub memory: Option<RankMemory>,
    /// How long a pass takes.
    pub timing: PassTiming,
    /// Where passes are priced from measured operators: the tables.
    pub tables: Vec<(TableKind, TableInfo)>,
}

/// How the memory of a rank is spent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankMemory {
    /// The parts.
    pub memory: Memory,
    /// What KV takes.
    pub kv_bytes: KvBytes,
    /// Tokens of KV that there is room for.
    pub tokens: u64,
}

/// Resolves a configuration. What it gives in numbers is not looked up, so that such models and accelerators need not be
/// known. `strict`: operators of which nothing was measured are refused.
///
/// # Errors
/// What is not known, does not fit, or was not measured.
pub fn resolve(prediction: &Prediction, files: &DataFiles, strict: bool) -> Result<Resolved, Problem> {
    let mut resolver = Resolver { prediction, files, strict, model: None, hardware: None, priced: Vec::new() };
    let context_length = match prediction.engine.context_length {
        ContextLength::Tokens(tokens) => tokens,
        ContextLength::Max => resolver.model()?.context_length,
    };
    let mut workers = Vec::new();
    for (role, worker) in prediction.engine.workers.roles() {
        workers.push(resolver.worker(role, worker)?);
    }
    let transfer_bytes_per_token = resolver.transfer_bytes_per_token()?;
    Ok(Resolved { context_length, workers, transfer_bytes_per_token })
}

/// The memory of every role's ranks, whether or not the configuration needs it.
///
/// # Errors
/// If the model or the accelerator is not known, or the model does not fit.
pub fn memory_of(prediction: &Prediction, files: &DataFiles) -> Result<Vec<(Role, RankMemory)>, Problem> {
    let mut resolver = Resolver { prediction, files, strict: false, model: None, hardware: None, priced: Vec::new() };
    let roles = prediction.engine.workers.roles();
    roles.map(|(role, worker)| Ok((role, resolver.memory(role, worker)?))).collect()
}

type Priced = (Parallelism, MixedPass, MeasuredTiming, Vec<(TableKind, TableInfo)>);

struct Resolver<'a> {
    prediction: &'a Prediction,
    files: &'a DataFiles,
    strict: bool,
    model: Option<Model>,
    hardware: Option<Hardware>,
    /// Roles whose ranks are alike share their prices.
    priced: Vec<Priced>,
}

fn unknown(path: &str) -> impl FnOnce(DataError) -> Problem + '_ {
    move |DataError { message, help }| Problem::at(path, message).help(help)
}

fn field(role: Role, name: &str) -> String {
    format!("engine.workers.{}.{name}", role.name())
}

impl Resolver<'_> {
    fn model(&mut self) -> Result<Model, Problem> {
        if self.model.is_none() {
            let model = perf_data::model(self.files, &self.prediction.engine.model);
            self.model = Some(model.map_err(unknown("engine.model"))?);
        }
        self.model.clone().ok_or_else(|| Problem::at("engine.model", "is not known"))
    }

    fn hardware(&mut self) -> Result<Hardware, Problem> {
        if self.hardware.is_none() {
            let hardware = perf_data::hardware(self.files, &self.prediction.engine.hardware);
            self.hardware = Some(hardware.map_err(unknown("engine.hardware"))?);
        }
        self.hardware.clone().ok_or_else(|| Problem::at("engine.hardware", "is not known"))
    }

    fn worker(&mut self, role: Role, worker: &Worker) -> Result<ResolvedWorker, Problem> {
        let (blocks, memory) = match worker.kv_cache.capacity {
            Capacity::Fixed { blocks } => (blocks, None),
            Capacity::Default { .. } => {
                let memory = self.memory(role, worker)?;
                ((memory.tokens / worker.kv_cache.block_size).min(MAX_BLOCKS), Some(memory))
            }
        };
        let (timing, tables) = match worker.timing {
            Timing::Fixed { prefill_ms, decode_ms } => (PassTiming::Fixed { prefill_ms, decode_ms }, Vec::new()),
            Timing::Polynomial => (PassTiming::Polynomial, Vec::new()),
            Timing::Default { mixed } => self.measured(role, worker, mixed)?,
        };
        Ok(ResolvedWorker { role, blocks, memory, timing, tables })
    }

    /// The model as a role serves it, if it can be spread like that.
    fn served<T>(
        &mut self,
        role: Role,
        worker: &Worker,
        use_it: impl FnOnce(&Served<'_>) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let (model, hardware) = (self.model()?, self.hardware()?);
        let backend = self.prediction.engine.backend;
        let served = Served { model: &model, hardware: &hardware, backend, parallelism: &worker.parallelism };
        served
            .check()
            .map_err(|(degree, problem)| Problem::at(field(role, &format!("parallelism.{degree}")), problem))?;
        use_it(&served)
    }

    fn memory(&mut self, role: Role, worker: &Worker) -> Result<RankMemory, Problem> {
        let hardware = self.prediction.engine.hardware.clone();
        self.served(role, worker, |served| {
            let found = rank_memory(served, worker);
            if found.tokens >= worker.kv_cache.block_size {
                return Ok(found);
            }
            let path = field(role, "parallelism.tensor");
            Err(Problem::at(path, does_not_fit(&found.memory, &hardware)).help(what_fits(served, worker)))
        })
    }

    fn measured(
        &mut self,
        role: Role,
        worker: &Worker,
        mixed: MixedPass,
    ) -> Result<(PassTiming, Vec<(TableKind, TableInfo)>), Problem> {
        let alike = Parallelism { replicas: 1, ..worker.parallelism };
        if let Some((_, _, timing, tables)) =
            self.priced.iter().find(|(parallelism, kind, ..)| (*parallelism, *kind) == (alike, mixed))
        {
            return Ok((PassTiming::Measured(*timing), tables.clone()));
        }
        let (files, engine, strict) = (self.files, &self.prediction.engine, self.strict);
        let (timing, tables) = self.served(role, worker, |served| {
            let damaged = unknown("engine.hardware");
            let rows = tables_for(files, &engine.hardware, served).map_err(damaged)?;
            let place = (engine.hardware.as_str(), folder_of(engine.backend));
            let mut tables = Vec::new();
            for kind in rows.keys() {
                let info = table_info(files, place, *kind).map_err(unknown("engine.hardware"))?;
                tables.extend(info.map(|info| (*kind, info)));
            }
            check_version(engine.backend_version.as_deref(), place, &tables)?;
            let operators = served.operators(&rows);
            let lacking: Vec<&str> = operators.unmeasured().iter().map(|operator| operator.name()).collect();
            if strict && !lacking.is_empty() {
                let message = format!("nothing was measured that says how long these take: {}", lacking.join(", "));
                return Err(Problem::at(field(role, "timing"), message).help(
                    "leave `--strict-timing` out to estimate them from peak rates, or choose another accelerator",
                ));
            }
            Ok((MeasuredTiming::new(operators, mixed == MixedPass::Fused), tables))
        })?;
        self.priced.push((alike, mixed, timing, tables.clone()));
        Ok((PassTiming::Measured(timing), tables))
    }

    fn transfer_bytes_per_token(&mut self) -> Result<u64, Problem> {
        let Some(transfer) = self.prediction.engine.kv_transfer else { return Ok(0) };
        match (transfer.bytes_per_token, transfer.bandwidth_gb_per_second) {
            (BytesPerToken::Bytes(bytes), _) => Ok(bytes),
            // What takes no time has no need of a size.
            (BytesPerToken::Auto, None) => Ok(0),
            (BytesPerToken::Auto, Some(_)) => {
                let Some(prefill) = self.prediction.engine.workers.prefill.clone() else { return Ok(0) };
                self.served(Role::Prefill, &prefill, |served| Ok(served.kv_bytes().per_token.ceil() as u64))
            }
        }
    }
}

fn rank_memory(served: &Served<'_>, worker: &Worker) -> RankMemory {
    let fraction = match worker.kv_cache.capacity {
        Capacity::Default { memory_fraction } => memory_fraction,
        Capacity::Fixed { .. } => served.backend.default_memory_fraction(),
    };
    let memory = served.memory(worker.scheduler.max_batched_tokens, fraction);
    let kv_bytes = served.kv_bytes();
    RankMemory { memory, kv_bytes, tokens: kv_bytes.tokens_in(memory.kv) }
}

const GIB: f64 = (1_u64 << 30) as f64;

fn does_not_fit(memory: &Memory, hardware: &str) -> String {
    let gib = |bytes: f64| format!("{:.1} GiB", bytes / GIB);
    format!(
        "the model does not fit on {hardware} with {}: weights {}, activations {}, runtime {}, collectives {}",
        gib(memory.capacity),
        gib(memory.weights),
        gib(memory.activations),
        gib(memory.runtime),
        gib(memory.collectives)
    )
}

/// The smallest tensor parallelism with which the model fits, the other degrees as they are.
fn what_fits(served: &Served<'_>, worker: &Worker) -> String {
    let heads = served.model.heads();
    let wider = (1..=heads).filter(|tensor| *tensor > worker.parallelism.tensor);
    for tensor in wider {
        let all = tensor * worker.parallelism.attention_data;
        let Parallelism { moe_tensor, moe_expert, .. } = worker.parallelism;
        let spread = match served.model.has_experts() {
            false => [(moe_tensor, moe_expert); 2],
            true => [(moe_tensor, all / moe_tensor), (all / moe_expert, moe_expert)],
        };
        for (moe_tensor, moe_expert) in spread {
            let parallelism = Parallelism { tensor, moe_tensor, moe_expert, ..worker.parallelism };
            let served = Served { parallelism: &parallelism, ..*served };
            if served.check().is_ok() && rank_memory(&served, worker).tokens >= worker.kv_cache.block_size {
                let experts = format!(" with `moe_tensor: {moe_tensor}` and `moe_expert: {moe_expert}`");
                let experts = if served.model.has_experts() { experts } else { String::new() };
                return format!("the smallest `tensor` that fits is {tensor}{experts}");
            }
        }
    }
    "no `tensor` fits; use `pipeline` as well, or an accelerator with more memory".to_owned()
}

fn check_version(
    wanted: Option<&str>,
    (hardware, backend): (&str, &str),
    tables: &[(TableKind, TableInfo)],
) -> Result<(), Problem> {
    let engines = tables.iter().filter(|(kind, _)| *kind != TableKind::Nccl);
    let measured: Option<&str> = engines.map(|(_, info)| info.backend_version.as_str()).next();
    match (wanted, measured) {
        (Some(wanted), Some(measured)) if wanted != measured => {
            let message = format!("{backend} {wanted} was not measured on {hardware}");
            Err(Problem::at("engine.backend_version", message).help(format!(
                "use \"{measured}\", leave it out, or import tables of that version with `dynosim perf-db import`"
            )))
        }
        (Some(wanted), None) => {
            let message = format!("nothing was measured for {backend} {wanted} on {hardware}");
            Err(Problem::at("engine.backend_version", message)
                .help("leave it out to estimate from peak rates, or see `dynosim perf-db list`"))
        }
        _ => Ok(()),
    }
}

impl Resolved {
    /// Where the prices of passes came from, role by role; `None` if no role has measured prices. To be asked for after
    /// the run, which decides what was asked of the tables.
    #[must_use]
    pub fn timing_provenance(&self) -> Option<Value> {
        let roles: Map<String, Value> = self
            .workers
            .iter()
            .filter_map(|worker| Some((worker.role.name().to_owned(), worker.provenance()?)))
            .collect();
        (!roles.is_empty()).then_some(Value::Object(roles))
    }

    /// How the memory of ranks is spent, role by role; `None` if every capacity was given.
    #[must_use]
    pub fn memory(&self) -> Option<Value> {
        let entry = |worker: &ResolvedWorker| {
            let memory = worker.memory?.to_json(worker.blocks);
            Some((worker.role.name().to_owned(), memory))
        };
        let roles: Map<String, Value> = self.workers.iter().filter_map(entry).collect();
        (!roles.is_empty()).then_some(Value::Object(roles))
    }
}

impl ResolvedWorker {
    fn provenance(&self) -> Option<Value> {
        let PassTiming::Measured(timing) = self.timing else { return None };
        let model = timing.operators();
        let operators: Map<String, Value> = model
            .bases
            .seen()
            .into_iter()
            .map(|(operator, bases)| {
                let bases: Vec<&str> = bases.into_iter().map(|basis| basis.name()).collect();
                (operator.name().to_owned(), json!(bases))
            })
            .collect();
        let source = match (self.tables.is_empty(), model.unmeasured().is_empty()) {
            (true, _) => "speed_of_light",
            (false, true) => "measured",
            (false, false) => "partly_measured",
        };
        let tables: Map<String, Value> =
            self.tables.iter().map(|(kind, info)| (kind.name().to_owned(), json!(info.source))).collect();
        Some(json!({ "source": source, "operators": operators, "tables": tables }))
    }
}

impl RankMemory {
    fn to_json(self, blocks: u64) -> Value {
        let Memory { capacity, weights, activations, runtime, collectives, kv } = self.memory;
        let whole = |bytes: f64| bytes as i64;
        json!({
            "capacity_bytes": whole(capacity),
            "weights_bytes": whole(weights),
            "activations_bytes": whole(activations),
            "runtime_bytes": whole(runtime),
            "collectives_bytes": whole(collectives),
            "kv_bytes": whole(kv),
            "kv_bytes_per_token": whole(self.kv_bytes.per_token),
            "kv_tokens": self.tokens,
            "kv_blocks": blocks,
        })
    }
}
