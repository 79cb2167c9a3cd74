//! Units of load that have been read beforehand.

use dynosim_systems::traffic::{SourceError, Unit, UnitSource};

/// Gives out units in their order.
pub struct ListedUnits {
    units: std::vec::IntoIter<Unit>,
    has_sessions: bool,
}

impl ListedUnits {
    /// A source of these units.
    #[must_use]
    pub fn new(units: Vec<Unit>) -> Self {
        let has_sessions = units.iter().any(|unit| unit.script.turns_to_come() > 1);
        Self { units: units.into_iter(), has_sessions }
    }
}

impl UnitSource for ListedUnits {
    fn next_unit(&mut self) -> Result<Option<Unit>, SourceError> {
        Ok(self.units.next())
    }

    fn has_sessions(&self) -> bool {
        self.has_sessions
    }
}
