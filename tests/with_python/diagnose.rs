//! Each rule of the diagnosis, on a script that really has the problem: `examples/sick`, the real binary, a real Python. Without
//! torch, a line lists the skipped tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{self, python::python_with_new_torch};
use gputune::diagnosis::{Scope, causes};
use serde::Deserialize;
use serde_json::Value;

/// `examples/sick/cases.toml`.
#[derive(Debug, Deserialize)]
struct Cases {
    case: Vec<Case>,
}

/// A script and its expected diagnosis.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    command: Vec<String>,
    cause: String,
    ranks: Option<u32>,
    #[serde(default)]
    beside: Vec<String>,
    #[serde(default)]
    inside: Vec<String>,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    disk: bool,
    /// The kind of files that the script reads.
    kind: Option<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "the bench measures what it brings")]
    setting: Vec<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "the bench measures what it brings")]
    cure: Vec<String>,
}

fn sick() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/sick")
}

fn cases() -> Vec<Case> {
    let text = fs::read_to_string(sick().join("cases.toml")).unwrap();
    toml::from_str::<Cases>(&text).unwrap().case
}

fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name == name).unwrap()
}

#[test]
fn every_cause_has_a_script_unless_no_script_can_bring_it_about() {
    /// The first two causes come from an administrator or the weather. The scripts run with one thread, so threads do not wait for
    /// each other. The last is the cause when no other is found.
    const NO_SCRIPT: [&str; 4] = ["power_cap", "thermal_throttling", "spinning_threads", "data_starvation"];
    let cases = cases();
    let readme = fs::read_to_string(sick().join("README.md")).unwrap();
    let names: BTreeSet<&str> = causes().map(|cause| cause.name).collect();
    for cause in causes() {
        let scripts: Vec<&Case> = cases.iter().filter(|case| case.cause == cause.name).collect();
        if NO_SCRIPT.contains(&cause.name) {
            assert!(scripts.is_empty() && readme.contains(cause.name), "{}", cause.name);
            continue;
        }
        assert!(!scripts.is_empty(), "no script of examples/sick has `{}`", cause.name);
        for script in scripts {
            let needs_gpu = script.needs.iter().any(|need| need == "gpu");
            assert_eq!(needs_gpu, cause.scope == Scope::Gpu, "{}", script.name);
        }
        assert!(readme.contains(&format!("`{}`", cause.name)), "README.md does not name {}", cause.name);
    }
    for case in &cases {
        assert!(names.contains(case.cause.as_str()), "there is no cause `{}`", case.cause);
        for script in case.command.first().into_iter().chain(case.beside.first()) {
            assert!(sick().join(script).is_file(), "there is no {script}");
            assert!(readme.contains(script.as_str()), "README.md does not name {script}");
        }
    }
}

/// A program that ends with the test.
struct Beside(Option<Child>);

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Its processes are daemons of multiprocessing, which it ends on SIGTERM.
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let _ = child.wait();
        }
    }
}

impl Case {
    /// Returns the first need of the case that this machine lacks.
    fn missing(&self, python: &Path) -> Option<&str> {
        self.needs.iter().map(String::as_str).find(|need| match *need {
            "root" => !rustix::process::geteuid().is_root() || !has_control_groups(),
            "gpu" => true, // these tests are the CPU's
            module => !Command::new(python)
                .args(["-c", &format!("import {module}")])
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success()),
        })
    }

    fn diagnose(&self, python: &Path, folder: &Path) -> Diagnosis {
        let out = folder.join(&self.name);
        let python = python.display().to_string();
        let mut words = Vec::new();
        if !self.inside.is_empty() {
            words.extend([python.clone(), sick().join("limited.py").display().to_string()]);
            words.extend(self.inside.iter().cloned());
            words.push("--".to_owned());
        }
        words.push(support::gputune().to_owned());
        words.extend(["diagnose", "--json", "--quiet", "--time", "60s", "--out"].map(str::to_owned));
        words.extend([out.display().to_string(), "--".to_owned(), python.clone()]);
        if let Some(ranks) = self.ranks {
            words.extend(["-m", "torch.distributed.run", "--nproc-per-node"].map(str::to_owned));
            words.push(ranks.to_string());
        }
        let mut script = self.command.iter();
        words.extend(script.next().map(|script| sick().join(script).display().to_string()));
        words.extend(script.cloned());
        if self.disk {
            words.extend(["--folder".to_owned(), env!("CARGO_TARGET_TMPDIR").to_owned()]);
        }
        let beside = self.beside.split_first().map(|(script, rest)| {
            let mut hog = Command::new(&python);
            hog.arg(sick().join(script)).args(rest).stdout(Stdio::null()).spawn().unwrap()
        });
        let _beside = Beside(beside);
        let watch = ForeignTime::begin();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(folder).env("OMP_NUM_THREADS", "1");
        // Virtual machines may announce AMX without supporting it; bfloat16 then dies by SIGILL.
        let output = command.env("ONEDNN_MAX_CPU_ISA", "AVX512_CORE").output().unwrap();
        let told = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{}: {error}: {}", self.name, support::stderr(&output));
        });
        Diagnosis { told, foreign: watch.share() }
    }
}

/// The output of gputune, and the share of CPU time that other processes used.
struct Diagnosis {
    told: Value,
    foreign: f64,
}

impl Diagnosis {
    fn named(&self) -> &str {
        self.told["bottleneck"]["cause"].as_str().unwrap_or("nothing")
    }

    fn found(&self) -> Vec<&str> {
        let others = self.told["others"].as_array().into_iter().flatten();
        others.filter_map(|other| other["cause"].as_str()).chain([self.named()]).collect()
    }
}

/// CPU time used outside of this process and its children, stolen time included (proc(5), `stat`).
struct ForeignTime {
    begin: Instant,
    busy: f64,
    own: f64,
}

impl ForeignTime {
    fn begin() -> Self {
        let (busy, own) = processor_seconds();
        Self { begin: Instant::now(), busy, own }
    }

    /// Returns the share of all cores' time.
    fn share(&self) -> f64 {
        let (busy, own) = processor_seconds();
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let foreign = (busy - self.busy) - (own - self.own);
        (foreign / cores / self.begin.elapsed().as_secs_f64()).clamp(0.0, 1.0)
    }
}

/// Returns the CPU seconds of the whole machine and of this process's ended children, at 100 ticks a second.
fn processor_seconds() -> (f64, f64) {
    let number = |text: &str| text.parse::<f64>().unwrap_or(0.0) / 100.0;
    let machine = fs::read_to_string("/proc/stat").unwrap();
    let fields: Vec<f64> = machine.lines().next().unwrap().split_whitespace().skip(1).map(number).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let busy: f64 =
        fields.iter().enumerate().filter(|(at, _)| !matches!(at, 3 | 4 | 8 | 9)).map(|(_, time)| time).sum();
    let own = fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = own.rsplit(") ").next().unwrap();
    (busy, after_name.split(' ').skip(13).take(2).map(number).sum())
}

fn has_control_groups() -> bool {
    ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].iter().any(|folder| {
        let group = Path::new(folder).join(format!("gputune-test-{}", std::process::id()));
        let made = fs::create_dir(&group).is_ok();
        let limits = ["cpu.cfs_quota_us", "cpu.max"].iter().any(|file| group.join(file).exists());
        let _ = fs::remove_dir(&group);
        made && limits
    })
}

/// The largest foreign CPU share at which a wrong cause still counts as an error.
const QUIET: f64 = 0.08;
const TRIES: usize = 3;
/// The time for all scripts if every first try is right; no further try begins after it.
const ENOUGH: Duration = Duration::from_secs(600);

/// Returns the mistake, if any.
///
/// Other processes may take the CPU for seconds at any time, and no measurement can avoid that. So a wrong cause is tried again.
/// After the last try it is an error if the machine was quiet, or if the right cause was not even among the found causes.
fn judge(case: &Case, python: &Path, folder: &Path, begin: Instant) -> Option<String> {
    let mut wrong = Vec::new();
    for _ in 0..TRIES {
        let diagnosis = case.diagnose(python, folder);
        let took = diagnosis.told["elapsed_s"].as_f64().unwrap_or(0.0);
        let foreign = diagnosis.foreign;
        eprintln!("{}: {} in {took:.0} s, {:.0} % foreign", case.name, diagnosis.named(), foreign * 100.0);
        if diagnosis.named() == case.cause {
            let kind = diagnosis.told["facts"]["files.kind"].as_str();
            let is_kind = case.kind.is_none() || kind == case.kind.as_deref();
            return (!is_kind).then(|| format!("{}: files of kind {kind:?}", case.name));
        }
        let evidence = serde_json::to_string(&diagnosis.told["bottleneck"]["evidence"]).unwrap();
        let is_excused = case.beside.is_empty() && foreign > QUIET;
        let is_found = diagnosis.named() == "crowded_cores" || diagnosis.found().contains(&case.cause.as_str());
        wrong.push((is_excused && is_found, format!("{}: {} {evidence}", case.name, diagnosis.named())));
        if begin.elapsed() > ENOUGH {
            break;
        }
    }
    if wrong.iter().any(|(is_excused, _)| *is_excused) {
        eprintln!("NOT JUDGED: others kept the processors busy: {}", wrong.last().unwrap().1);
        return None;
    }
    Some(wrong.into_iter().map(|(_, what)| what).collect::<Vec<_>>().join("\n"))
}

/// The scripts run one after the other: in parallel they would take the CPU from each other. A diagnosis takes most of a minute
/// on an idle machine, so they run with `GPUTUNE_TEST_ALL=1`, and by `benches/diagnosis`. `tests/with_python/diagnosing.rs`
/// always runs one.
#[test]
fn each_sick_script_is_diagnosed_with_its_disease() {
    if !support::is_thorough() {
        return;
    }
    let Some(python) = python_with_new_torch() else { return };
    let folder = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    let mut wrong = Vec::new();
    for case in cases() {
        match case.missing(&python) {
            Some("gpu") => {}
            Some(need) => eprintln!("NOT RUN: {} needs {need}", case.name),
            None => wrong.extend(judge(&case, &python, folder.path(), begin)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn scripts_that_need_a_gpu_say_so() {
    let Some(python) = python_with_new_torch() else { return };
    for name in ["host_to_device", "memory_bandwidth"] {
        let mut script = Command::new(&python);
        script.arg(sick().join(&case(name).command[0])).env("CUDA_VISIBLE_DEVICES", "");
        let output = script.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(support::stderr(&output).starts_with("error: needs a GPU"), "{}", support::stderr(&output));
    }
}
