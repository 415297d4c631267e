//! Probes of a training step inside this process.

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::gpu_watch::GpuWatch;
use super::ledger::StepKind;
use super::live::Live;
use super::measuring::patience::{Patience, Sufficiency};
use super::measuring::window::{DATA_WAIT, StepReport, Window};
use super::protocol::MemoryReport;
use super::totals::Totals;
use super::{Effort, Job, ProbeError, Prober, Watch};
use crate::machine::{GpuMeter, HostMeter, nvml::Visible};
use crate::model::{FLOPS, Failure, Memory, Outcome, Progress, Settings, Spent, outcome::with_causes};

/// The work of one training step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    samples: u64,
    loss: Option<f64>,
    flops: Option<f64>,
    peak_memory_bytes: Option<u64>,
    memory_capacity_bytes: Option<u64>,
    phases: Vec<(&'static str, Duration)>,
    mark: Option<&'static str>,
}

impl Step {
    /// Makes a step over this many samples.
    pub fn new(samples: u64) -> Self {
        Self { samples, ..Self::default() }
    }

    /// Adds the loss. A loss that is not finite ends the probe as diverged.
    #[must_use]
    pub fn loss(mut self, loss: f64) -> Self {
        self.loss = Some(loss);
        self
    }

    /// Adds the number of floating-point operations of the step; a multiplication and an addition count as two.
    #[must_use]
    pub fn flops(mut self, flops: f64) -> Self {
        self.flops = Some(flops);
        self
    }

    /// Adds the peak of device memory use and, if known, the device's capacity, in bytes.
    #[must_use]
    pub fn memory(mut self, peak_bytes: u64, capacity_bytes: Option<u64>) -> Self {
        (self.peak_memory_bytes, self.memory_capacity_bytes) = (Some(peak_bytes), capacity_bytes);
        self
    }

    /// Adds the time that a phase of the step took, such as `data_wait`.
    #[must_use]
    pub fn phase(mut self, name: &'static str, time: Duration) -> Self {
        self.phases.push((name, time));
        self
    }

    /// Marks an unusual event in the step, such as `epoch`, `evaluation` or `checkpoint`. The step's time does not count in the
    /// throughput. Measuring begins after all steps marked `compile` or `recompile`.
    #[must_use]
    pub fn mark(mut self, name: &'static str) -> Self {
        self.mark = Some(name);
        self
    }
}

/// The reason why a step failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The config needs more memory than the device has. The search learns from this outcome.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// The step does not accept the config.
    #[error("{0}")]
    Rejected(String),
    /// The step failed.
    #[error(transparent)]
    Failed(#[from] Box<dyn Error + Send + Sync>),
    /// No config can run; the search ends.
    #[error("{0}")]
    GiveUp(String),
}

/// A training step inside this process.
///
/// A closure that takes the settings and runs one step implements this trait. gputune cannot interrupt a step, so a
/// step that never returns blocks the search. A command can be ended at any time.
pub trait TrainingStep {
    /// Builds everything that the config needs: model, optimiser, data loader.
    ///
    /// # Errors
    /// The config does not fit or cannot be built.
    fn prepare(&mut self, settings: &Settings) -> Result<(), StepError> {
        let _ = settings;
        Ok(())
    }

    /// Runs one step, waiting for its data and for the device.
    ///
    /// # Errors
    /// The step failed, or memory ran out.
    fn step(&mut self, settings: &Settings) -> Result<Step, StepError>;

    /// Releases everything that [`prepare`](Self::prepare) built. It is called after every probe, even after a failed probe.
    fn release(&mut self) {}
}

impl<F: FnMut(&Settings) -> Result<Step, StepError>> TrainingStep for F {
    fn step(&mut self, settings: &Settings) -> Result<Step, StepError> {
        self(settings)
    }
}

/// Runs a [`TrainingStep`].
#[derive(Debug)]
pub struct InProcess<S>(pub S);

impl<S: TrainingStep> Prober for InProcess<S> {
    fn probe(&mut self, job: &Job, watch: Watch<'_>) -> Result<Outcome, ProbeError> {
        let step = &mut self.0;
        // A panic in the user's step is a failure of that config, not of the search. The step is released in all cases.
        let begin = Instant::now();
        let mut gpu = watch_gpus(begin);
        let mut prepared = begin;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            step.prepare(&job.settings)?;
            prepared = Instant::now();
            run(step, job, begin, &mut gpu, watch)
        }));
        let over = Instant::now();
        let released = catch_unwind(AssertUnwindSafe(|| step.release()));
        match (ended, released) {
            (Ok(Ok(mut outcome)), Ok(())) => {
                if let Outcome::Measured(measurement) = &mut outcome {
                    let measuring = measurement.timing.measured_seconds.unwrap_or(0.0);
                    let spent = Spent::of((prepared - begin, 0.0), (over - prepared, measuring), over.elapsed());
                    measurement.spent = Some(spent);
                }
                Ok(outcome)
            }
            (Ok(Err(error)), Ok(())) => failed(error),
            (Err(panic), _) | (_, Err(panic)) => {
                Ok(Outcome::Crashed(Failure::new(format!("panicked: {}", panic_text(panic.as_ref())))))
            }
        }
    }
}

fn watch_gpus(begin: Instant) -> GpuWatch {
    let Ok(meter) = GpuMeter::shared() else { return GpuWatch::none() };
    let visible = Visible::of(&BTreeMap::new());
    let idle = meter.read(&visible).unwrap_or_default();
    GpuWatch::begin(&visible, std::process::id(), idle, begin)
}

fn failed(error: StepError) -> Result<Outcome, ProbeError> {
    Ok(match error {
        StepError::OutOfMemory(reason) => {
            Outcome::OutOfMemory { memory: Memory::Device, failure: Failure::new(reason) }
        }
        StepError::Rejected(reason) => Outcome::Rejected(Failure::new(reason)),
        StepError::Failed(source) => Outcome::Crashed(Failure::new(with_causes(source.as_ref()))),
        StepError::GiveUp(reason) => return Err(ProbeError::GaveUp { reason }),
    })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

fn run(
    step: &mut impl TrainingStep,
    job: &Job,
    begin: Instant,
    gpu: &mut GpuWatch,
    watch: Watch<'_>,
) -> Result<Outcome, StepError> {
    const UNIT: &str = "samples/s";
    const WATCH_EVERY: Duration = Duration::from_millis(50);
    let mut window = Window::default();
    let mut totals = Totals::default();
    let mut patience = Patience::new(job, &job.settings);
    let mut host = HostMeter::own();
    host.look();
    let mut looked = Instant::now();
    let mut live = Live::new(looked);
    loop {
        let started = Instant::now();
        let done = step.step(&job.settings)?;
        if let Some(loss) = done.loss.filter(|loss| !loss.is_finite()) {
            return Ok(Outcome::Diverged(Failure::new(format!("the loss is {loss}"))));
        }
        hear(&done, begin.elapsed(), started.elapsed(), &mut window, &mut totals);
        let is_over = begin.elapsed() >= job.limits.probe_time;
        if looked.elapsed() < WATCH_EVERY && !is_over {
            continue;
        }
        looked = Instant::now();
        host.look_in_time();
        let sufficiency = match (job.effort, patience.look(&window)) {
            (Effort::Losses { count }, _) if totals.has_first_losses(count) => Sufficiency::Enough,
            (Effort::Losses { .. }, _) => Sufficiency::TooLittle,
            (_, sufficiency) => sufficiency,
        };
        let throughput = patience.estimate();
        let devices = live.look(looked, |from, to| host.readings(from, to), Some(&mut *gpu));
        let (elapsed, steps) = (begin.elapsed(), window.steps());
        let progress = Progress { elapsed, steps, throughput, unit: UNIT.to_owned(), devices };
        if watch(&progress) == ControlFlow::Break(()) {
            return Ok(Outcome::Interrupted);
        }
        if sufficiency == Sufficiency::TooLittle && !is_over {
            continue;
        }
        let is_compiling = sufficiency == Sufficiency::StillCompiling || is_over;
        if let Some(compiling) = window.compiling().filter(|compiling| is_compiling && compiling.is_going_on()) {
            return Ok(Outcome::TimedOut(Failure::new(compiling.reason())));
        }
        let Some(throughput) = window.throughput() else {
            return Ok(Outcome::TimedOut(Failure::new("no step took a measurable time")));
        };
        let mut measurement = totals.measurement(&throughput, UNIT);
        measurement.account = totals.account(Duration::ZERO);
        patience.conclude(&mut measurement, sufficiency != Sufficiency::TooLittle);
        host.look();
        let (from, to) = throughput.span(begin);
        measurement.machine.host = host.readings(from, to);
        gpu.look();
        return Ok(gpu.measured(measurement, &throughput));
    }
}

fn hear(done: &Step, at: Duration, took: Duration, window: &mut Window, totals: &mut Totals) {
    for (name, time) in &done.phases {
        totals.phase(name, time.as_secs_f64());
    }
    let amount = done.samples as f64;
    let waited = totals.current(DATA_WAIT);
    window.push(StepReport { at, seconds: took.as_secs_f64(), amount, waited, mark: done.mark });
    let (allocated, capacity) = (done.peak_memory_bytes, done.memory_capacity_bytes);
    totals.memory(0, MemoryReport { allocated, capacity, ..MemoryReport::default() });
    let kind = StepKind { is_marked: done.mark.is_some(), is_timed: true };
    totals.step(Some(took.as_secs_f64()), done.loss, kind);
    if let Some(flops) = done.flops {
        totals.metric(FLOPS, flops);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Parameter, Space};
    use crate::probe::Limits;

    fn probe(step: impl TrainingStep) -> Result<Outcome, ProbeError> {
        let space = Space::new([Parameter::values("batch_size", [4])]).unwrap();
        let config = space.first().unwrap();
        let settings = space.settings(&config);
        let limits =
            Limits { probe_time: Duration::from_secs(5), measure_time: Duration::from_millis(50), ..Limits::default() };
        let job = Job::new(1, &config, &settings, &limits);
        InProcess(step).probe(&job, &mut |_| ControlFlow::Continue(()))
    }

    #[test]
    fn a_closure_is_a_step() {
        let outcome = probe(|settings: &Settings| {
            std::thread::sleep(Duration::from_millis(2));
            Ok(Step::new(settings.integer("batch_size").unwrap_or(0).cast_unsigned()).loss(0.5))
        });
        let Outcome::Measured(measurement) = outcome.unwrap() else { panic!("not measured") };
        let rate = measurement.throughput.unwrap().value;
        // On a busy machine, 2 ms may become seconds.
        assert!((5.0..2000.0).contains(&rate), "4 samples in 2 ms or more: {rate}");
        assert_eq!(measurement.metrics["loss"], 0.5);
        assert!(measurement.machine.host.contains_key(&crate::model::Metric::CpuCores), "{measurement:?}");
    }

    #[test]
    fn a_step_that_compiles_until_the_time_is_over_is_not_measured() {
        let outcome = probe(|_: &Settings| {
            std::thread::sleep(Duration::from_millis(2));
            Ok(Step::new(4).mark("compile"))
        });
        let Ok(Outcome::TimedOut(failure)) = outcome else { panic!("{outcome:?}") };
        assert!(failure.reason.starts_with("still compiling after "), "{}", failure.reason);
    }

    #[test]
    fn errors_and_panics_are_outcomes() {
        let fail = |error: fn() -> StepError| probe(move |_: &Settings| Err(error()));
        let memory = fail(|| StepError::OutOfMemory("2 GiB".to_owned()));
        assert!(matches!(memory, Ok(Outcome::OutOfMemory { .. })));
        assert!(matches!(fail(|| StepError::Rejected("odd".to_owned())), Ok(Outcome::Rejected(_))));
        assert!(matches!(fail(|| StepError::Failed("broken".into())), Ok(Outcome::Crashed(_))));
        assert!(matches!(fail(|| StepError::GiveUp("no data".to_owned())), Err(ProbeError::GaveUp { .. })));
        assert!(matches!(probe(|_: &Settings| Ok(Step::new(1).loss(f64::NAN))), Ok(Outcome::Diverged(_))));
        let panicked = probe(|_: &Settings| -> Result<Step, StepError> { panic!("boom {}", 1) }).unwrap();
        assert_eq!(panicked.failure().unwrap().reason, "panicked: boom 1");
    }
}
