//! How likely a config is to run at all. A failure is no number: it is told from success, and nothing else.

use super::kernel::Shape;
use super::points::{Axis, Points};
use super::process::{Data, Process};

/// What the trials so far say about which configs run.
pub(super) struct Feasibility {
    data: Data,
    shape: Shape,
    /// The share that is expected where nothing is known.
    prior: f64,
}

/// The chance that is left to any config: a model of failures is never sure.
const LEAST: f64 = 0.02;

impl Feasibility {
    /// From points that ran and points that did not; `None` where all ran.
    pub(super) fn of(points: Points, ran: &[bool], axes: usize) -> Option<Self> {
        let failed = ran.iter().filter(|ran| !**ran).count();
        if failed == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of trials")]
        let prior = (ran.len() - failed + 1) as f64 / (ran.len() + 1) as f64;
        let values = ran.iter().map(|&ran| f64::from(u8::from(ran)) - prior).collect();
        let data = Data { points, values, noise: vec![0.0; ran.len()] };
        // Half a width, and mostly interacting: the edges of memory and of a kernel's limits run across parameters.
        let shape = Shape { lengths: vec![-0.7; axes], share: 0.7, variance: 0.25, noise: 0.02 };
        Some(Self { data, shape, prior })
    }

    pub(super) fn process<'f>(&'f self, axes: &'f [Axis]) -> Option<Process<'f>> {
        Process::new(&self.data, axes, &self.shape)
    }

    /// The chance that a point runs, by the mean that the process has there.
    pub(super) fn chance_of(&self, mean: f64) -> f64 {
        (mean + self.prior).clamp(LEAST, 1.0)
    }
}
