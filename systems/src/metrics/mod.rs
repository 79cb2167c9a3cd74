//! Metrics: what users felt, request by request and in sum.

mod record;
mod samples;
mod statistics;

pub use record::{Outbox, record_endings, record_unfinished};
pub use samples::{EXACT_SAMPLES, SKETCH_RELATIVE_ERROR, Samples};
pub use statistics::{PassStatistics, RequestStatistics, SlaBounds};
