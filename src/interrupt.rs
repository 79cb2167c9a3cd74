//! Ctrl-C and requests to terminate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::exit_code;

/// Set once the user wants the program to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Watches for Ctrl-C (and SIGTERM, SIGHUP). A second one ends the process at once.
    #[must_use]
    pub fn install() -> Self {
        let interrupt = Self::default();
        let flag = Arc::clone(&interrupt.0);
        // Without a handler the program just ends at the first Ctrl-C, which harms nothing that
        // has its final name.
        let installed = ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::Relaxed) {
                std::process::exit(i32::from(exit_code::INTERRUPTED));
            }
        });
        drop(installed);
        interrupt
    }

    /// Whether to stop.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
