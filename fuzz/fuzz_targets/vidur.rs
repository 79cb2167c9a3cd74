#![no_main]

use dynosim::traces::{Prompts, RowFormat};
use dynosim_fuzz::stream;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| stream(bytes, RowFormat::Vidur, Prompts::Complete));
