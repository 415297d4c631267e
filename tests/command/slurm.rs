//! Searches over the nodes of a real Slurm, if one can be started.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
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
         [search]\nrounds = 1\nprobes = {probes}\nleast_gain = 0\nstrategy = \"random\"\n"
    )
}

/// Runs the search in an allocation of all nodes.
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

/// Waits until the journal has this many trials.
fn wait_for(search: &Search, trials: usize) {
    let deadline = Instant::now() + Duration::from_secs(240);
    let count = || fs::read_to_string(search.out().join("journal.jsonl")).map_or(0, |text| text.lines().count());
    while count() <= trials {
        assert!(Instant::now() < deadline, "{}", told(search));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the processes of this gputune in a role.
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

/// Returns the `srun` of a search's worker on a node.
fn srun_to(node: &str, search: &Search) -> Pid {
    let is_it = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let runs_there = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == search.folder.path());
        line.starts_with("srun ") && line.contains(&format!("-w {node} ")) && runs_there
    };
    let mut all = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.find(is_it).and_then(Pid::from_raw).unwrap()
}

fn kill(pid: Pid) {
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

/// Waits until no worker and no process of a probe is left: a second, or longer on a busy machine.
fn assert_soon_gone(search: &Search) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !processes("worker", search).is_empty() || !search.survivors().is_empty() {
        assert!(Instant::now() < deadline, "{:?} {:?}", processes("worker", search), search.survivors());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the config of each search trial, sorted.
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

    // A worker is killed: the other node continues, and nothing is lost.
    let search = Search::of_command(&words, &spec(40, 40));
    let mut running = allocated(&slurm, &search);
    wait_for(&search, 12);
    kill(processes("worker", &search)[0]);
    running.wait().unwrap();
    assert_eq!(code(&search), "0", "{}", told(&search));
    assert_eq!(told(&search).matches("is gone: its connection has ended").count(), 1, "{}", told(&search));
    assert_each_once(&configs(&search.lines()), 40);
    search.assert_no_survivors();

    // The driver is killed: no task is left a second later, and the same command continues.
    let search = Search::of_command(&words, &spec(40, 40));
    let mut running = allocated(&slurm, &search);
    wait_for(&search, 12);
    kill(processes("search", &search)[0]);
    assert_soon_gone(&search);
    running.wait().unwrap();
    let before = search.lines();
    allocated(&slurm, &search).wait().unwrap();
    assert_eq!(code(&search), "0", "{}", told(&search));
    let after = search.lines();
    assert_eq!(after[..before.len()], before[..]);
    assert_each_once(&configs(&after), 40);

    // The allocation is cancelled: everything ends, and the results stay.
    let search = Search::of_command(&words, &spec(200, 200));
    let mut running = allocated(&slurm, &search);
    wait_for(&search, 12);
    slurm.cancel();
    running.wait().unwrap();
    assert_soon_gone(&search);
    assert!(search.lines().len() >= 12);
}

#[test]
fn a_probe_spans_all_nodes() {
    let Some(slurm) = Slurm::start() else { return };
    let words = ["srun", "-N2", "--ntasks-per-node=1", "sh", "rank.sh"].map(str::to_owned);
    let spec = "samples_per_step = \"x\"\nranks = 2\n[space]\nx = { range = [1, 3] }\n[machine]\nspans_nodes = true\n\
                [limits]\nmeasure_time = \"600ms\"\ngrace_time = \"300ms\"\n[search]\nrounds = 0\nleast_gain = 0\n";
    let search = Search::of_command(&words, spec);
    let hello = r#"'send:{"event":"hello","rank":'"$SLURM_PROCID"',"ranks":2}'"#;
    let script =
        format!("exec {} token:{} {hello} env:SLURMD_NODENAME forever:8:5000\n", child().display(), search.token);
    fs::write(search.folder.path().join("rank.sh"), script).unwrap();
    allocated(&slurm, &search).wait().unwrap();
    assert_eq!(code(&search), "0", "{}", told(&search));
    assert!(
        told(&search).contains("each probe spans 2") && told(&search).contains("outside of it"),
        "{}",
        told(&search)
    );
    let lines = search.lines();
    assert_eq!((lines.len(), lines.iter().filter(|line| line.outcome.name() == "measured").count()), (3, 3));
    let log = fs::read_to_string(search.out().join("logs/0001.log")).unwrap();
    assert!(["gt1", "gt2"].iter().all(|node| log.lines().any(|line| line == *node)), "a rank on each node: {log}");
    search.assert_no_survivors();
}

/// A search that submits itself and follows its job.
struct Followed {
    search: Search,
    follower: Child,
}

impl Followed {
    fn new(slurm: &Slurm, options: &str, search: Search) -> Self {
        let told = fs::File::create(search.folder.path().join("told")).unwrap();
        let best = fs::File::create(search.folder.path().join("best")).unwrap();
        let mut command = search.command();
        command.args(["--slurm", options]).stdin(Stdio::null()).stdout(best).stderr(told);
        let follower = slurm.with(&mut command).spawn().unwrap();
        Self { search, follower }
    }

    /// Returns the number of its job, once the job exists.
    fn job(&self) -> String {
        let deadline = Instant::now() + Duration::from_secs(240);
        loop {
            match fs::read_to_string(self.search.out().join("slurm/job")) {
                Ok(number) if !number.is_empty() => return number,
                _ => assert!(Instant::now() < deadline, "{}", told(&self.search)),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_until_said(&self, words: &str) {
        let deadline = Instant::now() + Duration::from_secs(240);
        while !told(&self.search).contains(words) {
            assert!(Instant::now() < deadline, "{words}: {}", told(&self.search));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns its exit code and its output.
    fn end(&mut self) -> (Option<i32>, String) {
        let code = self.follower.wait().unwrap().code();
        (code, told(&self.search))
    }
}

const NODES_OF_ALL: &str = "--nodes=2 --gpus-per-node=4 --cpus-per-task=4 --mem=4000 --time=5";

#[test]
fn a_search_submits_itself_and_follows_its_job_to_whatever_end() {
    let Some(slurm) = Slurm::start() else { return };
    let step = |words: &[&str]| -> Vec<String> {
        [child().display().to_string(), "token:TOKEN".to_owned()]
            .into_iter()
            .chain(words.iter().map(|word| (*word).to_owned()))
            .collect()
    };
    let quick = step(&["forever:8:10000"]);

    // Slurm ends one search at its time limit during a probe; another search sees the end of its allocation coming. Both use a
    // part of the nodes.
    let alone = |text: &str| text.replace("gpus_per_slot = 1", "slots = 1");
    let long = alone(&spec(4, 4)).replace("[limits]\n", "[limits]\nprobe_time = \"300s\"\nstall_time = \"300s\"\n");
    let mut limited =
        Followed::new(&slurm, "--ntasks=1 --mem=1000 --time=5", Search::of_command(&step(&["sleep:600000"]), &long));
    let near = alone(&spec(2000, 2000)).replace("[limits]\n", "[limits]\ngrace_time = \"50s\"\n");
    let mut ending = Followed::new(&slurm, "--ntasks=1 --mem=1000 --time=1", Search::of_command(&quick, &near));
    limited.wait_until_said("runs on");
    slurm.control(&["update", &format!("JobId={}", limited.job()), "EndTime=now"]);

    // An `srun` is killed, and the other node continues. The job is requeued and continues from its journal; then a node goes
    // down, and the other node continues.
    let mut requeued = Followed::new(&slurm, NODES_OF_ALL, Search::of_command(&quick, &spec(44, 44)));
    wait_for(&requeued.search, 12);
    kill(srun_to("gt2", &requeued.search));
    requeued.wait_until_said("the worker on gt2 is gone");
    wait_for(&requeued.search, 18);
    let before = requeued.search.lines().len();
    slurm.control(&["requeue", &requeued.job()]);
    requeued.wait_until_said("was put back into the queue");
    assert!(processes("worker", &requeued.search).is_empty() && requeued.search.survivors().is_empty());
    slurm.control(&["update", &format!("JobId={}", requeued.job()), "StartTime=now"]);
    wait_for(&requeued.search, before + 10);
    slurm.control(&["update", "NodeName=gt2", "State=DOWN", "Reason=test"]);
    let (code, said) = requeued.end();
    slurm.bring_back("gt2");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("goes on from"), "{said}");
    assert!(said.matches("the worker on gt2 is gone").count() >= 2, "by its `srun`, and by its node: {said}");
    assert_each_once(&configs(&requeued.search.lines()), 44);
    let best = fs::read_to_string(requeued.search.folder.path().join("best")).unwrap();
    assert!(best.starts_with("x = ") && best.matches("x = ").count() == 1, "{best}");
    requeued.search.assert_no_survivors();

    // Ctrl-C leaves only the measurements; then another user cancels.
    for is_ours in [true, false] {
        let mut cancelled = Followed::new(&slurm, NODES_OF_ALL, Search::of_command(&quick, &spec(200, 200)));
        wait_for(&cancelled.search, 10);
        if is_ours {
            let pid = Pid::from_raw(cancelled.follower.id().try_into().unwrap()).unwrap();
            rustix::process::kill_process(pid, Signal::INT).unwrap();
        } else {
            slurm.with(Command::new("scancel").arg(cancelled.job())).status().unwrap();
        }
        assert_soon_gone(&cancelled.search);
        let (code, said) = cancelled.end();
        assert_eq!(code, Some(130), "{said}");
        assert!(said.contains("was cancelled; all finished probes are kept in out"), "{said}");
        assert!(cancelled.search.lines().iter().all(|line| line.outcome.failure().is_none()), "{said}");
        assert!(cancelled.search.lines().len() >= 10);
    }

    let (code, said) = ending.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the allocation ends in") && said.contains("the same command goes on"), "{said}");
    let status = fs::read_to_string(ending.search.out().join("status.json")).unwrap();
    assert!(status.contains("allocation_ends"), "{status}");
    let (code, said) = limited.end();
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("has reached its time limit") && said.contains("run the same command to continue"), "{said}");
    assert_eq!(limited.search.lines().len(), 0, "the probe that Slurm ended is no crash");
}

#[test]
fn a_search_that_gives_way_to_a_more_urgent_job_says_so_or_goes_on() {
    let Some(slurm) = Slurm::start() else { return };
    let words = [child().display().to_string(), "token:TOKEN".to_owned(), "forever:8:10000".to_owned()];

    let mut ended = Followed::new(&slurm, NODES_OF_ALL, Search::of_command(&words, &spec(200, 200)));
    wait_for(&ended.search, 10);
    slurm.take_all_nodes();
    let (code, said) = ended.end();
    assert_eq!(code, Some(5), "{said}");
    assert!(
        said.contains("was pre-empted by another job") && said.contains("all finished probes are kept in out"),
        "{said}"
    );
    assert!(processes("worker", &ended.search).is_empty() && ended.search.survivors().is_empty());
    let lines = ended.search.lines();
    assert!(lines.len() >= 10 && lines.iter().all(|line| line.outcome.failure().is_none()), "{said}");

    let options = format!("{NODES_OF_ALL} --partition=patient");
    let mut requeued = Followed::new(&slurm, &options, Search::of_command(&words, &spec(30, 30)));
    wait_for(&requeued.search, 10);
    slurm.take_all_nodes();
    requeued.wait_until_said("was put back into the queue");
    assert!(processes("worker", &requeued.search).is_empty() && requeued.search.survivors().is_empty());
    // Slurm delays a requeued job by two minutes.
    slurm.control(&["update", &format!("JobId={}", requeued.job()), "StartTime=now"]);
    let (code, said) = requeued.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("goes on from"), "{said}");
    assert_each_once(&configs(&requeued.search.lines()), 30);
    requeued.search.assert_no_survivors();
}

#[test]
fn what_slurm_does_not_take_is_said_with_the_cure() {
    let search = Search::of(&["forever:8:2000"], "");
    let said = |options: &str, search: &Search, program: Option<&str>| {
        let mut command = search.command();
        command.args(["--slurm", options]);
        if let Some(program) = program {
            let bin = search.folder.path().join("bin");
            fs::create_dir_all(&bin).unwrap();
            fs::write(bin.join("sbatch"), program).unwrap();
            fs::set_permissions(bin.join("sbatch"), fs::Permissions::from_mode(0o755)).unwrap();
            command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        } else {
            command.env("PATH", search.folder.path());
        }
        let output = command.output().unwrap();
        (output.status.code(), crate::support::stderr(&output))
    };
    let (code, text) = said("-N1", &search, None);
    assert!(code == Some(3) && text.contains("cannot run `sbatch`") && text.contains("login node"), "{text}");
    let refuses = "#!/bin/sh\necho 'sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified' >&2\nexit 1\n";
    let (code, text) = said("-A nobody", &search, Some(refuses));
    assert!(
        code == Some(2) && text.contains("Slurm does not take the job: Batch job submission failed: Invalid account"),
        "{text}"
    );
    for (options, cure) in [("--output=x", "gputune follows what the job prints"), ("run.sh", "is no option of sbatch")]
    {
        let (code, text) = said(options, &search, Some(refuses));
        assert!(code == Some(2) && text.contains(cure), "{text}");
    }
    let elsewhere = Search::of(&["forever:8:2000"], "[machine]\nhosts = [\"gpu1\"]\n");
    let (code, text) = said("-N1", &elsewhere, Some(refuses));
    assert!(code == Some(2) && text.contains("--slurm and `hosts` in [machine] exclude each other"), "{text}");
}

#[test]
fn a_worker_refuses_a_probe_that_would_not_fit() {
    let search = Search::of(&["forever:8:2000"], "");
    let text = fs::read_to_string(search.folder.path().join("spec.toml")).unwrap();
    let hello = gputune::probe::worker::Hello::new(search.folder.path().join("spec.toml"), text);
    let spec = gputune::spec::Spec::load(&hello.spec).unwrap();
    let probe = serde_json::json!({ "probe": {
        "slot": 0, "attempt": 7, "number": 1, "config": spec.space.first().unwrap(), "settings": { "x": 1 },
        "limits": spec.limits, "effort": "probe", "rival": null, "keeps": false,
    } });
    let ask = |time: &str| {
        let mut worker = Command::new(gputune());
        worker.args(["worker", "--time-left", time]).env_remove("SLURM_JOB_ID");
        let mut worker = worker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = worker.stdin.take().unwrap();
        writeln!(input, "{}\n{probe}", serde_json::json!({ "hello": hello })).unwrap();
        let lines = BufReader::new(worker.stdout.take().unwrap()).lines().map_while(Result::ok);
        let answer = lines
            .into_iter()
            .find(|line| line.contains("no_time") || line.contains("\"ended\"") || line.contains("refused"));
        drop(input);
        worker.wait().unwrap();
        answer.unwrap_or_default()
    };
    let answer = ask("500ms");
    assert!(answer.contains("\"no_time\":{\"slot\":0,\"attempt\":7,"), "{answer}");
    let answer = ask("10m");
    assert!(answer.contains("measured"), "{answer}");
    search.assert_no_survivors();
}

#[test]
fn outside_of_an_allocation_it_says_so() {
    let search = Search::of(&["forever:8:2000"], "[machine]\nlauncher = \"slurm\"\n");
    let output = search.command().env_remove("SLURM_JOB_NODELIST").output().unwrap();
    let said = crate::support::stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("this is no Slurm allocation") && said.contains("sbatch"), "{said}");
}
