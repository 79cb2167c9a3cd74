//! Where each field stands in the file.
//!
//! A second, independent pass over the text. It decides nothing: when it fails, positions are missing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use saphyr_parser::{Event, Parser, Span};

/// Collections inside each other that a document may have: far more than any configuration needs.
const MAX_DEPTH: usize = 128;

/// Dotted path to line and column, both from 1.
#[derive(Debug, Default)]
pub(super) struct Positions {
    by_path: BTreeMap<String, (usize, usize)>,
    duplicate: Option<(String, (usize, usize))>,
}

impl Positions {
    /// Scans a document as far as it is readable.
    pub(super) fn of(text: &str) -> Self {
        let mut scan = Scan::default();
        for event in Parser::new_from_str(text) {
            let Ok((event, span)) = event else { break };
            if scan.open.len() > MAX_DEPTH {
                break;
            }
            scan.step(&event, span);
        }
        scan.found
    }

    /// The place of a field's name; of a list's element, the place of the value.
    pub(super) fn get(&self, path: &str) -> Option<(usize, usize)> {
        self.by_path.get(path).copied()
    }

    /// The place of the innermost mapping around a path that has one.
    pub(super) fn nearest(&self, path: &str) -> Option<(usize, usize)> {
        let mut outer = path;
        while let Some((shorter, _)) = outer.rsplit_once('.') {
            outer = shorter;
            if let Some(position) = self.get(outer) {
                return Some(position);
            }
        }
        None
    }

    /// The first field that is written twice in one mapping, with the place of the second.
    pub(super) fn duplicate(&self) -> Option<&(String, (usize, usize))> {
        self.duplicate.as_ref()
    }
}

/// Whether collections stand inside each other beyond reason. Asked before the text is parsed for good: the parser
/// refuses such a document too, but takes time that grows with the square of its depth.
pub(super) fn nests_too_deeply(text: &str) -> bool {
    let mut depth = 0_usize;
    for event in Parser::new_from_str(text) {
        match event {
            Ok((Event::MappingStart(..) | Event::SequenceStart(..), _)) => depth += 1,
            Ok((Event::MappingEnd | Event::SequenceEnd, _)) => depth = depth.saturating_sub(1),
            Ok(_) => {}
            // The scanner looks ahead, and counts open brackets by itself.
            Err(error) => return error.info().contains("recursion limit"),
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

/// An open mapping or list.
struct Open {
    path: String,
    is_mapping: bool,
    /// The key whose value comes next (mappings).
    key: Option<String>,
    /// The index of the next element (lists).
    index: usize,
    /// Whether this collection is itself a key of the mapping around it.
    is_key: bool,
}

#[derive(Default)]
struct Scan {
    found: Positions,
    open: Vec<Open>,
}

impl Scan {
    fn step(&mut self, event: &Event<'_>, span: Span) {
        match event {
            Event::Scalar(text, ..) => self.leaf(text, span),
            Event::Alias(_) => self.leaf("*", span),
            Event::MappingStart(..) => self.start(true, span),
            Event::SequenceStart(..) => self.start(false, span),
            Event::MappingEnd | Event::SequenceEnd => self.end(),
            _ => {}
        }
    }

    fn leaf(&mut self, text: &str, span: Span) {
        if self.awaits_key() {
            self.key(text, span);
        } else {
            self.place_element(span);
            self.value_done();
        }
    }

    fn start(&mut self, is_mapping: bool, span: Span) {
        let is_key = self.awaits_key();
        if is_key {
            self.key("?", span);
        } else {
            self.place_element(span);
        }
        self.open.push(Open { path: self.path(), is_mapping, key: None, index: 0, is_key });
    }

    fn end(&mut self) {
        if let Some(closed) = self.open.pop()
            && !closed.is_key
        {
            self.value_done();
        }
    }

    fn awaits_key(&self) -> bool {
        self.open.last().is_some_and(|top| top.is_mapping && top.key.is_none())
    }

    fn key(&mut self, name: &str, span: Span) {
        if let Some(top) = self.open.last_mut() {
            top.key = Some(name.to_owned());
        }
        let position = place(span);
        match self.found.by_path.entry(self.path()) {
            Entry::Vacant(place) => {
                place.insert(position);
            }
            Entry::Occupied(first) => {
                self.found.duplicate.get_or_insert_with(|| (first.key().clone(), position));
            }
        }
    }

    fn place_element(&mut self, span: Span) {
        if self.open.last().is_some_and(|top| !top.is_mapping) {
            self.found.by_path.insert(self.path(), place(span));
        }
    }

    fn value_done(&mut self) {
        if let Some(top) = self.open.last_mut() {
            top.key = None;
            top.index += 1;
        }
    }

    /// The path of the node that comes next.
    fn path(&self) -> String {
        let Some(top) = self.open.last() else { return String::new() };
        match &top.key {
            Some(key) => join(&top.path, key),
            None if top.is_mapping => top.path.clone(),
            None => join(&top.path, &top.index.to_string()),
        }
    }
}

fn place(span: Span) -> (usize, usize) {
    (span.start.line(), span.start.col() + 1)
}

/// One step down a dotted path.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
