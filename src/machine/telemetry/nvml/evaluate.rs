//! Computes a GPU's readings in the measured window, and finds disturbances from outside the probe.

use std::collections::BTreeMap;

use nvml_wrapper::Nvml;

use super::Window;
use super::ask::Told;
use super::changes::{self, Settings, why};
use super::gpm;
use super::owners::{Owner, Owners};
use super::samples::{Counters, States, ends, within};
use super::watched::Watched;
use crate::machine::telemetry::{Dcgm, GpuState, UNEXPLAINED_BYTES};
use crate::model::{GpuUse, Metric, Reading, Readings, Source, quantity::show_bytes};

/// The context in which the readings of one GPU are evaluated.
pub(super) struct Circumstances<'c> {
    pub(super) nvml: &'static Nvml,
    pub(super) window: Window,
    /// The window in microseconds since 1970.
    pub(super) clock: (u64, u64),
    pub(super) owners: &'c Owners,
    /// The memory that was in use before the probe.
    pub(super) idle: &'c GpuState,
    /// True if a process id that NVML lists on any GPU belongs to the probe.
    pub(super) is_matched: bool,
    pub(super) first_settings: &'c Settings,
    /// The source for the metrics of GPUs without GPM; `None` if it is not used.
    pub(super) dcgm: Option<&'c Dcgm>,
}

#[derive(Default)]
struct Numbers {
    readings: Readings,
    missing: BTreeMap<String, Vec<&'static str>>,
}

impl Numbers {
    fn put(&mut self, metric: Metric, source: Source, told: Told<f64>) {
        match told {
            Ok(value) => drop(self.readings.insert(metric, Reading { value, source })),
            Err(reason) => self.missing.entry(reason).or_default().push(metric.label()),
        }
    }
}

/// Evaluates a GPU; returns its readings, and the disturbances.
pub(super) fn evaluate(watched: &Watched, of: &Circumstances<'_>) -> (GpuUse, Vec<String>) {
    let mut numbers = Numbers::default();
    let looks = within(&watched.states, of.window);
    from_gpm(watched, of, &mut numbers);
    from_counters(watched, of, &looks, &mut numbers);
    from_states(watched, of, &looks, &mut numbers);
    memory(watched, of, &looks, &mut numbers);
    numbers.put(Metric::EccErrors, Source::Nvml, watched.new_ecc_errors().map(|errors| errors as f64));
    let xids = watched.no_events.clone().map_or(Ok(watched.xids.len() as f64), Err);
    numbers.put(Metric::XidErrors, Source::Nvml, xids);
    let disturbances = disturbances(watched, of, &looks, &numbers.readings);
    let absent = numbers.missing.into_iter().map(|(reason, names)| format!("{}: {reason}", names.join(", ")));
    let identity = &watched.handle.identity;
    let (uuid, name, xids) = (identity.uuid.clone(), identity.name.clone(), watched.xids.clone());
    (GpuUse { uuid, name, readings: numbers.readings, xids, absent: absent.collect() }, disturbances)
}

const NO_LOOKS: &str = "the measured time is too short, or the device was asked too seldom in it";

fn from_gpm(watched: &Watched, of: &Circumstances<'_>, numbers: &mut Numbers) {
    let sampled: Vec<&Counters> = watched.counters.iter().filter(|look| look.gpm.is_some()).collect();
    let pair = ends(&sampled, |look| look.at, of.window);
    let pair = pair.and_then(|(first, last)| first.gpm.as_ref().zip(last.gpm.as_ref()));
    let told = match (pair, watched.gpm.failure()) {
        (Some((first, last)), None) => gpm::between(of.nvml, first, last),
        (_, failure) => {
            let reason = failure.unwrap_or(NO_LOOKS);
            gpm::METRICS.iter().map(|(metric, ..)| (*metric, Err(reason.to_owned()))).collect()
        }
    };
    let uuid = &watched.handle.identity.uuid;
    let asked = of.dcgm.filter(|_| watched.gpm.failure().is_some());
    let instead = asked.map(|dcgm| (dcgm.readings(uuid, of.window.begin, of.window.end), dcgm.absent()));
    let (readings, absent) = instead.unwrap_or_default();
    let absent = absent.map(|reason| format!("; {reason}")).unwrap_or_default();
    for (metric, told) in told {
        match readings.get(&metric).filter(|_| told.is_err()) {
            Some(reading) => numbers.put(metric, reading.source, Ok(reading.value)),
            None => numbers.put(metric, Source::Gpm, told.map_err(|reason| format!("GPM: {reason}{absent}"))),
        }
    }
}

/// Returns the rise of a counter per second.
fn rate(watched: &Watched, window: Window, counter: fn(&Counters) -> &Told<f64>) -> Told<f64> {
    // If the last reading failed, the rise over the whole window is not known.
    if let Some(failure) = watched.counters.last().and_then(|look| counter(look).as_ref().err()) {
        return Err(failure.clone());
    }
    let told: Vec<&Counters> = watched.counters.iter().filter(|look| counter(look).is_ok()).collect();
    let (first, last) = ends(&told, |look| look.at, window).ok_or(NO_LOOKS)?;
    let rise = counter(last).clone()? - counter(first).clone()?;
    if rise < 0.0 {
        return Err("the counter was set back".to_owned());
    }
    Ok(rise / last.at.saturating_duration_since(first.at).as_secs_f64())
}

fn from_counters(watched: &Watched, of: &Circumstances<'_>, looks: &[&States], numbers: &mut Numbers) {
    let watts = rate(watched, of.window, |look| &look.energy)
        .and_then(|watts| if watts > 0.0 { Ok(watts) } else { Err("the counter of energy stood still".to_owned()) });
    let (from, to) = of.clock;
    match watched.power.mean(from, to) {
        Ok(milliwatts) => numbers.put(Metric::Power, Source::NvmlSamples, Ok(milliwatts / 1000.0)),
        Err(_) => numbers.put(Metric::Power, Source::Nvml, mean(looks, |look| &look.power).or_else(|_| watts.clone())),
    }
    numbers.put(Metric::Energy, Source::Nvml, watts.map(|watts| watts * of.window.length().as_secs_f64()));
    let throttled = [
        (Metric::ThrottledByPower, rate(watched, of.window, |look| &look.by_power), why::POWER_CAP | why::POWER_BRAKE),
        (Metric::ThrottledByHeat, rate(watched, of.window, |look| &look.by_heat), why::HEAT),
    ];
    for (metric, told, bits) in throttled {
        let told = told.or_else(|reason| changes::share_with(looks, bits).ok_or(reason));
        numbers.put(metric, Source::Nvml, told.map(|share| share.min(1.0)));
    }
}

fn from_states(watched: &Watched, of: &Circumstances<'_>, looks: &[&States], numbers: &mut Numbers) {
    let (from, to) = of.clock;
    match watched.busy.mean(from, to) {
        Ok(percent) => numbers.put(Metric::GpuBusy, Source::NvmlSamples, Ok(percent / 100.0)),
        Err(_) => numbers.put(Metric::GpuBusy, Source::Nvml, mean(looks, |look| &look.busy)),
    }
    numbers.put(Metric::SmClock, Source::Nvml, mean(looks, |look| &look.sm_clock));
    numbers.put(Metric::MemoryClock, Source::Nvml, mean(looks, |look| &look.memory_clock));
}

/// Returns the mean over readings. If any reading failed, the mean over the whole window is not known.
fn mean(looks: &[&States], of: fn(&States) -> &Told<f64>) -> Told<f64> {
    if looks.is_empty() {
        return Err(NO_LOOKS.to_owned());
    }
    let told: Told<Vec<f64>> = looks.iter().map(|look| of(look).clone()).collect();
    told.map(|told| told.iter().sum::<f64>() / told.len() as f64)
}

/// Returns the memory that the probe's own processes held in one reading, if it is reported for each of them.
fn own(look: &States, owners: &Owners) -> Option<u64> {
    let processes = look.processes.as_ref().ok()?;
    processes.iter().filter(|(pid, _)| owners.of(*pid) == Owner::Own).map(|(_, bytes)| *bytes).sum()
}

fn memory(watched: &Watched, of: &Circumstances<'_>, looks: &[&States], numbers: &mut Numbers) {
    let mut put = |source, told: Told<(u64, u64)>| {
        numbers.put(Metric::MemoryOwn, source, told.clone().map(|(own, _)| own as f64));
        numbers.put(Metric::MemoryOthers, source, told.map(|(_, others)| others as f64));
    };
    let told: Told<Vec<u64>> = looks.iter().map(|look| look.memory.clone().map(|memory| memory.used)).collect();
    let used = match told {
        Ok(used) if !used.is_empty() => used,
        Ok(_) => return put(Source::Nvml, Err(NO_LOOKS.to_owned())),
        Err(reason) => return put(Source::Nvml, Err(reason)),
    };
    let own: Option<Vec<u64>> = looks.iter().map(|look| own(look, of.owners)).collect();
    if let Some(own) = own.filter(|_| of.is_matched) {
        let others = used.iter().zip(&own).map(|(used, own)| used.saturating_sub(*own)).max().unwrap_or(0);
        return put(Source::NvmlProcesses, Ok((own.into_iter().max().unwrap_or(0), others)));
    }
    let most = used.into_iter().max().unwrap_or(0);
    let before = of.idle.used_of(&watched.handle.identity.uuid);
    let before = before.ok_or_else(|| "the memory in use before the probe is not known".to_owned());
    put(Source::Difference, before.map(|before| (most.saturating_sub(before), before.min(most))));
}

/// Returns the outside influences on the device in the window.
///
/// * A process that came after the start of the probe, or an older process that computes for [`BUSY`] of the time.
/// * Heat for [`HEAT`] of the time, and any hardware protection, however short.
/// * Settings that were changed since the first probe, or clocks that were locked.
///
/// A power cap is not a disturbance: a device at full load works at its cap all the time, so every probe would count as
/// disturbed. The readings show how long it was throttled.
fn disturbances(watched: &Watched, of: &Circumstances<'_>, looks: &[&States], readings: &Readings) -> Vec<String> {
    let place = watched.handle.identity.place();
    let mut found = newcomers(watched, of, looks);
    found.extend(busy_others(watched, of, looks));
    if let Some(heat) = readings.get(&Metric::ThrottledByHeat).filter(|heat| heat.value >= HEAT) {
        found.push(format!("heat slowed {place} down for {:.1} % of the time", heat.value * 100.0));
    }
    let count = |bits: u64| looks.iter().filter(|look| look.reasons.as_ref().is_ok_and(|bit| bit & bits != 0)).count();
    // A slowdown is also reported for a moment when clocks change (nvml.h, `nvmlClocksEventReasonHwSlowdown`).
    if count(why::POWER_BRAKE) > 0 || count(why::SLOWDOWN) > 1 {
        found.push(format!("the hardware slowed {place} down to protect itself or its power supply"));
    }
    let settings = watched.settings().changes_since(of.first_settings);
    found.extend(settings.into_iter().chain(changes::clock_was_set(looks)).map(|change| format!("{place}: {change}")));
    found
}

/// Heat is a disturbance from this share of time on. The value is a choice: lower clocks for less time change a
/// throughput by less than half a percent, which probes cannot detect.
const HEAT: f64 = 0.005;
/// Another program's kernels are a disturbance from this share of time on. The value is a choice: shorter use changes a
/// throughput by no more than a difference that may still count as a tie.
const BUSY: f64 = 0.05;

/// Returns true if a process certainly does not belong to the probe.
fn is_foreign(pid: u32, watched: &Watched, of: &Circumstances<'_>) -> bool {
    let was_there = of.idle.has(pid, &watched.handle.identity.uuid);
    match of.owners.of(pid) {
        Owner::Own => false,
        Owner::Foreign if of.is_matched => true,
        _ => was_there,
    }
}

fn newcomers(watched: &Watched, of: &Circumstances<'_>, looks: &[&States]) -> Vec<String> {
    let identity = &watched.handle.identity;
    let mut seen: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for look in looks.iter().filter(|_| of.is_matched) {
        for &(pid, bytes) in look.processes.iter().flatten() {
            let is_own = of.owners.of(pid) == Owner::Own;
            // A process number that does not exist here counts only if some memory has no known holder.
            let is_real = of.owners.of(pid) == Owner::Foreign || has_unexplained_memory(look, watched, of);
            if !is_own && is_real && !of.idle.has(pid, &identity.uuid) {
                let known = seen.entry(pid).or_default();
                *known = (*known).max(bytes);
            }
        }
    }
    let told = seen.into_iter().map(|(pid, bytes)| {
        let held = bytes.map(|bytes| format!(" and holds {} of it", show_bytes(bytes))).unwrap_or_default();
        format!("{} came onto {} during the probe{held}", of.owners.name(pid), identity.place())
    });
    told.collect()
}

/// Returns true if more memory is in use than before the probe and by the probe together.
fn has_unexplained_memory(look: &States, watched: &Watched, of: &Circumstances<'_>) -> bool {
    let before = of.idle.used_of(&watched.handle.identity.uuid).unwrap_or(0);
    let own = own(look, of.owners).unwrap_or(u64::MAX);
    look.memory.as_ref().is_ok_and(|memory| memory.used > before.saturating_add(own).saturating_add(UNEXPLAINED_BYTES))
}

fn busy_others(watched: &Watched, of: &Circumstances<'_>, looks: &[&States]) -> Vec<String> {
    let told: Vec<&Vec<(u32, f64)>> = looks.iter().filter_map(|look| look.shares.as_ref().ok()).collect();
    let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
    for &(pid, share) in told.iter().copied().flatten() {
        *sums.entry(pid).or_default() += share;
    }
    let means = sums.into_iter().map(|(pid, sum)| (pid, sum / told.len() as f64));
    let foreign = means.filter(|(pid, share)| *share >= BUSY && is_foreign(*pid, watched, of));
    foreign
        .map(|(pid, share)| {
            let place = watched.handle.identity.place();
            format!("{} computed on {place} for {:.0} % of the time", of.owners.name(pid), share * 100.0)
        })
        .collect()
}
