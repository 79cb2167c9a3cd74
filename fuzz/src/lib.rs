//! What the fuzz targets share: handing bytes to a reader as the file that it expects.
//!
//! A reader may refuse anything, with a message. It may not panic, hang, or take memory without bound.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use dynosim::interrupt::Interrupt;
use dynosim::traces::agentic::{Identity, play_book};
use dynosim::traces::weka::WekaOptions;
use dynosim::traces::{
    OpenedTrace, Prompts, RowFormat, StartOrder, TraceContent, TraceFile, TraceReading, TraceRequest, TraceSource,
    read_trace,
};
use dynosim_schemas::config::{NestedBasis, TraceFormat, WekaRules};
use dynosim_systems::traffic::UnitSource;
use tempfile::TempDir;

/// Tokens per hash id where a format leaves that to the configuration.
pub const TOKENS_PER_ID: u32 = 64;

thread_local! {
    static DESK: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// Gives a file with these bytes to `work`. It lies in memory where the system has a place for that.
pub fn with_file(name: &str, bytes: &[u8], work: impl FnOnce(&str)) {
    DESK.with_borrow_mut(|desk| {
        let memory = Path::new("/dev/shm");
        let new = || if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        let desk = desk.get_or_insert_with(|| new().expect("a temporary folder can be made"));
        let path = desk.path().join(name);
        fs::write(&path, bytes).expect("the folder can be written");
        work(path.to_str().expect("temporary paths are text"));
    });
}

/// Reads a trace that is played while it is read, in both ways and both orders.
pub fn stream(bytes: &[u8], format: RowFormat, prompts: Prompts) {
    with_file("trace", bytes, |path| {
        for (whole, order) in [
            (false, StartOrder::Timestamps),
            (true, StartOrder::Timestamps),
            (true, StartOrder::File),
        ] {
            let file = TraceFile { path: path.to_owned(), format, order, prompts, whole };
            let Ok((mut source, thread)) = TraceSource::open(file, &Interrupt::default()) else { continue };
            while let Ok(Some(mut unit)) = source.next_unit() {
                while let Some(turn) = unit.script.next_turn() {
                    unit.script.turn_ended(turn.output_tokens);
                }
            }
            drop(source);
            drop(thread.join().expect("the reader does not panic"));
        }
    });
}

/// Reads a trace of a format that is read whole, and makes it ready to be played.
pub fn whole(name: &str, bytes: &[u8], format: TraceFormat, weka: WekaOptions) {
    with_file(name, bytes, |path| {
        let trace = TraceRequest {
            paths: &[path.to_owned()],
            format,
            block_size: format.default_block_size().map(|_| u64::from(TOKENS_PER_ID)),
            weka,
        };
        if let Ok(TraceReading::Whole(OpenedTrace { content: TraceContent::Agentic(graph), .. })) =
            read_trace(&trace, &Interrupt::default())
        {
            drop((Identity::of(&graph), play_book(&graph)));
        }
    });
}

/// Every way to read a Weka trace.
pub fn weka(bytes: &[u8]) {
    let lenient = [NestedBasis::Absolute, NestedBasis::Relative, NestedBasis::Auto]
        .map(|basis| WekaOptions { rules: WekaRules::Lenient, basis, block_size: None });
    whole("play.json", bytes, TraceFormat::Weka, WekaOptions::default());
    for options in lenient {
        whole("play.json", bytes, TraceFormat::Weka, options);
    }
    whole("plays.jsonl", bytes, TraceFormat::Weka, lenient[2]);
}
