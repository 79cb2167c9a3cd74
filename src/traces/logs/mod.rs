//! Logs of requests as CSV: times and lengths, and nothing of what prompts hold.
//!
//! What prompts share is not known, so every prompt counts as nobody else's, and cache reuse is reported as unknown.

mod table;

use dynosim_systems::prefix::PromptIdentity;
use dynosim_systems::traffic::Turn;

use self::table::{Fields, Header};
use super::mooncake::{TraceTurn, token_count};
use super::rows::{Parsed, RowLayout};
use super::time::{seconds_as_ms, wall_clock_ns};

/// Where a log has what.
pub(super) struct LogColumns {
    /// Arrival.
    pub time: &'static str,
    time_unit: TimeUnit,
    /// Whether a file may do without times.
    time_is_optional: bool,
    input: &'static str,
    output: &'static str,
    /// The conversation, in files that have it.
    conversation: Option<&'static str>,
    /// Whether a request without output is one that failed.
    fails_without_output: bool,
}

#[derive(Clone, Copy)]
enum TimeUnit {
    WallClock,
    Seconds,
}

/// `AzureLLMInferenceTrace_*.csv`.
pub(super) const AZURE_LLM: LogColumns = LogColumns {
    time: "TIMESTAMP",
    time_unit: TimeUnit::WallClock,
    time_is_optional: false,
    input: "ContextTokens",
    output: "GeneratedTokens",
    conversation: None,
    fails_without_output: false,
};

/// `BurstGPT_*.csv`. Files before version 2 have no conversations.
pub(super) const BURST_GPT: LogColumns = LogColumns {
    time: "Timestamp",
    time_unit: TimeUnit::Seconds,
    time_is_optional: false,
    input: "Request tokens",
    output: "Response tokens",
    conversation: Some("Session ID"),
    fails_without_output: true,
};

/// `data/processed_traces/*.csv` of Vidur.
pub(super) const VIDUR: LogColumns = LogColumns {
    time: "arrived_at",
    time_unit: TimeUnit::Seconds,
    time_is_optional: true,
    input: "num_prefill_tokens",
    output: "num_decode_tokens",
    conversation: None,
    fails_without_output: false,
};

/// Reads the lines of a log.
pub(super) struct LogRows {
    columns: &'static LogColumns,
    places: Option<Places>,
    fields: Fields,
    /// The first time of day: others count from it, so that they are exact.
    origin_ns: Option<i64>,
}

/// Which column is which in this file.
#[derive(Clone, Copy)]
struct Places {
    time: Option<usize>,
    input: usize,
    output: usize,
    conversation: Option<usize>,
}

impl LogRows {
    pub fn new(columns: &'static LogColumns) -> Self {
        Self { columns, places: None, fields: Fields::new(), origin_ns: None }
    }

    fn time_ms(&mut self, place: usize) -> Result<f64, String> {
        let name = self.columns.time;
        let text = self.fields.text(place, name)?;
        match self.columns.time_unit {
            TimeUnit::Seconds => {
                let seconds = text.parse().map_err(|_| format!("{name}: {text:?} is no number of seconds"))?;
                seconds_as_ms(name, seconds)
            }
            TimeUnit::WallClock => {
                let ns = wall_clock_ns(name, text)?;
                let origin_ns = *self.origin_ns.get_or_insert(ns);
                Ok((i128::from(ns) - i128::from(origin_ns)) as f64 / 1e6)
            }
        }
    }
}

impl RowLayout for LogRows {
    fn parse(&mut self, line: &str, number: u64) -> Result<Parsed, String> {
        self.fields.split(line);
        let Some(places) = self.places else {
            self.places = Some(places(self.columns, &self.fields.header())?);
            return Ok(Parsed::Header);
        };
        let input_tokens = token_count(self.columns.input, self.fields.number(places.input, self.columns.input)?)?;
        let output_tokens = token_count(self.columns.output, self.fields.number(places.output, self.columns.output)?)?;
        let timestamp_ms = places.time.map(|place| self.time_ms(place)).transpose()?;
        if input_tokens == 0 || (output_tokens == 0 && self.columns.fails_without_output) {
            return Ok(Parsed::LeftOut);
        }
        let conversation = match (places.conversation, self.columns.conversation) {
            (Some(place), Some(name)) => Some(self.fields.text(place, name)?).filter(|text| !text.is_empty()),
            _ => None,
        };
        let turn = Turn {
            input_tokens,
            output_tokens,
            identity: PromptIdentity::unique(number),
            delay_ms: 0.0,
            request_id: None,
            source_line: Some(number),
        };
        Ok(Parsed::Row(TraceTurn { timestamp_ms, conversation: conversation.map(Box::from), ..TraceTurn::of(turn) }))
    }
}

fn places(columns: &LogColumns, header: &Header<'_>) -> Result<Places, String> {
    let time = header.find(columns.time)?;
    Ok(Places {
        time: if columns.time_is_optional { time } else { Some(header.required(columns.time)?) },
        input: header.required(columns.input)?,
        output: header.required(columns.output)?,
        conversation: match columns.conversation {
            Some(name) => header.find(name)?,
            None => None,
        },
    })
}
