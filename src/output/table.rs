//! The table that a run prints, and the lines below it.

use std::fmt::Write;
use std::path::Path;

use comfy_table::{CellAlignment, ContentLineStyle, LineStyle, Table, TableStyle};
use dynosim_schemas::summary::{Distribution, PlayFigures, Summary};

use super::prediction::WallClock;

const TITLE: &str = "dynosim | LLM serving metrics";

const HEADER: [&str; 8] = ["Metric", "avg", "min", "max", "p99", "p90", "p75", "std"];

const MISSING: &str = "N/A";

/// A heavy head over a light body.
pub const TABLE_STYLE: TableStyle = TableStyle::new()
    .top_border(LineStyle::new('┏', '━', '┳', '┓'))
    .header_lines(ContentLineStyle::new('┃', '┃', '┃'))
    .header_separator(LineStyle::new('┡', '━', '╇', '┩'))
    .content_lines(ContentLineStyle::new('│', '│', '│'))
    .bottom_border(LineStyle::new('└', '─', '┴', '┘'));

/// What the terminal shows after a run: the table, the figures below it and where the report is.
#[must_use]
pub fn summary_table(summary: &Summary, wall_clock: &WallClock, report: &Path) -> String {
    let table = metrics_table(summary).to_string();
    let width = table.lines().next().map_or(0, |line| line.chars().count());
    let indent = width.saturating_sub(TITLE.chars().count()) / 2;
    let mut text = format!("{:indent$}{TITLE}\n{table}\n", "");
    for line in lines_below(summary, wall_clock) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "Saved full report to: {}", report.display());
    text
}

fn metrics_table(summary: &Summary) -> Table {
    let mut table = Table::new();
    table.load_style(TABLE_STYLE).set_header(HEADER);
    table.add_rows([
        distribution_row("Time to First Token (ms)", &summary.ttft_ms),
        distribution_row("Time to Second Token (ms)", &summary.ttst_ms),
        distribution_row("Request Latency (ms)", &summary.e2e_latency_ms),
        distribution_row("Inter Token Latency (ms)", &summary.itl_ms),
        distribution_row(
            "Output Token Throughput Per User (tokens/sec/user)",
            &summary.output_token_throughput_per_user,
        ),
        total_row("Output Token Throughput (tokens/sec)", summary.output_throughput_tok_s),
        total_row("Request Throughput (requests/sec)", summary.request_throughput_rps),
        total_row("Request Count (requests)", summary.completed_requests as f64),
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn distribution_row(metric: &str, d: &Distribution) -> Vec<String> {
    let figures = [d.mean, d.min, d.max, d.p99, d.p90, d.p75, d.std];
    let cells = figures.map(|v| if d.count == 0 { MISSING.to_owned() } else { decimals(v) });
    std::iter::once(metric.to_owned()).chain(cells).collect()
}

/// A row of a figure that the run as a whole has, and no single request.
fn total_row(metric: &str, value: f64) -> Vec<String> {
    let mut row = vec![metric.to_owned(), decimals(value)];
    row.resize(HEADER.len(), MISSING.to_owned());
    row
}

fn lines_below(summary: &Summary, wall_clock: &WallClock) -> Vec<String> {
    let mut lines = vec![
        format!("Wall Time (ms): {}", decimals(wall_clock.wall_time_ms)),
        format!("Prefix Cache Reused Ratio: {}", ratio(summary.prefix_cache_reused_ratio)),
        format!(
            "First Admission Prefix Cache Reused Ratio: {}",
            ratio(summary.first_admission_prefix_cache_reused_ratio)
        ),
    ];
    lines.extend(summary.plays.as_ref().map(plays_line));
    lines.extend(goodput_line(summary));
    lines.extend(shortfall_line(summary));
    lines
}

/// A share of reused tokens, if anybody knows what prompts share.
fn ratio(ratio: Option<f64>) -> String {
    ratio
        .map_or_else(|| "unknown (the trace does not say what prompts share)".to_owned(), |ratio| format!("{ratio:.4}"))
}

/// How many trajectories of agents got to their end, and how long they took.
fn plays_line(plays: &PlayFigures) -> String {
    let latency = &plays.trajectory_latency_ms;
    format!(
        "Trajectories: {} of {} completed, latency {} ms on average, {} ms at p99",
        separated(plays.completed_plays),
        separated(plays.num_plays),
        if latency.count == 0 { MISSING.to_owned() } else { decimals(latency.mean) },
        if latency.count == 0 { MISSING.to_owned() } else { decimals(latency.p99) },
    )
}

fn goodput_line(summary: &Summary) -> Option<String> {
    let goodput = summary.goodput.as_ref()?;
    if summary.completed_requests == 0 {
        return Some(format!("Goodput: {MISSING} (no request completed)"));
    }
    Some(format!(
        "Goodput: {:.1} % of completed requests ({} of {}), {} requests/sec",
        goodput.completed_requests as f64 * 100.0 / summary.completed_requests as f64,
        separated(goodput.completed_requests),
        separated(summary.completed_requests),
        decimals(goodput.request_throughput_rps),
    ))
}

/// Says that the figures above are not about every request, and where to look for the others.
fn shortfall_line(summary: &Summary) -> Option<String> {
    let counts = [
        (summary.rejected_requests, "rejected"),
        (summary.failed_requests, "failed"),
        (summary.unfinished_requests, "unfinished"),
    ];
    let parts: Vec<_> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", separated(*count)))
        .collect();
    if parts.is_empty() {
        return None;
    }
    Some(format!(
        "Not completed: {} of {} requests; see columns `status` and `reason` of requests.parquet",
        parts.join(", "),
        separated(summary.num_requests),
    ))
}

/// Two decimals and thousands separators.
pub(crate) fn decimals(value: f64) -> String {
    let text = format!("{:.2}", value.abs());
    let Some((whole, fraction)) = text.split_once('.') else { return MISSING.to_owned() };
    let sign = if value < 0.0 && text.bytes().any(|b| matches!(b, b'1'..=b'9')) { "-" } else { "" };
    format!("{sign}{}.{fraction}", grouped(whole))
}

/// Thousands separators.
pub(crate) fn separated(count: u64) -> String {
    grouped(&count.to_string())
}

/// Puts a comma before every third digit from the right.
fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use dynosim_schemas::summary::Goodput;

    use super::*;

    fn distribution(mean: f64) -> Distribution {
        Distribution {
            count: 3,
            mean,
            min: 1.0,
            max: 12_345.678,
            p99: 99.0,
            p90: 90.0,
            p75: 75.0,
            std: 0.5,
            ..Distribution::default()
        }
    }

    fn summary() -> Summary {
        Summary {
            num_requests: 1_234_567,
            completed_requests: 1_234_000,
            ttft_ms: distribution(1234.5),
            e2e_latency_ms: distribution(2.0),
            output_throughput_tok_s: 98_765.432,
            request_throughput_rps: 12.0,
            prefix_cache_reused_ratio: Some(0.25),
            first_admission_prefix_cache_reused_ratio: Some(0.0),
            ..Summary::default()
        }
    }

    fn render(summary: &Summary) -> String {
        let wall_clock = WallClock { wall_time_ms: 1500.25, ..WallClock::default() };
        summary_table(summary, &wall_clock, Path::new("out/prediction.json"))
    }

    #[test]
    fn table_looks_like_this() {
        let expected = "
                                             dynosim | LLM serving metrics
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━┳━━━━━━━━━━━┳━━━━━━━┳━━━━━━━┳━━━━━━━┳━━━━━━┓
┃ Metric                                             ┃          avg ┃  min ┃       max ┃   p99 ┃   p90 ┃   p75 ┃  std ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━╇━━━━━━━━━━━╇━━━━━━━╇━━━━━━━╇━━━━━━━╇━━━━━━┩
│ Time to First Token (ms)                           │     1,234.50 │ 1.00 │ 12,345.68 │ 99.00 │ 90.00 │ 75.00 │ 0.50 │
│ Time to Second Token (ms)                          │          N/A │  N/A │       N/A │   N/A │   N/A │   N/A │  N/A │
│ Request Latency (ms)                               │         2.00 │ 1.00 │ 12,345.68 │ 99.00 │ 90.00 │ 75.00 │ 0.50 │
│ Inter Token Latency (ms)                           │          N/A │  N/A │       N/A │   N/A │   N/A │   N/A │  N/A │
│ Output Token Throughput Per User (tokens/sec/user) │          N/A │  N/A │       N/A │   N/A │   N/A │   N/A │  N/A │
│ Output Token Throughput (tokens/sec)               │    98,765.43 │  N/A │       N/A │   N/A │   N/A │   N/A │  N/A │
│ Request Throughput (requests/sec)                  │        12.00 │  N/A │       N/A │   N/A │   N/A │   N/A │  N/A │
│ Request Count (requests)                           │ 1,234,000.00 │  N/A │       N/A │   N/A │   N/A │   N/A │  N/A │
└────────────────────────────────────────────────────┴──────────────┴──────┴───────────┴───────┴───────┴───────┴──────┘
Wall Time (ms): 1,500.25
Prefix Cache Reused Ratio: 0.2500
First Admission Prefix Cache Reused Ratio: 0.0000
Saved full report to: out/prediction.json
";
        assert_eq!(format!("\n{}", render(&summary())), expected);
    }

    #[test]
    fn nothing_is_said_of_shortfall_or_goodput_without_need() {
        let text = render(&summary());
        assert!(!text.contains("Goodput") && !text.contains("Not completed"), "{text}");
    }

    #[test]
    fn shortfall_and_goodput_have_lines() {
        let goodput = Goodput { completed_requests: 973, request_throughput_rps: 1200.5, output_throughput_tok_s: 1.0 };
        let mut summary = Summary {
            num_requests: 1004,
            completed_requests: 1000,
            rejected_requests: 3,
            unfinished_requests: 1,
            goodput: Some(goodput),
            ..Summary::default()
        };
        let text = render(&summary);
        assert!(
            text.contains("\nGoodput: 97.3 % of completed requests (973 of 1,000), 1,200.50 requests/sec\n"),
            "{text}"
        );
        assert!(
            text.contains(
                "\nNot completed: 3 rejected, 1 unfinished of 1,004 requests; \
                 see columns `status` and `reason` of requests.parquet\n"
            ),
            "{text}"
        );
        summary.completed_requests = 0;
        assert!(render(&summary).contains("\nGoodput: N/A (no request completed)\n"));
    }

    #[test]
    fn reuse_that_nobody_knows_is_not_none() {
        let mut summary = summary();
        summary.forget_reuse();
        let text = render(&summary);
        assert!(text.contains("\nPrefix Cache Reused Ratio: unknown (the trace"), "{text}");
        assert!(text.contains("\nFirst Admission Prefix Cache Reused Ratio: unknown (the trace"), "{text}");
    }

    #[test]
    fn numbers_are_grouped() {
        let cases = [
            (0.0, "0.00"),
            (-0.001, "0.00"),
            (999.994, "999.99"),
            (999.996, "1,000.00"),
            (-1234.5, "-1,234.50"),
            (1e6, "1,000,000.00"),
            (f64::NAN, "N/A"),
        ];
        for (value, text) in cases {
            assert_eq!(decimals(value), text);
        }
        assert_eq!(separated(100), "100");
        assert_eq!(separated(1000), "1,000");
    }
}
