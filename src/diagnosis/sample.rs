//! Jobs for tests: healthy jobs, and changes that give them a problem.

use std::collections::BTreeMap;

use super::evidence::{Around, Differential, Evidence, Ran};
use crate::model::{Estimate, Fact, Facts, GpuUse, Measurement, Memory, Metric, Outliers, Reading, Source, Timing};

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

    pub(crate) fn cpu() -> Self {
        Self::healthy("cpu").host(Metric::CpuCores, 3.9)
    }

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

    pub(crate) fn item(self, wall: f64, cpu: f64) -> Self {
        self.number("loader.item_seconds", wall).number("loader.item_cpu_seconds", cpu)
    }

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
        self.ran(Differential::NoCommunication, percent).with_last_run(|run| {
            run.facts.insert(0, "no_communication", Fact::Flag(true));
            for (rank, seconds) in times {
                run.facts.insert(*rank, "step_compute_seconds", Fact::Number(*seconds));
            }
        })
    }

    fn with_last_run(mut self, change: impl FnOnce(&mut Measurement)) -> Self {
        if let Some((_, Ran::Measured(run))) = self.evidence.runs.last_mut() {
            change(run);
        }
        self
    }

    pub(crate) fn replay(self, percent: f64) -> Self {
        self.ran(Differential::Replay, percent)
    }

    pub(crate) fn replay_cpu(mut self, cores: f64) -> Self {
        for (which, ran) in &mut self.evidence.runs {
            if let (Differential::Replay, Ran::Measured(run)) = (which, ran) {
                run.machine.host.insert(Metric::CpuCores, reading(cores));
            }
        }
        self
    }

    pub(crate) fn foreign(self, share: f64) -> Self {
        self.with(|job| job.machine.foreign_cpu_share = Some(share))
    }

    pub(crate) fn out_of_memory(mut self, differential: Differential, memory: Memory) -> Self {
        self.evidence.runs.push((differential, Ran::OutOfMemory(memory)));
        self
    }

    pub(crate) fn loader(mut self, rates: &[(u32, f64)]) -> Self {
        let facts: Facts =
            rates.iter().map(|(workers, rate)| (format!("loader_only.rate.{workers}"), Fact::Number(*rate))).collect();
        let run = Measurement { facts, ..Measurement::default() };
        self.evidence.runs.push((Differential::LoaderOnly, Ran::Measured(Box::new(run))));
        self
    }

    /// Sets the cores that the loader alone kept busy, by workers. Call it right after `loader`.
    pub(crate) fn loader_cores(self, used: &[(u32, f64)]) -> Self {
        self.with_last_run(|run| {
            for (workers, cores) in used {
                run.facts.insert(0, &format!("loader_only.cores.{workers}"), Fact::Number(*cores));
            }
        })
    }

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

/// Makes a job that has the cause of this name.
pub(crate) fn sick(name: &str) -> Job {
    match name {
        "cpu_preprocessing" => {
            Job::cpu().wait(0.5).replay(200.0).item(0.03, 0.029).loader(&[(0, 35.0), (2, 101.0), (4, 160.0)])
        }
        "storage" => {
            let job = Job::cpu().wait(0.5).replay(200.0).item(0.03, 0.004).host(Metric::CpuCores, 1.0);
            job.loader(&[(0, 35.0), (2, 101.0), (4, 200.0)]).number("files.opened_per_sample", 1.0)
        }
        "single_threaded_loader" => {
            Job::cpu().workers(0).wait(0.5).replay(200.0).item(0.005, 0.005).loader(&[(0, 200.0), (2, 390.0)])
        }
        "too_little_prefetch" => {
            let job = Job::cpu().wait(0.3).replay(140.0).item(0.004, 0.001).host(Metric::CpuCores, 2.0);
            job.loader(&[(0, 250.0), (2, 400.0)])
                .number("loader.item_seconds_p95", 0.016)
                .number("loader.prefetch_factor", 1.0)
        }
        "worker_imbalance" => {
            let job = Job::cpu().wait(0.5).replay(200.0).item(0.02, 0.02).loader(&[(0, 50.0), (2, 100.0)]);
            job.number("loader.worker_imbalance", 1.7)
        }
        "worker_overhead" => {
            let job = Job::cpu().wait(0.5).replay(200.0).item(0.001, 0.001);
            job.loader(&[(0, 900.0), (1, 60.0), (2, 110.0), (4, 120.0)])
        }
        "slow_sampler" => {
            let chosen = r#"{"samples": 200, "seconds": 4.0, "kinds": {"choosing": 0.45, "forward": 0.5}, "lines": [{"kind": "choosing",
                "file": "/j/train.py", "line": 9, "function": "LeastPadding.draw", "code": "ranked = sorted(lengths)", "share": 0.45,
                "samples": 90}]}"#;
            let job = Job::cpu().wait(0.5).replay(200.0).item(0.0001, 0.0001).text("lines.main", chosen);
            job.loader(&[(0, 150.0), (2, 205.0), (4, 204.0)]).loader_cores(&[(4, 1.0)])
        }
        "worker_start" => Job::cpu().with(|job| {
            job.timing.outliers.insert("epoch".to_owned(), Outliers { steps: 4, seconds: 12.0 });
        }),
        "shared_source" => {
            let job = Job::cpu().workers(4).wait(0.9).replay(1000.0).item(0.008, 0.0002).host(Metric::CpuCores, 0.4);
            job.loader(&[(0, 105.0), (1, 101.0), (4, 102.0), (8, 99.0)]).loader_cores(&[(8, 0.3)])
        }
        "data_starvation" => Job::cpu().wait(0.5).item(0.0001, 0.0001).replay(200.0).host(Metric::CpuCores, 1.0),
        other => sick_beside(other),
    }
}

/// Makes a job that has the cause of this name, if the cause is not about data.
fn sick_beside(name: &str) -> Job {
    match name {
        "evaluation" => Job::cpu().spent("evaluation", 0.45),
        "checkpoints" => Job::cpu().spent("checkpoint", 0.4),
        "own_code" => {
            let job = Job::cpu().spent("forward", 0.06).spent("backward", 0.12).spent("data_wait", 0.02);
            job.replay(101.0).ran(Differential::DoubleBatch, 170.0)
        }
        "host_to_device" => Job::gpu().phase("host_to_device", 0.3).flag("loader.batch_pinned", false),
        "synchronising_calls" => Job::gpu()
            .number("syncs_per_step", 3.0)
            .gpu_reading(Metric::GpuBusy, 0.75)
            .gpu_reading(Metric::SmActive, 0.6),
        "logging" => Job::cpu().number("logs_per_step", 2.0).number("log_seconds_per_step", 0.1),
        "cpu_quota" => Job::cpu().host(Metric::CpuThrottled, 0.5),
        "crowded_cores" => Job::cpu().host(Metric::CpuPressure, 0.6).foreign(0.5),
        "spinning_threads" => {
            let job = Job::cpu().replay(101.0).ran(Differential::DoubleBatch, 180.0);
            let job = job.ran(Differential::OneThread, 400.0);
            job.host(Metric::CpuPressure, 0.6).foreign(0.3)
        }
        "shared_gpu" => Job::gpu().warning("foreign_process", "GPU 0 has process 4711 (python)"),
        "memory_limited" => Job::gpu().with(|job| job.memory.allocator_retries = Some(3)),
        "host_memory" => Job::cpu().host(Metric::MemoryPressure, 0.4),
        "shared_memory" => Job::cpu().with(|job| job.machine.shared_memory_peak_bytes = Some(8 << 30)),
        "launch_bound" => Job::cpu().replay(101.0).ran(Differential::DoubleBatch, 180.0),
        "memory_bandwidth" => {
            let job = Job::gpu().gpu_reading(Metric::DramActive, 0.72).gpu_reading(Metric::TensorActive, 0.08);
            job.gpu_reading(Metric::SmActive, 0.7)
        }
        "wrong_precision" => {
            let job = Job::gpu().text("precision", "fp32").gpu_reading(Metric::TensorActive, 0.0);
            job.replay(101.0).ran(Differential::OtherPrecision, 210.0)
        }
        "thermal_throttling" => Job::gpu().gpu_reading(Metric::ThrottledByHeat, 0.4),
        "power_cap" => {
            let job = Job::gpu().gpu_reading(Metric::ThrottledByPower, 0.8).gpu_reading(Metric::TensorActive, 0.4);
            job.gpu_reading(Metric::SmActive, 0.7)
                .warning("power_capped", "GPU 0 is limited to 200 W, by default to 400 W")
        }
        "compute_bound" => Job::cpu().replay(101.0).ran(Differential::DoubleBatch, 105.0),
        "communication" => Job::gpu().phase("communication", 0.3).with(|job| job.ranks = Some(4)),
        "straggler" => {
            let job = Job::gpu().phase("communication", 0.2).with(|job| job.ranks = Some(2));
            job.number("step_compute_seconds", 0.2).number("rank1.step_compute_seconds", 0.3)
        }
        other => panic!("add a job with the cause {other} to the tests"),
    }
}
