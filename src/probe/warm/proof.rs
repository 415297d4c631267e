//! Whether a config that was forked from a zygote measures as it did in a process of its own.

use crate::model::Measurement;
use crate::model::quantity::show_bytes;
use crate::probe::Limits;

/// The most by which two runs of the same config may differ, whatever their intervals: as for a tie between configs.
const WIDEST: f64 = 0.1;
/// The difference that is always allowed. Nothing is known of the job yet, so runs are taken to differ by a standard deviation
/// of 3 %, as the search does (`search::noise`); 95 % of differences between two of them are below 1.96 * sqrt(2) * 3 %.
const BETWEEN_RUNS: f64 = 0.083;
/// The relative half width beyond which measuring on would show no difference that is not allowed. A round number below it.
const PRECISE: f64 = 0.05;
/// The difference in peak memory that is allowed: a share of it, and what an allocator keeps at most. Round numbers.
const MEMORY_SHARE: f64 = 0.02;
const MEMORY_BYTES: f64 = 64e6;

/// The limits under which a config is measured for the comparison with the `last` run: as precisely as that was measured, as
/// far as that matters.
pub(super) fn limits(limits: &Limits, last: &Measurement) -> Limits {
    let precision = half_width(last).clamp(PRECISE, WIDEST);
    Limits { precision: Some(limits.precision().max(precision)), ..*limits }
}

fn half_width(run: &Measurement) -> f64 {
    run.throughput.and_then(|throughput| throughput.relative_half_width()).unwrap_or(WIDEST)
}

/// Compares two measurements of a config; the error says how they differ.
pub(super) fn agree(fresh: &Measurement, warm: &Measurement) -> Result<(), String> {
    same_rate(fresh, warm)?;
    if let (Some(before), Some(now)) = (fresh.memory.peak_bytes, warm.memory.peak_bytes) {
        #[expect(clippy::cast_precision_loss, reason = "bytes of memory are far below 2^52")]
        let (before, now) = (before as f64, now as f64);
        if (now - before).abs() > MEMORY_BYTES.max(MEMORY_SHARE * before) {
            let [before, now] = [fresh, warm].map(|run| show_bytes(run.memory.peak_bytes.unwrap_or(0)));
            return Err(format!("its memory peak was {now} instead of {before}"));
        }
    }
    Ok(())
}

/// Compares only the throughput of two measurements of a config; the error says how it differs.
pub(in crate::probe) fn same_rate(one: &Measurement, other: &Measurement) -> Result<(), String> {
    let (Some(before), Some(now)) = (one.throughput, other.throughput) else {
        return Err("it was not measured".to_owned());
    };
    let allowed = half_width(one).hypot(half_width(other)).clamp(BETWEEN_RUNS, WIDEST);
    let difference = now.value / before.value - 1.0;
    if difference.abs() > allowed {
        return Err(format!("its throughput was {:+.1} %", difference * 100.0));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Estimate;

    fn run(value: f64, half_width: f64, bytes: u64) -> Measurement {
        let throughput = Estimate::interval(value, value * (1.0 - half_width), value * (1.0 + half_width));
        let mut run = Measurement { throughput: Some(throughput), ..Measurement::default() };
        run.memory.peak_bytes = Some(bytes);
        run
    }

    #[test]
    fn noise_is_no_difference_and_memory_counts() {
        let fresh = run(100.0, 0.01, 4 << 30);
        assert_eq!(agree(&fresh, &run(108.0, 0.01, 4 << 30)), Ok(()));
        assert!(agree(&fresh, &run(109.0, 0.01, 4 << 30)).unwrap_err().contains("+9.0 %"));
        assert_eq!(agree(&fresh, &run(109.0, 0.09, 4 << 30)), Ok(()));
        assert!(agree(&fresh, &run(120.0, 0.5, 4 << 30)).is_err());
        assert!(agree(&fresh, &run(100.0, 0.01, 5 << 30)).unwrap_err().contains("memory"));
        assert!(agree(&fresh, &Measurement::default()).is_err());
    }
}
