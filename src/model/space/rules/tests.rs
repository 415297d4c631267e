//! Checks, config by config, that listings and draws agree with evaluating the rules.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::model::space::{Config, Count, Expression, Parameter, Space, Walk};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "flag", "kind"];

fn number() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => prop::sample::select(&NAMES[..4]).prop_map(str::to_owned),
        2 => (-2..9_i32).prop_map(|number| number.to_string()),
        1 => Just("0.5".to_owned()),
        1 => Just("twice".to_owned()),
        1 => Just("part".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            (pair.clone(), prop::sample::select(&["+", "-", "*", "/", "//", "%", "**"][..]))
                .prop_map(|((a, b), sign)| format!("({a} {sign} {b})")),
            (pair.clone(), prop::sample::select(&["+", "-", "*"][..]))
                .prop_map(|((a, b), sign)| format!("{a} {sign} {b}")),
            (pair.clone(), prop::sample::select(&["max", "min"][..]))
                .prop_map(|((a, b), name)| format!("{name}({a}, {b})")),
            (inner.clone(), prop::sample::select(&["abs", "ceil", "floor", "int", "round", "log2", "-"][..]))
                .prop_map(|(a, name)| format!("{name}({a})")),
            (pair, condition_of(inner.boxed()))
                .prop_map(|((a, b), condition)| format!("({a} if {condition} else {b})")),
        ]
    })
}

fn condition_of(number: BoxedStrategy<String>) -> impl Strategy<Value = String> {
    let pair = (number.clone(), number.clone());
    let relation = prop::sample::select(&["==", "!=", "<", "<=", ">", ">="][..]);
    prop_oneof![
        4 => (pair.clone(), relation.clone()).prop_map(|((a, b), relation)| format!("{a} {relation} {b}")),
        1 => (pair.clone(), number.clone(), relation.clone(), relation)
            .prop_map(|((a, b), c, one, other)| format!("{a} {one} {b} {other} {c}")),
        1 => pair.prop_map(|(a, b)| format!("{a} % max({b}, 1) == 0")),
        1 => (number, prop::bool::ANY).prop_map(|(a, not)| format!("{a} {}in [1, 2, 4]", if not { "not " } else { "" })),
        1 => Just("flag".to_owned()),
        1 => Just("kind == 'x'".to_owned()),
        1 => Just("kind in ['y', 'z']".to_owned()),
        1 => Just("(kind ~ 'z') == 'xz'".to_owned()),
        1 => Just("a | int > 1".to_owned()),
    ]
}

fn condition() -> impl Strategy<Value = String> {
    condition_of(number().boxed()).prop_recursive(2, 6, 2, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            pair.clone().prop_map(|(a, b)| format!("({a}) and ({b})")),
            pair.prop_map(|(a, b)| format!("({a}) or {b}")),
            inner.prop_map(|a| format!("not ({a})")),
        ]
    })
}

/// Makes a space of some parameters with conditions, derived values and rules; `None` if an expression is not in the
/// language.
fn space(derived: &[String; 2], conditions: &[Option<String>; 2], rules: &[String]) -> Option<Space> {
    let parse = |text: &str| Expression::parse(text).ok();
    // The conditions of c and d use only earlier parameters, so that there is no circle.
    let when = |parameter: Parameter, condition: &Option<String>, before: &[&str]| match condition {
        Some(text) => {
            let expression = parse(text)?;
            let is_earlier = expression.names().iter().all(|name| before.contains(&name.as_str()));
            Some(if is_earlier { parameter.when(expression) } else { parameter })
        }
        None => Some(parameter),
    };
    let mut builder = Space::builder()
        .parameter(Parameter::range("a", 0, 3, 1))
        .parameter(Parameter::powers_of_two("b", 1, 4))
        .parameter(when(Parameter::range("c", -2, 2, 2), &conditions[0], &["a", "b", "flag", "kind"])?)
        .parameter(when(Parameter::values("d", [0.5, 2.0]), &conditions[1], &["a", "b", "c", "flag", "kind"])?)
        .parameter(Parameter::values("flag", [false, true]))
        .parameter(Parameter::values("kind", ["x", "y"]));
    for (name, text) in ["twice", "part"].into_iter().zip(derived) {
        let expression = parse(text)?;
        if expression.names().iter().any(|name| !NAMES.contains(&name.as_str())) {
            return None;
        }
        builder = builder.derive(name, expression);
    }
    rules.iter().try_fold(builder, |builder, rule| Some(builder.rule(parse(rule)?)))?.build().ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn rules_leave_exactly_the_configs_that_evaluating_them_leaves(
        derived in [number(), number()],
        conditions in [prop::option::of(condition()), prop::option::of(condition())],
        rules in prop::collection::vec(condition(), 1..4),
        seed in 0..1000_u64,
    ) {
        let Some(space) = space(&derived, &conditions, &rules) else { return Ok(()) };
        let all: Vec<Config> = (0..space.raw_size().unwrap()).filter_map(|index| space.config(index)).collect();
        let set: BTreeSet<&Config> = all.iter().collect();
        prop_assert_eq!(space.count(), Count::Exact(all.len() as u128), "{:?} {:?} {:?}", &derived, &conditions, &rules);
        prop_assert_eq!(space.is_empty(), all.is_empty());
        let walked: Vec<Config> = Walk::new(&space).collect();
        prop_assert_eq!(walked.len(), all.len());
        prop_assert!(walked.iter().collect::<BTreeSet<_>>() == set);
        let first = space.first();
        prop_assert_eq!(first.as_ref(), walked.first());
        let reversed: Vec<usize> = (0..space.parameters().len()).rev().collect();
        let reversed: Vec<Config> = Walk::over(&space, &reversed).collect();
        prop_assert!(reversed.iter().collect::<BTreeSet<_>>() == set);
        for seed in seed..seed + 5 {
            let drawn = space.draw(seed);
            prop_assert_eq!(drawn.is_some(), !all.is_empty());
            prop_assert!(drawn.as_ref().is_none_or(|config| set.contains(config)));
            prop_assert_eq!(drawn, space.draw(seed));
        }
    }
}

fn builder(parameters: impl IntoIterator<Item = Parameter>, rules: &[&str]) -> Space {
    let builder = parameters.into_iter().fold(Space::builder(), crate::model::space::SpaceBuilder::parameter);
    rules.iter().fold(builder, |builder, rule| builder.rule(Expression::parse(*rule).unwrap())).build().unwrap()
}

#[test]
fn rules_that_leave_very_little_are_counted() {
    let parallel = || {
        [
            Parameter::powers_of_two("batch_size", 1, 1024),
            Parameter::powers_of_two("micro", 1, 1024),
            Parameter::powers_of_two("dp", 1, 64),
            Parameter::values("tp", [1, 2, 4, 8]),
            Parameter::values("pp", [1, 2, 4, 8]),
            Parameter::range("workers", 0, 16, 1),
            Parameter::range("prefetch", 1, 8, 1),
            Parameter::range("zero", 0, 3, 1),
        ]
    };
    let space = builder(parallel(), &["dp * tp * pp == 64", "batch_size == 1024 and zero == 3"]);
    // There are sixteen pairs of tp and pp, each with exactly one dp.
    assert_eq!(space.count(), Count::Exact(16 * 11 * 17 * 8));
    assert_eq!(space.settings(&space.first().unwrap()).integer("batch_size"), Some(1024));
    let space = builder(parallel(), &["batch_size == micro * dp", "batch_size % (tp * pp) == 0"]);
    assert_eq!(space.count(), Count::Exact(Walk::new(&space).count() as u128));
}

#[test]
fn a_group_too_large_to_list_is_drawn_from_evenly() {
    let wide = |name: &str| Parameter::range(name, 1, 30_000, 1);
    let space = builder([wide("a"), wide("b")], &["a % 3 == 0 or b % 2 == 0"]);
    assert_eq!((space.count(), space.is_empty()), (Count::Unknown, false));
    let drawn = space.draws(1, 3000);
    assert!(drawn.len() == 3000 && drawn.iter().all(|config| space.allows(config)));
    // A third of all configs, and so half of the allowed two thirds, have such an `a`; the standard deviation is 27.
    let is_third = |config: &&Config| space.settings(config).integer("a").unwrap() % 3 == 0;
    let thirds = drawn.iter().filter(is_third).count();
    assert!((1392..=1608).contains(&thirds), "{thirds}");
}

#[test]
fn a_condition_does_not_change_the_share_of_the_other_parameters() {
    let wide = Parameter::range("b", 1, 9, 1).when(Expression::parse("a > 1").unwrap());
    let more = Parameter::range("c", 1, 100_000, 1);
    let space = builder([Parameter::range("a", 1, 2, 1), wide, more], &["a + c > 0"]);
    assert_eq!(space.count(), Count::Unknown);
    // One of ten configs has an inactive `b`; the standard deviation is 9.5.
    let drawn = space.draws(1, 1000);
    let inactive = drawn.iter().filter(|config| config.level(1).is_none()).count();
    assert!(drawn.len() == 1000 && (62..=138).contains(&inactive), "{inactive} of {}", drawn.len());
}

#[test]
fn an_unproved_space_is_not_called_empty() {
    let digits = (0..12).map(|at| Parameter::range(format!("d{at}"), 0, 9, 1));
    let sum = (0..12).map(|at| format!("d{at}")).collect::<Vec<_>>().join(" + ");
    let space = builder(digits, &[&format!("{sum} >= 109")]);
    assert_eq!((space.count(), space.is_empty(), space.first()), (Count::Unknown, false, None));
}

#[test]
fn a_parameter_that_is_never_active_leaves_the_others() {
    let condition = "not (abs(0) != abs(1))";
    let never = || Parameter::range("c", 0, 2, 1).when(Expression::parse(condition).unwrap());
    let space = builder([Parameter::range("a", 0, 3, 1), never()], &["a > 1"]);
    assert_eq!((space.count(), space.is_empty()), (Count::Exact(2), false));
    assert_eq!(Walk::new(&space).count(), 2);
}

#[test]
fn a_rule_without_parameters_can_refuse_everything() {
    let space = builder([Parameter::range("a", 0, 3, 1)], &["1 > 2"]);
    assert_eq!((space.count(), space.is_empty(), space.first()), (Count::Exact(0), true, None));
}
