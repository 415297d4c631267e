//! When a probe has measured enough, and when it is bound to lose.

use std::time::Duration;

use super::throughput::Throughput;
use super::window::Window;
use super::{Effort, Job};
use crate::outcome::{Estimate, Measurement};
use crate::space::{Settings, Value};

/// What is known of a running probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sufficiency {
    /// Measuring goes on.
    TooLittle,
    /// Measuring longer is not worth it.
    Enough,
    /// The rival is faster, with 99 % confidence.
    Loses,
}

/// Watches the window of one probe.
#[derive(Debug)]
pub(super) struct Patience {
    precision: f64,
    rival: Option<Estimate>,
    /// Longest time of measuring after warm-up.
    longest: Duration,
    /// The precision at which it ends sooner.
    wanted: f64,
    shortest: Duration,
    /// Steps that a loader's queue may have held when the first step began.
    queued: u64,
    /// The throughput at the last look, and the steps that there were.
    latest: (u64, Option<Throughput>),
    decided: Sufficiency,
    /// The steps from which on the precision is looked at again.
    next_check: u64,
    /// Comparisons with the rival, and the steps from which on the next is due.
    comparisons: u32,
    next_comparison: u64,
}

impl Patience {
    pub(super) fn new(job: &Job<'_>) -> Self {
        /// The shortest time of measuring: what else runs on a machine comes and goes in tenths of seconds.
        const SHORTEST: Duration = Duration::from_millis(500);
        let factor = match job.effort {
            Effort::Probe | Effort::Losses => 1,
            Effort::Confirm => 2,
        };
        Self {
            precision: job.limits.precision,
            rival: job.rival,
            longest: job.limits.measure_time * factor,
            wanted: job.limits.precision / f64::from(factor),
            shortest: SHORTEST.min(job.limits.measure_time) * factor,
            queued: queued_steps(job.settings),
            latest: (0, None),
            decided: Sufficiency::TooLittle,
            next_check: 0,
            comparisons: 0,
            next_comparison: 0,
        }
    }

    /// Looks at the window again, where enough has happened since the last look. What is decided stays so.
    pub(super) fn look(&mut self, window: &Window) -> Sufficiency {
        if self.decided != Sufficiency::TooLittle {
            return self.decided;
        }
        // A look costs time in proportion to the steps: with a hundredth more of them it is worth it.
        if window.steps() <= self.latest.0 + self.latest.0 / 100 && self.latest.0 > 0 {
            return Sufficiency::TooLittle;
        }
        self.latest = (window.steps(), window.throughput());
        let Some(throughput) = self.latest.1.clone() else { return Sufficiency::TooLittle };
        if self.is_enough(&throughput) {
            self.decided = Sufficiency::Enough;
        } else if self.loses(&throughput) {
            self.decided = Sufficiency::Loses;
        }
        self.decided
    }

    /// The throughput at the last look.
    pub(super) fn estimate(&self) -> Option<Estimate> {
        self.latest.1.as_ref().map(|throughput| throughput.estimate)
    }

    /// Whether warm-up is over for sure, as far as that can be told.
    fn is_steady(&self, throughput: &Throughput) -> bool {
        throughput.is_settled() && throughput.warmup_steps + throughput.steps_after_warmup() > self.queued
    }

    /// Whether the interval is narrow enough, or the time for it over.
    ///
    /// The more often one looks, the more often an interval is too narrow by chance: it is compared with the precision
    /// only after a fifth more steps each time.
    fn is_enough(&mut self, throughput: &Throughput) -> bool {
        const FEWEST_STEPS: u64 = 10;
        let measured = throughput.measured;
        if measured >= self.longest * 2 && throughput.steps >= 3 {
            return true;
        }
        if !self.is_steady(throughput) || throughput.steps < FEWEST_STEPS || measured < self.shortest {
            return false;
        }
        let is_due = throughput.steps >= self.next_check;
        if is_due {
            self.next_check = throughput.steps + throughput.steps.div_ceil(5);
        }
        let precise = throughput.estimate.relative_half_width().is_some_and(|half| half <= self.wanted);
        is_due && precise || measured >= self.longest
    }

    /// Whether the mean is below the rival's interval by more than the precision, with 99 % confidence.
    ///
    /// Many looks give chance many chances. A comparison is therefore made only after half as many steps again, and the
    /// k-th has the share 1 / (k (k + 1)) of the 1 %: together they have no more than that (Bonferroni), however many
    /// there are. What differs from run to run is not in the interval of one, so a config is not given up for less than
    /// the precision that was asked for.
    fn loses(&mut self, throughput: &Throughput) -> bool {
        const ERROR: f64 = 0.01;
        const FEWEST_STEPS: u64 = 6;
        const FEWEST_BATCHES: f64 = 6.0;
        let Some(low) = self.rival.and_then(|rival| rival.low) else { return false };
        let is_due = throughput.steps >= FEWEST_STEPS.max(self.next_comparison) && throughput.measured >= self.shortest;
        if !is_due || !self.is_steady(throughput) {
            return false;
        }
        // Steps that resemble each other are as few as the independent ones among them.
        if throughput.rate.independent_batches() < FEWEST_BATCHES {
            return false;
        }
        self.comparisons += 1;
        self.next_comparison = throughput.steps + throughput.steps.div_ceil(2);
        let tail = ERROR / f64::from(self.comparisons) / f64::from(self.comparisons + 1);
        throughput.rate.upper_end(tail).is_some_and(|upper| upper < low * (1.0 - self.precision))
    }

    /// Adds what the end of measuring says.
    pub(super) fn conclude(&self, measurement: &mut Measurement, stopped_itself: bool) {
        let half = measurement.throughput.and_then(|throughput| throughput.relative_half_width());
        measurement.is_unstable = half.is_some_and(|half| half > self.precision);
        let measured = measurement.measured_seconds.unwrap_or_default();
        measurement.saved_seconds = stopped_itself.then(|| (self.longest.as_secs_f64() - measured).max(0.0));
    }
}

/// How many batches the loader may have had ready when the first step began, as the names of the settings tell.
///
/// Such steps need not wait for data and are too fast. As long as there may be nothing else, they are not believed.
fn queued_steps(settings: &Settings) -> u64 {
    /// What PyTorch's `DataLoader` takes for `prefetch_factor` where nobody says.
    const PREFETCH: i64 = 2;
    /// Beyond it waiting costs more than it is worth.
    const MOST: i64 = 100;
    let number = |word: &str| {
        let of_it = |(name, value): (&str, &Value)| value.as_i64().filter(|_| name.contains(word));
        settings.iter().find_map(of_it).map(|number| number.clamp(0, MOST))
    };
    let queued = number("worker").unwrap_or(0) * number("prefetch").unwrap_or(PREFETCH).max(1);
    queued.min(MOST).unsigned_abs()
}
