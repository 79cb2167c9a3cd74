//! The operator model against latencies of the reference's estimator.

mod common;

use std::path::Path;

use common::{Desk, dynosim, finish, root};
use dynosim::perf_check::{Comparison, compare};
use dynosim::perf_data::DataFiles;

const SAMPLE: &str = "tests/perf/latency_sample.csv";

fn compare_at(path: &Path) -> Comparison {
    compare(&DataFiles::default(), path).expect("the file is well formed")
}

#[test]
fn a_sample_of_the_reference_s_latencies() {
    let comparison = compare_at(&root().join(SAMPLE));
    assert!(comparison.different.is_empty(), "{}", comparison.to_text());
    assert_eq!((comparison.rows(), comparison.skipped), (108, 0));
    let families = ["Meta-Llama-3.1-8B", "Qwen3-32B-FP8", "Qwen3-30B-A3B", "Mixtral", "DeepSeek-V3", "gpt-oss-120b"];
    for family in families {
        for phase in ["prefill", "decode"] {
            let is_of = |[name, .., of_phase]: &[String; 4]| name.contains(family) && of_phase == phase;
            assert!(comparison.groups.keys().any(is_of), "{family} {phase}");
        }
    }
}

#[test]
fn the_command_fails_when_a_row_differs_and_when_the_file_is_wrong() {
    let desk = Desk::new();
    let text = std::fs::read_to_string(root().join(SAMPLE)).unwrap();
    let mut lines = text.lines();
    let (header, row) = (lines.next().unwrap(), lines.next().unwrap());
    let (key, latency) = row.rsplit_once(',').unwrap();
    let off = latency.parse::<f64>().unwrap() * 1.00001;
    let check = |content: String| {
        let path = desk.path("golden.csv");
        std::fs::write(&path, content).unwrap();
        finish(dynosim().args(["perf-db", "check"]).arg(path))
    };
    let same = check(format!("{header}\n{row}\n"));
    assert_eq!((same.code, same.stderr.as_str()), (Some(0), ""));
    assert!(same.stdout.ends_with("1 of 1 rows equal within 1e-6; 0 of other phases\n"), "{}", same.stdout);
    let differs = check(format!("{header}\n{key},{off}\n"));
    assert_eq!(differs.code, Some(1));
    assert!(differs.stderr.contains("differs: meta-llama/Meta-Llama-3.1-8B,h200_sxm,vllm"), "{}", differs.stderr);
    for (content, message) in [
        (format!("{header}\n{}\n", row.replace("h200", "h20")), "golden.csv:2: hardware `h20_sxm` is not known"),
        (
            format!("{header}\n{}\n", row.replace(",1,1,1,", ",3,1,1,")),
            "golden.csv:2: tensor: 3 does not divide the 32",
        ),
        (format!("{header}\n{key},no\n"), "golden.csv:2: latency_ms: `no` is no duration"),
        (format!("{row}\n"), "golden.csv:1: the columns must be model,hardware"),
    ] {
        let refused = check(content);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(message), "{}", refused.stderr);
    }
}
