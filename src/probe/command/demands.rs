//! What must hold beside a throughput: the processes that were to report did, and each setting took effect.

use std::time::Instant;

use super::super::classify;
use super::super::orders::Ending;
use super::super::ranks::Attendance;
use super::{Rate, Run};
use crate::outcome::{Failure, Outcome};

impl Run<'_> {
    /// Why what was measured does not count.
    pub(super) fn unmet(&self, last_lines: &[String]) -> Option<Outcome> {
        let failure = |reason: String| Failure { reason, last_lines: classify::shown(last_lines) };
        let heard = &self.heard;
        if let Some(reason) = self.silence().filter(|_| !heard.wanted.is_empty()) {
            return Some(Outcome::Rejected(failure(format!("no setting took effect: {reason}"))));
        }
        if let Attendance::Missing(reason) | Attendance::Wrong(reason) = heard.ranks.attendance(Instant::now()) {
            return Some(Outcome::Crashed(failure(reason)));
        }
        let (target, parameter) = heard.wanted.first_key_value()?;
        Some(Outcome::Rejected(failure(format!(
            "`{parameter}` had no effect: nothing says that `{target}` was applied"
        ))))
    }

    /// That the hook was never heard, where one should have come in and the step did not end with an error of its own.
    pub(super) fn silence(&self) -> Option<String> {
        let adapter = self.step.template.apply.adapter?;
        let failed = self.heard.ending.is_some_and(|ending| !Ending::is_success(ending));
        // A rate that is printed says nothing of the hook; steps come from it, or from a script that reports by itself.
        let reports = self.heard.any_step() && matches!(self.step.rate, Rate::Events);
        let silent = self.heard.ranks.count() == 0 && !reports && !failed;
        silent.then(|| format!("the adapter `{}` was never heard ({})", adapter.name, adapter.when_silent))
    }
}

/// The outcome, with what explains that nothing was seen.
pub(super) fn explained(mut outcome: Outcome, silence: Option<String>) -> Outcome {
    if let Outcome::TimedOut(failure) | Outcome::Stalled(failure) | Outcome::Crashed(failure) = &mut outcome
        && let Some(silence) = silence
    {
        failure.reason += &format!("; {silence}");
    }
    outcome
}
