//! The progress bar on stderr.

use std::time::{Duration, Instant};

use dynosim_systems::simulation::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time between looks at the simulation.
const INTERVAL: Duration = Duration::from_millis(100);

/// Shows virtual time, requests done, requests per second and, where the number of requests is
/// known, the time left. Shows nothing unless stderr is a terminal.
pub struct ProgressDisplay {
    bar: ProgressBar,
    last: Instant,
}

impl ProgressDisplay {
    /// A display for so many requests, if the number is known.
    #[must_use]
    pub fn new(requests: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(requests, ProgressDrawTarget::stderr());
        let template = match requests {
            Some(_) => "{bar:30} {pos}/{len} requests  {per_sec}  {msg}  ETA {eta}",
            None => "{spinner} {pos} requests  {per_sec}  {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, last: Instant::now() }
    }

    /// Whether it is time for [`Self::show`].
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.last.elapsed() >= INTERVAL
    }

    /// Shows how far the simulation has come.
    pub fn show(&mut self, progress: Progress) {
        self.last = Instant::now();
        self.bar.set_position(progress.ended);
        self.bar.set_message(format!("virtual time {:.1} s", progress.now_ms / 1000.0));
    }

    /// Takes the display away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
