//! What thinking costs: the processor time of a proposal, and memory, with 20, 100 and 500 trials known, beside other
//! optimisers on the same history.
//!
//! `cargo bench --bench suggest` prints a table; `benches/results/suggest.md` keeps a run. Others are measured by
//! `peers.py` with the Python of `--python PROGRAM`, which needs what `requirements.txt` names; where it lacks that, or with
//! `--only-gputune`, gputune is measured alone.
#![expect(clippy::unwrap_used, reason = "a program of ours alone")]

mod job;
mod thinker;

use thinker::Thinker::{Peer, Strategy};

const THINKERS: [thinker::Thinker; 7] = [
    Strategy("bayes"),
    Strategy("auto"),
    Strategy("random"),
    Peer("Optuna TPE"),
    Peer("Optuna GPSampler"),
    Peer("rustuna TPE"),
    Peer("egobox"),
];
const TRIALS: [usize; 3] = [20, 100, 500];

fn main() {
    let jobs = job::jobs();
    if let Ok(part) = std::env::var(thinker::PART) {
        return thinker::think(&part, &jobs);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let python = arguments.iter().position(|argument| argument == "--python").and_then(|at| arguments.get(at + 1));
    let python = python.map_or("python3", String::as_str);
    let is_alone = arguments.iter().any(|argument| argument == "--only-gputune");
    for (number, job) in jobs.iter().enumerate() {
        println!("\n{}; milliseconds of processor time for each proposal, and MiB\n", job.name);
        println!("| | trials | first | median | quartiles | longest | peak memory |\n|---|--:|--:|--:|--:|--:|--:|");
        for thinker in THINKERS {
            if is_alone && matches!(thinker, Peer(_)) {
                continue;
            }
            for trials in TRIALS {
                match thinker.measure(python, number, job, trials) {
                    Ok(cost) => println!("{}", line(&format!("{} {}", thinker.name(), cost.version), trials, &cost)),
                    Err(why) => eprintln!("{} was not measured with {trials} trials: {why}", thinker.name()),
                }
            }
        }
    }
}

fn line(name: &str, trials: usize, cost: &thinker::Cost) -> String {
    let at = |quarter: usize| show(cost.next_ms[(cost.next_ms.len() - 1) * quarter / 4]);
    let (first, memory) = (show(cost.first_ms), cost.peak_mib);
    format!("| {name} | {trials} | {first} | {} | {} to {} | {} | {memory:.0} |", at(2), at(1), at(3), at(4))
}

fn show(ms: f64) -> String {
    if ms < 0.1 {
        format!("{ms:.3}")
    } else if ms < 100.0 {
        format!("{ms:.1}")
    } else {
        format!("{ms:.0}")
    }
}
