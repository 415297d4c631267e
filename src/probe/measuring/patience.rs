//! Decides when a probe has measured enough.

use std::time::Duration;

use super::throughput::Throughput;
use super::window::Window;
use crate::model::{Estimate, Measurement, Settings, Value};
use crate::probe::{Effort, Job, Limits, Mode};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::probe) enum Sufficiency {
    TooLittle,
    Enough,
    /// The time for compilations is over, and steps still compile: the rate is unknown.
    StillCompiling,
}

/// The fewest steps that are enough: a round number. After twice [`Patience::longest`], three steps are enough.
const FEWEST_STEPS: u64 = 10;

/// `worth_keeping` of a short probe: an epoch may have no more steps.
const FEWEST_STEPS_OF_SHORT: u64 = 2;

#[derive(Debug)]
pub(in crate::probe) struct Patience {
    /// The relative half width of the interval at which measuring ends early.
    precision: f64,
    /// The measuring time after which a steady rate is enough, however wide its interval is.
    longest: Duration,
    /// The measuring time before which no interval is narrow enough.
    shortest: Duration,
    /// The measuring time after which fewer than 200 steps may be enough.
    for_few_steps: Duration,
    /// The longest time to wait for the end of a second epoch.
    for_epochs: Duration,
    /// The longest time to wait for the end of compilations.
    for_compiling: Duration,
    /// The number of steps from which on the result is kept if no more steps come.
    worth_keeping: u64,
    /// True if the probe may end early because the script leaves training.
    may_leave: bool,
    /// The time outside of training after which gputune checks the script's position again.
    next_look: Duration,
    /// The number of steps that the loader's queue may have held when the first step began.
    queued: u64,
    /// The number of steps at the last check, and the throughput.
    latest: (u64, Option<Throughput>),
    decided: Sufficiency,
    /// The number of steps at which the width of the interval is checked again.
    next_check: u64,
}

impl Patience {
    /// Returns the patience for a probe. `settings` are the config's settings by the names of their targets.
    pub(in crate::probe) fn new(job: &Job, settings: &Settings) -> Self {
        let within = Self::within(&job.limits, job.effort);
        // An experiment that observes measures as long as possible: the script's work outside of steps is rare.
        let observes = job.mode() == Some(Mode::Observe);
        let shortest = if observes { within.longest } else { within.shortest };
        // An experiment that observes a run, or times the ends of its epochs, must see complete evaluations.
        let ends_epochs = job.mode() == Some(Mode::ShortEpochs);
        let may_leave = !observes && !ends_epochs && !job.effort.is_for_losses();
        Self { queued: queued_steps(settings), shortest, may_leave, ..within }
    }

    pub(super) fn within(limits: &Limits, effort: Effort) -> Self {
        /// The shortest time to measure: other work on a machine comes and goes within tenths of a second.
        const SHORTEST: Duration = Duration::from_millis(500);
        /// The longest time to measure a config whose rate the rounds of duels measure.
        const BRIEF: Duration = Duration::from_secs(1);
        /// `for_few_steps` is the longest measuring time divided by this: a round number.
        const PART: u32 = 10;
        let longest = match effort {
            Effort::Probe | Effort::Losses { .. } => limits.measure_time,
            Effort::Part { one_in } => limits.measure_time / one_in.get(),
            Effort::Brief => limits.measure_time.min(BRIEF),
        };
        let is_short = longest < limits.measure_time;
        // A precision of 1 accepts every interval: the process only warms up for a duel, and its rate does not matter.
        let only_warms_up = limits.precision() >= 1.0;
        Self {
            precision: limits.precision(),
            longest,
            shortest: SHORTEST.min(longest),
            for_few_steps: longest / PART,
            for_epochs: limits.measure_time / 2,
            // Compilation takes equally long in a short probe.
            for_compiling: if only_warms_up { limits.probe_time } else { limits.measure_time * 2 },
            // A few steps suffice in a short probe, because later blocks or a longer probe measure its config again.
            worth_keeping: if is_short { FEWEST_STEPS_OF_SHORT } else { FEWEST_STEPS },
            may_leave: true,
            next_look: Duration::ZERO,
            queued: 0,
            latest: (0, None),
            decided: Sufficiency::TooLittle,
            next_check: 0,
        }
    }

    /// Decides if the steps in the window are enough. Once made, the decision stays.
    pub(in crate::probe) fn look(&mut self, window: &Window) -> Sufficiency {
        if self.decided != Sufficiency::TooLittle {
            return self.decided;
        }
        // The check takes time in proportion to the number of steps, so it runs only after 1% more steps.
        if window.steps() <= self.latest.0 + self.latest.0 / 100 && self.latest.0 > 0 {
            return Sufficiency::TooLittle;
        }
        self.latest = (window.steps(), window.throughput());
        self.next_look = Duration::ZERO;
        let longest = self.for_compiling.as_secs_f64();
        if window.compiling().is_some_and(|compiling| compiling.steps_since == 0 && compiling.seconds >= longest) {
            self.decided = Sufficiency::StillCompiling;
            return self.decided;
        }
        let Some(throughput) = self.latest.1.clone() else { return Sufficiency::TooLittle };
        if self.is_enough(&throughput) {
            self.decided = Sufficiency::Enough;
        }
        self.decided
    }

    pub(in crate::probe) fn estimate(&self) -> Option<Estimate> {
        self.latest.1.as_ref().map(|throughput| throughput.estimate)
    }

    /// Returns true if the measured steps give a useful result even if no more steps come.
    pub(in crate::probe) fn is_worth_keeping(&self) -> bool {
        self.latest.1.as_ref().is_some_and(|throughput| throughput.timing.steps >= self.worth_keeping)
    }

    /// Returns true if the script has left training: enough steps came, and then none for a long time. `outside` is the
    /// time since the last step. It must be at least the measuring time, 3 s, and 20 times the longest step.
    pub(in crate::probe) fn has_left(&self, outside: Duration) -> bool {
        /// Round numbers.
        const SHORTEST: Duration = Duration::from_secs(3);
        const STEPS: f64 = 20.0;
        let longest_step = self.latest.1.as_ref().map_or(f64::INFINITY, |throughput| throughput.longest_step);
        let by_steps = Duration::try_from_secs_f64(STEPS * longest_step).unwrap_or(Duration::MAX);
        let after = self.longest.max(SHORTEST).max(by_steps).max(self.next_look);
        self.may_leave && self.is_worth_keeping() && outside >= after
    }

    /// Records that the script makes no steps because it waits for its loader or for other ranks. `outside` is the time
    /// since the last step. gputune checks the script's position again after twice this time.
    pub(in crate::probe) fn wait_on(&mut self, outside: Duration) {
        self.next_look = outside * 2;
    }

    /// Returns true if it is time to check the position of a script that makes no steps.
    pub(in crate::probe) fn is_look_due(&self, outside: Duration) -> bool {
        outside >= self.next_look
    }

    /// Returns true if warm-up is over, as far as this can be known.
    fn is_steady(&self, throughput: &Throughput) -> bool {
        throughput.is_settled() && throughput.timing.warmup_steps + throughput.steps_after_warmup() > self.queued
    }

    /// Returns true if the interval is narrow enough, or the time for measuring is over.
    ///
    /// [`MeanRate::interval`] stays valid although measuring stops as soon as it is narrow. Its width is also checked
    /// rarely, after each increase of the steps by a fifth, so chance seldom ends measuring.
    ///
    /// [`MeanRate::interval`]: crate::probe::stats::MeanRate::interval
    fn is_enough(&mut self, throughput: &Throughput) -> bool {
        /// In this number of steps, a stall that comes every hundred steps is seen.
        const MANY_STEPS: u64 = 200;
        let measured = throughput.measured;
        if throughput.epochs == 1 && measured < self.for_epochs {
            // Wait for the end of a second epoch: only the time between two ends shows the length of an epoch.
            return false;
        }
        if measured >= self.longest * 2 && throughput.timing.steps >= 3 {
            return true;
        }
        if !self.is_steady(throughput) || throughput.timing.steps < FEWEST_STEPS || measured < self.shortest {
            return false;
        }
        // A short measurement has no rare stalls, so its interval would be too narrow.
        if throughput.timing.steps < MANY_STEPS && measured < self.for_few_steps {
            return false;
        }
        let is_due = throughput.timing.steps >= self.next_check;
        if is_due {
            self.next_check = throughput.timing.steps + throughput.timing.steps.div_ceil(5);
        }
        let precise = throughput.estimate.relative_half_width().is_some_and(|half| half <= self.precision);
        is_due && precise || measured >= self.longest
    }

    pub(in crate::probe) fn conclude(&self, measurement: &mut Measurement, stopped_itself: bool) {
        let half = measurement.throughput.and_then(|throughput| throughput.relative_half_width());
        measurement.timing.is_unstable = half.is_some_and(|half| half > self.precision);
        let measured = measurement.timing.measured_seconds.unwrap_or_default();
        measurement.timing.saved_seconds = stopped_itself.then(|| (self.longest.as_secs_f64() - measured).max(0.0));
    }
}

/// Returns how many batches the loader may have queued when the first step began. Finds settings by their names.
///
/// Steps on queued batches do not wait for data and are too fast. A probe is steady only after more steps.
pub(in crate::probe) fn queued_steps(settings: &Settings) -> u64 {
    /// The default of PyTorch's `DataLoader` for `prefetch_factor`.
    const PREFETCH: u64 = 2;
    /// The largest number that this function returns: waiting for more steps costs more than it gains. A round number.
    const MOST: u64 = 100;
    let prefetch = named(settings, "prefetch").unwrap_or(PREFETCH).max(1);
    workers(settings).saturating_mul(prefetch).min(MOST)
}

/// Returns the number of loader workers. Finds the setting by its name.
pub(in crate::probe) fn workers(settings: &Settings) -> u64 {
    named(settings, "worker").unwrap_or(0)
}

fn named(settings: &Settings, word: &str) -> Option<u64> {
    let of_it = |(name, value): (&str, &Value)| value.as_i64().filter(|_| name.contains(word));
    settings.iter().find_map(of_it).map(|number| number.max(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::super::simulations::{patience, run, run_plain, times, window_until};
    use super::*;
    use crate::probe::stats::simulation::{Process, Random};

    fn usual() -> Patience {
        patience(&Limits::default())
    }

    fn short(parts: u32) -> Patience {
        Patience::within(&Limits::default(), Effort::Part { one_in: NonZeroU32::new(parts).unwrap() })
    }

    #[test]
    fn steady_steps_need_few_and_noisy_ones_many() {
        let mut random = Random(1);
        let (decided, steady) = run_plain(usual(), &times(Process::Independent(0.01), 0.1, &mut random));
        assert_eq!(decided, Sufficiency::Enough);
        assert!(steady.timing.steps <= 25, "{steady:?}");
        let (decided, noisy) = run_plain(usual(), &times(Process::Independent(0.1), 0.02, &mut random));
        assert_eq!(decided, Sufficiency::Enough);
        assert!((60..300).contains(&noisy.timing.steps), "{noisy:?}");
        assert!(noisy.estimate.relative_half_width().unwrap() <= 0.02);
    }

    #[test]
    fn what_does_not_settle_is_unstable_and_saves_nothing() {
        let (decided, throughput) = run_plain(usual(), &times(Process::LogNormal(1.0), 0.1, &mut Random(2)));
        assert_eq!(decided, Sufficiency::Enough);
        assert!(throughput.measured >= Duration::from_secs(10));
        let concluded = |throughput, seconds, stopped_itself| {
            let mut measurement = Measurement { throughput: Some(throughput), ..Measurement::default() };
            measurement.timing.measured_seconds = Some(seconds);
            usual().conclude(&mut measurement, stopped_itself);
            (measurement.timing.is_unstable, measurement.timing.saved_seconds)
        };
        assert_eq!(concluded(throughput.estimate, throughput.measured.as_secs_f64(), true), (true, Some(0.0)));
        let narrow = Estimate::interval(10.0, 9.9, 10.1);
        assert_eq!(concluded(narrow, 1.5, true), (false, Some(8.5)));
        assert_eq!(concluded(narrow, 1.5, false), (false, None));
    }

    #[test]
    fn a_short_probe_ends_after_its_part_of_the_time() {
        let steps = times(Process::LogNormal(1.0), 0.02, &mut Random(6));
        for (patience, seconds, error) in [(short(10), 1.0, 0.3), (short(4), 2.5, 0.3), (usual(), 10.0, 0.5)] {
            let (decided, throughput) = run_plain(patience, &steps);
            assert_eq!(decided, Sufficiency::Enough);
            assert!((throughput.measured.as_secs_f64() - seconds).abs() < error, "{throughput:?}");
        }
    }

    /// Sixteen batches are ready when the first step begins. Then the loader delivers a batch every 0.2 s.
    #[test]
    fn a_queue_that_was_filled_before_the_first_step_is_not_believed() {
        let steps: Vec<f64> = [0.05; 16].into_iter().chain([0.2; 80]).collect();
        let settings = [("num_workers", 4), ("prefetch_factor", 4)].into_iter().collect();
        let (decided, throughput) = run_plain(Patience { queued: queued_steps(&settings), ..usual() }, &steps);
        assert_eq!(decided, Sufficiency::Enough);
        assert!((throughput.estimate.value - 5.0).abs() < 0.1, "{throughput:?}");
        assert!(throughput.timing.warmup_steps >= 16, "{throughput:?}");
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

    /// Returns steps of 50 ms that compile, then steps of 5 ms, as in a model that is faster after compilation.
    fn compiled(first: usize) -> impl Iterator<Item = (f64, Option<&'static str>)> {
        std::iter::repeat_n((0.05, Some("recompile")), first).chain(std::iter::repeat_n((0.005, None), 4000))
    }

    #[test]
    fn compilations_are_not_measured_and_have_their_time_in_a_short_probe_and_a_probe_that_only_warms_up() {
        let warms_up = Limits { measure_time: Duration::from_secs(1), precision: Some(1.0), ..Limits::default() };
        for patience in [usual(), short(10), patience(&warms_up)] {
            let (decided, window) = run(patience, compiled(300));
            let throughput = window.throughput().unwrap();
            assert_eq!((decided, throughput.compiling_steps), (Sufficiency::Enough, 300));
            assert!((190.0..204.0).contains(&throughput.estimate.value), "{throughput:?}");
        }
        let (decided, window) = run(usual(), compiled(1000));
        assert_eq!((decided, window.throughput()), (Sufficiency::StillCompiling, None));
        assert!((20.0..20.4).contains(&window.compiling().unwrap().seconds), "{:?}", window.compiling());
    }

    #[test]
    fn a_script_has_left_training_after_the_time_for_measuring_or_many_steps() {
        let watched = |limits: &Limits, seconds: f64, count: usize| {
            let mut patience = patience(limits);
            patience.look(&window_until(std::iter::repeat_n((seconds, 0.0, None), count), 1.0, |_, _| true));
            patience
        };
        let leaves_after = |patience: &Patience| (1..600).find(|&at| patience.has_left(Duration::from_secs(at)));
        let short = Limits { measure_time: Duration::from_secs(1), ..Limits::default() };
        assert_eq!(leaves_after(&watched(&Limits::default(), 0.01, 30)), Some(10), "the time for measuring");
        assert_eq!(leaves_after(&watched(&short, 0.01, 30)), Some(3), "never sooner");
        assert_eq!(leaves_after(&watched(&short, 0.4, 30)), Some(8), "twenty steps");
        assert_eq!(leaves_after(&watched(&short, 0.01, 5)), None, "too few steps");
        let mut waits = watched(&short, 0.01, 30);
        waits.wait_on(Duration::from_secs(3));
        assert_eq!(leaves_after(&waits), Some(6), "the next look");
        assert_eq!(leaves_after(&Patience { may_leave: false, ..watched(&short, 0.01, 30) }), None);
    }
}
