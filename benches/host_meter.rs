//! What looking at the machine costs while a probe runs: processor time of the thread that looks, as a share of one core.
//!
//! `cargo build --release --example child && cargo bench --bench host_meter -- [--seconds N]` prints a table, with `dev` for
//! `release` and `--profile dev` that of a build without optimisation;
//! `benches/results/host_meter.md` keeps a run.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// A probe among other processes.
struct Case {
    name: &'static str,
    /// Processes of the probe beside the one that trains.
    workers: u32,
    /// Memory that the one that trains holds.
    held_bytes: u64,
    /// Processes that are not the probe's.
    others: u32,
}

const CASES: &[Case] = &[
    Case { name: "one process", workers: 0, held_bytes: 0, others: 0 },
    Case { name: "16 workers", workers: 16, held_bytes: 0, others: 0 },
    Case { name: "16 workers, 1000 other processes", workers: 16, held_bytes: 0, others: 1000 },
    Case { name: "64 workers, 1000 other processes", workers: 64, held_bytes: 0, others: 1000 },
    Case { name: "one process that holds 2 GiB", workers: 0, held_bytes: 2 << 30, others: 0 },
];

/// The thread that looks, as the kernel names it.
const THREAD: &str = "host watch";

fn main() -> Result {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let mut seconds = 20;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => seconds = arguments.next().ok_or("--seconds takes a number")?.parse()?,
            other => return Err(format!("unknown argument {other}: --seconds N").into()),
        }
    }
    let gputune = PathBuf::from(env!("CARGO_BIN_EXE_gputune"));
    let child = gputune.parent().ok_or("no folder")?.join("examples/child");
    if !child.exists() {
        return Err("build the step first: cargo build --release --example child".into());
    }
    println!("{seconds} s each\n\n| the probe | share of one core |\n|---|--:|");
    for case in CASES {
        let share = cost(case, &gputune, &child, Duration::from_secs(seconds))?;
        println!("| {} | {:.3} % |", case.name, share * 100.0);
    }
    Ok(())
}

fn sleeping() -> Result<Child> {
    Ok(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn()?)
}

/// The share of the time that the thread was on a processor, from the probe's start on.
fn cost(case: &Case, gputune: &Path, child: &Path, time: Duration) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let script = format!(
        "for i in $(seq {}); do sleep 600 & done; exec '{}' hold:{} forever:8:10000",
        case.workers,
        child.display(),
        case.held_bytes
    );
    let limit = time.as_secs() + 10;
    let spec = format!(
        "[step]\ncommand = [\"sh\", \"-c\", {}]\n[space]\nx = {{ values = [1] }}\n\
         [limits]\nprobe_time = \"{limit}s\"\nmeasure_time = \"{limit}s\"\nprecision = 0.000001\n",
        serde_json::to_string(&script)?
    );
    fs::write(folder.path().join("spec.toml"), spec)?;
    let mut others = (0..case.others).map(|_| sleeping()).collect::<Result<Vec<_>>>()?;
    let mut probe = Command::new(gputune);
    probe.args(["probe", "spec.toml", "--quiet", "--out", "out"]).current_dir(folder.path());
    let mut probe = probe.stdout(Stdio::null()).spawn()?;
    let begin = Instant::now();
    std::thread::sleep(time);
    let spent = thread_time(probe.id());
    let share = spent.map(|spent| spent.as_secs_f64() / begin.elapsed().as_secs_f64());
    // It ends its processes when it is asked to.
    Command::new("kill").args(["-INT", &probe.id().to_string()]).status()?;
    probe.wait()?;
    for other in &mut others {
        other.kill()?;
        other.wait()?;
    }
    share.ok_or_else(|| "there is no thread that looks".into())
}

/// The processor time of the thread that looks.
fn thread_time(pid: u32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let is_it = |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == THREAD);
    let thread = threads.map(|thread| thread.path()).find(is_it)?;
    let schedstat = fs::read_to_string(thread.join("schedstat")).ok()?;
    schedstat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}
