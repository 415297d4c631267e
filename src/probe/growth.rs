//! Finds resources of a probe's processes that grow steadily while it trains.

use std::fs;
use std::time::{Duration, Instant};

use crate::machine::{HostMemory, telemetry::anonymous_memory_of};
use crate::model::{Growth, Resource};

/// The memory and the open files of the probe's processes at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holding {
    pub(super) at: Instant,
    /// The number of processes. Growth is computed only between moments with the same number.
    pub(super) processes: usize,
    pub(super) anonymous_bytes: u64,
    /// The available host memory of the machine.
    pub(super) free_bytes: Option<u64>,
    /// The process with the most open files.
    pub(super) most_files: Option<OpenFiles>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct OpenFiles {
    pid: u32,
    count: usize,
    /// The maximum number of its open files (`RLIMIT_NOFILE`, getrlimit(2)).
    limit: usize,
}

impl Holding {
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

/// Returns the resources that grew steadily between two moments. `steps` returns the number of steps until a moment.
pub(super) fn growths(
    holdings: &[Holding],
    (from, to): (Instant, Instant),
    steps: &dyn Fn(Instant) -> f64,
) -> Vec<Growth> {
    /// The least growth that counts: a round number, above what libraries take while a job settles.
    const LEAST_FILES: f64 = 16.0;
    // The last look at the processes comes right after the measured time. Some processes may have ended by then.
    const LATE: Duration = Duration::from_millis(200);
    let within: Vec<&Holding> = holdings.iter().filter(|holding| (from..=to + LATE).contains(&holding.at)).collect();
    let count = |processes: usize| within.iter().filter(|holding| holding.processes == processes).count();
    let Some(usual) = within.iter().map(|holding| holding.processes).max_by_key(|processes| count(*processes)) else {
        return Vec::new();
    };
    let same: Vec<&Holding> = within.into_iter().filter(|holding| holding.processes == usual).collect();
    let Some(last) = same.last() else { return Vec::new() };
    let fullest = last.most_files.map(|files| files.pid);
    let memory = |holding: &Holding| Some(holding.anonymous_bytes as f64);
    let files = |holding: &Holding| {
        let same = holding.most_files.filter(|files| Some(files.pid) == fullest)?;
        Some(same.count as f64)
    };
    let grows = |resource, size: &dyn Fn(&Holding) -> Option<f64>, least, left: Option<f64>| {
        let points: Vec<_> = same.iter().filter_map(|holding| Some((holding.at, size(holding)?))).collect();
        // After the measured time, a process may free memory because it ends. So also look without those points.
        let measured = points.iter().take_while(|(at, _)| *at <= to).count();
        let of = |points: &[_]| in_a_second(points, least, steps);
        let per_second = of(&points).or_else(|| of(&points[..measured]))?;
        Some(Growth { resource, per_second, left: left? })
    };
    let free = last.free_bytes.map(|bytes| bytes as f64);
    let more = last.most_files.map(|files| files.limit.saturating_sub(files.count) as f64);
    let memory = grows(Resource::HostMemory, &memory, LEAST_BYTES, free);
    memory.into_iter().chain(grows(Resource::OpenFiles, &files, LEAST_FILES, more)).collect()
}

/// The least growth of memory that counts: a round number, above what allocators and libraries take while a job settles.
pub(super) const LEAST_BYTES: f64 = 64e6;

/// Returns the growth per second if it is steady.
///
/// The growth must be even over steps, not over time: if other programs slow the job down, its growth slows down as
/// well.
fn in_a_second(points: &[(Instant, f64)], least: f64, steps: &dyn Fn(Instant) -> f64) -> Option<f64> {
    /// A round number: the shortest time that can show a trend.
    const SHORTEST: Duration = Duration::from_millis(500);
    let (first, last) = (points.first()?, points.last()?);
    let time = last.0.duration_since(first.0);
    let over_steps: Vec<(f64, f64)> = points.iter().map(|(at, size)| (steps(*at), *size)).collect();
    slope(&over_steps, least).filter(|_| time >= SHORTEST)?;
    Some((last.1 - first.1) / time.as_secs_f64())
}

/// Returns the growth per step, if it is at least `least` in total and each third of the steps has a part of it.
pub(super) fn slope(points: &[(f64, f64)], least: f64) -> Option<f64> {
    /// The fewest points that can show a trend: a round number.
    const FEWEST: usize = 4;
    /// The least growth of a third, as a share of the third with the largest growth: a round number.
    const EVEN: f64 = 0.2;
    let (first, last) = (points.first()?, points.last()?);
    let length = last.0 - first.0;
    if points.len() < FEWEST || last.1 - first.1 < least {
        return None;
    }
    let near = |third: f64| {
        let wanted = first.0 + length * third / 3.0;
        points.iter().min_by(|a, b| (a.0 - wanted).abs().total_cmp(&(b.0 - wanted).abs()))
    };
    let ends = [first, near(1.0)?, near(2.0)?, last];
    let rates: Vec<f64> = ends.windows(2).map(|pair| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0)).collect();
    let largest = rates.iter().copied().fold(0.0, f64::max);
    // Without a step between two points, the rate is not finite.
    rates.iter().all(|rate| rate.is_finite() && *rate >= EVEN * largest).then(|| (last.1 - first.1) / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the growths over looks each 0.2 s: a number of processes, and a number of both megabytes and open files.
    fn grown(looks: &[(usize, u64)], end_ms: u64) -> Vec<Growth> {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let holding = |(place, &(processes, size)): (usize, &(usize, u64))| Holding {
            at: at(200 * place as u64),
            processes,
            anonymous_bytes: size * 1_000_000,
            free_bytes: Some(8_000_000_000),
            most_files: Some(OpenFiles { pid: 1, count: size as usize, limit: 1024 }),
        };
        let holdings: Vec<Holding> = looks.iter().enumerate().map(holding).collect();
        growths(&holdings, (begin, at(end_ms)), &|at| at.duration_since(begin).as_secs_f64() * 10.0)
    }

    #[test]
    fn only_even_growth_counts() {
        let of_sizes = |sizes: &[u64]| {
            let looks: Vec<(usize, u64)> = sizes.iter().map(|size| (2, *size)).collect();
            grown(&looks, 200 * sizes.len() as u64)
        };
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
        let rising = [(2, 100), (2, 140), (2, 180), (2, 220), (2, 260), (2, 300)];
        assert_eq!(grown(&[&rising[..], &[(1, 20)]].concat(), 1200).len(), 2, "one has ended");
        assert_eq!(grown(&[&rising[..], &[(2, 20)]].concat(), 1100).len(), 2, "one frees its memory");
    }

    #[test]
    fn a_pause_of_the_job_hides_no_growth() {
        // The job stands still from 0.4 s to 1.4 s.
        let at = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8];
        let trained = |at: f64| if at < 0.4 { at } else { 0.4 + (at - 1.4).max(0.0) };
        let grown = |over: fn(f64, f64) -> f64| {
            at.iter().map(|at| (over(*at, trained(*at)) * 100.0, trained(*at) * 1e9)).collect::<Vec<(f64, f64)>>()
        };
        assert_eq!(slope(&grown(|at, _| at), LEAST_BYTES), None);
        let by_step = slope(&grown(|_, trained| trained), LEAST_BYTES).unwrap();
        assert!((by_step - 1e7).abs() < 1.0, "{by_step}");
        assert_eq!(slope(&[(1.0, 0.0), (1.0, 1e9), (1.0, 2e9), (1.0, 3e9)], LEAST_BYTES), None, "no step");
    }
}
