//! `traffic`: which requests there are, when they arrive and when the run stops.

mod read;

use schemars::JsonSchema;
use serde::Serialize;

use super::limits::{MAX_COUNT, MAX_LANES, MAX_NUMBER, MAX_TOKENS, MAX_TURNS, MIN_RATE};
use super::schema::{default_tag, no_null, positive};

/// Tokens per trace block, unless the file or the records say otherwise.
pub const DEFAULT_TRACE_BLOCK_SIZE: u64 = 512;
/// Tokens per block of a `qwen_bailian` trace.
pub const QWEN_BLOCK_SIZE: u64 = 16;

/// Request source, load pattern and stopping condition.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Traffic {
    /// Where requests come from.
    pub source: Source,
    /// When they are sent.
    pub load: Load,
    /// When the run ends. Synthetic sources need exactly one count; a trace runs to its end by default.
    #[serde(skip_serializing_if = "Stop::is_empty")]
    #[schemars(default)]
    pub stop: Stop,
}

/// Where requests come from.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[schemars(deny_unknown_fields)]
pub enum Source {
    /// Independent requests of one shape; no two share a token.
    Synthetic {
        /// Prompt tokens of a request.
        #[schemars(default = "default_input_tokens", range(min = 1, max = MAX_TOKENS))]
        input_tokens: u64,
        /// Output tokens of a request.
        #[schemars(default = "default_output_tokens", range(min = 1, max = MAX_TOKENS))]
        output_tokens: u64,
    },
    /// Conversations of several turns, each of which continues the one before.
    SyntheticSession {
        /// Prompt tokens that each turn adds to the conversation.
        #[schemars(default = "default_input_tokens", range(min = 1, max = MAX_TOKENS))]
        new_input_tokens_per_turn: u64,
        /// Output tokens of each turn.
        #[schemars(default = "default_output_tokens", range(min = 1, max = MAX_TOKENS))]
        output_tokens_per_turn: u64,
        /// The shape of a conversation.
        session: Session,
    },
    /// Recorded requests, read from files.
    Trace {
        /// The files. Only the `dynamo` format takes more than one.
        #[schemars(length(min = 1), inner(length(min = 1)))]
        paths: Vec<String>,
        /// How the files are written.
        #[schemars(default)]
        format: TraceFormat,
        /// Tokens per hash id. 512 by default, 16 for `qwen_bailian`; `dynamo` and `weka` traces carry their own, and so
        /// does `agentic_mooncake` from version 2 on. Traces without hash ids have no use for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(transform = no_null, range(min = 1, max = MAX_TOKENS))]
        block_size: Option<u64>,
        /// How much a `weka` trace may take liberties.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(transform = no_null)]
        weka_rules: Option<WekaRules>,
        /// What the times of subagents' requests in a `weka` trace count from.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(transform = no_null)]
        nested_timestamp_basis: Option<NestedBasis>,
    },
}

/// The shape of a synthetic conversation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct Session {
    /// Requests of a conversation.
    #[schemars(range(min = 2, max = MAX_TURNS))]
    pub turns: u64,
    /// Share of a turn's new input that all sessions of one group have in common. Above 0 it needs `prefix_groups`.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub shared_prefix_ratio: f64,
    /// Number of groups among which sessions are spread.
    #[schemars(range(max = MAX_COUNT))]
    pub prefix_groups: u64,
    /// Wait between the end of a turn and the next one.
    #[schemars(range(min = 0.0, max = MAX_NUMBER))]
    pub inter_turn_delay_ms: f64,
}

impl Default for Session {
    fn default() -> Self {
        Self { turns: 4, shared_prefix_ratio: 0.0, prefix_groups: 0, inter_turn_delay_ms: 0.0 }
    }
}

/// How a trace is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum TraceFormat {
    /// One request per line; each row holds its complete prompt.
    #[default]
    #[serde(rename = "mooncake")]
    Mooncake,
    /// As `mooncake`, but later rows of a session hold only their new input.
    #[serde(rename = "mooncake-delta")]
    MooncakeDelta,
    /// A graph of agents' requests that wait for each other.
    #[serde(rename = "agentic_mooncake")]
    AgenticMooncake,
    /// Agents' conversations without times.
    #[serde(rename = "applied_compute_agentic")]
    AppliedComputeAgentic,
    /// Records of the Dynamo frontend, in one or more shards.
    #[serde(rename = "dynamo")]
    Dynamo,
    /// Agents with subagents, one play per JSON file; the path is a file, or a folder of them.
    #[serde(rename = "weka")]
    Weka,
    /// The public traces of Qwen on Aliyun Bailian: requests with their complete prompts, 16 tokens per hash id.
    #[serde(rename = "qwen_bailian")]
    QwenBailian,
    /// The public traces of LLM inference on Azure (2023, 2024): CSV with times and lengths.
    #[serde(rename = "azure_llm")]
    AzureLlm,
    /// BurstGPT: CSV with times and lengths; failed requests are left out.
    #[serde(rename = "burstgpt")]
    BurstGpt,
    /// The processed traces of Vidur: CSV with lengths, and times if there are any.
    #[serde(rename = "vidur")]
    Vidur,
}

impl TraceFormat {
    /// Whether the trace says itself how many tokens an id stands for.
    #[must_use]
    pub const fn has_own_block_size(self) -> bool {
        matches!(self, Self::Dynamo | Self::Weka)
    }

    /// Whether a trace says which prompts begin alike. Where it does not, nothing is known of cache reuse.
    #[must_use]
    pub const fn knows_prefixes(self) -> bool {
        !matches!(self, Self::AzureLlm | Self::BurstGpt | Self::Vidur)
    }

    /// Tokens per hash id where neither the trace nor the user says.
    #[must_use]
    pub const fn default_block_size(self) -> Option<u64> {
        match self {
            Self::QwenBailian => Some(QWEN_BLOCK_SIZE),
            _ if self.has_own_block_size() || !self.knows_prefixes() => None,
            _ => Some(DEFAULT_TRACE_BLOCK_SIZE),
        }
    }

    /// Whether every trace of this format is a graph of agents' requests. A `dynamo` trace may be one.
    #[must_use]
    pub const fn is_agentic(self) -> bool {
        matches!(self, Self::AgenticMooncake | Self::Weka)
    }
}

/// How much a `weka` trace may take liberties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WekaRules {
    /// Every request has an `api_time`, a corpus has one model, and files are `.json`.
    #[default]
    Strict,
    /// A missing `api_time` counts as 0, models may differ (the deployment serves all of them), and `.jsonl` files with
    /// several plays are read too.
    Lenient,
}

/// What the times of subagents' requests count from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NestedBasis {
    /// From the start of the trace.
    #[default]
    Absolute,
    /// From the subagent's own start.
    Relative,
    /// `relative` if any of them in the whole corpus would otherwise come before its subagent, else `absolute`.
    Auto,
}

/// Which play a lane takes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LanePolicy {
    /// Lane *l* of *n* plays number *l*, *l + n*, *l + 2n*, ...; it goes on when the workers have let go of its play.
    #[default]
    Stride,
    /// The next play that no lane has taken; a lane goes on when the last request of its play has ended.
    SharedQueue,
}

/// When requests (of a session source: sessions) are sent.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(deny_unknown_fields, transform = default_tag("type", "concurrency"))]
pub enum Load {
    /// A fixed number is active at any time.
    Concurrency {
        /// Requests, or sessions of a source that has sessions.
        #[schemars(default = "default_concurrency", range(min = 1, max = MAX_COUNT))]
        concurrency: u64,
    },
    /// Evenly spaced arrivals.
    ConstantRate {
        /// Arrivals per second, for `synthetic`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(transform = no_null, range(min = MIN_RATE, max = MAX_NUMBER))]
        requests_per_second: Option<f64>,
        /// Arrivals per second, for `synthetic-session`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(transform = no_null, range(min = MIN_RATE, max = MAX_NUMBER))]
        sessions_per_second: Option<f64>,
    },
    /// Random arrivals with exponential gaps.
    Poisson {
        /// Mean arrivals per second, for `synthetic`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(transform = no_null, range(min = MIN_RATE, max = MAX_NUMBER))]
        requests_per_second: Option<f64>,
        /// Mean arrivals per second, for `synthetic-session`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(transform = no_null, range(min = MIN_RATE, max = MAX_NUMBER))]
        sessions_per_second: Option<f64>,
        /// Seed of the gaps.
        #[schemars(default = "default_seed")]
        seed: u64,
    },
    /// The times of the trace.
    TraceTimestamps {
        /// How many times faster than recorded.
        #[schemars(default = "default_speedup", range(min = MIN_RATE, max = MAX_NUMBER))]
        speedup: f64,
        /// How many plays of a trace of agents are played at a time. Without it, each starts at its recorded time.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(transform = no_null, range(min = 1, max = MAX_LANES))]
        agentic_lanes: Option<u64>,
        /// Which play a lane takes next, with `agentic_lanes`; `stride` by default.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(transform = no_null)]
        lane_policy: Option<LanePolicy>,
    },
}

/// When the run ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Stop {
    /// After this many requests (`synthetic`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = no_null, range(min = 1, max = MAX_COUNT))]
    pub requests: Option<u64>,
    /// After this many sessions (`synthetic-session`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = no_null, range(min = 1, max = MAX_COUNT))]
    pub sessions: Option<u64>,
    /// After this many requests per unit of concurrency, or per request per second (`synthetic`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = no_null, transform = positive)]
    pub requests_per_load_unit: Option<f64>,
    /// After this many sessions per unit of concurrency, or per session per second (`synthetic-session`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = no_null, transform = positive)]
    pub sessions_per_load_unit: Option<f64>,
    /// At this virtual time (traces). What happens at exactly this time still counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = no_null, transform = positive)]
    pub max_virtual_time_seconds: Option<f64>,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            source: Source::Synthetic { input_tokens: default_input_tokens(), output_tokens: default_output_tokens() },
            load: Load::Concurrency { concurrency: default_concurrency() },
            stop: Stop { requests: Some(100), ..Stop::default() },
        }
    }
}

impl Traffic {
    /// The number of arriving units that a count stop asks for: sessions of a `synthetic-session` source, otherwise
    /// requests. A count per load unit is rounded half to even and is at least 1. `None` without a count stop.
    #[must_use]
    pub fn unit_count(&self) -> Option<u64> {
        self.stop.requests.or(self.stop.sessions).or_else(|| {
            let per_unit = self.stop.requests_per_load_unit.or(self.stop.sessions_per_load_unit)?;
            Some((per_unit * self.load.units()?).round_ties_even().max(1.0) as u64)
        })
    }

    /// The number of requests that a count stop asks for: its units times the turns of each.
    #[must_use]
    pub fn request_count(&self) -> Option<u64> {
        self.unit_count().map(|units| units.saturating_mul(self.source.turns()))
    }
}

impl Source {
    /// Requests per unit of a synthetic source; 1 where the unit is a request.
    #[must_use]
    pub fn turns(&self) -> u64 {
        match self {
            Self::SyntheticSession { session, .. } => session.turns,
            Self::Synthetic { .. } | Self::Trace { .. } => 1,
        }
    }

    /// The trace's format, for a trace.
    #[must_use]
    pub fn trace_format(&self) -> Option<TraceFormat> {
        match self {
            Self::Trace { format, .. } => Some(*format),
            Self::Synthetic { .. } | Self::SyntheticSession { .. } => None,
        }
    }
}

impl Load {
    /// What a count per load unit is multiplied with: the concurrency or the arrivals per second.
    #[must_use]
    pub fn units(&self) -> Option<f64> {
        match self {
            Self::Concurrency { concurrency } => Some(*concurrency as f64),
            _ => self.rate_per_second(),
        }
    }

    /// Arrivals per second, for the loads that have a rate.
    #[must_use]
    pub fn rate_per_second(&self) -> Option<f64> {
        match self {
            Self::ConstantRate { requests_per_second, sessions_per_second }
            | Self::Poisson { requests_per_second, sessions_per_second, .. } => {
                requests_per_second.or(*sessions_per_second)
            }
            Self::Concurrency { .. } | Self::TraceTimestamps { .. } => None,
        }
    }
}

impl Stop {
    /// Whether no stopping condition is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn default_input_tokens() -> u64 {
    1024
}

fn default_output_tokens() -> u64 {
    128
}

fn default_concurrency() -> u64 {
    10
}

fn default_seed() -> u64 {
    42
}

fn default_speedup() -> f64 {
    1.0
}
