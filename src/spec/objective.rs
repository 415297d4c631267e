//! Turns `[objective]` into an objective.

use std::ops::Range;

use super::error::{SourceFile, SpecError, suggestion};
use super::file::{ObjectiveTable, SpecFile};
use super::located::{Entries, Located, given, place};
use super::values::{Aim, Constraint, Valid, Weight};
use crate::model::{COST, Direction, Goal, Objective, ObjectiveError, Parameter, Price, Role, Space};

/// The metric for the time of the whole training. The largest throughput over whole epochs makes that time shortest, so
/// minimising it gives the default objective.
const RUN_TIME: &str = "run_time";

/// Builds the objective from its table and from related keys of other tables.
pub(super) fn build(source: &SourceFile, file: &SpecFile) -> Result<Objective, SpecError> {
    let (table, limits, search) = (&file.objective, &file.limits, &file.search);
    only_one(source, table)?;
    let price = price(source, table)?;
    let objective = match (&table.weights, &table.pareto, &table.minimize) {
        (Some(weights), ..) => weighted(source, weights)?,
        (_, Some(pareto), _) => front(source, pareto)?,
        (_, _, Some(metric)) => single(source, metric, Direction::Minimize)?,
        _ => match &table.maximize {
            Some(metric) => single(source, metric, Direction::Maximize)?,
            None => Objective::default(),
        },
    };
    let mut objective = objective.on_tie(search.on_tie.unwrap_or_default());
    if let Some(value) = &limits.memory_headroom {
        objective = objective.memory_headroom(value.0);
    }
    for constraint in &table.constraints {
        objective = objective.constraint(constraint.value.0.clone());
    }
    if let Some(length) = &file.run.length {
        objective = objective.run_length(length.0);
    }
    match price {
        Some(price) => Ok(objective.price(price)),
        None => needs_no_price(source, table).map(|()| objective),
    }
}

/// Returns warnings about things that are allowed but probably not meant.
pub(super) fn warnings(table: &ObjectiveTable, objective: &Objective, space: &Space) -> Vec<String> {
    let costs = objective.goals().iter().any(|goal| goal.metric == COST)
        || objective.constraints().iter().any(|constraint| constraint.metric() == COST);
    let devices = space.parameters().iter().find(|parameter| parameter.role() == Some(Role::Devices));
    let warning = |parameter: &Parameter| {
        format!(
            "`price_per_hour` is the price of the whole run, however many `{}` it takes: where each GPU is paid for, write \
             `price_per_gpu_hour`",
            parameter.name()
        )
    };
    devices.filter(|_| costs && table.price_per_hour.is_some()).map(warning).into_iter().collect()
}

/// Checks that only one of the four ways to state the objective is used.
fn only_one(source: &SourceFile, table: &ObjectiveTable) -> Result<(), SpecError> {
    let mut given = given([
        ("maximize", place(&table.maximize)),
        ("minimize", place(&table.minimize)),
        ("weights", place(&table.weights)),
        ("pareto", place(&table.pareto)),
    ]);
    given.sort_by_key(|(_, span)| span.start);
    let [(first, _), (second, span), ..] = given.as_slice() else { return Ok(()) };
    let several = [*first, *second].iter().any(|name| ["weights", "pareto"].contains(name));
    let hint = if several {
        "keep one: `weights` names the best by a product of metrics, `pareto` shows what one metric costs in another"
    } else {
        "keep one, and give the other a bound in `constraints`"
    };
    let (one, other) = if first < second || several { (first, second) } else { (second, first) };
    Err(source.error(span.clone(), format!("`{one}` and `{other}` exclude each other"), hint))
}

fn single(source: &SourceFile, metric: &Located<String>, direction: Direction) -> Result<Objective, SpecError> {
    named(source, &metric.span, &metric.value)?;
    if metric.value != RUN_TIME {
        return Ok(Objective::new(metric.value.clone(), direction));
    }
    if direction == Direction::Maximize {
        return Err(source.error(metric.span.clone(), "less of `run_time` is better", "write minimize = \"run_time\""));
    }
    Ok(Objective::default())
}

fn named(source: &SourceFile, span: &Range<usize>, metric: &str) -> Result<(), SpecError> {
    if metric.trim().is_empty() {
        let hint = "write \"throughput\", or a metric that the step reports";
        return Err(source.error(span.clone(), "the metric has no name", hint));
    }
    Ok(())
}

/// Returns a metric with its direction, if the direction is known or stated.
fn goal(
    source: &SourceFile,
    span: &Range<usize>,
    metric: &str,
    direction: Option<Direction>,
    example: &str,
) -> Result<Goal, SpecError> {
    named(source, span, metric)?;
    let goal = direction.map(|direction| Goal::new(metric, direction)).or_else(|| Goal::known(metric));
    goal.ok_or_else(|| {
        /// The similarity below which two names count as different: a round number.
        const LIKELY: f64 = 0.85;
        let close = Goal::known_metrics().any(|known| strsim::jaro_winkler(metric, known) >= LIKELY);
        let hint = if close {
            format!("{} Else say which is better: {example}", suggestion(metric, Goal::known_metrics()))
        } else {
            format!("say which is better: {example}")
        };
        source.error(span.clone(), format!("it is not known whether more or less of `{metric}` is better"), hint)
    })
}

fn weighted(source: &SourceFile, table: &Located<Entries<Located<Weight>>>) -> Result<Objective, SpecError> {
    let entries = &table.value.0;
    let mut weights = Vec::new();
    for (name, weight) in entries {
        let example = format!("{} = {{ weight = 0.5, direction = \"minimize\" }}", name.value);
        let goal = goal(source, &name.span, &name.value, weight.value.direction, &example)?;
        weights.push((goal, weight.value.weight.value));
    }
    Objective::weighted(weights).map_err(|error| {
        let entry = |metric: &str| entries.iter().find(|(name, _)| name.value == metric);
        let (span, hint) = match &error {
            ObjectiveError::Weight { metric, .. } => {
                let span = entry(metric).map_or(table.span.clone(), |(_, weight)| place_of(weight));
                (
                    span,
                    "leave a metric out that does not count; which of more and less is better is no matter of the sign",
                )
            }
            _ => (table.span.clone(), "write weights = { throughput = 1.0, energy_per_sample = 0.5 }"),
        };
        source.error(span, error.to_string(), hint)
    })
}

/// Returns the place of a weight's number.
fn place_of(weight: &Located<Weight>) -> Range<usize> {
    let inner = &weight.value.weight.span;
    if inner.is_empty() { weight.span.clone() } else { inner.clone() }
}

fn front(source: &SourceFile, pareto: &Located<Vec<Located<Aim>>>) -> Result<Objective, SpecError> {
    let mut goals: Vec<Goal> = Vec::new();
    for Located { value: aim, span } in &pareto.value {
        let example = format!("{{ metric = \"{}\", direction = \"minimize\" }}", aim.metric);
        let goal = goal(source, span, &aim.metric, aim.direction, &example)?;
        if goals.iter().any(|known| known.metric == goal.metric) {
            let message = ObjectiveError::Twice(goal.metric).to_string();
            return Err(source.error(span.clone(), message, "take one of them out"));
        }
        goals.push(goal);
    }
    Objective::pareto(goals).map_err(|error| {
        let hint = "write pareto = [\"throughput\", \"energy_per_sample\"], or for one metric maximize or minimize";
        source.error(pareto.span.clone(), error.to_string(), hint)
    })
}

fn price(source: &SourceFile, table: &ObjectiveTable) -> Result<Option<Price>, SpecError> {
    match (&table.price_per_hour, &table.price_per_gpu_hour) {
        (Some(_), Some(per_gpu)) => {
            let message = "`price_per_hour` and `price_per_gpu_hour` exclude each other";
            let hint = "keep the first where the whole run has one price, the second where each GPU is paid for";
            Err(source.error(per_gpu.span.clone(), message, hint))
        }
        (Some(price), None) => Ok(Some(Price::PerHour(price.value.0))),
        (None, per_gpu) => Ok(per_gpu.as_ref().map(|price| Price::PerGpuHour(price.value.0))),
    }
}

/// Checks that no goal needs a price.
fn needs_no_price(source: &SourceFile, table: &ObjectiveTable) -> Result<(), SpecError> {
    let metrics = [&table.maximize, &table.minimize].into_iter().flatten().map(|metric| (&metric.value, &metric.span));
    let weights = table.weights.iter().flat_map(|weights| &weights.value.0).map(|(name, _)| (&name.value, &name.span));
    let front = table.pareto.iter().flat_map(|pareto| &pareto.value).map(|aim| (&aim.value.metric, &aim.span));
    let mut goals = metrics.chain(weights).chain(front);
    let goal = goals.find(|(metric, _)| *metric == COST).map(|(_, span)| span);
    let is_about_cost = |constraint: &&Located<Valid<Constraint>>| constraint.value.0.metric() == COST;
    let place = goal.or_else(|| table.constraints.iter().find(is_about_cost).map(|constraint| &constraint.span));
    let Some(span) = place else { return Ok(()) };
    let hint = "add price_per_hour = 2.5 to [objective], or price_per_gpu_hour where each GPU is paid for";
    Err(source.error(span.clone(), format!("`{COST}` needs a price"), hint))
}
