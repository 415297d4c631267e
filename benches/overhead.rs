//! Measures the cost of a probe beyond its command: a child that exits at once runs bare and as a probe, in turn.
//!
//! `cargo bench --bench overhead` prints medians and quartiles; `benches/results/overhead.md` keeps a run.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use gputune::model::{Parameter, Space};
use gputune::probe::relay::Relays;
use gputune::probe::{
    CommandProber, CommandStep, Job, Limits, Prober, Rate, Start, StepTemplate, Template, WritesWish, adapter::Apply,
};

const ROUNDS: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let gputune = PathBuf::from(env!("CARGO_BIN_EXE_gputune"));
    let template = StepTemplate {
        command: vec![Template::parse("/bin/true")],
        env: Vec::new(),
        cwd: folder.path().to_owned(),
        files: Vec::new(),
        apply: Apply::default(),
    };
    let step = CommandStep {
        template,
        rate: Rate::Events,
        samples_per_step: None,
        may_count_steps: false,
        ranks: None,
        gputune: gputune.clone(),
        supervisor: gputune.clone(),
        is_gpu: false,
        writes: WritesWish::default(),
        start: Start::Fresh,
        slot: None,
        relays: Relays::default(),
    };
    let space = Space::new([Parameter::values("x", [1])])?;
    let config = space.first().ok_or("an empty space")?;
    let settings = space.settings(&config);
    let limits = Limits::default();
    let mut prober = CommandProber::new(step, folder.path());

    let (mut bare, mut probed, mut version) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(timed(|| Ok(run("/bin/true", &[])?))?);
        version.push(timed(|| Ok(run(&gputune.display().to_string(), &["--version"])?))?);
        let job = Job::new(1, &config, &settings, &limits);
        probed.push(timed(|| {
            prober.probe(&job, &mut |_| ControlFlow::Continue(()))?;
            Ok(())
        })?);
    }
    println!("{ROUNDS} rounds, in turn; milliseconds\n");
    println!("| | lower quartile | median | upper quartile |\n|---|--:|--:|--:|");
    for (name, times) in [
        ("`/bin/true`, bare", &mut bare),
        ("`/bin/true`, as a probe", &mut probed),
        ("`gputune --version`", &mut version),
    ] {
        times.sort_by(f64::total_cmp);
        let at = |quarter: usize| times[times.len() * quarter / 4];
        println!("| {name} | {:.2} | {:.2} | {:.2} |", at(1), at(2), at(3));
    }
    Ok(())
}

fn run(program: &str, arguments: &[&str]) -> std::io::Result<()> {
    Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).status().map(drop)
}

fn timed(action: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let begin = Instant::now();
    action()?;
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}
