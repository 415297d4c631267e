//! The output of `gputune check --json`; `docs/design/json.md` describes it.

use std::path::Path;

use gputune::model::{Count, Settings};
use gputune::probe::Protection;
use gputune::spec::Spec;
use serde::Serialize;

use super::First;

#[derive(Serialize)]
pub(super) struct Report<'r> {
    format: u32,
    spec: String,
    parameters: Vec<Parameter<'r>>,
    derived: Vec<Derived<'r>>,
    rules: Vec<&'r str>,
    /// `null` if bounded work could not count them.
    configs: Option<u128>,
    baseline: Option<&'r Settings>,
    is_baseline_unmodified_job: bool,
    objective: String,
    strategy: &'r str,
    commands: &'r [First],
    cwd: String,
    writes: String,
    time_s: f64,
    probes: u32,
    out: String,
    gputune_version: &'static str,
}

#[derive(Serialize)]
struct Parameter<'r> {
    name: &'r str,
    /// The settings in words: all, or the first two and the last.
    settings: String,
    count: u64,
    when: Option<&'r str>,
    /// The option, variable or target that it sets; `null` if the command has its placeholder.
    sets: Option<String>,
}

#[derive(Serialize)]
struct Derived<'r> {
    name: &'r str,
    expression: &'r str,
}

pub(super) fn report<'r>(spec: &'r Spec, commands: &'r [First], protection: &Protection, out: &Path) -> Report<'r> {
    let (space, template) = (&spec.space, spec.step.template());
    let sets = |name: &str| {
        let applied = template.apply.applied.iter().find(|applied| applied.parameter == name);
        applied.map(|applied| applied.shown())
    };
    let parameter = |parameter: &'r gputune::Parameter| Parameter {
        name: parameter.name(),
        settings: parameter.summary(),
        count: parameter.len(),
        when: parameter.condition().map(|when| when.text()),
        sets: sets(parameter.name()),
    };
    let derived = |derived: &'r gputune::model::Derived| Derived {
        name: derived.name(),
        expression: derived.expression().text(),
    };
    Report {
        format: 1,
        spec: spec.path.display().to_string(),
        parameters: space.parameters().iter().map(parameter).collect(),
        derived: space.derived().iter().map(derived).collect(),
        rules: space.rules().iter().map(|rule| rule.text()).collect(),
        configs: if let Count::Exact(count) = space.count() { Some(count) } else { None },
        baseline: spec.baseline.as_ref(),
        is_baseline_unmodified_job: spec.is_baseline_as_it_is,
        objective: super::objective_words(&spec.objective),
        strategy: spec.strategy,
        commands,
        cwd: template.cwd.display().to_string(),
        writes: protection.line(),
        time_s: spec.budget.time.as_secs_f64(),
        probes: spec.budget.probes,
        out: out.display().to_string(),
        gputune_version: env!("CARGO_PKG_VERSION"),
    }
}
