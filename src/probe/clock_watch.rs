//! Notices standstills: gputune was stopped by a signal (Ctrl-Z), or the whole machine was (a laptop asleep).
//!
//! After a standstill, messages arrive late and all at once, so rates and limits are wrong. Two clocks show a
//! standstill. First, a thread that only sleeps wakes too late, even after its wait for a CPU is subtracted. Second,
//! `CLOCK_BOOTTIME` runs while the machine sleeps, and `CLOCK_MONOTONIC` does not (clock_gettime(2)).

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::locked;
use crate::machine::telemetry::waited_for_processor;

/// How long the thread of [`beat`] sleeps each time.
const BEAT: Duration = Duration::from_millis(50);

/// The shortest standstill that counts: a thirtieth of the usual measuring time. On a free CPU, threads wake sooner.
const SHORTEST: Duration = Duration::from_millis(300);

/// The shortest standstill if the wait for a CPU is unknown. A round number: a thread may wait almost as long.
const SHORTEST_UNTOLD: Duration = Duration::from_secs(2);

/// The smallest difference of the two clocks that counts as sleep. The clocks are read within microseconds.
const SHORTEST_SLEEP: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct ClockWatch {
    seen: Arc<Mutex<Seen>>,
    slept_before: Duration,
    /// Dropping the sender ends the thread.
    _end: Sender<()>,
}

#[derive(Debug)]
struct Seen {
    beat: Instant,
    stood_still: Duration,
}

impl ClockWatch {
    pub(super) fn begin() -> Self {
        let seen = Arc::new(Mutex::new(Seen { beat: Instant::now(), stood_still: Duration::ZERO }));
        let (end, ended) = channel();
        let theirs = Arc::clone(&seen);
        // If the thread cannot start, only a machine that slept is noticed.
        let _ = std::thread::Builder::new().name("clock watch".to_owned()).spawn(move || beat(&theirs, &ended));
        Self { seen, slept_before: slept(), _end: end }
    }

    pub(super) fn stood_still(&self) -> Option<String> {
        let slept = slept().saturating_sub(self.slept_before);
        if slept >= SHORTEST_SLEEP {
            return Some(format!("the machine slept for {:.1} s", slept.as_secs_f64()));
        }
        let stopped = self.stopped();
        (!stopped.is_zero()).then(|| format!("gputune was stopped for {:.1} s", stopped.as_secs_f64()))
    }

    /// Returns how long this process was stopped. Waits for the next beat, since the thread may be late.
    fn stopped(&self) -> Duration {
        const TURNS: u32 = 20;
        for _ in 0..TURNS {
            let seen = locked(&self.seen);
            if seen.beat.elapsed() < SHORTEST || !seen.stood_still.is_zero() {
                return seen.stood_still;
            }
            drop(seen);
            std::thread::sleep(Duration::from_millis(5));
        }
        Duration::ZERO
    }
}

fn slept() -> Duration {
    let read = |clock| {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    };
    let monotonic = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(monotonic)
}

fn beat(seen: &Mutex<Seen>, ended: &Receiver<()>) {
    let mut last = (Instant::now(), waited_for_processor("thread-self"));
    while ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
        let now = (Instant::now(), waited_for_processor("thread-self"));
        let late = now.0.duration_since(last.0).saturating_sub(BEAT);
        let stood_still = standstill(late, last.1.zip(now.1).map(|(then, now)| now.saturating_sub(then)));
        let mut seen = locked(seen);
        seen.beat = now.0;
        seen.stood_still += stood_still;
        last = now;
    }
}

/// Returns the part of a delay that was not a wait for a CPU, if it is long enough to count.
fn standstill(late: Duration, waited: Option<Duration>) -> Duration {
    let (rest, shortest) = match waited {
        Some(waited) => (late.saturating_sub(waited), SHORTEST),
        None => (late, SHORTEST_UNTOLD),
    };
    if rest >= shortest { rest } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_counts_only_where_a_processor_was_there() {
        let seconds = Duration::from_secs_f64;
        assert_eq!(standstill(seconds(0.2), Some(Duration::ZERO)), Duration::ZERO);
        assert_eq!(standstill(seconds(2.0), Some(seconds(0.1))), seconds(1.9));
        assert_eq!(standstill(seconds(5.0), Some(seconds(4.9))), Duration::ZERO, "the machine is busy");
        assert_eq!(standstill(seconds(1.0), None), Duration::ZERO);
        assert_eq!(standstill(seconds(3.0), None), seconds(3.0));
    }
}
