//! Rows of several sources as one table: the first row of a key wins, and the order in which keys came is kept.
//!
//! The order matters: where two measured shapes are equally near to one that was not measured, the earlier one counts.

use std::collections::BTreeMap;

use dynosim_schemas::perf_table::{PerfTable, TableKind};

/// Gathers rows in the order in which the sources give them.
pub struct Merge {
    table: PerfTable,
    /// For each column of the key, what came before with that value got which number.
    levels: Vec<BTreeMap<(u32, u32), u32>>,
    /// For each row, its numbers level by level.
    ranks: Vec<Vec<u32>>,
}

impl Merge {
    /// Nothing yet.
    pub fn new(kind: TableKind) -> Self {
        let levels = kind.words().len() + kind.numbers().len();
        Self { table: PerfTable::new(kind), levels: vec![BTreeMap::new(); levels], ranks: Vec::new() }
    }

    /// Adds a row, unless its key is there already.
    pub fn push(&mut self, words: &[&str], numbers: &[u32], latency_ms: f32) {
        let mut key = Vec::with_capacity(self.levels.len());
        for (column, word) in self.table.words.iter_mut().zip(words) {
            column.push(word);
            key.extend(column.rows.pop());
        }
        key.extend(nesting(self.table.kind, numbers));
        let (mut prefix, mut ranks, mut is_new) = (0, Vec::with_capacity(key.len()), false);
        for (level, value) in self.levels.iter_mut().zip(key) {
            let next = level.len() as u32;
            prefix = *level.entry((prefix, value)).or_insert(next);
            is_new = prefix == next;
            ranks.push(prefix);
        }
        if !is_new {
            return;
        }
        for (column, word) in self.table.words.iter_mut().zip(words) {
            column.push(word);
        }
        for (column, number) in self.table.numbers.iter_mut().zip(numbers) {
            column.push(*number);
        }
        self.table.latency_ms.push(latency_ms);
        self.ranks.push(ranks);
    }

    /// The rows, those of equal keys next to each other, level by level, in the order in which the keys came.
    pub fn finish(self) -> PerfTable {
        let mut order: Vec<usize> = (0..self.table.len()).collect();
        order.sort_by(|&a, &b| self.ranks[a].cmp(&self.ranks[b]));
        match self.table.kind {
            TableKind::Gemm => order = by_site(&self.table, &order),
            TableKind::Moe => order.sort_by_key(|&row| sorted_key(&self.table, row)),
            _ => {}
        }
        rearranged(&self.table, &order)
    }
}

/// The whole numbers of a key in the order in which the reference nests them.
fn nesting(kind: TableKind, numbers: &[u32]) -> Vec<u32> {
    match (kind, numbers) {
        (TableKind::Gemm, &[n, k, m]) => vec![m, n, k],
        // Attention with as many key as query heads is one group, whatever their number.
        (
            TableKind::ContextAttention | TableKind::GenerationAttention,
            &[head_dim, window, kv_heads, heads, outer, inner],
        ) => vec![head_dim, window, if kv_heads == heads { 0 } else { kv_heads }, heads, outer, inner],
        _ => numbers.to_vec(),
    }
}

/// Matrix products by shape: shapes in the order in which they come up, and within one by rows.
fn by_site(table: &PerfTable, order: &[usize]) -> Vec<usize> {
    let mut sites: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
    let mut keyed: Vec<(usize, u32, usize)> = Vec::with_capacity(order.len());
    for &row in order {
        let dtype = table.words.iter().filter_map(|column| column.rows.get(row).copied());
        let numbers: Vec<u32> = table.row(row).collect();
        let (site, m) = numbers.split_at(numbers.len().saturating_sub(1));
        let next = sites.len();
        let place = *sites.entry(dtype.chain(site.iter().copied()).collect()).or_insert(next);
        keyed.push((place, m.first().copied().unwrap_or_default(), row));
    }
    keyed.sort_unstable();
    // Shapes of one format together; their order within it stays.
    let format = |row: usize| table.words.first().and_then(|column| column.rows.get(row)).copied();
    keyed.sort_by_key(|&(_, _, row)| format(row));
    keyed.into_iter().map(|(_, _, row)| row).collect()
}

fn sorted_key(table: &PerfTable, row: usize) -> (Vec<u32>, Vec<u32>) {
    let words = table.words.iter().filter_map(|column| column.rows.get(row).copied()).collect();
    (words, table.row(row).collect())
}

fn rearranged(table: &PerfTable, order: &[usize]) -> PerfTable {
    let mut sorted = PerfTable::new(table.kind);
    for &row in order {
        for (to, from) in sorted.words.iter_mut().zip(&table.words) {
            to.push(from.get(row));
        }
        for (to, from) in sorted.numbers.iter_mut().zip(table.row(row)) {
            to.push(from);
        }
        sorted.latency_ms.extend(table.latency_ms.get(row));
    }
    sorted
}
