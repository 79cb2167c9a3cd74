//! Decoding of `traffic`, and the rules about which loads and stops go with which source.

use super::{LanePolicy, Load, NestedBasis, Session, Source, Stop, TraceFormat, Traffic, WekaRules};
use super::{default_concurrency, default_input_tokens, default_output_tokens, default_seed, default_speedup};
use crate::config::Problem;
use crate::config::fields::{At, Bound, Choice, Fields};
use crate::config::limits::{MAX_COUNT, MAX_LANES, MAX_TOKENS, MAX_TURNS};

const SYNTHETIC: [&str; 3] = ["type", "input_tokens", "output_tokens"];
const SESSION: [&str; 4] = ["type", "new_input_tokens_per_turn", "output_tokens_per_turn", "session"];
const TRACE: [&str; 6] = ["type", "paths", "format", "block_size", "weka_rules", "nested_timestamp_basis"];
const LOAD: [&str; 8] = [
    "type",
    "concurrency",
    "requests_per_second",
    "sessions_per_second",
    "seed",
    "speedup",
    "agentic_lanes",
    "lane_policy",
];

#[derive(Clone, Copy)]
enum SourceKind {
    Synthetic,
    SyntheticSession,
    Trace,
}

impl Choice for SourceKind {
    const WHAT: &'static str = "source";
    const ALL: &'static [(&'static str, Self)] =
        &[("synthetic", Self::Synthetic), ("synthetic-session", Self::SyntheticSession), ("trace", Self::Trace)];
}

#[derive(Clone, Copy)]
enum LoadKind {
    Concurrency,
    ConstantRate,
    Poisson,
    TraceTimestamps,
}

impl Choice for LoadKind {
    const WHAT: &'static str = "load";
    const ALL: &'static [(&'static str, Self)] = &[
        ("concurrency", Self::Concurrency),
        ("constant_rate", Self::ConstantRate),
        ("poisson", Self::Poisson),
        ("trace_timestamps", Self::TraceTimestamps),
    ];
}

impl Choice for TraceFormat {
    const WHAT: &'static str = "trace format";
    const ALL: &'static [(&'static str, Self)] = &[
        ("mooncake", Self::Mooncake),
        ("mooncake-delta", Self::MooncakeDelta),
        ("agentic_mooncake", Self::AgenticMooncake),
        ("applied_compute_agentic", Self::AppliedComputeAgentic),
        ("dynamo", Self::Dynamo),
        ("weka", Self::Weka),
        ("qwen_bailian", Self::QwenBailian),
        ("azure_llm", Self::AzureLlm),
        ("burstgpt", Self::BurstGpt),
        ("vidur", Self::Vidur),
    ];
}

impl Choice for WekaRules {
    const WHAT: &'static str = "set of rules";
    const ALL: &'static [(&'static str, Self)] = &[("strict", Self::Strict), ("lenient", Self::Lenient)];
}

impl Choice for NestedBasis {
    const WHAT: &'static str = "basis of times";
    const ALL: &'static [(&'static str, Self)] =
        &[("absolute", Self::Absolute), ("relative", Self::Relative), ("auto", Self::Auto)];
}

impl Choice for LanePolicy {
    const WHAT: &'static str = "lane policy";
    const ALL: &'static [(&'static str, Self)] = &[("stride", Self::Stride), ("shared_queue", Self::SharedQueue)];
}

impl Traffic {
    pub(in crate::config) fn read(at: At<'_>) -> Result<Self, Problem> {
        let fields = Fields::open_known(at, &["source", "load", "stop"])?;
        let traffic = Self {
            source: Source::read(fields.required("source")?)?,
            load: Load::read(fields.required("load")?)?,
            stop: Stop::read(&fields)?,
        };
        check_load(&traffic)
            .and_then(|()| check_rate_unit(&traffic))
            .and_then(|()| check_stop(&traffic))
            .and_then(|()| check_count(&traffic))
            .and_then(|()| check_lanes(&traffic))
            .map_err(|(message, help)| Problem::at(fields.path(), message).help(help))?;
        Ok(traffic)
    }
}

impl Source {
    fn read(at: At<'_>) -> Result<Self, Problem> {
        let fields = Fields::open(at.value, &at.path)?;
        let Some(kind) = fields.choice("type")? else {
            fields.only(&[&SYNTHETIC[..], &SESSION[1..], &TRACE[1..]].concat())?;
            fields.required("type")?;
            return Err(at.wrong("a source"));
        };
        match kind {
            SourceKind::Synthetic => Self::read_synthetic(&fields),
            SourceKind::SyntheticSession => Self::read_session(&fields),
            SourceKind::Trace => Self::read_trace(&fields),
        }
    }

    fn read_synthetic(fields: &Fields<'_>) -> Result<Self, Problem> {
        fields.only(&SYNTHETIC)?;
        Ok(Self::Synthetic {
            input_tokens: fields.int("input_tokens", 1..=MAX_TOKENS)?.unwrap_or_else(default_input_tokens),
            output_tokens: fields.int("output_tokens", 1..=MAX_TOKENS)?.unwrap_or_else(default_output_tokens),
        })
    }

    fn read_session(fields: &Fields<'_>) -> Result<Self, Problem> {
        fields.only(&SESSION)?;
        Ok(Self::SyntheticSession {
            new_input_tokens_per_turn: fields
                .int("new_input_tokens_per_turn", 1..=MAX_TOKENS)?
                .unwrap_or_else(default_input_tokens),
            output_tokens_per_turn: fields
                .int("output_tokens_per_turn", 1..=MAX_TOKENS)?
                .unwrap_or_else(default_output_tokens),
            session: Session::read(fields.required("session")?)?,
        })
    }

    fn read_trace(fields: &Fields<'_>) -> Result<Self, Problem> {
        fields.only(&TRACE)?;
        let format: TraceFormat = fields.choice("format")?.unwrap_or_default();
        let paths = read_paths(&fields.required("paths")?)?;
        let block_size = fields.int("block_size", 1..=MAX_TOKENS)?.or(format.default_block_size());
        if format != TraceFormat::Dynamo && paths.len() > 1 {
            let message = format!("this format takes exactly one path, found {}", paths.len());
            return Err(Problem::at(fields.path(), message).help("only `dynamo` traces come in several files"));
        }
        if block_size.is_some() && !format.knows_prefixes() {
            return Err(Problem::at(
                fields.path(),
                "`block_size` is for traces with hash ids, and this format has none",
            )
            .help("remove it"));
        }
        let is_weka = format == TraceFormat::Weka;
        let for_weka = ["weka_rules", "nested_timestamp_basis"];
        if let Some(name) = for_weka.into_iter().find(|name| !is_weka && fields.has(name)) {
            return Err(Problem::at(fields.path(), format!("`{name}` is for `weka` traces"))
                .help("remove it, or set `format: weka`"));
        }
        Ok(Self::Trace {
            paths,
            format,
            block_size,
            weka_rules: fields.choice("weka_rules")?.or(is_weka.then(WekaRules::default)),
            nested_timestamp_basis: fields.choice("nested_timestamp_basis")?.or(is_weka.then(NestedBasis::default)),
        })
    }
}

fn read_paths(at: &At<'_>) -> Result<Vec<String>, Problem> {
    let list = at.value.as_sequence().ok_or_else(|| at.wrong("a list of paths"))?;
    if list.is_empty() {
        return Err(Problem::at(&at.path, "must name at least one file"));
    }
    let one = |value| At { value, path: at.path.clone() }.text().map(str::to_owned);
    list.iter().map(one).collect()
}

impl Session {
    fn read(at: At<'_>) -> Result<Self, Problem> {
        let known = ["turns", "shared_prefix_ratio", "prefix_groups", "inter_turn_delay_ms"];
        let fields = Fields::open_known(at, &known)?;
        let default = Self::default();
        let session = Self {
            turns: fields.int("turns", 2..=MAX_TURNS)?.unwrap_or(default.turns),
            shared_prefix_ratio: fields
                .number("shared_prefix_ratio", Bound::Between(0.0, 1.0))?
                .unwrap_or(default.shared_prefix_ratio),
            prefix_groups: fields.int("prefix_groups", 0..=MAX_COUNT)?.unwrap_or(default.prefix_groups),
            inter_turn_delay_ms: fields
                .number("inter_turn_delay_ms", Bound::NonNegative)?
                .unwrap_or(default.inter_turn_delay_ms),
        };
        if session.shared_prefix_ratio > 0.0 && session.prefix_groups == 0 {
            return Err(Problem::at(
                fields.path(),
                "`shared_prefix_ratio` is above 0, but there is no group to share in",
            )
            .help("set `prefix_groups` to 1 or more"));
        }
        Ok(session)
    }
}

impl Load {
    fn read(at: At<'_>) -> Result<Self, Problem> {
        let fields = Fields::open(at.value, &at.path)?;
        refuse_search_load(&fields)?;
        let kind = fields.choice("type")?.unwrap_or(LoadKind::Concurrency);
        fields.only(&LOAD)?;
        let load = Self::read_kind(&fields, kind)?;
        let (name, own): (_, &[&str]) = match kind {
            LoadKind::Concurrency => ("concurrency", &["type", "concurrency"]),
            LoadKind::ConstantRate => ("constant_rate", &["type", "requests_per_second", "sessions_per_second"]),
            LoadKind::Poisson => ("poisson", &["type", "requests_per_second", "sessions_per_second", "seed"]),
            LoadKind::TraceTimestamps => ("trace_timestamps", &["type", "speedup", "agentic_lanes", "lane_policy"]),
        };
        fields.only_for(name, own)?;
        Ok(load)
    }

    fn read_kind(fields: &Fields<'_>, kind: LoadKind) -> Result<Self, Problem> {
        let concurrency = fields.int("concurrency", 1..=MAX_COUNT)?;
        let requests_per_second = fields.number("requests_per_second", Bound::Rate)?;
        let sessions_per_second = fields.number("sessions_per_second", Bound::Rate)?;
        let seed = fields.int("seed", 0..=u64::MAX)?;
        let speedup = fields.number("speedup", Bound::Rate)?;
        let agentic_lanes = fields.int("agentic_lanes", 1..=MAX_LANES)?;
        let lane_policy = fields.choice("lane_policy")?;
        Ok(match kind {
            LoadKind::Concurrency => Self::Concurrency { concurrency: concurrency.unwrap_or_else(default_concurrency) },
            LoadKind::ConstantRate => Self::ConstantRate { requests_per_second, sessions_per_second },
            LoadKind::Poisson => {
                Self::Poisson { requests_per_second, sessions_per_second, seed: seed.unwrap_or_else(default_seed) }
            }
            LoadKind::TraceTimestamps => Self::TraceTimestamps {
                speedup: speedup.unwrap_or_else(default_speedup),
                agentic_lanes,
                lane_policy: lane_policy.or(agentic_lanes.map(|_| LanePolicy::default())),
            },
        })
    }
}

fn refuse_search_load(fields: &Fields<'_>) -> Result<(), Problem> {
    match fields.value("type") {
        Some(at) if at.value.as_str() == Some("kv_capacity_fraction") => {
            Err(Problem::at(at.path, "`kv_capacity_fraction` belongs to a search over configurations")
                .help("give the load itself, for example `{type: concurrency, concurrency: 10}`"))
        }
        _ => Ok(()),
    }
}

impl Stop {
    fn read(traffic: &Fields<'_>) -> Result<Self, Problem> {
        let known =
            ["requests", "sessions", "requests_per_load_unit", "sessions_per_load_unit", "max_virtual_time_seconds"];
        let fields = traffic.section("stop", &known)?;
        Ok(Self {
            requests: fields.int("requests", 1..=MAX_COUNT)?,
            sessions: fields.int("sessions", 1..=MAX_COUNT)?,
            requests_per_load_unit: fields.number("requests_per_load_unit", Bound::Positive)?,
            sessions_per_load_unit: fields.number("sessions_per_load_unit", Bound::Positive)?,
            max_virtual_time_seconds: fields.number("max_virtual_time_seconds", Bound::Positive)?,
        })
    }
}

/// What is wrong with a combination, and what to write instead.
type Clash = (String, String);

fn clash(message: &str, help: &str) -> Result<(), Clash> {
    Err((message.to_owned(), help.to_owned()))
}

/// Which loads go with which source.
fn check_load(traffic: &Traffic) -> Result<(), Clash> {
    let timestamps = matches!(traffic.load, Load::TraceTimestamps { .. });
    let concurrency = matches!(traffic.load, Load::Concurrency { .. });
    match traffic.source.trace_format() {
        None if timestamps => clash(
            "`trace_timestamps` needs a trace, and the source is synthetic",
            "use concurrency, constant_rate or poisson",
        ),
        Some(format) if format.is_agentic() && !timestamps => {
            clash("a trace of agents needs load `trace_timestamps`", "set `load: {type: trace_timestamps}`")
        }
        Some(TraceFormat::AppliedComputeAgentic) if !concurrency => clash(
            "an `applied_compute_agentic` trace has no times and needs load `concurrency`",
            "set `load: {type: concurrency}`",
        ),
        Some(_) if !timestamps && !concurrency => clash(
            "a trace cannot be sent at a rate",
            "use load `trace_timestamps`, with `speedup` to change the pace, or `concurrency`",
        ),
        _ => Ok(()),
    }
}

/// Rates count what the source sends.
fn check_rate_unit(traffic: &Traffic) -> Result<(), Clash> {
    let (Load::ConstantRate { requests_per_second, sessions_per_second }
    | Load::Poisson { requests_per_second, sessions_per_second, .. }) = &traffic.load
    else {
        return Ok(());
    };
    let sessions = matches!(traffic.source, Source::SyntheticSession { .. });
    match (sessions, requests_per_second, sessions_per_second) {
        (false, Some(_), None) | (true, None, Some(_)) => Ok(()),
        (false, ..) => clash("this source sends requests", "give `load.requests_per_second`, and no other rate"),
        (true, ..) => clash("this source sends sessions", "give `load.sessions_per_second`, and no other rate"),
    }
}

/// Which stops go with which source.
fn check_stop(traffic: &Traffic) -> Result<(), Clash> {
    let stop = &traffic.stop;
    let requests = usize::from(stop.requests.is_some()) + usize::from(stop.requests_per_load_unit.is_some());
    let sessions = usize::from(stop.sessions.is_some()) + usize::from(stop.sessions_per_load_unit.is_some());
    let cutoff = stop.max_virtual_time_seconds.is_some();
    match (&traffic.source, requests, sessions) {
        (Source::Trace { .. }, 0, 0) if !cutoff => Ok(()),
        (Source::Trace { format, .. }, ..) if format.is_agentic() => {
            clash("a trace of agents runs to its end", "remove `stop`")
        }
        (Source::Trace { .. }, 0, 0) => Ok(()),
        (Source::Trace { .. }, ..) => {
            clash("a trace cannot stop at a count", "use `stop.max_virtual_time_seconds`, or remove `stop`")
        }
        _ if cutoff => clash("`stop.max_virtual_time_seconds` needs a trace", "synthetic sources stop at a count"),
        (Source::Synthetic { .. }, 1, 0) | (Source::SyntheticSession { .. }, 0, 1) => Ok(()),
        (Source::Synthetic { .. }, ..) => clash(
            "a synthetic source needs exactly one count of requests to stop at",
            "set either `stop.requests` or `stop.requests_per_load_unit`, and no count of sessions",
        ),
        (Source::SyntheticSession { .. }, ..) => clash(
            "a synthetic-session source needs exactly one count of sessions to stop at",
            "set either `stop.sessions` or `stop.sessions_per_load_unit`, and no count of requests",
        ),
    }
}

/// Lanes are for plays.
fn check_lanes(traffic: &Traffic) -> Result<(), Clash> {
    let Load::TraceTimestamps { agentic_lanes, lane_policy, .. } = traffic.load else { return Ok(()) };
    let may_be_agentic =
        traffic.source.trace_format().is_some_and(|format| format.is_agentic() || format == TraceFormat::Dynamo);
    match (agentic_lanes, lane_policy) {
        (None, Some(_)) => clash("`load.lane_policy` is for lanes", "give `load.agentic_lanes` too, or remove it"),
        (Some(_), _) if !may_be_agentic => clash(
            "`load.agentic_lanes` is for traces of agents",
            "remove it, or use a trace of format agentic_mooncake, weka or dynamo",
        ),
        _ => Ok(()),
    }
}

/// The run stays countable.
fn check_count(traffic: &Traffic) -> Result<(), Clash> {
    match traffic.request_count() {
        Some(count) if count > MAX_COUNT => {
            Err((format!("asks for {count} requests"), format!("at most {MAX_COUNT} can be counted")))
        }
        _ => Ok(()),
    }
}
