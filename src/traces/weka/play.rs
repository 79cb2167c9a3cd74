//! One play: decoded, checked, and laid out flat.

use dynosim_schemas::config::WekaRules;
use dynosim_schemas::config::limits::{MAX_NUMBER, MAX_TOKENS};
use dynosim_schemas::trace::agentic::LOCAL_SCOPE;
use dynosim_schemas::trace::weka::{WekaEntry, WekaTrace};

use super::EPSILON_S;
use super::corpus::TraceObject;
use crate::traces::TraceError;

/// What the times of subagents' requests count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    Absolute,
    Relative,
    /// There are none in the whole corpus.
    NotApplicable,
}

impl Basis {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absolute => "absolute",
            Self::Relative => "relative",
            Self::NotApplicable => "not_applicable",
        }
    }
}

/// A request, with its times in s from the start of the recording.
#[derive(Debug)]
pub(super) struct RecordedRequest {
    /// Its name in the graph.
    pub id: Box<str>,
    /// Its name in the file, for messages.
    pub entry: String,
    /// Its place in its list.
    pub position: usize,
    pub t_s: f64,
    pub end_s: f64,
    pub api_time_s: Option<f64>,
    pub model: Box<str>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub hashes: Vec<u64>,
}

/// An agent that another one started.
#[derive(Debug)]
pub(super) struct Subagent {
    /// Its place among the outer requests.
    pub position: usize,
    pub agent_id: Box<str>,
    /// Whether its result was waited for.
    pub is_blocking: bool,
    pub marker_s: f64,
    pub duration_s: Option<f64>,
    /// Its requests, by their indices in [`RecordedPlay::requests`].
    pub requests: std::ops::Range<usize>,
}

/// A play.
pub(super) struct RecordedPlay<'a> {
    pub object: &'a TraceObject,
    /// The start of all its names.
    pub namespace: String,
    pub play_id: Box<str>,
    /// All requests: the outer ones first, then those of each subagent.
    pub requests: Vec<RecordedRequest>,
    /// How many are outer ones.
    pub outer: usize,
    pub subagents: Vec<Subagent>,
}

/// Blocks of one prompt that are made up because the file does not name them.
const MAX_UNNAMED_BLOCKS: u64 = 1 << 20;

/// Characters of a hash that make a namespace.
const NAMESPACE_DIGITS: usize = 16;

/// The recorded times of all subagents' requests, each after that of its subagent.
pub(super) fn nested_times(trace: &WekaTrace) -> impl Iterator<Item = (f64, f64)> {
    let subagents = trace.requests.iter().filter(|entry| &*entry.kind == "subagent");
    subagents.flat_map(|entry| entry.requests.iter().flatten().map(|inner| (entry.t, inner.t)))
}

impl<'a> RecordedPlay<'a> {
    /// Checks a play and lays it out.
    pub fn new(object: &'a TraceObject, basis: Basis, rules: WekaRules) -> Result<Self, TraceError> {
        let trace = &object.trace;
        check_head(trace).map_err(|message| object.error(message))?;
        let hash = blake3::hash(object.identity.as_bytes()).to_hex();
        let namespace = format!("weka:{}", hash.get(..NAMESPACE_DIGITS).unwrap_or_default());
        let play_id = format!("{namespace}:play:{}", trace.id).into();
        let mut play = Self { object, namespace, play_id, requests: Vec::new(), outer: 0, subagents: Vec::new() };
        for (position, entry) in trace.requests.iter().enumerate() {
            if &*entry.kind != "subagent" {
                let id = format!("{}:request:outer:{position}", play.namespace);
                play.add(entry, position, format!("requests[{position}]"), id, rules, None)?;
            }
        }
        play.outer = play.requests.len();
        if play.outer == 0 {
            return Err(object.error("requests: has no request outside of subagents".to_owned()));
        }
        for (position, entry) in trace.requests.iter().enumerate() {
            if &*entry.kind == "subagent" {
                play.add_subagent(entry, position, basis, rules)?;
            }
        }
        Ok(play)
    }

    fn add_subagent(
        &mut self,
        entry: &WekaEntry,
        position: usize,
        basis: Basis,
        rules: WekaRules,
    ) -> Result<(), TraceError> {
        let object = self.object;
        let name = format!("requests[{position}]");
        let refuse = |message: String| Err(object.error_at(&name, message));
        check_seconds("t", entry.t).map_err(|message| object.error_at(&name, message))?;
        let Some(agent_id) = entry.agent_id.clone().filter(|id| !id.trim().is_empty()) else {
            return refuse("agent_id: is missing or blank".to_owned());
        };
        if entry.subagent_type.is_none() {
            return refuse("subagent_type: is missing".to_owned());
        }
        let is_blocking = match entry.status.as_deref() {
            Some("completed") => true,
            Some("async_launched") => false,
            Some(other) => {
                return refuse(format!("status: {other:?} is not known; expected `completed` or `async_launched`"));
            }
            None => return refuse("status: is missing; expected `completed` or `async_launched`".to_owned()),
        };
        let Some(inner) = &entry.requests else { return refuse("requests: is missing".to_owned()) };
        if inner.is_empty() {
            return if is_blocking {
                refuse("requests: is empty, but the status is `completed`".to_owned())
            } else {
                Ok(())
            };
        }
        if !self.requests[..self.outer].iter().any(|request| request.position < position) {
            return refuse("stands before every outer request, so that none can have started it".to_owned());
        }
        let first = self.requests.len();
        for (index, one) in inner.iter().enumerate() {
            let entry_name = format!("{name}.requests[{index}]");
            if &*one.kind == "subagent" {
                let message = "type: a subagent within a subagent; only one level is known".to_owned();
                return Err(object.error_at(&entry_name, message));
            }
            let id = format!("{}:request:outer:{position}:inner:{index}", self.namespace);
            self.add(one, index, entry_name, id, rules, Some((entry.t, basis)))?;
        }
        self.subagents.push(Subagent {
            position,
            agent_id,
            is_blocking,
            marker_s: entry.t,
            duration_s: entry.duration_ms.map(|ms| ms as f64 / 1000.0),
            requests: first..self.requests.len(),
        });
        Ok(())
    }

    fn add(
        &mut self,
        entry: &WekaEntry,
        position: usize,
        name: String,
        id: String,
        rules: WekaRules,
        within: Option<(f64, Basis)>,
    ) -> Result<(), TraceError> {
        let checked = self.check_request(entry, rules).and_then(|()| match within {
            Some((marker_s, basis)) => nested_start(entry.t, marker_s, basis),
            None => Ok(entry.t),
        });
        let t_s = checked.map_err(|message| self.object.error_at(&name, message))?;
        self.requests.push(RecordedRequest {
            id: id.into(),
            entry: name,
            position,
            t_s,
            end_s: t_s + entry.api_time.unwrap_or(0.0),
            api_time_s: entry.api_time,
            model: entry.model.clone().unwrap_or_default(),
            input_tokens: entry.input_tokens.unwrap_or_default(),
            output_tokens: entry.output_tokens.unwrap_or_default(),
            hashes: entry.hash_ids.clone(),
        });
        Ok(())
    }

    fn check_request(&self, entry: &WekaEntry, rules: WekaRules) -> Result<(), String> {
        if !matches!(&*entry.kind, "n" | "s") {
            return Err(format!("type: {:?} is not known; expected `n`, `s` or `subagent`", entry.kind));
        }
        check_seconds("t", entry.t)?;
        let Some(model) = entry.model.as_deref().filter(|model| !model.trim().is_empty()) else {
            return Err("model: is missing or blank".to_owned());
        };
        let declared = self.object.trace.models.as_ref();
        if declared.is_some_and(|models| !models.iter().any(|one| **one == *model)) {
            return Err(format!("model: {model:?} is not among the `models` of the trace"));
        }
        match (entry.input_tokens, entry.output_tokens) {
            (None, _) => return Err("in: is missing".to_owned()),
            (_, None) => return Err("out: is missing".to_owned()),
            (Some(0), _) => return Err("in: is 0; a prompt has at least one token".to_owned()),
            (Some(input), Some(output)) if input.max(output) > MAX_TOKENS => {
                return Err(format!("in, out: are more than the {MAX_TOKENS} tokens that a request may have"));
            }
            _ => {}
        }
        let unnamed = (entry.input_tokens.unwrap_or_default() / self.object.trace.block_size)
            .saturating_sub(entry.hash_ids.len() as u64);
        if unnamed > MAX_UNNAMED_BLOCKS {
            return Err(format!("hash_ids: {unnamed} blocks have no id; at most {MAX_UNNAMED_BLOCKS} may be missing"));
        }
        match entry.api_time {
            Some(seconds) => check_seconds("api_time", seconds),
            None if rules == WekaRules::Strict => {
                Err("api_time: is missing; set `traffic.source.weka_rules: lenient` to count it as 0".to_owned())
            }
            None => Ok(()),
        }
    }
}

fn check_head(trace: &WekaTrace) -> Result<(), String> {
    if trace.id.trim().is_empty() {
        return Err("id: is blank; a play needs a name".to_owned());
    }
    if !(1..=MAX_TOKENS).contains(&trace.block_size) {
        return Err(format!("block_size: {} is out of range; write 1 to {MAX_TOKENS}", trace.block_size));
    }
    if &*trace.hash_id_scope != LOCAL_SCOPE {
        return Err(format!("hash_id_scope: {:?} is not known; write {LOCAL_SCOPE:?}", trace.hash_id_scope));
    }
    if trace.models.iter().flatten().any(|model| model.trim().is_empty()) {
        return Err("models: has a blank name".to_owned());
    }
    Ok(())
}

fn check_seconds(field: &str, seconds: f64) -> Result<(), String> {
    let highest = MAX_NUMBER / 1000.0;
    if (0.0..=highest).contains(&seconds) {
        return Ok(());
    }
    Err(format!("{field}: {seconds} s is out of range; write 0 to {highest:e}"))
}

/// The start of a subagent's request, from the start of the recording, in s.
fn nested_start(t_s: f64, marker_s: f64, basis: Basis) -> Result<f64, String> {
    match basis {
        Basis::Relative => Ok(marker_s + t_s),
        Basis::Absolute | Basis::NotApplicable if t_s < marker_s - EPSILON_S => Err(format!(
            "t: {t_s} s is before {marker_s} s, the start of its subagent; if these times count from there, set \
             `traffic.source.nested_timestamp_basis: relative`"
        )),
        Basis::Absolute | Basis::NotApplicable => Ok(t_s.max(marker_s)),
    }
}
