"""Recomputes the summary of a run from its requests.parquet, once with DuckDB and once with pandas.

usage: check.py FOLDER
Exit codes: 0 everything agrees, 1 something differs, 77 a library is missing.
"""

import json
import math
import pathlib
import sys

try:
    import duckdb
    import pandas
    import pyarrow  # noqa: F401  (pandas reads Parquet with it)
except ImportError as missing:
    print(missing)
    sys.exit(77)

LATENCIES = ["ttft_ms", "ttst_ms", "tpot_ms", "e2e_latency_ms"]
PERCENTILES = {"median": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99}


def column(latency):
    return "e2e_ms" if latency == "e2e_latency_ms" else latency


def rank(count, percentile):
    """The index of a percentile in the sorted samples, rounded half away from zero."""
    return int(math.floor((count - 1) * percentile / 100 + 0.5))


def with_duckdb(table):
    done = f"FROM read_parquet('{table}') WHERE status = 'completed'"
    cursor = duckdb.connect()

    def one(what, source=done):
        return cursor.execute(f"SELECT {what} {source}").fetchall()[0][0]

    figures = {
        "num_requests": one("count(*)", f"FROM read_parquet('{table}')"),
        "preemptions": one("sum(preemptions)::BIGINT", f"FROM read_parquet('{table}')"),
        "completed_requests": one("count(*)"),
        "total_input_tokens": one("sum(input_tokens)::BIGINT"),
        "total_output_tokens": one("sum(output_tokens)::BIGINT"),
        "duration_ms": one("max(end_ms)"),
        "mean_itl_ms": one("fsum(last_token_ms - first_token_ms) / sum(output_tokens - 1)", done + " AND output_tokens > 0"),
        "prefix_cache_reused_ratio": one("sum(reused_tokens) / sum(input_tokens)"),
        "first_admission_prefix_cache_reused_ratio": one("sum(first_admission_reused_tokens) / sum(input_tokens)"),
        "goodput_completed_requests": one("count(*) FILTER (WHERE sla_met)"),
    }
    for status in ["rejected", "failed", "unfinished"]:
        figures[f"{status}_requests"] = one("count(*)", f"FROM read_parquet('{table}') WHERE status = '{status}'")
    for latency in LATENCIES:
        name = column(latency)
        samples = [value for (value,) in cursor.execute(f"SELECT {name} {done} AND {name} IS NOT NULL ORDER BY 1").fetchall()]
        figures[f"mean_{latency}"] = one(f"favg({name})")
        figures[f"std_{latency}"] = one(f"stddev_pop({name})")
        figures[f"min_{latency}"] = one(f"min({name})")
        figures[f"max_{latency}"] = one(f"max({name})")
        for word, percentile in PERCENTILES.items():
            figures[f"{word}_{latency}"] = samples[rank(len(samples), percentile)]
    return figures


def with_pandas(table):
    rows = pandas.read_parquet(table)
    done = rows[rows.status == "completed"]
    talking = done[done.output_tokens > 0]
    figures = {
        "num_requests": len(rows),
        "preemptions": rows.preemptions.sum(),
        "completed_requests": len(done),
        "total_input_tokens": done.input_tokens.sum(),
        "total_output_tokens": done.output_tokens.sum(),
        "duration_ms": done.end_ms.max(),
        "mean_itl_ms": (talking.last_token_ms - talking.first_token_ms).sum() / (talking.output_tokens - 1).sum(),
        "prefix_cache_reused_ratio": done.reused_tokens.sum() / done.input_tokens.sum(),
        "first_admission_prefix_cache_reused_ratio": done.first_admission_reused_tokens.sum() / done.input_tokens.sum(),
        "goodput_completed_requests": done.sla_met.astype(bool).sum(),
    }
    for status in ["rejected", "failed", "unfinished"]:
        figures[f"{status}_requests"] = (rows.status == status).sum()
    for latency in LATENCIES:
        samples = done[column(latency)].dropna().sort_values().to_list()
        figures[f"mean_{latency}"] = done[column(latency)].mean()
        figures[f"std_{latency}"] = done[column(latency)].std(ddof=0)
        figures[f"min_{latency}"] = samples[0]
        figures[f"max_{latency}"] = samples[-1]
        for word, percentile in PERCENTILES.items():
            figures[f"{word}_{latency}"] = samples[rank(len(samples), percentile)]
    return figures


def main():
    folder = pathlib.Path(sys.argv[1])
    summary = json.loads((folder / "prediction.json").read_text())["summary"]
    seconds = summary["duration_ms"] / 1000
    wrong = 0
    for tool, recompute in [("duckdb", with_duckdb), ("pandas", with_pandas)]:
        figures = recompute(str(folder / "requests.parquet"))
        figures["request_throughput_rps"] = figures["completed_requests"] / seconds
        figures["output_throughput_tok_s"] = figures["total_output_tokens"] / seconds
        figures["goodput_request_throughput_rps"] = figures["goodput_completed_requests"] / seconds
        for name, value in figures.items():
            if not math.isclose(float(value), summary[name], rel_tol=1e-9, abs_tol=1e-12):
                wrong += 1
                print(f"{tool}: {name}: the rows give {value}, the summary says {summary[name]}")
    sys.exit(1 if wrong else 0)


main()
