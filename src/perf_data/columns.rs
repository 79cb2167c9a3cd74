//! Whole columns out of Parquet files.

use bytes::Bytes;
use parquet::basic::Type as PhysicalType;
use parquet::column::reader::{ColumnReader, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

/// A column, row by row.
pub enum Values {
    /// Text.
    Words(Vec<String>),
    /// Whole numbers.
    Integers(Vec<i64>),
    /// Numbers.
    Floats(Vec<f64>),
}

/// Opens a file in memory.
///
/// # Errors
/// If it is no Parquet file.
pub fn open(bytes: Bytes) -> Result<SerializedFileReader<Bytes>, String> {
    SerializedFileReader::new(bytes).map_err(|e| e.to_string())
}

/// The place of a column among those of the file.
pub fn position(file: &SerializedFileReader<Bytes>, name: &str) -> Option<usize> {
    let schema = file.metadata().file_metadata().schema_descr();
    schema.columns().iter().position(|column| column.name() == name)
}

/// Reads one column of a row group.
///
/// # Errors
/// If it has gaps, is of another type, or cannot be decoded.
pub fn read(group: &dyn RowGroupReader, column: usize) -> Result<Values, String> {
    let rows = group.metadata().num_rows().max(0) as usize;
    let wrong = |e: ParquetError| e.to_string();
    let descriptor = group.metadata().column(column);
    match descriptor.column_type() {
        PhysicalType::BYTE_ARRAY => {
            let values = typed::<ByteArrayType>(group.get_column_reader(column).map_err(wrong)?, rows)?;
            let words: Result<Vec<String>, _> =
                values.iter().map(|value| value.as_utf8().map(str::to_owned).map_err(|e| e.to_string())).collect();
            words.map(Values::Words)
        }
        PhysicalType::INT32 => {
            let values = typed::<Int32Type>(group.get_column_reader(column).map_err(wrong)?, rows)?;
            Ok(Values::Integers(values.into_iter().map(i64::from).collect()))
        }
        PhysicalType::INT64 => {
            typed::<Int64Type>(group.get_column_reader(column).map_err(wrong)?, rows).map(Values::Integers)
        }
        PhysicalType::FLOAT => {
            let values = typed::<FloatType>(group.get_column_reader(column).map_err(wrong)?, rows)?;
            Ok(Values::Floats(values.into_iter().map(f64::from).collect()))
        }
        PhysicalType::DOUBLE => {
            typed::<DoubleType>(group.get_column_reader(column).map_err(wrong)?, rows).map(Values::Floats)
        }
        other => Err(format!("column `{}` has the type {other}", descriptor.column_path().string())),
    }
}

/// The first word of a column of a row group; `None` if that has no rows.
///
/// # Errors
/// If it is no text, or cannot be decoded.
pub fn first_word(group: &dyn RowGroupReader, column: usize) -> Result<Option<String>, String> {
    let rows = group.metadata().num_rows().clamp(0, 1) as usize;
    let values = texts(group, column, rows)?;
    values.first().map(|value| value.as_utf8().map(str::to_owned).map_err(|e| e.to_string())).transpose()
}

/// Whether every row of a column is that word.
///
/// # Errors
/// If it is no text, or cannot be decoded.
pub fn is_all(group: &dyn RowGroupReader, column: usize, word: &str) -> Result<bool, String> {
    let rows = group.metadata().num_rows().max(0) as usize;
    Ok(texts(group, column, rows)?.iter().all(|value| value.data() == word.as_bytes()))
}

fn texts(group: &dyn RowGroupReader, column: usize, rows: usize) -> Result<Vec<ByteArray>, String> {
    let descriptor = group.metadata().column(column);
    if descriptor.column_type() != PhysicalType::BYTE_ARRAY {
        return Err(format!("column `{}` is no text", descriptor.column_path().string()));
    }
    typed::<ByteArrayType>(group.get_column_reader(column).map_err(|e| e.to_string())?, rows)
}

fn typed<T: DataType>(reader: ColumnReader, rows: usize) -> Result<Vec<T::T>, String> {
    let mut reader = get_typed_column_reader::<T>(reader);
    let (mut values, mut definitions) = (Vec::with_capacity(rows), Vec::new());
    let (records, read, _) =
        reader.read_records(rows, Some(&mut definitions), None, &mut values).map_err(|e| e.to_string())?;
    if records == rows && read == rows { Ok(values) } else { Err(format!("{read} values where {rows} were expected")) }
}
