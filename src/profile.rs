//! `--profile`: where a run's own time went.

use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table};

use dynosim_systems::order::Stage;
use dynosim_systems::simulation::WorkDone;
use serde_json::{Value, json};

use crate::output::TABLE_STYLE;

/// Wall time by stage, and the work that it went into.
#[derive(Clone, Debug)]
pub struct Profile {
    stages: [Duration; Stage::ALL.len()],
    last: Instant,
    instants: u64,
    work: WorkDone,
    rows: u64,
    bytes_read: u64,
    bytes_written: u64,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            stages: [Duration::ZERO; Stage::ALL.len()],
            last: Instant::now(),
            instants: 0,
            work: WorkDone::default(),
            rows: 0,
            bytes_read: 0,
            bytes_written: 0,
        }
    }
}

impl Profile {
    /// Notes that an instant begins.
    pub fn begin_instant(&mut self) {
        self.instants += 1;
        self.last = Instant::now();
    }

    /// Notes that a stage of the instant is done.
    pub fn end_stage(&mut self, stage: Stage) {
        let now = Instant::now();
        self.stages[stage as usize] += now - self.last;
        self.last = now;
    }

    /// Notes what the engine has done by the end.
    pub fn set_work(&mut self, work: WorkDone) {
        self.work = work;
    }

    /// Notes what went in and out.
    pub fn set_traffic(&mut self, rows: u64, bytes_read: u64, bytes_written: u64) {
        (self.rows, self.bytes_read, self.bytes_written) = (rows, bytes_read, bytes_written);
    }

    /// What each stage's time is best divided by.
    fn units(&self, stage: Stage) -> (&'static str, u64) {
        match stage {
            Stage::Scheduling => ("pass", self.work.passes),
            Stage::Handoff | Stage::Endings | Stage::Traffic | Stage::Reservation | Stage::Routing => {
                ("request", self.rows)
            }
        }
    }

    /// The object under `profile` in `prediction.json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let stages = Stage::ALL.map(|stage| {
            let total = self.stages[stage as usize];
            let (unit, count) = self.units(stage);
            json!({ "stage": name(stage), "total_ns": total.as_nanos() as u64, "per": unit, "ns_per_unit": per(total, count) })
        });
        json!({
            "stages": stages,
            "instants": self.instants,
            "passes": self.work.passes,
            "eventful_passes": self.work.eventful_passes,
            "blocks_allocated": self.work.blocks_allocated,
            "blocks_reused": self.work.blocks_reused,
            "blocks_published": self.work.blocks_published,
            "rows": self.rows,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
        })
    }

    /// The tables for the terminal.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut stages = table(["Stage", "Total (ms)", "Per", "ns"]);
        for stage in Stage::ALL {
            let total = self.stages[stage as usize];
            let (unit, count) = self.units(stage);
            let total_ms = format!("{:.1}", total.as_secs_f64() * 1000.0);
            stages.add_row([name(stage).to_owned(), total_ms, unit.to_owned(), format!("{:.0}", per(total, count))]);
        }
        let simulated: Duration = self.stages.iter().sum();
        let mut work = table(["Work", "Count", "", "ns of the simulation each"]);
        let counts = [
            ("Instants", self.instants),
            ("Passes", self.work.passes),
            ("Eventful passes", self.work.eventful_passes),
            ("Blocks allocated", self.work.blocks_allocated),
            ("Blocks reused", self.work.blocks_reused),
            ("Blocks published", self.work.blocks_published),
            ("Rows", self.rows),
        ];
        for (what, count) in counts {
            work.add_row([what.to_owned(), count.to_string(), String::new(), format!("{:.1}", per(simulated, count))]);
        }
        format!(
            "Where the run's own time went\n{stages}\n{work}\nBytes read {}, written {}\n",
            self.bytes_read, self.bytes_written
        )
    }
}

fn table(header: [&str; 4]) -> Table {
    let mut table = Table::new();
    table.load_style(TABLE_STYLE).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn name(stage: Stage) -> &'static str {
    match stage {
        Stage::Scheduling => "scheduling",
        Stage::Handoff => "handoff",
        Stage::Endings => "endings",
        Stage::Traffic => "traffic",
        Stage::Reservation => "reservation",
        Stage::Routing => "routing",
    }
}

fn per(total: Duration, count: u64) -> f64 {
    if count == 0 { 0.0 } else { total.as_nanos() as f64 / count as f64 }
}
