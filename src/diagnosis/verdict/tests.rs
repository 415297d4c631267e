//! Checks that each cause is found in a job that has it, and in no other job. Every job gets a verdict without a panic, whatever it
//! reports.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::diagnosis::sample::{Job, sick};
use crate::diagnosis::{Allowed, DIFFERENTIALS, Differential, Kind, Ran, Scope, cause, experiment, next};
use crate::model::{
    Estimate, FACTS, Fact, GpuUse, METRICS, MachineUse, Measurement, Memory, Metric, Outliers, Reading, Source, Timing,
    fact,
};

fn names(verdict: &Verdict) -> Vec<&'static str> {
    verdict.causes.iter().map(|diagnosed| diagnosed.cause.name).collect()
}

fn found(name: &str, job: &Job) -> Option<Found> {
    (cause(name).unwrap().find)(&job.evidence())
}

#[test]
fn each_cause_comes_first_in_a_job_that_has_it() {
    for cause in causes() {
        let evidence = sick(cause.name).evidence();
        let verdict = diagnose(&evidence);
        let top = verdict.top().unwrap();
        assert_eq!(top.cause.name, cause.name, "{:#?}", verdict.causes);
        assert!(top.found.clues.iter().any(|clue| clue.weight > 0.0));
        assert!(verdict.sureness >= 0.4, "{}: {} {:#?}", cause.name, verdict.sureness, top.found);
        assert!(top.found.clues.iter().all(|clue| !clue.text.is_empty()) && !top.found.worth.words.is_empty());
        assert_eq!(verdict.is_healthy(), cause.kind == Kind::Healthy);
    }
}

#[test]
fn a_healthy_job_has_no_cause_but_that() {
    for job in [Job::cpu(), Job::gpu(), Job::cpu().replay(102.0), Job::gpu().replay(99.0)] {
        let verdict = diagnose(&job.evidence());
        assert_eq!(names(&verdict), ["compute_bound"]);
        assert!(verdict.is_healthy() && verdict.sureness >= 0.55, "{verdict:#?}");
    }
}

#[test]
fn a_lock_under_which_workers_compute_keeps_the_cores_busy_and_is_one_all_the_same() {
    let job = |code: &str| {
        let lines = format!(
            r#"{{"samples": 300, "seconds": 8.0, "kinds": {{"loading": 0.9, "idle": 0.1}}, "lines": [{{"kind": "loading",
            "file": "/j/data.py", "line": 9, "function": "Data.__getitem__", "code": "{code}", "share": 0.5, "samples": 150}}]}}"#
        );
        let job = Job::cpu().cores(2.0).wait(0.7).replay(480.0).item(0.008, 0.005).text("lines.workers", &lines);
        job.loader(&[(0, 130.0), (1, 100.0), (2, 180.0), (4, 190.0)]).loader_cores(&[(4, 1.8)])
    };
    let verdict = diagnose(&job("fcntl.flock(self.file, fcntl.LOCK_EX)").evidence());
    assert_eq!(names(&verdict)[0], "shared_source", "{verdict:#?}");
    assert!(!names(&diagnose(&job("size = self.size_of(index)").evidence())).contains(&"shared_source"));
}

#[test]
fn workers_that_have_no_core_to_run_on_do_not_wait_for_each_other() {
    // If another program uses one of the two cores, a computing loader gets the other core.
    let job = |foreign: f64| {
        let job = Job::cpu().cores(2.0).wait(0.7).replay(480.0).item(0.008, 0.004);
        let job = job.loader(&[(0, 110.0), (1, 100.0), (2, 105.0), (4, 108.0)]).loader_cores(&[(4, 1.0)]);
        job.foreign(foreign)
    };
    assert_eq!(names(&diagnose(&job(0.0).evidence()))[0], "shared_source");
    let beside = names(&diagnose(&job(0.45).evidence()));
    assert!(!beside.contains(&"shared_source") && beside.contains(&"cpu_preprocessing"), "{beside:?}");
}

#[test]
fn a_queue_that_is_never_empty_is_long_enough_whatever_replayed_batches_save() {
    let job = sick("too_little_prefetch").wait(0.01).replay(190.0).spent("evaluation", 0.5);
    let verdict = diagnose(&job.evidence());
    assert!(!names(&verdict).contains(&"too_little_prefetch"), "{verdict:#?}");
    assert!(names(&verdict).contains(&"evaluation"), "{verdict:#?}");
}

#[test]
fn threads_that_spin_are_told_from_launches_by_one_thread() {
    let verdict = diagnose(&sick("spinning_threads").evidence());
    assert!(!names(&verdict).contains(&"launch_bound"), "{verdict:#?}");
    assert_eq!(verdict.openings(&sick("spinning_threads").evidence())[0].parameter, "threads");
    let quiet =
        sick("spinning_threads").host(Metric::CpuPressure, 0.0).with(|job| job.machine.foreign_cpu_share = None);
    assert!(!names(&diagnose(&quiet.evidence())).contains(&"spinning_threads"));
}

#[test]
fn what_watching_cost_is_not_what_logging_costs() {
    let times = |replayed: f64| {
        let job = Job::cpu().wait(0.0).number("logs_per_step", 1.0).number("log_seconds_per_step", 0.2);
        found("logging", &job.replay(replayed)).unwrap().worth.times.unwrap()
    };
    let whole = times(100.0);
    assert!(whole > 2.0, "{whole}");
    assert!((times(150.0) - whole / 1.5).abs() < 1e-9, "unwatched it is 1.5x as fast with the same logging");
}

#[test]
fn what_needs_a_gpu_is_not_found_without_one() {
    for cause in causes().filter(|cause| cause.scope == Scope::Gpu) {
        let job = sick(cause.name).text("device", "cpu").with(|job| job.machine.gpus.clear());
        assert_eq!(found(cause.name, &job), None, "{}", cause.name);
    }
}

#[test]
fn what_the_gpu_waits_for_data_is_not_lost_to_calls_that_wait_for_it() {
    // The shares of time that the GPU is busy and that a step waits for data, the rate with replayed batches, and the expected worth.
    for (busy, wait, replayed, expected) in [
        (0.5, 0.48, None, None),
        (0.5, 0.2, None, Some(1.0 / 0.7)),
        (0.75, 0.0, None, Some(1.0 / 0.75)),
        // Nothing is lost if the host waits while the device keeps working, as replayed batches show.
        (0.75, 0.6, Some(100.0), Some(1.0 / 0.75)),
        (0.5, 0.6, Some(200.0), None),
    ] {
        let job = Job::gpu().gpu_reading(Metric::GpuBusy, busy).wait(wait).number("syncs_per_step", 3.0);
        let job = match replayed {
            Some(percent) => job.replay(percent),
            None => job,
        };
        let times = found("synchronising_calls", &job).map(|found| found.worth.times.unwrap());
        let rounded = |times: f64| (times * 1e9).round();
        assert_eq!(times.map(rounded), expected.map(rounded), "{busy} {wait}");
    }
}

#[test]
fn a_main_thread_that_never_waits_says_nothing_of_launches_on_a_gpu() {
    let job = || Job::gpu().wait(0.0).gpu_reading(Metric::GpuBusy, 0.9).gpu_reading(Metric::SmActive, 0.2);
    // By default the runtime spins while it waits for the device (cudaDeviceScheduleAuto, CUDA Runtime API).
    let spins = job().number("main_cpu_share", 1.0);
    assert_eq!(found("launch_bound", &spins).unwrap().clues, found("launch_bound", &job()).unwrap().clues);
}

#[test]
fn nothing_known_is_no_verdict() {
    let verdict = diagnose(&Evidence::default());
    assert!(verdict.top().is_none() && verdict.how_sure() == "low confidence" && !verdict.is_healthy());
}

#[test]
fn thresholds_are_where_they_are_said_to_be() {
    type JobOf = fn(f64) -> Job;
    let idle: JobOf = |busy| {
        let job = Job::gpu().phase("forward", 0.4).phase("backward", 0.5).phase("optimizer", 0.0);
        job.gpu_reading(Metric::GpuBusy, busy)
    };
    let rows: [(&str, f64, f64, JobOf); 12] = [
        ("cpu_preprocessing", 0.049, 0.051, |wait| Job::cpu().wait(wait).item(0.03, 0.03)),
        ("logging", 0.0095, 0.0097, |seconds| Job::cpu().number("log_seconds_per_step", seconds)),
        ("cpu_quota", 0.099, 0.1, |share| Job::cpu().host(Metric::CpuThrottled, share)),
        ("crowded_cores", 0.19, 0.2, |share| Job::cpu().foreign(share)),
        ("spinning_threads", 109.0, 112.0, |percent| Job::cpu().ran(Differential::OneThread, percent).foreign(0.3)),
        ("host_memory", 0.09, 0.1, |share| Job::cpu().host(Metric::MemoryPressure, share)),
        // Above the threshold even with intervals of 1 %.
        ("launch_bound", 124.0, 128.0, |percent| Job::cpu().replay(100.0).ran(Differential::DoubleBatch, percent)),
        ("launch_bound", 0.66, 0.64, idle),
        ("worker_imbalance", 1.29, 1.31, |times| sick("worker_imbalance").number("loader.worker_imbalance", times)),
        ("host_to_device", 0.049, 0.051, |share| Job::gpu().phase("host_to_device", share)),
        ("thermal_throttling", 0.09, 0.11, |share| Job::gpu().gpu_reading(Metric::ThrottledByHeat, share)),
        ("communication", 0.09, 0.11, |share| Job::gpu().phase("communication", share).ranks(2)),
    ];
    for (cause, below, above, job) in rows {
        assert_eq!(found(cause, &job(below)), None, "{cause} below its threshold");
        assert!(found(cause, &job(above)).is_some(), "{cause} above its threshold");
    }
}

#[test]
fn what_is_worth_more_comes_first() {
    let job = sick("cpu_preprocessing").number("logs_per_step", 1.0).number("log_seconds_per_step", 0.02);
    let verdict = diagnose(&job.evidence());
    assert_eq!(names(&verdict)[0], "cpu_preprocessing");
    assert!(names(&verdict).contains(&"logging"));
    // If other programs take less than the loader costs, they do not hide it, but lower the confidence.
    let crowded = diagnose(&sick("cpu_preprocessing").foreign(0.25).evidence());
    assert_eq!(names(&crowded)[0], "cpu_preprocessing");
    assert!(crowded.sureness < verdict.sureness);
}

#[test]
fn a_batch_that_does_not_fit_is_evidence() {
    let job = Job::gpu().replay(100.0).out_of_memory(Differential::DoubleBatch, Memory::Device);
    let found = diagnose(&job.evidence());
    assert!(names(&found).contains(&"memory_limited"));
}

#[test]
fn causes_have_names_of_their_own_and_all_that_there_is_to_say() {
    let mut seen: Vec<&str> = Vec::new();
    for cause in causes() {
        assert!(!seen.contains(&cause.name), "{} is there twice", cause.name);
        seen.push(cause.name);
        assert!(cause.name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        assert!(!cause.title.is_empty() && cause.about.ends_with('.') && !cause.signature.is_empty());
        assert!(!cause.opens.is_empty() || !cause.cures.is_empty(), "{} helps nobody", cause.name);
        for name in cause.opens {
            assert!(openable(name).is_some(), "{}: there is no parameter {name}", cause.name);
        }
        for threshold in cause.thresholds {
            assert!(threshold.value.is_finite() && !threshold.what.is_empty() && !threshold.source.is_empty());
        }
    }
}

/// Checks jobs of `examples/sick` with their measured numbers, at 100 samples/s.
#[test]
fn the_reason_comes_before_what_goes_with_it() {
    // On a machine with two cores workers are hardly faster than the training process, but they load in parallel to it.
    let taking_turns = Job::cpu().cores(2.0).host(Metric::CpuCores, 1.0).workers(0).wait(0.43).item(0.00404, 0.00397);
    let taking_turns = taking_turns.replay(205.0).replay_cpu(1.0);
    let taking_turns = taking_turns.loader(&[(0, 292.0), (1, 220.0), (2, 291.0), (4, 327.0)]);
    // One worker waits for slow storage; the other worker does not.
    let uneven = Job::cpu().cores(2.0).host(Metric::CpuCores, 0.57).wait(0.65).item(0.0107, 0.0009).replay(345.0);
    let uneven = uneven.loader(&[(0, 90.0), (2, 99.0), (4, 190.0)]).number("loader.worker_imbalance", 1.79);
    // Short epochs: once samples come, they come fast and only compute.
    let short = Job::cpu().cores(2.0).host(Metric::CpuCores, 1.32).wait(0.29).item(0.00094, 0.00086).replay(213.0);
    let short = short.loader(&[(0, 10_400.0), (2, 470.0)]).number("loader.first_batch_seconds", 4.0).with(|job| {
        job.timing.outliers.insert("epoch".to_owned(), Outliers { steps: 10, seconds: 18.0 });
    });
    for (job, cause) in
        [(taking_turns, "single_threaded_loader"), (uneven, "worker_imbalance"), (short, "worker_start")]
    {
        let verdict = diagnose(&job.evidence());
        assert_eq!(names(&verdict)[0], cause, "{:#?}", verdict.causes);
        assert!(verdict.sureness >= 0.55, "{cause}: {}", verdict.sureness);
    }
}

#[test]
fn without_storage_samples_still_have_to_be_computed() {
    // One worker, and samples of 15 ms of which 10 ms are waiting: 200 samples/s without the waiting.
    let job = Job::cpu().workers(1).wait(0.8).replay(1000.0).item(0.015, 0.005).host(Metric::CpuCores, 0.5);
    let verdict = diagnose(&job.clone().loader(&[(1, 100.0)]).evidence());
    let top = verdict.top().unwrap();
    let times = top.found.worth.times.unwrap();
    assert_eq!(top.cause.name, "storage");
    assert!((1.9..=2.0).contains(&times) && top.found.worth.words.contains("without the waiting"), "{:?}", top.found);
    // More workers gain more than removing the waiting.
    let verdict = diagnose(&job.loader(&[(1, 100.0), (4, 400.0)]).evidence());
    assert!(verdict.top().unwrap().found.worth.times.unwrap() > 3.0, "{verdict:#?}");
}

#[test]
fn what_a_larger_batch_gains_by_chance_is_no_launching() {
    let with_width = |width: f64| {
        let mut evidence = Job::cpu().replay(101.0).ran(Differential::DoubleBatch, 132.0).evidence();
        for (_, ran) in &mut evidence.runs {
            let Ran::Measured(run) = ran else { continue };
            let rate = run.throughput.unwrap().value;
            run.throughput = Some(Estimate::interval(rate, rate * (1.0 - width), rate * (1.0 + width)));
        }
        diagnose(&evidence)
    };
    assert_eq!(names(&with_width(0.01))[0], "launch_bound");
    assert!(with_width(0.08).is_healthy(), "{:#?}", with_width(0.08).causes);
}

#[test]
fn what_a_cold_cache_costs_by_chance_is_no_storage() {
    // A healthy job whose worker waits, on a machine whose speed changes.
    let job = Job::cpu().workers(1).wait(0.036).item(0.000_223, 0.000_045).text("files.kind", "other").replay(102.4);
    let mut evidence = job.ran(Differential::Cold, 80.0).evidence();
    assert_eq!(names(&diagnose(&evidence))[0], "storage");
    if let Some((_, Ran::Measured(run))) = evidence.runs.last_mut() {
        run.throughput = Some(Estimate::interval(80.0, 63.0, 101.0));
    }
    assert!(diagnose(&evidence).is_healthy(), "{:#?}", diagnose(&evidence).causes);
}

/// Checks `examples/sick/handing_over.py` with its measured numbers, at 100 samples/s.
#[test]
fn workers_that_cost_more_than_they_bring_are_found() {
    let job = Job::cpu().cores(2.0).wait(0.21).replay(201.0).replay_cpu(1.0).item(0.00044, 0.00025);
    let verdict = diagnose(&job.loader(&[(0, 1029.0), (2, 157.0), (4, 174.0), (8, 158.0)]).evidence());
    let top = verdict.top().unwrap();
    assert_eq!(top.cause.name, "worker_overhead", "{:#?}", verdict.causes);
    assert!(top.found.worth.by_parameters.is_some_and(|times| times > 1.5), "{:?}", top.found);
}

/// Checks `examples/sick/too_little_prefetch.py` with the numbers of one measurement, at 100 samples/s. Without workers the job would
/// also be faster, but only by 1.1x.
#[test]
fn the_queue_that_brings_more_is_named_before_the_workers() {
    let job = Job::cpu().cores(2.0).workers(1).host(Metric::CpuCores, 1.28).wait(0.36).replay(190.6).replay_cpu(1.0);
    let job = job.item(0.0044, 0.0044).number("loader.prefetch_factor", 1.0).number("loader.item_seconds_p95", 0.0029);
    let evidence = job.loader(&[(0, 282.0), (1, 201.0), (2, 245.7), (4, 268.6)]).evidence();
    assert_eq!(names(&diagnose(&evidence))[0], "too_little_prefetch", "{:#?}", diagnose(&evidence).causes);
}

#[test]
fn a_queue_brings_no_more_than_the_loader_makes() {
    // `shards.py --kind webdataset` at 100 samples/s. By chance, its loader was faster alone than in the job.
    let job = Job::cpu().cores(2.0).workers(1).host(Metric::CpuCores, 0.39).wait(0.83).replay(948.0).replay_cpu(1.0);
    let job = job.item(0.0101, 0.00186).text("files.kind", "webdataset").number("loader.prefetch_factor", 2.0);
    let verdict = diagnose(&job.loader(&[(0, 118.0), (1, 119.0), (2, 230.0), (4, 450.0)]).evidence());
    assert_eq!(names(&verdict)[0], "storage", "{:#?}", verdict.causes);
}

const NUMBERS: [f64; 12] =
    [0.0, -1.0, 1e-300, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.5, 1.0, 2.0, 4.0, 1e9];
const TEXTS: [&str; 8] = ["", "cpu", "cuda", "fp32", "bf16", "images", "yes", "a\u{0}b\n"];

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![prop::sample::select(NUMBERS.to_vec()), 0.0..10.0]
}

fn facts() -> impl Strategy<Value = Vec<(String, Fact)>> {
    let fact = (prop::sample::select(FACTS.iter().collect::<Vec<_>>()), number(), 0..TEXTS.len(), any::<bool>());
    let fact = fact.prop_map(|(row, number, text, flag)| {
        let value = match row.kind {
            fact::Kind::Number => Fact::Number(number),
            fact::Kind::Text => Fact::from(TEXTS[text]),
            fact::Kind::Flag => Fact::Flag(flag),
        };
        (row.name.replace('W', "2"), value)
    });
    prop::collection::vec(fact, 0..40)
}

fn measurement() -> impl Strategy<Value = Measurement> {
    let readings = prop::collection::vec((0..METRICS.len(), number()), 0..12);
    let phases = prop::collection::vec((0..6_usize, number()), 0..6);
    let numbers = prop::collection::vec(prop::option::of(number()), 6);
    (facts(), readings, phases, numbers, any::<bool>()).prop_map(|(facts, readings, phases, numbers, is_gpu)| {
        let names = ["data_wait", "host_to_device", "forward", "backward", "communication", "mine"];
        let readings: BTreeMap<_, _> = readings
            .into_iter()
            .map(|(at, value)| (METRICS[at].metric, Reading { value, source: Source::Proc }))
            .collect();
        let gpu = GpuUse { readings: readings.clone(), ..GpuUse::default() };
        Measurement {
            throughput: numbers[0].map(|value| Estimate { value, low: numbers[1], high: numbers[2] }),
            unit: "samples/s".to_owned(),
            phase_seconds: phases.into_iter().map(|(at, seconds)| (names[at].to_owned(), seconds)).collect(),
            facts: facts.into_iter().collect(),
            timing: Timing { step_seconds: numbers[3], samples_per_step: numbers[4], ..Default::default() },
            machine: MachineUse {
                foreign_cpu_share: numbers[5],
                host: readings,
                gpus: if is_gpu { vec![gpu] } else { Vec::new() },
                ..Default::default()
            },
            ..Measurement::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_evidence_has_a_verdict(
        observed in measurement(),
        runs in prop::collection::vec((0..DIFFERENTIALS.len(), measurement(), 0..4_u8), 0..6),
        cores in prop::option::of(number()),
    ) {
        let mut evidence = Evidence { observed, ..Evidence::default() };
        evidence.around.cores = cores;
        for (at, run, how) in runs {
            let ran = match how {
                0 => Ran::Failed("as scripted".to_owned()),
                1 => Ran::OutOfMemory(Memory::Device),
                _ => Ran::Measured(Box::new(run)),
            };
            evidence.runs.push((DIFFERENTIALS[at].differential, ran));
        }
        let verdict = diagnose(&evidence);
        prop_assert!((0.0..=1.0).contains(&verdict.sureness));
        for found in &verdict.causes {
            prop_assert!((0.0..=1.0).contains(&found.sureness), "{found:?}");
            prop_assert!(found.found.worth.times.is_none_or(|times| times.is_finite() && times >= 1.0), "{found:?}");
        }
        for opening in verdict.openings(&evidence) {
            prop_assert!(opening.values.len() > 1);
        }
        for row in DIFFERENTIALS {
            experiment(row.differential, &evidence);
        }
        let all = Allowed { has_adapter: true, can_run_one_rank: true, can_drop_cache: true };
        let _ = next(&evidence, &all, Duration::from_secs(60), Duration::ZERO);
        let _: Option<Differential> = evidence.ran_out_of_memory().map(|(which, _)| which);
    }
}
