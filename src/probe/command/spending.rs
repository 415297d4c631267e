//! Records how a probe spent its wall time.

use std::time::{Duration, Instant};

use super::{Job, Session};
use crate::model::{Outcome, Spent, fact::IMPORT_SECONDS};

/// The moments of a probe, and whether it was forked.
pub(super) struct Times {
    begin: Instant,
    first_step: Option<Instant>,
    /// The end of measuring.
    ended: Instant,
    /// The time when no process was left.
    over: Instant,
    is_forked: bool,
}

impl Session {
    pub(super) fn times(&self, ended: Instant) -> Times {
        let first_step = self.heard.first_step;
        Times { begin: self.begin, first_step, ended, over: Instant::now(), is_forked: self.is_forked }
    }
}

impl Times {
    /// Returns the times of a session that was only measured interleaved with other sessions. The time of the other sessions is
    /// excluded.
    pub(super) fn in_turn(session: &Session, measured: Duration) -> Self {
        let first_step = session.heard.first_step;
        let ended = first_step.unwrap_or(session.begin) + measured;
        Self { begin: session.begin, first_step, ended, over: ended, is_forked: session.is_forked }
    }

    /// Adds the times to a measurement; other outcomes stay unchanged.
    pub(super) fn tell(&self, outcome: &mut Outcome) {
        let Outcome::Measured(measurement) = outcome else { return };
        let time = |from: Instant, to: Instant| to.saturating_duration_since(from);
        let first_step = self.first_step.unwrap_or(self.ended);
        let importing = measurement.facts.number(IMPORT_SECONDS).unwrap_or(0.0);
        let measuring = measurement.timing.measured_seconds.unwrap_or(0.0);
        measurement.is_forked = self.is_forked;
        measurement.spent = Some(Spent::of(
            (time(self.begin, first_step), importing),
            (time(first_step, self.ended), measuring),
            time(self.ended, self.over),
        ));
    }
}

/// Adds shared time to the first trial with a measurement. A probe that is not a trial adds to the shared time.
pub(super) fn share(job: &Job<'_>, outcome: &mut Outcome, common: &mut Spent) {
    let Outcome::Measured(measurement) = outcome else { return };
    let Some(spent) = &mut measurement.spent else { return };
    if job.number == 0 || job.effort.is_for_losses() {
        *common += measurement.spent.take().unwrap_or_default();
    } else {
        *spent += std::mem::take(common);
    }
}
