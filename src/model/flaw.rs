//! Finds out from facts that a job trains less than its rate says, or cannot train for a whole epoch.

use super::measurement::Measurement;
use super::quantity::show_count;

impl Measurement {
    /// Returns what a user must know of a config that is named, or of the baseline, which is never rejected. `run_seconds` is the time
    /// of the whole training, if it is known. `goes_on` says that another run of the config grew for longer than an epoch.
    pub fn warnings(&self, run_seconds: Option<f64>, goes_on: bool) -> Vec<String> {
        let surplus = self.surplus_workers().map(|(delivering, workers)| {
            format!("{delivering} of {workers} workers deliver data: the data set has no part for the others")
        });
        let found = self.recovery().or_else(|| self.flaw()).into_iter();
        found.chain(surplus).chain(self.exhaustion(run_seconds, goes_on)).chain(self.trend_words()).collect()
    }

    /// Returns a sentence about steps that become steadily slower or faster.
    fn trend_words(&self) -> Option<String> {
        let trend = self.timing.trend?;
        let (times, how) = if trend > 1.0 { (trend, "slower") } else { (1.0 / trend, "faster") };
        Some(format!(
            "steps become {times:.1} times {how} while they are measured (sorted data, a cache that fills, or a schedule): \
             the rate may not hold for the whole training"
        ))
    }

    /// Returns how many workers deliver data, and how many there are, if some of them have no part of the data.
    pub fn surplus_workers(&self) -> Option<(f64, f64)> {
        Some((self.facts.number("loader.workers_delivering")?, self.facts.number("loader.workers")?))
    }

    /// Returns that memory ran out, and that the script then trained with smaller batches, if it did.
    pub fn recovery(&self) -> Option<String> {
        let (from, to) = (self.facts.number("recovery.from")?, self.facts.number("recovery.to")?);
        Some(format!(
            "memory ran out with a batch of {} samples, and the script trains with {}",
            show_count(from),
            show_count(to)
        ))
    }

    /// Returns why the job cannot train for a whole epoch, or trains less than its rate says; `None` if nothing shows that.
    pub fn flaw(&self) -> Option<String> {
        let facts = &self.facts;
        if let Some(place) = facts.text("loader.repeats") {
            return Some(format!(
                "all workers of the loader yield the same samples ({place}): each must take its own part, with \
                 torch.utils.data.get_worker_info()"
            ));
        }
        let batch = facts.number("loader.batch_size")?;
        if let Some(before) = facts.number("loader.batch_size_before").filter(|before| *before != batch) {
            return Some(format!("the script changes the batch size while it trains, from {before} to {batch}"));
        }
        let samples = facts.number("loader.samples")?;
        if batch > samples {
            return Some(format!("the data set has {samples} samples, fewer than a batch of {batch}"));
        }
        let is_left_over = facts.flag("loader.drop_last") == Some(false) && samples % batch == 1.0 && batch > 1.0;
        (is_left_over && facts.flag("batch_norm_1d") == Some(true)).then(|| {
            format!(
                "the last batch of an epoch has 1 sample ({samples} samples, {batch} in a batch), on which BatchNorm1d fails: \
                 set drop_last=True in the DataLoader"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Fact;

    fn with(facts: &[(&str, Fact)]) -> Measurement {
        let mut measurement = Measurement::default();
        facts.iter().for_each(|(name, fact)| measurement.facts.insert(0, name, fact.clone()));
        measurement
    }

    #[test]
    fn facts_tell_what_cannot_be_right() {
        let flaw = |samples: f64, batch: f64, drop_last: bool, batch_norm: bool| {
            with(&[
                ("loader.samples", Fact::Number(samples)),
                ("loader.batch_size", Fact::Number(batch)),
                ("loader.drop_last", Fact::Flag(drop_last)),
                ("batch_norm_1d", Fact::Flag(batch_norm)),
            ])
            .flaw()
        };
        assert!(flaw(100.0, 128.0, false, false).unwrap().starts_with("the data set has 100 samples"));
        assert!(flaw(129.0, 64.0, false, true).unwrap().starts_with("the last batch of an epoch has 1 sample"));
        for sound in [
            (129.0, 64.0, true, true),
            (129.0, 64.0, false, false),
            (128.0, 64.0, false, true),
            (9.0, 1.0, false, true),
        ] {
            assert_eq!(flaw(sound.0, sound.1, sound.2, sound.3), None, "{sound:?}");
        }
    }

    #[test]
    fn a_batch_size_that_the_script_changes_is_told_with_both_sizes() {
        let sizes = |before: f64| {
            with(&[("loader.batch_size", Fact::Number(256.0)), ("loader.batch_size_before", Fact::Number(before))])
        };
        let words = "the script changes the batch size while it trains, from 512 to 256";
        assert_eq!(sizes(512.0).flaw().as_deref(), Some(words));
        assert_eq!(sizes(256.0).flaw(), None, "it has changed it back");
        let recovered = with(&[("recovery.from", Fact::Number(1024.0)), ("recovery.to", Fact::Number(256.0))]);
        let words = "memory ran out with a batch of 1,024 samples, and the script trains with 256";
        assert_eq!(recovered.warnings(None, false), [words]);
    }
}
