//! Finds a target by the name that `apply` gives.

use super::target::{TARGETS, Target};

/// The reason why a string does not name a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No target has this name.
    #[error("there is no target `{0}`")]
    Unknown(String),
    /// The name of an environment variable is missing.
    #[error("`{0}` is to be followed by the name of an environment variable")]
    NoVariable(&'static str),
    /// An environment variable cannot have this name.
    #[error("`{0}` cannot be the name of an environment variable")]
    Variable(String),
    /// gputune sets this environment variable itself.
    #[error("gputune sets the environment variable `{0}` itself")]
    Reserved(String),
}

impl Target {
    /// Returns the target with this name.
    ///
    /// # Errors
    /// The string is not the name of a target.
    pub fn parse(text: &str) -> Result<&'static Self, TargetError> {
        let named = |target: &&Self| !target.name.ends_with('.') && target.name == text;
        if let Some(target) = TARGETS.iter().find(named) {
            return Ok(target);
        }
        let prefix = |target: &&Self| target.name.ends_with('.') && text.starts_with(target.name);
        let target = TARGETS.iter().find(prefix).ok_or_else(|| TargetError::Unknown(text.to_owned()))?;
        let variable = &text[target.name.len()..];
        if variable.is_empty() {
            return Err(TargetError::NoVariable(target.name));
        }
        let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
        if !variable.starts_with(is_first) || !variable.chars().all(|c| is_first(c) || c.is_ascii_digit()) {
            return Err(TargetError::Variable(variable.to_owned()));
        }
        if variable.starts_with("GPUTUNE_") {
            return Err(TargetError::Reserved(variable.to_owned()));
        }
        Ok(target)
    }

    /// Returns the name as documents and hints write it.
    pub fn shown_name(&self) -> String {
        if self.name.ends_with('.') { format!("{}NAME", self.name) } else { self.name.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_found_by_name_and_variables_by_prefix() {
        assert_eq!(Target::parse("torch.compile").unwrap().name, "torch.compile");
        assert_eq!(Target::parse("env.OMP_NUM_THREADS").unwrap().name, "env.");
        for bad in ["env", "Torch.compile", "", "arg.x", "dataloader"] {
            assert_eq!(Target::parse(bad), Err(TargetError::Unknown(bad.to_owned())), "{bad}");
        }
        assert_eq!(Target::parse("env."), Err(TargetError::NoVariable("env.")));
        for bad in ["A-B", "1A", "A B", "A=B"] {
            assert_eq!(Target::parse(&format!("env.{bad}")), Err(TargetError::Variable(bad.to_owned())), "{bad}");
        }
        assert!(matches!(Target::parse("env.GPUTUNE_SOCKET"), Err(TargetError::Reserved(_))));
    }
}
