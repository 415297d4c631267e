//! `gputune cluster k8s`: its YAML, and searches on a real Kubernetes if one can be started.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use gputune::model::Line;
use gputune::search::journal;
use rustix::process::{Pid, Signal};

use crate::support::kube::{GPUS, Kube};
use crate::support::{Search, child, gputune, processes_with, stderr, stdout};

const SPEC: &str =
    "[step]\ncommand = [\"python\", \"train.py\", \"{x}\"]\nadapter = \"torch\"\n[space]\nx = { values = [1, 2] }\n";

fn k8s(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(gputune());
    command.args(["cluster", "k8s", "tune.toml"]).args(words).current_dir(folder).output().unwrap()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tune.toml"), SPEC).unwrap();
    folder
}

#[test]
fn what_is_written_is_for_people_and_always_the_same() {
    let folder = folder();
    let few = ["--image", "registry.example/train:1"];
    let output = k8s(folder.path(), &few);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!("k8s_few_options", stdout(&output));
    assert_eq!(stdout(&k8s(folder.path(), &few)), stdout(&output));

    let token = folder.path().join("token");
    assert!(Command::new(gputune()).args(["cluster", "token"]).arg(&token).status().unwrap().success());
    fs::write(&token, "0123456789abcdef".repeat(4)).unwrap();
    let many = "--image registry.example/train:1 --workdir /app --gputune /opt/gputune --name fast --namespace ml --workers 2 --gpus 4 \
                --cpu 32 --memory 256Gi --claim results --mount data:/data --select nvidia.com/gpu.product=H100 --user 1000 \
                --deadline 90m --token-file token";
    let many: Vec<&str> = many.split_whitespace().collect();
    let output = k8s(folder.path(), &many);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!("k8s_many_options", stdout(&output));
}

#[test]
fn what_kubernetes_would_refuse_is_told_here() {
    let folder = folder();
    for (words, said) in [
        ("--name Search", "`Search` cannot be `--name`"),
        ("--namespace=-x", "`-x` cannot be `--namespace`"),
        ("--namespace A", "`A` cannot be `--namespace`"),
        ("--cpu 1x", "`1x` cannot be `--cpu`"),
        ("--cpu 0", "`0` cannot be `--cpu`"),
        ("--memory 64GB", "`64GB` cannot be `--memory`"),
        ("--memory Gi", "`Gi` cannot be `--memory`"),
        ("--claim Results", "`Results` cannot be `--claim`"),
        ("--mount data", "`data` cannot be `--mount`"),
        ("--select key", "`key` cannot be `--select`"),
        ("--workdir here", "`here` cannot be `--workdir`"),
        ("--workers 0", "invalid value '0' for '--workers"),
        ("--deadline 0s", "`0 ms` cannot be `--deadline`"),
        ("--deadline 500ms", "`500 ms` cannot be `--deadline`"),
        ("--token-file none", "cannot read the token file none"),
    ] {
        let words: Vec<&str> = ["--image", "i"].into_iter().chain(words.split_whitespace()).collect();
        let output = k8s(folder.path(), &words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said) && stdout(&output).is_empty(), "{}", stderr(&output));
    }
    let mut command = Command::new(gputune());
    command.args(["cluster", "k8s", "tune.toml", "--image", "i", "--apply"]).current_dir(folder.path());
    let output = command.env("PATH", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let said = stderr(&output);
    assert!(said.contains("cannot run `kubectl`") && said.contains("is `kubectl` installed"), "{said}");
}

/// A search on a cluster, found by its name.
struct OnCluster<'k> {
    kube: &'k Kube,
    search: Search,
    name: &'static str,
    claim: PathBuf,
}

impl<'k> OnCluster<'k> {
    fn apply(kube: &'k Kube, claim: &Path, name: &'static str, probes: u32) -> Self {
        let words = [child().display().to_string(), "token:TOKEN".to_owned(), "env:CUDA_VISIBLE_DEVICES".to_owned()];
        let words: Vec<String> = words.into_iter().chain(["forever:8:10000".to_owned()]).collect();
        let spec = format!(
            "samples_per_step = \"x\"\n[space]\nx = {{ range = [1, {probes}] }}\n[machine]\ngpus_per_slot = 1\ncompare_slots = false\n\
             [limits]\nmeasure_time = \"600ms\"\nprecision = 0.00001\n\
             [search]\nrounds = 0\nprobes = {probes}\nleast_gain = 0\nstrategy = \"random\"\n"
        );
        let search = Search::of_command(&words, &spec);
        let mut command = Command::new(gputune());
        command.args(["cluster", "k8s", "spec.toml", "--image", "none", "--apply", "--without-failure-policy"]);
        command.args([
            "--name",
            name,
            "--claim",
            "results",
            "--workers",
            "2",
            "--gpus",
            "2",
            "--cpu",
            "4",
            "--gputune",
            gputune(),
        ]);
        command.arg("--workdir").arg(search.folder.path()).current_dir(search.folder.path());
        let output = kube.with(&mut command).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        Self { kube, search, name, claim: claim.join(name) }
    }

    fn journal(&self) -> PathBuf {
        self.claim.join("journal.jsonl")
    }

    fn lines(&self) -> Vec<Line> {
        journal::read(&self.journal()).unwrap().1
    }

    fn printed(&self) -> String {
        self.kube.printed(&format!("{}-", self.name))
    }

    fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(240);
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: {}{}", self.printed(), self.kube.all());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_for_trials(&self, trials: usize) {
        let count = || fs::read_to_string(self.journal()).map_or(0, |text| text.lines().count());
        self.wait_for("there are too few trials", || count() > trials);
    }

    /// Returns a key of a job's status.
    fn job(&self, part: &str, key: &str) -> String {
        self.kube.kubectl(&[
            "get",
            "job",
            &format!("{}-{part}", self.name),
            "-o",
            &format!("jsonpath={{.status.{key}}}"),
        ])
    }

    fn wait_for_end(&self) {
        self.wait_for("the driver does not succeed", || self.job("driver", "succeeded") == "1");
    }

    fn pod(&self, part: &str) -> String {
        let label = format!("job-name={}-{part}", self.name);
        let names = self.kube.kubectl(&["get", "pods", "-l", &label, "-o", "jsonpath={.items[*].metadata.name}"]);
        names.split_whitespace().next().unwrap_or_default().to_owned()
    }
}

#[test]
fn a_search_on_kubernetes_outlives_pods_and_strangers() {
    let Some(kube) = Kube::start() else { return };
    let claim = kube.claim("results");

    // A whole search: all GPUs are used, results are on the claim, workers end. A stranger is refused.
    let search = OnCluster::apply(&kube, &claim, "whole", 24);
    search.wait_for_trials(2);
    let strange = search.search.folder.path().join("strange");
    assert!(Command::new(gputune()).args(["cluster", "token"]).arg(&strange).status().unwrap().success());
    let host = kube.kubectl(&["get", "endpoints", "whole-driver", "-o", "jsonpath={.subsets[0].addresses[0].ip}"]);
    let mut stranger = Command::new(gputune());
    stranger.args(["worker", "--dial", &format!("{host}:7331"), "--token-file"]).arg(&strange);
    let output = stranger.output().unwrap();
    assert!(output.status.code() == Some(3) && stderr(&output).contains("its token is another"), "{}", stderr(&output));
    search.wait_for_end();
    assert!(
        search.printed().contains(&format!("refused a connection from {host}: its token is wrong")),
        "{}",
        search.printed()
    );
    let lines = search.lines();
    let gpus: BTreeSet<Vec<String>> = lines.iter().filter_map(|line| Some(line.slot.clone()?.gpus)).collect();
    assert_eq!((lines.len(), gpus.len()), (24, GPUS), "{gpus:?}");
    assert!(search.printed().contains("writes     go to a scratch layer"), "{}", search.printed());
    assert!(search.claim.join("best.json").exists() && search.printed().contains("\nx = "));
    search
        .wait_for("workers stay", || ["worker-1", "worker-2"].iter().all(|part| search.job(part, "succeeded") == "1"));

    // A pod is deleted during a probe: the search continues.
    let search = OnCluster::apply(&kube, &claim, "deleted", 40);
    search.wait_for_trials(8);
    let pod = search.pod("worker-1");
    kube.kubectl(&["delete", "pod", &pod, "--wait=false"]);
    search.wait_for_end();
    assert!(search.printed().contains(&format!("the worker on {pod} is gone")), "{}", search.printed());
    let configs: BTreeSet<String> = search.lines().iter().map(|line| line.config.line()).collect();
    assert_eq!((configs.len(), search.lines().len()), (40, 40));

    // The driver is killed: its workers' processes end, and the measurements stay.
    let search = OnCluster::apply(&kube, &claim, "killed", 200);
    search.wait_for_trials(8);
    let driver = Path::new("/mnt/results/killed").display().to_string();
    let found = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_driver = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.starts_with(gputune()) && line.contains(&driver)
    };
    let pid = found.filter(is_driver).find_map(Pid::from_raw).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    let begin = Instant::now();
    while !processes_with(&search.search.token).is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", processes_with(&search.search.token));
        std::thread::sleep(Duration::from_millis(20));
    }
    search.wait_for("the driver does not fail", || search.job("driver", "failed") == "1");
    assert!(search.lines().len() >= 8);
}
