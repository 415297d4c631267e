//! Whether a long run confirms what a probe reports, and what the probe cost: three training steps, at least twenty
//! configs of each.
//!
//! `cargo bench --bench truth -- [--quick] [--only NAME] [--configs N] [--measure-time SECONDS] [--python PATH]
//! [--out FILE]` measures each config
//! as gputune probes it, in a run ten times longer, and in a probe of a fixed hundred steps, in turn;
//! `cargo bench --bench truth -- --aa [--searches N]` repeats one search and looks whether its winners agree.
//! `benches/results/truth.md` keeps a run.

mod agreement;
mod probes;
mod table;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gputune::machine::Device;
use gputune::probe::CommandProber;
use gputune::spec::Spec;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// What is asked for on the command line.
struct Options {
    python: String,
    only: Option<String>,
    configs: usize,
    searches: usize,
    /// The limit of a probe; a long run takes up to ten times as long.
    measure_time: Duration,
    aa: bool,
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
    let options = options()?;
    let folder = tempfile::tempdir()?;
    let mut text = format!("{}\n", table::conditions(&options.command_line()));
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
        let part = if options.aa {
            agreement::of(workload, &path, &options)?
        } else {
            table::of(workload, &probes::of(workload, &path, &options)?)
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
    let (mut configs, mut searches, mut seconds, mut aa) = (24, 10, 10.0, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} takes a value"));
        match argument.as_str() {
            "--python" => python = value()?,
            "--only" => only = Some(value()?),
            "--out" => out = Some(value()?.into()),
            "--configs" => configs = value()?.parse()?,
            "--searches" => searches = value()?.parse()?,
            "--measure-time" => seconds = value()?.parse()?,
            "--quick" => (configs, searches, seconds) = (3, 2, 2.0),
            "--aa" => aa = true,
            "--bench" => {}
            other => return Err(format!("unknown argument {other}; see the head of benches/truth/main.rs").into()),
        }
    }
    if only.as_ref().is_some_and(|only| WORKLOADS.iter().all(|workload| workload.name != only)) {
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        return Err(format!("--only takes one of {}", names.join(", ")).into());
    }
    let measure_time = Duration::try_from_secs_f64(seconds)?;
    Ok(Options { python, only, configs, searches, measure_time, aa, out })
}

impl Options {
    fn command_line(&self) -> String {
        let only = self.only.as_ref().map(|only| format!(" --only {only}")).unwrap_or_default();
        let what =
            if self.aa { format!("--aa --searches {}", self.searches) } else { format!("--configs {}", self.configs) };
        let seconds = self.measure_time.as_secs_f64();
        format!("cargo bench --bench truth -- {what}{only} --measure-time {seconds}")
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
