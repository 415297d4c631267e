//! A Gaussian process over the space, and the config that is expected to improve most on the best.
//!
//! Every config that is not known yet is scored where the space can be listed; a sample and what lies around the best
//! where it cannot. Failures never become numbers: a second process tells how likely a config is to run.

mod acquisition;
mod candidates;
mod earlier;
mod feasibility;
mod first;
mod fit;
mod kernel;
mod matrix;
mod mean;
mod model;
mod normal;
mod physics;
mod points;
mod process;
mod scale;

use candidates::{Chunk, Listed, chunks};
use earlier::Lesson;
use physics::Physics;

use super::{Earlier, EarlierStudy, Entry, Proposal, Strategy, View, random};
use crate::outcome::Outcome;
use crate::space::Config;
use crate::trial::Trial;

pub(super) const ENTRY: Entry = Entry {
    name: "bayes",
    about: "a Gaussian process: the config that is expected to improve most",
    build: || Box::new(Bayes::default()),
};

/// Remembers the list of the space, and what was learned from earlier studies.
#[derive(Debug, Default)]
pub(super) struct Bayes {
    listed: Option<Listed>,
    lessons: Vec<Lesson>,
    /// The studies that the lessons are of.
    studies: Vec<u64>,
    /// Whether the process starts from the physics of a training step, where the space has parameters that it knows.
    knows_physics: bool,
}

impl Bayes {
    pub(super) fn with_physics() -> Self {
        Self { knows_physics: true, ..Self::default() }
    }

    /// Learns from the earlier studies, unless that was done.
    fn learn(&mut self, view: &View<'_>) {
        let earlier = &view.earlier[..view.earlier.len().min(EarlierStudy::MOST)];
        if !self.studies.iter().copied().eq(earlier.iter().map(Earlier::id)) {
            self.studies = earlier.iter().map(Earlier::id).collect();
            self.lessons = earlier.iter().filter_map(|study| Lesson::of(view.space, view.objective, study)).collect();
        }
    }
}

/// The best config of the first earlier study, where nothing but the start is known.
fn earliest(view: &View<'_>, known: &Known<'_>) -> Option<Proposal> {
    let study = view.earlier.first()?;
    let mut tried = known.trials.iter().map(|trial| &trial.config).chain(view.pending);
    let waits_for_start = view.start.is_some_and(|start| view.is_open(start));
    if waits_for_start || tried.any(|config| Some(config) != view.start) {
        return None;
    }
    let config = study.leaders(view.space, view.start).find(|config| view.is_open(config))?;
    Some(Proposal { reason: Some(format!("tries the best of {}", study.place())), ..Proposal::from(config) })
}

/// Trials before the process proposes: with fewer it knows of no difference.
const FIRST_TRIALS: usize = 3;
impl Strategy for Bayes {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        if self.listed.as_ref().is_none_or(|listed| !listed.is_of(view.space)) {
            self.listed = Some(Listed::of(view.space));
            (self.lessons, self.studies) = (Vec::new(), Vec::new());
        }
        self.learn(view);
        let known = Known::of(view);
        if let Some(proposal) = earliest(view, &known) {
            return Some(proposal);
        }
        let sampled;
        let candidates: &[Chunk] = match self.listed.as_ref().and_then(|listed| listed.chunks.as_ref()) {
            Some(chunks) => chunks,
            None => {
                sampled = chunks(view.space, candidates::sample(view, &known.leaders(), random::seed_of_draw(view)));
                &sampled
            }
        };
        let physics = if self.knows_physics { Physics::of(view) } else { None };
        let has_at_least = |trials: usize, scored: usize| {
            known.trials.len() + view.pending.len() >= trials && known.scored.len() >= scored
        };
        let is_short = match (&physics, self.lessons.is_empty()) {
            (Some(_), _) => !has_at_least(1, 1),
            (None, true) => !has_at_least(FIRST_TRIALS, 2),
            // Those that an earlier study proposed tell little where it misleads.
            (None, false) => !has_at_least(FIRST_TRIALS + 2, 2),
        };
        let first = || first::first(view, &known, candidates).map(Proposal::from);
        if is_short && (self.lessons.is_empty() || !has_at_least(1, 1)) {
            return first();
        }
        model::propose(view, &known, candidates, physics, &self.lessons, is_short)
            .or_else(|| if is_short { first() } else { random::propose(view).map(Proposal::from) })
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
