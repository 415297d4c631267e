//! Keeps peaks of device memory and retries of allocators. Separates warm-up from later steps.

use std::collections::BTreeMap;

use super::growth::{LEAST_BYTES, slope};

/// One report of device memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MemoryReport {
    /// The number of the device, for a rank with several devices.
    pub(super) device: u32,
    /// True if the peak also covers the time of the last report of this device.
    pub(super) goes_on: bool,
    /// The largest use in bytes since the last report, or since the start, including memory outside the framework.
    pub(super) peak_bytes: Option<u64>,
    /// The use in bytes now, including memory outside the framework.
    pub(super) in_use_bytes: Option<u64>,
    /// The device's memory capacity in bytes.
    pub(super) capacity_bytes: Option<u64>,
    /// How often the allocator has freed its caches and tried again, in total.
    pub(super) retries: Option<u64>,
    /// How often an allocation has failed since the last report.
    pub(super) failures: Option<u64>,
}

/// A peak, and the number of steps before its time.
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

/// Retries, and the number of steps before their time.
#[derive(Debug, Clone, Copy)]
struct Retries {
    after: usize,
    count: u64,
    /// True if they are in a device's first report, which also covers the time before the first step.
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
}

/// All memory reports of one probe, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct MemoryPeaks {
    peaks: Vec<Peak>,
    /// Reports with other retries than the report before, and the first report of each device.
    retries: Vec<Retries>,
    /// The largest number of steps before a report of retries, without the first reports.
    latest: Option<usize>,
    /// The use of each device of each rank, in bytes, after a number of steps.
    in_use: BTreeMap<(u32, u32), Vec<(usize, u64)>>,
    /// The state of each device of each rank.
    reported: BTreeMap<(u32, u32), Reported>,
    capacity_bytes: Option<u64>,
    /// True if an allocation failed since the last report with a peak.
    pub(super) has_failed_allocations: bool,
}

/// The numbers before and after a step, of the fullest device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) warmup: Option<u64>,
    pub(super) steady: Option<u64>,
    /// The capacity of the device with the steady peak.
    pub(super) capacity: Option<u64>,
    /// Retries of all devices after warm-up.
    pub(super) retries: Option<u64>,
    pub(super) warmup_retries: Option<u64>,
}

impl MemoryPeaks {
    /// Adds a report that a rank makes after this many steps.
    pub(super) fn push(&mut self, rank: u32, steps: usize, report: MemoryReport) {
        self.capacity_bytes = report.capacity_bytes.or(self.capacity_bytes);
        self.has_failed_allocations = report.failures.is_some_and(|failures| failures > 0);
        let reported = self.reported.entry((rank, report.device)).or_default();
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
        if let Some(bytes) = report.in_use_bytes {
            let in_use = self.in_use.entry((rank, report.device)).or_default();
            in_use.push((steps, bytes));
            fold(in_use, |one, _| one);
        }
        let Some(bytes) = report.peak_bytes else { return };
        let after = if report.goes_on && reported.has_peak { reported.since } else { reported.steps };
        (reported.steps, reported.since, reported.has_peak) = (steps, after, true);
        self.peaks.push(Peak { after, bytes, capacity: report.capacity_bytes });
        // A peak may then be counted as warm-up.
        fold(&mut self.peaks, |one, other| {
            let fuller = if other.is_fuller_than(&one) { other } else { one };
            Peak { after: one.after.min(other.after), ..fuller }
        });
    }

    /// Splits peaks and retries into those whose time began before the end of this many steps, and later ones.
    ///
    /// A report that spans the end of warm-up may have its peak on either side, and counts as warm-up. If it is the only report, it
    /// counts for both.
    pub(super) fn split_at(&self, warmup_steps: usize) -> Split {
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
        Split {
            warmup: warmup.map(|peak| peak.bytes),
            steady: steady.map(|peak| peak.bytes),
            capacity: steady.and_then(|peak| peak.capacity).or(self.capacity_bytes),
            retries: if is_known { Some(retries) } else { warmup_retries },
            warmup_retries,
        }
    }

    /// Returns the bytes by which the use of a device grows in a step after warm-up, if it grows steadily, and the bytes that are left.
    /// Of several devices, the first that is full counts.
    pub(super) fn growth_after(&self, warmup_steps: usize) -> Option<(f64, f64)> {
        #[expect(clippy::cast_precision_loss, reason = "sizes and counts")]
        let of_device = |in_use: &Vec<(usize, u64)>| {
            let later = in_use.iter().filter(|(steps, _)| *steps >= warmup_steps);
            let points: Vec<(f64, f64)> = later.map(|(steps, bytes)| (*steps as f64, *bytes as f64)).collect();
            let left = self.capacity_bytes? as f64 - points.last()?.1;
            Some((slope(&points, LEAST_BYTES)?, left.max(0.0)))
        };
        let growths = self.in_use.values().filter_map(of_device);
        growths.min_by(|one, other| (one.1 / one.0).total_cmp(&(other.1 / other.0)))
    }
}

/// Folds neighbours if there are too many.
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
        MemoryReport { peak_bytes: Some(bytes), ..MemoryReport::default() }
    }

    fn peaks(split: Split) -> (Option<u64>, Option<u64>) {
        (split.warmup, split.steady)
    }

    #[test]
    fn a_report_belongs_to_the_steps_since_the_one_before() {
        let mut reports = MemoryPeaks::default();
        reports.push(0, 3, peak(90));
        reports.push(1, 3, peak(95));
        reports.push(0, 8, peak(70));
        reports.push(1, 8, peak(50));
        assert_eq!(peaks(reports.split_at(3)), (Some(95), Some(70)));
        assert_eq!(peaks(reports.split_at(5)), (Some(95), Some(95)), "nothing began after five");
        assert_eq!(peaks(reports.split_at(0)), (None, Some(95)));
    }

    #[test]
    fn a_peak_that_goes_on_covers_the_time_since_it_was_reset() {
        let mut reports = MemoryPeaks::default();
        reports.push(0, 1, peak(90));
        reports.push(0, 3, MemoryReport { goes_on: true, ..peak(90) });
        reports.push(0, 8, peak(60));
        reports.push(0, 12, MemoryReport { goes_on: true, ..peak(65) });
        assert_eq!(peaks(reports.split_at(3)), (Some(90), Some(65)));
        assert_eq!(peaks(reports.split_at(2)), (Some(90), Some(65)));
        assert_eq!(peaks(reports.split_at(9)), (Some(90), Some(90)), "the later peak began before");
    }

    #[test]
    fn two_devices_of_one_rank_are_told_apart_and_the_fuller_counts() {
        let of = |device, bytes, capacity| MemoryReport { device, capacity_bytes: Some(capacity), ..peak(bytes) };
        let mut reports = MemoryPeaks::default();
        for steps in [3, 8] {
            reports.push(0, steps, of(0, 60, 100));
            reports.push(0, steps, of(1, 40, 50));
        }
        let split = reports.split_at(3);
        assert_eq!((split.steady, split.capacity), (Some(40), Some(50)));
        assert_eq!(reports.split_at(5).steady, Some(40), "both began at three");
    }

    #[test]
    fn the_largest_of_many_reports_is_kept() {
        let mut reports = MemoryPeaks::default();
        for step in 0..100_000 {
            let retries = Some(step as u64 / 10_000);
            reports.push(0, step, MemoryReport { retries, ..peak(if step == 50_000 { 9 } else { 5 }) });
        }
        assert!(reports.peaks.len() <= 8192 && reports.retries.len() <= 8192);
        assert_eq!((reports.split_at(10).steady, reports.split_at(10).retries), (Some(9), Some(9)));
    }

    #[test]
    fn retries_count_since_warm_up() {
        let mut reports = MemoryPeaks::default();
        let retries = |retries| MemoryReport { retries: Some(retries), ..MemoryReport::default() };
        reports.push(0, 1, retries(2));
        let only = reports.split_at(0);
        assert_eq!((only.retries, only.warmup_retries), (Some(2), Some(2)), "the only report counts for both");
        reports.push(0, 5, retries(3));
        reports.push(0, 9, retries(3));
        assert_eq!((reports.split_at(5).retries, reports.split_at(5).warmup_retries), (Some(0), Some(3)));
        assert_eq!((reports.split_at(0).retries, reports.split_at(0).warmup_retries), (Some(1), Some(2)));
        reports.push(0, 12, retries(7));
        assert_eq!(reports.split_at(5).retries, Some(4));
    }

    #[test]
    fn steady_growth_after_warm_up_is_found() {
        const MIB: u64 = 1 << 20;
        let growth = |bytes: &dyn Fn(u64) -> u64| {
            let mut reports = MemoryPeaks::default();
            for steps in (2..=40).step_by(2) {
                let (in_use_bytes, capacity_bytes) = (Some(bytes(steps)), Some(4096 * MIB));
                let report = MemoryReport { in_use_bytes, capacity_bytes, ..MemoryReport::default() };
                reports.push(0, steps as usize, report);
            }
            reports.growth_after(10)
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
        reports.push(0, 1, MemoryReport { capacity_bytes: Some(10), failures: Some(1), ..MemoryReport::default() });
        assert_eq!((reports.split_at(0).capacity, reports.split_at(0).steady), (Some(10), None));
        assert!(reports.has_failed_allocations);
        reports.push(0, 2, peak(1));
        assert!(!reports.has_failed_allocations);
    }
}
