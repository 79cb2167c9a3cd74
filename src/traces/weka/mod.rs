//! The `weka` format (kv-cache-tester, AgentX): agents with subagents, one play as one JSON object.
//!
//! `corpus` finds and hashes the files, `play` decodes and checks one play, `streams` finds the conversations in it,
//! `edges` who waits for whom, `hashes` names the blocks of prompts. The result is an agentic
//! [`Graph`]. What Weka does not record is inferred by fixed rules, which are the ones of the
//! public importer: they are a policy of replay, not what the provider saw.

mod corpus;
mod edges;
mod hashes;
mod play;
mod streams;

use std::sync::Arc;

use dynosim_schemas::config::{NestedBasis, WekaRules};
use dynosim_schemas::trace::agentic::{AgenticRow, Dependency, GraphSource};

use self::corpus::{Corpus, TraceObject};
use self::edges::Edge;
use self::hashes::BlockNames;
use self::play::{Basis, RecordedPlay, RecordedRequest};
use super::agentic::{Graph, GraphNode};
use super::files::FileReport;
use super::time::milliseconds;
use super::{SourcePlace, TraceError};
use crate::interrupt::Interrupt;

/// Times closer together than this count as equal, in s.
const EPSILON_S: f64 = 1e-6;

/// How to read a corpus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WekaOptions {
    /// How much it may take liberties.
    pub rules: WekaRules,
    /// What the times of subagents' requests count from.
    pub basis: NestedBasis,
    /// The block size that it should have, if one is given.
    pub block_size: Option<u64>,
}

/// Reads a file, or a folder and those below.
///
/// # Errors
/// If a file cannot be read, or a play breaks a rule.
pub fn read(path: &str, options: WekaOptions, interrupt: &Interrupt) -> Result<(Graph, Vec<FileReport>), TraceError> {
    let corpus = Corpus::read(path, options.rules, interrupt)?;
    let block_size = common_block_size(&corpus.objects, options.block_size)?;
    let (plays, basis) = plays(&corpus.objects, options)?;
    if options.rules == WekaRules::Strict {
        check_one_model(&plays)?;
    }
    let source = GraphSource { format: "weka".to_owned(), digest: corpus.digest(basis) };
    let mut names = BlockNames::default();
    let nodes =
        plays.iter().zip(0..).flat_map(|(play, ordinal)| nodes(play, ordinal, block_size, &mut names)).collect();
    Ok((Graph::new(source, block_size, nodes)?, corpus.reports))
}

fn common_block_size(objects: &[TraceObject], given: Option<u64>) -> Result<u64, TraceError> {
    let wanted = given.or(objects.first().map(|object| object.trace.block_size)).unwrap_or(1);
    match objects.iter().find(|object| object.trace.block_size != wanted) {
        Some(other) => {
            let why = match given {
                Some(given) => format!("`traffic.source.block_size` is {given}; leave it out, the trace has its own"),
                None => format!("the plays before have {wanted}; a corpus has one"),
            };
            Err(other.error(format!("block_size: is {}, but {why}", other.trace.block_size)))
        }
        None => Ok(wanted),
    }
}

/// Decodes every play, under the basis that was asked for or that the whole corpus suggests.
fn plays(objects: &[TraceObject], options: WekaOptions) -> Result<(Vec<RecordedPlay<'_>>, Basis), TraceError> {
    let nested = || objects.iter().flat_map(|object| play::nested_times(&object.trace));
    let basis = match options.basis {
        NestedBasis::Absolute => Basis::Absolute,
        NestedBasis::Relative => Basis::Relative,
        NestedBasis::Auto if nested().any(|(marker_s, inner_s)| inner_s < marker_s - EPSILON_S) => Basis::Relative,
        NestedBasis::Auto if nested().next().is_none() => Basis::NotApplicable,
        NestedBasis::Auto => Basis::Absolute,
    };
    let plays = objects.iter().map(|object| RecordedPlay::new(object, basis, options.rules));
    Ok((plays.collect::<Result<_, _>>()?, basis))
}

fn check_one_model(plays: &[RecordedPlay<'_>]) -> Result<(), TraceError> {
    let mut requests = plays.iter().flat_map(|play| play.requests.iter().map(move |request| (play, request)));
    let Some((_, first)) = requests.next() else { return Ok(()) };
    match requests.find(|(_, request)| request.model != first.model) {
        Some((play, other)) => Err(play.object.error_at(
            &other.entry,
            format!(
                "model: is {:?}, but others have {:?}; set `traffic.source.weka_rules: lenient` to serve all of them",
                other.model, first.model
            ),
        )),
        None => Ok(()),
    }
}

/// The nodes of a play, the `ordinal`th of the corpus.
fn nodes(play: &RecordedPlay<'_>, ordinal: u64, block_size: u64, names: &mut BlockNames) -> Vec<GraphNode> {
    let scopes = streams::scopes(play);
    let incoming = edges::incoming(play, &scopes);
    let mut sessions = vec![String::new(); play.requests.len()];
    for scope in &scopes {
        for (stream, suffix) in scope.streams.iter().zip(scope.suffixes()) {
            stream.requests.iter().for_each(|&request| sessions[request] = format!("{}{suffix}", scope.session));
        }
    }
    let start_s = play.requests.iter().map(|request| request.t_s).min_by(f64::total_cmp).unwrap_or(0.0);
    let path: Arc<str> = play.object.path.clone();
    names.begin_play();
    let nodes = play.requests.iter().zip(sessions).zip(incoming).map(|((request, session), edges)| GraphNode {
        row: AgenticRow {
            request_id: request.id.clone(),
            play_id: play.play_id.clone(),
            source_play_ordinal: Some(ordinal),
            session_id: session.into(),
            model: request.model.clone(),
            input_length: request.input_tokens,
            output_length: request.output_tokens,
            output_token_ids: None,
            hash_ids: names.prompt(play, request, block_size),
            not_before_ms: milliseconds(request.t_s - start_s),
            recorded_api_time_ms: request.api_time_s.map(milliseconds),
            priority: 0,
            strict_priority: 0,
            policy_class: None,
            dependencies: edges.into_iter().map(|edge| dependency(play, edge)).collect(),
        },
        place: SourcePlace::entry(&path, play.object.line, &request.entry),
    });
    nodes.collect()
}

fn dependency(play: &RecordedPlay<'_>, edge: Edge) -> Dependency {
    Dependency {
        request_id: play.requests[edge.from].id.clone(),
        trigger: edge.trigger,
        delay_ms: milliseconds(edge.delay_s),
        relation: edge.relation,
    }
}

impl RecordedRequest {
    /// The order of requests in time.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        self.t_s.total_cmp(&other.t_s).then(self.position.cmp(&other.position))
    }
}
