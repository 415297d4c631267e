//! Makes a job for each cause.

use crate::diagnosis::Differential;
use crate::diagnosis::sample::Job;
use crate::model::{Metric, Outliers};

/// Makes a job that has the cause of this name.
pub(super) fn sick(name: &str) -> Job {
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

/// Makes a job whose problem is not its data.
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
        "crowded_cores" => {
            Job::cpu().host(Metric::CpuPressure, 0.6).with(|job| job.machine.foreign_cpu_share = Some(0.5))
        }
        "spinning_threads" => {
            let job = Job::cpu().replay(101.0).ran(Differential::DoubleBatch, 180.0);
            let job = job.ran(Differential::OneThread, 400.0);
            job.host(Metric::CpuPressure, 0.6).with(|job| job.machine.foreign_cpu_share = Some(0.3))
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
