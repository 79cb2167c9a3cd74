//! Finds the records that matter among the lines of shards.

use std::sync::Arc;

use dynosim_schemas::config::limits::MAX_NUMBER;
use dynosim_schemas::trace::dynamo::{DYNAMO_SCHEMA, RecordProbe, RequestEnd, ToolEnd, Wrapped};
use serde::de::{DeserializeOwned, IgnoredAny};

use super::{Served, ToolUse};
use crate::interrupt::Interrupt;
use crate::traces::files::{FileReport, each_line, some_requests};
use crate::traces::{SourcePlace, TraceError, json};

/// What shards hold.
#[derive(Default)]
pub(super) struct Records {
    pub served: Vec<Served>,
    pub tools: Vec<ToolUse>,
    pub reports: Vec<FileReport>,
}

enum Kind {
    Request,
    Tool,
    /// Nothing that says when a request starts.
    Other,
}

/// Reads every shard.
pub(super) fn read(paths: &[String], interrupt: &Interrupt) -> Result<Records, TraceError> {
    let mut records = Records::default();
    for path in paths {
        let file: Arc<str> = path.as_str().into();
        let report = each_line(path, interrupt, |line, number| {
            let place = SourcePlace::line(&file, number);
            read_line(line, place, &mut records)
        })?;
        records.reports.push(report);
    }
    some_requests(&records.reports)?;
    Ok(records)
}

/// Whether the line was a request.
fn read_line(line: &str, place: SourcePlace, records: &mut Records) -> Result<bool, String> {
    if !line.starts_with('{') {
        // Other JSON is skipped, but it has to be JSON.
        let skipped = serde_json::from_str::<IgnoredAny>(line);
        return skipped.map(|_| false).map_err(|_| "is not JSON; every line is one JSON value".to_owned());
    }
    let probe: RecordProbe = json::decode(line)?;
    let is_wrapped = probe.event.is_some();
    match kind(&probe)? {
        Kind::Other => Ok(false),
        Kind::Tool => {
            let tool: ToolEnd = record(line, is_wrapped)?;
            check_tool(&tool)?;
            records.tools.push((tool, place));
            Ok(false)
        }
        Kind::Request => {
            records.served.push(served(record(line, is_wrapped)?, place)?);
            Ok(true)
        }
    }
}

fn kind(probe: &RecordProbe) -> Result<Kind, String> {
    let record = probe.event.as_deref().unwrap_or(probe);
    let event_type = record.event_type.as_deref().or(probe.event_type.as_deref());
    let kind = match event_type {
        Some("request_payload" | "tool_start") => return Ok(Kind::Other),
        Some("request_end") => Kind::Request,
        Some("tool_end" | "tool_error") => Kind::Tool,
        Some(other) => {
            return Err(format!(
                "event_type: {other:?} is not known; a trace has request_end, request_payload, tool_start, tool_end \
                 and tool_error"
            ));
        }
        None => return Err("event_type: is missing".to_owned()),
    };
    match record.schema.as_deref() {
        Some(DYNAMO_SCHEMA) => Ok(kind),
        Some(other) => Err(format!("schema: {other:?} is not known; expected {DYNAMO_SCHEMA:?}")),
        None => Err(format!("schema: is missing; expected {DYNAMO_SCHEMA:?}")),
    }
}

fn record<T: DeserializeOwned>(line: &str, is_wrapped: bool) -> Result<T, String> {
    if is_wrapped { json::decode::<Wrapped<T>>(line).map(|wrapped| wrapped.event) } else { json::decode(line) }
}

fn served(record: RequestEnd, place: SourcePlace) -> Result<Served, String> {
    let RequestEnd { event_time_unix_ms: event_ms, agent_context, request } = record;
    if request.request_id.trim().is_empty() {
        return Err("request.request_id: is blank".to_owned());
    }
    let total_ms = request.total_time_ms.unwrap_or(0.0);
    if !(0.0..=MAX_NUMBER).contains(&total_ms) {
        return Err(format!("request.total_time_ms: {total_ms} ms is out of range; write 0 or more"));
    }
    // Below 2^53, so that differences of times are exact in a float.
    let is_exact = |ms: u64| ms <= MAX_NUMBER as u64;
    if !is_exact(event_ms) || !request.request_received_ms.is_none_or(is_exact) {
        return Err(format!("event_time_unix_ms: is beyond {MAX_NUMBER:e}; times are milliseconds since 1970"));
    }
    let total_ms_whole = total_ms.round() as u64;
    let start_ms = request.request_received_ms.unwrap_or(event_ms.saturating_sub(total_ms_whole));
    let end_ms = match (request.request_received_ms, request.total_time_ms) {
        (Some(received_ms), Some(_)) => received_ms + total_ms_whole,
        _ => event_ms,
    };
    let (session, parent) = match agent_context {
        Some(context) => {
            check_name("agent_context.session_id", &context.session_id)?;
            (Some(context.session_id), context.parent_session_id)
        }
        None => (None, None),
    };
    Ok(Served { request, session, parent, start_ms, end_ms, place })
}

fn check_tool(record: &ToolEnd) -> Result<(), String> {
    let tool = &record.tool;
    check_name("agent_context.session_id", &record.agent_context.session_id)?;
    check_name("tool.tool_call_id", &tool.tool_call_id)?;
    check_name("tool.tool_class", &tool.tool_class)?;
    if let (Some(start_ms), Some(end_ms)) = (tool.started_at_unix_ms, tool.ended_at_unix_ms)
        && end_ms < start_ms
    {
        return Err(format!("tool.ended_at_unix_ms: {end_ms} is before {start_ms}, its start"));
    }
    if let Some(claude) = &tool.claude {
        check_name("tool.claude.source_request_id", &claude.source_request_id)?;
        check_name("tool.claude.consumer_request_id", claude.consumer_request_id.as_deref().unwrap_or("none"))?;
        check_name("tool.claude.child_session_id", claude.child_session_id.as_deref().unwrap_or("none"))?;
    }
    Ok(())
}

fn check_name(field: &str, text: &str) -> Result<(), String> {
    if text.trim().is_empty() { Err(format!("{field}: is blank")) } else { Ok(()) }
}
