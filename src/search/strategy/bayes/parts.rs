//! The parts of the method, for measuring what each contributes.

/// The parts of [`auto`](super::super::STRATEGIES). Each part can be left out.
///
/// Normal searches have all parts (`bayes` all but the physics); an ablation leaves out one at a time.
///
/// ```
/// use gputune::search::strategy::{Parts, bayes_with};
///
/// let without_noise = Parts { noise: false, ..Parts::default() };
/// let strategy = bayes_with(without_noise);
/// # drop(strategy);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a part of its own")]
pub struct Parts {
    /// The process starts from the model of a training step, if throughput counts and the space has parameters that the
    /// model knows; else from a constant. It needs `logarithm`.
    pub physics: bool,
    /// Each trial's noise follows from its own interval; else all trials have the same noise.
    pub noise: bool,
    /// A second process predicts how likely a config is to run; else every open config is taken to run.
    pub feasibility: bool,
    /// Every open config is scored where the space can be listed; else a sample, as in larger spaces.
    pub every_config: bool,
    /// Scores are compared as logarithms if they are positive; else without a transformation.
    pub logarithm: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Self { physics: true, noise: true, feasibility: true, every_config: true, logarithm: true }
    }
}
