//! The user's TOML file: read, checked, and turned into the parts that a search needs.
//!
//! `docs/spec.md` describes the file. Every mistake is a [`SpecError`] with its place.

mod error;
mod file;
mod space;
mod step;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use error::SpecError;
pub use space::SHIPPED_SPACES;
pub use step::StepSpec;

use crate::budget::Budget;
use crate::journal::Fingerprint;
use crate::objective::{Constraint, Direction, Headroom, Objective};
use crate::probe::Limits;
use crate::quantity;
use crate::space::{LocateError, Settings, Space, Value};
use crate::strategy::STRATEGIES;
use crate::telemetry::Device;
use error::{SourceFile, suggestion};
use file::{LimitsTable, Located, ObjectiveTable, SearchTable, SpecFile};

/// Everything that a spec says, as parts.
#[derive(Debug)]
pub struct Spec {
    /// The file.
    pub path: PathBuf,
    /// What may be tried.
    pub space: Space,
    /// What is run.
    pub step: StepSpec,
    /// The current settings.
    pub baseline: Option<Settings>,
    /// How far a probe may go.
    pub limits: Limits,
    /// What better means.
    pub objective: Objective,
    /// What the search may cost.
    pub budget: Budget,
    /// The name of the strategy, one of [`STRATEGIES`].
    pub strategy: &'static str,
    /// What chance depends on.
    pub seed: u64,
    /// What is allowed but probably not meant.
    pub warnings: Vec<String>,
}

impl Spec {
    /// Reads and checks a spec.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn load(path: &Path) -> Result<Self, SpecError> {
        let source = SourceFile::read(path)?;
        let file: SpecFile = toml::from_str(&source.text).map_err(|error| source.toml_error(&error))?;
        let space = space::build(&source, &file.space, &file.rules)?;
        let baseline = file.baseline.as_ref().map(|table| baseline(&source, table, &space)).transpose()?;
        let step = step::build(&source, &file.step.value, &space)?;
        let (strategy, seed) = (strategy(&source, &file.search)?, file.search.seed.unwrap_or(0));
        let objective = objective(&source, &file.objective, &file.limits, &file.search)?;
        let warnings = step.unused(&space);
        Ok(Self {
            path: path.to_owned(),
            limits: limits(&source, &file.limits)?,
            budget: budget(&source, &file.search)?,
            space,
            step,
            baseline,
            objective,
            strategy,
            seed,
            warnings,
        })
    }

    /// What must stay the same for this spec's trials to be comparable.
    pub fn fingerprint(&self, device: &Device) -> Fingerprint {
        let parameters: BTreeMap<&str, String> = self
            .space
            .parameters()
            .iter()
            .map(|parameter| (parameter.name(), parameter.definition()))
            .chain(self.space.derived().iter().map(|d| (d.name(), format!("derive {}", d.expression().text()))))
            .collect();
        let rules: Vec<&str> = self.space.rules().iter().map(crate::space::Expression::text).collect();
        Fingerprint {
            device: device.name.clone(),
            driver: device.driver.clone(),
            command: self.step.fingerprint(),
            space: serde_json::json!({ "parameters": parameters, "rules": rules }),
        }
    }
}

/// The JSON Schema of the spec, from the types that read it.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(SpecFile).to_value()
}

fn baseline(
    source: &SourceFile,
    table: &Located<BTreeMap<String, Located<Value>>>,
    space: &Space,
) -> Result<Settings, SpecError> {
    let settings: Settings = table.value.iter().map(|(name, value)| (name.clone(), value.value.clone())).collect();
    let error = match space.locate(&settings) {
        Ok(config) => return Ok(space.settings(&config).chosen(space)),
        Err(error) => error,
    };
    let entry = |name: &str| table.value.get(name).map_or(table.span.clone(), |value| value.span.clone());
    let names = || space.parameters().iter().map(crate::space::Parameter::name);
    let (span, hint) = match &error {
        LocateError::UnknownName { name } => (entry(name), suggestion(name, names())),
        LocateError::Derived { name } => (entry(name), "take it out: it follows from the others".to_owned()),
        LocateError::UnknownValue { name, value, .. } => {
            (entry(name), format!("add {value} to the settings of `{name}`, or start from one that is there"))
        }
        LocateError::Inactive { name, .. } => {
            (entry(name), "take it out, or change what its condition speaks of".to_owned())
        }
        LocateError::Forbidden { .. } => (
            table.span.start..table.span.start + 1,
            "the baseline must satisfy every rule, since it is probed".to_owned(),
        ),
    };
    Err(SpecError { hint: Some(hint), ..source.error(span, format!("the baseline is not in the space: {error}")) })
}

fn strategy(source: &SourceFile, table: &SearchTable) -> Result<&'static str, SpecError> {
    let Some(name) = &table.strategy else { return Ok(STRATEGIES[0].name) };
    STRATEGIES.iter().find(|entry| entry.name == name.value).map(|entry| entry.name).ok_or_else(|| SpecError {
        hint: Some(suggestion(&name.value, STRATEGIES.iter().map(|entry| entry.name))),
        ..source.error(name.span.clone(), format!("there is no strategy `{}`", name.value))
    })
}

fn objective(
    source: &SourceFile,
    table: &ObjectiveTable,
    limits: &LimitsTable,
    search: &SearchTable,
) -> Result<Objective, SpecError> {
    let (metric, direction) = match (&table.maximize, &table.minimize) {
        (Some(_), Some(minimize)) => {
            return Err(source.error(minimize.span.clone(), "`maximize` and `minimize` exclude each other"));
        }
        (None, Some(metric)) => (metric.value.as_str(), Direction::Minimize),
        (Some(metric), None) => (metric.value.as_str(), Direction::Maximize),
        (None, None) => ("throughput", Direction::Maximize),
    };
    if metric.trim().is_empty() {
        let span = table.maximize.as_ref().or(table.minimize.as_ref()).map_or(0..0, |metric| metric.span.clone());
        return Err(source.error(span, "the metric has no name"));
    }
    let mut objective = Objective::new(metric, direction).on_tie(search.on_tie.unwrap_or_default());
    if let Some(value) = &limits.memory_headroom {
        objective = objective.memory_headroom(headroom(source, value)?);
    }
    for text in &table.constraints {
        let constraint = Constraint::parse(&text.value).map_err(|error| SpecError {
            hint: Some("for example \"peak_memory < 70GiB\" or \"loss <= 2.5\"".to_owned()),
            ..source.error(text.span.clone(), error.to_string())
        })?;
        objective = objective.constraint(constraint);
    }
    Ok(objective)
}

fn limits(source: &SourceFile, table: &LimitsTable) -> Result<Limits, SpecError> {
    let mut limits = Limits::default();
    for (text, limit) in [
        (&table.probe_time, &mut limits.probe_time),
        (&table.stall_time, &mut limits.stall_time),
        (&table.measure_time, &mut limits.measure_time),
    ] {
        if let Some(text) = text {
            *limit = duration(source, text)?;
            if limit.is_zero() {
                return Err(source.error(text.span.clone(), "this time must be longer than nothing"));
            }
        }
    }
    if let Some(text) = &table.grace_time {
        limits.grace_time = duration(source, text)?;
    }
    if let Some(precision) = &table.precision {
        if !(precision.value > 0.0 && precision.value < 1.0) {
            return Err(source.error(precision.span.clone(), "a precision is a share between 0 and 1, such as 0.02"));
        }
        limits.precision = precision.value;
    }
    if let Some(value) = &table.host_memory_headroom {
        limits.host_memory_headroom = headroom(source, value)?;
    }
    if let Some(text) = &table.log_size {
        let bytes = quantity::parse_bytes(&text.value).map_err(|e| source.error(text.span.clone(), e.to_string()))?;
        limits.log_size = Some(bytes);
    }
    Ok(limits)
}

fn budget(source: &SourceFile, table: &SearchTable) -> Result<Budget, SpecError> {
    let mut budget = Budget::default();
    if let Some(probes) = &table.probes {
        if probes.value == 0 {
            return Err(source.error(probes.span.clone(), "a search needs at least one probe"));
        }
        budget.probes = probes.value;
    }
    if let Some(text) = &table.time {
        budget.time = duration(source, text)?;
    }
    if let Some(confirmations) = &table.confirmations {
        if confirmations.value > 100 {
            return Err(source.error(confirmations.span.clone(), "more than 100 confirmations cannot be meant"));
        }
        budget.confirmations = confirmations.value;
    }
    Ok(budget)
}

fn duration(source: &SourceFile, text: &Located<String>) -> Result<Duration, SpecError> {
    quantity::parse_duration(&text.value).map_err(|error| source.error(text.span.clone(), error.to_string()))
}

fn headroom(source: &SourceFile, value: &Located<Value>) -> Result<Headroom, SpecError> {
    let error = |message: String| SpecError {
        hint: Some("write a share such as 0.1, or a size such as \"2GiB\"".to_owned()),
        ..source.error(value.span.clone(), message)
    };
    match (&value.value, value.value.as_f64()) {
        (_, Some(share)) if (0.0..1.0).contains(&share) => Ok(Headroom::Fraction(share)),
        (_, Some(share)) => Err(error(format!("{share} is no share of memory: it must be from 0 to below 1"))),
        (Value::Text(text), None) => {
            quantity::parse_bytes(text).map(Headroom::Bytes).map_err(|source| error(source.to_string()))
        }
        (other, None) => Err(error(format!("a {} is no amount of memory", other.kind()))),
    }
}
