//! What a pool tells the router of its prefix cache.

/// From now on the leading `resident` blocks of a run are findable in the pool, and no others of it.
///
/// One number says it all, because the findable blocks of a run are always its leading ones (see the
/// tree of prefixes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvEvent {
    /// Key of the run.
    pub run: u64,
    /// How many of its blocks are findable, from its first one on.
    pub resident: u32,
}

/// The events of a pool that nobody has read yet, oldest first; collected only if somebody will.
#[derive(Clone, Debug, Default)]
pub struct KvEvents {
    log: Option<Vec<KvEvent>>,
}

impl KvEvents {
    /// Collects from now on.
    pub fn enable(&mut self) {
        self.log.get_or_insert_default();
    }

    /// Notes that the findable part of a run has changed.
    #[inline]
    pub fn note(&mut self, run: u64, resident: u32) {
        let Some(log) = &mut self.log else { return };
        match log.last_mut() {
            // A run grows and shrinks block by block; only the outcome matters.
            Some(last) if last.run == run => last.resident = resident,
            _ => log.push(KvEvent { run, resident }),
        }
    }

    /// Gives the collected events to `sink`, oldest first, and forgets them.
    pub fn drain(&mut self, sink: impl FnMut(KvEvent)) {
        if let Some(log) = &mut self.log {
            log.drain(..).for_each(sink);
        }
    }
}
