//! Checks that every job gets a verdict without a panic, whatever it reports.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use crate::diagnosis::DIFFERENTIALS;
use crate::diagnosis::Differential;
use crate::diagnosis::Ran;
use crate::diagnosis::experiment;
use crate::diagnosis::next;
use crate::model::{
    Estimate, FACTS, Fact, GpuUse, METRICS, MachineUse, Measurement, Reading, Source, Timing, fact::Kind,
};

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
            Kind::Number => Fact::Number(number),
            Kind::Text => Fact::from(TEXTS[text]),
            Kind::Flag => Fact::Flag(flag),
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
                1 => Ran::OutOfMemory(crate::model::Memory::Device),
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
        let all = crate::diagnosis::Allowed { has_adapter: true, can_run_one_rank: true, can_drop_cache: true };
        let _ = next(&evidence, &all, std::time::Duration::from_secs(60), std::time::Duration::ZERO);
        let _: Option<Differential> = evidence.ran_out_of_memory().map(|(which, _)| which);
    }
}
