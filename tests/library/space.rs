//! Properties of every space: the walk, indices, neighbours and settings agree with a brute-force search.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use gputune::model::{Config, Count, Expression, LocateError, Parameter, Settings, Space, Value, Walk};
use proptest::prelude::*;

/// The parts of a small space; names are `p0`, `p1` and so on.
#[derive(Debug, Clone)]
struct Parts {
    parameters: Vec<(Kind, usize, Option<usize>)>,
    derived: Vec<(usize, usize)>,
    rules: Vec<(usize, usize, usize, i64)>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Range,
    Powers,
    Floats,
    Texts,
}

const TEXTS: [&str; 5] = ["fp32", "bf16", "fp16", "tf32", "fp8"];

fn parts() -> impl Strategy<Value = Parts> {
    let kind = prop_oneof![Just(Kind::Range), Just(Kind::Powers), Just(Kind::Floats), Just(Kind::Texts)];
    let parameter = (kind, 1..5_usize, prop::option::weighted(0.3, 0..4_usize));
    (
        prop::collection::vec(parameter, 1..5),
        prop::collection::vec((0..4_usize, 0..4_usize), 0..2),
        prop::collection::vec((0..5_usize, 0..4_usize, 0..4_usize, 0..9_i64), 0..3),
    )
        .prop_map(|(parameters, derived, rules)| Parts { parameters, derived, rules })
}

fn parameter(name: &str, kind: Kind, levels: usize) -> Parameter {
    let last = i64::try_from(levels).unwrap() - 1;
    match kind {
        Kind::Range => Parameter::range(name, 0, 2 * last, 2),
        Kind::Powers => Parameter::powers_of_two(name, 1, 1 << last),
        Kind::Floats => Parameter::values(name, (0..levels).map(|level| level as f64 / 2.0)),
        Kind::Texts => Parameter::values(name, TEXTS[..levels].iter().copied()),
    }
}

fn expression(text: &str) -> Expression {
    Expression::parse(text).unwrap()
}

/// Builds a space. Conditions use earlier parameters only; strings are compared, numbers are also added.
fn build(parts: &Parts) -> Space {
    let count = parts.parameters.len();
    let is_text = |at: usize| matches!(parts.parameters[at].0, Kind::Texts);
    let mut builder = Space::builder();
    for (at, (kind, levels, condition)) in parts.parameters.iter().enumerate() {
        let mut new = parameter(&format!("p{at}"), *kind, *levels);
        if let Some(on) = condition.filter(|_| at > 0).map(|on| on % at) {
            let text = if is_text(on) { format!("p{on} != 'fp32'") } else { format!("p{on} > 0") };
            new = new.when(expression(&text));
        }
        builder = builder.parameter(new);
    }
    for (at, (a, b)) in parts.derived.iter().enumerate() {
        let (a, b) = (a % count, b % count);
        let text = match (is_text(a), is_text(b)) {
            (false, false) => format!("p{a} + p{b}"),
            _ => format!("1 if p{a} == p{b} else 2"),
        };
        builder = builder.derive(format!("d{at}"), expression(&text));
    }
    for (template, a, b, bound) in &parts.rules {
        let (a, b) = (a % count, b % count);
        let text = match (template, is_text(a) || is_text(b)) {
            (0, false) => format!("p{a} + p{b} <= {bound}"),
            (1, false) => format!("p{a} * p{b} != {bound}"),
            (2, _) if !parts.derived.is_empty() => format!("d0 <= {bound}"),
            (3, false) => format!("8 / p{a} >= {bound}"),
            _ => format!("p{a} != p{b} or p{a} in [0, 1, 2, 'bf16']"),
        };
        builder = builder.rule(expression(&text));
    }
    builder.build().unwrap()
}

/// Returns all configs, by trying every index.
fn brute_force(space: &Space) -> Vec<Config> {
    (0..space.raw_size().unwrap()).filter_map(|index| space.config(index)).collect()
}

/// Returns true if rules hold and activity is right, judged by the settings alone.
fn is_allowed(space: &Space, settings: &Settings) -> bool {
    let applies = |e: &Expression| e.names().iter().all(|name| settings.get(name).is_some());
    let rules = space.rules().iter().all(|rule| !applies(rule) || rule.holds(|name| settings.get(name)) == Ok(true));
    let conditions = space.parameters().iter().all(|parameter| {
        let active =
            parameter.condition().is_none_or(|when| applies(when) && when.holds(|n| settings.get(n)) == Ok(true));
        active == settings.get(parameter.name()).is_some()
    });
    rules && conditions
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_walk_finds_exactly_what_brute_force_finds(parts in parts(), seed in 0..1000_u64) {
        let space = build(&parts);
        let walked: Vec<Config> = Walk::new(&space).collect();
        let all = brute_force(&space);
        prop_assert_eq!(walked.iter().collect::<BTreeSet<_>>(), all.iter().collect::<BTreeSet<_>>());
        prop_assert_eq!(walked.len(), all.len());
        prop_assert_eq!(space.count(), Count::Exact(all.len() as u128));
        prop_assert_eq!(space.is_empty(), all.is_empty());
        prop_assert_eq!(space.first(), walked.first().cloned());
        for seed in seed..seed + 5 {
            let drawn = space.draws(seed, 1).pop();
            prop_assert_eq!(drawn.is_some(), !all.is_empty());
            prop_assert!(drawn.as_ref().is_none_or(|config| all.contains(config)));
            prop_assert_eq!(drawn, space.draws(seed, 1).pop());
        }
        let reversed: Vec<usize> = (0..space.parameters().len()).rev().collect();
        prop_assert_eq!(Walk::over(&space, &reversed).collect::<BTreeSet<_>>(), all.iter().cloned().collect::<BTreeSet<_>>());
        prop_assert_eq!(Walk::shuffled(&space, 3).collect::<BTreeSet<_>>(), all.into_iter().collect::<BTreeSet<_>>());
    }

    #[test]
    fn every_config_meets_its_rules_and_no_other_combination_does(parts in parts()) {
        let space = build(&parts);
        let all = brute_force(&space);
        for config in &all {
            prop_assert!(space.allows(config));
            prop_assert!(is_allowed(&space, &space.settings(config)), "{}", space.settings(config).line());
        }
        let raw = build(&Parts { rules: Vec::new(), ..parts });
        let allowed = Walk::new(&raw).filter(|config| is_allowed(&space, &raw.settings(config))).count();
        // Derived values that cannot be computed forbid a config with or without rules.
        prop_assert_eq!(allowed, all.len());
    }

    #[test]
    fn indices_and_settings_lead_back_to_their_config(parts in parts()) {
        let space = build(&parts);
        for config in brute_force(&space) {
            prop_assert_eq!(space.config(space.index(&config).unwrap()), Some(config.clone()));
            let chosen = space.settings(&config).chosen(&space);
            prop_assert_eq!(space.locate(&chosen), Ok(config));
        }
        prop_assert_eq!(space.config(space.raw_size().unwrap()), None);
    }

    #[test]
    fn moves_lead_to_other_allowed_configs(parts in parts()) {
        let space = build(&parts);
        for config in brute_force(&space) {
            for at in 0..parts.parameters.len() {
                for moved in space.moves(&config, at, 1) {
                    prop_assert!(moved.level(at) != config.level(at) && space.allows(&moved));
                }
            }
        }
    }

    #[test]
    fn a_level_can_be_set_where_the_result_is_allowed(parts in parts(), at in 0..4_usize, level in 0..6_u32) {
        let space = build(&parts);
        for config in brute_force(&space) {
            let Some(changed) = space.with_level(&config, at, level) else { continue };
            prop_assert!(space.allows(&changed));
            prop_assert_eq!(changed.level(at), Some(level));
        }
    }
}

#[test]
fn moves_of_a_number_are_one_step_away_and_those_of_a_text_all_others() {
    let space = Space::new([Parameter::range("workers", 0, 8, 2), Parameter::values("precision", TEXTS)]).unwrap();
    let settings: Settings = [("workers", Value::from(4)), ("precision", "bf16".into())].into_iter().collect();
    let config = space.locate(&settings).unwrap();
    let lines: BTreeSet<String> =
        (0..2).flat_map(|at| space.moves(&config, at, 1)).map(|moved| space.settings(&moved).line()).collect();
    let expected = [
        "workers=2 precision=bf16",
        "workers=6 precision=bf16",
        "workers=4 precision=fp32",
        "workers=4 precision=fp16",
        "workers=4 precision=tf32",
        "workers=4 precision=fp8",
    ];
    assert_eq!(lines, expected.map(str::to_owned).into());
}

#[test]
fn a_level_past_the_end_is_no_config() {
    let space = Space::new([Parameter::range("a", 0, 2, 1)]).unwrap();
    let config = space.first().unwrap();
    assert_eq!(space.with_level(&config, 0, 3), None);
    assert_eq!(space.with_level(&config, 1, 0), None);
}

#[test]
fn integers_beyond_what_a_float_can_tell_apart_are_different_settings() {
    let large = 9_007_199_254_740_992_i64;
    let space = Space::new([Parameter::values("a", [large, large + 1])]).unwrap();
    let settings: Settings = [("a", large + 1)].into_iter().collect();
    assert_eq!(space.settings(&space.locate(&settings).unwrap()).integer("a"), Some(large + 1));
}

/// 100^6 raw configs, with rules that need several parameters.
fn huge() -> Space {
    let mut builder = Space::builder();
    for name in ["a", "b", "c", "d", "e", "f"] {
        builder = builder.parameter(Parameter::range(name, 1, 100, 1));
    }
    builder
        .derive("sum", expression("a + b"))
        .rule(expression("sum * c <= 8000"))
        .rule(expression("d * e % 7 == 0"))
        .build()
        .unwrap()
}

#[test]
fn a_huge_space_is_used_without_being_listed() {
    let space = huge();
    assert_eq!(space.raw_size(), Some(1_000_000_000_000));
    // A million settings of a, b and c are too many to list.
    assert_eq!(space.count(), Count::Unknown);
    let first: Vec<Config> = Walk::new(&space).take(100).collect();
    assert_eq!(Some(&first[0]), space.first().as_ref());
    for config in &first {
        assert!(space.allows(config));
        assert_eq!(space.config(space.index(config).unwrap()).as_ref(), Some(config));
    }
}

#[test]
fn a_product_that_no_integer_holds_still_has_configs() {
    let space = Space::new((0..100).map(|at| Parameter::range(format!("p{at}"), 0, 999, 1))).unwrap();
    assert_eq!(space.raw_size(), None);
    let config = Walk::shuffled(&space, 1).next().unwrap();
    assert!(space.allows(&config));
    assert_eq!(space.index(&config), None);
    assert_eq!(space.moves(&space.first().unwrap(), 99, 1).len(), 1);
    assert!(!space.count().fits(u128::from(u64::MAX)));
}

#[test]
fn settings_that_name_no_config_are_refused_with_the_reason() {
    let space = Space::builder()
        .parameter(Parameter::range("workers", 0, 2, 1))
        .parameter(Parameter::values("prefetch", [2, 4]).when(expression("workers > 0")))
        .derive("queue", expression("workers * prefetch"))
        .rule(expression("queue < 8"))
        .build()
        .unwrap();
    let locate = |entries: &[(&str, i64)]| space.locate(&entries.iter().copied().collect());
    assert!(matches!(locate(&[("worker", 1)]), Err(LocateError::UnknownName { .. })));
    assert!(matches!(locate(&[("queue", 1)]), Err(LocateError::Derived { .. })));
    assert!(matches!(locate(&[("workers", 9)]), Err(LocateError::UnknownValue { .. })));
    assert!(matches!(locate(&[("workers", 0), ("prefetch", 2)]), Err(LocateError::Inactive { .. })));
    assert!(matches!(locate(&[("workers", 2), ("prefetch", 4)]), Err(LocateError::Forbidden { .. })));
    assert!(locate(&[("workers", 2)]).is_ok());
}
