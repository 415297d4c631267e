//! Measures one kind after the other within a time limit.

use std::collections::BTreeMap;

use super::{Ceiling, Clock, Kind, Pace, Timed, sample};

/// The seconds that the preparation of a kind usually takes: an assumption. On an H100 all kinds together took 17 s.
const PREPARATION: f64 = 0.4;

/// The seconds that are always reserved for the preparation of a kind and for the last repetition: a round number.
const RESERVE: f64 = 1.5;

/// The seconds of the shortest measurement: a round number.
const SHORTEST: f64 = 0.6;

const OVER: &str = "the time for measuring was over";

/// Measures kinds until the clock shows `limit`. If time is short, each kind gets less of it; a kind without enough time is
/// absent. After a failure, `is_lost` checks if the GPU is still usable. An error in a kernel stays with the process, and
/// every later call returns it again (CUDA driver API reference, `CUresult`).
pub(super) fn all<'w>(
    kinds: impl ExactSizeIterator<Item = Kind>,
    limit: f64,
    clock: &dyn Clock,
    prepare: &mut dyn FnMut(Kind) -> Result<Box<dyn Timed + 'w>, String>,
    is_lost: &dyn Fn() -> bool,
) -> (BTreeMap<Kind, Ceiling>, BTreeMap<Kind, String>) {
    let (mut measured, mut absent) = (BTreeMap::new(), BTreeMap::new());
    let mut lost: Option<Kind> = None;
    let count = kinds.len();
    for (at, kind) in kinds.enumerate() {
        if let Some(first) = lost {
            absent.insert(kind, format!("the GPU's context was lost in measuring {}", first.label()));
            continue;
        }
        match one(limit, count - at, clock, &mut || prepare(kind)) {
            Ok(ceiling) => drop(measured.insert(kind, ceiling)),
            Err(reason) => {
                lost = (reason != OVER && is_lost()).then_some(kind);
                absent.insert(kind, reason);
            }
        }
    }
    (measured, absent)
}

fn one<'w>(
    limit: f64,
    kinds_left: usize,
    clock: &dyn Clock,
    prepare: &mut dyn FnMut() -> Result<Box<dyn Timed + 'w>, String>,
) -> Result<Ceiling, String> {
    let left = limit - clock.now();
    let share = (left - RESERVE) / kinds_left.max(1) as f64 - PREPARATION;
    let mut pace = Pace::default();
    pace.limit = share.clamp(SHORTEST, pace.limit);
    if left < pace.limit + RESERVE {
        return Err(OVER.to_owned());
    }
    let mut work = prepare()?;
    pace.limit = pace.limit.min(limit - clock.now());
    if pace.limit < SHORTEST / 2.0 {
        return Err(OVER.to_owned());
    }
    sample(work.as_mut(), pace, clock)
}

/// Finds the fastest of several alternatives. Each alternative is run twice; the first run loads it and does not count. No
/// alternative starts after `limit` seconds. A failed alternative is skipped, unless all fail.
///
/// # Errors
/// Every alternative that was tried failed.
pub(super) fn fastest<E>(
    count: usize,
    limit: f64,
    clock: &dyn Clock,
    run: &mut dyn FnMut(usize) -> Result<f64, E>,
) -> Result<usize, E> {
    let (start, mut fastest, mut failed) = (clock.now(), None::<(usize, f64)>, None);
    for choice in 0..count {
        if choice > 0 && clock.now() - start >= limit {
            break;
        }
        match run(choice).and_then(|_| run(choice)) {
            Ok(seconds) if fastest.is_none_or(|(_, least)| seconds < least) => fastest = Some((choice, seconds)),
            Ok(_) => {}
            Err(error) => failed = Some(error),
        }
    }
    match (fastest, failed) {
        (None, Some(error)) => Err(error),
        (fastest, _) => Ok(fastest.map_or(0, |(choice, _)| choice)),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::KINDS;
    use super::*;

    /// A clock that the work advances.
    struct Fake(Cell<f64>);

    impl Clock for Fake {
        fn now(&self) -> f64 {
            self.0.get()
        }
    }

    impl Fake {
        fn pass(&self, seconds: f64) {
            self.0.set(self.0.get() + seconds);
        }
    }

    struct Rig<'c>(&'c Fake, f64);

    impl Timed for Rig<'_> {
        fn work(&self) -> f64 {
            1.0
        }

        fn run(&mut self, repetitions: u32) -> Result<f64, String> {
            let seconds = self.1 * f64::from(repetitions);
            self.0.pass(seconds);
            Ok(seconds)
        }
    }

    /// Returns the end time and the number of measured kinds. The arguments are the seconds of looking at the machine, of
    /// preparation and of a repetition.
    fn ended(looked: f64, preparation: f64, repetition: f64) -> (f64, usize) {
        let clock = Fake(Cell::new(looked));
        let mut prepare = |_| {
            clock.pass(preparation);
            Ok(Box::new(Rig(&clock, repetition)) as Box<dyn Timed>)
        };
        let (measured, absent) = all(KINDS.iter().map(|(kind, ..)| *kind), 27.0, &clock, &mut prepare, &|| false);
        assert_eq!(measured.len() + absent.len(), KINDS.len());
        assert!(absent.values().all(|reason| reason == OVER), "{absent:?}");
        (clock.now(), measured.len())
    }

    #[test]
    fn it_ends_in_time_whatever_takes_long() {
        assert_eq!(ended(1.0, 0.3, 1e-4).1, KINDS.len());
        assert_eq!(ended(12.0, 0.3, 1e-4).1, KINDS.len(), "all get less time");
        for looked in [0.0, 10.0, 24.0, 26.9, 40.0] {
            for preparation in [0.0, 0.5, 2.0] {
                for repetition in [1e-5, 0.02, 0.5] {
                    let (end, _) = ended(looked, preparation, repetition);
                    assert!(end < 30.0_f64.max(looked + 0.1), "{looked} {preparation} {repetition}: {end}");
                }
            }
        }
        assert_eq!(ended(26.0, 0.0, 1e-4).1, 0);
    }

    #[test]
    fn after_an_error_that_stays_the_kinds_that_follow_name_the_one_that_failed() {
        let clock = Fake(Cell::new(0.0));
        let failing = KINDS[2].0;
        for is_lost in [true, false] {
            let mut prepare = |kind| {
                if kind == failing {
                    Err("an illegal address".to_owned())
                } else {
                    Ok(Box::new(Rig(&clock, 1e-4)) as Box<dyn Timed>)
                }
            };
            clock.0.set(0.0);
            let (measured, absent) = all(KINDS.iter().map(|(kind, ..)| *kind), 27.0, &clock, &mut prepare, &|| is_lost);
            assert_eq!(absent[&failing], "an illegal address");
            assert_eq!(measured.len(), if is_lost { 2 } else { KINDS.len() - 1 });
            let later = absent.iter().filter(|(kind, _)| **kind != failing);
            assert!(
                later.map(|(_, reason)| reason).all(|reason| reason.contains("was lost in measuring")),
                "{absent:?}"
            );
        }
    }

    #[test]
    fn the_fastest_is_looked_for_within_its_time() {
        let clock = Fake(Cell::new(0.0));
        let mut runs = 0;
        let mut run = |seconds: f64| {
            runs += 1;
            clock.pass(seconds);
            Ok::<f64, String>(seconds)
        };
        assert_eq!(fastest(8, 1.0, &clock, &mut |choice| run([0.3, 0.1, 0.2, 0.4][choice])), Ok(1));
        assert_eq!(runs, 6, "the fourth does not begin");
        assert_eq!(fastest(2, 1.0, &clock, &mut |at| if at == 0 { Err("no") } else { Ok(0.1) }), Ok(1));
        assert_eq!(fastest(2, 1.0, &clock, &mut |_| Err("no")), Err("no"));
    }
}
