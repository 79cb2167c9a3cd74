//! Plays a workload against a deployment and streams the rows out.

use dynosim_schemas::config::{Prediction, Source, TraceFormat};
use dynosim_schemas::play_row::PlayRow;
use dynosim_schemas::request_row::RequestRow;
use dynosim_schemas::summary::Summary;
use dynosim_systems::deployment::Deployment;
use dynosim_systems::metrics::SKETCH_RELATIVE_ERROR;
use dynosim_systems::simulation::{Progress, Remains, Simulation};

use crate::error::{CommandError, exit_code};
use crate::interrupt::Interrupt;
use crate::output::{InputFile, OutputError, Sinks};
use crate::profile::Profile;
use crate::progress::ProgressDisplay;
use crate::traces::agentic::Identity;
use crate::traces::{FileReport, TraceThread};
use crate::workload::{self, OpenedSource, Stopped};

/// Rows that go to the writer together.
const ROWS_PER_BATCH: usize = 1024;
/// Instants between looks at the wall clock and at Ctrl-C.
const STEPS_PER_LOOK: u32 = 256;

/// Looks between two audits, where they are asked for: one takes as long as some thousand instants.
const LOOKS_PER_AUDIT: u32 = 64;

/// How a run is to be watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Whether to note where the run's own time goes.
    pub profiled: bool,
    /// Whether to check, as it goes and at its end, that nothing gets lost.
    pub audited: bool,
}

/// What came of a run.
pub struct RunResult {
    /// The figures.
    pub summary: Summary,
    /// The files that were read.
    pub inputs: Vec<InputFile>,
    /// Which graph was played, if it was one.
    pub graph: Option<Identity>,
    /// A row for each of its plays.
    pub plays: Vec<PlayRow>,
    /// What else a reader of the figures should know.
    pub notes: Vec<String>,
    /// The rows, complete but not yet published.
    pub sink: Sinks,
    /// Where the run's own time went, if that was asked for.
    pub profile: Option<Profile>,
    /// What is left of the simulation. To take it apart costs as much as some thousand requests.
    pub remains: Remains,
}

impl From<OutputError> for Stopped {
    fn from(error: OutputError) -> Self {
        Self::Failed(error.into())
    }
}

/// Runs a prediction.
///
/// `new_sink` gives a fresh place for the rows of each attempt (see [`workload::whole_if_needed`]).
///
/// # Errors
/// If the trace cannot be read, the rows cannot be written, or the user interrupts.
pub fn run(
    prediction: &Prediction,
    deployment: &Deployment,
    interrupt: &Interrupt,
    options: RunOptions,
    new_sink: impl Fn() -> Result<Sinks, OutputError>,
) -> Result<RunResult, CommandError> {
    workload::whole_if_needed(|whole| attempt(prediction, deployment, interrupt, options, new_sink()?, whole))
}

fn attempt(
    prediction: &Prediction,
    deployment: &Deployment,
    interrupt: &Interrupt,
    options: RunOptions,
    mut sink: Sinks,
    whole: bool,
) -> Result<RunResult, Stopped> {
    let mut profile = options.profiled.then(Profile::default);
    let opened = workload::open(prediction, deployment, whole, interrupt);
    let OpenedSource { traffic, reader, files, graph } = opened.map_err(|error| {
        let nothing_yet = Progress { now_ms: 0.0, arrived: 0, ended: 0 };
        Stopped::Failed(if interrupt.is_set() { interrupted(nothing_yet) } else { error.into() })
    })?;
    let mut simulation = Simulation::new(deployment.clone(), traffic);
    let played = play(prediction, &mut simulation, interrupt, profile.as_mut(), options, &mut sink);
    if played.is_err() && interrupt.is_set() {
        // At once: neither the figures nor the rest of the trace matter to anybody now.
        return Err(Stopped::Failed(interrupted(simulation.progress())));
    }
    simulation.close();
    let knows_prefixes = knows_prefixes(prediction);
    if played.is_ok() {
        // First of all: the table of requests is completed while the figures are summed up.
        sink.send_last(take_rows(&mut simulation, knows_prefixes))?;
        sink.send_decisions(simulation.take_decisions())?;
    }
    let (mut summary, sketched) = simulation.summarize();
    if !knows_prefixes {
        summary.forget_reuse();
    }
    if let Some(profile) = &mut profile {
        profile.set_work(simulation.work_done());
    }
    let plays = simulation.play_rows();
    // Lets go of the source, so that the reader does not wait for a listener.
    let remains = simulation.into_remains();
    let (mut inputs, left_out) = join_reader(prediction, reader)?;
    inputs.extend(files.into_iter().map(input_file));
    played?;
    let notes = sketched.into_iter().map(sketch_note).chain(left_out).collect();
    Ok(RunResult { summary, inputs, graph, plays, notes, sink, profile, remains })
}

fn play(
    prediction: &Prediction,
    simulation: &mut Simulation,
    interrupt: &Interrupt,
    mut profile: Option<&mut Profile>,
    options: RunOptions,
    sink: &mut Sinks,
) -> Result<(), Stopped> {
    let mut looks = 0_u32;
    let mut display = ProgressDisplay::new(prediction.traffic.request_count());
    let knows_prefixes = knows_prefixes(prediction);
    let outcome = loop {
        match step_a_while(simulation, profile.as_deref_mut(), sink, knows_prefixes) {
            Ok(true) if interrupt.is_set() => break Err(Stopped::Failed(interrupted(simulation.progress()))),
            Ok(true) if display.is_due() => display.show(simulation.progress()),
            Ok(true) => {}
            Ok(false) if options.audited => break simulation.audit().map_err(Stopped::from),
            Ok(false) => break Ok(()),
            Err(stopped) => break Err(stopped),
        }
        looks += 1;
        if options.audited
            && looks.is_multiple_of(LOOKS_PER_AUDIT)
            && let Err(violation) = simulation.audit()
        {
            break Err(violation.into());
        }
    };
    display.clear();
    outcome
}

/// Whether the workload says what its prompts share. What is made up shares what it was made to.
fn knows_prefixes(prediction: &Prediction) -> bool {
    prediction.traffic.source.trace_format().is_none_or(TraceFormat::knows_prefixes)
}

fn take_rows(simulation: &mut Simulation, knows_prefixes: bool) -> Vec<RequestRow> {
    let mut rows = simulation.take_rows();
    if !knows_prefixes {
        rows.iter_mut().for_each(|row| row.knows_prefixes = false);
    }
    rows
}

/// Handles some instants; `false` once none is left.
fn step_a_while(
    simulation: &mut Simulation,
    mut profile: Option<&mut Profile>,
    sink: &mut Sinks,
    knows_prefixes: bool,
) -> Result<bool, Stopped> {
    for _ in 0..STEPS_PER_LOOK {
        let stepped = match profile.as_deref_mut() {
            None => simulation.step(),
            Some(profile) => {
                profile.begin_instant();
                simulation.step_by_stages(|stage| profile.end_stage(stage))
            }
        };
        if !stepped? {
            return Ok(false);
        }
        if simulation.rows_waiting() >= ROWS_PER_BATCH {
            sink.send(take_rows(simulation, knows_prefixes))?;
        }
    }
    sink.send_decisions(simulation.take_decisions())?;
    Ok(true)
}

fn interrupted(progress: Progress) -> CommandError {
    let Progress { now_ms, ended, .. } = progress;
    let message = format!(
        "interrupted at {:.1} s of virtual time, after {ended} requests; no result was kept, and files that were in \
         the output folder before are unchanged",
        now_ms / 1000.0
    );
    CommandError { exit_code: exit_code::INTERRUPTED, message }
}

/// Waits for the end of the trace, and says what was read and what left out. An error there is the reason why the run
/// stopped, if it did.
fn join_reader(
    prediction: &Prediction,
    reader: Option<TraceThread>,
) -> Result<(Vec<InputFile>, Option<String>), Stopped> {
    let (Some(reader), Source::Trace { paths, .. }) = (reader, &prediction.traffic.source) else {
        return Ok((Vec::new(), None));
    };
    let path = paths.first().cloned().unwrap_or_default();
    let report = workload::join_reader(reader)?;
    let left_out = (report.left_out > 0).then(|| left_out_note(&path, report.left_out));
    Ok((vec![input_file(FileReport { path, rows: report.rows, digest: report.digest })], left_out))
}

fn input_file(file: FileReport) -> InputFile {
    InputFile { path: file.path, bytes: file.digest.bytes, rows: file.rows, blake3: file.digest.blake3 }
}

fn left_out_note(path: &str, rows: u64) -> String {
    format!("{path}: {rows} rows were left out; they have no prompt or no response, so nothing was served")
}

fn sketch_note(figure: &str) -> String {
    format!(
        "percentiles of {figure} come from a sketch of its many samples and are off by at most {:.4} % of their value",
        100.0 * SKETCH_RELATIVE_ERROR
    )
}
