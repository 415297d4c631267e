//! The priors on a training step, before anything has been measured.

use super::numbers::Unknown;
use super::step::{self, MOST_PRECISIONS};
use crate::model::{Parameter, Precision, Role, Space, Value};
use crate::search::strategy::{View, bayes::normal::ln};

/// The most settings of a precision that have a speed of their own.
const MOST_SPEEDS: u32 = 8;

/// Returns the unknowns of the formula, and for each parameter the positions of its settings' speeds among them.
pub(super) fn unknowns(view: &View<'_>, roles: &[Option<Role>]) -> (Vec<Unknown>, Vec<Vec<Option<u16>>>) {
    let space = view.space;
    let has = |role: Role| roles.contains(&Some(role));
    let mut unknowns = vec![Unknown::new(0.0, 1.0); step::PRECISIONS];
    unknowns[step::HALF_BATCH] = half_batch(space, roles);
    // One worker loads about as fast as the device computes. If workers are no parameter, there are enough of them.
    unknowns[step::LOADER] = Unknown::new(if has(Role::Workers) { 0.0 } else { -1.5 }, 1.2);
    unknowns[step::CORES] = cores(space, roles);
    // Threads are a parameter where the host computes; elsewhere the host mostly launches.
    unknowns[step::HOST] = if has(Role::Threads) { Unknown::new(-0.2, 0.4) } else { Unknown::new(-1.2, 0.8) };
    unknowns[step::BARRIER] = Unknown::new(1.0, 1.0);
    unknowns[step::GROWTH] = Unknown::new(0.02, 0.03);
    unknowns[step::MIXED] = Unknown::new(0.05, 0.15);
    unknowns[step::UPDATE] = Unknown::new(ln(0.3), 0.7);
    unknowns[step::THREADS] = Unknown::new(0.3, 0.45);
    unknowns[step::POWER] = Unknown::new(0.4, 0.3);
    unknowns[step::DEVICES] = Unknown::new(0.8, 0.3);
    unknowns[step::PREFETCH] = Unknown::new(0.01, 0.03);
    let mut places = vec![Vec::new(); roles.len()];
    let precisions = roles.iter().enumerate().filter(|(_, role)| **role == Some(Role::Precision));
    for (at, _) in precisions.take(MOST_PRECISIONS) {
        let parameter = &space.parameters()[at];
        let count = u32::try_from(parameter.len()).unwrap_or(u32::MAX).min(MOST_SPEEDS);
        for level in 0..count {
            let speed = speed_of(&parameter.value(level), view, has(Role::Threads));
            places[at].push(speed.and_then(|_| u16::try_from(unknowns.len()).ok()));
            unknowns.extend(speed);
        }
    }
    // The unit of speeds is unknown in advance.
    unknowns.push(Unknown::new(0.0, 3.0));
    (unknowns, places)
}

/// Returns the prior on the speed of a precision. Full precision is the reference and has no prior; other precisions are usually
/// faster. If the device's matrix products were measured, a step is expected to gain the square root of their gain, because much of
/// a step is other work. If they were not measured and threads that compute are a parameter, the device is a CPU. There 16 bits can
/// be far slower.
fn speed_of(value: &Value, view: &View<'_>, on_host: bool) -> Option<Unknown> {
    let name = value.to_string();
    let precision = Precision::named(&name);
    let is_off = ["none", "no", "false", "highest", "off"].contains(&name.to_ascii_lowercase().as_str());
    if is_off || precision == Some(Precision::Fp32) {
        return None;
    }
    let measured = view.precision_speeds.zip(precision).and_then(|(speeds, precision)| speeds.get(&precision));
    let measured = measured.filter(|speed| speed.is_finite() && **speed > 0.0);
    let unmeasured = match precision {
        Some(Precision::Fp16 | Precision::Fp8) if on_host => Unknown::new(-0.3, 0.8),
        _ if on_host => Unknown::new(0.1, 0.4),
        _ => Unknown::new(0.3, 0.5),
    };
    Some(measured.map_or(unmeasured, |speed| Unknown::new(0.5 * ln(*speed), 0.4)))
}

/// Returns the logarithms of the smallest and the largest settings of all parameters with a role, each summed.
fn ends(space: &Space, roles: &[Option<Role>], wanted: Role) -> Option<(f64, f64)> {
    let mut ends = None;
    for (parameter, _) in space.parameters().iter().zip(roles).filter(|(_, role)| **role == Some(wanted)) {
        let (low, high) = ends.unwrap_or((0.0, 0.0));
        ends = Some((low + ln(number(parameter, 0).max(1.0)), high + last(parameter)));
    }
    ends
}

/// The logarithm of the largest setting.
pub(super) fn last(parameter: &Parameter) -> f64 {
    let last = u32::try_from(parameter.len().saturating_sub(1)).unwrap_or(u32::MAX - 1);
    ln(number(parameter, last).max(1.0))
}

fn number(parameter: &Parameter, level: u32) -> f64 {
    parameter.value(level).as_f64().unwrap_or(1.0)
}

/// Returns the prior on the batch for which launching takes as long as computing: in the lower half of the settings.
fn half_batch(space: &Space, roles: &[Option<Role>]) -> Unknown {
    let (low, high) = ends(space, roles, Role::Batch).unwrap_or((0.0, 0.0));
    Unknown::new(low + 0.3 * (high - low), 1.2)
}

/// Returns the logarithm of the batch in the middle of the settings.
pub(super) fn middle(space: &Space, roles: &[Option<Role>]) -> f64 {
    ends(space, roles, Role::Batch).map_or(0.0, |(low, high)| 0.5 * (low + high))
}

/// Returns the prior on the cores that load and compute: people usually search up to about as many workers, and as many
/// threads, as they have cores.
fn cores(space: &Space, roles: &[Option<Role>]) -> Unknown {
    let workers = ends(space, roles, Role::Workers).map(|(_, most)| most - 0.2);
    let threads = ends(space, roles, Role::Threads).map(|(_, most)| most);
    match (workers, threads) {
        (Some(workers), Some(threads)) => Unknown::new(0.5 * (workers + threads), 0.5),
        (Some(only), None) | (None, Some(only)) => Unknown::new(only, 0.6),
        (None, None) => Unknown::new(ln(6.0), 0.8),
    }
}
