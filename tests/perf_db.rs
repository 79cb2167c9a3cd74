//! `dynosim perf-db` and the data that the program carries.

use std::path::Path;
use std::process::{Command, Output};

fn perf_db(data: Option<&Path>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dynosim"));
    command.arg("perf-db").args(arguments).env_remove("DYNOSIM_DATA");
    if let Some(folder) = data {
        command.env("DYNOSIM_DATA", folder);
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn refused(output: &Output, part: &str) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains(part) && message.lines().count() == 1, "{message}");
}

#[test]
fn what_the_program_carries_is_listed() {
    let output = perf_db(None, &["list"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let list = text(&output.stdout);
    for part in ["h200_sxm   vllm    0.24.0", "l40s       trtllm  1.3.0rc20", "meta-llama/Meta-Llama-3.1-8B-Instruct"] {
        assert!(list.contains(part), "{part} in {list}");
    }
}

#[test]
fn every_row_of_a_table_can_be_read() {
    let output = perf_db(None, &["show", "h200_sxm", "vllm"]);
    let shown = text(&output.stdout);
    assert!(shown.contains("gemm                    107225 rows"), "{shown}{}", text(&output.stderr));
    assert!(shown.contains("custom_allreduce            69 rows"), "{shown}");
}

#[test]
fn unknown_names_are_refused_with_the_nearest() {
    refused(&perf_db(None, &["show", "h20_sxm", "vllm"]), "hardware `h20_sxm` is not known; nearest known: h200_sxm");
    refused(&perf_db(None, &["show", "h200_sxm", "tgi"]), "no tables for `h200_sxm` and `tgi`");
    refused(&perf_db(Some(Path::new("/nowhere")), &["list"]), "DYNOSIM_DATA: /nowhere is no folder");
}

#[test]
fn a_damaged_table_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let tables = folder.path().join("perf/h200_sxm/vllm");
    std::fs::create_dir_all(&tables).unwrap();
    let sound = std::fs::read("data/perf/h200_sxm/vllm/gemm.parquet").unwrap();
    std::fs::write(tables.join("gemm.parquet"), &sound[..sound.len() / 2]).unwrap();
    refused(&perf_db(Some(folder.path()), &["show", "h200_sxm", "vllm"]), "gemm.parquet: is no table");
}

#[test]
fn what_is_no_package_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().to_str().unwrap();
    refused(&perf_db(None, &["import", "Cargo.toml", "--output-dir", target]), "Cargo.toml: is no wheel");
    refused(&perf_db(None, &["import", "src", "--output-dir", target]), "has no query_versions.yaml");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
