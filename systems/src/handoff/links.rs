//! Links that transfers share: each prefill worker has one out, each decode worker one in.

use std::collections::BTreeMap;

use crate::time::VirtualTime;

/// The workers at the two ends of a transfer, as places in the fleet.
pub type Ends = (u32, u32);

/// Transfers that share links, all of the same bandwidth.
///
/// At any time the bandwidth is divided max-min fairly: nobody can get more without taking from
/// somebody who has no more than he has. (Progressive filling; Bertsekas and Gallager, *Data
/// Networks*, section 6.5.2.)
#[derive(Clone, Debug)]
pub struct SharedLinks {
    bytes_per_ms: f64,
    /// The transfers, by hand-over.
    transfers: BTreeMap<u64, Transfer>,
    /// Until when what they have moved is accounted for.
    accounted: VirtualTime,
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    ends: Ends,
    bytes_left: f64,
    bytes_per_ms: f64,
}

impl SharedLinks {
    /// Links of that bandwidth.
    #[must_use]
    pub const fn new(bytes_per_ms: f64) -> Self {
        Self { bytes_per_ms, transfers: BTreeMap::new(), accounted: VirtualTime::ZERO }
    }

    /// Number of transfers in progress.
    #[must_use]
    pub fn len(&self) -> usize {
        self.transfers.len()
    }

    /// Starts a transfer at `now`.
    pub fn start(&mut self, id: u64, ends: Ends, bytes: f64, now: VirtualTime) {
        self.account(now);
        self.transfers.insert(id, Transfer { ends, bytes_left: bytes, bytes_per_ms: 0.0 });
        self.share();
    }

    /// When the next transfer is complete, if nothing starts before.
    #[must_use]
    pub fn next_completion(&self) -> VirtualTime {
        let ends = self.transfers.values().map(|transfer| self.end_of(transfer));
        ends.min().unwrap_or(VirtualTime::NEVER)
    }

    /// Takes a transfer out that is complete at `now`.
    pub fn pop_complete(&mut self, now: VirtualTime) -> Option<u64> {
        let (&id, _) = self.transfers.iter().find(|(_, transfer)| self.end_of(transfer) <= now)?;
        self.account(now);
        self.transfers.remove(&id);
        self.share();
        Some(id)
    }

    fn end_of(&self, transfer: &Transfer) -> VirtualTime {
        VirtualTime::from_ms(self.accounted.ms() + transfer.bytes_left / transfer.bytes_per_ms)
    }

    fn account(&mut self, now: VirtualTime) {
        let elapsed_ms = now.ms() - self.accounted.ms();
        for transfer in self.transfers.values_mut() {
            // What completes at this very instant has nothing left, whatever rounding says.
            let left = transfer.bytes_left - transfer.bytes_per_ms * elapsed_ms;
            transfer.bytes_left = if self.accounted.ms() + transfer.bytes_left / transfer.bytes_per_ms <= now.ms() {
                0.0
            } else {
                left.max(0.0)
            };
        }
        self.accounted = now;
    }

    /// Divides the bandwidth.
    fn share(&mut self) {
        let mut links: BTreeMap<(bool, u32), Link> = BTreeMap::new();
        for transfer in self.transfers.values_mut() {
            transfer.bytes_per_ms = 0.0;
            for link in both(transfer.ends) {
                links.entry(link).or_insert(Link { left: self.bytes_per_ms, sharers: 0 }).sharers += 1;
            }
        }
        // The link with the least for each of its sharers settles what these get; then the next.
        let tightest = |links: &BTreeMap<(bool, u32), Link>| {
            let open = links.iter().filter(|(_, link)| link.sharers > 0);
            open.map(|(&key, link)| (key, link.left / f64::from(link.sharers))).min_by(|a, b| a.1.total_cmp(&b.1))
        };
        while let Some((tight, each)) = tightest(&links) {
            for transfer in self.transfers.values_mut() {
                if transfer.bytes_per_ms > 0.0 || !both(transfer.ends).contains(&tight) {
                    continue;
                }
                transfer.bytes_per_ms = each;
                for link in both(transfer.ends) {
                    if let Some(link) = links.get_mut(&link) {
                        link.left = (link.left - each).max(0.0);
                        link.sharers -= 1;
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Link {
    left: f64,
    sharers: u32,
}

/// The link out of the source, and the link into the destination.
fn both((source, destination): Ends) -> [(bool, u32); 2] {
    [(false, source), (true, destination)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: f64) -> VirtualTime {
        VirtualTime::from_ms(ms)
    }

    #[test]
    fn a_lone_transfer_has_the_whole_link() {
        let mut links = SharedLinks::new(10.0);
        links.start(0, (0, 0), 100.0, at(5.0));
        assert_eq!(links.next_completion(), at(15.0));
        assert_eq!(links.pop_complete(at(14.9)), None);
        assert_eq!(links.pop_complete(at(15.0)), Some(0));
        assert_eq!(links.next_completion(), VirtualTime::NEVER);
    }

    #[test]
    fn two_transfers_into_one_worker_share_its_link() {
        let mut links = SharedLinks::new(10.0);
        links.start(0, (0, 7), 100.0, at(0.0));
        links.start(1, (1, 7), 100.0, at(4.0));
        // The first has 60 left and half the link.
        assert_eq!(links.next_completion(), at(16.0));
        assert_eq!(links.pop_complete(at(16.0)), Some(0));
        // The second has 40 left and the whole link.
        assert_eq!(links.next_completion(), at(20.0));
        assert_eq!(links.pop_complete(at(20.0)), Some(1));
    }

    #[test]
    fn what_one_link_cannot_use_goes_to_others() {
        let mut links = SharedLinks::new(12.0);
        // Three go into worker 7, so each gets 4; the fourth leaves worker 0 as well and gets the other 8.
        for (id, source) in [(0, 0), (1, 1), (2, 2)] {
            links.start(id, (source, 7), 120.0, at(0.0));
        }
        links.start(3, (0, 8), 80.0, at(0.0));
        assert_eq!(links.next_completion(), at(10.0));
        assert_eq!(links.pop_complete(at(10.0)), Some(3));
        assert_eq!(links.next_completion(), at(30.0));
    }

    #[test]
    fn equal_transfers_complete_together_in_order() {
        let mut links = SharedLinks::new(3.0);
        for id in 0..3 {
            links.start(id, (0, id as u32), 1.0, at(0.0));
        }
        let end = links.next_completion();
        let done: Vec<u64> = std::iter::from_fn(|| links.pop_complete(end)).collect();
        assert_eq!(done, [0, 1, 2]);
        assert_eq!(links.len(), 0);
    }
}
