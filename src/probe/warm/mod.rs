//! Warm starts: a probe that is forked from a process which has imported what the script imports.
//!
//! Importing torch takes seconds of processor time, a fork a fifth of a second. The first probe of a search is fresh and
//! tells what it had imported ([`Imports`]); a [`Zygote`] imports the same, and each later probe is a fork of it that
//! runs the whole script. Whether that measures the same is tried once, with the first config ([`proof`]). A warm probe
//! that fails says nothing of its config: it is repeated fresh.

mod imports;
mod proof;
mod zygote;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use super::writes::{Protection, Writes};
use super::{CommandStep, Job, Limits, Start, Watch};
use crate::model::{Config, Measurement, Outcome, Settings, Spent};
pub(super) use imports::Imports;
pub(super) use proof::same_rate;
use zygote::Setup;
pub(super) use zygote::{NoFork, Zygote};

/// The most zygotes at a time, each with the variables of some configs.
const MOST_ZYGOTES: usize = 2;
/// How many warm probes may fail that then run fresh.
const MOST_FAILURES: u32 = 2;

/// The warm starts of a search.
#[derive(Default)]
pub(super) struct Warm {
    state: State,
    remarks: Vec<String>,
    /// The variables of the config that is to tell what it imports.
    first_env: BTreeMap<String, String>,
    /// What was spent on processes to fork from and on the proof, until a trial has been told.
    pub(super) spent: Spent,
}

#[derive(Default)]
enum State {
    /// No probe has told what it imports.
    #[default]
    Unknown,
    Known(Box<Known>),
    Off,
}

/// What a fresh probe has told, and what came of it.
struct Known {
    imports: Imports,
    first: First,
    zygotes: Vec<Zygote>,
    /// The variables of configs that no zygote fitted.
    unfitted: Vec<BTreeMap<String, String>>,
    /// The first config's last runs, fresh and forked.
    last_runs: [Measurement; 2],
    /// How they differ.
    doubt: Option<String>,
    /// Whether they agreed.
    is_proved: bool,
    failures: u32,
}

/// The first config that was measured, fresh.
#[derive(Clone)]
pub(super) struct First {
    pub(super) number: u32,
    pub(super) config: Config,
    pub(super) settings: Settings,
    env: BTreeMap<String, String>,
}

/// What a fresh probe told of its imports, or why no zygote can run the command.
pub(super) type Told = Result<Imports, String>;

/// How a probe is to be started.
pub(super) enum Way {
    Fresh {
        /// Whether it is to tell what it imports.
        tells_imports: bool,
    },
    /// Forked from this zygote, where it `fits`; the first config first where it has to be proved.
    Warm { zygote: usize, proof: Option<First>, fits: bool },
    /// The caller does not want to wait.
    Interrupted,
}

impl std::fmt::Debug for Warm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match &self.state {
            State::Unknown => "unknown",
            State::Known(_) => "known",
            State::Off => "off",
        };
        f.debug_struct("Warm").field("state", &state).finish_non_exhaustive()
    }
}

impl Warm {
    /// Chooses the way to start a probe with these variables, and starts the zygote for it where there is none.
    pub(super) fn way(
        &mut self,
        step: &CommandStep,
        protection: Option<&Protection>,
        (folder, cwd): (&Path, &Path),
        (job, env): (&Job<'_>, &BTreeMap<String, String>),
        watch: Watch<'_>,
    ) -> Way {
        const FRESH: Way = Way::Fresh { tells_imports: false };
        if step.start == Start::Fresh || step.template.apply.adapter.is_none() {
            return FRESH;
        }
        if protection.is_some_and(|protection| protection.writes() == Writes::Guard) {
            self.give_up("guards of files in the hook cannot move from one process to another");
            return FRESH;
        }
        let known = match &mut self.state {
            State::Unknown => {
                self.first_env.clone_from(env);
                return Way::Fresh { tells_imports: job.experiment.is_none() };
            }
            State::Off => return FRESH,
            State::Known(known) => known,
        };
        known.zygotes.retain_mut(Zygote::is_alive);
        let needs_proof = !known.is_proved && step.start != Start::Warm;
        // The proof is one only with the variables of the first config.
        let asked = env;
        let env = if needs_proof { &known.first.env } else { asked };
        let zygote = match known.zygotes.iter().position(|zygote| zygote.fits(env)) {
            Some(at) => at,
            // One that is used only once costs more than it saves.
            None if known.is_proved && !known.unfitted.contains(env) => {
                known.unfitted.push(env.clone());
                return FRESH;
            }
            None => {
                let grace = job.limits.grace_time;
                let began = Instant::now();
                let setup = Setup {
                    supervisor: &step.supervisor,
                    imports: &known.imports,
                    protection,
                    folder,
                    cwd,
                    grace,
                    processors: step.slot.as_ref().map_or(&[], |slot| &slot.cores),
                };
                let started = Zygote::start(&setup, env, watch);
                self.spent.importing_s += began.elapsed().as_secs_f64();
                match started {
                    Ok(ControlFlow::Continue(zygote)) => {
                        known.zygotes.truncate(MOST_ZYGOTES - 1);
                        known.zygotes.insert(0, zygote);
                        0
                    }
                    Ok(ControlFlow::Break(())) => return Way::Interrupted,
                    Err(NoFork::Unfit(reason)) => {
                        self.give_up(&reason);
                        return FRESH;
                    }
                    Err(NoFork::Lost(reason)) => {
                        self.lost(&reason);
                        return FRESH;
                    }
                }
            }
        };
        let fits = known.zygotes[zygote].fits(asked);
        Way::Warm { zygote, proof: needs_proof.then(|| known.first.clone()), fits }
    }

    /// The zygote that is there for a process with these variables, where forks are known to measure the same.
    pub(super) fn ready(&mut self, step: &CommandStep, env: &BTreeMap<String, String>) -> Option<usize> {
        let State::Known(known) = &mut self.state else { return None };
        known.zygotes.retain_mut(Zygote::is_alive);
        let is_sure = known.is_proved || step.start == Start::Warm;
        known.zygotes.iter().position(|zygote| zygote.fits(env)).filter(|_| is_sure)
    }

    /// A zygote, and the interpreter's command line for a command.
    pub(super) fn zygote(&mut self, at: usize, command: &[String]) -> Option<(&mut Zygote, Vec<String>)> {
        let State::Known(known) = &mut self.state else { return None };
        let arguments = known.imports.arguments(command);
        Some((known.zygotes.get_mut(at)?, arguments))
    }

    /// Hears what a fresh probe told of its imports.
    pub(super) fn learn(&mut self, told: Option<Told>, job: &Job<'_>, outcome: &Outcome) {
        let Some(measurement) = outcome.measurement().filter(|run| run.throughput.is_some()) else { return };
        let first = First {
            number: job.number,
            config: job.config.clone(),
            settings: job.settings.clone(),
            env: self.first_env.clone(),
        };
        match told {
            _ if !matches!(self.state, State::Unknown) => {}
            None => {}
            Some(Err(reason)) => self.give_up(&reason),
            Some(Ok(imports)) => {
                self.state = State::Known(Box::new(Known {
                    imports,
                    first,
                    zygotes: Vec::new(),
                    unfitted: Vec::new(),
                    last_runs: [measurement.clone(), Measurement::default()],
                    doubt: None,
                    is_proved: false,
                    failures: 0,
                }));
            }
        }
    }

    /// The limits under which the first config is measured again.
    pub(super) fn proof_limits(&self, limits: &Limits) -> Limits {
        match &self.state {
            State::Known(known) => {
                let [fresh, forked] = &known.last_runs;
                proof::limits(limits, if forked.throughput.is_some() { forked } else { fresh })
            }
            _ => *limits,
        }
    }

    /// Hears how the first config ended as a fork, or fresh once more, and compares the two last runs; whether they
    /// agree.
    pub(super) fn prove(&mut self, outcome: &Outcome, was_forked: bool) -> bool {
        let State::Known(known) = &mut self.state else { return false };
        let agreed = match outcome {
            Outcome::Measured(run) => {
                known.last_runs[usize::from(was_forked)] = run.clone();
                match &known.last_runs {
                    [_, Measurement { throughput: None, .. }] => return false,
                    [fresh, forked] => proof::agree(fresh, forked),
                }
            }
            other => {
                known.last_runs[usize::from(was_forked)] = Measurement::default();
                Err(format!("it ended as {}", other.name()))
            }
        };
        known.is_proved = agreed.is_ok();
        known.doubt = agreed.err();
        known.is_proved
    }

    /// Gives up warm starts because the first config measured otherwise when it was forked.
    pub(super) fn refute(&mut self) {
        if let State::Known(known) = &mut self.state
            && let Some(doubt) = known.doubt.take()
        {
            self.give_up(&format!("the first config measured otherwise when it was forked: {doubt}"));
        }
    }

    /// Hears that a warm probe failed and is repeated fresh.
    pub(super) fn failed(&mut self, number: u32) {
        self.lost(&format!("probe {number} and others failed when they were forked"));
    }

    /// Hears that there was nothing to fork from; once may be chance.
    pub(super) fn lost(&mut self, reason: &str) {
        if let State::Known(known) = &mut self.state {
            known.failures += 1;
            if known.failures > MOST_FAILURES {
                self.give_up(reason);
            }
        }
    }

    /// Hears that no process could be forked for a probe; the next asks a new zygote.
    pub(super) fn not_forked(&mut self, reason: &str) {
        if let State::Known(known) = &mut self.state {
            known.zygotes.clear();
        }
        self.lost(&format!("no process could be forked: {reason}"));
    }

    /// Hears that a config failed fresh as it did warm.
    pub(super) fn failed_fresh_too(&mut self) {
        if let State::Known(known) = &mut self.state {
            known.failures = known.failures.saturating_sub(1);
        }
    }

    /// Returns what is to be told of it, once.
    pub(super) fn remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }

    /// From now on probes are fresh.
    pub(super) fn give_up(&mut self, reason: &str) {
        if !matches!(self.state, State::Off) {
            self.state = State::Off;
            self.remarks.push(format!("each probe imports everything anew: {reason}"));
        }
    }
}
