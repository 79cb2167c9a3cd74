//! Models, hardware and measured operator times: where they are, and how they are read.

mod catalogue;
mod columns;
mod import;
mod locate;
mod merge;
mod served;
mod store;
mod upstream;

pub use self::catalogue::{DataError, hardware, model, table, table_info};
pub use self::import::{ImportReport, import};
pub use self::locate::{DataFiles, Origin};
pub use self::served::{folder_of, tables_for};
pub use self::store::{TableInfo, read_info, read_table, write_table};
