//! Targets take turns.

use super::{Arrival, Placed, RouterPolicy};
use crate::time::VirtualTime;

/// The turns of one pool.
///
/// Among aggregated workers the workers take turns, in order of their ids, and so do the ranks of
/// each worker. Elsewhere all ranks take turns as they stand. A turn is a position among those that
/// can be chosen at the time, not a worker.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    groups: Vec<Group>,
    /// Those of them that can be chosen, in order.
    routable: Vec<usize>,
    position: usize,
}

/// Targets that have one place in the round and take turns in it.
#[derive(Clone, Copy, Debug)]
struct Group {
    first_target: u32,
    targets: u32,
    position: u32,
}

impl RoundRobin {
    /// Turns among workers with these numbers of ranks; of the `workers` as such, or of all ranks.
    pub fn new(ranks: impl Iterator<Item = u32>, workers: bool) -> Self {
        let mut groups = Vec::new();
        let mut first_target = 0;
        for count in ranks {
            let places = if workers { 1 } else { count };
            for place in 0..places {
                let group = Group { first_target: first_target + place, targets: count / places, position: 0 };
                groups.push(group);
            }
            first_target += count;
        }
        let routable = (0..groups.len()).collect();
        Self { groups, routable, position: 0 }
    }
}

impl RouterPolicy for RoundRobin {
    fn place(&mut self, _arrival: &Arrival<'_>, _now: VirtualTime) -> Option<Placed> {
        let turn = self.position.checked_rem(self.routable.len())?;
        self.position = turn + 1;
        let group = &mut self.groups[self.routable[turn]];
        let target = group.first_target + group.position;
        group.position = (group.position + 1) % group.targets;
        Some(Placed { target, overlap_blocks: 0 })
    }

    fn set_routable(&mut self, target: u32, routable: bool) {
        let Some(group) = self.groups.iter().rposition(|group| group.first_target <= target) else { return };
        match self.routable.binary_search(&group) {
            Ok(place) if !routable => {
                self.routable.remove(place);
            }
            Err(place) if routable => self.routable.insert(place, group),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use bevy_ecs::prelude::*;

    use super::*;
    use crate::prefix::PromptIdentity;

    fn place(router: &mut RoundRobin, count: usize) -> Vec<u32> {
        let identity = PromptIdentity::unique(0);
        let arrival = Arrival { request: Entity::PLACEHOLDER, prompt_tokens: 1, identity: &identity, arrival_ms: 0.0 };
        (0..count).filter_map(|_| router.place(&arrival, VirtualTime::ZERO)).map(|placed| placed.target).collect()
    }

    #[test]
    fn workers_take_turns_and_so_do_their_ranks() {
        // The reference: workers 1, 2, 3 of two ranks each; then worker 3 is drained.
        let mut router = RoundRobin::new([2, 2, 2].into_iter(), true);
        assert_eq!(place(&mut router, 4), [0, 2, 4, 1]);
        router.set_routable(4, false);
        assert_eq!(place(&mut router, 2), [3, 0], "the turn is a position among those that are left");
    }

    #[test]
    fn a_flat_pool_goes_rank_by_rank() {
        let mut router = RoundRobin::new([2, 1].into_iter(), false);
        assert_eq!(place(&mut router, 4), [0, 1, 2, 0]);
        router.set_routable(2, false);
        assert_eq!(place(&mut router, 1), [1], "as 10, 11, 12, 10, then 11 after 12 is drained");
    }

    #[test]
    fn nobody_to_choose_means_no_place() {
        let mut router = RoundRobin::new([1].into_iter(), true);
        router.set_routable(0, false);
        assert_eq!(place(&mut router, 1), [0_u32; 0]);
    }
}
