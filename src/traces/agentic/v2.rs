//! The `agentic_mooncake` format: which version a file is, and version 2.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use dynosim_schemas::config::limits::MAX_TOKENS;
use dynosim_schemas::trace::agentic::{
    AGENTIC_SCHEMA, AGENTIC_VERSION, AgenticHeader, AgenticRow, LOCAL_SCOPE, SchemaProbe,
};

use super::{Graph, GraphNode, v1};
use crate::interrupt::Interrupt;
use crate::traces::files::{FileReport, each_line, some_requests};
use crate::traces::{SourcePlace, TraceError, json};

/// Reads a file of either version. Only version 1 needs `tokens_per_id`: a header has its own.
pub(in crate::traces) fn read(
    path: &str,
    tokens_per_id: u64,
    interrupt: &Interrupt,
) -> Result<(Graph, FileReport), TraceError> {
    let mut header: Option<AgenticHeader> = None;
    let (mut rows, mut old_rows) = (Vec::new(), Vec::new());
    let file: Arc<str> = path.into();
    let mut is_first = true;
    let report = each_line(path, interrupt, |line, number| {
        let place = SourcePlace::line(&file, number);
        if std::mem::take(&mut is_first) {
            let probe: SchemaProbe = json::decode(line)?;
            if probe.schema.is_some_and(|schema| schema == AGENTIC_SCHEMA) {
                header = Some(read_header(line)?);
                return Ok(false);
            }
        }
        match header {
            Some(_) => rows.push(GraphNode { row: json::decode::<AgenticRow>(line)?, place }),
            None => old_rows.push((v1::read_row(line)?, place)),
        }
        Ok(true)
    })?;
    some_requests(std::slice::from_ref(&report))?;
    let graph = match header {
        Some(header) => Graph::new(header.source, header.block_size, rows),
        None => v1::lower(path, old_rows, tokens_per_id),
    };
    Ok((graph?, report))
}

fn read_header(line: &str) -> Result<AgenticHeader, String> {
    let header: AgenticHeader = json::decode(line)?;
    if header.version != AGENTIC_VERSION {
        return Err(format!("version: {} is not known; write {AGENTIC_VERSION}", header.version));
    }
    if header.block_size == 0 || header.block_size > MAX_TOKENS {
        return Err(format!("block_size: {} is out of range; write 1 to {MAX_TOKENS}", header.block_size));
    }
    if header.hash_id_scope != LOCAL_SCOPE {
        return Err(format!("hash_id_scope: {:?} is not known; write {LOCAL_SCOPE:?}", header.hash_id_scope));
    }
    for (field, text) in [("source.format", &header.source.format), ("source.digest", &header.source.digest)] {
        if text.trim().is_empty() {
            return Err(format!("{field}: is blank; it says what the graph was made from"));
        }
    }
    Ok(header)
}

/// Reads a version 2 file that has just been written.
///
/// # Errors
/// If it cannot be read, or is no such file.
pub fn reload(path: &Path, interrupt: &Interrupt) -> Result<Graph, TraceError> {
    Ok(read(&path.to_string_lossy(), 1, interrupt)?.0)
}

/// Writes a graph as a version 2 file.
///
/// # Errors
/// If `out` cannot be written to.
pub fn write_v2(graph: &Graph, out: &mut impl Write) -> io::Result<()> {
    let header = AgenticHeader {
        schema: AGENTIC_SCHEMA.to_owned(),
        version: AGENTIC_VERSION,
        block_size: graph.block_size,
        hash_id_scope: LOCAL_SCOPE.to_owned(),
        source: graph.source.clone(),
    };
    write_line(&header, out)?;
    graph.nodes().iter().try_for_each(|node| write_line(&node.row, out))
}

fn write_line(row: &impl serde::Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, row)?;
    out.write_all(b"\n")
}
