//! Turns the rates that a step prints into stretches of time, each with its rate.
//!
//! A printed rate describes the time since the previous line, so it is weighted by that time. The plain mean of the
//! rates would weight ten fast steps as much as ten slow steps, and would be too high. If a script prints means since
//! its start, the difference of two means describes the time between them.

use std::collections::VecDeque;

use super::running_mean::{Line, RunningMean, Stretch};
use super::stats::count;

#[derive(Debug, Default)]
pub(super) struct Printed {
    /// The arrival of the last lines, in seconds since the probe began.
    last: Option<f64>,
    /// True if only the first lines came. The length of their stretches is only assumed.
    is_first_only: bool,
    /// The latest stretches, without the stretches of the first lines.
    recent: VecDeque<Stretch>,
    /// True if the time before the last lines had a pause, which was left out.
    had_pause: bool,
    mean: RunningMean,
}

impl Printed {
    /// Takes the rates of lines that arrived together at a moment, as buffered lines do. Returns their stretches.
    ///
    /// The flag is true if these stretches replace all earlier stretches. This happens when lines follow the first
    /// lines, and when the lines prove to be means since the start of the script.
    pub(super) fn take(&mut self, at: f64, rates: &[f64]) -> (bool, Vec<Stretch>) {
        const KEPT: usize = 32;
        let last = self.last.replace(at);
        let rates: Vec<f64> = rates.iter().copied().filter(|rate| rate.is_finite() && *rate >= 0.0).collect();
        if let Some(of_mean) = rates.last().and_then(|&rate| self.mean.take(Line { at, rate })) {
            return of_mean;
        }
        let Some(last) = last else {
            self.is_first_only = true;
            // Assume that each line took a second on average.
            return (false, shared(at, count(rates.len()), &rates));
        };
        let seconds = self.without_pause(at - last, &rates);
        let stretches = shared(at, seconds, &rates);
        self.recent.extend(&stretches);
        self.recent.drain(..self.recent.len().saturating_sub(KEPT));
        (std::mem::take(&mut self.is_first_only), stretches)
    }

    /// Returns the time between lines, without a pause that the rates do not include.
    ///
    /// An evaluation between two lines makes the time between them longer. The second line's rate does not show the
    /// pause, but would count for all that time. A stretch with a pause meets two conditions: it is three times as long
    /// as usual, and at its rate contains three times the usual work. Without a pause, lines at fixed times never meet
    /// the first condition. Lines after fixed numbers of steps never meet the second condition.
    ///
    /// If two stretches in a row meet both conditions, they have no pause: lines have become rarer. For example, a
    /// script printed each of its first steps, or lines about earlier steps.
    fn without_pause(&mut self, seconds: f64, rates: &[f64]) -> f64 {
        /// A stretch with a pause is this many times as long as usual: a round number.
        const LONG: f64 = 3.0;
        /// The fewest stretches that show what length and work are usual: a round number.
        const FEWEST: usize = 5;
        let usual = self.usual(|stretch| stretch.seconds).zip(self.usual(|stretch| stretch.seconds * stretch.rate));
        let is_known = self.recent.len() >= FEWEST && !rates.is_empty();
        let Some((usual_seconds, usual_work)) = usual.filter(|_| is_known) else { return seconds };
        let stretches = shared(0.0, seconds, rates);
        let work: f64 = stretches.iter().map(|stretch| stretch.seconds * stretch.rate).sum();
        let lines = count(rates.len());
        let is_long = seconds > LONG * lines * usual_seconds && work > LONG * lines * usual_work;
        let is_rarer = is_long && self.had_pause;
        if is_rarer {
            self.recent.clear();
        }
        self.had_pause = is_long && !is_rarer;
        if self.had_pause { seconds * (lines * usual_work / work) } else { seconds }
    }

    /// Returns the median of a number of the latest stretches, weighted by their time. The weight is needed because
    /// lines of other ranks arrive an instant later, so their stretches are very short.
    fn usual(&self, number: fn(&Stretch) -> f64) -> Option<f64> {
        let mut numbers: Vec<(f64, f64)> = self.recent.iter().map(|one| (number(one), one.seconds)).collect();
        numbers.sort_by(|a, b| a.0.total_cmp(&b.0));
        let half = numbers.iter().map(|(_, seconds)| seconds).sum::<f64>() / 2.0;
        let mut below = 0.0;
        let middle = numbers.iter().find(|(_, seconds)| {
            below += seconds;
            below >= half
        });
        middle.map(|(number, _)| *number)
    }
}

/// Divides time among lines that arrived together, as if each described the same number of steps: scripts usually print
/// a line after a fixed number of steps. If a rate is zero, all lines get the same time.
fn shared(at: f64, seconds: f64, rates: &[f64]) -> Vec<Stretch> {
    let whole: f64 = rates.iter().map(|rate| rate.recip()).sum();
    let part = |rate: f64| if whole.is_finite() { rate.recip() / whole } else { count(rates.len()).recip() };
    rates.iter().map(|&rate| Stretch { at, seconds: seconds * part(rate), rate }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::window::Window;
    use super::*;
    use crate::model::Estimate;
    use crate::probe::stats::simulation::{Process, Random};

    /// Returns step times at mixed speeds, for steps of 100 samples. Most take 10 ms; every fifth stretch takes ten times as long.
    fn mixed(steps: usize, random: &mut Random) -> Vec<f64> {
        let mut pace = 0.01;
        let time = |step: usize| {
            if step.is_multiple_of(10) {
                pace = if random.uniform() < 0.2 { 0.1 } else { 0.01 };
            }
            pace * (1.0 + 0.05 * random.normal())
        };
        (0..steps).map(time).collect()
    }

    const SAMPLES: f64 = 100.0;
    /// For 100 samples: 0.2 of the stretches have steps of 0.1 s and 0.8 have steps of 0.01 s.
    const TRUE: f64 = SAMPLES / (0.2 * 0.1 + 0.8 * 0.01);

    /// Returns the output of a script: moments, and the rate since the previous line.
    fn lines_each_ten_steps(times: &[f64]) -> Vec<(f64, f64)> {
        let mut at = 5.0;
        let line = |steps: &[f64]| {
            let seconds: f64 = steps.iter().sum();
            at += seconds;
            (at, 10.0 * SAMPLES / seconds)
        };
        times.chunks_exact(10).map(line).collect()
    }

    fn lines_each_second(times: &[f64]) -> Vec<(f64, f64)> {
        let (mut at, mut seconds, mut steps, mut lines) = (5.0, 0.0, 0.0, Vec::new());
        for time in times {
            (at, seconds, steps) = (at + time, seconds + time, steps + 1.0);
            if seconds >= 1.0 {
                lines.push((at, steps * SAMPLES / seconds));
                (seconds, steps) = (0.0, 0.0);
            }
        }
        lines
    }

    /// Estimates the rate when lines arrive in groups of this size.
    fn held_back(lines: &[(f64, f64)], together: usize) -> Estimate {
        let mut window = Window::default();
        for lines in lines.chunks(together) {
            let rates: Vec<f64> = lines.iter().map(|(_, rate)| *rate).collect();
            window.push_rates(Duration::from_secs_f64(lines[lines.len() - 1].0), &rates);
        }
        window.throughput().unwrap().estimate
    }

    fn assert_covers(name: &str, truth: f64, mut estimate: impl FnMut(&mut Random) -> Estimate) {
        const ROUNDS: usize = 60;
        let mut random = Random(11);
        let estimates: Vec<Estimate> = (0..ROUNDS).map(|_| estimate(&mut random)).collect();
        let covered = estimates.iter().filter(|one| (one.low.unwrap()..=one.high.unwrap()).contains(&truth)).count();
        let mean = count(ROUNDS) / estimates.iter().map(|one| one.value.recip()).sum::<f64>();
        assert!((mean / truth - 1.0).abs() < 0.03, "{name}: {mean} and not {truth}");
        assert!(covered * 100 >= ROUNDS * 90, "{name}: {covered} of {ROUNDS}");
    }

    #[test]
    fn the_mean_of_mixed_speeds_is_the_rate_over_the_time_and_its_interval_holds_it() {
        for together in [1, 7] {
            let name = format!("each ten steps, {together} lines together");
            assert_covers(&name, TRUE, |random| held_back(&lines_each_ten_steps(&mixed(4000, random)), together));
        }
        assert_covers("each second", TRUE, |random| held_back(&lines_each_second(&mixed(4000, random)), 1));
    }

    #[test]
    fn a_smoothed_rate_is_followed() {
        // tqdm smooths work and time separately, with a weight of 0.3 for the latest.
        assert_covers("smoothed", SAMPLES / 0.01, |random| {
            let times = Process::Independent(0.2).times(400, random);
            let (mut at, mut smooth) = (5.0, 0.01);
            let lines = times.chunks_exact(1).map(|step| {
                at += step[0] * 0.01;
                smooth += 0.3 * (step[0] * 0.01 - smooth);
                (at, SAMPLES / smooth)
            });
            held_back(&lines.collect::<Vec<_>>(), 1)
        });
    }

    #[test]
    fn ranks_that_all_print_count_once() {
        let lines = lines_each_ten_steps(&mixed(4000, &mut Random(2)));
        let one = held_back(&lines, 1).value;
        let of_ranks = |&(at, rate): &(f64, f64)| [0.0, 1.0, 2.0, 3.0].map(|rank| (at + 1e-4 * rank, rate));
        let four: Vec<(f64, f64)> = lines.iter().flat_map(of_ranks).collect();
        for together in [1, 4] {
            assert!((held_back(&four, together).value / one - 1.0).abs() < 0.03);
        }
    }

    #[test]
    fn a_pause_between_lines_gives_no_line_more_weight() {
        let mut printed = Printed::default();
        for line in 0..10 {
            printed.take(f64::from(line), &[100.0]);
        }
        assert_eq!(printed.take(40.0, &[200.0]).1, one(40.0, 0.5, 200.0), "as much as in any other stretch");
        assert_eq!(printed.take(50.0, &[10.0]).1, one(50.0, 10.0, 10.0), "a slow stretch is none");
    }

    #[test]
    fn lines_that_become_rarer_count_in_full() {
        let mut printed = Printed::default();
        for line in 0..10 {
            printed.take(0.1 * f64::from(line), &[100.0]);
        }
        let seconds = |printed: &mut Printed, at: f64| printed.take(at, &[100.0]).1[0].seconds;
        assert!(seconds(&mut printed, 2.9) < 0.2, "the first may follow a pause");
        for line in 1..5 {
            assert!((seconds(&mut printed, 2.9 + 2.0 * f64::from(line)) - 2.0).abs() < 1e-9, "{line}");
        }
    }

    fn one(at: f64, seconds: f64, rate: f64) -> Vec<Stretch> {
        vec![Stretch { at, seconds, rate }]
    }

    #[test]
    fn the_first_lines_say_nothing_of_their_time() {
        let mut printed = Printed::default();
        assert_eq!(printed.take(60.0, &[10.0]), (false, one(60.0, 1.0, 10.0)));
        assert_eq!(printed.take(62.0, &[20.0]), (true, one(62.0, 2.0, 20.0)));
        assert_eq!(printed.take(63.0, &[f64::INFINITY, -1.0]), (false, Vec::new()));
        assert_eq!(printed.take(65.0, &[20.0]), (false, one(65.0, 2.0, 20.0)));
        // All lines arrive at once, at the end; they describe equal work.
        for (rates, seconds) in [([10.0, 30.0], [1.5, 0.5]), ([0.0, 30.0], [1.0, 1.0])] {
            let (replaces, all) = Printed::default().take(9.0, &rates);
            assert_eq!((replaces, [all[0].seconds, all[1].seconds]), (false, seconds));
        }
    }
}
