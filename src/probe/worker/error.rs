//! The error of workers and of the searches that they join.

use std::io;

/// The reason why a worker or a search cannot be started or reached.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct WorkerError {
    reason: String,
    hint: String,
    is_mistake: bool,
    source: Option<io::Error>,
}

impl WorkerError {
    pub(super) fn new(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { reason: reason.into(), hint: hint.into(), is_mistake: false, source: None }
    }

    pub(super) fn mistake(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { is_mistake: true, ..Self::new(reason, hint) }
    }

    pub(super) fn caused_by(self, source: io::Error) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Returns true if the user named a wrong file or address.
    pub fn is_mistake(&self) -> bool {
        self.is_mistake
    }

    /// Returns the remedy.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}
