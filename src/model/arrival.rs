//! Compares the settings that a step was given with the settings that it reports.

use crate::model::fact::{Fact, Facts};
use crate::model::outcome::Measurement;
use crate::model::precision::Precision;
use crate::model::space::{AS_IT_IS, Config, Parameter, Role, Settings, Shape, Space, Value};

/// The fact of a setting that the adapter's hook confirms as applied without reporting its value.
pub const APPLIED: &str = "applied";

/// The fact that reports the setting of each role.
const BY_ROLE: &[(Role, &str)] = &[
    (Role::Batch, "loader.batch_size"),
    (Role::Workers, "loader.workers"),
    (Role::Prefetch, "loader.prefetch_factor"),
    (Role::Threads, "threads"),
    (Role::Precision, "precision"),
    (Role::Accumulation, "accumulation"),
];

/// The facts that report settings without a role, by the parameter names that frameworks and their examples use.
const BY_NAME: &[(&[&str], &str)] = &[
    (&["pin_memory", "pin_mem", "dataloader_pin_memory"], "loader.pin_memory"),
    (&["persistent_workers", "dataloader_persistent_workers"], "loader.persistent_workers"),
    (&["compile", "torch_compile"], "compiled"),
    (&["fused", "fused_optimizer"], "optimizer_fused"),
];

/// Returns the name of the fact that reports a parameter's applied setting, if any.
pub fn fact_of(parameter: &Parameter) -> Option<&str> {
    let by_role = || fact_of_role(parameter.role()?);
    let by_name = || BY_NAME.iter().find(|(names, _)| names.contains(&parameter.name())).map(|(_, fact)| *fact);
    parameter.fact().or_else(by_role).or_else(by_name)
}

/// Returns the name of the fact that reports the setting of a role, if any.
pub fn fact_of_role(role: Role) -> Option<&'static str> {
    BY_ROLE.iter().find(|(known, _)| *known == role).map(|(_, fact)| *fact)
}

/// Returns the settings that a job trained with, if gputune set only those in `set`. Each active parameter gets a value, which need
/// not be one of its settings; [`AS_IT_IS`] if it is unknown.
pub fn used(space: &Space, facts: &Facts, set: &Settings) -> Settings {
    let mut used = Settings::default();
    for parameter in space.parameters() {
        let is_active = parameter.condition().is_none_or(|when| when.holds(|name| used.get(name)).unwrap_or(true));
        if is_active {
            let known = told(parameter, facts).or_else(|| set.get(parameter.name()).cloned());
            let value = known.unwrap_or_else(|| Value::Text(AS_IT_IS.to_owned()));
            used.push(parameter.name(), value);
        }
    }
    used
}

/// Returns the value that the facts report for a parameter, as one of the parameter's own settings if possible.
fn told(parameter: &Parameter, facts: &Facts) -> Option<Value> {
    let fact = facts.get(fact_of(parameter)?)?;
    match (fact, parameter.shape()) {
        (Fact::Text(text), shape) if parameter.role() == Some(Role::Precision) => {
            let found = Precision::named(text);
            // Convolutions that use TF32 are not full precision, whatever matrix products use.
            if found == Some(Precision::Fp32) && facts.flag("tf32.convolutions") == Some(true) {
                return Some(Value::Text("fp32, TF32 in convolutions".to_owned()));
            }
            let Shape::Listed(listed) = shape else { return Some(Value::Text(text.clone())) };
            let is_half = matches!(found, Some(Precision::Bf16 | Precision::Fp16));
            let same = listed.iter().find(|value| match value {
                Value::Text(name) => found.is_some() && Precision::named(name) == found,
                Value::Bool(is_on) => found.is_some() && *is_on == is_half,
                Value::Int(_) | Value::Float(_) => false,
            });
            Some(same.cloned().unwrap_or_else(|| Value::Text(text.clone())))
        }
        (Fact::Text(text), _) => Some(Value::Text(text.clone())),
        // A flag cannot name the active mode; it can only say that no mode is on ("off").
        (Fact::Flag(is_on), Shape::Listed(listed)) if listed.iter().all(|value| matches!(value, Value::Text(_))) => {
            let off = Value::Text("off".to_owned());
            (!is_on && listed.contains(&off)).then_some(off)
        }
        (Fact::Flag(is_on), _) => Some(Value::Bool(*is_on)),
        // A whole number far below 2^53 converts exactly.
        (Fact::Number(number), _) if number.fract() == 0.0 && number.abs() < 1e15 => Some(Value::Int(*number as i64)),
        (Fact::Number(number), _) => Some(Value::Float(*number)),
    }
}

/// Returns the config of the space with exactly these settings. `None` if a setting is unknown or not in the space.
pub fn same(space: &Space, used: &Settings) -> Option<Config> {
    let level = |parameter: &Parameter| match used.get(parameter.name()) {
        Some(value) => parameter.level(value),
        None => Some(0),
    };
    space.with_levels(&space.parameters().iter().map(level).collect::<Option<Vec<u32>>>()?)
}

/// Returns the config of the space that is nearest to the settings that a job used; a search may start there.
pub fn nearest(space: &Space, used: &Settings) -> Option<Config> {
    let level = |parameter: &Parameter| {
        let value = used.get(parameter.name())?;
        parameter.level(value).or_else(|| nearest_level(parameter, value.as_f64()?))
    };
    space.with_levels(&space.parameters().iter().map(|parameter| level(parameter).unwrap_or(0)).collect::<Vec<_>>())
}

/// Finds the level whose number is nearest to `wanted`: by ratio if both are positive, else by difference.
fn nearest_level(parameter: &Parameter, wanted: f64) -> Option<u32> {
    /// Bounds the work for a huge range, which is likely a mistake.
    const MOST: u32 = 1 << 16;
    let count = u32::try_from(parameter.len()).unwrap_or(MOST).min(MOST);
    let distance = |level: &u32| {
        let number = parameter.value(*level).as_f64()?;
        let is_positive = number > 0.0 && wanted > 0.0;
        Some(if is_positive { (libm::log(number) - libm::log(wanted)).abs() } else { (number - wanted).abs() })
    };
    let known = (0..count).filter_map(|level| Some((level, distance(&level)?)));
    known.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(level, _)| level)
}

/// Finds the first setting that was provably not applied, because its fact reports another value. Returns a sentence about it.
pub fn mismatch(space: &Space, settings: &Settings, measurement: &Measurement) -> Option<String> {
    let facts = &measurement.facts;
    space.parameters().iter().find_map(|parameter| {
        let set = settings.get(parameter.name()).filter(|value| !value.is_as_it_is())?;
        let name = fact_of(parameter)?;
        let fact = facts.get(name)?;
        let arrived = match (parameter.role(), name) {
            (Some(Role::Precision), _) | (None, "precision") => precision_arrived(parameter, set, fact)?,
            (Some(Role::Batch), _) => batch_arrived(space, settings, set, measurement)?,
            (Some(Role::Workers), _) => workers_arrived(set, fact, measurement)?,
            (Some(Role::Prefetch), _) => fact.as_number()? == set.as_f64()?,
            // A step with several losses runs several backward passes, so the count may be a multiple of the setting.
            (Some(Role::Accumulation), _) => fact.as_number()? % set.as_f64()? == 0.0,
            (None, "loader.pin_memory" | "loader.persistent_workers") => match (set, fact) {
                (Value::Bool(set), Fact::Flag(found)) => set == found,
                _ => return None,
            },
            // The hook has already checked its own targets. For all other parameters, a matching name alone proves nothing.
            _ => return None,
        };
        let parameter = parameter.name();
        (!arrived).then(|| format!("`{parameter}` was set to {set}, the script trains with {fact} ({name})"))
    })
}

/// Returns the names of the active parameters for which no fact shows that the setting was applied.
///
/// A parameter with a stated fact counts as verified even if the fact is absent: its hook rejects a probe in which it cannot
/// apply the setting.
pub fn unverified(space: &Space, settings: &Settings, measurement: &Measurement) -> Vec<String> {
    let is_told = |parameter: &Parameter| match fact_of(parameter) {
        Some(APPLIED) => true,
        Some(fact) => measurement.facts.get(fact).is_some() || parameter.fact().is_some(),
        None => false,
    };
    let is_set = |parameter: &&Parameter| settings.get(parameter.name()).is_some_and(|value| !value.is_as_it_is());
    let open = space.parameters().iter().filter(is_set).filter(|parameter| !is_told(parameter));
    open.map(|parameter| parameter.name().to_owned()).collect()
}

/// Returns true if a precision was applied; `None` if the setting names no precision, or a precision that no fact reports.
fn precision_arrived(parameter: &Parameter, set: &Value, fact: &Fact) -> Option<bool> {
    let Fact::Text(text) = fact else { return None };
    let found = Precision::named(text)?;
    let is_half = matches!(found, Precision::Bf16 | Precision::Fp16);
    match set {
        // With the switch off, the model itself may still be in half precision.
        Value::Bool(is_on) => (*is_on).then_some(is_half),
        Value::Text(name) => {
            let wanted = Precision::named(name).filter(|wanted| *wanted != Precision::Fp8)?;
            // A script in full precision keeps torch's default, which may multiply in TF32.
            let is_full = |precision| matches!(precision, Precision::Fp32 | Precision::Tf32);
            Some(wanted == found || (parameter.fact().is_none() && is_full(wanted) && is_full(found)))
        }
        Value::Int(_) | Value::Float(_) => None,
    }
}

/// Returns true if a batch size was applied. The setting may mean the batch of a loader, of all ranks or devices together,
/// of an update, or of a piece of an update.
fn batch_arrived(space: &Space, settings: &Settings, set: &Value, measurement: &Measurement) -> Option<bool> {
    let set = set.as_f64()?;
    let loader = measurement.facts.number("loader.batch_size")?;
    let of_role = |role: Role| {
        let plays = |parameter: &&Parameter| parameter.role() == Some(role);
        let parameter = space.parameters().iter().find(plays)?;
        settings.get(parameter.name())?.as_f64()
    };
    let ranks = f64::from(measurement.ranks.unwrap_or(1));
    let devices = measurement.machine.gpus.len().max(1) as f64;
    let updates = measurement.facts.number("accumulation").or_else(|| of_role(Role::Accumulation)).unwrap_or(1.0);
    let pieces = of_role(Role::Pieces).unwrap_or(1.0);
    let factors = [1.0, ranks, devices, of_role(Role::Devices).unwrap_or(1.0)];
    let parts = [1.0, updates, pieces];
    let sizes = [Some(loader), measurement.timing.samples_per_step].into_iter().flatten();
    let is_same = |a: f64, b: f64| (a - b).abs() < 1e-6 * a.abs().max(1.0);
    let explains = |size: f64| {
        factors.iter().any(|factor| {
            parts.iter().any(|part| is_same(set, size * factor * part) || is_same(set * factor * part, size))
        })
    };
    Some(sizes.into_iter().any(explains))
}

/// Returns true if a number of workers was applied. Launchers often divide the workers among their processes.
fn workers_arrived(set: &Value, fact: &Fact, measurement: &Measurement) -> Option<bool> {
    let (set, found) = (set.as_f64()?, fact.as_number()?);
    let ranks = f64::from(measurement.ranks.unwrap_or(1));
    let shares = [set, (set / ranks).floor(), (set / ranks).ceil()];
    Some(shares.contains(&found))
}
