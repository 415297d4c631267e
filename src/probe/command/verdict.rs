//! Turns the reason why a probe ended into an outcome.

use std::time::{Duration, Instant};

use super::super::classify::{self, Evidence, MemoryFacts, Question};
use super::super::measuring::window::Compiling;
use super::super::orders::Ending;
use super::super::printed;
use super::super::writes;
use super::{Effort, Mode, Rate, Session};
use crate::model::fact::{BY_SPEC, COUNTED_BY, ENDED_EARLY, Fact, LEFT_TRAINING, LOADER_RATE, TRAINED_LARGEST};
use crate::model::{Estimate, Failure, HANDED_OUT, Measurement, Memory, Outcome};

/// The reason why gputune stopped measuring. The strings explain it to the user.
pub(super) enum Verdict {
    Enough,
    TimeIsUp,
    /// The time for compilations is over, and steps still compile.
    StillCompiling,
    /// No step came for this time after the last step, although the script runs.
    LeftTraining(Duration),
    Stalled,
    Interrupted,
    Exited,
    Diverged(f64),
    HostMemory(String),
    /// The number of processes is wrong, or a process is gone.
    Ranks(String),
    Disturbed(String),
    ScratchFull(String),
}

impl Verdict {
    /// Returns true if gputune measured enough, or its time was over: nothing is wrong with the process.
    pub(super) fn is_good(&self) -> bool {
        matches!(self, Self::Enough | Self::TimeIsUp | Self::StillCompiling)
    }
}

impl Session {
    pub(super) fn outcome(&mut self, verdict: &Verdict) -> Outcome {
        let is_covered = self.writes.as_ref().is_some_and(|writes| writes.layout.is_some());
        let outcome = self.outcome_of(verdict);
        let outcome = if is_covered { of_layer(outcome) } else { outcome };
        let place = self.asked_for_input_at();
        let has_trained = self.heard.any_step() || self.heard.printed.0 > 0;
        let asked = Question { place: place.as_deref(), has_trained };
        let mut outcome = classify::explained(outcome, |failure| {
            classify::asked_for_input(&failure.reason, &self.output.last_lines(), asked)
        });
        if let Outcome::Rejected(failure) = &mut outcome {
            failure.closes = std::mem::take(&mut self.heard.closes);
        }
        self.gpu.explained(outcome)
    }

    /// Returns true if a brief probe, or a probe for its losses, has waited too long for its next step. Another config
    /// is then a better use of time. Too long is at least 10 s, and at least three times the longest step. `outside` is
    /// the time since the last step.
    fn is_too_short(&self, outside: Duration) -> bool {
        /// Round numbers. `SHORTEST` is about three times the shortest time of `Patience::has_left`.
        const SHORTEST: Duration = Duration::from_secs(10);
        const STEPS: f64 = 3.0;
        let is_brief =
            matches!(self.job.effort, Effort::Brief | Effort::Losses { .. }) && self.heard.ranks.count() <= 1;
        let longest_step = self.heard.window.since(0.0).iter().map(|step| step.work.seconds).fold(0.0, f64::max);
        let is_long = outside >= SHORTEST && outside.as_secs_f64() >= STEPS * longest_step;
        is_brief && self.heard.window.steps() > 0 && is_long && self.patience.is_look_due(outside)
    }

    /// Returns a verdict if no step came for too long. If there are enough steps, the verdict keeps them, unless the
    /// script waits for its loader or for other ranks.
    pub(super) fn without_steps_since(&mut self, now: Instant) -> Option<Verdict> {
        let silent = now.duration_since(self.heard.last_progress);
        let is_silent = silent >= self.job.limits.stall_time;
        // Other programs make a start take longer, so the time in which the job waited for a CPU does not count.
        let is_start = is_silent && self.heard.window.steps() == 0;
        let waited = if is_start { self.host.waited_for_processor() } else { Duration::ZERO };
        let is_stalled = is_silent && silent.saturating_sub(waited) >= self.job.limits.stall_time;
        let last_step = self.heard.window.last_step().map_or(now, |last| self.begin + last);
        let outside = now.saturating_duration_since(last_step);
        // A rank may wait long for a rank that evaluates, so a probe of several ranks may use the whole `stall_time`.
        let has_left = self.heard.ranks.count() <= 1 && self.patience.has_left(outside);
        let may_be_kept = self.patience.is_worth_keeping() && !self.job.effort.is_for_losses();
        if may_be_kept && (has_left || is_stalled) {
            self.look_where_it_is(&mut |_| true);
            if !self.hang.is_blocked {
                return Some(Verdict::LeftTraining(outside));
            }
            self.patience.wait_on(outside);
        } else if !may_be_kept && !is_stalled && self.is_too_short(outside) {
            self.look_where_it_is(&mut |_| true);
            if !self.hang.is_blocked {
                // A comparison of losses also works with fewer steps than requested.
                let has_losses = self.job.effort.is_for_losses() && !self.heard.totals.first_losses().is_empty();
                return Some(if has_losses { Verdict::LeftTraining(outside) } else { Verdict::Stalled });
            }
            self.patience.wait_on(outside);
        }
        is_stalled.then_some(Verdict::Stalled)
    }

    fn outcome_of(&mut self, verdict: &Verdict) -> Outcome {
        let last_lines = self.output.last_lines();
        let failure = |reason: String| classify::failure(reason, &last_lines);
        let limits = self.job.limits;
        let stopped_itself = matches!(verdict, Verdict::Enough);
        if let Some(compiling) = self.compiling(verdict) {
            return Outcome::TimedOut(failure(compiling.reason()));
        }
        match verdict {
            Verdict::Interrupted => Outcome::Interrupted,
            Verdict::Diverged(loss) => diverged(*loss, &last_lines),
            Verdict::HostMemory(reason) => {
                Outcome::OutOfMemory { memory: Memory::Host, failure: failure(reason.clone()) }
            }
            Verdict::Disturbed(reason) => Outcome::Disturbed(failure(reason.clone())),
            Verdict::ScratchFull(reason) => Outcome::Crashed(failure(reason.clone())),
            Verdict::Ranks(reason) if self.host.oom_killed() => {
                let reason = format!("{reason}; the kernel killed a process because memory ran out");
                Outcome::OutOfMemory { memory: Memory::Host, failure: failure(reason) }
            }
            Verdict::Ranks(reason) => Outcome::Crashed(failure(reason.clone())),
            Verdict::LeftTraining(outside) => self.out_of_memory(&last_lines).unwrap_or_else(|| {
                let reason = self.left_training(*outside);
                self.heard.facts.insert(0, LEFT_TRAINING, Fact::Text(reason.clone()));
                let stalled = || Outcome::Stalled(failure(reason));
                self.measured(&last_lines, stopped_itself).unwrap_or_else(stalled)
            }),
            Verdict::Enough | Verdict::TimeIsUp | Verdict::StillCompiling => {
                let measured = self.measured(&last_lines, stopped_itself);
                measured.or_else(|| self.out_of_memory(&last_lines)).unwrap_or_else(|| {
                    let seconds = (limits.probe_time.as_secs_f64() * 10.0).round() / 10.0;
                    let reason = format!("{} after {seconds} s{}", self.nothing_seen(), self.nearest(&last_lines));
                    Outcome::TimedOut(self.hanging(reason, &last_lines))
                })
            }
            Verdict::Stalled => self.out_of_memory(&last_lines).unwrap_or_else(|| {
                let last = self.heard.window.last_step().map_or(self.heard.last_progress, |last| self.begin + last);
                let (silent, stall) = (last.elapsed(), limits.stall_time);
                let seconds = if silent < stall { silent.as_secs_f64().round() } else { stall.as_secs_f64() };
                let reason = match self.heard.window.steps() {
                    0 => {
                        let silent = if self.heard.any_step() { "" } else { "no output and " };
                        format!("{silent}{} for {seconds} s", self.nothing_seen())
                    }
                    steps => format!("no progress for {seconds} s, after {steps} steps"),
                };
                Outcome::Stalled(self.hanging(reason, &last_lines))
            }),
            Verdict::Exited => self.exited(&last_lines),
        }
    }

    fn exited(&mut self, last_lines: &[String]) -> Outcome {
        if let Some(loss) = self.heard.diverged {
            return diverged(loss, last_lines);
        }
        // After the report that training is over, the exit status does not matter.
        let finished_well = self.heard.is_done || self.heard.ending.is_some_and(Ending::is_success);
        if let Some(reason) = self.too_little().filter(|_| finished_well && self.heard.reported.is_none()) {
            return Outcome::Crashed(classify::failure(reason, last_lines));
        }
        if finished_well
            && self.heard.reported.is_none()
            && let Some(measured) = self.measured(last_lines, false)
        {
            return self.with_early_end(measured);
        }
        if self.heard.is_done && self.heard.reported.is_none() {
            let longer = classify::train_longer(self.length_option());
            let reason = format!("was done before {} was seen; {longer}", self.awaited());
            return Outcome::Crashed(classify::failure(reason, last_lines));
        }
        let Some(ending) = self.heard.ending.or(self.heard.reported.is_some().then_some(Ending::Exited(1))) else {
            return Outcome::Disturbed(Failure::new("the probe's supervisor was killed"));
        };
        let reported = self.heard.reported.take();
        classify::classify(&Evidence {
            ending,
            last_lines,
            reported,
            memory: self.memory_facts(),
            awaited: self.awaited(),
            ranks: self.heard.ranks.count(),
            leftovers: self.heard.leftovers,
            bad_lines: self.heard.bad_lines,
            length_option: self.length_option(),
        })
    }

    fn length_option(&self) -> Option<&str> {
        ["run.epochs_option", "run.steps_option"].iter().find_map(|name| self.heard.facts.text(name))
    }

    /// Notes in a measurement with a wide interval that the script ended before gputune stopped it.
    fn with_early_end(&self, mut outcome: Outcome) -> Outcome {
        /// A round number: half the width of an interval, as a share, that hides most gains.
        const WIDE: f64 = 0.2;
        let is_wide = |rate: Estimate| rate.relative_half_width().is_none_or(|half| half > WIDE);
        if let Outcome::Measured(measurement) = &mut outcome
            && measurement.throughput.is_some_and(is_wide)
            && matches!((&self.step.rate, self.job.mode()), (Rate::Events, None))
        {
            let (steps, longer) = (self.heard.window.steps(), classify::train_longer(self.length_option()));
            let words = format!("the script ended after {steps} steps, too few for a narrow interval: {longer}");
            measurement.facts.insert(0, ENDED_EARLY, Fact::Text(words));
        }
        outcome
    }

    /// Returns a reason if a command printed all its rates within a moment and ended. A run that continues an earlier
    /// run may have only a few steps left.
    fn too_little(&self) -> Option<String> {
        /// The fewest lines for this reason: fewer lines may be the summary of a long run. A round number.
        const LINES: usize = 5;
        /// A round number.
        const SHORTEST: Duration = Duration::from_secs(2);
        let (lines, first) = self.heard.printed;
        let span = self.heard.last_progress.saturating_duration_since(first?);
        (lines >= LINES && span < SHORTEST).then(|| {
            let seconds = span.as_secs_f64();
            format!(
                "ended after {lines} printed rates in {seconds:.1} s, too little to measure; {}",
                classify::train_longer(self.length_option())
            )
        })
    }

    /// Returns the compilations of the probe if they used up its time.
    fn compiling(&self, verdict: &Verdict) -> Option<Compiling> {
        let compiling = self.heard.window.compiling()?;
        match verdict {
            Verdict::StillCompiling => Some(compiling),
            Verdict::TimeIsUp => compiling.is_going_on().then_some(compiling),
            _ => None,
        }
    }

    /// Describes a script that left training: the time since its last step, its number of steps, and its position.
    fn left_training(&self, outside: Duration) -> String {
        let (seconds, steps) = (outside.as_secs_f64(), self.heard.window.steps());
        let place = self.hang.reason.as_ref().map(|place| format!(": {place}")).unwrap_or_default();
        format!("no training step for {seconds:.0} s, after {steps} steps{place}")
    }

    /// Makes the failure of a probe without progress: adds the position of the hang, if known, and the output.
    fn hanging(&self, mut reason: String, last_lines: &[String]) -> Failure {
        reason += &self.hang.reason.as_ref().map(|place| format!(": {place}")).unwrap_or_default();
        reason += &classify::known_crash(last_lines).map(|words| format!("; it printed: {words}")).unwrap_or_default();
        reason += &classify::bad_lines_words(self.heard.bad_lines);
        let mut failure = classify::failure(reason, last_lines);
        failure.last_lines.extend(self.hang.lines.iter().cloned());
        failure
    }

    fn memory_facts(&self) -> MemoryFacts {
        MemoryFacts {
            oom_killed: self.host.oom_killed(),
            shared_is_full: self.host.shared_is_full(),
            own: self.host.own(),
            has_failed_allocations: self.heard.totals.has_failed_allocations(),
            lost_rank: self.heard.ranks.first_lost(),
        }
    }

    fn awaited(&self) -> &'static str {
        match self.step.rate {
            Rate::Events if self.heard.window.compiling().is_some() => "a step without a compilation",
            Rate::Events if self.heard.any_step() => "a second step",
            Rate::Events => "a step",
            Rate::Pattern { .. } => "a line that matches the pattern",
        }
    }

    /// Names the printed line that most likely has the rate, or says that nothing was printed.
    fn nearest(&self, last_lines: &[String]) -> String {
        const SHOWN: usize = 100;
        let Rate::Pattern { .. } = self.step.rate else { return String::new() };
        if last_lines.is_empty() {
            return "; nothing was printed: is the output held back, for example by `| tee`?".to_owned();
        }
        let line = printed::nearest(last_lines, &self.unit()).map(|line| line.chars().take(SHOWN).collect::<String>());
        line.map(|line| format!("; the nearest line is `{}`", line.trim())).unwrap_or_default()
    }

    fn nothing_seen(&self) -> &'static str {
        match self.step.rate {
            Rate::Events if self.heard.any_step() => "one step only",
            Rate::Events => "no step",
            Rate::Pattern { .. } => "no line that matches the pattern",
        }
    }

    fn out_of_memory(&self, last_lines: &[String]) -> Option<Outcome> {
        let (memory, reason) = classify::out_of_memory(last_lines, &self.memory_facts())?;
        Some(Outcome::OutOfMemory { memory, failure: classify::failure(reason, last_lines) })
    }

    /// Returns the outcome of the measured steps, or of an experiment without steps. Returns `None` if nothing was
    /// measured.
    fn measured(&mut self, last_lines: &[String], stopped_itself: bool) -> Option<Outcome> {
        if let Effort::Losses { count } = self.job.effort
            && self.heard.totals.has_first_losses(count)
        {
            // The losses suffice. A script that prints its rate now and then may not have printed it yet.
            let first_losses = self.heard.totals.first_losses().to_vec();
            return Some(Outcome::Measured(Measurement { first_losses, ..Measurement::default() }));
        }
        let Some(throughput) = self.heard.window.throughput() else { return self.without_steps(last_lines) };
        if let Some(unmet) = self.unmet(last_lines) {
            return Some(unmet);
        }
        let mut measurement = self.heard.totals.measurement(&throughput, &self.unit());
        if matches!(self.step.rate, Rate::Pattern { .. }) {
            (measurement.timing.step_seconds, measurement.timing.samples_per_step) = (None, None);
        }
        if self.heard.is_in_steps {
            measurement.timing.samples_per_step = None;
        }
        measurement.account = self.heard.account();
        self.describe(&mut measurement, throughput.span(self.begin));
        let handed_out = self.heard.handed_out.rate(throughput.span(self.begin));
        measurement.metrics.extend(handed_out.map(|rate| (HANDED_OUT.to_owned(), rate / throughput.counted_share())));
        if self.step.samples_per_step.is_some()
            && measurement.facts.get(COUNTED_BY).is_none()
            && !self.heard.has_samples
        {
            measurement.facts.insert(0, COUNTED_BY, Fact::Text(BY_SPEC.to_owned()));
        }
        let (measured, ended) = throughput.span(self.begin);
        let begins = [Some(measured), self.heard.first_step];
        let steps = |at: Instant| self.heard.window.steps_until(at.saturating_duration_since(self.begin).as_secs_f64());
        let mut growths = begins.iter().flatten().map(|begin| self.host.growth((*begin, ended), &steps));
        measurement.machine.growth.extend(growths.find(|growth| !growth.is_empty()).unwrap_or_default());
        if !self.step.is_gpu && measurement.memory.peak_bytes.is_none() {
            measurement.memory.peak_bytes = self.host.peak_bytes();
            measurement.memory.capacity_bytes = self.host.total_bytes;
        }
        self.patience.conclude(&mut measurement, stopped_itself);
        Some(self.gpu.measured(measurement, &throughput))
    }

    /// Adds the values that do not depend on steps: the reported facts, and the machine's readings in a time span.
    fn describe(&self, measurement: &mut Measurement, span: (Instant, Instant)) {
        measurement.framework = self.heard.framework.clone();
        measurement.facts = self.heard.facts.clone();
        measurement.ranks = Some(self.heard.ranks.count()).filter(|count| *count > 0);
        measurement.bad_lines = self.heard.bad_lines;
        let machine = &mut measurement.machine;
        machine.host_peak_bytes = self.host.peak_bytes();
        machine.foreign_cpu_share = self.host.foreign_cpu_share();
        machine.host = self.host.readings(span);
        machine.shared_memory_peak_bytes = Some(self.host.shared_peak_bytes());
    }

    /// Returns the outcome of an experiment whose result is facts, without a throughput.
    fn without_steps(&self, last_lines: &[String]) -> Option<Outcome> {
        let is_done = match self.job.mode() {
            Some(Mode::LoaderOnly) => !self.heard.facts.numbered(LOADER_RATE).is_empty(),
            Some(Mode::LargestBatch) => self.heard.facts.get(TRAINED_LARGEST).is_some(), // before a rate was printed
            _ => false,
        };
        is_done.then(|| {
            self.unmet(last_lines).unwrap_or_else(|| {
                let mut measurement = Measurement { unit: self.unit(), ..Measurement::default() };
                self.describe(&mut measurement, (self.begin, Instant::now()));
                Outcome::Measured(measurement)
            })
        })
    }
}

/// Adds an explanation to a crash that redirected writes may have caused.
fn of_layer(mut outcome: Outcome) -> Outcome {
    if let Outcome::Crashed(failure) = &mut outcome
        && let Some(words) = writes::explanation(std::iter::once(&failure.reason).chain(&failure.last_lines))
    {
        failure.reason += &format!("; {words}");
    }
    outcome
}

fn diverged(loss: f64, last_lines: &[String]) -> Outcome {
    Outcome::Diverged(classify::failure(format!("the loss is {loss}"), last_lines))
}
