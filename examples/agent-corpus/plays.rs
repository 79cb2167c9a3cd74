//! Plays of coding agents: a conversation that grows with every tool call, and subagents on the side.

use std::ops::Range;

use serde_json::{Value, json};

/// Tokens per hash id.
const BLOCK_SIZE: u64 = 64;
const MODEL: &str = "agent-model";

/// The file of a play.
pub fn file_name(number: u32) -> String {
    format!("play-{number:05}.json")
}

/// The text of a play's file.
pub fn play(number: u32) -> String {
    let mut writer = Writer { draws: Draws(u64::from(number)), next_id: 0, now_ms: 0, requests: Vec::new() };
    writer.main_agent();
    let play = json!({
        "id": format!("agent-{number}"),
        "models": [MODEL],
        "block_size": BLOCK_SIZE,
        "hash_id_scope": "local",
        "requests": writer.requests,
    });
    format!("{play}\n")
}

/// Whole numbers that look random and are the same on every machine (Knuth's MMIX generator).
struct Draws(u64);

impl Draws {
    fn within(&mut self, range: Range<u64>) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The high bits are the good ones.
        range.start + (self.0 >> 33) % (range.end - range.start)
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.within(0..times) == 0
    }
}

/// What has been said in a conversation.
struct Conversation {
    /// Tokens of the next prompt.
    tokens: u64,
    /// Ids of its complete blocks.
    ids: Vec<u64>,
}

struct Writer {
    draws: Draws,
    next_id: u64,
    now_ms: u64,
    requests: Vec<Value>,
}

impl Writer {
    fn main_agent(&mut self) {
        let turns = self.draws.within(4..13);
        let first_tokens = self.draws.within(2_000..5_000);
        let mut conversation = self.conversation(first_tokens);
        for turn in 0..turns {
            if turn > 0 && self.draws.once_in(12) {
                self.compact(&mut conversation);
            }
            let request = self.request(&mut conversation);
            self.requests.push(request);
            if self.draws.once_in(4) {
                self.subagent(turn);
            }
            // The tool that the agent calls next.
            self.now_ms += self.draws.within(50..8_000);
        }
    }

    /// A subagent that starts now. If it is waited for, time goes on at its end.
    fn subagent(&mut self, turn: u64) {
        let is_blocking = !self.draws.once_in(3);
        let marker_ms = self.now_ms + self.draws.within(5..100);
        let resumed_ms = self.now_ms;
        self.now_ms = marker_ms;
        let first_tokens = self.draws.within(500..2_500);
        let mut conversation = self.conversation(first_tokens);
        let mut requests = Vec::new();
        for _ in 0..self.draws.within(1..5) {
            requests.push(self.request(&mut conversation));
            self.now_ms += self.draws.within(20..2_000);
        }
        let mut subagent = json!({
            "type": "subagent",
            "t": seconds(marker_ms),
            "agent_id": format!("helper-{turn}"),
            "subagent_type": "explore",
            "status": if is_blocking { "completed" } else { "async_launched" },
            "requests": requests,
        });
        if is_blocking {
            subagent["duration_ms"] = json!(self.now_ms - marker_ms);
        } else {
            self.now_ms = resumed_ms;
        }
        self.requests.push(subagent);
    }

    fn conversation(&mut self, tokens: u64) -> Conversation {
        let mut conversation = Conversation { tokens, ids: Vec::new() };
        self.name_blocks(&mut conversation);
        conversation
    }

    fn name_blocks(&mut self, conversation: &mut Conversation) {
        let blocks = conversation.tokens / BLOCK_SIZE;
        while (conversation.ids.len() as u64) < blocks {
            conversation.ids.push(self.next_id);
            self.next_id += 1;
        }
    }

    /// The next request of a conversation: time passes, and its answer and a tool's are said.
    fn request(&mut self, conversation: &mut Conversation) -> Value {
        let output_tokens = self.draws.within(30..500);
        let api_ms = 150 + conversation.tokens / 40 + output_tokens * 12;
        let request = json!({
            "type": "s",
            "t": seconds(self.now_ms),
            "model": MODEL,
            "in": conversation.tokens,
            "out": output_tokens,
            "hash_ids": conversation.ids,
            "api_time": seconds(api_ms),
        });
        self.now_ms += api_ms;
        conversation.tokens += output_tokens + self.draws.within(50..1_500);
        self.name_blocks(conversation);
        request
    }

    /// Cuts a conversation back to its start and a summary.
    fn compact(&mut self, conversation: &mut Conversation) {
        let kept = conversation.ids.len() / 3;
        conversation.ids.truncate(kept);
        conversation.tokens = kept as u64 * BLOCK_SIZE + self.draws.within(200..800);
        self.name_blocks(conversation);
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
