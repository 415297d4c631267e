//! The settings that a plan does not search, with the reasons.

use super::argument::Argument;
use super::knobs::{AMP_SWITCHES, KNOBS, PRECISION_SWITCHES};
use super::plan::{Plan, Planner};

/// The parameters that matter most, in this order. Other parameters follow in the order of `KNOBS`.
const FIRST: &[&str] = &["batch_size", "workers", "precision"];

impl Plan {
    /// Returns the settings that are not searched with the reasons, the most important setting first.
    pub fn not_searched(&self) -> Vec<(String, String)> {
        let mut all = self.closed.clone();
        all.sort_by_key(|(name, _)| rank(name));
        all
    }
}

impl Planner<'_> {
    /// Records the reason why an argument is not searched, once.
    pub(super) fn close(&mut self, argument: &str, reason: &str) {
        let line = (argument.to_owned(), reason.to_owned());
        if !self.plan.closed.contains(&line) {
            self.plan.closed.push(line);
        }
    }
}

/// Returns the rank of an argument or a parameter: 0 is the most important.
fn rank(name: &str) -> usize {
    let plain = Argument::plain(name);
    let is_precision = PRECISION_SWITCHES.has(&plain) || AMP_SWITCHES.has(&plain);
    let knob = KNOBS.iter().position(|knob| knob.parameter == name || knob.names.has(&plain));
    let parameter = if is_precision { Some("precision") } else { knob.map(|at| KNOBS[at].parameter) };
    let first = FIRST.iter().position(|first| parameter == Some(*first));
    first.unwrap_or(FIRST.len() + knob.unwrap_or(KNOBS.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_important_settings_come_first() {
        let mut names = ["--compile", "kind", "--amp", "--accum-steps", "workers", "--batch-size"];
        names.sort_by_key(|name| rank(name));
        assert_eq!(names, ["--batch-size", "workers", "--amp", "--accum-steps", "--compile", "kind"]);
    }
}
