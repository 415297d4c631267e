//! Whether what gputune says of configs is true: three training steps, twenty configs or more of each, every one run five times
//! long and probed five times, in an order that is drawn.
//!
//! `cargo bench --bench truth -- [--quick] [--only NAME] [--configs N] [--runs N] [--long-runs N] [--searches N]
//! [--measure-time SECONDS] [--long SECONDS] [--beside] [--python PATH] [--keep FILE] [--from FILE] [--out FILE]` scores the intervals
//! for a run again with their width, the speed-ups between pairs, and the true loss of the configs that searches name. `--beside`
//! does all of it beside a program that takes one core in bursts. `-- --aa [--searches N]` searches a space in which all configs are
//! the same, and counts the winners that are claimed. `-- --pairs N` has a search compare two configs, for so many pairs that are
//! drawn, between long runs of both in turn, or beside those of `--from FILE`. `--long-runs N` has so many long runs instead of as many
//! as probes: the mean of more is better known. `--keep FILE` keeps the runs of one training step as they come, and `--from FILE` scores
//! those again instead of running anything.
//! `benches/results/truth.md` keeps a run.

mod neighbour;
mod pairs;
mod runs;
mod score;
mod searches;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gputune::machine::Device;
use gputune::probe::CommandProber;
use gputune::spec::Spec;

/// What the machine is called in what studies show to each other.
const DEVICE: &str = "here";

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// What is asked for on the command line.
struct Options {
    python: String,
    only: Option<String>,
    configs: usize,
    /// Probes of each config.
    runs: usize,
    /// Long runs of each.
    long_runs: usize,
    searches: usize,
    /// The limit of a probe.
    measure_time: Duration,
    /// The time that a long run measures.
    long: Duration,
    beside: bool,
    aa: bool,
    /// How many pairs are searched, each on its own.
    pairs: usize,
    /// Where the runs are kept, and where they come from.
    keep: Option<PathBuf>,
    from: Option<PathBuf>,
    out: Option<PathBuf>,
}

/// A training step and its space.
struct Workload {
    name: &'static str,
    about: &'static str,
    needs_torch: bool,
    spec: fn(&Options, &Path) -> Result<String>,
}

const WORKLOADS: &[Workload] = &[
    Workload { name: "demo", about: "`gputune demo-step`", needs_torch: false, spec: demo },
    Workload { name: "plain", about: "a plain PyTorch script", needs_torch: true, spec: plain },
    Workload { name: "images", about: "a PyTorch script that decodes images", needs_torch: true, spec: images },
];

/// Long enough for the longest run.
const LIMITS: &str = "[limits]\nprobe_time = \"10m\"\nstall_time = \"2m\"\n";

fn main() -> Result {
    if std::env::args().any(|argument| argument == neighbour::BURSTS) {
        neighbour::take_a_core_in_bursts();
    }
    let options = options()?;
    let folder = tempfile::tempdir()?;
    let mut text = format!("{}\n", conditions(&options));
    for workload in WORKLOADS {
        if options.only.as_ref().is_some_and(|only| only != workload.name) {
            continue;
        }
        if workload.needs_torch && !has_torch(&options.python) {
            eprintln!("{}: LEFT OUT, {} has no torch (--python PATH)", workload.name, options.python);
            continue;
        }
        let path = folder.path().join(format!("{}.toml", workload.name));
        fs::write(&path, (workload.spec)(&options, folder.path())?)?;
        let _neighbour = if options.beside { Some(neighbour::Neighbour::begin()?) } else { None };
        let part = if options.aa {
            searches::all_the_same(workload, &path, &options)?
        } else if options.pairs > 0 {
            pairs::of(workload, &path, &options)?
        } else {
            let runs = match &options.from {
                Some(from) => runs::kept(&path, from)?,
                None => runs::of(workload, &path, &options)?,
            };
            score::of(workload, &runs)? + &searches::losses(workload, &path, &options, &runs)?
        };
        print!("{part}");
        text += &part;
    }
    if let Some(out) = &options.out {
        fs::write(out, text)?;
    }
    Ok(())
}

fn options() -> Result<Options> {
    let (mut python, mut only, mut out) = ("target/python/bin/python".to_owned(), None, None);
    let (mut keep, mut from, mut long_runs) = (None, None, None);
    let (mut configs, mut runs, mut searches, mut pairs) = (24, 5, 10, 0);
    let (mut seconds, mut long, mut beside, mut aa) = (10.0, 20.0, false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} takes a value"));
        match argument.as_str() {
            "--python" => python = value()?,
            "--only" => only = Some(value()?),
            "--out" => out = Some(value()?.into()),
            "--keep" => keep = Some(value()?.into()),
            "--from" => from = Some(value()?.into()),
            "--configs" => configs = value()?.parse()?,
            "--runs" => runs = value()?.parse::<usize>()?.max(3),
            "--long-runs" => long_runs = Some(value()?.parse::<usize>()?.max(2)),
            "--searches" => searches = value()?.parse()?,
            "--pairs" => pairs = value()?.parse()?,
            "--measure-time" => seconds = value()?.parse()?,
            "--long" => long = value()?.parse()?,
            "--quick" => (configs, runs, searches, seconds, long) = (4, 3, 1, 1.0, 2.0),
            "--beside" => beside = true,
            "--aa" => aa = true,
            "--bench" => {}
            other => return Err(format!("unknown argument {other}; see the head of benches/truth/main.rs").into()),
        }
    }
    if only.as_ref().is_some_and(|only| WORKLOADS.iter().all(|workload| workload.name != only)) {
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        return Err(format!("--only takes one of {}", names.join(", ")).into());
    }
    if (keep.is_some() || from.is_some()) && only.is_none() {
        return Err("--keep and --from are of one training step: name it by --only".into());
    }
    if keep.is_some() && (from.is_some() || aa || pairs > 0) {
        return Err("--keep is for runs that are made: not with --from, --aa or --pairs".into());
    }
    let (measure_time, long) = (Duration::try_from_secs_f64(seconds)?, Duration::try_from_secs_f64(long)?);
    // A spec's command is looked for from the spec's folder.
    let python = std::path::absolute(&python)?.display().to_string();
    let long_runs = long_runs.unwrap_or(runs);
    Ok(Options {
        python,
        only,
        configs,
        runs,
        long_runs,
        searches,
        measure_time,
        long,
        beside,
        aa,
        pairs,
        keep,
        from,
        out,
    })
}

/// When and where: the command, the machine, and how busy it was.
fn conditions(options: &Options) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo").lines().find_map(|line| Some(line.strip_prefix("model name")?.to_owned()));
    let processor = processor.map(|name| name.trim_start_matches([' ', '\t', ':']).to_owned()).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(", ");
    format!("`{}`, on {cores} cores of {processor}; load average at the start {load}\n", options.command_line())
}

impl Options {
    fn command_line(&self) -> String {
        let only = self.only.as_ref().map(|only| format!(" --only {only}")).unwrap_or_default();
        let beside = if self.beside { " --beside" } else { "" };
        let (seconds, long) = (self.measure_time.as_secs_f64(), self.long.as_secs_f64());
        let more = if self.long_runs == self.runs { String::new() } else { format!(" --long-runs {}", self.long_runs) };
        let pairs = if self.pairs > 0 { format!("--pairs {} ", self.pairs) } else { String::new() };
        let what = if self.aa {
            "--aa".to_owned()
        } else if let Some(from) = &self.from {
            format!("{pairs}--from {}", from.display())
        } else {
            format!("{pairs}--configs {} --runs {}{more} --long {long}", self.configs, self.runs)
        };
        let searches = self.searches;
        format!("cargo bench --bench truth -- {what} --searches {searches}{only} --measure-time {seconds}{beside}")
    }
}

fn has_torch(python: &str) -> bool {
    let mut import = Command::new(python);
    import.args(["-c", "import torch"]).stdout(Stdio::null()).stderr(Stdio::null());
    import.status().is_ok_and(|status| status.success())
}

fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/truth").join(name).display().to_string()
}

fn demo(_: &Options, folder: &Path) -> Result<String> {
    let words = ["{gputune}", "demo-step", "--batch-size", "{batch_size}", "--workers", "{workers}"];
    let more = ["--precision", "{precision}", "--steps", "1000000", "--data-dir"];
    let data = folder.join("demo").display().to_string();
    let command: Vec<&str> = words.into_iter().chain(more).chain([data.as_str()]).collect();
    Ok(format!(
        "[step]\ncommand = {}\n[space]\nbatch_size = {{ powers_of_two = [16, 128] }}\nworkers = {{ range = [0, 2] }}\n\
         precision = {{ values = [\"f32\", \"bf16\"] }}\n{LIMITS}",
        serde_json::to_string(&command)?
    ))
}

fn torch_step(options: &Options, arguments: &[&str]) -> Result<String> {
    let command: Vec<&str> = std::iter::once(options.python.as_str()).chain(arguments.iter().copied()).collect();
    let command = serde_json::to_string(&command)?;
    Ok(format!("[step]\ncommand = {command}\nadapter = \"torch\"\n[step.env]\nOMP_NUM_THREADS = \"1\"\n"))
}

fn plain(options: &Options, _: &Path) -> Result<String> {
    Ok(format!(
        "{}[space]\nbatch_size = {{ powers_of_two = [64, 512], apply = \"dataloader.batch_size\" }}\n\
         width = {{ values = [256, 512, 1024], apply = \"arg\" }}\n\
         workers = {{ values = [0, 2], apply = \"dataloader.num_workers\" }}\n{LIMITS}",
        torch_step(options, &[&script("plain.py")])?
    ))
}

fn images(options: &Options, folder: &Path) -> Result<String> {
    let data = folder.join("images").display().to_string();
    Ok(format!(
        "{}[space]\nbatch_size = {{ values = [8, 16, 32], apply = \"dataloader.batch_size\" }}\n\
         workers = {{ values = [0, 1, 2, 4], apply = \"dataloader.num_workers\" }}\n\
         channels_last = {{ values = [false, true], apply = \"torch.channels_last\" }}\n{LIMITS}",
        torch_step(options, &[&script("images.py"), &data])?
    ))
}

/// A spec's parts that a run needs, and a prober for them with a folder of its own.
fn load(path: &Path) -> Result<(Spec, CommandProber)> {
    let spec = Spec::load(path)?;
    let gputune = PathBuf::from(env!("CARGO_BIN_EXE_gputune"));
    let again = Spec::load(path)?;
    let step = again.step.into_command(gputune.clone(), gputune, &Device::detect());
    Ok((spec, CommandProber::new(step, path.with_extension("out"))))
}
