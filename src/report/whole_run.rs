//! Says how long the whole training takes with the baseline and with the best config.

use super::row::is_vague;
use super::screen::fitting;
use crate::model::quantity::show_count;
use crate::model::{Estimate, RunLength};
use crate::search::WholeRun;

/// The smallest share of the run's time, and the smallest relative difference of speedups, to mention: a round number.
const MATTERS: f64 = 0.05;

impl WholeRun {
    /// Returns how many times faster the whole run is, with its interval.
    pub fn speedup(&self) -> Estimate {
        let times = |seconds: f64| self.baseline_s / seconds;
        let Estimate { value, low, high } = self.best_s;
        Estimate { value: times(value), low: high.map(times), high: low.map(times) }
    }

    /// Returns one sentence without a full stop, such as
    /// `whole run of 90 epochs: 2.14x faster, 31.2 h -> 14.6 h (13.1 to 16.4); steps alone 2.60x; evaluation is now 18% of the run`.
    ///
    /// `proven` is the proven speedup of the steps. The speedup of the whole run is in the sentence if it differs from that.
    pub fn words(&self, proven: Option<Estimate>) -> String {
        self.sentence(proven) + &self.after_times()
    }

    /// Returns the same sentence for one line, with the parts that fit.
    pub(super) fn brief(&self, proven: Option<Estimate>) -> String {
        let same_samples = self.best_steps.map(|steps| match &self.steps_option {
            Some(option) => format!(" with {option} {steps:.0}"),
            None => format!(" with {} steps", show_count(steps)),
        });
        fitting(self.sentence(proven) + &same_samples.unwrap_or_default(), self.notes())
    }

    fn sentence(&self, proven: Option<Estimate>) -> String {
        let own = self.speedup().value;
        let is_known = !is_vague(self.speedup());
        let differs = is_known && proven.is_some_and(|steps| (own / steps.value - 1.0).abs() > MATTERS);
        let words = if differs { shown_speedup(own) + ", " } else { String::new() };
        format!("whole run of {}: {words}{}", self.length, self.times())
    }

    /// Returns the part of the sentence after the times: the steps for as many samples, and the notes.
    pub(super) fn after_times(&self) -> String {
        let same_samples = self.best_steps.map(|steps| match &self.steps_option {
            Some(option) => format!("; set {option} {steps:.0} for as many samples"),
            None => format!("; {} steps of the best config have as many samples", show_count(steps)),
        });
        same_samples.into_iter().chain(self.notes()).collect()
    }

    /// Returns notes on why the whole run gains less or more than the steps alone. Each note begins with its separator.
    fn notes(&self) -> Vec<String> {
        let matters = self.epoch_ends_share.unwrap_or(0.0) >= MATTERS;
        let steps = self.steps_speedup.filter(|_| matters).map(|steps| format!("; steps alone {steps:.2}x"));
        let start =
            (self.start_share >= MATTERS).then(|| format!("; the start is {:.0}% of it", self.start_share * 100.0));
        [steps, Some(self.ends()), start].into_iter().flatten().filter(|note| !note.is_empty()).collect()
    }

    /// Returns both times, the second with its interval.
    pub(super) fn times(&self) -> String {
        let (unit, seconds) = unit(self.baseline_s);
        let before = format!("{} {unit}", three_digits(self.baseline_s / seconds));
        let best = &self.best_s;
        // Both times have one unit, unless the second would begin with a zero.
        let is_vague = is_vague(self.speedup());
        let longest = best.high.filter(|_| is_vague).unwrap_or(best.value);
        let (unit, seconds) = if longest < seconds { self::unit(longest) } else { (unit, seconds) };
        let shown = |time: f64| three_digits(time / seconds);
        if (best.value / self.baseline_s - 1.0).abs() < 1e-9 {
            return before;
        }
        if is_vague {
            let longest = best.high.filter(|high| *high < self.baseline_s);
            let after = longest.map(|longest| format!("at most {} {unit}", shown(longest)));
            return format!("{before} -> {}", after.unwrap_or_else(|| "not known".to_owned()));
        }
        let interval = match (best.low, best.high) {
            (Some(low), Some(high)) => format!(" ({} to {})", shown(low), shown(high)),
            _ => String::new(),
        };
        format!("{before} -> {} {unit}{interval}", shown(best.value))
    }

    fn ends(&self) -> String {
        match (self.epoch_ends_share, self.evaluation_share) {
            (None, _) if matches!(self.length, RunLength::Samples(_)) && self.outside_training.is_none() => {
                String::new()
            }
            (None, _) => match &self.outside_training {
                Some(words) => format!("; this leaves out what is not training ({words})"),
                None => "; the ends of epochs were not measured".to_owned(),
            },
            (Some(ends), _) if ends < MATTERS => String::new(),
            (Some(_), Some(evaluation)) if evaluation >= MATTERS => {
                format!("; evaluation is now {:.0}% of the run", evaluation * 100.0)
            }
            (Some(ends), _) => format!("; the ends of epochs are now {:.0}% of the run", ends * 100.0),
        }
    }
}

/// Formats a speedup: `2.14x faster`, or `1.05x slower` below 1.
fn shown_speedup(times: f64) -> String {
    if times >= 1.0 { format!("{times:.2}x faster") } else { format!("{:.2}x slower", 1.0 / times) }
}

/// Returns the unit for a time, and its seconds.
fn unit(seconds: f64) -> (&'static str, f64) {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    match seconds {
        _ if seconds < 3.0 * MINUTE => ("s", 1.0),
        _ if seconds < 3.0 * HOUR => ("min", MINUTE),
        _ if seconds < 3.0 * DAY => ("h", HOUR),
        _ => ("days", DAY),
    }
}

fn three_digits(number: f64) -> String {
    match number {
        _ if number < 9.995 => format!("{number:.2}"),
        _ if number < 99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> WholeRun {
        WholeRun {
            length: RunLength::Epochs(90.0),
            best_steps: None,
            steps_option: None,
            baseline_s: 31.2 * 3600.0,
            best_s: Estimate::interval(14.6 * 3600.0, 13.1 * 3600.0, 16.4 * 3600.0),
            steps_speedup: Some(2.6),
            epoch_ends_share: Some(0.2),
            evaluation_share: Some(0.18),
            start_share: 0.01,
            outside_training: None,
        }
    }

    #[test]
    fn the_whole_run_is_one_sentence() {
        let words = "whole run of 90 epochs: 31.2 h -> 14.6 h (13.1 to 16.4); steps alone 2.60x; evaluation is now 18% of the run";
        assert_eq!(run().words(None), words);
        let ends = WholeRun { evaluation_share: None, ..run() };
        assert!(ends.words(None).ends_with("; the ends of epochs are now 20% of the run"));
        let short = WholeRun { epoch_ends_share: Some(0.01), ..run() };
        assert_eq!(short.words(None), "whole run of 90 epochs: 31.2 h -> 14.6 h (13.1 to 16.4)");
        let unknown = WholeRun { epoch_ends_share: None, steps_speedup: None, ..run() };
        assert!(unknown.words(None).ends_with("; the ends of epochs were not measured"));
        let outside = "no training step for 12 s, after 37 steps: train.py:40".to_owned();
        let left = WholeRun { outside_training: Some(outside), ..unknown.clone() };
        assert!(left.words(None).ends_with(
            "; this leaves out what is not training (no training step for 12 s, after 37 steps: train.py:40)"
        ));
        let steps = WholeRun { length: RunLength::Steps(2000.0), best_steps: Some(250.0), ..short.clone() };
        let words = "whole run of 2,000 steps: 31.2 h -> 14.6 h (13.1 to 16.4); 250 steps of the best config have as many samples";
        assert_eq!(steps.words(None), words);
        let by_option = WholeRun { steps_option: Some("--max-steps".to_owned()), ..steps };
        assert!(by_option.words(None).ends_with("; set --max-steps 250 for as many samples"));
        let starts_long = WholeRun { start_share: 0.45, ..short.clone() };
        assert!(starts_long.words(None).ends_with("(13.1 to 16.4); the start is 45% of it"));
        let same = WholeRun { best_s: Estimate::point(31.2 * 3600.0), ..short };
        assert_eq!(same.words(None), "whole run of 90 epochs: 31.2 h");
        let of_minutes = |best: f64| WholeRun { baseline_s: 1218.0, best_s: Estimate::point(best), ..same.clone() };
        assert_eq!(of_minutes(170.0).words(None), "whole run of 90 epochs: 20.3 min -> 2.83 min");
        assert_eq!(of_minutes(50.0).words(None), "whole run of 90 epochs: 20.3 min -> 50.0 s");
    }

    #[test]
    fn a_time_within_a_wide_interval_is_no_fact() {
        let within = |low: f64, high: f64| {
            let best_s = Estimate::interval(10.0 * 3600.0, low * 3600.0, high * 3600.0);
            let run = WholeRun { best_s, epoch_ends_share: Some(0.0), evaluation_share: None, ..run() };
            run.words(Some(Estimate::interval(3.0, 1.0, 9.0)))
        };
        assert_eq!(within(4.0, 26.0), "whole run of 90 epochs: 31.2 h -> at most 26.0 h");
        assert_eq!(within(4.0, 40.0), "whole run of 90 epochs: 31.2 h -> not known");
        assert!(within(9.0, 12.0).contains("31.2 h -> 10.0 h (9.00 to 12.0)"));
    }

    #[test]
    fn the_speedup_of_the_whole_run_is_told_if_it_differs_from_that_of_the_steps() {
        let words = |times: f64| run().words(Some(Estimate::point(times)));
        assert!(words(2.6).starts_with("whole run of 90 epochs: 2.14x faster, 31.2 h -> 14.6 h (13.1 to 16.4); "));
        assert!(words(2.2).starts_with("whole run of 90 epochs: 31.2 h -> "), "{}", words(2.2));
        let slower = WholeRun { best_s: Estimate::point(35.1 * 3600.0), ..run() };
        let slower = slower.words(Some(Estimate::point(1.2)));
        assert!(slower.starts_with("whole run of 90 epochs: 1.12x slower, 31.2 h -> 35.1 h"), "{slower}");
        let speedup = run().speedup();
        assert!(speedup.low.unwrap() < 2.0 && speedup.high.unwrap() > 2.3, "{speedup:?}");
    }

    #[test]
    fn a_brief_sentence_fits_into_a_line() {
        let steps = WholeRun {
            length: RunLength::Steps(100_000.0),
            best_steps: Some(12_500.0),
            steps_option: Some("--max-steps".to_owned()),
            start_share: 0.4,
            ..run()
        };
        let brief = steps.brief(Some(Estimate::point(2.6)));
        let words = "whole run of 100,000 steps: 2.14x faster, 31.2 h -> 14.6 h (13.1 to 16.4) with --max-steps 12500";
        assert_eq!(brief, words);
        let epochs = run().brief(None);
        assert_eq!(epochs, "whole run of 90 epochs: 31.2 h -> 14.6 h (13.1 to 16.4); steps alone 2.60x");
    }
}
