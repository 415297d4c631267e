//! The demo job as a [`TrainingStep`], for a search inside one process.

use super::{DemoError, DemoOptions, DemoTrainer, Precision};
use crate::model::Settings;
use crate::probe::{Step, StepError, TrainingStep};

/// Trains with the settings `batch_size`, `workers`, `prefetch` and `precision`, if the space has them.
#[derive(Debug, Default)]
pub struct DemoTraining {
    options: DemoOptions,
    trainer: Option<DemoTrainer>,
}

impl DemoTraining {
    /// Makes a training with these options. The settings of the space override them.
    pub fn new(options: DemoOptions) -> Self {
        Self { options, trainer: None }
    }

    fn options(&self, settings: &Settings) -> Result<DemoOptions, StepError> {
        let number = |name: &str, default: usize| match settings.get(name) {
            None => Ok(default),
            Some(value) => value
                .as_i64()
                .and_then(|number| usize::try_from(number).ok())
                .ok_or_else(|| StepError::Rejected(format!("`{name}` is {value}, and must be a whole number"))),
        };
        Ok(DemoOptions {
            batch_size: number("batch_size", self.options.batch_size)?,
            workers: number("workers", self.options.workers)?,
            prefetch: number("prefetch", self.options.prefetch)?,
            precision: match settings.text("precision") {
                Some(text) => text.parse::<Precision>()?,
                None => self.options.precision,
            },
            ..self.options.clone()
        })
    }
}

impl TrainingStep for DemoTraining {
    fn prepare(&mut self, settings: &Settings) -> Result<(), StepError> {
        self.trainer = Some(DemoTrainer::new(&self.options(settings)?)?);
        Ok(())
    }

    fn step(&mut self, settings: &Settings) -> Result<Step, StepError> {
        if self.trainer.is_none() {
            self.prepare(settings)?;
        }
        let Some(trainer) = &mut self.trainer else {
            return Err(StepError::GiveUp("the training was not prepared".to_owned()));
        };
        let step = trainer.step()?;
        let memory = trainer.memory();
        Ok(Step::new(step.samples)
            .loss(step.loss)
            .memory(memory.bytes, memory.limit_bytes)
            .phase("data_wait", step.data_wait)
            .phase("forward", step.forward)
            .phase("backward", step.backward)
            .phase("optimizer", step.update))
    }

    fn release(&mut self) {
        self.trainer = None;
    }
}

impl From<DemoError> for StepError {
    fn from(error: DemoError) -> Self {
        match error {
            DemoError::OutOfMemory { .. } => Self::OutOfMemory(error.to_string()),
            DemoError::InvalidOption { .. } => Self::Rejected(error.to_string()),
            error => Self::Failed(Box::new(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_choose_the_options_and_bad_ones_are_refused() {
        let training = DemoTraining::default();
        let settings: Settings = [("batch_size", 8), ("workers", 2)].into_iter().collect();
        let options = training.options(&settings).unwrap();
        assert_eq!((options.batch_size, options.workers), (8, 2));
        for (name, value) in [("batch_size", "many"), ("precision", "f64")] {
            let settings: Settings = [(name, value)].into_iter().collect();
            assert!(matches!(training.options(&settings), Err(StepError::Rejected(_))), "{name}");
        }
    }
}
