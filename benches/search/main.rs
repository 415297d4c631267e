//! How many probes gputune and its peers need: replays of recorded tables, many seeds, and how far the best found is below
//! the table's best.
//!
//! `cargo bench --bench search -- --tables FOLDER --strategies auto,bayes --python PATH --results benches/results` runs
//! everything; `benches/search/README.md` lists the options. Without a folder, it uses the tables of the tests.
#![expect(clippy::unwrap_used, reason = "a program of ours alone")]

mod line;
mod replay;
mod report;
mod score;
mod table;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::line::{Key, Line};
use crate::replay::Plan;
use crate::report::About;

/// What the command line asks for.
struct Asked {
    tables: PathBuf,
    only: Vec<String>,
    strategies: Vec<String>,
    seeds: u64,
    first_seed: u64,
    probes: usize,
    noise: bool,
    jobs: usize,
    lines: PathBuf,
    from: Vec<PathBuf>,
    python: Option<String>,
    peers: Vec<String>,
    results: Option<PathBuf>,
}

fn main() {
    let asked = asked();
    let tables = table::tables(&asked.tables, &asked.only);
    let version = version();
    let recorded = if asked.lines.exists() { line::read(&[&asked.lines]) } else { Vec::new() };
    let done: HashSet<Key> = recorded.iter().filter(|line| line.version == version).map(Line::key).collect();
    let plan = Plan {
        tables: &tables,
        methods: asked.strategies.iter().map(|name| replay::method(name)).collect(),
        seeds: asked.first_seed..asked.first_seed + asked.seeds,
        budget: asked.probes,
        noise: asked.noise,
        jobs: asked.jobs,
    };
    replay::run_all(&plan, &done, &asked.lines, &version);
    if asked.python.is_some() && !asked.peers.is_empty() {
        run_peers(&asked);
    }

    let mut sources = asked.from.clone();
    sources.extend(asked.lines.exists().then(|| asked.lines.clone()));
    let mut lines = line::read(&sources);
    // For each strategy that ran now, runs of earlier builds are left out.
    let is_now = |line: &Line| plan.methods.iter().all(|method| method.name != line.method) || line.version == version;
    lines.retain(|line| line.budget == asked.probes && line.noise == asked.noise && is_now(line));
    let about = About { command: command_line(), machine: machine(), budget: asked.probes, noise: asked.noise };
    let report = report::report(&lines, &tables, about);
    println!("{}", report.markdown(None));
    if let Some(folder) = &asked.results {
        write(folder, &report, &asked);
    }
}

/// The peers' program appends to the same file.
fn run_peers(asked: &Asked) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/search/peers");
    let mut children: Vec<_> = (1..=asked.jobs)
        .map(|part| {
            let mut command = Command::new(asked.python.as_ref().unwrap());
            command.arg(&program).arg("--tables").arg(&asked.tables).arg("--lines").arg(&asked.lines);
            command.args(["--peers", &asked.peers.join(","), "--share", &format!("{part}/{}", asked.jobs)]);
            command.args(["--seeds", &asked.seeds.to_string(), "--probes", &asked.probes.to_string()]);
            command.args(["--only", &asked.only.join(",")]);
            command.args(asked.noise.then_some("--noise"));
            command.spawn().unwrap()
        })
        .collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success(), "the peers' program failed");
    }
}

fn write(folder: &Path, report: &report::Report, asked: &Asked) {
    let name = if asked.noise { "search_noise" } else { "search" };
    std::fs::create_dir_all(folder).unwrap();
    let json = folder.join(format!("{name}.json"));
    std::fs::write(&json, report.json()).unwrap();
    let title = "# How many probes a search needs: gputune and its peers on recorded tables";
    let what = "How this is run, and how each peer is set: [benches/search](../search/README.md).";
    let pictures = asked.python.is_some().then_some(name);
    let told = report.markdown(pictures);
    let text = format!("{title}\n\n{what} The same in numbers: [{name}.json]({name}.json).\n\n{told}");
    std::fs::write(folder.join(format!("{name}.md")), text).unwrap();
    if let Some(python) = &asked.python {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/search/peers/plot.py");
        let status = Command::new(python).arg(program).arg(&json).arg(folder.join(name)).status().unwrap();
        assert!(status.success(), "the plots failed");
    }
}

fn asked() -> Asked {
    let arguments = arguments();
    const VALUED: [&str; 12] = [
        "--tables",
        "--only",
        "--strategies",
        "--seeds",
        "--first-seed",
        "--probes",
        "--jobs",
        "--lines",
        "--from",
        "--python",
        "--peers",
        "--results",
    ];
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let is_flag = argument == "--noise";
        assert!(
            is_flag || VALUED.contains(&argument.as_str()),
            "no such option: {argument}; see benches/search/README.md"
        );
        assert!(is_flag || rest.next().is_some(), "{argument} lacks its value");
    }
    let value = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    let list = |name: &str| -> Vec<String> {
        let text = value(name).unwrap_or_default();
        text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let number = |name: &str, default: u64| value(name).map_or(default, |text| text.parse().unwrap());
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tables");
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    Asked {
        tables: value("--tables").map_or(own, PathBuf::from),
        only: list("--only"),
        strategies: if value("--strategies").is_some() { list("--strategies") } else { vec!["auto".to_owned()] },
        seeds: number("--seeds", 50),
        first_seed: number("--first-seed", 0),
        probes: usize::try_from(number("--probes", 100)).unwrap(),
        noise: arguments.iter().any(|argument| argument == "--noise"),
        jobs: usize::try_from(number("--jobs", 1)).unwrap().max(1),
        lines: value("--lines").map_or_else(|| target.join("search.jsonl"), PathBuf::from),
        from: list("--from").into_iter().map(PathBuf::from).collect(),
        python: value("--python"),
        peers: list("--peers"),
        results: value("--results").map(PathBuf::from),
    }
}

fn arguments() -> Vec<String> {
    std::env::args().skip(1).filter(|argument| argument != "--bench").collect()
}

/// The command as it can be given elsewhere: of a path only its end.
fn command_line() -> String {
    let shown = |argument: String| {
        let ends = argument
            .split(',')
            .map(|part| if part.starts_with('/') { part.rsplit('/').next().unwrap_or(part) } else { part });
        ends.collect::<Vec<_>>().join(",")
    };
    let arguments: Vec<String> = arguments().into_iter().map(shown).collect();
    format!("cargo bench --bench search -- {}", arguments.join(" "))
}

/// The version, and what tells one build from another: runs of another build are not taken for this one's.
fn version() -> String {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let mut hasher = DefaultHasher::new();
    hasher.write(&program);
    format!("{} ({:08x})", env!("CARGO_PKG_VERSION"), hasher.finish() >> 32)
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    format!("{cores} cores of {}", model.unwrap_or("an unknown processor"))
}
