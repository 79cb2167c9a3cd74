//! What a router knew and what it chose: one row for each target that it could have chosen.

use crate::config::Role;
use crate::table::{BOOL, Cell, Column, FLOAT, INT, TEXT, TableRow, column, count};

/// One target of one decision of the KV router.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionRow {
    /// Order of the decision, from 0.
    pub decision_index: u64,
    /// The request.
    pub request_index: u64,
    /// When it was decided, in ms of virtual time.
    pub at_ms: f64,
    /// The pool that the targets belong to.
    pub pool: Role,
    /// Since when the request had waited in the router, in ms; `None` if it had not.
    pub queued_at_ms: Option<f64>,
    /// The worker, by its number within the pool.
    pub worker_id: u32,
    /// Its rank.
    pub rank: u32,
    /// Leading prompt blocks that the router believed to be cached there.
    pub overlap_blocks: u32,
    /// Prompt tokens that were still to be computed there for earlier requests.
    pub prefill_tokens: u64,
    /// Distinct prompt blocks of its active requests, those of this request included.
    pub decode_blocks: u64,
    /// Its cost, in blocks.
    pub cost: f64,
    /// Whether it was chosen.
    pub chosen: bool,
}

impl TableRow for DecisionRow {
    const NAME: &'static str = "decision";
    const COLUMNS: &'static [Column<Self>] = DECISION_COLUMNS;
    const SORTED_BY: &'static str = "decision_index";
    const UNIQUE_TEXT: &'static [&'static str] = &[];
}

/// The columns of `decisions.parquet`, in order.
#[rustfmt::skip]
pub const DECISION_COLUMNS: &[Column<DecisionRow>] = &[
    column("decision_index", INT, false, "-", "Order of the decision, from 0. Rows are sorted by it, then by worker and rank.", |r| count(Some(r.decision_index))),
    column("request_index", INT, false, "-", "The request, as in `requests.parquet`.", |r| count(Some(r.request_index))),
    column("at_ms", FLOAT, false, "ms", "Virtual time of the decision.", |r| Cell::Float(Some(r.at_ms))),
    column("pool", TEXT, false, "-", "`aggregated`, `prefill` or `decode`: whose router decided.", |r| Cell::Text(Some(r.pool.name()))),
    column("queued_at_ms", FLOAT, true, "ms", "Virtual time since when the request had waited in the router's queue; null if it was placed at once.", |r| Cell::Float(r.queued_at_ms)),
    column("worker_id", INT, false, "-", "The candidate worker, by its number within the pool, from 0.", |r| count(Some(r.worker_id.into()))),
    column("rank", INT, false, "-", "The candidate's data-parallel attention rank, from 0.", |r| count(Some(r.rank.into()))),
    column("overlap_blocks", INT, false, "blocks", "Leading blocks of the prompt that the router believed to be cached there.", |r| count(Some(r.overlap_blocks.into()))),
    column("prefill_tokens", INT, false, "tokens", "Prompt tokens still to be computed there for earlier requests.", |r| count(Some(r.prefill_tokens))),
    column("decode_blocks", INT, false, "blocks", "Distinct prompt blocks of the requests there, with those of this request.", |r| count(Some(r.decode_blocks))),
    column("cost", FLOAT, false, "blocks", "What the router compares: the least wins at temperature 0.", |r| Cell::Float(Some(r.cost))),
    column("chosen", BOOL, false, "-", "Whether the request went there; true for exactly one row of a decision.", |r| Cell::Bool(Some(r.chosen))),
];
