#![no_main]

use dynosim::traces::{Prompts, RowFormat};
use dynosim_fuzz::{TOKENS_PER_ID, stream};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| stream(bytes, RowFormat::Mooncake(TOKENS_PER_ID), Prompts::Complete));
