//! What people use: Bayesian optimisation around the physics of a training step.
//!
//! Where the space has parameters whose role is known, the Gaussian process of `bayes` starts from a model of the step's
//! time; where the history speaks against that model, or the space has no such parameter, it goes without.

use super::Entry;
use super::bayes::{Parts, bayes_with};

pub(super) const ENTRY: Entry = Entry {
    name: "auto",
    about: "bayes, around a model of what a training step's time depends on",
    build: || bayes_with(Parts::default()),
};
