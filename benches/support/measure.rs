//! How every bench of this folder is measured: shortly, so that all of them together take minutes.

use std::time::Duration;

use criterion::Criterion;

/// Runs the benches of one stage; the whole `main` of a bench file.
pub fn run(benches: &[fn(&mut Criterion)]) {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    for bench in benches {
        bench(&mut criterion);
    }
    criterion.final_summary();
}
