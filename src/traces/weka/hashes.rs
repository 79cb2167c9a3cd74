//! Names the blocks of prompts: equal ids of one play are equal blocks, and nothing else is.

use fxhash::{FxHashMap, FxHashSet};

use super::play::{RecordedPlay, RecordedRequest};

/// The ids that have been given. No two blocks share one, whatever their hashes are.
#[derive(Default)]
pub(super) struct BlockNames {
    taken: FxHashSet<u64>,
    /// What the ids of the current play have become.
    recorded: FxHashMap<u64, u64>,
}

impl BlockNames {
    /// Forgets the recorded ids: those of the next play mean something else.
    pub fn begin_play(&mut self) {
        self.recorded.clear();
    }

    /// The ids of a request's blocks: the recorded ones, private ones where they are missing, and a private one for
    /// the tokens behind the last complete block.
    pub fn prompt(&mut self, play: &RecordedPlay<'_>, request: &RecordedRequest, block_size: u64) -> Vec<u64> {
        let complete = request.input_tokens / block_size;
        let mut ids: Vec<u64> = (0..complete)
            .map(|block| match request.hashes.get(block as usize) {
                Some(&hash) => self.recorded(&play.object.identity, hash),
                None => self.new_id("weka-full-block", &format!("private:missing:{}:{block}", request.id)),
            })
            .collect();
        if !request.input_tokens.is_multiple_of(block_size) {
            let identity = format!("{}:{complete}:{}", request.id, request.input_tokens);
            ids.push(self.new_id("weka-partial-tail", &identity));
        }
        ids
    }

    fn recorded(&mut self, play: &str, hash: u64) -> u64 {
        if let Some(&id) = self.recorded.get(&hash) {
            return id;
        }
        let id = self.new_id("weka-full-block", &format!("source:{play}:{hash}"));
        self.recorded.insert(hash, id);
        id
    }

    /// The id of something new: the start of its hash, or of the next hash if that is taken. The domains and the way to
    /// hash are the reference's, so that graphs can be compared.
    fn new_id(&mut self, domain: &str, identity: &str) -> u64 {
        let mut nonce = 0_u64;
        loop {
            let mut hasher = blake3::Hasher::new();
            for part in [domain.as_bytes(), b"\0", identity.as_bytes(), b"\0", nonce.to_string().as_bytes()] {
                hasher.update(part);
            }
            let hash = hasher.finalize();
            let id = u64::from_le_bytes(hash.as_bytes().first_chunk().copied().unwrap_or_default());
            if self.taken.insert(id) {
                return id;
            }
            nonce += 1;
        }
    }
}
