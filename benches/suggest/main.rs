//! What thinking costs: the time of a proposal and the memory that it takes, with 20, 100 and 500 trials known.
#![expect(clippy::unwrap_used, reason = "a program of ours alone")]

mod job;

use gputune::objective::Objective;
use gputune::strategy::{View, strategy};
use rustix::time::{ClockId, clock_gettime};

use job::jobs;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let objective = Objective::default();
    for job in jobs() {
        for name in ["bayes", "auto", "random"] {
            if arguments.first().is_some_and(|only| only != name) {
                continue;
            }
            for trials in [20, 100, 500] {
                let mut history = job.history(trials);
                let mut strategy = (strategy(name).unwrap().build)();
                let mut times = Vec::new();
                for _ in 0..11 {
                    let view = View::new(&job.space, &objective, &history, &[], None).with(100, 1);
                    let begin = processor_seconds();
                    let config = strategy.propose(&view).unwrap().config;
                    times.push((processor_seconds() - begin) * 1e3);
                    job.push(&mut history, config);
                }
                let first = times.remove(0);
                times.sort_by(f64::total_cmp);
                println!(
                    "{} {name} {trials}: first {first:.2}, median {:.2}, most {:.2} ms",
                    job.name, times[5], times[9]
                );
            }
        }
    }
}

/// Processor time of this process: what others do on the machine does not count.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
