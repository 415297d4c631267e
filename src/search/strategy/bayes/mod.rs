//! Fits a Gaussian process over the space, and proposes the config that is expected to improve most on the best.
//!
//! If the space can be listed, every unknown config is scored; otherwise a sample and the surroundings of the best are.
//! Failures never become numbers: a second process predicts how likely a config is to run.

mod acquisition;
mod batch;
mod candidates;
mod earlier;
mod first;
mod fit;
mod kernel;
mod matrix;
mod mean;
mod memory_model;
mod model;
mod normal;
mod physics;
mod plateau;
mod points;
mod process;
mod scale;
mod schedule;

use std::sync::Arc;

use batch::Thought;
use candidates::{Chunk, Listed, chunks};
use earlier::Lesson;
use memory_model::MemoryNeed;
use model::Model;
use physics::Physics;
use schedule::Kept;

use super::{Earlier, EarlierStudy, Entry, Proposal, Strategy, View, random};
use crate::model::{Config, Outcome, Trial};

pub(super) const ENTRY: Entry = Entry {
    name: "bayes",
    about: "a Gaussian process: the config that is expected to improve most",
    build: || Box::new(Bayes::with(Parts { physics: false, ..Parts::default() })),
};

/// Remembers the list of the space, the lessons from earlier studies, and the last fit.
#[derive(Debug)]
pub(super) struct Bayes {
    fitted: Kept<Model>,
    parts: Parts,
    listed: Option<Listed>,
    lessons: Vec<Arc<Lesson>>,
    /// The space that the lessons are for, and the studies that they come from.
    studies: Option<(Arc<()>, Vec<u64>)>,
    /// The last fit for many proposals, and the batch made with it.
    fitted_of_many: Kept<Model>,
    batch: batch::Kept,
}

impl Bayes {
    pub(super) fn with(parts: Parts) -> Self {
        Self {
            parts,
            fitted: Kept::default(),
            fitted_of_many: Kept::default(),
            listed: None,
            lessons: Vec::new(),
            studies: None,
            batch: batch::Kept::default(),
        }
    }

    /// Learns from the earlier studies, unless that was done before.
    fn learn(&mut self, view: &View<'_>) {
        let earlier = &view.earlier[..view.earlier.len().min(EarlierStudy::MOST)];
        let studies: Vec<u64> = earlier.iter().map(Earlier::id).collect();
        let is_known = self
            .studies
            .as_ref()
            .is_some_and(|(space, known)| Arc::ptr_eq(space, view.space.identity()) && *known == studies);
        if !is_known {
            self.studies = Some((Arc::clone(view.space.identity()), studies));
            self.lessons = earlier
                .iter()
                .filter_map(|study| Lesson::of(view.space, view.objective, study))
                .map(Arc::new)
                .collect();
        }
    }
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

/// The parts of [`auto`](super::STRATEGIES). Each part can be left out, to measure what it contributes.
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

/// Returns the method with only some of its parts.
pub fn bayes_with(parts: Parts) -> Box<dyn Strategy> {
    Box::new(Bayes::with(parts))
}

/// The trials before the process proposes: with fewer it cannot know any difference.
const FIRST_TRIALS: usize = 3;

impl Strategy for Bayes {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        if let Some(narrow) = view.narrowed()
            && let Some(proposal) = self.propose_in(&narrow)
        {
            return Some(proposal.among_first());
        }
        self.propose_in(view)
    }
}

impl Bayes {
    fn propose_in(&mut self, view: &View<'_>) -> Option<Proposal> {
        let parts = self.parts;
        if parts.every_config && self.listed.as_ref().is_none_or(|listed| !listed.is_of(view.space)) {
            self.listed = Some(Listed::of(view.space));
        }
        self.learn(view);
        if let Some(thought) = batch::last_thought(view)
            && let Some(proposal) = self.propose_of_batch(view, thought)
        {
            return Some(proposal);
        }
        let known = Known::of(view);
        if let Some(proposal) = earliest(view, &known) {
            return Some(proposal);
        }
        let sampled;
        let listed = self.listed.as_ref().filter(|_| !batch::is_hurried(view));
        let candidates: &[Chunk] = match listed.and_then(|listed| listed.chunks.as_ref()) {
            Some(chunks) => chunks,
            None => {
                sampled = sample(view, &known);
                &sampled
            }
        };
        let (physics, memory) = physics_and_memory(view, &known, parts);
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
        let model = fitted(&mut self.fitted, view, &known, physics.as_ref(), (&self.lessons, parts, false));
        if is_short && !model.learns_from_earlier() {
            return first();
        }
        model.propose(view, &known, candidates, memory.as_ref()).or_else(|| random::propose(view).map(Proposal::from))
    }

    /// Returns the first open proposal of the batch, or a random config if none is open. Returns `None` if too little was known for
    /// a thought.
    fn propose_of_batch(&mut self, view: &View<'_>, thought: Thought) -> Option<Proposal> {
        let mut kept = std::mem::take(&mut self.batch);
        let batch = kept.of(view, thought, |past| self.think(&view.when_known(past), thought));
        let found = batch.iter().find(|proposal| view.is_open(&proposal.config)).cloned();
        let any = || if batch.is_empty() { None } else { random::propose(view).map(Proposal::from) };
        let proposal = found.or_else(any);
        self.batch = kept;
        proposal
    }

    /// Returns the proposals until the next thought, as seen from the last thought.
    fn think(&mut self, view: &View<'_>, thought: Thought) -> Vec<Proposal> {
        let known = Known::of(view);
        // Scoring a whole space takes too long for so many proposals.
        let candidates = sample(view, &known);
        let (physics, memory) = physics_and_memory(view, &known, self.parts);
        let with = (self.lessons.as_slice(), self.parts, true);
        let model = fitted(&mut self.fitted_of_many, view, &known, physics.as_ref(), with);
        batch::mixed(view, &candidates, model.several(view, &known, &candidates, (memory.as_ref(), thought)))
    }
}

/// Returns a sample of the space.
fn sample(view: &View<'_>, known: &Known<'_>) -> Vec<Chunk> {
    chunks(view.space, candidates::sample(view, &known.leaders(), view.seed_of_draw()))
}

fn physics_and_memory(view: &View<'_>, known: &Known<'_>, parts: Parts) -> (Option<Physics>, Option<MemoryNeed>) {
    let physics = if parts.physics && parts.logarithm { Physics::of(view) } else { None };
    (physics, if parts.physics { MemoryNeed::of(view, &known.trials) } else { None })
}

/// Returns the model, fitted to the trials that its schedule names.
fn fitted<'m>(
    kept: &'m mut Kept<Model>,
    view: &View<'_>,
    known: &Known<'_>,
    physics: Option<&Physics>,
    (lessons, parts, is_of_many): (&[Arc<Lesson>], Parts, bool),
) -> &'m Model {
    // Failures also count as turns, though the fit does not change until the next score.
    let is_its_turn = !lessons.is_empty() && mean::is_its_turn(known.trials.len());
    let fit = |known: &Known<'_>| Model::of(view, known, physics, (lessons, is_its_turn), parts, is_of_many);
    kept.fit(view, known, is_its_turn, fit)
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
    use std::time::Duration;

    use super::*;
    use crate::model::{
        Estimate, Expression, Failure, History, Measurement, Objective, Parameter, Purpose, Space, Walk,
    };
    use crate::search::strategy::SoFar;

    fn space() -> Space {
        let workers = Parameter::range("workers", 0, 8, 1);
        let prefetch = Parameter::range("prefetch", 1, 6, 1).when(Expression::parse("workers > 0").unwrap());
        let precision = Parameter::values("precision", ["fp32", "bf16"]);
        Space::new([Parameter::powers_of_two("batch_size", 1, 512), workers, prefetch, precision]).unwrap()
    }

    fn push(history: &mut History, config: Config, outcome: Outcome) {
        let number = u32::try_from(history.trials().len() + 1).unwrap();
        history.push(Trial::new(number, Purpose::Search, config, outcome));
    }

    fn measured(value: f64, width: f64) -> Outcome {
        let throughput = Some(Estimate::interval(value, value - width, value + width));
        Outcome::Measured(Measurement { throughput, ..Measurement::default() })
    }

    fn answer(config: &Config) -> Outcome {
        let sum: f64 = config.levels().map(|level| f64::from(level.unwrap_or(0)).sqrt()).sum();
        if sum > 8.0 { Outcome::Crashed(Failure::new("as scripted")) } else { measured(1.0 + sum, 0.05) }
    }

    #[test]
    fn one_that_lived_through_a_search_and_a_new_one_propose_the_same() {
        let (space, objective) = (space(), Objective::default());
        for parts in [Parts::default(), Parts { physics: false, ..Parts::default() }] {
            let (mut lived, mut history) = (Bayes::with(parts), History::default());
            for number in 1..=32 {
                let view = View::new(&space, &objective, &history, &[], None).with(100, 4);
                let proposal = lived.propose(&view).unwrap();
                if number > 18 {
                    assert_eq!(Some(&proposal), Bayes::with(parts).propose(&view).as_ref(), "{number}");
                }
                let outcome = answer(&proposal.config);
                push(&mut history, proposal.config, outcome);
            }
        }
    }

    #[test]
    fn where_probes_are_shorter_than_thoughts_one_thought_proposes_many() {
        let (space, objective) = (space(), Objective::default());
        let (mut lived, mut history) = (Bayes::with(Parts::default()), History::default());
        let mut pending: Vec<Config> = Vec::new();
        let mut reasons = Vec::new();
        for number in 1..=120 {
            let view = View::new(&space, &objective, &history, &pending, None).with(1000, 4);
            let proposal = lived.propose(&view).unwrap();
            assert!(view.is_open(&proposal.config), "{number}");
            assert_eq!(Some(&proposal), Bayes::with(Parts::default()).propose(&view).as_ref(), "{number}");
            reasons.extend(proposal.reason);
            pending.push(proposal.config);
            if pending.len() == 8 {
                let config = pending.remove(0);
                let outcome = answer(&config);
                push(&mut history, config.clone(), outcome);
                let trials = history
                    .trials()
                    .iter()
                    .map(|trial| Trial { elapsed: Duration::from_millis(40), ..Trial::clone(trial) });
                history = trials.collect();
            }
        }
        assert!(reasons.iter().any(|reason| reason == "drawn at random"), "{reasons:?}");
        assert!(reasons.iter().filter(|reason| reason.starts_with("tries ")).count() > 60, "{reasons:?}");
    }

    #[test]
    fn what_runs_counts_with_what_it_has_shown_so_far() {
        let space =
            Space::new([Parameter::powers_of_two("batch_size", 1, 1 << 12), Parameter::range("workers", 0, 8, 1)])
                .unwrap();
        let objective = Objective::default();
        let mut history = History::default();
        for levels in [[4, 4], [3, 4], [5, 4], [4, 3], [4, 5]] {
            push(&mut history, space.with_levels(&levels).unwrap(), measured(100.0 + f64::from(levels[1]), 0.5));
        }
        let pending = [space.with_levels(&[10, 2]).unwrap(), space.with_levels(&[1, 7]).unwrap()];
        let next = |so_far: &[Option<SoFar>]| {
            let view = View::new(&space, &objective, &history, &pending, None).with(20, 4).with_so_far(so_far);
            Bayes::with(Parts { physics: false, ..Parts::default() }).propose(&view).unwrap()
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
        let (objective, other) =
            (Objective::default(), Objective::new("throughput", crate::model::Direction::Minimize));
        let mut space = space();
        let mut history = History::default();
        Walk::new(&space).step_by(29).take(12).for_each(|config| push(&mut history, config.clone(), answer(&config)));
        let mut changed = History::default();
        for trial in history.trials() {
            push(&mut changed, trial.config.clone(), measured(f64::from(trial.number), 0.1));
        }
        let mut lived = Bayes::with(Parts::default());
        for (objective, history) in [(&objective, &history), (&other, &history), (&objective, &changed)] {
            let view = View::new(&space, objective, history, &[], None);
            assert_eq!(lived.propose(&view), Bayes::with(Parts::default()).propose(&view));
        }
        // This space may lie at the same address, and has the same parameters and rules.
        space = space.restricted(|config| config.level(0).is_some_and(|level| level < 2));
        let view = View::new(&space, &objective, &history, &[], None);
        assert!(space.allows(&lived.propose(&view).unwrap().config));
    }

    fn study(space: &Space, value: fn(&Config) -> f64) -> EarlierStudy {
        let mut history = History::default();
        let configs = Walk::new(space).step_by(17);
        configs.for_each(|config| push(&mut history, config.clone(), measured(value(&config), 0.0)));
        EarlierStudy::of("before", space, &history)
    }

    fn level(config: &Config) -> f64 {
        1.0 + f64::from(config.level(0).unwrap_or(0))
    }

    #[test]
    fn a_study_in_doubt_has_one_turn_whatever_fails_then() {
        let (space, objective) = (space(), Objective::default());
        let earlier = [study(&space, level).seen_from(&space, &objective).unwrap()];
        let mut history = History::default();
        let mut configs = Walk::new(&space).step_by(23);
        (1..=2).for_each(|value| push(&mut history, configs.next().unwrap(), measured(f64::from(value), 0.0)));
        let parts = Parts { physics: false, ..Parts::default() };
        let mut lived = Bayes::with(parts);
        let mut turns = Vec::new();
        for _ in 0..7 {
            let view = View::new(&space, &objective, &history, &[], None).with(100, 4).with_earlier(&earlier);
            let mut new = Bayes::with(parts);
            assert_eq!(lived.propose(&view), new.propose(&view));
            let learns = |strategy: &mut Bayes| {
                let known = Known::of(&view);
                let turn = mean::is_its_turn(known.trials.len());
                strategy.fitted.fit(&view, &known, turn, |_| panic!("it is fitted")).learns_from_earlier()
            };
            let learned = learns(&mut lived);
            assert_eq!(learned, learns(&mut new));
            turns.push((history.trials().len(), learned));
            push(&mut history, configs.next().unwrap(), Outcome::Crashed(Failure::new("as scripted")));
        }
        let learned: Vec<usize> = turns.into_iter().filter(|(_, learned)| *learned).map(|(trials, _)| trials).collect();
        assert_eq!(learned, [2, 4, 8]);
    }

    #[test]
    fn lessons_are_not_taken_for_another_search() {
        let (spaces, parts) = ([space(), space()], Parts { every_config: false, ..Parts::default() });
        let most = Objective::default();
        let least = Objective::new("throughput", crate::model::Direction::Minimize);
        let mut lived = Bayes::with(parts);
        let mut lessons: Vec<Arc<Lesson>> = Vec::new();
        for (space, objective) in [(&spaces[0], &most), (&spaces[1], &most), (&spaces[1], &least)] {
            let earlier = [study(space, |_| 3.0).seen_from(space, objective).unwrap()];
            let history = History::default();
            lived.learn(&View::new(space, objective, &history, &[], None).with_earlier(&earlier));
            let lesson = Arc::clone(&lived.lessons[0]);
            assert!(!lessons.iter().any(|known| Arc::ptr_eq(known, &lesson)));
            lived.learn(&View::new(space, objective, &history, &[], None).with_earlier(&earlier));
            assert!(Arc::ptr_eq(&lived.lessons[0], &lesson));
            lessons.push(lesson);
        }
    }

    #[test]
    fn a_study_without_logarithms_tells_no_ratio() {
        let (space, objective) = (space(), Objective::default());
        let lesson = |value| {
            let earlier = study(&space, value).seen_from(&space, &objective).unwrap();
            Lesson::of(&space, &objective, &earlier).unwrap().spread()
        };
        assert!(lesson(level).is_some());
        assert_eq!(lesson(|config| -1e21 * level(config)), None);
    }

    #[test]
    fn hundreds_of_trials_that_tell_nothing_are_no_trouble() {
        let space = Space::new([Parameter::range("a", 0, 99, 1), Parameter::range("b", 0, 9, 1)]).unwrap();
        let objective = Objective::default();
        let outcomes: [fn(u32) -> Outcome; 4] = [
            |_| measured(5.0, 0.0),
            |number| measured(1.0 + f64::from(number % 3), f64::INFINITY),
            |number| measured(if number % 2 == 0 { f64::MAX } else { f64::MIN_POSITIVE }, f64::NAN),
            |number| if number < 2 { measured(f64::NAN, 0.0) } else { Outcome::Crashed(Failure::new("as scripted")) },
        ];
        for outcome in outcomes {
            let mut history = History::default();
            let configs = Walk::new(&space).step_by(2).take(350);
            configs.zip(0..).for_each(|(config, number)| push(&mut history, config, outcome(number)));
            let view = View::new(&space, &objective, &history, &[], None);
            let proposal = Bayes::with(Parts::default()).propose(&view).unwrap();
            assert!(view.is_open(&proposal.config));
            assert!(proposal.gain.is_none_or(|gain| gain >= 0.0 && gain.is_finite()), "{proposal:?}");
        }
    }

    #[test]
    fn every_part_can_be_left_out() {
        let (space, objective) = (space(), Objective::default());
        let mut history = History::default();
        Walk::new(&space).step_by(37).take(9).for_each(|config| push(&mut history, config.clone(), answer(&config)));
        let view = View::new(&space, &objective, &history, &[], None);
        let all = Parts::default();
        let without = [
            all,
            Parts { physics: false, ..all },
            Parts { noise: false, ..all },
            Parts { feasibility: false, ..all },
            Parts { every_config: false, ..all },
            Parts { logarithm: false, ..all },
        ];
        let proposals = without.map(|parts| bayes_with(parts).propose(&view).unwrap());
        assert!(proposals.iter().all(|proposal| view.is_open(&proposal.config)));
        let differ = |place: usize| proposals[place] != proposals[0];
        assert!((1..without.len()).filter(|&place| differ(place)).count() >= 3, "{proposals:?}");
    }
}
