//! A run's output from the outside: rows go in, a folder of finished files comes out.

use std::fs;

use dynosim::output::{
    KnownOutput, OutputFolder, Provenance, Report, RowSink, WallClock, file_metadata, summary_table,
};
use dynosim_schemas::request_row::{RequestRow, RequestStatus};
use dynosim_schemas::summary::Summary;
use smallvec::SmallVec;

fn row(index: u64) -> RequestRow {
    RequestRow {
        request_index: index,
        request_id: None,
        session_id: None,
        session_index: index,
        turn_index: 0,
        play_index: None,
        source_line: None,
        placement: None,
        handoff: None,
        status: RequestStatus::Unfinished,
        reason: None,
        arrival_ms: index as f64,
        first_token_ms: None,
        second_token_ms: None,
        last_token_ms: None,
        end_ms: None,
        input_tokens: 8,
        requested_output_tokens: 8,
        output_tokens: 0,
        preemptions: 0,
        knows_prefixes: true,
        admissions: SmallVec::new(),
        sla_met: None,
    }
}

fn sink(folder: &OutputFolder) -> RowSink {
    let table = folder.partial(KnownOutput::RequestsParquet).unwrap();
    let lines = folder.partial(KnownOutput::RequestsJsonl).unwrap();
    RowSink::start(table, Some(lines), &file_metadata("0.1.0", "1", "digest")).unwrap()
}

#[test]
fn a_run_fills_the_folder_at_its_end() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("new/out");
    let folder = OutputFolder::prepare(&path, false).unwrap();
    let mut sink = sink(&folder);
    sink.send((5..10).map(row).collect()).unwrap();
    sink.send((0..5).map(row).collect()).unwrap();
    let finished = sink.finish().unwrap();
    let summary = Summary { num_requests: 10, unfinished_requests: 10, ..Summary::default() };
    let wall_clock = WallClock::new(1.0, &summary);
    let report = Report {
        summary: &summary,
        config: &serde_json::json!({ "name": "test" }),
        provenance: &Provenance::default(),
        capture_per_request: true,
        per_request_records: finished.stats.rows,
        wall_clock,
    };
    let mut files = finished.files;
    files.push(folder.write(KnownOutput::Prediction, report.to_text().as_bytes()).unwrap());
    let published = folder.publish(files).unwrap();

    let names: Vec<_> = published.iter().map(|p| p.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["requests.parquet", "requests.jsonl", "prediction.json"]);
    assert_eq!(fs::metadata(&published[0]).unwrap().len(), finished.stats.parquet_bytes);
    assert_eq!(fs::read_to_string(&published[1]).unwrap().lines().count(), 10);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 3, "no partial file is left");
    let table = summary_table(&summary, &wall_clock, &published[2]);
    assert!(table.contains("Not completed: 10 unfinished of 10 requests"), "{table}");
}

#[test]
fn a_run_that_is_given_up_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let folder = OutputFolder::prepare(&root.path().join("new/out"), false).unwrap();
    let mut sink = sink(&folder);
    sink.send(vec![row(0)]).unwrap();
    drop(folder);
    drop(sink);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}
