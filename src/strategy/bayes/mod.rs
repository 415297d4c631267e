//! A Gaussian process over the space, and the config that is expected to improve most on the best.
//!
//! Every config that is not known yet is scored where the space can be listed; a sample and what lies around the best
//! where it cannot. Failures never become numbers: a second process tells how likely a config is to run.

mod acquisition;
mod candidates;
mod feasibility;
mod first;
mod fit;
mod kernel;
mod matrix;
mod memory;
mod model;
mod normal;
mod physics;
mod points;
mod process;
mod scale;

use candidates::{Chunk, Listed, chunks};
use memory::MemoryNeed;
use physics::Physics;

use super::{Entry, Proposal, Strategy, View, random};
use crate::outcome::Outcome;
use crate::space::Config;
use crate::trial::Trial;

pub(super) const ENTRY: Entry = Entry {
    name: "bayes",
    about: "a Gaussian process: the config that is expected to improve most",
    build: || Box::new(Bayes::default()),
};

/// Remembers the list of the space.
#[derive(Debug, Default)]
pub(super) struct Bayes {
    listed: Option<Listed>,
    /// Whether the process starts from the physics of a training step, where the space has parameters that it knows.
    knows_physics: bool,
}

impl Bayes {
    pub(super) fn with_physics() -> Self {
        Self { listed: None, knows_physics: true }
    }
}

/// Trials before the process proposes: with fewer it knows of no difference.
const FIRST_TRIALS: usize = 3;
impl Strategy for Bayes {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        if self.listed.as_ref().is_none_or(|listed| !listed.is_of(view.space)) {
            self.listed = Some(Listed::of(view.space));
        }
        let known = Known::of(view);
        let sampled;
        let candidates: &[Chunk] = match self.listed.as_ref().and_then(|listed| listed.chunks.as_ref()) {
            Some(chunks) => chunks,
            None => {
                sampled = chunks(view.space, candidates::sample(view, &known.leaders(), random::seed_of_draw(view)));
                &sampled
            }
        };
        let physics = if self.knows_physics { Physics::of(view) } else { None };
        let (least_trials, least_scored) = if physics.is_some() { (1, 1) } else { (FIRST_TRIALS, 2) };
        if known.trials.len() + view.pending.len() < least_trials || known.scored.len() < least_scored {
            let memory = if self.knows_physics { MemoryNeed::of(view, &known.trials) } else { None };
            if let Some(proposal) = physics.and_then(|physics| physics.first(view, candidates, memory.as_ref())) {
                return Some(proposal);
            }
            return first::first(view, &known, candidates).map(Proposal::from);
        }
        let memory = if self.knows_physics { MemoryNeed::of(view, &known.trials) } else { None };
        model::propose(view, &known, candidates, physics, memory.as_ref())
            .or_else(|| random::propose(view).map(Proposal::from))
    }
}

/// What the history says, trial by trial.
struct Known<'v> {
    /// Trials that say something about their config.
    trials: Vec<&'v Trial>,
    /// Those with a score, if only of a part.
    scored: Vec<(&'v Trial, f64)>,
}

impl<'v> Known<'v> {
    fn of(view: &View<'v>) -> Self {
        let says_nothing = |trial: &&Trial| matches!(trial.outcome, Outcome::Disturbed(_) | Outcome::Interrupted);
        let trials: Vec<&Trial> = view.history.searched().filter(|trial| !says_nothing(trial)).collect();
        let score = |trial: &&'v Trial| Some((*trial, view.objective.partial_score_of(&trial.outcome)?));
        Self { scored: trials.iter().filter_map(score).collect(), trials }
    }

    /// The configs that a sample is taken around, the best first.
    fn leaders(&self) -> Vec<&'v Config> {
        const LEADERS: usize = 4;
        let mut scored: Vec<&(&Trial, f64)> = self.scored.iter().collect();
        scored.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        scored.into_iter().take(LEADERS).map(|(trial, _)| &trial.config).collect()
    }
}
