//! Detects changes to the speed of a GPU: by settings, locked clocks, and throttling.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Clock;

use super::samples::States;

/// Bits for the reasons of low clocks (nvml.h, `nvmlClocksEventReasons`).
pub(super) mod why {
    pub(in super::super) const IDLE: u64 = 0x1;
    pub(in super::super) const SETTING: u64 = 0x2;
    pub(in super::super) const POWER_CAP: u64 = 0x4;
    pub(in super::super) const SLOWDOWN: u64 = 0x8;
    pub(in super::super) const HEAT: u64 = 0x20 | 0x40;
    pub(in super::super) const POWER_BRAKE: u64 = 0x80;
}

/// The settings that only an administrator can change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// The configured power limit in milliwatts. The enforced limit is not read: on a laptop it changes all the time.
    power_limit: Option<u32>,
    /// Application clocks in megahertz.
    sm_clock: Option<u32>,
    memory_clock: Option<u32>,
}

impl Settings {
    pub(super) fn read(device: &Device<'_>) -> Self {
        Self {
            power_limit: device.power_management_limit().ok(),
            sm_clock: device.applications_clock(Clock::Graphics).ok(),
            memory_clock: device.applications_clock(Clock::Memory).ok(),
        }
    }

    pub(super) fn changes_since(&self, before: &Self) -> Vec<String> {
        let watts = |milliwatts: u32| format!("{} W", milliwatts / 1000);
        let megahertz = |clock: u32| format!("{clock} MHz");
        let changes = [
            changed("power limit", before.power_limit, self.power_limit, watts),
            changed("application clock", before.sm_clock, self.sm_clock, megahertz),
            changed("memory's application clock", before.memory_clock, self.memory_clock, megahertz),
        ];
        changes.into_iter().flatten().collect()
    }
}

fn changed(name: &str, before: Option<u32>, now: Option<u32>, shown: impl Fn(u32) -> String) -> Option<String> {
    let (before, now) = before.zip(now).filter(|(before, now)| before != now)?;
    Some(format!("its {name} was {} before the first probe and is {} now", shown(before), shown(now)))
}

/// Detects that the clocks were locked or unlocked while a probe ran, which NVML does not report. The sign: a setting
/// limits the clock in some readings, nothing limits it in other readings, and the clock differs between them.
pub(super) fn clock_was_set(looks: &[&States]) -> Option<String> {
    /// The smallest difference that counts: clocks change on their own in steps of about 1%. A round number.
    const LEAST: f64 = 0.05;
    const LIMITED: u64 = why::IDLE | why::POWER_CAP | why::SLOWDOWN | why::HEAT | why::POWER_BRAKE;
    let clock = |test: &dyn Fn(u64) -> bool| {
        let of_it = |look: &&&States| look.reasons.as_ref().is_ok_and(|reasons| test(*reasons));
        let clocks: Vec<f64> = looks.iter().filter(of_it).filter_map(|it| it.sm_clock.as_ref().ok().copied()).collect();
        (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64)
    };
    let set = clock(&|reasons| reasons & why::SETTING != 0)?;
    let free = clock(&|reasons| reasons & (LIMITED | why::SETTING) == 0)?;
    ((set - free).abs() > LEAST * free)
        .then(|| format!("its clocks were set while the probe ran ({set:.0} MHz and {free:.0} MHz)"))
}

/// Returns the share of readings with at least one of these bits; `None` if no reading reports reasons.
pub(super) fn share_with(looks: &[&States], bits: u64) -> Option<f64> {
    let told: Vec<u64> = looks.iter().filter_map(|look| look.reasons.as_ref().ok().copied()).collect();
    let with = told.iter().filter(|reasons| *reasons & bits != 0).count();
    (!told.is_empty()).then(|| with as f64 / told.len() as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn look(reasons: u64, clock: f64) -> States {
        let nothing = || Err(String::new());
        States {
            at: Instant::now(),
            memory: Err(String::new()),
            processes: Err(String::new()),
            power: nothing(),
            sm_clock: Ok(clock),
            memory_clock: nothing(),
            reasons: Ok(reasons),
            busy: nothing(),
            shares: Err(String::new()),
        }
    }

    #[test]
    fn clocks_that_somebody_locks_are_seen_and_a_power_cap_is_not_taken_for_it() {
        let seen = |looks: &[States]| clock_was_set(&looks.iter().collect::<Vec<_>>());
        assert!(seen(&[look(0, 1980.0), look(why::SETTING, 1200.0)]).is_some());
        assert!(seen(&[look(why::POWER_CAP, 1500.0), look(why::SETTING, 1980.0)]).is_none());
        assert!(seen(&[look(why::IDLE, 300.0), look(why::SETTING, 1980.0)]).is_none());
        assert!(seen(&[look(0, 1980.0), look(why::SETTING, 1965.0)]).is_none());
    }
}
