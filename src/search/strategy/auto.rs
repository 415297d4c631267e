//! The default strategy: Bayesian optimisation around a physical model of a training step.
//!
//! If the space has parameters with known roles, the Gaussian process of `bayes` starts from a model of the step's
//! time. If the history speaks against that model, or the space has no such parameter, it does without.

use super::Entry;
use super::bayes::{Parts, bayes_with};

pub(super) const ENTRY: Entry = Entry {
    name: "auto",
    about: "bayes, around a model of what a training step's time depends on",
    build: || bayes_with(Parts::default()),
};
