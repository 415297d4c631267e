//! Finds out from facts if a job trains less than its rate says, or cannot end an epoch.

use super::outcome::Measurement;

impl Measurement {
    /// Returns what a user must know of a config that is named, or of the baseline, which is never rejected. `run_seconds` is the time
    /// of the whole training, if it is known.
    pub fn warnings(&self, run_seconds: Option<f64>) -> Vec<String> {
        let surplus = self.surplus_workers().map(|(delivering, workers)| {
            format!("{delivering} of {workers} workers deliver data: the data set has no part for the others")
        });
        self.flaw().into_iter().chain(surplus).chain(self.exhaustion(run_seconds)).collect()
    }

    /// Returns how many workers deliver data, and how many there are, if some of them have no part of the data.
    pub fn surplus_workers(&self) -> Option<(f64, f64)> {
        Some((self.facts.number("loader.workers_delivering")?, self.facts.number("loader.workers")?))
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
        let (samples, batch) = (facts.number("loader.samples")?, facts.number("loader.batch_size")?);
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

    #[test]
    fn facts_tell_what_cannot_be_right() {
        let with = |samples: f64, batch: f64, drop_last: bool, batch_norm: bool| {
            let mut measurement = Measurement::default();
            let facts = [
                ("loader.samples", Fact::Number(samples)),
                ("loader.batch_size", Fact::Number(batch)),
                ("loader.drop_last", Fact::Flag(drop_last)),
                ("batch_norm_1d", Fact::Flag(batch_norm)),
            ];
            facts.into_iter().for_each(|(name, fact)| measurement.facts.insert(0, name, fact));
            measurement.flaw()
        };
        assert!(with(100.0, 128.0, false, false).unwrap().starts_with("the data set has 100 samples"));
        assert!(with(129.0, 64.0, false, true).unwrap().starts_with("the last batch of an epoch has 1 sample"));
        for sound in [
            (129.0, 64.0, true, true),
            (129.0, 64.0, false, false),
            (128.0, 64.0, false, true),
            (9.0, 1.0, false, true),
        ] {
            assert_eq!(with(sound.0, sound.1, sound.2, sound.3), None, "{sound:?}");
        }
        assert_eq!(Measurement::default().flaw(), None);
    }
}
