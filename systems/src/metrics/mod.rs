//! Metrics: what users felt, request by request and in sum.

mod log_histogram;
mod record;
mod samples;
mod statistics;

pub use record::{Outbox, record_endings, record_unfinished};
pub use samples::{SKETCH_RELATIVE_ERROR, Samples};
pub use statistics::{EXACT_GAPS, EXACT_REQUESTS, PassStatistics, RequestStatistics, SlaBounds};
