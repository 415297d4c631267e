//! Finds resources of a probe's processes that grow steadily while it trains.

use std::fs;
use std::time::{Duration, Instant};

use crate::machine::{HostMemory, telemetry::anonymous_memory_of};
use crate::model::{Growth, Resource};

/// What the probe's processes hold at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holding {
    pub(super) at: Instant,
    /// The processes; growth is compared only between the same number of processes.
    pub(super) processes: usize,
    pub(super) anonymous_bytes: u64,
    /// The free memory of the machine.
    pub(super) free_bytes: Option<u64>,
    /// The process with the most open files.
    pub(super) most_files: Option<OpenFiles>,
}

/// The open files of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenFiles {
    pid: u32,
    count: usize,
    /// How many it may have (`RLIMIT_NOFILE`, getrlimit(2)).
    limit: usize,
}

impl Holding {
    /// Looks at processes.
    pub(super) fn of(pids: &[u32]) -> Self {
        let count = |pid: &u32| Some((*pid, fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count()));
        let most = pids.iter().filter_map(count).max_by_key(|(_, count)| *count);
        Self {
            at: Instant::now(),
            processes: pids.len(),
            anonymous_bytes: anonymous_memory_of(pids),
            free_bytes: HostMemory::read().map(|memory| memory.available_bytes),
            most_files: most.and_then(|(pid, count)| Some(OpenFiles { pid, count, limit: limit_of(pid)? })),
        }
    }
}

fn limit_of(pid: u32) -> Option<usize> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    limit.split_whitespace().next()?.parse().ok()
}

/// Returns the resources that grew steadily between two moments, and what was left of them at the end.
pub(super) fn growths(holdings: &[Holding], (from, to): (Instant, Instant)) -> Vec<Growth> {
    /// The least growth that counts: round numbers, above what allocators and libraries take while a job settles.
    const LEAST_BYTES: f64 = 64e6;
    const LEAST_FILES: f64 = 16.0;
    // The last look at living processes comes right after the measured time. Some processes may have ended by then.
    const LATE: Duration = Duration::from_millis(200);
    let within = holdings.iter().filter(|holding| holding.at >= from && holding.at <= to + LATE);
    let within: Vec<&Holding> = within.collect();
    let count = |processes: usize| within.iter().filter(|holding| holding.processes == processes).count();
    let Some(usual) = within.iter().map(|holding| holding.processes).max_by_key(|processes| count(*processes)) else {
        return Vec::new();
    };
    let same = within.iter().filter(|holding| holding.processes == usual);
    let same: Vec<(f64, &Holding)> =
        same.map(|holding| (holding.at.duration_since(from).as_secs_f64(), *holding)).collect();
    let Some((_, last)) = same.last() else { return Vec::new() };
    #[expect(clippy::cast_precision_loss, reason = "sizes")]
    let memory: Vec<(f64, f64)> = same.iter().map(|(at, holding)| (*at, holding.anonymous_bytes as f64)).collect();
    let fullest = last.most_files.map(|files| files.pid);
    #[expect(clippy::cast_precision_loss, reason = "counts")]
    let files = |(at, holding): &(f64, &Holding)| {
        let same = holding.most_files.filter(|files| Some(files.pid) == fullest)?;
        Some((*at, same.count as f64))
    };
    let files: Vec<(f64, f64)> = same.iter().filter_map(files).collect();
    let grows = |resource, points: &[(f64, f64)], least, left: Option<f64>| {
        // Memory that a process frees while it ends is no part of the trend.
        let measured = points.iter().take_while(|(at, _)| *at <= to.duration_since(from).as_secs_f64()).count();
        let per_second = slope(points, least).or_else(|| slope(&points[..measured], least))?;
        Some(Growth { resource, per_second, left: left? })
    };
    #[expect(clippy::cast_precision_loss, reason = "sizes")]
    let (free, more) = (
        last.free_bytes.map(|bytes| bytes as f64),
        last.most_files.map(|files| files.limit.saturating_sub(files.count) as f64),
    );
    let memory = grows(Resource::HostMemory, &memory, LEAST_BYTES, free);
    memory.into_iter().chain(grows(Resource::OpenFiles, &files, LEAST_FILES, more)).collect()
}

/// Returns the growth in a second if each third of the time has a part of the growth, and all together at least `least`.
fn slope(points: &[(f64, f64)], least: f64) -> Option<f64> {
    /// Round numbers: the shortest time and the fewest points that can show a trend, and the least growth of a third as a share of
    /// the largest. Other programs may slow the job in a part of the time.
    const SHORTEST: f64 = 0.5;
    const FEWEST: usize = 4;
    const EVEN: f64 = 0.2;
    let (first, last) = (points.first()?, points.last()?);
    let seconds = last.0 - first.0;
    if points.len() < FEWEST || seconds < SHORTEST || last.1 - first.1 < least {
        return None;
    }
    let at = |third: usize| points[(points.len() - 1) * third / 3];
    let rate = |third: usize| (at(third + 1).1 - at(third).1) / (at(third + 1).0 - at(third).0);
    let rates = [rate(0), rate(1), rate(2)];
    let largest = rates.iter().copied().fold(0.0, f64::max);
    rates.iter().all(|rate| *rate >= EVEN * largest).then(|| (last.1 - first.1) / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_sizes(megabytes: &[u64]) -> Vec<Growth> {
        let begin = Instant::now();
        let at = |place: usize| begin + Duration::from_millis(200 * place as u64);
        let holding = |(place, size): (usize, &u64)| Holding {
            at: at(place),
            processes: 2,
            anonymous_bytes: size * 1_000_000,
            free_bytes: Some(8_000_000_000),
            most_files: Some(OpenFiles { pid: 1, count: *size as usize, limit: 1024 }),
        };
        let holdings: Vec<Holding> = megabytes.iter().enumerate().map(holding).collect();
        growths(&holdings, (begin, at(megabytes.len())))
    }

    #[test]
    fn only_even_growth_counts() {
        let steady = of_sizes(&[100, 140, 180, 220, 260, 300]);
        assert_eq!(steady.len(), 2);
        assert_eq!((steady[0].resource, steady[0].per_second), (Resource::HostMemory, 200e6));
        assert_eq!((steady[1].resource, steady[1].per_second), (Resource::OpenFiles, 200.0));
        assert_eq!((steady[0].left, steady[1].left), (8e9, 724.0));
        for settling in [&[100, 400, 420, 425, 426, 427][..], &[100, 100, 100, 400, 400, 400], &[100, 200, 300]] {
            assert_eq!(of_sizes(settling), [], "{settling:?}");
        }
        assert_eq!(of_sizes(&[100, 102, 104, 106, 108, 110]), [], "too little");
        assert_eq!(of_sizes(&[300, 260, 220, 180, 140, 100]), []);
    }

    #[test]
    fn processes_that_end_at_the_end_hide_no_growth() {
        let begin = Instant::now();
        let holding = |(place, (processes, size)): (usize, (usize, u64))| Holding {
            at: begin + Duration::from_millis(200 * place as u64),
            processes,
            anonymous_bytes: size * 1_000_000,
            free_bytes: Some(8_000_000_000),
            most_files: None,
        };
        let until = |sizes: &[(usize, u64)], last: u64| {
            let holdings: Vec<Holding> = sizes.iter().copied().enumerate().map(holding).collect();
            growths(&holdings, (begin, begin + Duration::from_millis(last)))
        };
        let rising = [(2, 100), (2, 140), (2, 180), (2, 220), (2, 260), (2, 300)];
        assert_eq!(until(&[&rising[..], &[(1, 20)]].concat(), 1200).len(), 1, "one has ended");
        assert_eq!(until(&[&rising[..], &[(2, 20)]].concat(), 1100).len(), 1, "one frees its memory");
    }
}
