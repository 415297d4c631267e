//! Keeps peaks of device memory, and separates the peaks of warm-up.

use std::collections::BTreeMap;

/// One report of device memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MemoryReport {
    /// The largest use in bytes since the rank's last report, or since its start, including memory outside the framework.
    pub(super) peak_bytes: Option<u64>,
    /// The device's memory capacity in bytes.
    pub(super) capacity_bytes: Option<u64>,
    /// How often the allocator has freed its caches and tried again.
    pub(super) retries: Option<u64>,
}

/// A peak, and the number of steps before it.
#[derive(Debug, Clone, Copy)]
struct Peak {
    /// The number of steps that had ended before the peak.
    after: usize,
    bytes: u64,
}

/// All memory reports of one probe, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct MemoryPeaks {
    peaks: Vec<Peak>,
    /// The number of steps that had ended at each rank's last report.
    reported: BTreeMap<u32, usize>,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) retries: Option<u64>,
}

/// The peaks before and after a step, on the fullest rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) warmup: Option<u64>,
    pub(super) steady: Option<u64>,
}

impl MemoryPeaks {
    /// Adds a report that a rank makes after this many steps.
    pub(super) fn push(&mut self, rank: u32, steps: usize, report: MemoryReport) {
        const KEPT: usize = 8192;
        self.capacity_bytes = report.capacity_bytes.or(self.capacity_bytes);
        self.retries = self.retries.max(report.retries);
        let Some(bytes) = report.peak_bytes else { return };
        let after = self.reported.insert(rank, steps).unwrap_or(0);
        self.peaks.push(Peak { after, bytes });
        if self.peaks.len() >= KEPT {
            // Keeps the larger of two neighbours with the earlier step, so a peak may be counted as warm-up.
            let larger = |pair: &[Peak]| Peak {
                after: pair.iter().map(|peak| peak.after).min().unwrap_or(0),
                bytes: pair.iter().map(|peak| peak.bytes).max().unwrap_or(0),
            };
            self.peaks = self.peaks.chunks(2).map(larger).collect();
        }
    }

    /// Splits peaks into peaks that began before the end of this many steps, and later peaks.
    ///
    /// A report that spans the end of warm-up may have its peak on either side, and counts as warm-up. If it is the only report, it
    /// counts for both.
    pub(super) fn split_at(&self, warmup_steps: usize) -> Split {
        let largest = |is_warmup: bool| {
            let of_it = self.peaks.iter().filter(|peak| (peak.after < warmup_steps) == is_warmup);
            of_it.map(|peak| peak.bytes).max()
        };
        let (warmup, steady) = (largest(true), largest(false));
        Split { warmup, steady: steady.or(warmup) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peak(bytes: u64) -> MemoryReport {
        MemoryReport { peak_bytes: Some(bytes), ..MemoryReport::default() }
    }

    #[test]
    fn a_report_belongs_to_the_steps_since_the_one_before() {
        let mut peaks = MemoryPeaks::default();
        peaks.push(0, 3, peak(90));
        peaks.push(1, 3, peak(95));
        peaks.push(0, 8, peak(70));
        peaks.push(1, 8, peak(50));
        assert_eq!(peaks.split_at(3), Split { warmup: Some(95), steady: Some(70) });
        assert_eq!(peaks.split_at(5), Split { warmup: Some(95), steady: Some(95) }, "nothing began after five");
        assert_eq!(peaks.split_at(0), Split { warmup: None, steady: Some(95) });
    }

    #[test]
    fn the_largest_of_many_reports_is_kept() {
        let mut peaks = MemoryPeaks::default();
        for step in 0..100_000 {
            peaks.push(0, step, peak(if step == 50_000 { 9 } else { 5 }));
        }
        assert!(peaks.peaks.len() <= 8192);
        assert_eq!(peaks.split_at(10).steady, Some(9));
    }

    #[test]
    fn retries_and_capacity_are_kept_without_a_peak() {
        let mut peaks = MemoryPeaks::default();
        peaks.push(0, 1, MemoryReport { peak_bytes: None, capacity_bytes: Some(10), retries: Some(2) });
        peaks.push(0, 2, MemoryReport { retries: Some(1), ..MemoryReport::default() });
        assert_eq!((peaks.capacity_bytes, peaks.retries, peaks.split_at(0).steady), (Some(10), Some(2), None));
    }
}
