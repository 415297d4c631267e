//! Who is measured: each in a process of its own, so that the memory is its own too. They speak JSON lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use gputune::model::Objective;
use gputune::search::strategy::{View, strategy};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::job::Job;

/// Proposals that are measured in a row, each with the trials before it known.
const PROPOSALS: usize = 11;
/// Makes this program the part that thinks: the strategy, the job's number and the trials.
pub(crate) const PART: &str = "SUGGEST_BENCH_PART";

/// One that proposes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Thinker {
    /// A strategy of gputune.
    Strategy(&'static str),
    /// Another optimiser, in Python.
    Peer(&'static str),
}

/// What thinking cost.
pub(crate) struct Cost {
    pub(crate) version: String,
    /// Of the first proposal, when nothing but the history is known.
    pub(crate) first_ms: f64,
    /// Of the following ones, sorted.
    pub(crate) next_ms: Vec<f64>,
    pub(crate) peak_mib: f64,
}

impl Thinker {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Strategy(name) => format!("gputune `{name}`"),
            Self::Peer(name) => name.to_owned(),
        }
    }

    /// Measures it with so many trials known; an error says why that is not possible.
    pub(crate) fn measure(self, python: &str, number: usize, job: &Job, trials: usize) -> Result<Cost, String> {
        let mut child = self.start(python, number, trials).map_err(|error| error.to_string())?;
        let cost = self.converse(&mut child, job, trials);
        let _ = child.kill();
        let _ = child.wait();
        cost
    }

    fn start(self, python: &str, number: usize, trials: usize) -> std::io::Result<Child> {
        let mut command = match self {
            Self::Strategy(name) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.env(PART, format!("{name} {number} {trials}"));
                command
            }
            Self::Peer(name) => {
                let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/suggest/peers.py");
                let mut command = Command::new(python);
                command.args([script, name]);
                command
            }
        };
        for threads in ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"] {
            command.env(threads, "1");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    }

    fn converse(self, child: &mut Child, job: &Job, trials: usize) -> Result<Cost, String> {
        let mut input = child.stdin.take().ok_or("no input")?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let mut next = || -> Result<Value, String> {
            let line = lines.next().ok_or("it ended early")?.map_err(|error| error.to_string())?;
            serde_json::from_str(&line).map_err(|error| error.to_string())
        };
        let history = job.history(trials);
        let known: Vec<Value> =
            history.trials().iter().map(|trial| json!([places(&trial.config), job.cost(&trial.config)])).collect();
        let parameters: Vec<Value> = job.space.parameters().iter().map(|p| json!([p.len(), p.is_ordinal()])).collect();
        let asked = json!({ "parameters": parameters, "trials": known, "proposals": PROPOSALS });
        writeln!(input, "{asked}").map_err(|error| error.to_string())?;
        let hello = next()?;
        if let Some(missing) = hello["missing"].as_str() {
            return Err(missing.to_owned());
        }
        let version = hello["version"].as_str().unwrap_or_default().to_owned();
        let (mut times, mut peak_mib) = (Vec::new(), 0.0);
        for _ in 0..PROPOSALS {
            let proposal = next()?;
            if let Some(time) = proposal["too_long"].as_str() {
                return Err(format!("a proposal took {time}"));
            }
            times.push(proposal["seconds"].as_f64().ok_or("no time")? * 1e3);
            peak_mib = proposal["peak_kib"].as_f64().ok_or("no memory")? / 1024.0;
            let index = proposal["places"].as_array().ok_or("no places")?.iter().zip(job.space.parameters());
            let index = index.fold(0, |index, (place, parameter)| {
                index * u128::from(parameter.len()) + u128::from(place.as_u64().unwrap_or(0))
            });
            let config = job.space.config(index).ok_or("outside of the space")?;
            // Nobody hears the last answer.
            let _ = writeln!(input, "{}", json!(job.cost(&config)));
        }
        let first_ms = times.remove(0);
        times.sort_by(f64::total_cmp);
        Ok(Cost { version, first_ms, next_ms: times, peak_mib })
    }
}

fn places(config: &gputune::model::Config) -> Vec<u32> {
    config.levels().map(|level| level.unwrap_or(0)).collect()
}

/// The part that thinks: proposes, and says how long that took.
pub(crate) fn think(part: &str, jobs: &[Job]) {
    let mut words = part.split(' ');
    let name = words.next().unwrap();
    let (number, trials): (usize, usize) =
        (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap());
    let (job, objective) = (&jobs[number], Objective::default());
    let (mut history, mut strategy) = (job.history(trials), (strategy(name).unwrap().build)());
    let mut lines = std::io::stdin().lines();
    lines.next().unwrap().unwrap();
    println!("{}", json!({ "version": env!("CARGO_PKG_VERSION") }));
    for _ in 0..PROPOSALS {
        let begin = processor_seconds();
        let view = View::new(&job.space, &objective, &history, &[], None).with(100, 1);
        let config = strategy.propose(&view).unwrap().config;
        let seconds = processor_seconds() - begin;
        println!("{}", json!({ "places": places(&config), "seconds": seconds, "peak_kib": peak_kib() }));
        lines.next().unwrap().unwrap();
        job.push(&mut history, config);
    }
}

/// Processor time of this process: what others do on the machine does not count.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// The most memory that this process had so far.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
