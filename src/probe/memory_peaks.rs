//! Keeps peaks of device memory and retries of allocators. Separates warm-up from later steps.

use std::collections::BTreeMap;

use super::growth::{LEAST_BYTES, slope};
use super::protocol::MemoryReport;
use crate::model::MemoryUse;

#[derive(Debug, Clone, Copy)]
struct Peak {
    /// The number of steps that had ended before the time of the peak.
    after: usize,
    bytes: u64,
    capacity: Option<u64>,
}

impl Peak {
    /// Compares the peaks of two devices: the fuller device is larger. Without both capacities, the bytes decide.
    fn is_fuller_than(&self, other: &Self) -> bool {
        match (self.capacity, other.capacity) {
            (Some(own), Some(others)) => {
                u128::from(self.bytes) * u128::from(others) > u128::from(other.bytes) * u128::from(own)
            }
            _ => self.bytes > other.bytes,
        }
    }
}

/// The retries between two reports of a device, and the number of steps at the earlier report.
#[derive(Debug, Clone, Copy)]
struct Retries {
    after: usize,
    count: u64,
    /// True for a device's first report, which also covers the time before the first step.
    is_first: bool,
}

/// The state of one device at its last report.
#[derive(Debug, Clone, Copy, Default)]
struct Reported {
    /// The number of steps at the last report of a peak.
    steps: usize,
    /// The number of steps before the time that the peak covers.
    since: usize,
    has_peak: bool,
    /// The number of steps at the last report of retries, and their total.
    retries: Option<(usize, u64)>,
    capacity_bytes: Option<u64>,
    /// True if the last report has an allocation that failed.
    has_failed: bool,
}

/// All memory reports of one probe, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct MemoryPeaks {
    peaks: Vec<Peak>,
    /// The first report of each device, and each report whose total of retries has grown.
    retries: Vec<Retries>,
    /// The latest start of a time that a report of retries covers, as a number of steps. First reports do not count.
    latest: Option<usize>,
    /// For each rank and device: numbers of steps, each with the bytes in use after it.
    in_use: BTreeMap<(u32, u32), Vec<(usize, u64)>>,
    reported: BTreeMap<(u32, u32), Reported>,
    /// The last capacity of any device, for devices that report none.
    capacity_bytes: Option<u64>,
}

impl MemoryPeaks {
    /// Adds a report that a rank makes after this many steps.
    pub(super) fn push(&mut self, rank: u32, steps: usize, report: MemoryReport) {
        // Memory outside the framework is on the same device, so it counts.
        let with_other = |bytes: u64| bytes.saturating_add(report.other.unwrap_or(0));
        self.capacity_bytes = report.capacity.or(self.capacity_bytes);
        let reported = self.reported.entry((rank, report.device)).or_default();
        reported.capacity_bytes = report.capacity.or(reported.capacity_bytes);
        reported.has_failed = report.failures.is_some_and(|failures| failures > 0);
        if let Some(total) = report.retries {
            let (after, before) = reported.retries.unwrap_or_default();
            let is_first = reported.retries.is_none();
            reported.retries = Some((steps, total.max(before)));
            self.latest = if is_first { self.latest } else { self.latest.max(Some(after)) };
            let count = total.saturating_sub(before);
            if is_first || count > 0 {
                self.retries.push(Retries { after, count, is_first });
            }
            fold(&mut self.retries, |one, other| Retries {
                after: one.after.min(other.after),
                count: one.count.saturating_add(other.count),
                is_first: one.is_first,
            });
        }
        if let Some(bytes) = report.in_use.map(with_other) {
            let in_use = self.in_use.entry((rank, report.device)).or_default();
            in_use.push((steps, bytes));
            fold(in_use, |one, _| one);
        }
        let Some(bytes) = report.allocated.max(report.reserved).map(with_other) else { return };
        let after = if report.goes_on && reported.has_peak { reported.since } else { reported.steps };
        (reported.steps, reported.since, reported.has_peak) = (steps, after, true);
        self.peaks.push(Peak { after, bytes, capacity: report.capacity });
        // A joined peak has the earlier start of two, so a later peak may count as warm-up.
        fold(&mut self.peaks, |one, other| {
            let fuller = if other.is_fuller_than(&one) { other } else { one };
            Peak { after: one.after.min(other.after), ..fuller }
        });
    }

    /// Returns true if the last report of any device has an allocation that failed.
    pub(super) fn has_failed_allocations(&self) -> bool {
        self.reported.values().any(|reported| reported.has_failed)
    }

    /// Returns the use of the fullest device, and the retries of all devices, split at the end of warm-up. Reports whose
    /// time began before this many steps are warm-up.
    ///
    /// A report that spans the end of warm-up may have its peak on either side, so it counts as warm-up. If no report
    /// began later, the warm-up peak counts for both sides.
    pub(super) fn split_at(&self, warmup_steps: usize) -> MemoryUse {
        let of = |is_warmup: bool| self.peaks.iter().filter(move |peak| (peak.after < warmup_steps) == is_warmup);
        let fullest = |one: Peak, other: &Peak| if other.is_fuller_than(&one) { *other } else { one };
        let largest = |is_warmup: bool| of(is_warmup).copied().reduce(|one, other| fullest(one, &other));
        let warmup = largest(true);
        let steady = largest(false).or(warmup);
        let is_warmup = |retries: &&Retries| retries.is_first || retries.after < warmup_steps;
        let count = |kept: &dyn Fn(&&Retries) -> bool| {
            self.retries.iter().filter(kept).map(|retries| retries.count).reduce(u64::saturating_add)
        };
        let warmup_retries = count(&is_warmup);
        let is_known = self.latest.is_some_and(|latest| latest >= warmup_steps);
        let retries = count(&|retries| !is_warmup(retries)).unwrap_or(0);
        let peak_bytes = steady.map(|peak| peak.bytes);
        MemoryUse {
            peak_bytes,
            warmup_peak_bytes: warmup.map(|peak| peak.bytes).filter(|warmup| Some(*warmup) > peak_bytes),
            capacity_bytes: steady.and_then(|peak| peak.capacity).or(self.capacity_bytes),
            allocator_retries: if is_known { Some(retries) } else { warmup_retries },
            warmup_allocator_retries: warmup_retries.filter(|retries| *retries > 0),
        }
    }

    /// Returns the steady growth per step, and the bytes that are left, of the device that will be full first.
    pub(super) fn growth_after(&self, warmup_steps: usize) -> Option<(f64, f64)> {
        let of_device = |(device, in_use): (&(u32, u32), &Vec<(usize, u64)>)| {
            let later = in_use.iter().filter(|(steps, _)| *steps >= warmup_steps);
            let points: Vec<(f64, f64)> = later.map(|(steps, bytes)| (*steps as f64, *bytes as f64)).collect();
            let own = self.reported.get(device).and_then(|reported| reported.capacity_bytes);
            let left = own.or(self.capacity_bytes)? as f64 - points.last()?.1;
            Some((slope(&points, LEAST_BYTES)?, left.max(0.0)))
        };
        let growths = self.in_use.iter().filter_map(of_device);
        growths.min_by(|one, other| (one.1 / one.0).total_cmp(&(other.1 / other.0)))
    }
}

/// Joins neighbours if the list has become too long.
fn fold<T: Copy>(kept: &mut Vec<T>, both: impl Fn(T, T) -> T) {
    const KEPT: usize = 8192;
    if kept.len() >= KEPT {
        *kept = kept.chunks(2).filter_map(|pair| pair.iter().copied().reduce(&both)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peak(bytes: u64) -> MemoryReport {
        MemoryReport { allocated: Some(bytes), ..MemoryReport::default() }
    }

    /// Returns the peaks after reports, each with its rank and the number of steps before it.
    fn pushed(reports: impl IntoIterator<Item = (u32, usize, MemoryReport)>) -> MemoryPeaks {
        let mut peaks = MemoryPeaks::default();
        reports.into_iter().for_each(|(rank, steps, report)| peaks.push(rank, steps, report));
        peaks
    }

    #[test]
    fn a_report_belongs_to_the_steps_since_the_one_before() {
        let each = pushed([(0, 3, peak(90)), (1, 3, peak(95)), (0, 8, peak(70)), (1, 8, peak(50))]);
        // A peak that goes on covers the time since it was reset.
        let on = |bytes| MemoryReport { goes_on: true, ..peak(bytes) };
        let going_on = pushed([(0, 1, peak(90)), (0, 3, on(90)), (0, 8, peak(60)), (0, 12, on(65))]);
        for (reports, steps, warmup, steady) in [
            (&each, 3, Some(95), 70),
            (&each, 5, None, 95),
            (&each, 0, None, 95),
            (&going_on, 3, Some(90), 65),
            (&going_on, 2, Some(90), 65),
            (&going_on, 9, None, 90),
        ] {
            let split = reports.split_at(steps);
            assert_eq!((split.warmup_peak_bytes, split.peak_bytes), (warmup, Some(steady)), "{steps}");
        }
    }

    #[test]
    fn two_devices_of_one_rank_are_told_apart_and_the_fuller_counts() {
        let of = |device, bytes, capacity| MemoryReport { device, capacity: Some(capacity), ..peak(bytes) };
        let reports = pushed([3, 8].into_iter().flat_map(|at| [(0, at, of(0, 60, 100)), (0, at, of(1, 40, 50))]));
        let split = reports.split_at(3);
        assert_eq!((split.peak_bytes, split.capacity_bytes), (Some(40), Some(50)));
        assert_eq!(reports.split_at(5).peak_bytes, Some(40), "both began at three");
    }

    #[test]
    fn the_largest_of_many_reports_is_kept() {
        let reports = pushed((0..100_000).map(|step| {
            let retries = Some(step as u64 / 10_000);
            (0, step, MemoryReport { retries, ..peak(if step == 50_000 { 9 } else { 5 }) })
        }));
        assert!(reports.peaks.len() <= 8192 && reports.retries.len() <= 8192);
        let split = reports.split_at(10);
        assert_eq!((split.peak_bytes, split.allocator_retries), (Some(9), Some(9)));
    }

    #[test]
    fn retries_count_since_warm_up() {
        let told = [(1, 2), (5, 3), (9, 3), (12, 7)];
        let told = told.map(|(at, retries)| (0, at, MemoryReport { retries: Some(retries), ..Default::default() }));
        for (reports, steps, retries, warmup_retries) in [(1, 0, 2, 2), (3, 5, 0, 3), (3, 0, 1, 2), (4, 5, 4, 3)] {
            let split = pushed(told[..reports].iter().copied()).split_at(steps);
            let found = (split.allocator_retries, split.warmup_allocator_retries);
            assert_eq!(found, (Some(retries), Some(warmup_retries)), "{reports}");
        }
    }

    #[test]
    fn steady_growth_after_warm_up_is_found() {
        const MIB: u64 = 1 << 20;
        let growth = |bytes: &dyn Fn(u64) -> u64| {
            let report = |steps| {
                let (in_use, capacity) = (Some(bytes(steps)), Some(4096 * MIB));
                (0, steps as usize, MemoryReport { in_use, capacity, ..MemoryReport::default() })
            };
            pushed((2..=40).step_by(2).map(report)).growth_after(10)
        };
        let (per_step, left) = growth(&|steps| 96 * MIB + steps * 10 * MIB).unwrap();
        assert!((per_step / MIB as f64 - 10.0).abs() < 1e-6 && (left / MIB as f64 - 3600.0).abs() < 1e-6);
        assert_eq!(growth(&|steps| steps.min(10) * 100 * MIB), None, "only warm-up grows");
        assert_eq!(growth(&|steps| if steps < 30 { MIB } else { 900 * MIB }), None, "the optimizer's state comes late");
        assert_eq!(growth(&|steps| steps * MIB / 4), None, "too little");
    }

    #[test]
    fn capacity_and_failures_are_kept_without_a_peak() {
        let mut reports = MemoryPeaks::default();
        reports.push(0, 1, MemoryReport { capacity: Some(10), failures: Some(1), ..MemoryReport::default() });
        assert_eq!((reports.split_at(0).capacity_bytes, reports.split_at(0).peak_bytes), (Some(10), None));
        assert!(reports.has_failed_allocations());
        reports.push(0, 2, peak(1));
        assert!(!reports.has_failed_allocations());
    }

    #[test]
    fn a_device_without_failures_does_not_clear_the_failure_of_another() {
        let of = |device, failures| MemoryReport { device, failures: Some(failures), ..MemoryReport::default() };
        let failed = [(0, 1, of(0, 1)), (0, 1, of(1, 0)), (1, 1, of(0, 0))];
        assert!(pushed(failed).has_failed_allocations());
        assert!(!pushed([failed[0], failed[1], (0, 2, of(0, 0))]).has_failed_allocations());
    }

    #[test]
    fn growth_is_compared_with_the_capacity_of_its_device() {
        const MIB: u64 = 1 << 20;
        let of = |device, in_use: u64, capacity: u64| MemoryReport {
            device,
            in_use: Some(in_use * MIB),
            capacity: Some(capacity * MIB),
            ..MemoryReport::default()
        };
        let reports = (2..=40_usize)
            .step_by(2)
            .flat_map(|steps| [(0, steps, of(0, 96 + steps as u64 * 10, 1000)), (0, steps, of(1, 96, 9000))]);
        let (_, left) = pushed(reports).growth_after(10).unwrap();
        assert!((left / MIB as f64 - 504.0).abs() < 1e-6, "{left}");
    }
}
