//! Estimates how likely a config is to run at all. A failure has no score; it is only distinguished from success.

use super::kernel::Shape;
use super::points::{Axis, Points};
use super::process::{Data, Process};

/// A model that predicts which configs run, from the trials so far.
pub(super) struct Feasibility {
    data: Data,
    shape: Shape,
    /// The share of configs that is expected to run where nothing is known.
    prior: f64,
}

/// The smallest probability that any config gets, since a model of failures is never certain. A round number.
const LEAST: f64 = 0.02;

impl Feasibility {
    /// Fits the model to points that ran and points that did not; `None` if all ran.
    pub(super) fn of(points: Points, ran: &[bool], axes: usize) -> Option<Self> {
        let failed = ran.iter().filter(|ran| !**ran).count();
        if failed == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of trials")]
        let prior = (ran.len() - failed + 1) as f64 / (ran.len() + 1) as f64;
        let values = ran.iter().map(|&ran| f64::from(u8::from(ran)) - prior).collect();
        let data = Data { points, values, noise: vec![0.0; ran.len()] };
        // The lengths are a whole axis: the limits of memory and of kernels run across parameters.
        let shape = Shape { lengths: vec![0.0; axes], variance: 0.25, noise: 0.02 };
        Some(Self { data, shape, prior })
    }

    pub(super) fn process<'f>(&'f self, axes: &'f [Axis]) -> Option<Process<'f>> {
        Process::new(&self.data, axes, &self.shape)
    }

    /// Returns the probability that a point runs, from the process's mean there.
    pub(super) fn chance_of(&self, mean: f64) -> f64 {
        (mean + self.prior).clamp(LEAST, 1.0)
    }
}
