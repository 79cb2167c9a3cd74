#![no_main]

use dynosim::traces::weka::WekaOptions;
use dynosim_schemas::config::TraceFormat;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    dynosim_fuzz::whole("trace", bytes, TraceFormat::Dynamo, WekaOptions::default());
});
