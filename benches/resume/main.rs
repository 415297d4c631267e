//! How long it takes to go on with a search that has many trials in its journal.
//!
//! `cargo bench --bench resume` writes a journal of 10,000 trials and goes on with it: in parts, through the library, and
//! as a whole, through the program itself. `-- --trials N` takes another number of trials, and `--folder DIR` keeps what was
//! written. Of the program the processor's time is told too, which depends less on what else the machine does.
#![expect(clippy::unwrap_used, reason = "a program of ours alone")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gputune::model::{
    Estimate, Failure, Line, Measurement, Memory, MemoryUse, Outcome, Permutation, Purpose, Settings, Space, Timing,
};
use gputune::probe::{Step, StepError};
use gputune::search::{Budget, Header, Journal, STRATEGIES, Tuner};
use gputune::spec::Spec;

const SPEC: &str = r#"
[step]
command = ["true"]
device = "cpu"
throughput = { pattern = "rate=([0-9.]+)", unit = "samples/s" }

[space]
batch_size = { powers_of_two = [1, 512] }
workers = { range = [0, 8] }
prefetch = { range = [1, 5] }
precision = { values = ["fp32", "tf32", "bf16"] }
accumulation = { range = [1, 5] }
pin = { values = [false, true] }

[search]
strategy = "STRATEGY"
probes = TRIALS
time = "1000h"
rounds = 0
"#;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let asked = arguments.iter().position(|argument| argument == "--trials").and_then(|at| arguments.get(at + 1));
    let trials: u32 = asked.map_or(10_000, |text| text.parse().unwrap());
    let kept = arguments.iter().position(|argument| argument == "--folder").and_then(|at| arguments.get(at + 1));
    let scratch = tempfile::tempdir().unwrap();
    let folder = kept.map_or_else(|| scratch.path().to_owned(), PathBuf::from);
    println!("{trials} trials; seconds\n");
    println!("| strategy | reading the journal | to the end of the search | the program, whole | of the processor |");
    println!("|---|---|---|---|---|");
    for entry in STRATEGIES {
        let folder = folder.join(entry.name);
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("gputune.toml");
        std::fs::write(&path, SPEC.replace("STRATEGY", entry.name).replace("TRIALS", &trials.to_string())).unwrap();
        let (read, searched) = in_parts(&folder, &path, trials);
        let before = processor_seconds_of_children();
        let whole = through_the_program(&folder, &path, trials);
        let processor = processor_seconds_of_children() - before;
        println!("| `{}` | {read:.3} | {searched:.3} | {whole:.3} | {processor:.2} |", entry.name);
    }
}

/// Reading the journal, and everything from there to the end of the search, which asks the strategy once.
fn in_parts(folder: &Path, spec: &Path, trials: u32) -> (f64, f64) {
    let spec = Spec::load(spec).unwrap();
    let header = Header::new(spec.fingerprint(&spec.device().unwrap()));
    let path = folder.join("journal.jsonl");
    write_journal(&path, &header, &spec.space, trials);
    let begin = Instant::now();
    let (journal, recovered) = Journal::open(&path, &header, &spec.space).unwrap();
    let read = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let step = |_: &Settings| -> Result<Step, StepError> { Err(StepError::GiveUp("no probe is left".to_owned())) };
    let study = Tuner::new(spec.space, step)
        .strategy(spec.strategy)
        .unwrap()
        .budget(Budget { time: Duration::MAX, ..spec.budget })
        .journal(journal, recovered)
        .run(|_| ())
        .unwrap();
    assert_eq!(study.history.trials().len(), trials as usize);
    assert!(study.best().is_some());
    (read, begin.elapsed().as_secs_f64())
}

/// `gputune search` from its start to its end, results written.
fn through_the_program(folder: &Path, path: &Path, trials: u32) -> f64 {
    let spec = Spec::load(path).unwrap();
    let header = Header::new(spec.fingerprint(&spec.device().unwrap()));
    let out = folder.join("out");
    std::fs::create_dir_all(&out).unwrap();
    write_journal(&out.join("journal.jsonl"), &header, &spec.space, trials);
    let begin = Instant::now();
    let done = Command::new(PathBuf::from(env!("CARGO_BIN_EXE_gputune")))
        .args(["search".as_ref(), path.as_os_str(), "--out".as_ref(), out.as_os_str()])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let whole = begin.elapsed().as_secs_f64();
    assert!(done.status.success(), "{done:?}");
    whole
}

/// What the processes that this one waited for took of the processor: `cutime` and `cstime` of proc_pid_stat(5), in
/// hundredths of a second.
fn processor_seconds_of_children() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[13..15].iter().map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

/// Trials in random order: an eighth does not fit, another fails, and the rest was measured.
fn write_journal(path: &Path, header: &Header, space: &Space, trials: u32) {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    writeln!(file, "{}", serde_json::to_string(header).unwrap()).unwrap();
    let order = Permutation::new(space.raw_size().unwrap(), 7);
    for number in 1..=trials {
        let config = space.config(order.at(number.into()).unwrap()).unwrap();
        let settings = space.settings(&config);
        let line = Line {
            as_it_is: None,
            trial: number,
            purpose: Purpose::Search,
            outcome: outcome(&settings, number),
            config: settings,
            why: None,
            expected_gain: None,
            ended_at: None,
            slot: None,
            elapsed_s: 20.0,
        };
        writeln!(file, "{}", serde_json::to_string(&line).unwrap()).unwrap();
    }
}

fn outcome(settings: &Settings, number: u32) -> Outcome {
    let [batch, workers] = ["batch_size", "workers"].map(|name| settings.integer(name).unwrap() as f64);
    if batch > 200.0 && settings.text("precision") == Some("fp32") {
        return Outcome::OutOfMemory { memory: Memory::Device, failure: Failure::new("CUDA out of memory") };
    }
    if number.is_multiple_of(8) {
        return Outcome::Crashed(Failure::new("exit code 1"));
    }
    let speed = 1000.0 * batch / (8.0 + 0.2 * batch) + 10.0 * workers + f64::from(number % 7);
    Outcome::Measured(Measurement {
        throughput: Some(Estimate::interval(speed, speed * 0.98, speed * 1.02)),
        unit: "samples/s".to_owned(),
        timing: Timing {
            steps: 100,
            step_seconds: Some(batch / speed),
            samples_per_step: Some(batch),
            measured_seconds: Some(10.0),
            ..Default::default()
        },
        memory: MemoryUse { peak_bytes: Some(1 << 30), ..Default::default() },
        ..Measurement::default()
    })
}
