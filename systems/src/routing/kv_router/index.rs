//! Which runs of blocks are where: cached on a target, and held by its active requests.
//!
//! Within a run each block is determined by the one before, and what a target has of a run are always
//! its leading blocks, so one number per target says it all. The same holds from run to run: who has
//! a block has all blocks before it (*closed* prefixes). A prompt is therefore looked up run by run,
//! for all targets at once, until the first run that nobody has.

use std::cmp::Reverse;

use fxhash::FxHashMap;
use smallvec::SmallVec;

use crate::prefix::PromptIdentity;

/// A run of a prompt, as long as the prompt's complete blocks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PromptRun {
    key: u64,
    /// Position of its first block in the prompt.
    start: u32,
    blocks: u32,
    /// Nobody will ask for this run after this request.
    last_use: bool,
    /// Its slot at the latest survey, if anybody has a block of it.
    slot: Option<u32>,
}

/// Appends the runs of the first `blocks` blocks of a prompt.
pub(super) fn read_runs(identity: &PromptIdentity, block_size: u32, blocks: u32, runs: &mut Vec<PromptRun>) {
    runs.extend(identity.runs(block_size, 0, blocks).map(|run| PromptRun {
        key: run.key,
        start: run.blocks.start,
        blocks: run.blocks.end - run.blocks.start,
        last_use: run.key == identity.stream && !identity.continued,
        slot: None,
    }));
}

/// What each target has of one prompt, in leading blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    /// Cached on the target.
    pub(super) resident: Vec<u32>,
    /// Held by active requests of the target.
    pub(super) held: Vec<u32>,
}

impl Survey {
    /// Nothing on any of `targets` targets.
    pub(super) fn reset(&mut self, targets: usize) {
        for blocks in [&mut self.resident, &mut self.held] {
            blocks.clear();
            blocks.resize(targets, 0);
        }
    }
}

/// The leading blocks of a run that are cached on a target.
#[derive(Clone, Copy, Debug)]
struct Resident {
    target: u32,
    blocks: u32,
}

/// The active requests of a target that hold the same number of leading blocks of a run.
#[derive(Clone, Copy, Debug)]
struct Holders {
    target: u32,
    blocks: u32,
    requests: u32,
}

impl Holders {
    /// By target, and those who hold most of the run first.
    fn order(&self) -> (u32, Reverse<u32>) {
        (self.target, Reverse(self.blocks))
    }
}

/// A run of which some target has a block. Only targets that have one take up room: a run is
/// usually on one of them, or on a few.
#[derive(Clone, Debug, Default)]
struct Slot {
    key: u64,
    /// In order of targets.
    resident: SmallVec<[Resident; 2]>,
    /// In order of [`Holders::order`].
    holders: SmallVec<[Holders; 1]>,
}

impl Slot {
    fn is_empty(&self) -> bool {
        self.resident.is_empty() && self.holders.is_empty()
    }

    /// Distinct blocks of the run that the active requests of a target hold.
    fn held(&self, target: u32) -> u32 {
        let first = self.holders.partition_point(|holders| holders.target < target);
        self.holders.get(first).filter(|holders| holders.target == target).map_or(0, |holders| holders.blocks)
    }
}

/// A request's hold on the leading blocks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    slot: u32,
    blocks: u32,
}

/// The runs of which some target has a block, each in a slot that is reused once nobody has any.
#[derive(Clone, Debug, Default)]
pub(super) struct PrefixIndex {
    slot_of: FxHashMap<u64, u32>,
    slots: Vec<Slot>,
    spare: Vec<u32>,
}

impl PrefixIndex {
    /// Finds what each target has of a prompt, and the slots of its runs.
    pub(super) fn survey(&self, runs: &mut [PromptRun], survey: &mut Survey) {
        for run in runs {
            run.slot = self.slot_of.get(&run.key).copied();
            let Some(slot) = run.slot else { return };
            let slot = &self.slots[slot as usize];
            for resident in &slot.resident {
                extend(&mut survey.resident, resident.target, resident.blocks, run);
            }
            let mut target = None;
            for holders in &slot.holders {
                // The first of a target's entries is the longest.
                if target != Some(holders.target) {
                    extend(&mut survey.held, holders.target, holders.blocks, run);
                    target = Some(holders.target);
                }
            }
        }
    }

    /// Notes that exactly the leading `blocks` blocks of a run are cached on a target.
    pub(super) fn set_resident(&mut self, target: u32, key: u64, blocks: u32) {
        if blocks > 0 {
            let slot = self.slot(key);
            let residents = &mut self.slots[slot as usize].resident;
            match residents.binary_search_by_key(&target, |resident| resident.target) {
                Ok(place) => residents[place].blocks = blocks,
                Err(place) => residents.insert(place, Resident { target, blocks }),
            }
        } else if let Some(&slot) = self.slot_of.get(&key) {
            self.slots[slot as usize].resident.retain(|resident| resident.target != target);
            self.free_if_empty(slot);
        }
    }

    /// Forgets what is cached on a target.
    pub(super) fn forget(&mut self, target: u32) {
        for slot in 0..self.slots.len() {
            let residents = &mut self.slots[slot].resident;
            let before = residents.len();
            residents.retain(|resident| resident.target != target);
            // A spare slot is empty already and must not be freed twice.
            if residents.len() < before {
                self.free_if_empty(slot as u32);
            }
        }
    }

    /// Lets an active request of a target hold the runs of its prompt, writing down the holds.
    /// Returns how many distinct blocks that adds to the target, and those that need no hold
    /// because nobody else will ever look for them.
    pub(super) fn hold(&mut self, target: u32, runs: &[PromptRun], holds: &mut Vec<Hold>) -> (u32, u32) {
        let (mut added, mut own) = (0, 0);
        for &PromptRun { key, blocks, last_use, slot, .. } in runs {
            if last_use && slot.is_none() {
                own += blocks;
                continue;
            }
            let slot = slot.unwrap_or_else(|| self.slot(key));
            holds.push(Hold { slot, blocks });
            let run = &mut self.slots[slot as usize];
            added += blocks.saturating_sub(run.held(target));
            let new = Holders { target, blocks, requests: 1 };
            match run.holders.binary_search_by_key(&new.order(), Holders::order) {
                Ok(place) => run.holders[place].requests += 1,
                Err(place) => run.holders.insert(place, new),
            }
        }
        (added, own)
    }

    /// Takes the holds of a request off a target. Returns how many distinct blocks that takes off it.
    pub(super) fn let_go(&mut self, target: u32, holds: &[Hold]) -> u32 {
        let mut removed = 0;
        for &Hold { slot, blocks } in holds {
            let run = &mut self.slots[slot as usize];
            let Ok(place) = run.holders.binary_search_by_key(&(target, Reverse(blocks)), Holders::order) else {
                debug_assert!(false, "a hold is let go once");
                continue;
            };
            run.holders[place].requests -= 1;
            if run.holders[place].requests == 0 {
                run.holders.remove(place);
                removed += blocks.saturating_sub(run.held(target));
                self.free_if_empty(slot);
            }
        }
        removed
    }

    /// Slots in use and slots in total.
    pub(super) fn slots(&self) -> (usize, usize) {
        (self.slots.len() - self.spare.len(), self.slots.len())
    }

    /// Whether any active request holds anything.
    pub(super) fn is_held(&self) -> bool {
        self.slots.iter().any(|slot| !slot.holders.is_empty())
    }

    /// The slot of a run, a new one if it has none.
    fn slot(&mut self, key: u64) -> u32 {
        *self.slot_of.entry(key).or_insert_with(|| {
            let slot = self.spare.pop().unwrap_or_else(|| {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            });
            self.slots[slot as usize].key = key;
            slot
        })
    }

    fn free_if_empty(&mut self, slot: u32) {
        let run = &mut self.slots[slot as usize];
        if run.is_empty() {
            self.slot_of.remove(&run.key);
            // Gives back what a run that many targets had took from the heap.
            *run = Slot::default();
            self.spare.push(slot);
        }
    }
}

/// Adds the first `blocks` blocks of a run to what a target has, if it has all blocks before the run.
fn extend(leading: &mut [u32], target: u32, blocks: u32, run: &PromptRun) {
    let leading = &mut leading[target as usize];
    if *leading == run.start {
        *leading += blocks.min(run.blocks);
    }
}
