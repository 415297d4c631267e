//! Jobs for tests: healthy jobs, and changes that give them a problem.

use std::collections::BTreeMap;

use super::evidence::{Around, Differential, Evidence, Ran};
use crate::model::{Estimate, Fact, Facts, GpuUse, Measurement, Memory, Metric, Reading, Source, Timing};

/// A job whose evidence a test makes up.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    evidence: Evidence,
    facts: BTreeMap<String, Fact>,
    /// Samples per second; the rates of all probes are relative to it.
    rate: f64,
}

fn measured(rate: f64) -> Measurement {
    Measurement {
        throughput: Some(Estimate::interval(rate, rate * 0.99, rate * 1.01)),
        unit: "samples/s".to_owned(),
        ..Measurement::default()
    }
}

fn reading(value: f64) -> Reading {
    Reading { value, source: Source::Proc }
}

impl Job {
    fn healthy(device: &str) -> Self {
        let rate = 100.0;
        let observed = Measurement {
            phase_seconds: [("data_wait", 0.003), ("forward", 0.1), ("backward", 0.18), ("optimizer", 0.02)]
                .map(|(name, seconds)| (name.to_owned(), seconds))
                .into(),
            timing: Timing {
                steps: 100,
                step_seconds: Some(0.32),
                samples_per_step: Some(32.0),
                measured_seconds: Some(32.0),
                ..measured(rate).timing
            },
            ..measured(rate)
        };
        let around = Around {
            cores: Some(4.0),
            memory: Some(1 << 36),
            memory_available: Some(1 << 35),
            shared_memory: Some(1 << 33),
            ..Around::default()
        };
        let job = Self { evidence: Evidence { observed, runs: Vec::new(), around }, facts: BTreeMap::new(), rate };
        job.text("device", device)
            .text("precision", "fp32")
            .workers(2)
            .number("loader.batch_size", 32.0)
            .number("loader.prefetch_factor", 2.0)
            .flag("loader.persistent_workers", false)
            .number("threads", 4.0)
            .item(0.001, 0.001)
            .spent("optimizer", 0.08)
    }

    /// Makes a healthy job on the CPU.
    pub(crate) fn cpu() -> Self {
        Self::healthy("cpu").host(Metric::CpuCores, 3.9)
    }

    /// Makes a healthy job on a GPU.
    pub(crate) fn gpu() -> Self {
        let mut job = Self::healthy("cuda")
            .flag("loader.pin_memory", true)
            .flag("optimizer_fused", false)
            .text("precision", "bf16");
        job.evidence.observed.machine.gpus = vec![GpuUse::default()];
        job.evidence.around.compute_capability = Some((9, 0));
        job.gpu_reading(Metric::GpuBusy, 0.99)
            .gpu_reading(Metric::SmActive, 0.9)
            .gpu_reading(Metric::TensorActive, 0.55)
            .gpu_reading(Metric::DramActive, 0.4)
    }

    pub(crate) fn number(mut self, name: &str, number: f64) -> Self {
        self.facts.insert(name.to_owned(), Fact::Number(number));
        self
    }

    pub(crate) fn text(mut self, name: &str, text: &str) -> Self {
        self.facts.insert(name.to_owned(), Fact::Text(text.to_owned()));
        self
    }

    pub(crate) fn flag(mut self, name: &str, is: bool) -> Self {
        self.facts.insert(name.to_owned(), Fact::Flag(is));
        self
    }

    pub(crate) fn workers(self, workers: u32) -> Self {
        self.number("loader.workers", f64::from(workers))
    }

    /// Sets the wall time and CPU time of a sample.
    pub(crate) fn item(self, wall: f64, cpu: f64) -> Self {
        self.number("loader.item_seconds", wall).number("loader.item_cpu_seconds", cpu)
    }

    /// Sets the share of a step that waits for data.
    pub(crate) fn wait(self, share: f64) -> Self {
        self.phase("data_wait", share)
    }

    pub(crate) fn phase(mut self, name: &str, share: f64) -> Self {
        let step = self.evidence.observed.timing.step_seconds.unwrap_or(1.0);
        self.evidence.observed.phase_seconds.insert(name.to_owned(), share * step);
        self.spent(name, share)
    }

    /// Sets a phase's share of the time after the start, in the account of the run. The rest is the loop's own code.
    pub(crate) fn spent(mut self, phase: &str, share: f64) -> Self {
        let observed = &mut self.evidence.observed;
        let (step, timing) = (observed.timing.step_seconds.unwrap_or(1.0), &observed.timing);
        #[expect(clippy::cast_precision_loss, reason = "a number of steps")]
        let steps_s = timing.steps as f64 * step;
        let account = observed.account.get_or_insert_with(|| {
            let phases = observed.phase_seconds.iter();
            let of_all = |seconds: f64| Estimate::point(seconds / step * steps_s);
            let phases = phases.map(|(name, seconds)| (name.clone(), of_all(*seconds))).collect();
            crate::model::Account { start_s: 3.0, steps_s, phases, rest: Estimate::default() }
        });
        account.phases.insert(phase.to_owned(), Estimate::point(share * steps_s));
        let told: f64 = account.phases.values().map(|seconds| seconds.value).sum();
        let scale = (steps_s / told).min(1.0);
        account.phases.values_mut().for_each(|seconds| seconds.value *= scale);
        account.rest = Estimate::point((steps_s - told).max(0.0));
        self
    }

    pub(crate) fn host(mut self, metric: Metric, value: f64) -> Self {
        self.evidence.observed.machine.host.insert(metric, reading(value));
        self
    }

    pub(crate) fn gpu_reading(mut self, metric: Metric, value: f64) -> Self {
        for gpu in &mut self.evidence.observed.machine.gpus {
            gpu.readings.insert(metric, reading(value));
        }
        self
    }

    pub(crate) fn warning(mut self, rule: &str, message: &str) -> Self {
        self.evidence.around.warnings.push((rule.to_owned(), message.to_owned()));
        self
    }

    pub(crate) fn cores(mut self, cores: f64) -> Self {
        self.evidence.around.cores = Some(cores);
        self
    }

    /// Adds a differential probe with this rate, as a percentage of the job's.
    pub(crate) fn ran(mut self, differential: Differential, percent: f64) -> Self {
        let run = measured(self.rate * percent / 100.0);
        self.evidence.runs.push((differential, Ran::Measured(Box::new(run))));
        self
    }

    pub(crate) fn ranks(self, ranks: u32) -> Self {
        self.with(|job| job.ranks = Some(ranks))
    }

    /// Adds a probe without communication, with the computing time of a step in each rank.
    pub(crate) fn without_communication(self, percent: f64, times: &[(u32, f64)]) -> Self {
        let mut job = self.ran(Differential::NoCommunication, percent);
        if let Some((_, Ran::Measured(run))) = job.evidence.runs.last_mut() {
            run.facts.insert(0, "no_communication", Fact::Flag(true));
            for (rank, seconds) in times {
                run.facts.insert(*rank, "step_compute_seconds", Fact::Number(*seconds));
            }
        }
        job
    }

    pub(crate) fn replay(self, percent: f64) -> Self {
        self.ran(Differential::Replay, percent)
    }

    /// Sets how many cores the replayed batches kept busy.
    pub(crate) fn replay_cpu(mut self, cores: f64) -> Self {
        for (which, ran) in &mut self.evidence.runs {
            if let (Differential::Replay, Ran::Measured(run)) = (which, ran) {
                run.machine.host.insert(Metric::CpuCores, reading(cores));
            }
        }
        self
    }

    pub(crate) fn out_of_memory(mut self, differential: Differential, memory: Memory) -> Self {
        self.evidence.runs.push((differential, Ran::OutOfMemory(memory)));
        self
    }

    /// Sets the rates of the loader alone, by workers.
    pub(crate) fn loader(mut self, rates: &[(u32, f64)]) -> Self {
        let facts: Facts =
            rates.iter().map(|(workers, rate)| (format!("loader_only.rate.{workers}"), Fact::Number(*rate))).collect();
        let run = Measurement { facts, ..Measurement::default() };
        self.evidence.runs.push((Differential::LoaderOnly, Ran::Measured(Box::new(run))));
        self
    }

    /// Sets the cores that the loader alone kept busy, by workers. Call `loader` first.
    pub(crate) fn loader_cores(mut self, used: &[(u32, f64)]) -> Self {
        for (which, ran) in &mut self.evidence.runs {
            if let (Differential::LoaderOnly, Ran::Measured(run)) = (which, ran) {
                let told = run.facts.iter().map(|(name, fact)| (name.to_owned(), fact.clone()));
                let more =
                    used.iter().map(|(workers, cores)| (format!("loader_only.cores.{workers}"), Fact::Number(*cores)));
                run.facts = told.chain(more).collect();
            }
        }
        self
    }

    /// Changes the measurement of the observed job.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Measurement)) -> Self {
        change(&mut self.evidence.observed);
        self
    }

    pub(crate) fn around(mut self, change: impl FnOnce(&mut Around)) -> Self {
        change(&mut self.evidence.around);
        self
    }

    pub(crate) fn evidence(&self) -> Evidence {
        let mut evidence = self.evidence.clone();
        evidence.observed.facts = self.facts.iter().map(|(name, fact)| (name.clone(), fact.clone())).collect();
        evidence
    }
}
