//! `docs/requests.md`, made from the description of the table so that the two cannot differ.

use std::fmt::Write;

use dynosim_schemas::decision_row::DECISION_COLUMNS;
use dynosim_schemas::play_row::PLAY_COLUMNS;
use dynosim_schemas::request_row::{COLUMNS, REASONS};
use dynosim_schemas::table::{Column, ColumnKind};

/// What a reader has to know before the tables.
const INTRODUCTION: &str = "\
<!-- Generated from schemas/src/request_row.rs by `UPDATE=1 cargo test --test output_docs`. Do not edit. -->

# The per-request table

`requests.parquet` has one row for every request that arrived, sorted by `request_index`, whatever became of the
request: look at `status` before you average anything. Times are milliseconds of virtual time, counted from the start
of the simulation.

```python
import pandas as pd

requests = pd.read_parquet(\"aisimulate-output/requests.parquet\")
requests[requests.status == \"completed\"].ttft_ms.quantile([0.5, 0.99])
```

```sql
-- DuckDB
SELECT worker_id, count(*), quantile_disc(ttft_ms, 0.99)
FROM 'aisimulate-output/requests.parquet'
WHERE status = 'completed'
GROUP BY worker_id;
```

With `--capture-per-request`, `requests.jsonl` has the same rows as one JSON object a line, keys sorted, and one field
more: `admission_history`, a list of every admission to a running batch, in order of time, each with `at_ms` (ms),
`pool` (`aggregated`, `prefill` or `decode`), `worker_id` and `reused_tokens` (tokens).
";

/// What the Parquet file says about itself.
const METADATA: &str = "
## Metadata of the Parquet file

| key | value |
| --- | --- |
| `dynosim.schema_version` | Version of this table's layout. |
| `dynosim.version` | Version of dynosim that wrote the file. |
| `dynosim.config_digest` | Hash of the resolved config, the same as `provenance.config_digest` of `prediction.json`. |
| `dynosim.column.<name>` | Unit and meaning of a column: `<unit>; <meaning>`. |

DuckDB shows them with `SELECT decode(key), decode(value) FROM parquet_kv_metadata('requests.parquet');`.
";

/// The text of `docs/requests.md`.
#[must_use]
pub fn requests_doc() -> String {
    let mut text = INTRODUCTION.to_owned();
    push_columns(&mut text, COLUMNS);
    text.push_str("\n## Reasons\n\n| `reason` | `status` | meaning |\n| --- | --- | --- |\n");
    for (reason, status, meaning) in REASONS {
        let _ = writeln!(text, "| `{}` | `{}` | {} |", reason.as_str(), status.as_str(), in_table(meaning));
    }
    text.push_str(METADATA);
    text
}

/// What `decisions.parquet` is, for its documentation.
const DECISIONS_INTRODUCTION: &str = "# decisions.parquet

<!-- Generated from `DECISION_COLUMNS` in schemas/src/decision_row.rs. Change it there, then run
     `UPDATE=1 cargo test --test output_docs`. -->

Why the KV router sent each request where it did: with `--decisions`, one row for each worker (and rank) that the router
could have chosen. Times are milliseconds of virtual time.

```sql
-- DuckDB: requests that did not go where most of their prompt was cached, and what that saved elsewhere
SELECT request_index, max(overlap_blocks) AS best, max(overlap_blocks) FILTER (chosen) AS taken, min(cost) AS cost
FROM 'aisimulate-output/decisions.parquet'
GROUP BY decision_index, request_index HAVING taken < best;
```
";

/// The text of `docs/decisions.md`.
#[must_use]
pub fn decisions_doc() -> String {
    let mut text = DECISIONS_INTRODUCTION.to_owned();
    push_columns(&mut text, DECISION_COLUMNS);
    text
}

/// What `plays.parquet` is, for its documentation.
const PLAYS_INTRODUCTION: &str = "# plays.parquet

<!-- Generated from `PLAY_COLUMNS` in schemas/src/play_row.rs. Change it there, then run
     `UPDATE=1 cargo test --test output_docs`. -->

How long whole trajectories of agents took: one row for each play of an agentic workload, sorted by `play_index`. Times
are milliseconds of virtual time. `requests.parquet` has the requests of each play, by the same `play_index`.

```sql
-- DuckDB: the slowest plays, and how much of their time their requests waited in queues
SELECT play_id, any_value(trajectory_latency_ms) AS latency_ms, count(*) AS requests, sum(queue_ms) AS queue_ms
FROM 'aisimulate-output/plays.parquet' JOIN 'aisimulate-output/requests.parquet' USING (play_index)
GROUP BY play_id ORDER BY latency_ms DESC LIMIT 10;
```
";

/// The text of `docs/plays.md`.
#[must_use]
pub fn plays_doc() -> String {
    let mut text = PLAYS_INTRODUCTION.to_owned();
    push_columns(&mut text, PLAY_COLUMNS);
    text
}

fn push_columns<R>(text: &mut String, columns: &[Column<R>]) {
    text.push_str("\n## Columns\n\n| column | type | unit | meaning |\n| --- | --- | --- | --- |\n");
    for column in columns {
        let null = if column.nullable { ", or null" } else { "" };
        let (kind, meaning) = (kind_name(column.kind), in_table(column.meaning));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{}` | {kind}{null} | {} | {meaning} |", column.name, in_table(column.unit));
    }
}

const fn kind_name(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Int => "int64",
        ColumnKind::Float => "float64",
        ColumnKind::Text => "text",
        ColumnKind::Bool => "bool",
    }
}

/// A bar would end the cell.
fn in_table(text: &str) -> String {
    text.replace('|', "\\|")
}
