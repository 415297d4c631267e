//! Measures the cost of a scratch layer for a script that reads small files: the same probe runs with and without it, in turn.
//!
//! `cargo bench --bench writes -- [--rounds N] [--files N] [--epochs N]` prints a table; `benches/results/writes.md` keeps a
//! run. With fewer than a thousand files their folder is not taken for data, and they are read through the layer.

use std::error::Error;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gputune::model::{Parameter, Space};
use gputune::probe::relay::Relays;
use gputune::probe::{
    CommandProber, CommandStep, Effort, Job, Limits, Prober, Rate, RateUnit, Start, StepTemplate, Template, Writes,
    WritesWish, adapter::Apply, stats,
};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The result of a run, by wall time and by CPU time. Other programs change the CPU time less.
#[derive(Debug, Clone, Copy)]
struct Run {
    files_per_second: f64,
    files_per_processor_second: f64,
    /// Milliseconds until the script runs.
    start: f64,
    start_of_processor: f64,
}

fn main() -> Result {
    let (rounds, files, epochs) = arguments()?;
    let folder = tempfile::tempdir()?;
    let project = folder.path().join("project");
    let data = folder.path().join("data");
    fs::create_dir(&project)?;
    // A hundred in each folder, as of a class.
    for at in 0..files {
        let class = data.join((at / 100).to_string());
        fs::create_dir_all(&class)?;
        fs::write(class.join(at.to_string()), vec![u8::try_from(at % 256)?; 4096])?;
    }
    let mut without = prober(&project, &data, epochs, Writes::Allow)?;
    let mut with = prober(&project, &data, epochs, Writes::Scratch)?;
    println!("writes {}", with.protect()?.line());
    let mut pairs: Vec<(Run, Run)> = Vec::new();
    for round in 0..rounds {
        // Each comes first as often as the other, so that a drift of the machine favours nobody.
        let pair = if round % 2 == 0 {
            let off = run(&mut without, &project.join("allow"))?;
            (off, run(&mut with, &project.join("scratch"))?)
        } else {
            let on = run(&mut with, &project.join("scratch"))?;
            (run(&mut without, &project.join("allow"))?, on)
        };
        eprintln!("round {}: {:?} without, {:?} with", round + 1, pair.0, pair.1);
        pairs.push(pair);
    }
    println!("{rounds} rounds of {} epochs over {files} files, in turn\n", epochs - 1);
    println!(
        "| | without, median | with a layer, median | difference of pairs, median | half of them within | 95 % of the median |"
    );
    println!("|---|--:|--:|--:|--:|--:|");
    let share = |off: f64, on: f64| (on / off - 1.0) * 100.0;
    row("files/s", &pairs, |run| run.files_per_second, share, "%");
    row("files/s of processor time", &pairs, |run| run.files_per_processor_second, share, "%");
    row("start, ms", &pairs, |run| run.start, |off, on| on - off, "ms");
    row("start, ms of processor time", &pairs, |run| run.start_of_processor, |off, on| on - off, "ms");
    Ok(())
}

fn arguments() -> Result<(usize, usize, usize)> {
    let (mut rounds, mut files, mut epochs) = (40, 10_000, 7);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} takes a value"));
        match argument.as_str() {
            "--rounds" => rounds = value()?.parse()?,
            "--files" => files = value()?.parse()?,
            "--epochs" => epochs = value()?.parse()?,
            "--bench" => {}
            other => return Err(format!("unknown argument {other}: --rounds N, --files N, --epochs N").into()),
        }
    }
    Ok((rounds, files, epochs))
}

fn prober(project: &Path, data: &Path, epochs: usize, writes: Writes) -> Result<CommandProber> {
    let gputune = PathBuf::from(env!("CARGO_BIN_EXE_gputune"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/writes/read.py");
    let words = ["python3".to_owned(), script.display().to_string(), data.display().to_string(), epochs.to_string()];
    let template = StepTemplate {
        command: words.iter().map(|word| Template::parse(word)).collect(),
        env: Vec::new(),
        cwd: project.to_owned(),
        files: Vec::new(),
        apply: Apply::default(),
    };
    let step = CommandStep {
        may_count_steps: false,
        template,
        rate: Rate::Pattern { pattern: "rate ([0-9.]+)".parse()?, unit: RateUnit::parse("samples/s")? },
        samples_per_step: None,
        ranks: None,
        gputune: gputune.clone(),
        supervisor: gputune,
        is_gpu: false,
        writes: WritesWish { writes: Some(writes), ..WritesWish::default() },
        start: Start::Fresh,
        slot: None,
        relays: Relays::default(),
    };
    let out = project.join(if writes == Writes::Allow { "allow" } else { "scratch" });
    fs::create_dir(&out)?;
    Ok(CommandProber::new(step, out))
}

fn run(prober: &mut CommandProber, out: &Path) -> Result<Run> {
    let space = Space::new([Parameter::values("x", [1])])?;
    let config = space.first().ok_or("an empty space")?;
    let settings = space.settings(&config);
    // It ends by itself.
    let limits = Limits { precision: Some(1e-9), ..Limits::default() };
    let job = Job::new(1, &config, &settings, &limits);
    prober.protect()?;
    let begin = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64();
    prober.probe(&job, &mut |_| ControlFlow::Continue(()))?;
    let log = fs::read_to_string(out.join(CommandProber::log_name(1, Effort::Probe)))?;
    let numbers = |word: &str| -> Vec<f64> {
        log.lines().filter_map(|line| line.strip_prefix(word)?.trim().parse().ok()).collect()
    };
    let first = |word: &str| numbers(word).first().copied().ok_or("the script did not begin");
    let rate = |word: &str| stats::median(&numbers(word)).ok_or("no rate");
    Ok(Run {
        files_per_second: rate("rate")?,
        files_per_processor_second: rate("of processor")?,
        start: (first("began")? - begin) * 1e3,
        start_of_processor: first("started")? * 1e3,
    })
}

fn row(name: &str, pairs: &[(Run, Run)], of: impl Fn(&Run) -> f64, differ: impl Fn(f64, f64) -> f64, unit: &str) {
    let median = |numbers: &[f64]| stats::median(numbers).unwrap_or(f64::NAN);
    let (off, on): (Vec<f64>, Vec<f64>) = pairs.iter().map(|(off, on)| (of(off), of(on))).unzip();
    let mut differences: Vec<f64> = off.iter().zip(&on).map(|(off, on)| differ(*off, *on)).collect();
    differences.sort_by(f64::total_cmp);
    let count = differences.len();
    let (low, high) = (differences[count / 4], differences[(3 * count / 4).min(count - 1)]);
    // Order statistics that hold the median with 95 %: n/2 -+ 0.98 sqrt(n) (David and Nagaraja, Order Statistics, 7.1).
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a rank")]
    let away = (0.98 * (count as f64).sqrt()).ceil() as usize;
    let (least, most) = (differences[(count / 2).saturating_sub(away)], differences[(count / 2 + away).min(count - 1)]);
    println!(
        "| {name} | {:.0} | {:.0} | {:+.2} {unit} | {low:+.2} to {high:+.2} {unit} | {least:+.2} to {most:+.2} {unit} |",
        median(&off),
        median(&on),
        median(&differences)
    );
}
