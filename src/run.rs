//! Plays a workload against a deployment and streams the rows out.

use dynosim_schemas::config::{Prediction, Source};
use dynosim_schemas::play_row::PlayRow;
use dynosim_schemas::summary::Summary;
use dynosim_systems::deployment::Deployment;
use dynosim_systems::metrics::SKETCH_RELATIVE_ERROR;
use dynosim_systems::simulation::{Progress, Remains, Simulation};
use dynosim_systems::traffic::SourceError;

use crate::error::{CommandError, exit_code};
use crate::interrupt::Interrupt;
use crate::output::{InputFile, OutputError, Sinks};
use crate::profile::Profile;
use crate::progress::ProgressDisplay;
use crate::traces::agentic::Identity;
use crate::traces::{FileReport, NeedsWholeFile, TraceError, TraceThread};
use crate::workload::{self, OpenedSource};

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

/// Why a run ended early.
enum Stopped {
    /// The trace has to be read whole; nothing else is wrong.
    NeedsWholeFile,
    /// The run failed.
    Failed(CommandError),
}

impl From<OutputError> for Stopped {
    fn from(error: OutputError) -> Self {
        Self::Failed(error.into())
    }
}

/// Runs a prediction.
///
/// A trace is played while it is read, in little memory. If it turns out to be out of order or to
/// have sessions, the run starts again with the whole trace read first; the result is the same as
/// if it had been read whole at once. `new_sink` gives a fresh place for the rows of each attempt.
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
    for whole in [false, true] {
        match attempt(prediction, deployment, interrupt, options, new_sink()?, whole) {
            Ok(result) => return Ok(result),
            Err(Stopped::Failed(error)) => return Err(error),
            Err(Stopped::NeedsWholeFile) => {}
        }
    }
    Err(CommandError::execution("the trace could not be put in order; this is a bug in dynosim, please report it"))
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
    if played.is_ok() {
        // First of all: the table of requests is completed while the figures are summed up.
        sink.send_last(simulation.take_rows())?;
        sink.send_decisions(simulation.take_decisions())?;
    }
    let (summary, sketched) = simulation.summarize();
    if let Some(profile) = &mut profile {
        profile.set_work(simulation.work_done());
    }
    let plays = simulation.play_rows();
    // Lets go of the source, so that the reader does not wait for a listener.
    let remains = simulation.into_remains();
    let mut inputs = join_reader(prediction, reader)?;
    inputs.extend(files.into_iter().map(input_file));
    played?;
    let notes = sketched.into_iter().map(sketch_note).collect();
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
    let outcome = loop {
        match step_a_while(simulation, profile.as_deref_mut(), sink) {
            Ok(true) if interrupt.is_set() => break Err(Stopped::Failed(interrupted(simulation.progress()))),
            Ok(true) if display.is_due() => display.show(simulation.progress()),
            Ok(true) => {}
            Ok(false) if options.audited => break simulation.audit().map_err(stopped_by_source),
            Ok(false) => break Ok(()),
            Err(stopped) => break Err(stopped),
        }
        looks += 1;
        if options.audited
            && looks.is_multiple_of(LOOKS_PER_AUDIT)
            && let Err(violation) = simulation.audit()
        {
            break Err(stopped_by_source(violation));
        }
    };
    display.clear();
    outcome
}

/// Handles some instants; `false` once none is left.
fn step_a_while(
    simulation: &mut Simulation,
    mut profile: Option<&mut Profile>,
    sink: &mut Sinks,
) -> Result<bool, Stopped> {
    for _ in 0..STEPS_PER_LOOK {
        let stepped = match profile.as_deref_mut() {
            None => simulation.step(),
            Some(profile) => {
                profile.begin_instant();
                simulation.step_by_stages(|stage| profile.end_stage(stage))
            }
        };
        if !stepped.map_err(stopped_by_source)? {
            return Ok(false);
        }
        if simulation.rows_waiting() >= ROWS_PER_BATCH {
            sink.send(simulation.take_rows())?;
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

fn stopped_by_source(error: SourceError) -> Stopped {
    if error.is::<NeedsWholeFile>() {
        return Stopped::NeedsWholeFile;
    }
    Stopped::Failed(CommandError::execution(error.to_string()))
}

/// Waits for the end of the trace. An error there is the reason why the run stopped, if it did.
fn join_reader(prediction: &Prediction, reader: Option<TraceThread>) -> Result<Vec<InputFile>, Stopped> {
    let (Some(reader), Source::Trace { paths, .. }) = (reader, &prediction.traffic.source) else {
        return Ok(Vec::new());
    };
    let path = paths.first().cloned().unwrap_or_default();
    let lost =
        || TraceError { path: path.clone(), line: None, message: "the thread that reads it was lost".to_owned() };
    let report = reader.join().unwrap_or_else(|_| Err(lost().into())).map_err(stopped_by_source)?;
    Ok(vec![input_file(FileReport { path, rows: report.rows, digest: report.digest })])
}

fn input_file(file: FileReport) -> InputFile {
    InputFile { path: file.path, bytes: file.digest.bytes, rows: file.rows, blake3: file.digest.blake3 }
}

fn sketch_note(figure: &str) -> String {
    format!(
        "percentiles of {figure} come from a sketch of its many samples and are off by at most {:.4} % of their value",
        100.0 * SKETCH_RELATIVE_ERROR
    )
}
