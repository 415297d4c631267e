//! Compares the samples per second that two configs take from their loader, if the rate counts another unit, such as tokens.

use super::{Ranked, Study};
use crate::model::fact::{BY_SPEC, COUNTED_BY};
use crate::model::{HANDED_OUT, Measurement, SAMPLES_PER_SECOND};

/// The gain of a config over the baseline, counted in two ways that disagree.
#[derive(Debug, Clone, PartialEq)]
pub struct TwoGains {
    /// The gain of the rate.
    pub rate: f64,
    /// The gain in samples per second of the loader, or in epochs per second if the datasets differ in length.
    pub samples: f64,
    unit: String,
}

/// The least ratio of the work per sample that counts as a difference: a round number, above the ratio of two runs of one config.
const LEAST: f64 = 1.1;

/// A gain in samples below this number is a loss. Between it and 1, noise may be the reason.
const LOSS: f64 = 0.97;

impl TwoGains {
    /// Returns true if the rate rises while fewer samples are trained.
    pub fn disagree_in_sign(&self) -> bool {
        self.rate > 1.0 && self.samples < LOSS
    }

    /// Returns both gains in a sentence.
    pub fn words(&self) -> String {
        let Self { rate, samples, unit } = self;
        let falls = self.disagree_in_sign();
        let (only, reason) =
            if falls { ("", ": the rate counts padding, or samples of another size") } else { ("only ", "") };
        format!(
            "{unit} are {rate:.2} times the baseline's, but the loader's samples per second {only}{samples:.2} times{reason}"
        )
    }
}

impl Study {
    /// Returns both gains of a config over the baseline, if the work of a sample is not the same in both.
    pub fn two_gains(&self, entry: &Ranked) -> Option<TwoGains> {
        let baseline = self.baseline.as_ref().filter(|config| **config != entry.config)?;
        let baseline = self.ranking().into_iter().find(|other| other.config == *baseline)?;
        let (own, of_baseline) = (self.work_per_sample(entry)?, self.work_per_sample(&baseline)?);
        let rate = self.gain(entry, &baseline)?.value;
        let epoch = |entry: &Ranked| {
            let ranks = f64::from(entry.measurement.ranks.unwrap_or(1));
            Some(entry.measurement.facts.number("loader.samples")? * ranks).filter(|samples| *samples > 0.0)
        };
        let longer = match (epoch(entry), epoch(&baseline)) {
            (Some(own), Some(of_baseline)) => own / of_baseline,
            _ if self.differs_in_length(entry, &baseline) => return None,
            _ => 1.0,
        };
        let more = own / of_baseline * longer;
        let unit = match self.objective.is_largest_throughput() {
            true if entry.measurement.unit == SAMPLES_PER_SECOND => "the reported samples/s".to_owned(),
            true => entry.measurement.unit.clone(),
            false => self.objective.metric().to_owned(),
        };
        (more > LEAST).then(|| TwoGains { rate, samples: rate / more, unit })
    }

    /// Returns the work that the rate counts for each sample, from the longest measurement.
    fn work_per_sample(&self, entry: &Ranked) -> Option<f64> {
        let runs = self.history.of(&entry.config).filter_map(|trial| trial.outcome.measurement());
        let works = runs.filter_map(|run| Some((run.timing.measured_seconds?, self.work_in(run)?)));
        works.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, work)| work)
    }

    fn work_in(&self, run: &Measurement) -> Option<f64> {
        let is_of_tokens = !self.objective.is_largest_throughput() && self.objective.metric().contains("token");
        let is_counted = run.unit == SAMPLES_PER_SECOND && run.facts.text(COUNTED_BY).is_some_and(|by| by != BY_SPEC);
        let counted = || Some(run.throughput?.value).filter(|_| is_of_tokens && is_counted);
        let samples = run.metrics.get(HANDED_OUT).copied().or_else(counted)?;
        let is_rate = self.objective.is_largest_throughput() || is_of_tokens;
        let work = self.objective.estimate(run)?.value / samples;
        (is_rate && work.is_finite() && work > 0.0).then_some(work)
    }

    /// Returns true if a parameter that sets the length of a sample differs, judging by its name. Text that is cut into blocks of
    /// another length has another number of samples.
    fn differs_in_length(&self, entry: &Ranked, baseline: &Ranked) -> bool {
        const LENGTHS: &[&str] = &["seq", "block", "context", "length", "max_len", "window", "crop"];
        let names = self.space.parameters().iter().map(crate::model::Parameter::name);
        let levels = entry.config.levels().zip(baseline.config.levels());
        names.zip(levels).any(|(name, (own, other))| own != other && LENGTHS.iter().any(|word| name.contains(word)))
    }
}
