//! Warm starts: a probe is forked from a process that has already done the script's imports.
//!
//! Importing torch takes seconds of CPU time, a fork a fifth of a second. The first probe of a search is fresh and reports its
//! imports ([`Imports`]). A [`Zygote`] imports the same modules during the second probe. Each later probe is a fork of the zygote
//! that runs the whole script. A warm probe that fails proves nothing about its config: it is repeated fresh. Before a config is
//! reported as faster, both a fresh and a forked process of it are measured.

mod imports;
mod zygote;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::writes::{Protection, Writes};
use super::{CommandStep, Job, Start, Watch};
use crate::model::{Outcome, Progress, Spent, fact::IMPORT_SECONDS};
pub(super) use imports::Imports;
pub(super) use zygote::{NoFork, Zygote};
use zygote::{Setup, Starting};

/// The maximum number of zygotes at a time, each with the variables of some configs.
const MOST_ZYGOTES: usize = 2;
/// How many warm probes may fail and then succeed in a fresh process.
const MOST_FAILURES: u32 = 2;
/// The time that a search must have left for a zygote, in multiples of its import time. A zygote pays off from the second fork on.
/// The third multiple leaves room for imports that take longer during a probe.
const WORTH_IMPORTS: u32 = 3;

/// The warm starts of a search.
#[derive(Default)]
pub(super) struct Warm {
    state: State,
    remarks: Vec<String>,
    /// Time spent on runs that are not trials, until it is added to a trial.
    pub(super) spent: Spent,
}

#[derive(Default)]
enum State {
    /// No probe has reported its imports.
    #[default]
    Unknown,
    Known(Box<Known>),
    Off,
}

/// The report of a fresh probe, and its results.
struct Known {
    imports: Imports,
    /// The import time of the first probe.
    import_time: Duration,
    zygotes: Vec<Zygote>,
    /// A zygote that still imports, with the variables of its configs.
    starting: Option<Starting>,
    /// The variables of configs that fit no zygote.
    unfitted: Vec<BTreeMap<String, String>>,
    failures: u32,
}

/// The imports that a fresh probe reported, or the reason why no zygote can run the command.
pub(super) type Told = Result<Imports, String>;

/// Returns true if a starting zygote is worth the wait. It has then used at least half, and at most twice, the import time of the
/// first probe.
fn is_nearly_there(elapsed: Duration, import_time: Duration) -> bool {
    elapsed >= import_time / 2 && elapsed <= import_time * 2
}

/// The way to start a probe.
pub(super) enum Way {
    Fresh {
        /// True if the process must report its imports.
        tells_imports: bool,
    },
    /// Forked from this zygote.
    Warm { zygote: usize },
    /// The caller stops waiting.
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
    /// Chooses the way to start a probe with these variables. Starts a zygote for the variables if none fits.
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
                return Way::Fresh { tells_imports: job.experiment.is_none() };
            }
            State::Off => return FRESH,
            State::Known(known) => known,
        };
        known.zygotes.retain_mut(Zygote::is_alive);
        if let Some(zygote) = known.zygotes.iter().position(|zygote| zygote.fits(env)) {
            return Way::Warm { zygote };
        }
        if known.starting.is_none() {
            // A zygote that is used only once costs more than it saves.
            if step.start != Start::Warm && !known.zygotes.is_empty() && !known.unfitted.contains(env) {
                known.unfitted.push(env.clone());
                return FRESH;
            }
            // The zygote imports during this probe, and pays off from the second fork on.
            if step.start != Start::Warm && job.limits.probe_time < known.import_time * WORTH_IMPORTS {
                return FRESH;
            }
            let setup = Setup {
                supervisor: &step.supervisor,
                imports: &known.imports,
                protection,
                folder,
                cwd,
                grace: job.limits.grace_time,
                processors: step.slot.as_ref().map_or(&[], |slot| &slot.cores),
            };
            match Zygote::start(&setup, env) {
                Ok(starting) => known.starting = Some(starting),
                Err(error) => return self.not_there(error),
            }
        }
        loop {
            let State::Known(known) = &mut self.state else { return FRESH };
            let Some(starting) = &mut known.starting else { return FRESH };
            match starting.look() {
                Ok(None) if step.start != Start::Warm && !is_nearly_there(starting.elapsed(), known.import_time) => {
                    return FRESH;
                }
                Ok(None) => {
                    if watch(&Progress { elapsed: starting.elapsed(), ..Progress::default() }).is_break() {
                        return Way::Interrupted;
                    }
                }
                Ok(Some(zygote)) => {
                    known.starting = None;
                    let fits = zygote.fits(env);
                    known.zygotes.truncate(MOST_ZYGOTES - 1);
                    known.zygotes.insert(0, zygote);
                    return if fits { Way::Warm { zygote: 0 } } else { FRESH };
                }
                Err(error) => {
                    known.starting = None;
                    return self.not_there(error);
                }
            }
        }
    }

    /// Records why no process can be forked.
    fn not_there(&mut self, error: NoFork) -> Way {
        match error {
            NoFork::Unfit(reason) => self.give_up(&reason),
            NoFork::Lost(reason) => self.lost(&reason),
        }
        Way::Fresh { tells_imports: false }
    }

    /// Returns a zygote that fits these variables.
    pub(super) fn ready(&mut self, env: &BTreeMap<String, String>) -> Option<usize> {
        let State::Known(known) = &mut self.state else { return None };
        known.zygotes.retain_mut(Zygote::is_alive);
        known.zygotes.iter().position(|zygote| zygote.fits(env))
    }

    /// Returns a zygote, and the interpreter's command line for a command.
    pub(super) fn zygote(&mut self, at: usize, command: &[String]) -> Option<(&mut Zygote, Vec<String>)> {
        let State::Known(known) = &mut self.state else { return None };
        let arguments = known.imports.arguments(command);
        Some((known.zygotes.get_mut(at)?, arguments))
    }

    /// Records the imports that a fresh probe reported.
    pub(super) fn learn(&mut self, told: Option<Told>, outcome: &Outcome) {
        let Some(measurement) = outcome.measurement().filter(|run| run.throughput.is_some()) else { return };
        match told {
            _ if !matches!(self.state, State::Unknown) => {}
            None => {}
            Some(Err(reason)) => self.give_up(&reason),
            Some(Ok(imports)) => {
                let seconds = measurement.facts.number(IMPORT_SECONDS).unwrap_or(0.0);
                self.state = State::Known(Box::new(Known {
                    imports,
                    import_time: Duration::try_from_secs_f64(seconds).unwrap_or_default(),
                    zygotes: Vec::new(),
                    starting: None,
                    unfitted: Vec::new(),
                    failures: 0,
                }));
            }
        }
    }

    /// Records that a warm probe failed and is repeated fresh.
    pub(super) fn failed(&mut self, number: u32) {
        self.lost(&format!("probe {number} and earlier probes failed when they were forked"));
    }

    /// Records that no zygote was available; a single case may be chance.
    pub(super) fn lost(&mut self, reason: &str) {
        if let State::Known(known) = &mut self.state {
            known.failures += 1;
            if known.failures > MOST_FAILURES {
                self.give_up(reason);
            }
        }
    }

    /// Records that no process could be forked for a probe. The next probe uses a new zygote.
    pub(super) fn not_forked(&mut self, reason: &str) {
        if let State::Known(known) = &mut self.state {
            known.zygotes.clear();
        }
        self.lost(&format!("no process could be forked: {reason}"));
    }

    /// Records that a config failed in a fresh process as it did in a warm process.
    pub(super) fn failed_fresh_too(&mut self) {
        if let State::Known(known) = &mut self.state {
            known.failures = known.failures.saturating_sub(1);
        }
    }

    /// Returns each remark once.
    pub(super) fn remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }

    /// From now on, all probes start fresh.
    pub(super) fn give_up(&mut self, reason: &str) {
        if !matches!(self.state, State::Off) {
            self.state = State::Off;
            self.remarks.push(format!("each probe imports everything anew: {reason}"));
        }
    }
}
