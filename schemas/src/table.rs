//! What a table of rows is made of: the one description that the writers and the documentation read.

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// A count or an index.
    Int(Option<i64>),
    /// A time or a rate.
    Float(Option<f64>),
    /// A name.
    Text(Option<&'a str>),
    /// A yes or no.
    Bool(Option<bool>),
}

/// A column's type, as pandas and DuckDB see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// 64-bit signed integer.
    Int,
    /// 64-bit float.
    Float,
    /// UTF-8 text.
    Text,
    /// Boolean.
    Bool,
}

/// One column of a table with rows of type `R`.
pub struct Column<R> {
    /// Its name; the unit comes last.
    pub name: &'static str,
    /// Its type.
    pub kind: ColumnKind,
    /// Whether it can be null.
    pub nullable: bool,
    /// Its unit, or `-`.
    pub unit: &'static str,
    /// What it means, and when it is null.
    pub meaning: &'static str,
    /// Reads the value from a row.
    pub read: fn(&R) -> Cell<'_>,
}

/// A kind of row that makes a table.
pub trait TableRow: Sized + 'static {
    /// What a row is about.
    const NAME: &'static str;
    /// The columns, in order.
    const COLUMNS: &'static [Column<Self>];
    /// The column that rows are sorted by.
    const SORTED_BY: &'static str;
    /// Columns of text that has hardly any repetitions.
    const UNIQUE_TEXT: &'static [&'static str];
}

/// Shorthand for tables of columns: `nullable` is the only thing that a kind does not imply.
pub(crate) const fn column<R>(
    name: &'static str,
    kind: ColumnKind,
    nullable: bool,
    unit: &'static str,
    meaning: &'static str,
    read: fn(&R) -> Cell<'_>,
) -> Column<R> {
    Column { name, kind, nullable, unit, meaning, read }
}

/// Shorthand.
pub(crate) const INT: ColumnKind = ColumnKind::Int;
pub(crate) const FLOAT: ColumnKind = ColumnKind::Float;
pub(crate) const TEXT: ColumnKind = ColumnKind::Text;
pub(crate) const BOOL: ColumnKind = ColumnKind::Bool;

pub(crate) fn count(value: Option<u64>) -> Cell<'static> {
    Cell::Int(value.map(|v| v as i64))
}
