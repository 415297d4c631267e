//! Computes how the usual rules scale the learning rate for a changed batch size.
//!
//! A larger batch averages the gradient over more samples. Linear scaling is from Goyal et al., "Accurate, Large Minibatch SGD",
//! 2017 (arXiv:1706.02677), with warm-up. Square root is from Krizhevsky, "One weird trick for parallelizing convolutional neural
//! networks", 2014 (arXiv:1404.5997). For Adam and RMSProp it is from Malladi et al., "On the SDEs and Scaling Rules for Adaptive
//! Gradient Algorithms", 2022 (arXiv:2205.10287).

use serde::{Deserialize, Serialize};

use super::screen::labelled;
use crate::model::quantity::{show_count, show_number};
use crate::model::{Config, Measurement, Parameter, Role, Settings, Space, Value};
use crate::probe::StepTemplate;
use crate::search::{Best, Study};

/// The names of a learning rate in arguments of training scripts and frameworks.
const NAMES: &[&str] = &["lr", "learning_rate", "base_lr", "max_lr", "peak_lr", "init_lr", "initial_lr"];

/// The samples in each update of the weights, for the baseline and for the best config, if they differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearningRate {
    /// The samples in an update with the baseline.
    pub batch_before: f64,
    /// The samples in an update with the best config.
    pub batch_after: f64,
    /// The ratio of the best config's batch to the baseline's.
    pub factor: f64,
    /// The factor for the learning rate under linear scaling, equal to the ratio.
    pub linear: f64,
    /// The factor for the learning rate under square-root scaling.
    pub square_root: f64,
    /// The baseline's learning rate, if the command or a parameter states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// A sentence on a learning-rate schedule for a fixed number of steps: its place in the script, and the steps in
    /// which the best config trains on as many samples. Absent without such a schedule, or if the number is computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
}

/// A learning rate and its scaled values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// The name of the parameter or argument.
    pub name: String,
    /// The baseline's learning rate.
    pub before: f64,
    /// The learning rate by linear scaling.
    pub linear: f64,
    /// The learning rate by square-root scaling.
    pub square_root: f64,
    /// The learning rate of the best config, if the rate is a parameter of the space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searched: Option<f64>,
}

impl LearningRate {
    /// Compares the best config with the baseline; `None` without a baseline, or if an update has as many samples as before. With
    /// `step`, the learning rate is also read from its command.
    pub fn of(study: &Study, step: Option<&StepTemplate>) -> Option<Self> {
        let best = study.best()?;
        let baseline = study.baseline.as_ref()?;
        let before = study.settings(baseline);
        let after = study.settings(&best.winner.config);
        let (batch_before, batch_after) = by_roles(study, step, baseline, &best)
            .or_else(|| by_measurement(study, baseline, &best.winner.measurement))?;
        let factor = batch_after / batch_before;
        let differs = factor.is_finite() && factor > 0.0 && (factor - 1.0).abs() > 1e-9;
        let square_root = factor.sqrt();
        let rate = || {
            let (name, rate) = known_rate(&before, step)?;
            let searched = after.get(&name).and_then(Value::as_f64);
            Some(Rate { name, before: rate, linear: rate * factor, square_root: rate * square_root, searched })
        };
        let schedule = || schedule(study, baseline, &best.winner.config, factor);
        differs.then(|| {
            let (rate, schedule) = (rate(), schedule());
            Self { batch_before, batch_after, factor, linear: factor, square_root, rate, schedule }
        })
    }

    /// Returns a few lines of at most 80 columns, the first with a label of ten columns.
    pub fn lines(&self) -> Vec<String> {
        let change = format!("{}, so scale the learning rate", self.change());
        let linear = format!("linear: x{} (SGD; Goyal 2017)", plain(self.linear));
        let root = format!("square root: x{} (Krizhevsky 2014; Adam: Malladi 2022)", plain(self.square_root));
        let rate = self.rate.as_ref().map(Rate::words);
        labelled("lr", [change, linear, root].into_iter().chain(rate).chain(self.schedule.clone()))
    }

    /// Returns one line with the change, without its label. A schedule for a number of steps has a line of its own.
    pub(super) fn brief(&self) -> Vec<String> {
        let (before, after) = (plain(self.batch_before), plain(self.batch_after));
        let scaled = match &self.rate {
            Some(Rate { name, before, linear, square_root, searched }) => {
                let searched = searched.map(|rate| format!("; the config has {}", plain(rate))).unwrap_or_default();
                let (linear, root) = (plain(*linear), plain(*square_root));
                format!("scale {name} from {} to {linear} (SGD) or {root} (Adam){searched}", plain(*before))
            }
            None => {
                let (linear, root) = (plain(self.linear), plain(self.square_root));
                format!("multiply the learning rate by {linear} (SGD) or {root} (Adam)")
            }
        };
        let change = format!("effective batch {before} -> {after}: {scaled}");
        std::iter::once(change).chain(self.schedule.clone()).collect()
    }

    /// Returns one sentence.
    pub fn sentence(&self) -> String {
        let rate = self.rate.as_ref().map_or_else(String::new, |rate| format!(": {}", rate.words()));
        let schedule = self.schedule.as_ref().map_or_else(String::new, |words| format!("; {words}"));
        format!(
            "{}: learning rate x{} by linear scaling (SGD; Goyal 2017), x{} by square root (Krizhevsky 2014; Adam: Malladi \
             2022){rate}{schedule}",
            self.change(),
            plain(self.linear),
            plain(self.square_root)
        )
    }

    fn change(&self) -> String {
        let (before, after) = (plain(self.batch_before), plain(self.batch_after));
        format!("effective batch {before} -> {after} ({}x)", plain(self.factor))
    }
}

impl Rate {
    fn words(&self) -> String {
        let Self { name, before, linear, square_root, searched } = self;
        let searched = searched.map(|rate| format!("; the config has {}", plain(rate))).unwrap_or_default();
        format!("{name} {} -> {} or {}{searched}", plain(*before), plain(*linear), plain(*square_root))
    }
}

/// Returns where the script makes a schedule, and the steps in which the best config trains on the baseline's samples.
fn schedule(study: &Study, baseline: &Config, best: &Config, factor: f64) -> Option<String> {
    let of_config = |config: &Config| {
        // A process that switches between configs keeps the schedule of its first config.
        let runs = study.history.of(config).filter_map(|trial| trial.outcome.measurement()).filter(|run| !run.is_live);
        let known =
            |run: &Measurement| Some((run.facts.text("schedule")?.to_owned(), run.facts.number("schedule.steps")?));
        runs.filter_map(known).next()
    };
    let (made, number) = of_config(best)?;
    // If the baseline and the best config have different numbers of steps, the script computes the number itself. The number is no
    // fact of the baseline if it is that of the baseline's whole training.
    of_config(baseline).is_none_or(|(_, before)| before == number).then(|| {
        let steps = (number / factor).round();
        format!("{made} for {} steps: {} for this batch size", show_count(number), show_count(steps))
    })
}

/// Formats a number: whole numbers without digits after the point, fractions with three digits.
fn plain(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        return format!("{number:.0}");
    }
    if number.abs() < 1e-3 {
        let text = format!("{number:.2e}");
        return match text.split_once('e') {
            Some((digits, exponent)) if digits.contains('.') => {
                format!("{}e{exponent}", digits.trim_end_matches('0').trim_end_matches('.'))
            }
            _ => text,
        };
    }
    let text = show_number(number);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Computes batch times accumulation times devices, from the roles of parameters and derived values.
fn by_roles(study: &Study, step: Option<&StepTemplate>, baseline: &Config, best: &Best) -> Option<(f64, f64)> {
    let roles = roles(&study.space, step);
    let before = study.settings(baseline);
    let after = study.settings(&best.winner.config);
    let batches: Vec<&str> = roles.iter().filter(|(_, it)| *it == Role::Batch).map(|(name, _)| name.as_str()).collect();
    // If the space has a batch and a micro-batch, the whole batch counts.
    let batch = batches.iter().find(|name| !name.contains("micro")).or(batches.first())?;
    let product = |settings: &Settings, kinds: &[Role]| -> Option<f64> {
        let factors = roles.iter().filter(|(_, role)| kinds.contains(role));
        let factors = factors.filter_map(|(name, _)| settings.get(name)?.as_f64());
        Some(settings.get(batch)?.as_f64()? * factors.product::<f64>())
    };
    let of = |kinds: &[Role]| Some((product(&before, kinds)?, product(&after, kinds)?));
    let per_device = of(&[Role::Accumulation, Role::Devices])?;
    // The measured samples of a step show whether the batch is for each device or for all devices together.
    let whole = of(&[Role::Accumulation])?;
    let measured = by_measurement(study, baseline, &best.winner.measurement).map(|(before, after)| after / before);
    let is = |measured: f64, ratio: f64| (measured / ratio - 1.0).abs() < 0.05;
    let (batch_only, with_devices) = (of(&[])?, of(&[Role::Devices])?);
    let matches = |(before, after): (f64, f64)| measured.is_some_and(|measured| is(measured, after / before));
    let is_whole = (matches(batch_only) || matches(whole)) && !matches(with_devices) && !matches(per_device);
    Some(if is_whole { whole } else { per_device })
}

/// Returns the measured samples of a step, for the baseline and for the best config.
fn by_measurement(study: &Study, baseline: &Config, after: &Measurement) -> Option<(f64, f64)> {
    let measured = study.history.of(baseline).filter_map(|trial| trial.outcome.measurement());
    let before = measured.filter_map(|measurement| measurement.timing.samples_per_step).last()?;
    Some((before, after.timing.samples_per_step?)).filter(|(before, after)| *before > 0.0 && *after > 0.0)
}

fn roles(space: &Space, step: Option<&StepTemplate>) -> Vec<(String, Role)> {
    let parameters = space.parameters().iter().filter_map(|p| Some((p.name().to_owned(), p.role()?)));
    let target = |name: &str| {
        let applied = step?.apply.applied.iter().find(|applied| applied.parameter == name)?;
        Some(applied.name.as_str())
    };
    let derived = space.derived().iter().filter_map(|derived| {
        let name = derived.name();
        let role = match target(name) {
            Some("dataloader.batch_size" | "keras.batch_size") => Some(Role::Batch),
            Some("torch.grad_accumulation") => Some(Role::Pieces),
            // The name of a derived value may suggest a role; the range is only a placeholder.
            _ => Parameter::range(name, 1, 1, 1).role(),
        };
        Some((name.to_owned(), role?))
    });
    parameters.chain(derived).collect()
}

/// Returns the name and value of the baseline's learning rate, from a parameter or from the command.
fn known_rate(baseline: &Settings, step: Option<&StepTemplate>) -> Option<(String, f64)> {
    let is_rate = |name: &str| {
        let last = name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase().replace('-', "_");
        NAMES.contains(&last.as_str())
    };
    let of_settings = baseline.iter().find(|(name, _)| is_rate(name));
    if let Some((name, rate)) = of_settings.and_then(|(name, value)| Some((name, value.as_f64()?))) {
        return Some((name.to_owned(), rate));
    }
    let step = step?;
    let words: Vec<&str> = step.command.iter().map(crate::probe::Template::text).collect();
    let number = |text: &str| text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    let of_words = words.iter().enumerate().find_map(|(at, word)| {
        let name = word.trim_start_matches(['-', '+']);
        match name.split_once('=') {
            Some((name, value)) => is_rate(name).then(|| Some((name.to_owned(), number(value)?)))?,
            None if word.starts_with('-') && is_rate(name) => Some((name.to_owned(), number(words.get(at + 1)?)?)),
            None => None,
        }
    });
    let of_env = || {
        step.env.iter().find_map(|(name, value)| is_rate(name).then(|| Some((name.clone(), number(value.text())?)))?)
    };
    of_words.or_else(of_env)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Estimate, Expression, Outcome, Purpose, Timing, Trial};
    use crate::probe::{Template, adapter::Apply};

    /// The settings of a run, and the samples that it measured per step.
    type Run = (&'static [(&'static str, i64)], Option<f64>);

    /// Makes a study of two configs, the baseline and a better config.
    fn study(space: Space, runs: [Run; 2]) -> Study {
        let configs = runs.map(|(settings, samples)| {
            let settings: Settings = settings.iter().copied().collect();
            (space.locate(&settings.chosen(&space)).unwrap(), samples)
        });
        let baseline = Some(configs[0].0.clone());
        let trials = (1_u32..).zip(configs).map(|(number, (config, samples_per_step))| {
            let throughput = Some(Estimate::point(f64::from(number)));
            let timing = Timing { samples_per_step, ..Default::default() };
            let outcome = Outcome::Measured(Measurement { throughput, timing, ..Measurement::default() });
            Trial::new(number, Purpose::Search, config, outcome)
        });
        Study { baseline, ..Study::new(space, trials) }
    }

    /// The baseline and a batch of eight times the size.
    const EIGHTFOLD: [Run; 2] = [(&[("batch_size", 32)], None), (&[("batch_size", 256)], None)];

    fn factor(space: Space, runs: [Run; 2]) -> Option<f64> {
        LearningRate::of(&study(space, runs), None).map(|rate| rate.factor)
    }

    fn step(words: &[&str]) -> StepTemplate {
        let command = words.iter().map(|word| Template::parse(word)).collect();
        StepTemplate { command, env: Vec::new(), cwd: "/".into(), files: Vec::new(), apply: Apply::default() }
    }

    fn batches() -> Space {
        Space::new([Parameter::powers_of_two("batch_size", 8, 512)]).unwrap()
    }

    #[test]
    fn a_larger_batch_gives_both_rules_as_numbers_and_the_rate_of_the_command() {
        let study = study(batches(), EIGHTFOLD);
        let found = LearningRate::of(&study, Some(&step(&["python", "train.py", "--lr", "0.1"]))).unwrap();
        assert_eq!((found.factor, found.linear), (8.0, 8.0));
        insta::assert_snapshot!(found.lines().join("\n") + "\n\n" + &found.sentence());
        assert_eq!(found.brief(), ["effective batch 32 -> 256: scale lr from 0.1 to 0.8 (SGD) or 0.283 (Adam)"]);
        let unknown = LearningRate { rate: None, ..found.clone() };
        let words = "effective batch 32 -> 256: multiply the learning rate by 8 (SGD) or 2.83 (Adam)";
        assert_eq!(unknown.brief(), [words]);
        assert!(found.lines().iter().all(|line| line.chars().count() <= 80), "{:?}", found.lines());
        for (words, rate) in [
            (&["t", "--learning-rate=3e-4"][..], Some(3e-4)),
            (&["t", "optimizer.lr=0.01"], Some(0.01)),
            (&["t", "--lr", "{lr}"], None),
            (&["t", "--lrate", "1"], None),
            (&["t", "--lr"], None),
        ] {
            let found = LearningRate::of(&study, Some(&step(words))).unwrap();
            assert_eq!(found.rate.map(|rate| rate.before), rate, "{words:?}");
        }
    }

    #[test]
    fn the_same_effective_batch_says_nothing() {
        let space = |name: &str| {
            let derived = Expression::parse("512 / batch_size").unwrap();
            Space::builder().parameter(Parameter::powers_of_two("batch_size", 8, 512)).derive(name, derived).build()
        };
        assert_eq!(factor(space("grad_accum").unwrap(), EIGHTFOLD), None);
        assert!(factor(space("other").unwrap(), EIGHTFOLD).is_some());
        assert_eq!(factor(batches(), [EIGHTFOLD[0], EIGHTFOLD[0]]), None);
    }

    #[test]
    fn devices_count_unless_the_batch_is_that_of_all() {
        let space =
            || Space::new([Parameter::powers_of_two("batch_size", 8, 512), Parameter::range("gpus", 1, 8, 1)]).unwrap();
        let runs = |after: f64| -> [Run; 2] {
            [(&[("batch_size", 32), ("gpus", 1)], Some(32.0)), (&[("batch_size", 64), ("gpus", 4)], Some(after))]
        };
        assert_eq!(factor(space(), runs(256.0)), Some(8.0));
        assert_eq!(factor(space(), runs(64.0)), Some(2.0));
    }

    #[test]
    fn where_no_parameter_is_the_batch_the_samples_of_a_step_tell() {
        let space = || Space::new([Parameter::range("scale", 1, 8, 1)]).unwrap();
        let runs = |after: f64| -> [Run; 2] { [(&[("scale", 1)], Some(32.0)), (&[("scale", 2)], Some(after))] };
        assert_eq!(factor(space(), runs(16.0)), Some(0.5));
        assert_eq!(factor(space(), runs(32.0)), None);
    }
}
