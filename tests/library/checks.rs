//! The checks of a measured config: it computes the same as full precision, and its settings have an effect.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::cell::RefCell;
use std::time::Duration;

use gputune::model::{Outcome, Parameter, Settings, Space};
use gputune::probe::{Step, StepError, TrainingStep};
use gputune::search::{Study, Tuner};

/// A step whose loss falls in the same way each time; a lower precision is faster.
struct Training<'t> {
    loss_error: fn(precision: &str, step: u32) -> f64,
    step: u32,
    /// The settings of every probe, in order.
    probed: &'t RefCell<Vec<String>>,
}

impl TrainingStep for Training<'_> {
    fn prepare(&mut self, settings: &Settings) -> Result<(), StepError> {
        self.step = 0;
        self.probed.borrow_mut().push(settings.line());
        if settings.line() == "precision=fp32 batch_size=16" {
            return Err(StepError::OutOfMemory("full precision does not fit".to_owned()));
        }
        Ok(())
    }

    fn step(&mut self, settings: &Settings) -> Result<Step, StepError> {
        let precision = settings.text("precision").unwrap();
        self.step += 1;
        // The difference is large enough for a busy machine.
        std::thread::sleep(Duration::from_millis(if precision == "fp32" { 12 } else { 2 }));
        let loss = 2.3 / f64::from(self.step) * (1.0 + (self.loss_error)(precision, self.step));
        let batch = settings.integer("batch_size").unwrap().unsigned_abs();
        Ok(Step::new(batch).loss(loss))
    }
}

fn search(
    precisions: &[&str],
    batches: &[i64],
    loss_error: fn(&str, u32) -> f64,
    probed: &RefCell<Vec<String>>,
) -> Study {
    let space = Space::new([
        Parameter::values("precision", precisions.iter().copied()).full_precision("fp32"),
        Parameter::values("batch_size", batches.iter().copied()),
    ])
    .unwrap();
    Tuner::new(space, Training { loss_error, step: 0, probed })
        .strategy("grid")
        .unwrap()
        .measure_time(Duration::from_millis(150))
        .run(|_| ())
        .unwrap()
}

fn outcome<'s>(study: &'s Study, line: &str) -> &'s Outcome {
    &study.history.searched().find(|trial| study.settings(&trial.config).line() == line).unwrap().outcome
}

#[test]
fn a_loss_that_drifts_never_wins_and_a_rounded_one_does() {
    let probed = RefCell::new(Vec::new());
    let error = |precision: &str, step: u32| match precision {
        "bf16" => 0.002 * f64::from(step % 3),
        "fp16" => 0.05 * f64::from(step),
        _ => 0.0,
    };
    let study = search(&["fp32", "fp16", "bf16"], &[8], error, &probed);
    assert_eq!(study.settings(&study.best().unwrap().winner.config).line(), "precision=bf16 batch_size=8");
    let reason = &outcome(&study, "precision=fp16 batch_size=8").failure().unwrap().reason;
    assert!(reason.contains("% from full precision (limit 10 %)"), "{reason}");
    let measurement = outcome(&study, "precision=bf16 batch_size=8").measurement().unwrap();
    let numerics = measurement.numerics.as_ref().unwrap();
    assert!(numerics.drift.unwrap() < 0.01, "{numerics:?}");
    let in_full = probed.borrow().iter().filter(|line| line.starts_with("precision=fp32")).count();
    let trials = study.history.trials().iter();
    let searched_in_full = trials.filter(|trial| study.settings(&trial.config).line().starts_with("precision=fp32"));
    assert_eq!(in_full, searched_in_full.count(), "its losses were there, so it is not run for them again");
}

#[test]
fn full_precision_is_run_for_its_losses_where_the_space_does_not_have_it() {
    let probed = RefCell::new(Vec::new());
    let study = search(&["bf16"], &[8], |_, _| 0.0, &probed);
    assert_eq!(*probed.borrow(), ["precision=bf16 batch_size=8", "precision=fp32 batch_size=8"]);
    let measurement = outcome(&study, "precision=bf16 batch_size=8").measurement().unwrap();
    assert_eq!(measurement.numerics.as_ref().unwrap().drift, Some(0.0));
    assert_eq!(study.history.trials().len(), 1, "the comparison is no trial");
}

#[test]
fn what_cannot_be_compared_is_said_so() {
    let probed = RefCell::new(Vec::new());
    let study = search(&["bf16"], &[16], |_, _| 0.0, &probed);
    let measurement = outcome(&study, "precision=bf16 batch_size=16").measurement().unwrap();
    let numerics = measurement.numerics.as_ref().unwrap();
    let reason = numerics.not_compared.as_ref().unwrap();
    assert!(reason.contains("out of memory: full precision does not fit"), "{reason}");
}
