//! Describes notable readings of a probe's processes on the host in a few words.

use crate::model::{Metric, Reading, Readings, Source, quantity::show_bytes};

/// The share of the time from which a wait is mentioned: a round number.
const NOTABLE: f64 = 0.05;

/// The bytes read per second from which reads are mentioned: a round number, above what a program reads for itself.
const NOTABLE_READS: f64 = 1e6;

/// Returns the readings in a line like `CPU 3.2 cores, reads 113 MiB/s, waits for storage 12 % of the time`; `None` if no reading
/// is notable.
pub(super) fn host_words(host: &Readings) -> Option<String> {
    let value = |metric: Metric| host.get(&metric).map(|reading| reading.value);
    let mut words = Vec::new();
    words.extend(value(Metric::CpuCores).map(|cores| format!("{} {cores:.1} cores", Metric::CpuCores.label())));
    let reads = value(Metric::ReadRate).filter(|rate| *rate >= NOTABLE_READS);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown in three digits")]
    words.extend(reads.map(|rate| format!("{} {}/s", Metric::ReadRate.label(), show_bytes(rate as u64))));
    for metric in [Metric::CpuPressure, Metric::IoPressure, Metric::MemoryPressure] {
        if let Some(Reading { value, source }) = host.get(&metric).filter(|reading| reading.value >= NOTABLE) {
            let whose = if *source == Source::Proc { " (on the whole machine)" } else { "" };
            words.push(format!("{} {:.0} % of the time{whose}", metric.label(), value * 100.0));
        }
    }
    let throttled = value(Metric::CpuThrottled).filter(|share| *share >= NOTABLE);
    let label = Metric::CpuThrottled.label();
    words.extend(throttled.map(|share| format!("{label} in {:.0} % of its periods", share * 100.0)));
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_says_something_is_said() {
        let readings = |readings: &[(Metric, f64, Source)]| {
            readings.iter().map(|&(metric, value, source)| (metric, Reading { value, source })).collect::<Readings>()
        };
        assert_eq!(host_words(&Readings::new()), None);
        let quiet = [
            (Metric::CpuCores, 0.96, Source::Proc),
            (Metric::ReadRate, 5e4, Source::Proc),
            (Metric::IoPressure, 0.01, Source::Cgroup),
            (Metric::CpuThrottled, 0.0, Source::Cgroup),
            (Metric::HostMemory, 1e9, Source::Proc),
        ];
        assert_eq!(host_words(&readings(&quiet)).unwrap(), "CPU 1.0 cores");
        let loud = [
            (Metric::CpuCores, 3.21, Source::Proc),
            (Metric::ReadRate, 118_489_088.0, Source::Proc),
            (Metric::CpuPressure, 0.3, Source::Proc),
            (Metric::IoPressure, 0.12, Source::Cgroup),
            (Metric::CpuThrottled, 0.5, Source::Cgroup),
        ];
        assert_eq!(
            host_words(&readings(&loud)).unwrap(),
            "CPU 3.2 cores, reads 113 MiB/s, waits for a processor 30 % of the time (on the whole machine), waits for storage \
             12 % of the time, held back by the CPU quota in 50 % of its periods"
        );
    }
}
