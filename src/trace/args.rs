//! The command lines of `dynosim trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use dynosim_schemas::config::limits::MAX_TOKENS;
use dynosim_schemas::config::{NestedBasis, TraceFormat, WekaRules};

use crate::cli::StackArg;
use crate::error::CommandError;
use crate::traces::TraceRequest;
use crate::traces::weka::WekaOptions;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Write a trace in another format
    ///
    /// The written file is read again and compared with its source before it gets its name, so that either both are
    /// the same or there is no file.
    Convert(ConvertArgs),
    /// Write the workload of a configuration as a trace, and say how to play it
    ///
    /// Playing the written trace on the same deployment gives the same requests, with the same times.
    Export(ExportArgs),
    /// Say what is in a trace: rows, lengths, rates, sessions, and how much of its prompts can be reused
    Stats(StatsArgs),
}

/// A trace to be read.
#[derive(Debug, Args)]
pub struct TraceInput {
    /// The trace: a file, several shards of `dynamo`, or a folder of `weka`
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<String>,

    /// How it is written, as in `traffic.source.format`
    #[arg(long, value_enum, default_value_t = FormatArg::Mooncake)]
    pub format: FormatArg,

    /// Tokens per hash id, unless the trace has its own [default: 512, of `qwen_bailian` 16]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..=MAX_TOKENS))]
    pub block_size: Option<u64>,

    /// How much a `weka` trace may take liberties [default: strict]
    #[arg(long, value_enum)]
    pub weka_rules: Option<WekaRulesArg>,

    /// What the times of subagents' requests in a `weka` trace count from [default: absolute]
    #[arg(long, value_enum)]
    pub nested_timestamp_basis: Option<NestedBasisArg>,
}

impl TraceInput {
    /// The trace that is meant. Only formats without a block size of their own have a default one.
    ///
    /// # Errors
    /// If it is not meant clearly: options or several paths for a format that has no use for them.
    pub fn request(&self) -> Result<TraceRequest<'_>, CommandError> {
        let format: TraceFormat = self.format.into();
        if format != TraceFormat::Weka && (self.weka_rules.is_some() || self.nested_timestamp_basis.is_some()) {
            return Err(CommandError::usage(
                "`--weka-rules` and `--nested-timestamp-basis` are for `--format weka`; leave them out",
            ));
        }
        if self.block_size.is_some() && !format.knows_prefixes() {
            return Err(CommandError::usage("`--block-size` is for traces with hash ids; leave it out"));
        }
        if format != TraceFormat::Dynamo && self.paths.len() > 1 {
            return Err(CommandError::usage(format!(
                "this format takes exactly one path, found {}; only `--format dynamo` comes in several files",
                self.paths.len()
            )));
        }
        Ok(TraceRequest {
            paths: &self.paths,
            format,
            block_size: self.block_size.or(format.default_block_size()),
            weka: WekaOptions {
                rules: self.weka_rules.map(Into::into).unwrap_or_default(),
                basis: self.nested_timestamp_basis.map(Into::into).unwrap_or_default(),
                block_size: self.block_size,
            },
        })
    }
}

/// Options of `export`.
#[derive(Debug, Args)]
#[command(after_long_help = EXPORT_NOTES)]
pub struct ExportArgs {
    /// YAML configuration, as for `predict`
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,

    /// What runs the engines
    #[arg(long, value_enum, default_value_t = StackArg::Engine)]
    pub stack: StackArg,

    /// Override a value of the configuration, as in `predict`; repeatable
    #[arg(long = "set", value_name = "PATH=YAML")]
    pub overrides: Vec<String>,

    /// The new file; there must be none of this name yet
    #[arg(short, long, value_name = "PATH")]
    pub output: PathBuf,
}

const EXPORT_NOTES: &str = "\
Requests and recorded sessions become `mooncake`, sessions whose prompts grow by what was said `mooncake-delta`, and
agents `agentic_mooncake`. Blocks get new hash ids. Printed is the `traffic` section that plays the file.

Exit codes: 0 success; 1 the workload cannot be read or the file cannot be written; 2 the command line or the
configuration is wrong, or the file exists; 130 interrupted. After anything but 0 there is no new file.

Example:
  dynosim trace export data/examples/sessions.yaml --output sessions.jsonl";

/// Options of `stats`.
#[derive(Debug, Args)]
#[command(after_long_help = STATS_NOTES)]
pub struct StatsArgs {
    /// What is read
    #[command(flatten)]
    pub input: TraceInput,

    /// Print JSON instead of a table and plots
    #[arg(long)]
    pub json: bool,
}

const STATS_NOTES: &str = "\
Ideal block reuse is the share of prompt blocks that an earlier prompt had, with the same blocks before them: what a
cache would find that is shared by all workers and never forgets. It is unknown where a trace does not say what prompts
share.

Exit codes: 0 success; 1 the trace cannot be read; 2 the command line is wrong; 130 interrupted.

Example:
  dynosim trace stats data/traces/own_chat.jsonl";

/// Options of `convert`.
#[derive(Debug, Args)]
#[command(after_long_help = CONVERT_NOTES)]
pub struct ConvertArgs {
    /// What is read
    #[command(flatten)]
    pub input: TraceInput,

    /// What is written
    #[arg(long, value_enum)]
    pub to: Target,

    /// The new file; there must be none of this name yet
    #[arg(short, long, value_name = "PATH")]
    pub output: PathBuf,
}

const CONVERT_NOTES: &str = "\
Exit codes: 0 success; 1 the trace cannot be read or the file cannot be written; 2 the command line is wrong, the
trace cannot be written in that format, or the file exists; 130 interrupted. After anything but 0 there is no new file.

With `--to mooncake` blocks get new hash ids, and what dynosim does not read is not written.

Examples:
  dynosim trace convert --format weka traces/weka --to agentic_mooncake --output agents.jsonl
  dynosim trace convert --format qwen_bailian qwen.jsonl --to mooncake --output requests.jsonl";

/// What can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// A graph of agents' requests, version 2
    #[value(name = "agentic_mooncake")]
    AgenticMooncake,
    /// Requests with their complete prompts
    #[value(name = "mooncake")]
    Mooncake,
}

/// What can be read, under the names of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Requests with their complete prompts
    #[value(name = "mooncake")]
    Mooncake,
    /// Later turns hold only what is new
    #[value(name = "mooncake-delta")]
    MooncakeDelta,
    /// A graph of agents' requests
    #[value(name = "agentic_mooncake")]
    AgenticMooncake,
    /// Conversations with tool calls
    #[value(name = "applied_compute_agentic")]
    AppliedComputeAgentic,
    /// Records of the Dynamo frontend
    #[value(name = "dynamo")]
    Dynamo,
    /// Agents with subagents
    #[value(name = "weka")]
    Weka,
    /// Qwen on Bailian
    #[value(name = "qwen_bailian")]
    QwenBailian,
    /// LLM inference on Azure
    #[value(name = "azure_llm")]
    AzureLlm,
    /// BurstGPT
    #[value(name = "burstgpt")]
    BurstGpt,
    /// Processed traces of Vidur
    #[value(name = "vidur")]
    Vidur,
}

impl From<FormatArg> for TraceFormat {
    fn from(arg: FormatArg) -> Self {
        match arg {
            FormatArg::Mooncake => Self::Mooncake,
            FormatArg::MooncakeDelta => Self::MooncakeDelta,
            FormatArg::AgenticMooncake => Self::AgenticMooncake,
            FormatArg::AppliedComputeAgentic => Self::AppliedComputeAgentic,
            FormatArg::Dynamo => Self::Dynamo,
            FormatArg::Weka => Self::Weka,
            FormatArg::QwenBailian => Self::QwenBailian,
            FormatArg::AzureLlm => Self::AzureLlm,
            FormatArg::BurstGpt => Self::BurstGpt,
            FormatArg::Vidur => Self::Vidur,
        }
    }
}

/// As `traffic.source.weka_rules`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WekaRulesArg {
    /// Every request has an `api_time`, a corpus has one model, and files are `.json`
    Strict,
    /// None of this has to be so
    Lenient,
}

impl From<WekaRulesArg> for WekaRules {
    fn from(arg: WekaRulesArg) -> Self {
        match arg {
            WekaRulesArg::Strict => Self::Strict,
            WekaRulesArg::Lenient => Self::Lenient,
        }
    }
}

/// As `traffic.source.nested_timestamp_basis`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NestedBasisArg {
    /// The start of the trace
    Absolute,
    /// The subagent's own start
    Relative,
    /// Whichever the corpus suggests
    Auto,
}

impl From<NestedBasisArg> for NestedBasis {
    fn from(arg: NestedBasisArg) -> Self {
        match arg {
            NestedBasisArg::Absolute => Self::Absolute,
            NestedBasisArg::Relative => Self::Relative,
            NestedBasisArg::Auto => Self::Auto,
        }
    }
}
