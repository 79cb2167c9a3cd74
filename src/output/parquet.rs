//! A table as a Parquet file, written while the simulation runs.
//!
//! Rows are gathered column by column and go out as one row group whenever enough of them are there. The buffers are
//! then used again, so that memory stays the same however long the run is.

use std::io::{self, Write};
use std::sync::Arc;

use dynosim_schemas::request_row::RequestRow;
use dynosim_schemas::table::{Cell, Column, ColumnKind, TableRow};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

/// Rows of a row group: what DuckDB uses itself, and the unit in which it reads a file in parallel.
const ROW_GROUP_ROWS: usize = 122_880;

/// Rows of each of the first row groups. A group is encoded when it is full, so that with large ones nearly all of a
/// short run's rows would be encoded after its end.
const FIRST_ROW_GROUP_ROWS: usize = 8192;

/// How many row groups are that small: together they have as many rows as a large one.
const FIRST_ROW_GROUPS: usize = ROW_GROUP_ROWS / FIRST_ROW_GROUP_ROWS;

/// Bytes of text in a row group, at which it is closed early: names in a trace can be of any length.
const ROW_GROUP_TEXT_BYTES: usize = 64 << 20;

/// Values that are handed to the encoder at a time. They fit the cache.
const BATCH: usize = 4096;

/// Rows that are turned into columns at a time. They fit the cache too, and divide a row group.
const PENDING_ROWS: usize = 256;

/// The key-value metadata of the file: of which version it is, what ran, and what each column means.
#[must_use]
pub fn file_metadata(version: &str, schema_version: &str, config_digest: &str) -> Vec<(String, String)> {
    let file = [
        ("dynosim.schema_version", schema_version),
        ("dynosim.version", version),
        ("dynosim.config_digest", config_digest),
    ];
    file.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Writes rows to a Parquet file in the order in which they come.
///
/// The same rows and metadata give the same bytes.
pub struct ParquetRows<W: Write + Send, R: TableRow = RequestRow> {
    writer: SerializedFileWriter<Slot<W>>,
    /// Rows that are not in `columns` yet: a column is filled faster from many rows than many columns from a row.
    pending: Vec<R>,
    columns: Vec<Buffer>,
    rows: usize,
    text_bytes: usize,
    row_groups: usize,
}

impl<W: Write + Send, R: TableRow> ParquetRows<W, R> {
    /// Starts a file. To `metadata` is added what every column means.
    ///
    /// # Errors
    ///
    /// If the start of the file cannot be written.
    pub fn new(output: W, metadata: &[(String, String)]) -> io::Result<Self> {
        let properties = Arc::new(properties::<R>(metadata)?);
        let writer = SerializedFileWriter::new(Slot(Some(output)), schema::<R>()?, properties).map_err(to_io)?;
        let columns = R::COLUMNS.iter().map(Buffer::new).collect();
        Ok(Self { writer, pending: Vec::with_capacity(PENDING_ROWS), columns, rows: 0, text_bytes: 0, row_groups: 0 })
    }

    /// Adds a row.
    ///
    /// # Errors
    ///
    /// If a row group was full and could not be written.
    pub fn push(&mut self, row: R) -> io::Result<()> {
        self.pending.push(row);
        if self.pending.len() >= PENDING_ROWS { self.transpose() } else { Ok(()) }
    }

    /// Writes what is left and the footer, and gives the output back with the size of the file.
    ///
    /// # Errors
    ///
    /// If any of that cannot be written.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.transpose()?;
        if self.rows > 0 {
            self.write_row_group()?;
        }
        self.writer.finish().map_err(to_io)?;
        let bytes = self.writer.bytes_written() as u64;
        let output = self.writer.inner_mut().0.take().ok_or_else(|| io::Error::other("the file was closed twice"))?;
        Ok((output, bytes))
    }

    /// Moves the pending rows into the columns, and these into the file when they are full.
    fn transpose(&mut self) -> io::Result<()> {
        for (column, buffer) in R::COLUMNS.iter().zip(&mut self.columns) {
            self.text_bytes += buffer.extend(column, &self.pending)?;
        }
        self.rows += self.pending.len();
        self.pending.clear();
        let full = if self.row_groups < FIRST_ROW_GROUPS { FIRST_ROW_GROUP_ROWS } else { ROW_GROUP_ROWS };
        if self.rows >= full || self.text_bytes >= ROW_GROUP_TEXT_BYTES {
            self.write_row_group()?;
        }
        Ok(())
    }

    fn write_row_group(&mut self) -> io::Result<()> {
        let mut group = self.writer.next_row_group().map_err(to_io)?;
        for buffer in &mut self.columns {
            let Some(mut column) = group.next_column().map_err(to_io)? else {
                return Err(io::Error::other("the table has more columns than its schema"));
            };
            buffer.write(&mut column).map_err(to_io)?;
            column.close().map_err(to_io)?;
        }
        group.close().map_err(to_io)?;
        (self.rows, self.text_bytes) = (0, 0);
        self.row_groups += 1;
        Ok(())
    }
}

/// Holds the output so that it can be taken back after the footer: the writer has a method for that, but it loses the
/// kind of an error on the way.
struct Slot<W>(Option<W>);

impl<W: Write> Write for Slot<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.as_mut().map_or(Err(io::ErrorKind::BrokenPipe.into()), |w| w.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// The values of one column that wait to be written.
struct Buffer {
    values: Values,
    /// For a nullable column, 1 for a value and 0 for a null, of which `values` has nothing.
    levels: Option<Vec<i16>>,
}

enum Values {
    Int(Vec<i64>),
    Float(Vec<f64>),
    Bool(Vec<bool>),
    Text(TextValues),
}

impl Buffer {
    fn new<R>(column: &Column<R>) -> Self {
        let values = match column.kind {
            ColumnKind::Int => Values::Int(Vec::new()),
            ColumnKind::Float => Values::Float(Vec::new()),
            ColumnKind::Bool => Values::Bool(Vec::new()),
            ColumnKind::Text => Values::Text(TextValues::default()),
        };
        Self { values, levels: column.nullable.then(Vec::new) }
    }

    /// Adds the values of `rows`, and returns how many bytes of text that took.
    fn extend<R>(&mut self, column: &Column<R>, rows: &[R]) -> io::Result<usize> {
        let levels = self.levels.as_mut();
        let cells = rows.iter().map(column.read);
        match &mut self.values {
            Values::Int(values) => {
                values.reserve(rows.len());
                let push = |v| values.push(v);
                extend(column, cells.map(|c| if let Cell::Int(v) = c { Ok(v) } else { Err(()) }), levels, push)?;
            }
            Values::Float(values) => {
                values.reserve(rows.len());
                let push = |v| values.push(v);
                extend(column, cells.map(|c| if let Cell::Float(v) = c { Ok(v) } else { Err(()) }), levels, push)?;
            }
            Values::Bool(values) => {
                values.reserve(rows.len());
                let push = |v| values.push(v);
                extend(column, cells.map(|c| if let Cell::Bool(v) = c { Ok(v) } else { Err(()) }), levels, push)?;
            }
            Values::Text(values) => {
                let before = values.bytes.len();
                let push = |v: &str| values.push(v);
                extend(column, cells.map(|c| if let Cell::Text(v) = c { Ok(v) } else { Err(()) }), levels, push)?;
                return Ok(values.bytes.len() - before);
            }
        }
        Ok(0)
    }

    /// Encodes all values and clears them.
    fn write(&mut self, column: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = self.levels.as_deref();
        match &mut self.values {
            Values::Int(values) => write_values::<Int64Type>(column, values, levels)?,
            Values::Float(values) => write_values::<DoubleType>(column, values, levels)?,
            Values::Bool(values) => write_values::<BoolType>(column, values, levels)?,
            Values::Text(values) => values.write(column, levels)?,
        }
        if let Some(levels) = &mut self.levels {
            levels.clear();
        }
        Ok(())
    }
}

/// Gives each value to `push` and notes each null in `levels`. A cell of another type comes as `Err`.
fn extend<R, T>(
    column: &Column<R>,
    cells: impl Iterator<Item = Result<Option<T>, ()>>,
    levels: Option<&mut Vec<i16>>,
    mut push: impl FnMut(T),
) -> io::Result<()> {
    let wrong_type = |()| malformed(column, "a value of another type");
    match levels {
        Some(levels) => {
            for cell in cells {
                let value = cell.map_err(wrong_type)?;
                levels.push(i16::from(value.is_some()));
                value.map(&mut push);
            }
        }
        None => {
            for cell in cells {
                push(cell.map_err(wrong_type)?.ok_or_else(|| malformed(column, "a null"))?);
            }
        }
    }
    Ok(())
}

/// Encodes values that lie in memory as the encoder wants them.
fn write_values<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &mut Vec<T::T>,
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    column.typed::<T>().write_batch(values, levels, None)?;
    values.clear();
    Ok(())
}

/// Text values, end to end in one allocation: most runs have millions of them, and an allocation for each would cost
/// more than everything else.
#[derive(Default)]
struct TextValues {
    bytes: Vec<u8>,
    /// Start and length of each value.
    spans: Vec<(usize, usize)>,
}

impl TextValues {
    /// Adds a value. A repetition of the last one takes no bytes.
    fn push(&mut self, text: &str) {
        if let Some(&(start, length)) = self.spans.last()
            && self.bytes.get(start..start + length) == Some(text.as_bytes())
        {
            self.spans.push((start, length));
            return;
        }
        self.spans.push((self.bytes.len(), text.len()));
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Encodes all values and clears them.
    fn write(&mut self, column: &mut SerializedColumnWriter<'_>, levels: Option<&[i16]>) -> Result<(), ParquetError> {
        let next = Vec::with_capacity(self.bytes.len());
        // The encoder shares the bytes from here on, so that this allocation is the one that cannot be kept.
        let bytes = ByteArray::from(std::mem::replace(&mut self.bytes, next));
        let typed = column.typed::<ByteArrayType>();
        let mut spans = self.spans.iter();
        let mut batch = Vec::with_capacity(BATCH);
        let mut fill = |batch: &mut Vec<ByteArray>, count: usize| {
            batch.clear();
            batch.extend(spans.by_ref().take(count).map(|&(start, length)| bytes.slice(start, length)));
        };
        match levels {
            Some(levels) => {
                for levels in levels.chunks(BATCH) {
                    fill(&mut batch, levels.iter().filter(|&&level| level == 1).count());
                    typed.write_batch(&batch, Some(levels), None)?;
                }
            }
            None => {
                for _ in 0..self.spans.len().div_ceil(BATCH) {
                    fill(&mut batch, BATCH);
                    typed.write_batch(&batch, None, None)?;
                }
            }
        }
        self.spans.clear();
        Ok(())
    }
}

/// The Parquet schema of a kind of row.
fn schema<R: TableRow>() -> io::Result<TypePtr> {
    let mut fields = Vec::with_capacity(R::COLUMNS.len());
    for column in R::COLUMNS {
        let (physical, logical) = match column.kind {
            ColumnKind::Int => (PhysicalType::INT64, None),
            ColumnKind::Float => (PhysicalType::DOUBLE, None),
            ColumnKind::Bool => (PhysicalType::BOOLEAN, None),
            ColumnKind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let repetition = if column.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
            .map_err(to_io)?;
        fields.push(Arc::new(field));
    }
    Ok(Arc::new(Type::group_type_builder(R::NAME).with_fields(fields).build().map_err(to_io)?))
}

fn properties<R: TableRow>(metadata: &[(String, String)]) -> io::Result<WriterProperties> {
    let level = ZstdLevel::try_new(1).map_err(to_io)?;
    let mut builder = WriterProperties::builder()
        // Without the version of the Parquet library, which says nothing about the content.
        .set_created_by("dynosim".to_owned())
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_write_batch_size(BATCH)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_key_value_metadata(Some(key_values::<R>(metadata)))
        .set_sorting_columns(sorting::<R>());
    for column in R::COLUMNS {
        let path = ColumnPath::from(column.name);
        if column.kind == ColumnKind::Int {
            builder = builder.set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED);
        }
        if matches!(column.kind, ColumnKind::Int | ColumnKind::Float) || R::UNIQUE_TEXT.contains(&column.name) {
            builder = builder.set_column_dictionary_enabled(path, false);
        }
    }
    Ok(builder.build())
}

fn key_values<R: TableRow>(metadata: &[(String, String)]) -> Vec<KeyValue> {
    let file = metadata.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let columns = R::COLUMNS
        .iter()
        .map(|c| KeyValue::new(format!("dynosim.column.{}", c.name), format!("{}; {}", c.unit, c.meaning)));
    file.chain(columns).collect()
}

/// Tells readers what the rows are sorted by.
fn sorting<R: TableRow>() -> Option<Vec<SortingColumn>> {
    let index = R::COLUMNS.iter().position(|c| c.name == R::SORTED_BY)?;
    let column_idx = i32::try_from(index).ok()?;
    Some(vec![SortingColumn { column_idx, descending: false, nulls_first: false }])
}

/// Gets the I/O error out again, whose kind decides what the user is told.
fn to_io(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) => *io,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

fn malformed<R>(column: &Column<R>, what: &str) -> io::Error {
    let text = format!("column `{}` was given {what}, against its description", column.name);
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use dynosim_schemas::request_row::COLUMNS;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::super::test_rows::{Disk, empty_row, full_row, mixed_row};
    use super::*;

    fn file_of(rows: impl Iterator<Item = RequestRow>) -> Vec<u8> {
        let mut file = ParquetRows::new(Disk::unlimited(), &file_metadata("0.1.0", "1", "digest")).unwrap();
        for row in rows {
            file.push(row).unwrap();
        }
        let (disk, bytes) = file.finish().unwrap();
        assert_eq!(bytes, disk.content.len() as u64);
        disk.content
    }

    fn reader(content: &[u8]) -> SerializedFileReader<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        SerializedFileReader::new(file).unwrap()
    }

    fn same(cell: Cell<'_>, field: &Field) -> bool {
        match (cell, field) {
            (Cell::Int(None) | Cell::Float(None) | Cell::Text(None) | Cell::Bool(None), Field::Null) => true,
            (Cell::Int(Some(a)), Field::Long(b)) => a == *b,
            (Cell::Float(Some(a)), Field::Double(b)) => a.to_bits() == b.to_bits(),
            (Cell::Text(Some(a)), Field::Str(b)) => a == b,
            (Cell::Bool(Some(a)), Field::Bool(b)) => a == *b,
            _ => false,
        }
    }

    fn assert_round_trip(count: u64, row: fn(u64) -> RequestRow) {
        let reader = reader(&file_of((0..count).map(row)));
        let mut rows = 0;
        for (index, read) in (0..).zip(reader.get_row_iter(None).unwrap()) {
            let (read, written) = (read.unwrap(), row(index));
            let fields: Vec<_> = read.get_column_iter().collect();
            assert_eq!(fields.len(), COLUMNS.len());
            for (column, (name, field)) in COLUMNS.iter().zip(fields) {
                assert_eq!(column.name, name);
                assert!(same((column.read)(&written), field), "row {index}, {name}: {field:?}");
            }
            rows += 1;
        }
        assert_eq!(rows, count);
    }

    #[test]
    fn values_and_nulls_come_back() {
        assert_round_trip(10_000, mixed_row);
        assert_round_trip(5, empty_row);
        assert_round_trip(5, full_row);
        assert_round_trip(0, full_row);
    }

    #[test]
    fn full_rows_fill_every_column_and_empty_ones_no_nullable_one() {
        let (full, empty) = (full_row(1), empty_row(1));
        for column in COLUMNS {
            let null = |cell| matches!(cell, Cell::Int(None) | Cell::Float(None) | Cell::Text(None) | Cell::Bool(None));
            assert!(!null((column.read)(&full)), "{}", column.name);
            assert_eq!(null((column.read)(&empty)), column.nullable, "{}", column.name);
        }
    }

    #[test]
    fn row_groups_are_bounded_and_buffers_used_again() {
        let rows = 2 * ROW_GROUP_ROWS as u64 + 1000;
        let reader = reader(&file_of((0..rows).map(mixed_row)));
        let sizes: Vec<_> = reader.metadata().row_groups().iter().map(|g| g.num_rows()).collect();
        let (first, rest) = sizes.split_at(FIRST_ROW_GROUPS);
        assert!(first.iter().all(|&size| size == FIRST_ROW_GROUP_ROWS as i64), "{first:?}");
        assert_eq!(rest, [ROW_GROUP_ROWS as i64, 1000]);
        let last_group = reader.get_row_group(sizes.len() - 1).unwrap();
        let first = last_group.get_row_iter(None).unwrap().next().unwrap().unwrap();
        let written = mixed_row(2 * ROW_GROUP_ROWS as u64);
        for (column, (name, field)) in COLUMNS.iter().zip(first.get_column_iter()) {
            assert!(same((column.read)(&written), field), "{name}: {field:?}");
        }
    }

    #[test]
    fn long_names_close_a_row_group_early() {
        let name = "x".repeat(ROW_GROUP_TEXT_BYTES / PENDING_ROWS);
        let rows = (0..300).map(|index| {
            let mut row = empty_row(index);
            row.request_id = Some(format!("{index}{name}").into());
            row
        });
        let reader = reader(&file_of(rows));
        let sizes: Vec<_> = reader.metadata().row_groups().iter().map(|g| g.num_rows()).collect();
        assert_eq!(sizes, [256, 44]);
    }

    #[test]
    fn same_rows_give_same_bytes() {
        assert_eq!(file_of((0..5000).map(mixed_row)), file_of((0..5000).map(mixed_row)));
    }

    #[test]
    fn file_describes_itself() {
        let reader = reader(&file_of((0..10).map(full_row)));
        let file = reader.metadata().file_metadata();
        assert_eq!(file.created_by(), Some("dynosim"));
        let value = |key: &str| {
            let entry = file.key_value_metadata().unwrap().iter().find(|kv| kv.key == key);
            entry.and_then(|kv| kv.value.clone()).unwrap_or_default()
        };
        assert_eq!(value("dynosim.schema_version"), "1");
        assert_eq!(value("dynosim.config_digest"), "digest");
        assert!(value("dynosim.column.ttft_ms").starts_with("ms; Time to first token"));
        for (column, described) in COLUMNS.iter().zip(file.schema_descr().columns()) {
            assert_eq!(described.self_type().is_optional(), column.nullable, "{}", column.name);
            let text = column.kind == ColumnKind::Text;
            assert_eq!(described.logical_type_ref() == Some(&LogicalType::String), text, "{}", column.name);
        }
        for chunk in reader.metadata().row_group(0).columns() {
            assert!(chunk.statistics().is_some(), "{}", chunk.column_path());
        }
    }

    #[test]
    fn full_disk_is_an_error_of_its_kind_at_any_point() {
        let whole = file_of((0..2000).map(mixed_row)).len();
        for room in (0..whole).step_by(997).chain([whole - 1]) {
            let file = ParquetRows::<_, RequestRow>::new(Disk::new(room), &file_metadata("0.1.0", "1", "digest"));
            let outcome = file.and_then(|mut file| {
                (0..2000).try_for_each(|index| file.push(mixed_row(index)))?;
                file.finish().map(drop)
            });
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::StorageFull, "room for {room} bytes");
        }
    }
}
