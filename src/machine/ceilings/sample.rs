//! Measures a rate: warms up, then takes samples until the time is over.

use std::time::Instant;

use super::Ceiling;

/// Runs some repetitions of work, and returns the seconds that they took, or the failure in one line.
pub type Run<'w> = Box<dyn FnMut(u32) -> Result<f64, String> + 'w>;

/// Work that can be timed.
pub struct Timed<'w> {
    /// The work of one repetition: bytes, operations, or 1.
    pub work: f64,
    /// Does the work.
    pub run: Run<'w>,
}

/// Starts a clock: it tells the seconds since this call.
pub fn wall_clock() -> impl Fn() -> f64 {
    let start = Instant::now();
    move || start.elapsed().as_secs_f64()
}

/// The limits of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// The seconds of work before the first sample, in which clocks rise and caches fill.
    pub warmup: f64,
    /// The shortest sample in seconds: long enough that the cost of its start and end does not matter.
    pub sample: f64,
    /// The seconds for the whole measurement; one sample is always taken.
    pub limit: f64,
    /// The most samples.
    pub samples: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { warmup: 0.4, sample: 0.02, limit: 1.8, samples: 40 }
    }
}

/// Samples the rate of some work, per second.
///
/// # Errors
/// The failure, in one line.
pub fn sample(mut work: Timed<'_>, pace: Pace, clock: &dyn Fn() -> f64) -> Result<Ceiling, String> {
    let start = clock();
    let repetitions = warm_up(&mut work.run, pace, clock)?;
    let mut rates = Vec::new();
    while rates.is_empty() || rates.len() < pace.samples as usize && clock() - start < pace.limit {
        let seconds = (work.run)(repetitions)?;
        if !seconds.is_finite() || seconds <= 0.0 {
            return Err(format!("it took {seconds} s, which no work does"));
        }
        rates.push(work.work * f64::from(repetitions) / seconds);
    }
    rates.sort_by(f64::total_cmp);
    let samples = u32::try_from(rates.len()).unwrap_or(u32::MAX);
    Ok(Ceiling { median: quantile(&rates, 0.5), low: quantile(&rates, 0.25), high: quantile(&rates, 0.75), samples })
}

/// Works until the warm-up is over. Returns the number of repetitions that make one sample.
fn warm_up(run: &mut Run<'_>, pace: Pace, clock: &dyn Fn() -> f64) -> Result<u32, String> {
    const MOST: u32 = 1 << 20;
    let start = clock();
    let mut repetitions = 1;
    loop {
        let seconds = run(repetitions)?;
        let passed = clock() - start;
        let is_long = seconds >= pace.sample || repetitions >= MOST;
        if is_long && passed >= pace.warmup || passed >= pace.limit / 2.0 {
            return Ok(repetitions);
        }
        if !is_long {
            repetitions = (repetitions * 2).min(MOST);
        }
    }
}

/// Returns the quantile of sorted numbers at this share, interpolated between neighbours.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let at = place.floor() as usize;
    let next = sorted[(at + 1).min(sorted.len() - 1)];
    sorted[at] + (next - sorted[at]) * (place - place.floor())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FakeClock, fake_work};
    use super::*;

    /// Samples work: each repetition takes `cold` seconds in the first three runs, and then `warm` seconds.
    fn sampled(clock: &FakeClock, cold: f64, warm: f64) -> Ceiling {
        let mut runs = 0;
        let work = fake_work(clock, || {
            runs += 1;
            Ok(if runs > 3 { warm } else { cold })
        });
        sample(work, Pace::default(), &|| clock.now()).unwrap()
    }

    #[test]
    fn the_cold_start_does_not_count() {
        let clock = FakeClock::default();
        let ceiling = sampled(&clock, 0.1, 0.001);
        assert!((ceiling.median - 1e4).abs() < 1e-6 && ceiling.samples == 40, "{ceiling}");
        assert!(clock.now() < 2.5);
    }

    #[test]
    fn time_is_limited_and_slow_work_gives_one_sample() {
        let clock = FakeClock::default();
        let ceiling = sampled(&clock, 5.0, 5.0);
        assert_eq!((ceiling.samples, ceiling.median), (1, 2.0));
        assert_eq!(clock.now(), 10.0);
        let clock = FakeClock::default();
        let ceiling = sampled(&clock, 0.3, 0.3);
        assert!(ceiling.samples >= 4 && clock.now() < 2.2, "{ceiling} at {}", clock.now());
    }

    #[test]
    fn what_goes_wrong_is_told() {
        let clock = FakeClock::default();
        let mut runs = 0;
        let failing = fake_work(&clock, || {
            runs += 1;
            if runs == 5 { Err("the device is lost".to_owned()) } else { Ok(0.01) }
        });
        assert_eq!(sample(failing, Pace::default(), &|| clock.now()).unwrap_err(), "the device is lost");
        let idle = fake_work(&clock, || Ok(0.0));
        let error = sample(idle, Pace { limit: 0.0, ..Pace::default() }, &|| clock.now());
        assert!(error.unwrap_err().contains("no work"));
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.5);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), 2.0);
        assert_eq!(quantile(&[7.0], 0.75), 7.0);
    }
}
