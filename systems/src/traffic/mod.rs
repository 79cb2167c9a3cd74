//! Traffic: when requests arrive, and what each of them is.

pub mod agentic;
mod components;
mod load;
mod release;
mod source;
mod synthetic;

pub use components::{RequestInfo, Session};
pub use load::Load;
pub use release::{Traffic, react_to_endings, release_arrivals};
pub use source::{DeltaSession, GrowingSession, Script, SourceError, Turn, Unit, UnitSource};
pub use synthetic::{SessionShape, SyntheticRequests, SyntheticSessions};
