//! The per-request table as JSON Lines, for scripts that want no Parquet reader.

use std::io::{self, BufWriter, Write};

use dynosim_schemas::request_row::{Admission, COLUMNS, RequestRow};
use dynosim_schemas::table::{Cell, Column};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The one field that the Parquet table has no column for.
const HISTORY: &str = "admission_history";

/// Writes rows as one compact JSON object a line, keys sorted, in the order in which the rows come.
pub struct JsonlRows<W: Write> {
    output: BufWriter<Counted<W>>,
    fields: Vec<Field>,
}

impl<W: Write> JsonlRows<W> {
    /// Starts a file.
    #[must_use]
    pub fn new(output: W) -> Self {
        Self { output: BufWriter::with_capacity(1 << 16, Counted { inner: output, bytes: 0 }), fields: sorted_fields() }
    }

    /// Adds a row.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn push(&mut self, row: &RequestRow) -> io::Result<()> {
        serde_json::to_writer(&mut self.output, &Line { row, fields: &self.fields })?;
        self.output.write_all(b"\n")
    }

    /// Writes what is left, and gives the output back with the size of the file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(self) -> io::Result<(W, u64)> {
        let counted = self.output.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok((counted.inner, counted.bytes))
    }
}

/// A field of a line.
enum Field {
    Column(&'static Column<RequestRow>),
    History,
}

impl Field {
    const fn name(&self) -> &'static str {
        match self {
            Self::Column(column) => column.name,
            Self::History => HISTORY,
        }
    }
}

fn sorted_fields() -> Vec<Field> {
    let mut fields: Vec<_> = COLUMNS.iter().map(Field::Column).collect();
    fields.push(Field::History);
    fields.sort_by_key(Field::name);
    fields
}

struct Line<'a> {
    row: &'a RequestRow,
    fields: &'a [Field],
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len()))?;
        for field in self.fields {
            match field {
                Field::Column(column) => match (column.read)(self.row) {
                    Cell::Int(v) => map.serialize_entry(column.name, &v)?,
                    Cell::Float(v) => map.serialize_entry(column.name, &v)?,
                    Cell::Text(v) => map.serialize_entry(column.name, &v)?,
                    Cell::Bool(v) => map.serialize_entry(column.name, &v)?,
                },
                Field::History => map.serialize_entry(HISTORY, &History(self.row))?,
            }
        }
        map.end()
    }
}

struct History<'a>(&'a RequestRow);

impl Serialize for History<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let knows_reuse = self.0.knows_prefixes;
        serializer.collect_seq(self.0.admissions.iter().map(|admission| HistoryEntry { admission, knows_reuse }))
    }
}

struct HistoryEntry<'a> {
    admission: &'a Admission,
    knows_reuse: bool,
}

impl Serialize for HistoryEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        let Admission { at_ms, worker_id, role, reused_tokens } = self.admission;
        map.serialize_entry("at_ms", at_ms)?;
        map.serialize_entry("pool", role.name())?;
        map.serialize_entry("reused_tokens", &self.knows_reuse.then_some(reused_tokens))?;
        map.serialize_entry("worker_id", worker_id)?;
        map.end()
    }
}

/// Counts the bytes that reach the file.
struct Counted<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::super::test_rows::{Disk, empty_row, full_row, mixed_row};
    use super::*;

    fn text_of(rows: impl Iterator<Item = RequestRow>) -> String {
        let mut file = JsonlRows::new(Disk::unlimited());
        for row in rows {
            file.push(&row).unwrap();
        }
        let (disk, bytes) = file.finish().unwrap();
        assert_eq!(bytes, disk.content.len() as u64);
        String::from_utf8(disk.content).unwrap()
    }

    #[test]
    fn line_has_every_column_and_the_history_in_order_of_name() {
        let text = text_of((0..2).map(full_row));
        assert_eq!(text.lines().count(), 2);
        assert!(text.ends_with("}\n") && !text.contains(": ") && !text.contains(", "));
        let line: Map<String, Value> = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
        let keys: Vec<_> = line.keys().map(String::as_str).collect();
        assert!(keys.is_sorted());
        assert_eq!(keys.len(), COLUMNS.len() + 1);
        assert_eq!(line["status"], json!("completed"));
        assert_eq!(line["arrival_ms"], json!(0.25));
        assert_eq!(line["sla_met"], json!(false));
        assert_eq!(line["admissions"], json!(2));
        let history = json!([
            { "at_ms": 1.75, "pool": "prefill", "reused_tokens": 64, "worker_id": 3 },
            { "at_ms": 3.25, "pool": "decode", "reused_tokens": 128, "worker_id": 5 },
        ]);
        assert_eq!(line["admission_history"], history);
    }

    #[test]
    fn nulls_are_written() {
        let line: Map<String, Value> = serde_json::from_str(&text_of(std::iter::once(empty_row(0)))).unwrap();
        for column in COLUMNS {
            assert_eq!(line[column.name].is_null(), column.nullable, "{}", column.name);
        }
        assert_eq!(line[HISTORY], json!([]));
    }

    #[test]
    fn full_disk_is_an_error_of_its_kind() {
        let whole = text_of((0..500).map(mixed_row)).len();
        for room in [0, whole / 2, whole - 1] {
            let mut file = JsonlRows::new(Disk::new(room));
            let pushed = (0..500).try_for_each(|index| file.push(&mixed_row(index)));
            let outcome = pushed.and_then(|()| file.finish().map(drop));
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
    }
}
