//! Tables in the project's own layout (`docs/perf-tables.md`): one Parquet file for each kind of table.

use std::sync::Arc;

use bytes::Bytes;
use dynosim_schemas::perf_table::{LATENCY, PerfTable, TableKind, WordColumn};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, FloatType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};

use super::columns::{self, Values};

/// Key of the metadata that names the backend's version.
const BACKEND_VERSION: &str = "dynosim.backend_version";
/// Key of the metadata that says where the rows come from.
const SOURCE: &str = "dynosim.source";
/// The tables are read far more often than written.
const ZSTD_LEVEL: i32 = 19;

/// What a file says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableInfo {
    /// The version of the backend that was measured.
    pub backend_version: String,
    /// Where the rows come from.
    pub source: String,
    /// Number of rows.
    pub rows: u64,
}

/// Reads what a file says of itself.
///
/// # Errors
/// If it is no Parquet file.
pub fn read_info(bytes: Bytes) -> Result<TableInfo, String> {
    let file = columns::open(bytes)?;
    let metadata = file.metadata().file_metadata();
    let word = |key: &str| {
        let entries = metadata.key_value_metadata().into_iter().flatten();
        entries.filter(|entry| entry.key == key).find_map(|entry| entry.value.clone()).unwrap_or_default()
    };
    let rows = metadata.num_rows().max(0) as u64;
    Ok(TableInfo { backend_version: word(BACKEND_VERSION), source: word(SOURCE), rows })
}

/// Reads the rows of a file whose words `wants` accepts. Each row group has one key of words, so that the others are
/// skipped undecoded.
///
/// # Errors
/// If the file is damaged or lacks a column.
pub fn read_table(kind: TableKind, bytes: Bytes, wants: &dyn Fn(&[&str]) -> bool) -> Result<PerfTable, String> {
    let file = columns::open(bytes)?;
    let place = |name: &&str| columns::position(&file, name).ok_or_else(|| format!("column `{name}` is missing"));
    let words = kind.words().iter().map(&place).collect::<Result<Vec<_>, _>>()?;
    let numbers = kind.numbers().iter().map(&place).collect::<Result<Vec<_>, _>>()?;
    let latency = place(&LATENCY)?;
    let mut table = PerfTable::new(kind);
    for index in 0..file.num_row_groups() {
        let group = file.get_row_group(index).map_err(|e| e.to_string())?;
        append_group(&mut table, group.as_ref(), (&words, &numbers, latency), wants)?;
    }
    Ok(table)
}

fn append_group(
    table: &mut PerfTable,
    group: &dyn RowGroupReader,
    (words, numbers, latency): (&[usize], &[usize], usize),
    wants: &dyn Fn(&[&str]) -> bool,
) -> Result<(), String> {
    let mut key = Vec::with_capacity(words.len());
    for &column in words {
        key.extend(columns::first_word(group, column)?);
    }
    let rows = group.metadata().num_rows().max(0) as usize;
    if rows == 0 || !wants(&key.iter().map(String::as_str).collect::<Vec<_>>()) {
        return Ok(());
    }
    for ((word, &place), column) in key.iter().zip(words).zip(&mut table.words) {
        if !columns::is_all(group, place, word)? {
            return Err("a row group has more than one key of words".to_owned());
        }
        column.push_many(word, rows);
    }
    for (column, &place) in table.numbers.iter_mut().zip(numbers) {
        let Values::Integers(values) = columns::read(group, place)? else {
            return Err("a key is no number".to_owned());
        };
        for value in values {
            column.push(u32::try_from(value).map_err(|_| format!("{value} is out of range"))?);
        }
    }
    let Values::Floats(values) = columns::read(group, latency)? else {
        return Err(format!("column `{LATENCY}` is no number"));
    };
    for value in values {
        if !value.is_finite() || value <= 0.0 {
            return Err(format!("column `{LATENCY}`: {value} is no duration"));
        }
        table.latency_ms.push(value as f32);
    }
    Ok(())
}

/// A table as the bytes of a file. Rows keep their order; each run of equal words is a row group of its own.
///
/// # Errors
/// If the encoder fails.
pub fn write_table(table: &PerfTable, info: &TableInfo) -> Result<Vec<u8>, String> {
    encode(table, info).map_err(|e| e.to_string())
}

fn encode(table: &PerfTable, info: &TableInfo) -> Result<Vec<u8>, ParquetError> {
    let metadata = [(BACKEND_VERSION, &info.backend_version), (SOURCE, &info.source)];
    let metadata = metadata.map(|(key, value)| KeyValue::new(key.to_owned(), value.clone())).to_vec();
    let latency = ColumnPath::from(LATENCY);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_column_dictionary_enabled(latency.clone(), false)
        .set_column_encoding(latency, Encoding::BYTE_STREAM_SPLIT)
        .set_key_value_metadata(Some(metadata))
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema(table.kind)?), Arc::new(properties))?;
    let mut start = 0;
    while start < table.len() {
        let end = end_of_run(&table.words, start, table.len());
        let mut group = writer.next_row_group()?;
        write_group(&mut group, table, start..end)?;
        group.close()?;
        start = end;
    }
    writer.into_inner()
}

fn end_of_run(words: &[WordColumn], start: usize, len: usize) -> usize {
    let same = |row: &usize| words.iter().all(|column| column.rows.get(*row) == column.rows.get(start));
    start + (start..len).take_while(same).count()
}

fn schema(kind: TableKind) -> Result<Type, ParquetError> {
    let field = |name: &str, physical: PhysicalType, logical: Option<LogicalType>| {
        let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED);
        builder.with_logical_type(logical).build().map(Arc::new)
    };
    let words = kind.words().iter().map(|name| field(name, PhysicalType::BYTE_ARRAY, Some(LogicalType::String)));
    let numbers = kind.numbers().iter().map(|name| field(name, PhysicalType::INT32, None));
    let latency = [field(LATENCY, PhysicalType::FLOAT, None)];
    let fields = words.chain(numbers).chain(latency).collect::<Result<Vec<_>, _>>()?;
    Type::group_type_builder("perf_table").with_fields(fields).build()
}

fn write_group(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    table: &PerfTable,
    rows: std::ops::Range<usize>,
) -> Result<(), ParquetError> {
    for column in &table.words {
        let values: Vec<ByteArray> = rows.clone().map(|row| column.get(row).into()).collect();
        write_column::<ByteArrayType>(group, &values)?;
    }
    for column in &table.numbers {
        let values: Vec<i32> = column[rows.clone()].iter().map(|&value| value as i32).collect();
        write_column::<Int32Type>(group, &values)?;
    }
    write_column::<FloatType>(group, &table.latency_ms[rows])
}

fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("the table has more columns than its schema".to_owned()));
    };
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}
