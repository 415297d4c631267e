//! Searches over the nodes of a real Slurm, where one can be started.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gputune::model::Line;
use rustix::process::{Pid, Signal};

use crate::support::slurm::{GPUS, NODES, Slurm};
use crate::support::{Search, child, gputune};

fn spec(configs: u32, probes: u32) -> String {
    format!(
        "samples_per_step = \"x\"\n[space]\nx = {{ range = [1, {configs}] }}\n[machine]\ngpus_per_slot = 1\ncompare_slots = false\n\
         [limits]\nmeasure_time = \"600ms\"\nprecision = 0.00001\n\
         [search]\nconfirmations = 1\nprobes = {probes}\nleast_gain = 0\nstrategy = \"random\"\n"
    )
}

/// The search in an allocation of all nodes.
fn allocated(slurm: &Slurm, search: &Search) -> Child {
    let script = format!("{} search spec.toml --out out > told 2>&1; echo $? > code", gputune());
    let mut salloc = Command::new("salloc");
    salloc.args([format!("-N{NODES}"), format!("--gpus-per-node={GPUS}"), "--cpus-per-task=4".to_owned()]);
    salloc.args(["-t", "10", "--quiet", "bash", "-c", &script]).current_dir(search.folder.path());
    salloc.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    slurm.with(&mut salloc).spawn().unwrap()
}

fn told(search: &Search) -> String {
    fs::read_to_string(search.folder.path().join("told")).unwrap_or_default()
}

fn code(search: &Search) -> String {
    fs::read_to_string(search.folder.path().join("code")).unwrap_or_default().trim().to_owned()
}

/// Waits until so many trials are in the journal.
fn wait_for(search: &Search, trials: usize) {
    let deadline = Instant::now() + Duration::from_secs(90);
    let count = || fs::read_to_string(search.out().join("journal.jsonl")).map_or(0, |text| text.lines().count());
    while count() <= trials {
        assert!(Instant::now() < deadline, "{}", told(search));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The processes of this gputune in a role.
fn processes(role: &str, search: &Search) -> Vec<Pid> {
    let folder = search.folder.path();
    let is_it = |pid: &i32| {
        let of = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let words: Vec<String> =
            of("cmdline").split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let runs_there = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder);
        words.first().is_some_and(|program| program == gputune())
            && words.get(1).is_some_and(|word| word == role)
            && runs_there
    };
    let all = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(is_it).filter_map(Pid::from_raw).collect()
}

fn kill(pid: Pid) {
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

/// How often each config was searched.
fn configs(lines: &[Line]) -> Vec<String> {
    let searched = lines.iter().filter(|line| line.purpose.to_string() == "search");
    let mut configs: Vec<String> = searched.map(|line| line.config.line()).collect();
    configs.sort_unstable();
    configs
}

fn assert_each_once(configs: &[String], count: usize) {
    let distinct: BTreeSet<&String> = configs.iter().collect();
    assert_eq!((distinct.len(), configs.len()), (count, count), "{configs:?}");
}

#[test]
fn a_search_over_two_nodes_outlives_workers_and_itself() {
    let Some(slurm) = Slurm::start() else { return };
    let words = [child().display().to_string(), "token:TOKEN".to_owned(), "env:CUDA_VISIBLE_DEVICES".to_owned()];
    let words: Vec<String> = words.into_iter().chain(["forever:8:10000".to_owned()]).collect();

    // All GPUs of both nodes are used, and each config is probed once.
    let search = Search::of_command(&words, &spec(24, 24));
    allocated(&slurm, &search).wait().unwrap();
    assert_eq!(code(&search), "0", "{}", told(&search));
    let lines = search.lines();
    let gpu = |line: &Line| line.slot.as_ref().map(|slot| (slot.host.clone(), slot.gpus.clone())).unwrap_or_default();
    let used: BTreeSet<(String, Vec<String>)> = lines.iter().map(gpu).collect();
    assert_eq!(used.len(), NODES * GPUS, "{used:?}");
    assert_each_once(&configs(&lines), 24);
    for line in &lines {
        let log = fs::read_to_string(search.out().join(format!("logs/{:04}.log", line.trial))).unwrap();
        assert_eq!(log.lines().next(), gpu(line).1.first().map(String::as_str), "the probe saw its GPU alone");
    }
    search.assert_no_survivors();

    // A worker is killed: the other node goes on, and nothing is lost.
    let search = Search::of_command(&words, &spec(40, 40));
    let mut running = allocated(&slurm, &search);
    wait_for(&search, 12);
    kill(processes("worker", &search)[0]);
    running.wait().unwrap();
    assert_eq!(code(&search), "0", "{}", told(&search));
    assert_eq!(told(&search).matches("is gone: its connection has ended").count(), 1, "{}", told(&search));
    assert_each_once(&configs(&search.lines()), 40);
    search.assert_no_survivors();

    // The driver is killed: no task is left a second later, and the same command goes on.
    let search = Search::of_command(&words, &spec(40, 40));
    let mut running = allocated(&slurm, &search);
    wait_for(&search, 12);
    kill(processes("search", &search)[0]);
    std::thread::sleep(Duration::from_secs(1));
    assert!(processes("worker", &search).is_empty() && search.survivors().is_empty());
    running.wait().unwrap();
    let before = search.lines();
    allocated(&slurm, &search).wait().unwrap();
    assert_eq!(code(&search), "0", "{}", told(&search));
    let after = search.lines();
    assert_eq!(after[..before.len()], before[..]);
    assert_each_once(&configs(&after), 40);

    // The allocation is cancelled: everything ends, and what is known stays.
    let search = Search::of_command(&words, &spec(200, 200));
    let mut running = allocated(&slurm, &search);
    wait_for(&search, 12);
    slurm.cancel();
    running.wait().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(processes("worker", &search).is_empty() && search.survivors().is_empty());
    assert!(search.lines().len() >= 12);
}

#[test]
fn outside_of_an_allocation_it_says_so() {
    let search = Search::of(&["forever:8:2000"], "[machine]\nlauncher = \"slurm\"\n");
    let output = search.command().env_remove("SLURM_JOB_NODELIST").output().unwrap();
    let said = crate::support::stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("this is no Slurm allocation") && said.contains("sbatch"), "{said}");
}
