//! The figures of a trace as text with a table and plots, and as JSON.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table};
use dynosim_schemas::summary::Distribution;
use serde_json::{Value, json};

use super::arrivals::ArrivalStats;
use super::lengths::LengthClass;
use super::observe::{LengthStats, TraceStats};
use crate::output::{TABLE_STYLE, decimals, separated};

/// Characters of a full bar.
const BAR_WIDTH: u64 = 40;
/// Heights of a column of the plot of arrivals.
const STEPS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const HEADER: [&str; 9] = ["Per request", "mean", "min", "p50", "p75", "p90", "p99", "max", "total"];

/// What is in a trace, for people.
pub(super) fn to_text(stats: &TraceStats) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    for file in &stats.files {
        let (rows, bytes) = (separated(file.rows), separated(file.digest.bytes));
        let _ = writeln!(text, "{}: {rows} rows, {bytes} bytes, BLAKE3 {}", file.path, file.digest.blake3);
    }
    if stats.left_out > 0 {
        let _ = writeln!(text, "Left out: {} rows that were not served", separated(stats.left_out));
    }
    let _ = writeln!(text, "{}", table(stats));
    facts(stats).iter().for_each(|fact| text += &format!("{fact}\n"));
    if let Some(arrivals) = &stats.arrivals {
        text += &arrivals_plot(arrivals);
    }
    text += &lengths_plot("Prompts (tokens)", &stats.input.classes);
    text += &lengths_plot("Outputs (tokens)", &stats.output.classes);
    text
}

fn table(stats: &TraceStats) -> Table {
    let mut table = Table::new();
    table.load_style(TABLE_STYLE).set_header(HEADER);
    table.add_row(row("Prompt (tokens)", &stats.input.distribution, Some(stats.input.total)));
    table.add_row(row("Output (tokens)", &stats.output.distribution, Some(stats.output.total)));
    if let Some(gaps_ms) = stats.arrivals.as_ref().and_then(|arrivals| arrivals.gaps_ms.as_ref()) {
        table.add_row(row("Since the one before (ms)", gaps_ms, None));
    }
    if stats.sessions < stats.requests {
        table.add_row(row("Turns, per session", &stats.turns, Some(stats.requests)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(name: &str, d: &Distribution, total: Option<u64>) -> Vec<String> {
    let figures = [d.mean, d.min, d.median, d.p75, d.p90, d.p99, d.max];
    let total = total.map_or_else(|| "-".to_owned(), separated);
    std::iter::once(name.to_owned()).chain(figures.map(decimals)).chain([total]).collect()
}

fn facts(stats: &TraceStats) -> Vec<String> {
    let mut facts = vec![format!("Requests: {}", separated(stats.requests)), sessions(stats)];
    facts.push(match &stats.arrivals {
        None => "Arrivals: not recorded".to_owned(),
        Some(arrivals) => {
            let order = if arrivals.in_order { "" } else { "; not in order of time in the file" };
            let span = decimals(arrivals.span_ms / 1000.0);
            match rates(stats) {
                None if arrivals.count < stats.requests => format!(
                    "Arrivals: recorded for {} of {} requests, over {span} s{order}",
                    separated(arrivals.count),
                    separated(stats.requests)
                ),
                None => "Arrivals: all at once".to_owned(),
                Some([requests, input, output]) => format!(
                    "Arrivals: {} requests/s over {span} s, {} prompt and {} output tokens/s{order}",
                    decimals(requests),
                    decimals(input),
                    decimals(output)
                ),
            }
        }
    });
    facts.push(match stats.blocks {
        None => "Ideal block reuse: unknown (the trace does not say what prompts share)".to_owned(),
        Some((blocks, new_blocks)) => format!(
            "Ideal block reuse: {:.1} % ({} blocks of {} tokens, {} of them distinct)",
            100.0 * reuse_ratio(blocks, new_blocks),
            separated(blocks),
            separated(stats.block_size.unwrap_or_default()),
            separated(new_blocks)
        ),
    });
    if let Some(graph) = &stats.graph {
        let plays = separated(graph.plays as u64);
        facts.push(format!(
            "Agents: {plays} plays, models {}, graph digest {}",
            graph.models.join(", "),
            graph.graph_digest
        ));
    }
    facts
}

fn sessions(stats: &TraceStats) -> String {
    if stats.sessions == stats.requests {
        "Sessions: every request by itself".to_owned()
    } else {
        format!("Sessions: {}, of up to {} turns", separated(stats.sessions), separated(stats.turns.max as u64))
    }
}

/// Requests, prompt tokens and output tokens per second, if all have a time, and some passes between the first and the
/// last.
fn rates(stats: &TraceStats) -> Option<[f64; 3]> {
    let arrivals = stats.arrivals.as_ref()?;
    let per_second = |amount: u64| amount as f64 / (arrivals.span_ms / 1000.0);
    (arrivals.span_ms > 0.0 && arrivals.count == stats.requests)
        .then(|| [stats.requests, stats.input.total, stats.output.total].map(per_second))
}

/// The share of blocks that is not new.
fn reuse_ratio(blocks: u64, new_blocks: u64) -> f64 {
    if blocks == 0 { 0.0 } else { (blocks - new_blocks) as f64 / blocks as f64 }
}

/// Arrivals along the span, as columns of a line.
fn arrivals_plot(arrivals: &ArrivalStats) -> String {
    let Some(&highest) = arrivals.columns.iter().max().filter(|_| arrivals.span_ms > 0.0) else {
        return String::new();
    };
    let steps = STEPS.len() as u64 - 1;
    // What is there at all is seen.
    let step = |count: u64| STEPS[(count * steps).div_ceil(highest.max(1)) as usize];
    let line: String = arrivals.columns.iter().map(|&count| step(count)).collect();
    let column_s = arrivals.span_ms / 1000.0 / arrivals.columns.len() as f64;
    format!(
        "\nArrivals over time, {} s a column, at most {} requests/s\n  {line}\n",
        decimals(column_s),
        decimals(highest as f64 / column_s)
    )
}

/// Classes of lengths, as bars.
fn lengths_plot(title: &str, classes: &[LengthClass]) -> String {
    let most = classes.iter().map(|class| class.count).max().unwrap_or(0).max(1);
    let total: u64 = classes.iter().map(|class| class.count).sum();
    let mut text = format!("\n{title}\n");
    for class in classes {
        let bar = "█".repeat((class.count * BAR_WIDTH).div_ceil(most) as usize);
        let range = match class.below - class.from {
            1 => separated(class.from),
            _ => format!("{} to {}", separated(class.from), separated(class.below - 1)),
        };
        let share = 100.0 * class.count as f64 / total.max(1) as f64;
        let _ = writeln!(text, "  {range:>24}  {share:>5.1} %  {bar}");
    }
    text
}

/// What is in a trace, for programs.
pub(super) fn to_json(stats: &TraceStats) -> Value {
    let files: Vec<Value> = stats
        .files
        .iter()
        .map(|file| {
            let digest = &file.digest;
            json!({ "path": file.path, "rows": file.rows, "bytes": digest.bytes, "blake3": digest.blake3 })
        })
        .collect();
    let rates = rates(stats);
    json!({
        "format": stats.format,
        "files": files,
        "left_out_rows": stats.left_out,
        "requests": stats.requests,
        "input_tokens": lengths(&stats.input),
        "output_tokens": lengths(&stats.output),
        "sessions": { "count": stats.sessions, "turns": distribution(&stats.turns) },
        "arrivals": stats.arrivals.as_ref().map(|arrivals| json!({
            "span_ms": arrivals.span_ms,
            "in_order": arrivals.in_order,
            "gaps_ms": arrivals.gaps_ms.as_ref().map(distribution),
            "requests_per_second": rates.map(|[requests, ..]| requests),
            "input_tokens_per_second": rates.map(|[_, input, _]| input),
            "output_tokens_per_second": rates.map(|[.., output]| output),
            "counts_over_time": arrivals.columns,
        })),
        "ideal_block_reuse": stats.blocks.map(|(blocks, new_blocks)| json!({
            "block_size": stats.block_size,
            "blocks": blocks,
            "distinct_blocks": new_blocks,
            "ratio": reuse_ratio(blocks, new_blocks),
        })),
        "agentic_graph": stats.graph.as_ref().map(crate::traces::agentic::Identity::to_json),
    })
}

fn lengths(lengths: &LengthStats) -> Value {
    let mut json = distribution(&lengths.distribution);
    json["total"] = json!(lengths.total);
    json["classes"] = lengths
        .classes
        .iter()
        .map(|class| json!({ "from": class.from, "below": class.below, "count": class.count }))
        .collect();
    json
}

fn distribution(d: &Distribution) -> Value {
    json!({
        "count": d.count,
        "mean": d.mean,
        "min": d.min,
        "median": d.median,
        "p75": d.p75,
        "p90": d.p90,
        "p95": d.p95,
        "p99": d.p99,
        "max": d.max,
        "std": d.std,
    })
}
