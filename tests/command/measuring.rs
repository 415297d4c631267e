//! The evaluation of a probe's steps, through the real binary: marks, isolated steps, giving up, not settling.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;

use crate::support::{self, Search};
use gputune::model::Outcome;

const LIMITS: &str =
    "[limits]\nprobe_time = \"30s\"\nstall_time = \"10s\"\ngrace_time = \"300ms\"\nmeasure_time = \"2s\"\n";

fn steps(count: u32, micros: u32) -> String {
    format!("steps:{count}:8:{micros}")
}

fn run(search: &Search) -> (String, serde_json::Value) {
    let shown = support::stderr(&search.command().arg("-v").output().unwrap());
    let best = fs::read(search.out().join("best.json")).unwrap_or_else(|error| panic!("{error}: {shown}"));
    (shown, serde_json::from_slice(&best).unwrap())
}

#[test]
fn marked_steps_are_left_out_and_told_everywhere() {
    let (few, mark) = (steps(25, 5_000), r#"send:{"event":"mark","name":"evaluation"}"#);
    let late = steps(1, 5_000);
    // Repeated, since on a busy machine the first evaluations may count as warm-up.
    let arguments = [few.as_str(), mark, "sleep:100", &late].repeat(20);
    let search = Search::of(&arguments, &format!("[space]\nx = {{ values = [1] }}\n{LIMITS}"));
    let (shown, best) = run(&search);
    let left_out = &best["outliers"]["evaluation"];
    let count = left_out["steps"].as_u64().unwrap_or_else(|| panic!("{best}"));
    assert!(count >= 1 && left_out["seconds"].as_f64().unwrap() > 0.1, "{best}");
    let words = format!("{count} evaluation");
    assert!(shown.contains("left out  ") && shown.contains(&words), "{shown}");
    for name in ["summary.md", "trials.csv"] {
        let text = fs::read_to_string(search.out().join(name)).unwrap();
        assert!(text.contains(&words), "{text}");
    }
}

#[test]
fn a_config_that_is_clearly_slower_leaves_after_one_round() {
    let more = "[space]\nx = { values = [4000, 80000, 1000] }\n[baseline]\nx = 4000\n[search]\nstrategy = \"grid\"\n";
    let search = Search::of(&["forever:8:{x}"], more);
    let (_, best) = run(&search);
    assert_eq!(best["config"]["x"], 1000);
    let rounds = |x| {
        let lines = search.lines();
        let of_round = |line: &&gputune::search::journal::Line| {
            line.config.integer("x") == Some(x) && line.outcome.measurement().is_some_and(|run| run.round.is_some())
        };
        lines.iter().filter(of_round).count()
    };
    assert!(rounds(80_000) == 1 && rounds(1000) >= 3, "{} and {}", rounds(80_000), rounds(1000));
}

/// Returns steps of 50 ms with a compilation, then endless steps of 2 ms.
fn compiled(first: usize) -> Vec<String> {
    let mark = r#"send:{"event":"mark","name":"recompile"}"#.to_owned();
    let compilations = std::iter::repeat_n([mark, steps(1, 50_000)], first).flatten();
    compilations.chain(["forever:8:2000".to_owned()]).collect()
}

#[test]
fn a_model_that_still_compiles_is_no_slow_config() {
    let more = format!("[space]\nx = {{ values = [1] }}\n{}", LIMITS.replace("\"2s\"", "\"1s\""));
    let arguments = compiled(400);
    let search = Search::of(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), &more);
    search.run();
    let Outcome::TimedOut(failure) = &search.lines()[0].outcome else { panic!("{:?}", search.lines()[0].outcome) };
    assert!(failure.reason.starts_with("still compiling after "), "{}", failure.reason);
    assert!(failure.reason.ends_with(" steps); raise measure_time or probe_time in [limits]"), "{}", failure.reason);
}

#[test]
fn the_rate_of_a_model_is_taken_when_it_is_compiled() {
    let arguments = compiled(20);
    let more = format!("[space]\nx = {{ values = [1] }}\n{LIMITS}");
    let search = Search::of(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), &more);
    search.run();
    let journal = search.lines();
    let measurement = journal[0].outcome.measurement().unwrap_or_else(|| panic!("{:?}", journal[0].outcome));
    // During compilation the rate is 160 samples/s.
    assert!(measurement.throughput.unwrap().value > 400.0, "{measurement:?}");
    assert!(measurement.timing.warmup_steps >= 19, "{measurement:?}");
}

/// Forty steps, then an evaluation that lasts minutes. The script reports its position, as the adapter's hook does.
const EVALUATES: &str = r#"
import faulthandler, json, os, signal, socket, time

path = os.environ["GPUTUNE_SOCKET"]
folder = os.path.join(os.path.dirname(path), "python")
os.makedirs(folder, exist_ok=True)
stacks = open(os.path.join(folder, f"stacks-{os.getpid()}.txt"), "w")
faulthandler.register(signal.SIGUSR2, file=stacks)
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)


def send(**event):
    connection.sendall((json.dumps(event) + "\n").encode())


send(event="hello", version=1, pid=os.getpid())
for step in range(40):
    time.sleep(0.005)
    send(event="step", samples=8)
for batch in range(3000):
    time.sleep(0.02)
"#;

#[test]
fn a_script_that_leaves_training_keeps_its_steps_and_is_told_where_it_is() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3");
        return;
    }
    let limits = LIMITS.replace("\"2s\"", "\"1s\"").replace("\"10s\"", "\"25s\"");
    let more = format!("[space]\nx = {{ values = [1] }}\n[search]\nrounds = 0\n{limits}");
    let search = Search::of_command(&["python3", "train.py", "{x}", "TOKEN"].map(str::to_owned), &more);
    fs::write(search.folder.path().join("train.py"), EVALUATES.trim_start()).unwrap();
    let shown = support::stderr(&search.run());
    let journal = search.lines();
    let Outcome::Measured(measurement) = &journal[0].outcome else { panic!("{:?}", journal[0].outcome) };
    assert!((10..=39).contains(&measurement.timing.steps), "{measurement:?}");
    let words = measurement.facts.text("left_training").unwrap();
    let is_told = words.starts_with("no training step for ") && words.contains(" s, after 39 steps: in train.py:2");
    assert!(is_told, "{words}");
    assert_eq!(shown.matches("the script left training, for example to evaluate").count(), 1, "{shown}");
    search.assert_no_survivors();
}

#[test]
fn a_stall_after_enough_steps_keeps_them() {
    let limits = LIMITS.replace("\"10s\"", "\"4s\"");
    let more = format!("[space]\nx = {{ values = [1] }}\n[search]\nrounds = 0\n{limits}");
    let search = Search::of(&[&steps(30, 5_000), "sleep:60000"], &more);
    search.run();
    let journal = search.lines();
    let Outcome::Measured(measurement) = &journal[0].outcome else { panic!("{:?}", journal[0].outcome) };
    assert!(measurement.timing.steps >= 10, "{measurement:?}");
}

#[test]
fn what_does_not_settle_in_its_time_is_called_unstable() {
    // The steps get slower and slower, so that no interval becomes narrow.
    let slower: Vec<String> = (1..60).map(|at| steps(1, at * at * 100)).collect();
    let arguments: Vec<&str> = slower.iter().map(String::as_str).collect();
    let search = Search::of(&arguments, &format!("[space]\nx = {{ values = [1] }}\n{LIMITS}"));
    let (shown, best) = run(&search);
    assert_eq!(best["is_unstable"], true, "{best}");
    assert!(shown.contains("(unstable)") && shown.contains("unstable  1 probe"), "{shown}");
    assert_eq!(best["measuring"]["unstable"], 1);
}

#[test]
fn peaks_of_memory_in_warm_up_and_after_it_are_told_apart() {
    let memory = |bytes: u64| {
        format!(r#"send:{{"event":"memory","reserved":{bytes},"other":1000,"capacity":100000,"retries":0}}"#)
    };
    // Three slow steps, which the machine's noise cannot hide.
    let mut arguments = vec![memory(50_000), steps(1, 1000)];
    (0..3).for_each(|_| arguments.extend(["sleep:300".to_owned(), steps(1, 1000)]));
    for _ in 0..12 {
        arguments.extend([memory(20_000), steps(10, 5000)]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let search = Search::of(&arguments, &format!("[space]\nx = {{ values = [1] }}\n{LIMITS}"));
    run(&search);
    let journal = search.lines();
    let measurement = journal[0].outcome.measurement().unwrap();
    assert_eq!(measurement.memory.peak_bytes, Some(21_000), "{measurement:?}");
    assert_eq!(measurement.memory.warmup_peak_bytes, Some(51_000), "{measurement:?}");
    assert_eq!(measurement.timing.samples_per_step, Some(8.0));
    assert!(measurement.timing.measured_seconds.is_some());
}
