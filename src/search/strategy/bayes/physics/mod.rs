//! A model of a training step's time, as the mean that the process starts from.
//!
//! A step takes as long as the slower of the device and its data loader, smoothed. The device needs a fixed time to launch, and a
//! time in proportion to the batch; their norm of order two fits recorded training jobs best. More of a resource (threads, power,
//! devices) makes it faster with an exponent below one. The loader takes time in proportion to the batch divided by its workers, up
//! to some number of cores. It shares these cores with computation on the host.
//!
//! A few coefficients determine all of this. They are fitted to the history with priors: to the speed of each config, and to the
//! share of its time that it waited for data. The formula for the device follows Pollux (Qiao et al., OSDI 2021), the formula for
//! the loader follows Plumber (Kuchnik et al., MLSys 2022).

pub(super) mod numbers;
mod priors;
mod step;

use numbers::{Evidence, Found, Unknown, most_likely};
pub(super) use step::Numbers;
use step::{Asked, MOST_PRECISIONS};

use super::acquisition::risk;
use super::candidates::Chunk;
use super::memory_model::MemoryNeed;
use super::normal::{exp, ln};
use crate::model::{Config, Parameter, Role, Space, Trial};
use crate::search::strategy::{Proposal, View};

/// The model of a space's training step.
#[derive(Debug, Clone)]
pub(super) struct Physics {
    roles: Vec<Option<Role>>,
    unknowns: Vec<Unknown>,
    /// The effect of each setting on a step, for parameters that do not have too many settings.
    asked: Vec<Vec<Part>>,
    /// The positions of a precision's settings among the unknowns.
    precisions: Vec<Vec<Option<u16>>>,
    middle: f64,
    has_workers: bool,
}

/// The effect of one setting on a step.
#[derive(Debug, Clone, Copy)]
enum Part {
    Nothing,
    Batch(f64),
    Pieces(f64),
    Accumulation(f64),
    Workers(f64),
    Prefetch(f64),
    Threads(f64),
    Power(f64),
    Devices(f64),
    Precision(Option<u16>),
}

/// The most settings of a parameter whose effects are computed in advance.
const MOST_SETTINGS: u64 = 4096;

impl Physics {
    /// Makes the model of a space; `None` where the objective is not throughput, or no parameter has a role in the
    /// model.
    pub(super) fn of(view: &View<'_>) -> Option<Self> {
        let space = view.space;
        let roles: Vec<Option<Role>> = space.parameters().iter().map(Parameter::role).collect();
        let explains = roles.iter().any(|role| role.is_some_and(|role| role != Role::Precision));
        if !view.objective.is_largest_throughput() || !explains {
            return None;
        }
        let (unknowns, precisions) = priors::unknowns(view, &roles);
        let has_workers = roles.contains(&Some(Role::Workers));
        let middle = priors::middle(space, &roles);
        let mut physics = Self { asked: Vec::new(), roles, unknowns, precisions, middle, has_workers };
        let parts = |(at, parameter): (usize, &Parameter)| {
            let count = if parameter.len() <= MOST_SETTINGS { parameter.len() } else { 0 };
            (0..u32::try_from(count).unwrap_or(0)).map(|level| physics.worked_out(parameter, at, level)).collect()
        };
        physics.asked = space.parameters().iter().enumerate().map(parts).collect();
        Some(physics)
    }

    /// Fits the coefficients to the history and the priors; also returns the cost from the priors.
    pub(super) fn fit(&self, known: &Known<'_>) -> (Numbers, f64) {
        /// The smallest weight with which alternative coefficients count: a round number.
        const LEAST_WEIGHT: f64 = 0.005;
        /// How much worse the explanation of throughput may become when waiting is also explained. A larger loss means that the two
        /// contradict each other, and then throughput counts. A round number, in the units of the cost.
        const MISLED: f64 = 3.0;
        /// The starts of the fit besides the priors' means: where the loader or the device is slower, and where threads
        /// would be faster with more cores.
        const STARTS: [&[(usize, f64)]; 4] = [
            &[],
            &[(step::LOADER, -1.5)],
            &[(step::LOADER, 1.5)],
            &[(step::CORES, -1.0), (step::BARRIER, 1.0), (step::THREADS, 1.0)],
        ];
        let mut observed = Observed {
            asked: known.configs.iter().map(|config| self.asked(known.space, config)).collect(),
            speeds: known.values.iter().map(|value| value * known.deviation).collect(),
            deviations: known.errors.iter().map(|error| error.hypot(DISCREPANCY)).collect(),
            waits: &known.waits,
            middle: self.middle,
        };
        let mut unknowns = self.unknowns.clone();
        let mut starts: Vec<Vec<f64>> = Vec::new();
        for moves in STARTS {
            let mut start: Vec<f64> = unknowns.iter().map(|unknown| unknown.mean).collect();
            moves.iter().for_each(|(at, by)| start[*at] += by * unknowns[*at].deviation);
            observed.set_unit(&mut start);
            starts.push(start);
        }
        if let (Some(unit), Some(start)) = (unknowns.last_mut(), starts.first()) {
            unit.mean = start.last().copied().unwrap_or(0.0);
        }
        let mut found = most_likely(&unknowns, &starts, &observed);
        if known.waits.iter().any(Option::is_some) {
            let silent = vec![None; known.waits.len()];
            let (asked, speeds) = (observed.asked.clone(), observed.speeds.clone());
            let alone = Observed { waits: &silent, asked, speeds, deviations: observed.deviations.clone(), ..observed };
            let other = most_likely(&unknowns, &starts, &alone);
            let cost = |found: &Found| numbers::cost_at(&unknowns, &found.numbers, &alone);
            if cost(&found) > cost(&other) + MISLED {
                (found, observed) = (other, Observed { waits: &[], ..alone });
            }
        }
        let mut drawn = vec![found.numbers.clone()];
        for mut other in numbers::drawn(&found, &unknowns) {
            // The unit follows from the other coefficients and the measured values.
            observed.set_unit(&mut other);
            drawn.push(other);
        }
        let costs: Vec<f64> = drawn.iter().map(|raw| numbers::cost_at(&unknowns, raw, &observed)).collect();
        let others = drawn.iter().zip(numbers::weights(&costs)).skip(1).filter(|(_, weight)| *weight > LEAST_WEIGHT);
        let others = others.map(|(raw, weight)| (Numbers::new(raw, self.middle), weight)).collect();
        let prior = found.prior;
        (Numbers::found(found, &unknowns, self.middle, others), prior)
    }

    /// Proposes a start if none is given, or if no tried config has fitted. It is the config that is likely to fit and is fastest
    /// according to the priors on training steps.
    pub(super) fn first(&self, view: &View<'_>, candidates: &[Chunk], memory: Option<&MemoryNeed>) -> Option<Proposal> {
        let trials = view.history.trials();
        let none_fitted = trials.iter().all(|trial| view.objective.lacks_memory(&trial.outcome).is_some());
        let is_lacking = !trials.is_empty() && none_fitted && memory.is_some();
        let is_first = trials.is_empty() && view.pending.is_empty();
        if !(is_first || is_lacking) || is_first && view.start.is_some_and(|start| view.is_open(start)) {
            return None;
        }
        let drawn: Vec<Numbers> =
            numbers::expected(&self.unknowns).iter().map(|raw| Numbers::new(raw, self.middle)).collect();
        let speed = |config: &Config| {
            let asked = self.asked(view.space, config);
            let speeds: Vec<f64> = drawn.iter().map(|numbers| numbers.step(&asked).speed).collect();
            crate::probe::stats::mean(&speeds).unwrap_or(0.0)
        };
        let chance = |config: &Config| memory.map_or(1.0, |memory| memory.chance(view.space, config));
        let worth = |config: &Config| speed(config) + risk(chance(config));
        let open = candidates.iter().flat_map(|chunk| &chunk.configs).filter(|config| view.is_open(config));
        let all = open.map(|config| (worth(config), config));
        let (_, config) = all.reduce(|best, other| if other.0 > best.0 { other } else { best })?;
        let reason = match is_first {
            true => "begins where training steps are fast more often than not".to_owned(),
            false => format!("tries a config that is {:.0} % likely to fit", 100.0 * chance(config)),
        };
        Some(Proposal { reason: Some(reason), ..Proposal::from(config.clone()) })
    }

    /// Returns the share of a step that was spent waiting for data, if the probe reported it. If the probe did not
    /// report the time of a step, that follows from throughput and batch, unless several devices may take batches.
    pub(super) fn wait_of(&self, space: &Space, trial: &Trial) -> Option<f64> {
        let measurement = trial.outcome.measurement()?;
        let wait = measurement.phase_seconds.get("data_wait")?;
        let asked = self.asked(space, &trial.config);
        let by_batch = || {
            let is_alone = !self.roles.contains(&Some(Role::Devices)) && self.roles.contains(&Some(Role::Batch));
            let throughput = measurement.throughput.filter(|_| is_alone)?.value;
            Some(exp(asked.ln_batch + asked.ln_accumulation) / throughput)
        };
        let share = wait / measurement.timing.step_seconds.or_else(by_batch)?;
        (0.0..=1.0).contains(&share).then_some(share)
    }

    /// The parameters that the mean depends on.
    pub(super) fn reads(&self) -> Vec<usize> {
        self.roles.iter().enumerate().filter(|(_, role)| role.is_some()).map(|(at, _)| at).collect()
    }

    /// The logarithm of the throughput of a config, up to a constant.
    pub(super) fn mean(&self, space: &Space, config: &Config, numbers: &Numbers) -> f64 {
        numbers.step(&self.asked(space, config)).speed
    }

    /// Returns the mean with its variance, since the coefficients are uncertain.
    pub(super) fn uncertain_mean(&self, space: &Space, config: &Config, numbers: &Numbers) -> (f64, f64) {
        numbers.uncertain_speed(&self.asked(space, config))
    }

    /// Adds by how much the mean differs with alternative coefficients that the history allows, with their weights.
    pub(super) fn other_means(&self, space: &Space, config: &Config, numbers: &Numbers, into: &mut Vec<(f64, f64)>) {
        numbers.other_speeds(&self.asked(space, config), into);
    }

    fn asked(&self, space: &Space, config: &Config) -> Asked {
        let mut asked = Asked { workers: self.has_workers.then_some(1.0), ..Asked::default() };
        let mut precisions = 0;
        for (at, (parts, level)) in self.asked.iter().zip(config.levels()).enumerate() {
            let Some(level) = level else { continue };
            let part = match parts.get(level as usize) {
                Some(part) => *part,
                None => self.worked_out(&space.parameters()[at], at, level),
            };
            match part {
                Part::Nothing => {}
                Part::Batch(ln) => asked.ln_batch += ln,
                Part::Pieces(ln) => asked.ln_pieces += ln,
                Part::Accumulation(ln) => asked.ln_accumulation += ln,
                Part::Workers(workers) => asked.workers = Some(workers),
                Part::Prefetch(ln) => asked.ln_prefetch += ln,
                Part::Threads(ln) => asked.ln_threads += ln,
                Part::Power(ln) => asked.ln_power += ln,
                Part::Devices(ln) => asked.ln_devices += ln,
                Part::Precision(place) if precisions < MOST_PRECISIONS => {
                    asked.precisions[precisions] = place;
                    precisions += 1;
                }
                Part::Precision(_) => {}
            }
        }
        asked
    }

    /// Computes the effect of a setting on a step.
    fn worked_out(&self, parameter: &Parameter, at: usize, level: u32) -> Part {
        let Some(role) = self.roles[at] else { return Part::Nothing };
        if role == Role::Precision {
            return Part::Precision(self.precisions[at].get(level as usize).copied().flatten());
        }
        let number = parameter.value(level).as_f64().unwrap_or(1.0);
        // Zero means that the program chooses, except for workers.
        let ln = if number > 0.0 { ln(number) } else { 0.0 };
        match role {
            Role::Batch => Part::Batch(ln),
            Role::Pieces => Part::Pieces(ln),
            Role::Accumulation => Part::Accumulation(ln),
            Role::Workers => Part::Workers(number.max(0.0)),
            Role::Prefetch => Part::Prefetch(ln),
            Role::Threads => Part::Threads(ln),
            Role::Power => Part::Power(ln - priors::last(parameter)),
            Role::Devices => Part::Devices(ln),
            Role::Precision => Part::Nothing,
        }
    }
}

/// The data that the model is fitted to: configs with their standardised values.
pub(super) struct Known<'k> {
    pub(super) space: &'k Space,
    pub(super) configs: Vec<&'k Config>,
    pub(super) values: &'k [f64],
    /// The size of one standard unit, as a difference of logarithms.
    pub(super) deviation: f64,
    /// The share of each step that was spent waiting for data, where it was reported.
    pub(super) waits: Vec<Option<f64>>,
    /// The standard errors of the logarithms, those between runs included; zero where nothing is known of them.
    pub(super) errors: Vec<f64>,
}

/// Measured values, as the fit uses them.
struct Observed<'k> {
    asked: Vec<Asked>,
    /// The logarithms of throughputs, up to a constant.
    speeds: Vec<f64>,
    /// How far each is expected to be from the model.
    deviations: Vec<f64>,
    waits: &'k [Option<f64>],
    middle: f64,
}

/// The expected deviation of throughput from the model, as a logarithm, in an ordinary case. A round number, about 8 %,
/// which the code and its history give no source for.
const DISCREPANCY: f64 = 0.08;
/// The expected deviation for the log-odds of waiting for data: a device that keeps working while its host waits makes
/// the wait look longer. A round number.
const WAIT_DISCREPANCY: f64 = 0.5;

impl Observed<'_> {
    fn observations(&self) -> impl Iterator<Item = (&Asked, (&f64, &f64))> {
        self.asked.iter().zip(self.speeds.iter().zip(&self.deviations))
    }

    /// Sets the unit of speeds, which follows from the other coefficients.
    fn set_unit(&self, raw: &mut [f64]) {
        let numbers = Numbers::new(raw, self.middle);
        let differences = self.asked.iter().zip(&self.speeds).map(|(asked, speed)| numbers.step(asked).speed - speed);
        let mean = crate::probe::stats::mean(&differences.collect::<Vec<f64>>()).unwrap_or(0.0);
        if let Some(unit) = raw.last_mut() {
            *unit += mean;
        }
    }
}

impl Evidence for Observed<'_> {
    fn differences(&self, raw: &[f64], into: &mut Vec<f64>) {
        let numbers = Numbers::new(raw, self.middle);
        into.clear();
        for (at, (asked, (speed, deviation))) in self.observations().enumerate() {
            let step = numbers.step(asked);
            into.push((step.speed - speed) / deviation);
            if let Some(Some(wait)) = self.waits.get(at) {
                into.push((odds(step.wait) - odds(*wait)) / WAIT_DISCREPANCY);
            }
        }
    }

    fn slopes(&self, raw: &[f64], into: &mut Vec<f64>) {
        let numbers = Numbers::new(raw, self.middle);
        let (mut speed, mut wait) = (vec![0.0; raw.len()], vec![0.0; raw.len()]);
        into.clear();
        for (at, (asked, (_, deviation))) in self.observations().enumerate() {
            let step = numbers.followed(asked, &mut speed, &mut wait);
            into.extend(speed.iter().map(|slope| slope / deviation));
            if self.waits.get(at).is_some_and(Option::is_some) {
                let steepness = 1.0 / (step.wait + SOFT) + 1.0 / (1.0 - step.wait + SOFT);
                into.extend(wait.iter().map(|slope| slope * steepness / WAIT_DISCREPANCY));
            }
        }
    }
}

/// Returns the residual of the model in standard units, with values far below compressed. A config that is much slower than
/// predicted only matters as a slow config.
pub(super) fn drawn(rest: f64) -> f64 {
    /// In standard units. A round number: the residual beyond which a value counts as far below.
    const LIMIT: f64 = -2.5;
    if rest < LIMIT { LIMIT - ln(1.0 + LIMIT - rest) } else { rest }
}

/// The amount added to both sides of the odds, so that a few per cent of the time at either end do not change them
/// much. A round number.
const SOFT: f64 = 0.05;

/// The logarithm of the odds of a share.
fn odds(share: f64) -> f64 {
    ln((share + SOFT) / (1.0 - share + SOFT))
}

#[cfg(test)]
mod tests;
