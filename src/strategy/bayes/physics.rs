//! What a training step is known to do: the mean that the process starts from.
//!
//! A step takes as long as the device or its data loader, whichever is slower, smoothed. The device needs a fixed time to
//! launch and time in proportion to the batch: their norm of order two fits recorded training jobs best. More of a
//! resource (threads, power, devices) makes it faster with an exponent below one. The loader takes time in proportion to
//! the batch over its workers, up to some number of cores. What all of that comes to depends on a few numbers; those that
//! the history makes most likely are taken, priors considered. The form is that of Pollux (Qiao and others, OSDI 2021).

use super::normal::{exp, ln};
use super::process::Process;
use crate::precision::Precision;
use crate::space::{Config, Parameter, Role, Space, Value};
use crate::strategy::View;

/// A number of the model with its normal prior.
#[derive(Debug, Clone, Copy)]
struct Unknown {
    mean: f64,
    deviation: f64,
}

/// Which unknowns are where in the model's list.
const HALF_BATCH: usize = 0;
const LOADER: usize = 1;
const CORES: usize = 2;

/// The model of a space's training step.
#[derive(Debug)]
pub(super) struct Physics {
    roles: Vec<Option<Role>>,
    unknowns: Vec<Unknown>,
    /// For each parameter the place of its exponent, or of the speeds of its settings, among the unknowns.
    places: Vec<usize>,
    has_workers: bool,
}

/// The numbers of a model.
pub(super) type Numbers = Vec<f64>;

impl Physics {
    /// The model of a space; `None` where the objective is another than throughput, or no parameter has a role in it.
    pub(super) fn of(view: &View<'_>) -> Option<Self> {
        let space = view.space;
        let roles: Vec<Option<Role>> = space.parameters().iter().map(Parameter::role).collect();
        let explains = roles.iter().any(|role| role.is_some_and(|role| role != Role::Precision));
        if !view.objective.is_largest_throughput() || !explains {
            return None;
        }
        let mut unknowns = vec![
            half_batch(space, &roles),
            // One worker loads about as fast as the device computes; where workers are no parameter, there are enough.
            Unknown { mean: if roles.contains(&Some(Role::Workers)) { 0.0 } else { -1.5 }, deviation: 1.2 },
            Unknown { mean: ln(6.0), deviation: 0.8 },
        ];
        let mut places = Vec::new();
        for (parameter, role) in space.parameters().iter().zip(&roles) {
            places.push(unknowns.len());
            match role {
                Some(Role::Precision) => unknowns.extend(settings(parameter).map(|value| speed_of(&value, view))),
                Some(role) => unknowns.extend(exponent_of(*role)),
                None => {}
            }
        }
        let has_workers = roles.contains(&Some(Role::Workers));
        Some(Self { roles, unknowns, places, has_workers })
    }

    /// The numbers that the history makes most likely, with what the priors say of them.
    pub(super) fn fit(&self, known: &Known<'_>, process: &Process<'_>) -> (Numbers, f64) {
        let prior = |numbers: &Numbers| -> f64 {
            numbers.iter().zip(&self.unknowns).map(|(number, unknown)| unknown.cost(*number)).sum()
        };
        let numbers = self.descend(|numbers| process.surprise(&self.rest(known, numbers)) + prior(numbers));
        let cost = prior(&numbers);
        (numbers, cost)
    }

    /// What the model leaves of the values.
    pub(super) fn rest(&self, known: &Known<'_>, numbers: &Numbers) -> Vec<f64> {
        let means = known.configs.iter().map(|config| self.mean(known.space, config, numbers) / known.deviation);
        known.values.iter().zip(means).map(|(value, mean)| value - mean).collect()
    }

    /// Goes from the priors' means downhill, one number at a time, with steps that shrink.
    fn descend(&self, cost: impl Fn(&Numbers) -> f64) -> Numbers {
        const ROUNDS: usize = 8;
        const SHRINK: f64 = 0.6;
        let mut numbers: Numbers = self.unknowns.iter().map(|unknown| unknown.mean).collect();
        let mut least = cost(&numbers);
        let mut step = 1.0;
        for _ in 0..ROUNDS {
            let mut is_better = false;
            for at in 0..numbers.len() {
                for direction in [1.0, -1.0] {
                    let mut moved = numbers.clone();
                    moved[at] += direction * step * self.unknowns[at].deviation;
                    let there = cost(&moved);
                    if there < least {
                        (numbers, least, is_better) = (moved, there, true);
                        break;
                    }
                }
            }
            if !is_better {
                step *= SHRINK;
            }
        }
        numbers
    }

    /// The parameters that the mean depends on.
    pub(super) fn reads(&self) -> Vec<usize> {
        self.roles.iter().enumerate().filter(|(_, role)| role.is_some()).map(|(at, _)| at).collect()
    }

    /// The logarithm of the throughput of a config, up to a constant.
    pub(super) fn mean(&self, space: &Space, config: &Config, numbers: &Numbers) -> f64 {
        let mut batch = 1.0;
        let mut workers = None;
        let mut speed = 0.0;
        for (at, (role, parameter)) in self.roles.iter().zip(space.parameters()).enumerate() {
            let (Some(role), Some(level)) = (role, config.level(at)) else { continue };
            let number = || parameter.value(level).as_f64().unwrap_or(1.0);
            match role {
                Role::Batch => batch *= number().max(1e-9),
                Role::Workers => workers = Some(number().max(0.0)),
                Role::Precision => speed += numbers[self.places[at] + (level as usize).min(MOST_SETTINGS - 1)],
                Role::Prefetch | Role::Threads | Role::Power | Role::Devices => {
                    // Zero means that the program chooses.
                    speed += numbers[self.places[at]] * if number() > 0.0 { ln(number()) } else { 0.0 };
                }
            }
        }
        let half = exp(numbers[HALF_BATCH]);
        let device = (half * half + batch * batch).sqrt() * exp(-speed);
        let loader = batch * exp(numbers[LOADER]);
        let step = match workers {
            Some(0.0) => device + loader,
            _ => {
                let workers = if self.has_workers { workers.unwrap_or(1.0) } else { 1.0 };
                smooth_max(device, loader / smooth_min(workers, exp(numbers[CORES])))
            }
        };
        ln(batch / step)
    }
}

/// What the model is fitted to: configs with their standardised values.
pub(super) struct Known<'k> {
    pub(super) space: &'k Space,
    pub(super) configs: Vec<&'k Config>,
    pub(super) values: &'k [f64],
    /// How much of a logarithm one standard unit is.
    pub(super) deviation: f64,
}

/// Settings of a precision that have a speed of their own.
const MOST_SETTINGS: usize = 8;

fn settings(parameter: &Parameter) -> impl Iterator<Item = Value> + '_ {
    let count = u32::try_from(parameter.len()).unwrap_or(u32::MAX).min(MOST_SETTINGS as u32);
    (0..count).map(|level| parameter.value(level))
}

/// Full precision is the measure, others are faster more often than not. Where the device's matrix products were measured,
/// a step is expected to gain the square root of what they gain: a good part of it is other work.
fn speed_of(value: &Value, view: &View<'_>) -> Unknown {
    let name = value.to_string();
    let precision = Precision::named(&name);
    let is_off = ["none", "no", "false", "highest", "off"].contains(&name.to_ascii_lowercase().as_str());
    if is_off || precision == Some(Precision::Fp32) {
        return Unknown { mean: 0.0, deviation: 0.05 };
    }
    let measured = view.precision_speeds.zip(precision).and_then(|(speeds, precision)| speeds.get(&precision));
    let mean = measured.filter(|speed| speed.is_finite() && **speed > 0.0).map_or(0.3, |speed| 0.5 * ln(*speed));
    Unknown { mean, deviation: 0.5 }
}

/// How speed grows with a resource.
fn exponent_of(role: Role) -> Option<Unknown> {
    match role {
        Role::Prefetch => Some(Unknown { mean: 0.02, deviation: 0.05 }),
        Role::Threads => Some(Unknown { mean: 0.3, deviation: 0.4 }),
        Role::Power => Some(Unknown { mean: 0.4, deviation: 0.3 }),
        Role::Devices => Some(Unknown { mean: 0.8, deviation: 0.3 }),
        Role::Batch | Role::Workers | Role::Precision => None,
    }
}

/// The batch at which launching takes as long as computing: somewhere in the lower half of what may be tried.
fn half_batch(space: &Space, roles: &[Option<Role>]) -> Unknown {
    let batches = space.parameters().iter().zip(roles).filter(|(_, role)| **role == Some(Role::Batch));
    let (mut low, mut high) = (0.0, 0.0);
    for (parameter, _) in batches {
        let end = u32::try_from(parameter.len().saturating_sub(1)).unwrap_or(u32::MAX - 1);
        low += ln(parameter.value(0).as_f64().unwrap_or(1.0).max(1.0));
        high += ln(parameter.value(end).as_f64().unwrap_or(1.0).max(1.0));
    }
    Unknown { mean: low + 0.3 * (high - low), deviation: 1.2 }
}

impl Unknown {
    fn cost(self, number: f64) -> f64 {
        let z = (number - self.mean) / self.deviation;
        0.5 * z * z
    }
}

/// The norm of order three: the larger of two times, and somewhat more where they are alike.
fn smooth_max(a: f64, b: f64) -> f64 {
    libm::cbrt(a * a * a + b * b * b)
}

fn smooth_min(a: f64, b: f64) -> f64 {
    1.0 / smooth_max(1.0 / a.max(1e-9), 1.0 / b.max(1e-9))
}
