//! Fits a Gaussian process over the space, and proposes the config that is expected to improve most on the best.
//!
//! If the space can be listed, every unknown config is scored; otherwise a sample and the surroundings of the best are.
//! Failures never become numbers: a second process predicts how likely a config is to run.
//!
//! Exponentials and logarithms come from `libm`, whose results are the same on every platform: the same history must
//! give the same proposal everywhere.

mod acquisition;
mod candidates;
mod first;
mod fit;
mod kernel;
mod matrix;
mod mean;
mod memory_model;
mod model;
mod physics;
mod plateau;
mod points;
mod process;
mod scale;
mod schedule;

use std::sync::Arc;

use candidates::{Chunk, chunks};
use mean::Lesson;
use memory_model::MemoryNeed;
use model::{Limits, Model};
use physics::Physics;
use schedule::Kept;

use super::{EarlierStudy, Entry, Proposal, Strategy, View, random};
use crate::model::{Config, Outcome, Trial};

/// The default strategy: `bayes` around a physical model of a training step's time. If the history contradicts that model, or the
/// space has no parameter with a known role, it works without the model.
pub(super) const AUTO: Entry = Entry {
    name: "auto",
    about: "bayes, around a model of what a training step's time depends on",
    build: || Box::new(Bayes { physics: true, ..Bayes::default() }),
};

pub(super) const ENTRY: Entry = Entry {
    name: "bayes",
    about: "a Gaussian process: the config that is expected to improve most",
    build: || Box::new(Bayes { physics: false, ..Bayes::default() }),
};

/// Remembers the list of the space, the lessons from earlier studies, and the last fit.
#[derive(Debug, Default)]
struct Bayes {
    /// True if the process starts from the model of a training step and of its memory, in a space that has parameters with a
    /// known role.
    physics: bool,
    fitted: Kept,
    /// The space that was listed, and its configs if it is not too large.
    listed: Option<(Arc<()>, Option<Vec<Chunk>>)>,
    lessons: Vec<Arc<Lesson>>,
    /// The space that the lessons are for, and the studies that they come from.
    studies: Option<(Arc<()>, Vec<u64>)>,
}

/// Proposes the best config of the first earlier study, if nothing but the start is known.
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

/// The fewest trials before the process proposes: with fewer, it cannot know any difference.
const FIRST_TRIALS: usize = 3;

impl Strategy for Bayes {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        let space = view.space.identity();
        if self.listed.as_ref().is_none_or(|(known, _)| !Arc::ptr_eq(known, space)) {
            self.listed = Some((Arc::clone(space), candidates::listed(view.space)));
        }
        self.learn(view);
        let known = Known::of(view);
        if let Some(proposal) = earliest(view, &known) {
            return Some(proposal);
        }
        // Many short probes leave no time to score a whole space.
        let is_hurried = schedule::is_hurried(view);
        let limits = if is_hurried { Limits::HURRIED } else { Limits::USUAL };
        let sampled;
        let listed = self.listed.as_ref().filter(|_| !is_hurried);
        let candidates: &[Chunk] = match listed.and_then(|(_, chunks)| chunks.as_ref()) {
            Some(chunks) => chunks,
            None => {
                sampled = chunks(view.space, candidates::sample(view, &known.leaders(), view.seed_of_draw()));
                &sampled
            }
        };
        let physics = if self.physics { Physics::of(view) } else { None };
        let memory = if self.physics { MemoryNeed::of(view, &known.trials) } else { None };
        let has_at_least = |trials: usize, scored: usize| {
            known.trials.len() + view.pending.len() >= trials && known.scored.len() >= scored
        };
        let is_short = match (&physics, self.lessons.is_empty()) {
            (Some(_), _) => !has_at_least(1, 1),
            (None, true) => !has_at_least(FIRST_TRIALS, 2),
            // Configs that an earlier study proposed say little if the study misleads, so more trials are needed.
            (None, false) => !has_at_least(FIRST_TRIALS + 2, 2),
        };
        let by_physics = || physics.as_ref()?.first(view, candidates, memory.as_ref());
        let first = || by_physics().or_else(|| first::first(view, &known, candidates).map(Proposal::from));
        if is_short && (self.lessons.is_empty() || !has_at_least(1, 1)) {
            return first();
        }
        // Failures also count as turns, though the fit does not change until the next score.
        let is_its_turn = !self.lessons.is_empty() && mean::is_its_turn(known.trials.len());
        let fit = |known: &Known<'_>| Model::of(view, known, physics.as_ref(), &self.lessons, is_its_turn);
        let model = self.fitted.fit(view, &known, is_its_turn, fit);
        if is_short && !model.learns_from_earlier() {
            return first();
        }
        let proposal = model.propose(view, &known, candidates, memory.as_ref(), limits);
        proposal.or_else(|| random::propose(view).map(Proposal::from))
    }
}

impl Bayes {
    /// Learns from the earlier studies, unless that was done before.
    fn learn(&mut self, view: &View<'_>) {
        let earlier = &view.earlier[..view.earlier.len().min(EarlierStudy::MOST)];
        let (space, studies) = (view.space.identity(), earlier.iter().map(|study| study.id).collect::<Vec<u64>>());
        let is_known = self.studies.as_ref().is_some_and(|(of, known)| Arc::ptr_eq(of, space) && *known == studies);
        if !is_known {
            self.studies = Some((Arc::clone(space), studies));
            let lessons = earlier.iter().filter_map(|study| Lesson::of(view.space, view.objective, study));
            self.lessons = lessons.map(Arc::new).collect();
        }
    }
}

/// The evidence in a history, trial by trial.
struct Known<'v> {
    /// All searched trials, except disturbed and interrupted trials.
    trials: Vec<&'v Trial>,
    /// The trials with a score, if only from a part of the measuring time.
    scored: Vec<(&'v Trial, f64)>,
}

impl<'v> Known<'v> {
    fn of(view: &View<'v>) -> Self {
        let says_nothing = |trial: &&Trial| matches!(trial.outcome, Outcome::Disturbed(_) | Outcome::Interrupted);
        let trials: Vec<&Trial> = view.history.searched().filter(|trial| !says_nothing(trial)).collect();
        let score = |trial: &&'v Trial| Some((*trial, view.objective.score_of(&trial.outcome)?));
        Self { scored: trials.iter().filter_map(score).collect(), trials }
    }

    /// Returns the evidence at the time when this many trials had a score.
    fn up_to(&self, scored: usize) -> Self {
        let scored = &self.scored[..scored.min(self.scored.len())];
        let is_last = |trial: &&Trial| scored.last().is_some_and(|(last, _)| std::ptr::eq(*trial, *last));
        let end = self.trials.iter().position(is_last).map_or(0, |place| place + 1);
        Self { trials: self.trials[..end].to_vec(), scored: scored.to_vec() }
    }

    /// Returns the configs around which a sample is taken, the best first.
    fn leaders(&self) -> Vec<&'v Config> {
        const LEADERS: usize = 4;
        let mut scored: Vec<&(&Trial, f64)> = self.scored.iter().collect();
        scored.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        scored.into_iter().take(LEADERS).map(|(trial, _)| &trial.config).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Direction, Estimate, Expression, History, Objective, Parameter, Space, Walk};
    use crate::search::strategy::{Earlier, SoFar};
    use crate::search::tests::{crashed, history, push};

    fn space() -> Space {
        let workers = Parameter::range("workers", 0, 8, 1);
        let prefetch = Parameter::range("prefetch", 1, 6, 1).when(Expression::parse("workers > 0").unwrap());
        let precision = Parameter::values("precision", ["fp32", "bf16"]);
        Space::new([Parameter::powers_of_two("batch_size", 1, 512), workers, prefetch, precision]).unwrap()
    }

    fn with_physics() -> Bayes {
        Bayes { physics: true, ..Bayes::default() }
    }

    fn measured(value: f64, width: f64) -> Outcome {
        crate::search::tests::measured(Estimate::interval(value, value - width, value + width))
    }

    fn answer(config: &Config) -> Outcome {
        let sum: f64 = config.levels().map(|level| f64::from(level.unwrap_or(0)).sqrt()).sum();
        if sum > 8.0 { crashed() } else { measured(1.0 + sum, 0.05) }
    }

    fn answered(space: &Space, step: usize, most: usize) -> History {
        history(Walk::new(space).step_by(step).take(most).map(|config| (config.clone(), answer(&config))))
    }

    #[test]
    fn what_runs_counts_with_what_it_has_shown_so_far() {
        let batch_size = Parameter::powers_of_two("batch_size", 1, 1 << 12);
        let space = Space::new([batch_size, Parameter::range("workers", 0, 8, 1)]).unwrap();
        let objective = Objective::default();
        let config = |levels: [u32; 2]| space.with_levels(&levels).unwrap();
        let known = [[4, 4], [3, 4], [5, 4], [4, 3], [4, 5]];
        let history = history(known.map(|levels| (config(levels), measured(100.0 + f64::from(levels[1]), 0.5))));
        let pending = [config([10, 2]), config([1, 7])];
        let next = |so_far: &[Option<SoFar>]| {
            let mut view = View::new(&space, &objective, &history, &pending, None).with(20, 4);
            view.so_far = so_far;
            Bayes::default().propose(&view).unwrap()
        };
        let batch = |proposal: &Proposal| proposal.config.level(0).unwrap();
        let shows = |score| Some(SoFar { score, half_width: 0.05 });
        assert!(batch(&next(&[shows(300.0), None])) >= 8, "the large batch is three times as fast");
        assert!(batch(&next(&[shows(30.0), shows(300.0)])) <= 3, "the small one is");
        // A pending config without results changes nothing.
        assert_eq!(next(&[None, None]), next(&[]));
    }

    #[test]
    fn what_was_kept_is_not_taken_for_another_search() {
        let (objective, other) = (Objective::default(), Objective::new("throughput", Direction::Minimize));
        let mut space = space();
        let known = answered(&space, 29, 12);
        let changed = known.trials().iter().map(|trial| (trial.config.clone(), measured(trial.number.into(), 0.1)));
        let changed = history(changed);
        let mut lived = with_physics();
        for (objective, history) in [(&objective, &known), (&other, &known), (&objective, &changed)] {
            let view = View::new(&space, objective, history, &[], None);
            assert_eq!(lived.propose(&view), with_physics().propose(&view));
        }
        // This space may lie at the same address, and has the same parameters and rules.
        space = space.restricted(|config| config.level(0).is_some_and(|level| level < 2));
        let view = View::new(&space, &objective, &known, &[], None);
        assert!(space.allows(&lived.propose(&view).unwrap().config));
    }

    fn study(space: &Space, objective: &Objective, value: fn(&Config) -> f64) -> Earlier {
        let trials = Walk::new(space).step_by(17).map(|config| (config.clone(), measured(value(&config), 0.0)));
        EarlierStudy::of("before", space, &history(trials)).seen_from(space, objective).unwrap()
    }

    fn level(config: &Config) -> f64 {
        1.0 + f64::from(config.level(0).unwrap_or(0))
    }

    #[test]
    fn a_study_in_doubt_has_one_turn_whatever_fails_then() {
        let (space, objective) = (space(), Objective::default());
        let earlier = [study(&space, &objective, level)];
        let mut configs = Walk::new(&space).step_by(23);
        let mut history = history([1.0, 2.0].map(|value| (configs.next().unwrap(), measured(value, 0.0))));
        let mut lived = Bayes::default();
        let mut turns = Vec::new();
        for _ in 0..7 {
            let view = View::new(&space, &objective, &history, &[], None).with(100, 4).with_earlier(&earlier);
            let mut new = Bayes::default();
            assert_eq!(lived.propose(&view), new.propose(&view));
            let learns = |strategy: &mut Bayes| {
                let known = Known::of(&view);
                let turn = mean::is_its_turn(known.trials.len());
                strategy.fitted.fit(&view, &known, turn, |_| panic!("it is fitted")).learns_from_earlier()
            };
            let learned = learns(&mut lived);
            assert_eq!(learned, learns(&mut new));
            turns.extend(learned.then_some(history.trials().len()));
            push(&mut history, configs.next().unwrap(), crashed());
        }
        assert_eq!(turns, [2, 4, 8]);
    }

    #[test]
    fn lessons_are_not_taken_for_another_search() {
        let spaces = [space(), space()];
        let (most, least) = (Objective::default(), Objective::new("throughput", Direction::Minimize));
        let mut lived = with_physics();
        let mut lessons: Vec<Arc<Lesson>> = Vec::new();
        let history = History::default();
        for (space, objective) in [(&spaces[0], &most), (&spaces[1], &most), (&spaces[1], &least)] {
            let earlier = [study(space, objective, |_| 3.0)];
            let view = View::new(space, objective, &history, &[], None).with_earlier(&earlier);
            lived.learn(&view);
            let lesson = Arc::clone(&lived.lessons[0]);
            assert!(!lessons.iter().any(|known| Arc::ptr_eq(known, &lesson)));
            lived.learn(&view);
            assert!(Arc::ptr_eq(&lived.lessons[0], &lesson));
            lessons.push(lesson);
        }
    }

    #[test]
    fn a_study_without_logarithms_tells_no_ratio() {
        let (space, objective) = (space(), Objective::default());
        let spread = |value| Lesson::of(&space, &objective, &study(&space, &objective, value)).unwrap().spread;
        assert!(spread(level).is_some());
        assert_eq!(spread(|config| -1e21 * level(config)), None);
    }

    #[test]
    fn hundreds_of_trials_that_tell_nothing_are_no_trouble() {
        let space = Space::new([Parameter::range("a", 0, 99, 1), Parameter::range("b", 0, 9, 1)]).unwrap();
        let objective = Objective::default();
        let outcomes: [fn(u32) -> Outcome; 4] = [
            |_| measured(5.0, 0.0),
            |number| measured(1.0 + f64::from(number % 3), f64::INFINITY),
            |number| measured(if number % 2 == 0 { f64::MAX } else { f64::MIN_POSITIVE }, f64::NAN),
            |number| if number < 2 { measured(f64::NAN, 0.0) } else { crashed() },
        ];
        for outcome in outcomes {
            let configs = Walk::new(&space).step_by(2).take(350);
            let history = history(configs.zip(0..).map(|(config, number)| (config, outcome(number))));
            let view = View::new(&space, &objective, &history, &[], None);
            let proposal = with_physics().propose(&view).unwrap();
            assert!(view.is_open(&proposal.config));
            assert!(proposal.gain.is_none_or(|gain| gain >= 0.0 && gain.is_finite()), "{proposal:?}");
        }
    }
}
