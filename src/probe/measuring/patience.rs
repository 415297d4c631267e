//! Decides when a probe has measured enough.

use std::time::Duration;

use super::throughput::Throughput;
use super::window::Window;
use crate::model::{Estimate, Measurement, Settings, Value};
use crate::probe::Effort;
use crate::probe::Job;
use crate::probe::Limits;
use crate::probe::Mode;

/// Shows if a running probe has measured enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::probe) enum Sufficiency {
    /// Measuring continues.
    TooLittle,
    /// Measuring longer is not worth it.
    Enough,
    /// The time is over, and steps still compile: the rate is unknown.
    StillCompiling,
}

/// The fewest steps that are enough: a round number. Fewer steps give too uncertain an interval. After twice the longest time, three
/// are enough.
const FEWEST_STEPS: u64 = 10;

/// A short probe with at least this many steps is kept if the script leaves training: an epoch may have no more steps.
const FEWEST_STEPS_OF_SHORT: u64 = 2;

/// Watches the window of one probe.
#[derive(Debug)]
pub(in crate::probe) struct Patience {
    /// The relative half width of the interval at which measuring ends early.
    precision: f64,
    /// The longest time to measure after warm-up.
    longest: Duration,
    shortest: Duration,
    /// The shortest time if there are few steps.
    for_few_steps: Duration,
    /// The longest time to wait for the end of a second epoch.
    for_epochs: Duration,
    /// The longest time for steps that compile.
    for_compiling: Duration,
    /// The minimum number of steps to keep if no more steps come.
    worth_keeping: u64,
    /// True if the probe may end because the script has left training.
    may_leave: bool,
    /// The time outside of training after which gputune checks the script's position again.
    next_look: Duration,
    /// The number of steps that the loader's queue may have held when the first step began.
    queued: u64,
    /// The number of steps at the last check, and the throughput.
    latest: (u64, Option<Throughput>),
    decided: Sufficiency,
    /// The number of steps at which the interval width is checked next.
    next_check: u64,
}

impl Patience {
    /// Returns a new value for a probe. `settings` has the config under the names that show how much a loader may queue.
    pub(in crate::probe) fn new(job: &Job<'_>, settings: &Settings) -> Self {
        let within = Self::within(job.limits, job.effort);
        // The script's work outside of steps is rare, and shows only in a long window.
        let observes = job.experiment.is_some_and(|experiment| experiment.mode == Mode::Observe);
        let shortest = if observes { within.longest } else { within.shortest };
        // An experiment that observes a run, or times the ends of its epochs, must see complete evaluations.
        let ends_epochs = job.experiment.is_some_and(|experiment| experiment.mode == Mode::ShortEpochs);
        let may_leave = !observes && !ends_epochs && !job.effort.is_for_losses();
        Self { queued: queued_steps(settings), shortest, may_leave, ..within }
    }

    fn within(limits: &Limits, effort: Effort) -> Self {
        /// The shortest time to measure: other work on a machine comes and goes within tenths of a second.
        const SHORTEST: Duration = Duration::from_millis(500);
        /// The longest time to measure a config whose rate comes from rounds.
        const BRIEF: Duration = Duration::from_secs(1);
        /// The part of the measuring time after which few steps are enough. A round number.
        const PART: u32 = 10;
        let longest = match effort {
            Effort::Probe | Effort::Losses { .. } => limits.measure_time,
            Effort::Part { one_in } => limits.measure_time / one_in.get(),
            Effort::Brief => limits.measure_time.min(BRIEF),
        };
        let is_short = longest < limits.measure_time;
        // If any interval width is enough, the process only warms up for a comparison, and its rate does not matter.
        let only_warms_up = limits.precision() >= 1.0;
        Self {
            precision: limits.precision(),
            longest,
            shortest: SHORTEST.min(longest),
            for_few_steps: longest / PART,
            for_epochs: limits.measure_time / 2,
            // Compilation takes equally long in a short probe.
            for_compiling: if only_warms_up { limits.probe_time } else { limits.measure_time * 2 },
            // A short probe is compared in rounds, or repeated for longer.
            worth_keeping: if is_short { FEWEST_STEPS_OF_SHORT } else { FEWEST_STEPS },
            may_leave: true,
            next_look: Duration::ZERO,
            queued: 0,
            latest: (0, None),
            decided: Sufficiency::TooLittle,
            next_check: 0,
        }
    }

    /// Examines the window again if enough has happened since the last time. Decisions are final.
    pub(in crate::probe) fn look(&mut self, window: &Window) -> Sufficiency {
        if self.decided != Sufficiency::TooLittle {
            return self.decided;
        }
        // An examination takes time in proportion to the number of steps, so it runs after 1% more steps.
        if window.steps() <= self.latest.0 + self.latest.0 / 100 && self.latest.0 > 0 {
            return Sufficiency::TooLittle;
        }
        self.latest = (window.steps(), window.throughput());
        self.next_look = Duration::ZERO;
        if self.compiles_too_long(window) {
            self.decided = Sufficiency::StillCompiling;
            return self.decided;
        }
        let Some(throughput) = self.latest.1.clone() else { return Sufficiency::TooLittle };
        if self.is_enough(&throughput) {
            self.decided = Sufficiency::Enough;
        }
        self.decided
    }

    /// Returns the throughput at the last check.
    pub(in crate::probe) fn estimate(&self) -> Option<Estimate> {
        self.latest.1.as_ref().map(|throughput| throughput.estimate)
    }

    /// Returns true if the last step compiled, and compilations have used all their time.
    fn compiles_too_long(&self, window: &Window) -> bool {
        let longest = self.for_compiling.as_secs_f64();
        window.compiling().is_some_and(|compiling| compiling.steps_since == 0 && compiling.seconds >= longest)
    }

    /// Returns true if the measured steps are worth keeping when no more steps come.
    pub(in crate::probe) fn is_worth_keeping(&self) -> bool {
        self.latest.1.as_ref().is_some_and(|throughput| throughput.steps >= self.worth_keeping)
    }

    /// Returns true if the script has left training: the time since its last step exceeds the measuring time, and far exceeds any
    /// normal step.
    pub(in crate::probe) fn has_left(&self, outside: Duration) -> bool {
        /// The shortest such time, and its minimum in multiples of the longest step: round numbers.
        const SHORTEST: Duration = Duration::from_secs(3);
        const STEPS: f64 = 20.0;
        let longest_step = self.latest.1.as_ref().map_or(f64::INFINITY, |throughput| throughput.longest_step);
        let by_steps = Duration::try_from_secs_f64(STEPS * longest_step).unwrap_or(Duration::MAX);
        let after = self.longest.max(SHORTEST).max(by_steps).max(self.next_look);
        self.may_leave && self.is_worth_keeping() && outside >= after
    }

    /// Records that a script without a step waits for its loader or for other ranks. The next check is after twice this time.
    pub(in crate::probe) fn wait_on(&mut self, outside: Duration) {
        self.next_look = outside * 2;
    }

    /// Returns true if it is time to check the position of a script without a step.
    pub(in crate::probe) fn is_look_due(&self, outside: Duration) -> bool {
        outside >= self.next_look
    }

    /// Returns true if warm-up is over, as far as this can be known.
    fn is_steady(&self, throughput: &Throughput) -> bool {
        throughput.is_settled() && throughput.warmup_steps + throughput.steps_after_warmup() > self.queued
    }

    /// Returns true if the interval is narrow enough, or the time for measuring is over.
    ///
    /// The interval is valid at the moment at which it is found narrow enough ([`MeanRate::interval`]). Its width is checked only
    /// after each increase of the steps by a fifth. There are few checks, so the remaining effect of chance is small.
    ///
    /// [`MeanRate::interval`]: crate::probe::stats::MeanRate::interval
    fn is_enough(&mut self, throughput: &Throughput) -> bool {
        /// The number of steps in which a stall every hundred steps shows up.
        const MANY_STEPS: u64 = 200;
        let measured = throughput.measured;
        if throughput.epochs == 1 && measured < self.for_epochs {
            // The next end shows the length of an epoch.
            return false;
        }
        if measured >= self.longest * 2 && throughput.steps >= 3 {
            return true;
        }
        if !self.is_steady(throughput) || throughput.steps < FEWEST_STEPS || measured < self.shortest {
            return false;
        }
        // Rare stalls show only in a long measurement; until then the interval does not include them.
        if throughput.steps < MANY_STEPS && measured < self.for_few_steps {
            return false;
        }
        let is_due = throughput.steps >= self.next_check;
        if is_due {
            self.next_check = throughput.steps + throughput.steps.div_ceil(5);
        }
        let precise = throughput.estimate.relative_half_width().is_some_and(|half| half <= self.precision);
        is_due && precise || measured >= self.longest
    }

    /// Adds to the measurement how measuring ended.
    pub(in crate::probe) fn conclude(&self, measurement: &mut Measurement, stopped_itself: bool) {
        let half = measurement.throughput.and_then(|throughput| throughput.relative_half_width());
        measurement.timing.is_unstable = half.is_some_and(|half| half > self.precision);
        let measured = measurement.timing.measured_seconds.unwrap_or_default();
        measurement.timing.saved_seconds = stopped_itself.then(|| (self.longest.as_secs_f64() - measured).max(0.0));
    }
}

/// Returns how many batches the loader may have queued when the first step began, based on the names of the settings.
///
/// Steps on such batches do not wait for data and are too fast. The probe does not count as steady until more steps have come.
pub(in crate::probe) fn queued_steps(settings: &Settings) -> u64 {
    /// The default of PyTorch's `DataLoader` for `prefetch_factor`.
    const PREFETCH: u64 = 2;
    /// The maximum number of steps to wait for: a round number, beyond which waiting costs more than it gains.
    const MOST: u64 = 100;
    let prefetch = named(settings, "prefetch").unwrap_or(PREFETCH).max(1);
    workers(settings).saturating_mul(prefetch).min(MOST)
}

/// Returns the number of loader workers, based on the names of the settings.
pub(in crate::probe) fn workers(settings: &Settings) -> u64 {
    named(settings, "worker").unwrap_or(0)
}

fn named(settings: &Settings, word: &str) -> Option<u64> {
    let of_it = |(name, value): (&str, &Value)| value.as_i64().filter(|_| name.contains(word));
    settings.iter().find_map(of_it).map(|number| number.max(0).unsigned_abs())
}

#[cfg(test)]
mod beginnings;
#[cfg(test)]
mod coverage;

#[cfg(test)]
pub(in crate::probe) mod tests {
    use super::super::window::StepReport;
    use super::*;
    use crate::probe::stats::simulation::{Process, Random};

    /// Runs a probe with these step times, in seconds, until it stops on its own or the times are used up.
    pub(super) fn run(patience: Patience, times: &[f64]) -> (Sufficiency, Throughput) {
        let (decided, window) = run_marked(patience, times.iter().map(|&seconds| (seconds, None)));
        (decided, window.throughput().unwrap())
    }

    /// Runs a probe with steps that may have marks.
    pub(super) fn run_marked<'m>(
        mut patience: Patience,
        steps: impl IntoIterator<Item = (f64, Option<&'m str>)>,
    ) -> (Sufficiency, Window) {
        let (mut window, mut at, mut tick) = (Window::default(), 0.0, 0.0);
        for (seconds, mark) in steps {
            at += seconds;
            let at = Duration::from_secs_f64(at);
            window.push(StepReport { at, seconds, amount: 1.0, waited: 0.0, mark });
            if at.as_secs_f64() >= tick {
                tick = at.as_secs_f64() + 0.05;
                if patience.look(&window) != Sufficiency::TooLittle {
                    break;
                }
            }
        }
        (patience.decided, window)
    }

    /// Returns the throughput of a probe with these step times and one unit of work per step.
    pub(in crate::probe) fn run_probe(times: &[f64]) -> Estimate {
        run(patience(), times).1.estimate
    }

    /// Returns the patience of a probe that measures the rate of its config.
    pub(super) fn patience_with(limits: &Limits) -> Patience {
        Patience::within(limits, Effort::Probe)
    }

    fn patience() -> Patience {
        patience_with(&Limits::default())
    }

    pub(super) fn times(process: Process, mean: f64, random: &mut Random) -> Vec<f64> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
        let count = (21.0 / mean) as usize;
        process.times(count, random).into_iter().map(|time| time * mean).collect()
    }

    #[test]
    fn steady_steps_need_few_and_noisy_ones_many() {
        let mut random = Random(1);
        let (decided, steady) = run(patience(), &times(Process::Independent(0.01), 0.1, &mut random));
        assert_eq!(decided, Sufficiency::Enough);
        assert!(steady.steps <= 25, "{steady:?}");
        let (decided, noisy) = run(patience(), &times(Process::Independent(0.1), 0.02, &mut random));
        assert_eq!(decided, Sufficiency::Enough);
        assert!((60..300).contains(&noisy.steps), "{noisy:?}");
        assert!(noisy.estimate.relative_half_width().unwrap() <= 0.02);
    }

    #[test]
    fn what_does_not_settle_is_unstable_and_saves_nothing() {
        let mut random = Random(2);
        let patience = patience();
        let mut conclusion = Measurement::default();
        let (decided, throughput) = run(patience, &times(Process::LogNormal(1.0), 0.1, &mut random));
        assert_eq!(decided, Sufficiency::Enough);
        assert!(throughput.measured >= Duration::from_secs(10));
        conclusion.throughput = Some(throughput.estimate);
        conclusion.timing.measured_seconds = Some(throughput.measured.as_secs_f64());
        Patience::within(&Limits::default(), Effort::Probe).conclude(&mut conclusion, true);
        assert!(conclusion.timing.is_unstable);
        assert_eq!(conclusion.timing.saved_seconds, Some(0.0));
        conclusion.throughput = Some(Estimate::interval(10.0, 9.9, 10.1));
        conclusion.timing.measured_seconds = Some(1.5);
        Patience::within(&Limits::default(), Effort::Probe).conclude(&mut conclusion, true);
        assert_eq!((conclusion.timing.is_unstable, conclusion.timing.saved_seconds), (false, Some(8.5)));
        Patience::within(&Limits::default(), Effort::Probe).conclude(&mut conclusion, false);
        assert_eq!(conclusion.timing.saved_seconds, None);
    }

    #[test]
    fn a_short_probe_ends_after_its_part_of_the_time() {
        let mut random = Random(6);
        let steps = times(Process::LogNormal(1.0), 0.02, &mut random);
        let measured = |effort| {
            let (decided, throughput) = run(Patience::within(&Limits::default(), effort), &steps);
            assert_eq!(decided, Sufficiency::Enough);
            throughput.measured.as_secs_f64()
        };
        let short = |parts| measured(Effort::Part { one_in: std::num::NonZeroU32::new(parts).unwrap() });
        assert!((short(10) - 1.0).abs() < 0.3, "{}", short(10));
        assert!((short(4) - 2.5).abs() < 0.3, "{}", short(4));
        assert!((measured(Effort::Probe) - 10.0).abs() < 0.5);
    }

    /// Sixteen batches are ready when the first step begins. Then the loader delivers a batch every 0.2 s.
    #[test]
    fn a_queue_that_was_filled_before_the_first_step_is_not_believed() {
        let steps: Vec<f64> = [0.05; 16].into_iter().chain([0.2; 80]).collect();
        let settings = [("num_workers", 4), ("prefetch_factor", 4)].into_iter().collect();
        let patience = Patience { queued: queued_steps(&settings), ..patience() };
        let (decided, throughput) = run(patience, &steps);
        assert_eq!(decided, Sufficiency::Enough);
        assert!((throughput.estimate.value - 5.0).abs() < 0.1, "{throughput:?}");
        assert!(throughput.warmup_steps >= 16, "{throughput:?}");
    }

    #[test]
    fn the_queue_is_known_by_the_names_of_settings() {
        let queued = |settings: &[(&str, i64)]| queued_steps(&settings.iter().copied().collect());
        assert_eq!(queued(&[("batch_size", 8)]), 0);
        assert_eq!(queued(&[("workers", 3)]), 6);
        assert_eq!(queued(&[("dataloader_num_workers", 3), ("prefetch", 5)]), 15);
        assert_eq!(queued(&[("workers", 64), ("prefetch", 64)]), 100);
        assert_eq!(queued(&[("workers", -1)]), 0);
    }
}
