//! Warm starts: a probe is forked from a process that has already done the script's imports.
//!
//! Importing torch takes seconds of CPU time, a fork a fifth of a second. The first probe of a search is fresh and reports its
//! imports ([`Imports`]). A [`Zygote`] imports the same modules during the second probe. Each later probe is a fork of the zygote
//! that runs the whole script. A warm probe that fails proves nothing about its config: it is repeated fresh. Before a config is
//! reported as faster, both a fresh and a forked process of it are measured.

mod zygote;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::writes::{Protection, Writes};
use super::{CommandStep, Job, Start, Watch};
use crate::model::{Outcome, Progress, Spent, fact::IMPORT_SECONDS};
pub(super) use zygote::{NoFork, Zygote};

/// The maximum number of zygotes at a time, each with the variables of some configs.
const MOST_ZYGOTES: usize = 2;
/// How many warm probes may fail and then succeed in a fresh process. After more such failures, all probes start fresh.
const MOST_FAILURES: u32 = 2;
/// A zygote starts only if the probe's time limit, which is at least half of the time left, has this many import times. A zygote
/// pays off from the second fork on.
const WORTH_IMPORTS: u32 = 2;

#[derive(Default)]
pub(super) struct Warm {
    state: State,
    remarks: Vec<String>,
    /// Time spent on runs that are not trials, until it is added to a trial.
    pub(super) spent: Spent,
}

#[derive(Default)]
enum State {
    #[default]
    Unknown,
    Known(Box<Known>),
    Off,
}

/// The imports that a fresh probe reported, and the zygotes that do these imports.
struct Known {
    imports: Imports,
    /// The import time of the first probe.
    import_time: Duration,
    zygotes: Vec<Zygote>,
    /// A zygote that still imports, with the variables of its configs.
    starting: Option<Zygote>,
    /// The variables of configs that fit no zygote.
    unfitted: Vec<BTreeMap<String, String>>,
    failures: u32,
}

impl Known {
    fn fitting(&mut self, env: &BTreeMap<String, String>) -> Option<usize> {
        self.zygotes.retain_mut(Zygote::is_alive);
        self.zygotes.iter().position(|zygote| zygote.fits(env))
    }
}

/// The imports that a fresh probe reported, or the reason why no zygote can run the command.
pub(super) type Told = Result<Imports, String>;

pub(super) enum Way {
    Fresh { tells_imports: bool },
    Warm { zygote: usize },
    Interrupted,
}

impl Warm {
    /// Chooses the way to start a probe with these variables. Starts a zygote for the variables if none fits.
    pub(super) fn way(
        &mut self,
        step: &CommandStep,
        (folder, protection): (&Path, Option<&Protection>),
        (job, env): (&Job, &BTreeMap<String, String>),
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
            State::Unknown => return Way::Fresh { tells_imports: job.experiment.is_none() },
            State::Off => return FRESH,
            State::Known(known) => known,
        };
        if let Some(zygote) = known.fitting(env) {
            return Way::Warm { zygote };
        }
        if known.starting.is_none() {
            // New variables get a zygote at their second probe, since a single use costs more than it saves.
            if step.start != Start::Warm && !known.zygotes.is_empty() && !known.unfitted.contains(env) {
                known.unfitted.push(env.clone());
                return FRESH;
            }
            // The zygote imports during this probe. See `WORTH_IMPORTS`.
            if step.start != Start::Warm && job.limits.probe_time < known.import_time * WORTH_IMPORTS {
                return FRESH;
            }
            let start = Zygote::start((step, &known.imports), (folder, protection), job.limits.grace_time, env);
            match start {
                Ok(starting) => known.starting = Some(starting),
                Err(error) => return self.not_there(error),
            }
        }
        loop {
            let Some(known) = self.known() else { return FRESH };
            let Some(starting) = &mut known.starting else { return FRESH };
            // A zygote is worth the wait if half to twice the import time of the first probe has passed.
            let usual = known.import_time / 2..=known.import_time * 2;
            match starting.is_ready() {
                Ok(false) if step.start != Start::Warm && !usual.contains(&starting.began.elapsed()) => return FRESH,
                Ok(false) => {
                    if watch(&Progress { elapsed: starting.began.elapsed(), ..Progress::default() }).is_break() {
                        return Way::Interrupted;
                    }
                }
                Ok(true) => {
                    let Some(zygote) = known.starting.take() else { return FRESH };
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

    fn known(&mut self) -> Option<&mut Known> {
        if let State::Known(known) = &mut self.state { Some(known) } else { None }
    }

    pub(super) fn ready(&mut self, env: &BTreeMap<String, String>) -> Option<usize> {
        self.known()?.fitting(env)
    }

    /// Returns a zygote, and the interpreter's command line for a command.
    pub(super) fn zygote(&mut self, at: usize, command: &[String]) -> Option<(&mut Zygote, Vec<String>)> {
        let known = self.known()?;
        let arguments = known.imports.arguments(command);
        Some((known.zygotes.get_mut(at)?, arguments))
    }

    /// Records the imports that a measured fresh probe reported. Only the first report counts.
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
    fn lost(&mut self, reason: &str) {
        let Some(known) = self.known() else { return };
        known.failures += 1;
        if known.failures > MOST_FAILURES {
            self.give_up(reason);
        }
    }

    /// Records that no process could be forked for a probe. The next probe uses a new zygote.
    pub(super) fn not_forked(&mut self, reason: &str) {
        self.known().into_iter().for_each(|known| known.zygotes.clear());
        self.lost(&format!("no process could be forked: {reason}"));
    }

    /// Records that a config failed in a fresh process as it did in a warm process.
    pub(super) fn failed_fresh_too(&mut self) {
        self.known().into_iter().for_each(|known| known.failures = known.failures.saturating_sub(1));
    }

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

/// The file in which the hook's `imports.py` reports the imports, next to `probe.json`.
const FILE: &str = "imports.json";

/// The prefixes of variables that libraries read while they load, unseen by Python: the dynamic linker and allocator, OpenMP and
/// BLAS, Python itself, torch, time zone and language.
const LOAD_TIME: &str = "ATEN_ BLIS_ DNNL_ GLIBC_ GOMP_ KMP_ LANG LC_ LD_ MALLOC_ MKL_ OMP_ ONEDNN_ OPENBLAS_ PYTHON \
    PYTORCH_ TORCH TZ";

/// The facts about the first probe that the zygote needs.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Imports {
    pid: u32,
    executable: PathBuf,
    arguments: Vec<String>,
    options: Vec<String>,
    unfit: Option<String>,
    /// Name, file and installed flag of each module; only the zygote reads them.
    modules: Value,
    /// The variables that changed between the start and the first step.
    environment: BTreeMap<String, String>,
    /// The interpreter's arguments before the words of the command.
    #[serde(skip)]
    front: Vec<String>,
}

impl Imports {
    /// Reads the report of a probe from its scratch folder; `command` ran as process `pid`. Returns `None` without a report. The
    /// error is the reason why no zygote can run the command.
    pub(super) fn read(scratch: &Path, command: &[String], pid: Option<u32>) -> Option<Result<Self, String>> {
        let text = fs::read(scratch.join("python").join(FILE)).ok()?;
        let mut imports: Self = serde_json::from_slice(&text).ok()?;
        if let Some(reason) = imports.unfit.take() {
            return Some(Err(reason));
        }
        if Some(imports.pid) != pid {
            return Some(Err("the command starts Python by way of another program".to_owned()));
        }
        let words = command.get(1..).unwrap_or_default();
        let Some(front) = imports.arguments.strip_suffix(words) else {
            return Some(Err("the command line of Python differs from the command".to_owned()));
        };
        // A shell script that ends in `exec python` may have prepared anything first, so it cannot be left out.
        let name = |word: Option<&String>| word.and_then(|word| Path::new(word).file_name().map(ToOwned::to_owned));
        if name(front.last()) != name(command.first()) {
            return Some(Err("the command starts Python by way of another program".to_owned()));
        }
        imports.front = front.to_vec();
        Some(Ok(imports))
    }

    /// Returns the interpreter's command line for another probe of the same command.
    fn arguments(&self, command: &[String]) -> Vec<String> {
        self.front.iter().chain(command.get(1..).unwrap_or_default()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str], command: &[&str], pid: u32) -> Result<Imports, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("python")).unwrap();
        let file = serde_json::json!({
            "pid": pid, "executable": "/usr/bin/python3", "arguments": arguments, "options": ["-u"], "unfit": null,
            "modules": [["torch", "/x/site-packages/torch/__init__.py", true]], "environment": {},
        });
        fs::write(folder.path().join("python").join(FILE), file.to_string()).unwrap();
        let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        Imports::read(folder.path(), &command, Some(7)).unwrap()
    }

    #[test]
    fn a_script_with_other_arguments_is_started_the_same_way() {
        let found = read(&["python3", "-u", "t.py", "--b", "4"], &["python3", "-u", "t.py", "--b", "4"], 7).unwrap();
        let command = ["python3", "-u", "t.py", "--b", "8"].map(str::to_owned);
        assert_eq!(found.arguments(&command), command);
        let found = read(&["/v/python", "/v/bin/yolo", "train"], &["yolo", "train"], 7).unwrap();
        assert_eq!(found.arguments(&["yolo".to_owned(), "x".to_owned()]), ["/v/python", "/v/bin/yolo", "x"]);
    }

    #[test]
    fn a_launcher_between_is_told() {
        let python = &["python3", "t.py"][..];
        for (arguments, command, pid, words) in [
            (python, python, 8, "another program"),
            (&["python", "t.py", "--b", "4"], &["./train.sh", "--b", "4"], 7, "another program"),
            (python, &["sh", "-c", "python3 t.py"], 7, "command line"),
        ] {
            assert!(read(arguments, command, pid).unwrap_err().contains(words), "{command:?}");
        }
        assert!(Imports::read(Path::new("/nonexistent"), &[], None).is_none());
    }
}
