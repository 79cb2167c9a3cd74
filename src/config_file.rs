//! The configuration file of a command, with its overrides.

use std::path::Path;

use dynosim_schemas::config::{self, Override, Prediction, Problem, Stack};

use crate::cli::{ConfigArgs, StackArg};
use crate::error::CommandError;

/// A configuration that is valid and available, and the text that it comes from.
pub struct LoadedConfig {
    /// The configuration.
    pub prediction: Prediction,
    file: String,
    text: String,
    overrides: Vec<Override>,
}

impl LoadedConfig {
    /// Reads it.
    ///
    /// # Errors
    /// With the message for the user.
    pub fn read(args: &ConfigArgs) -> Result<Self, CommandError> {
        let file = args.config.display().to_string();
        let refuse = |problem: Problem| CommandError::usage(problem.render(&file));
        let overrides = args.overrides.iter().map(|text| config::parse_override(text)).collect::<Result<Vec<_>, _>>();
        let overrides = overrides.map_err(refuse)?;
        let text = read_text(&args.config)?;
        let stack = match args.stack {
            StackArg::Engine => Stack::Engine,
            StackArg::Dynamo => Stack::Dynamo,
        };
        let prediction = config::load(&text, &overrides, stack).map_err(refuse)?;
        let loaded = Self { prediction, file, text, overrides };
        match config::not_available_yet(&loaded.prediction) {
            Some(problem) => Err(loaded.refuse(problem)),
            None => Ok(loaded),
        }
    }

    /// The refusal of a configuration for a reason that was found later.
    #[must_use]
    pub fn refuse(&self, problem: Problem) -> CommandError {
        CommandError::usage(problem.located(&self.text, &self.overrides).render(&self.file))
    }
}

fn read_text(path: &Path) -> Result<String, CommandError> {
    let bytes = std::fs::read(path).map_err(|e| {
        let advice = if path.is_dir() { "; give the YAML file itself" } else { "" };
        CommandError::usage(format!("{}: cannot read the configuration: {e}{advice}", path.display()))
    })?;
    String::from_utf8(bytes).map_err(|e| {
        let line = 1 + e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        CommandError::usage(format!("{}:{line}: is not UTF-8 text; save the file as UTF-8", path.display()))
    })
}
