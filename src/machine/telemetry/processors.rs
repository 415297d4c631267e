//! Measures the use of the CPUs.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::machine::process_table::{self, allowed_processors};

/// The kernel's counts of CPU time at some moment, in clock ticks (proc(5), `/proc/stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessorTimes {
    busy: u64,
    idle: u64,
    stolen: u64,
    /// The busy time of the given processes and of this process.
    own: u64,
}

/// Shares of the time of the CPUs that this process may use; they add up to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessorShares {
    /// Used by the given processes, and by this process.
    pub own: f64,
    /// Used by other programs.
    pub foreign: f64,
    /// Unused.
    pub idle: f64,
    /// Taken by the hypervisor for other machines.
    pub stolen: f64,
}

impl ProcessorTimes {
    /// Reads the counts now, for the CPUs that the first of `pids` may use, or that this process may use if there is
    /// none. Returns `None` if the kernel does not report the counts.
    pub fn read(pids: &[u32]) -> Option<Self> {
        let of_first = pids.first().and_then(|pid| allowed_processors(&pid.to_string()));
        let allowed = of_first.or_else(|| allowed_processors("self"))?;
        let (busy, idle, stolen) = machine(&fs::read_to_string("/proc/stat").ok()?, &allowed)?;
        let own = pids.iter().map(|&pid| process_table::processor_ticks(pid, true).unwrap_or(0)).sum::<u64>();
        Some(Self { busy, idle, stolen, own: own + process_table::processor_ticks(std::process::id(), false)? })
    }

    /// Returns how the time since an earlier reading was used; `None` if that time is too short.
    pub fn since(&self, earlier: &Self) -> Option<ProcessorShares> {
        /// The fewest whole ticks that give a share: half a second of one CPU at the usual 100 ticks per second.
        const FEWEST_TICKS: u64 = 50;
        let busy = self.busy.saturating_sub(earlier.busy);
        let idle = self.idle.saturating_sub(earlier.idle);
        let stolen = self.stolen.saturating_sub(earlier.stolen);
        let own = self.own.saturating_sub(earlier.own).min(busy);
        let all = busy + idle + stolen;
        let [own, foreign, idle, stolen] = [own, busy - own, idle, stolen].map(|ticks| ticks as f64 / all as f64);
        (all >= FEWEST_TICKS).then_some(ProcessorShares { own, foreign, idle, stolen })
    }
}

/// Returns the CPU time of the calling thread, to a nanosecond (clock_gettime(2), `CLOCK_THREAD_CPUTIME_ID`).
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns how long a thread was ready to run but had no CPU (`/proc/PID/schedstat`, scheduler/sched-stats.rst). If
/// `thread` is a process id, the thread is the first thread of that process. Returns `None` if the kernel does not
/// report the time.
pub fn waited_for_processor(thread: &str) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    let waited: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(waited))
}

/// The number of meters that pause by [`pause_after`]. These meters read GPU counters, GPU states, process counters and
/// growing process memory, and walk through all process memory.
const METERED_PARTS: u32 = 5;
/// The inverse of the share of a CPU's time that each meter may take: 1/1250, so all together take at most 0.4%.
const SHARE_OF_TIME: u32 = 250 * METERED_PARTS;

/// Returns how long a meter waits from one reading to the next: the usual time, or longer if a reading takes long.
pub fn pause_after(cost: Duration, usual: Duration) -> Duration {
    usual.max(cost * SHARE_OF_TIME)
}

/// Sums the busy, idle and stolen ticks of some CPUs, from lines like `cpu0 user nice system idle iowait irq softirq steal
/// guest guest_nice`. The first two fields already include the guests' time.
fn machine(stat: &str, allowed: &BTreeSet<u32>) -> Option<(u64, u64, u64)> {
    let mut sums = (0, 0, 0);
    for line in stat.lines() {
        let Some((number, rest)) = line.strip_prefix("cpu").and_then(|line| line.split_once(' ')) else { continue };
        let Ok(number) = number.parse::<u32>() else { continue };
        if !allowed.contains(&number) {
            continue;
        }
        let ticks: Vec<u64> = rest.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else { continue };
        sums.0 += user + nice + system + irq + softirq;
        sums.1 += idle + iowait;
        sums.2 += steal;
    }
    (sums.0 + sums.1 > 0).then_some(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::process_table::numbers;

    #[test]
    fn only_the_processors_that_may_be_used_count() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 10 1 5 100 2 1 1 3 10 0\ncpu1 7 0 0 7 0 0 0 0 0 0\nintr 1 2\n";
        assert_eq!(machine(stat, &numbers("0")), Some((18, 102, 3)));
        assert_eq!(machine(stat, &numbers("0-3,8\n")), Some((25, 109, 3)));
        assert_eq!(machine("", &numbers("0")), None);
    }

    #[test]
    fn all_meters_together_take_four_parts_of_a_thousand_at_most() {
        for micros in [1, 160, 1000, 50_000] {
            let cost = Duration::from_micros(micros);
            let pause = pause_after(cost, Duration::from_millis(200));
            assert!(pause >= Duration::from_millis(200));
            assert!(cost.as_secs_f64() / pause.as_secs_f64() * 5.0 <= 0.004 + 1e-9, "{micros}");
        }
    }

    #[test]
    fn what_is_not_ones_own_is_foreign() {
        let before = ProcessorTimes { busy: 100, idle: 100, stolen: 0, own: 50 };
        let now = ProcessorTimes { busy: 170, idle: 120, stolen: 10, own: 80 };
        let shares = now.since(&before).unwrap();
        assert_eq!((shares.own, shares.foreign, shares.idle, shares.stolen), (0.3, 0.4, 0.2, 0.1));
        assert!(before.since(&before).is_none());
        assert!(ProcessorTimes::read(&[]).is_some());
    }
}
