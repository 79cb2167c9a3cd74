//! The largest values that a configuration may hold.
//!
//! They are far beyond any real deployment. Their purpose is that sums and products of accepted values stay exact in
//! 64 bits, so that the simulator needs no overflow checks of its own.

/// Requests or sessions of a run: the largest integers that a float holds exactly.
pub const MAX_COUNT: u64 = 1 << 53;
/// Tokens of one prompt, output or block.
pub const MAX_TOKENS: u64 = i32::MAX as u64;
/// KV blocks of one rank.
pub const MAX_BLOCKS: u64 = i32::MAX as u64;
/// Turns of one session.
pub const MAX_TURNS: u64 = 1 << 20;
/// Lanes of plays.
pub const MAX_LANES: u64 = 1 << 20;
/// Replicas of a role, or ranks along one parallel dimension.
pub const MAX_REPLICAS: u64 = 65_536;
/// Seconds between two planner ticks (a century).
pub const MAX_SECONDS: u64 = 3_153_600_000;
/// Times, rates and weights: large enough for anything, small enough that products stay finite.
pub const MAX_NUMBER: f64 = 1e15;
/// Rates and speedups, whose inverse is taken.
pub const MIN_RATE: f64 = 1e-9;
