//! The remaining time of the allocation that this process runs in.
//!
//! Only the remaining time is taken from Slurm; this process's own monotonic clock counts it down.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::telemetry::tool;

/// How long `squeue` may take: the default time-out of Slurm's controller (`slurm.conf`(5), `MessageTimeout`).
const PATIENCE: Duration = Duration::from_secs(10);

/// An allocation with a time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    ends: Instant,
}

impl Allocation {
    /// Returns the allocation of the Slurm job that this process is part of. `None` outside of a job, or if the job's
    /// end is not known. Asks `squeue` first, then reads `SLURM_JOB_END_TIME`.
    pub fn here() -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let job = variable("SLURM_JOB_ID")?;
        // `%L`: the time left, as a duration (`squeue`(1)).
        let told = tool::output_within(Command::new("squeue").args(["-h", "-j", &job, "-o", "%L"]), PATIENCE);
        if let Some(told) = told {
            return slurm_duration(String::from_utf8_lossy(&told).trim()).and_then(Self::lasting);
        }
        let ends: u64 = variable("SLURM_JOB_END_TIME")?.parse().ok()?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Self::lasting(Duration::from_secs(ends).saturating_sub(since_1970))
    }

    /// Makes an allocation that lasts this long from now on; `None` if clocks cannot count that far.
    pub fn lasting(time: Duration) -> Option<Self> {
        Some(Self { ends: Instant::now().checked_add(time)? })
    }

    /// Returns the remaining time.
    pub fn left(&self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }
}

/// Parses a duration in Slurm's format, `days-hours:minutes:seconds` with as many parts as needed. `None` for
/// `UNLIMITED`, `NOT_SET` and the like (`squeue`(1)).
pub fn slurm_duration(text: &str) -> Option<Duration> {
    let (days, clock) = text.split_once('-').map_or((Some(0), text), |(days, clock)| (days.parse().ok(), clock));
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match *parts.as_slice() {
        [minutes, seconds] => (0, minutes, seconds),
        [hours, minutes, seconds] => (hours, minutes, seconds),
        _ => return None,
    };
    let sum = |units: u64, length: u64, rest: u64| units.checked_mul(length)?.checked_add(rest);
    Some(Duration::from_secs(sum(sum(sum(days?, 24, hours)?, 60, minutes)?, 60, seconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_slurm_are_read() {
        let seconds = |text| slurm_duration(text).map(|time| time.as_secs());
        assert_eq!(seconds("4:05"), Some(245));
        assert_eq!(seconds("1:00:00"), Some(3600));
        assert_eq!(seconds("2-03:00:01"), Some(2 * 86_400 + 3 * 3600 + 1));
        for text in ["UNLIMITED", "NOT_SET", "INVALID", "", "5", "x-1:00:00", "999999999999999999-00:00:00"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn time_passes_by_the_own_clock() {
        let allocation = Allocation::lasting(Duration::from_secs(60)).unwrap();
        let left = allocation.left();
        assert!(left <= Duration::from_secs(60) && left > Duration::from_secs(50));
        assert_eq!(Allocation::lasting(Duration::ZERO).unwrap().left(), Duration::ZERO);
    }
}
