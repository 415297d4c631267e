//! Hard cases through the real binary: another environment, signals at a bad moment, leftovers of a killed gputune, a journal
//! that disappears.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{self, Search, gputune, stderr, stdout};
use gputune::model::Outcome;

const GRID: &str = "[search]\nstrategy = \"grid\"\nrounds = 0\n";
const LONG: Duration = Duration::from_secs(240);

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < LONG, "no {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn start(search: &Search) -> Child {
    search.command().env("TMPDIR", search.folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A search whose probes last until they are ended.
fn long() -> String {
    format!(
        "[limits]\nprobe_time = \"60s\"\nmeasure_time = \"60s\"\nprecision = 0.0001\ngrace_time = \"300ms\"\n{GRID}"
    )
}

/// Returns the supervisor of a running gputune.
fn supervisor(of: &Child) -> u32 {
    wait_for("supervisor", || {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", of.id())).ok()?;
        let mut children = children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
        children
            .find(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"gputune: sup")))
    })
}

/// Waits until the step has made a file.
fn wait_for_file(search: &Search, name: &str) {
    let path = search.folder.path().join(name);
    wait_for(name, || path.exists().then_some(()));
}

fn in_folder(search: &Search, name: &str) -> String {
    search.folder.path().join(name).display().to_string()
}

// The environment.

fn traceback(last: &str) -> [String; 3] {
    ["complain:Traceback (most recent call last):".to_owned(), format!("complain:{last}"), "exit:1".to_owned()]
}

#[test]
fn a_missing_module_stops_the_search_at_once_and_is_no_trial() {
    let [head, last, exit] = traceback("ModuleNotFoundError: No module named 'torch'");
    for arguments in [&[head.as_str(), &last, &exit][..], &[&last, &exit]] {
        let search = Search::of(arguments, GRID);
        let output = search.run();
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert_eq!(search.lines(), []);
        let text = stderr(&output);
        assert!(text.contains("cannot run in this environment") && text.contains("No module named 'torch'"), "{text}");
        assert!(text.contains("hint: this Python does not have it"), "{text}");
    }
}

#[test]
fn so_does_one_that_is_missing_after_earlier_successes() {
    let switched: Vec<String> = traceback("ModuleNotFoundError: No module named 'torch'")
        .iter()
        .map(|word| format!("{{bad?{word}}}"))
        .collect();
    let mut arguments: Vec<&str> = switched.iter().map(String::as_str).collect();
    arguments.push("forever:1:1000");
    let search = Search::of(&arguments, &format!("[space]\nbad = {{ values = [false, true] }}\n{GRID}"));
    let output = search.run();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(search.lines().len(), 1, "only the one that was measured");
}

#[test]
fn a_missing_program_of_a_shell_and_a_wrong_command_line_stop_the_search() {
    for (script, words) in [
        ("no-such-program-anywhere --x", "exit code 127"),
        (
            "echo 'usage: t.py [-h]' >&2; echo 't.py: error: unrecognized arguments: --x' >&2; exit 2",
            "unrecognized arguments: --x",
        ),
        ("exit 2", "exit code 2"),
    ] {
        let words_of = ["sh", "-c", script].map(str::to_owned);
        let search = Search::of_command(&words_of, GRID);
        let output = search.run();
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
        assert_eq!(search.lines(), []);
    }
}

#[test]
fn a_value_that_only_this_config_has_is_its_own_fault() {
    let script = "[ \"$1\" = odd ] && { echo \"t.py: error: argument --kind: invalid choice: '$1' (choose from 'even')\" >&2; exit 2; }; \
                  exec \"$0\" token:$2 forever:1:1000";
    let child = support::child().display().to_string();
    let words = ["sh", "-c", script, &child, "{kind}", "TOKEN"].map(str::to_owned);
    let space = |values: &str| format!("[space]\nkind = {{ values = {values} }}\n{GRID}");
    let search = Search::of_command(&words, &space("[\"even\", \"odd\"]"));
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = search.lines();
    assert!(
        matches!(&lines[1].outcome, Outcome::Rejected(failure) if failure.reason.contains("invalid choice: 'odd'")),
        "{lines:?}"
    );
    // If no probe has run yet, the command itself may be wrong.
    let search = Search::of_command(&words, &space("[\"odd\", \"even\"]"));
    assert_eq!(search.run().status.code(), Some(3));
    assert_eq!(search.lines(), []);
}

/// A job of a Python script in a folder, with its own interpreter.
struct Job(Search);

impl Job {
    fn new() -> Option<Self> {
        let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
        let python = stdout(&python).trim().to_owned();
        let words = ["python3", "train.py", "{x}", "TOKEN"].map(str::to_owned);
        let search = Search::of_command(&words, GRID);
        let script = "import model, json, os, socket, sys, time\ns = socket.socket(socket.AF_UNIX)\ns.connect(os.environ['GPUTUNE_SOCKET'])\n\
                      while True:\n    time.sleep(0.002)\n    s.sendall(b'{\"event\":\"step\",\"samples\":8}\\n')\n";
        fs::write(search.folder.path().join("train.py"), script).unwrap();
        fs::write(search.folder.path().join("model.py"), "width = 1\n").unwrap();
        for name in ["a", "b"] {
            let folder = search.folder.path().join(name);
            fs::create_dir(&folder).unwrap();
            std::os::unix::fs::symlink(&python, folder.join("python3")).unwrap();
        }
        Some(Self(search))
    }

    fn run(&self, environment: &str, more: &[&str]) -> Output {
        let path = format!("{}:{}", in_folder(&self.0, environment), std::env::var("PATH").unwrap());
        self.0.command().env("PATH", path).args(more).output().unwrap()
    }

    fn report(&self) -> String {
        let mut report = Command::new(gputune());
        stdout(&report.args(["report", "out"]).current_dir(self.0.folder.path()).output().unwrap())
    }
}

#[test]
fn another_interpreter_is_refused_or_begins_a_new_era() {
    let Some(job) = Job::new() else { return };
    let output = job.run("a", &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let first = job.0.lines();
    assert!(!job.report().contains("older era"));
    let refused = job.run("b", &[]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("the interpreter was `") && stderr(&refused).contains("--accept-changes"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(job.0.lines(), first, "nothing was recorded");

    let accepted = job.run("b", &["--accept-changes"]);
    assert_eq!(accepted.status.code(), Some(0), "{}", stderr(&accepted));
    assert!(
        stderr(&accepted).contains("a new era of this journal begins, for the interpreter was"),
        "{}",
        stderr(&accepted)
    );
    let second = job.0.lines();
    assert_eq!(second.len(), first.len());
    assert_eq!(second[0].trial, first.last().unwrap().trial + 1, "numbers go on, and logs are not overwritten");
    assert!(job.0.out().join("logs/0001.log").exists());
    assert!(
        job.report().contains("1 older era of this journal, under other conditions, has 2 trials, which do not count"),
        "{}",
        job.report()
    );
    let page = fs::read_to_string(job.0.out().join("report.html")).unwrap();
    assert!(page.contains("older era"));
    assert_eq!(job.run("b", &[]).status.code(), Some(0), "the new era is the one that goes on");
    assert_eq!(job.run("a", &[]).status.code(), Some(2), "and the old one does not");
}

#[test]
fn a_changed_script_module_or_limit_is_named() {
    let Some(job) = Job::new() else { return };
    assert_eq!(job.run("a", &[]).status.code(), Some(0));
    let spec = job.0.folder.path().join("spec.toml");
    let text = fs::read_to_string(&spec).unwrap();
    fs::write(job.0.folder.path().join("model.py"), "width = 2\n").unwrap();
    fs::write(&spec, text.replace("probe_time = \"20s\"", "probe_time = \"25s\"")).unwrap();
    let refused = job.run("a", &[]);
    assert_eq!(refused.status.code(), Some(2));
    let words = stderr(&refused);
    assert!(
        words.contains("model.py changed") && words.contains("limits.probe_time_s was 20.0 and is 25.0"),
        "{words}"
    );
    assert!(!words.contains("train.py changed"), "{words}");
}

// Signals.

#[test]
fn an_interruption_while_a_probe_is_being_ended_does_not_wait_for_the_grace_time() {
    let limits = "[limits]\nmeasure_time = \"200ms\"\ngrace_time = \"50s\"\n";
    let search =
        Search::of(&["ignore-term", "touch:FILE", "steps:600:{x}:1000", "sleep:600000"], &format!("{limits}{GRID}"));
    let spec = search.folder.path().join("spec.toml");
    fs::write(&spec, fs::read_to_string(&spec).unwrap().replace("FILE", &in_folder(&search, "begun"))).unwrap();
    let running = start(&search);
    wait_for_file(&search, "begun");
    // The probe has measured enough after a second, and then takes fifty seconds to end.
    std::thread::sleep(Duration::from_secs(4));
    let begin = Instant::now();
    signal(running.id(), "-INT");
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
    assert_eq!(search.lines().len(), 1, "what was measured is kept: {}", stderr(&output));
    search.assert_no_survivors();
}

#[test]
fn a_stopped_supervisor_neither_holds_the_search_up_nor_makes_it_deaf() {
    let limits = "[limits]\nprobe_time = \"2s\"\ngrace_time = \"200ms\"\n";
    let arguments = ["ignore-term", "sleep:600000"];
    let search = Search::of(&arguments, &format!("{limits}{GRID}"));
    let running = start(&search);
    signal(supervisor(&running), "-STOP");
    let output = running.wait_with_output().unwrap();
    assert!(matches!(search.lines()[0].outcome, Outcome::TimedOut(_) | Outcome::Stalled(_)), "{}", stderr(&output));
    search.assert_no_survivors();

    let search = Search::of(&arguments, GRID);
    let running = start(&search);
    signal(supervisor(&running), "-STOP");
    std::thread::sleep(Duration::from_millis(200));
    let begin = Instant::now();
    signal(running.id(), "-TERM");
    assert_eq!(running.wait_with_output().unwrap().status.code(), Some(130));
    assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
    search.assert_no_survivors();
}

#[test]
fn a_supervisor_that_is_stopped_whenever_it_goes_on_is_ended_with_its_charges() {
    let search = Search::of(&["ignore-term", "sleep:600000"], &format!("[limits]\nprobe_time = \"1s\"\n{GRID}"));
    let running = start(&search);
    let pid = supervisor(&running);
    let stopper = std::thread::spawn(move || {
        let begin = Instant::now();
        while Path::new(&format!("/proc/{pid}")).exists() && begin.elapsed() < LONG {
            let _ = Command::new("kill").args(["-STOP", &pid.to_string()]).stderr(Stdio::null()).status();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    stopper.join().unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    running.wait_with_output().unwrap();
    search.assert_no_survivors();
}

#[test]
fn a_gputune_that_was_stopped_repeats_the_probe() {
    let limits = "[limits]\nmeasure_time = \"4s\"\nprecision = 0.0001\n";
    let search =
        Search::of(&["touch:FILE", "forever:{x}:2000"], &format!("{limits}[search]\nprobes = 1\nrounds = 0\n"));
    let spec = search.folder.path().join("spec.toml");
    fs::write(&spec, fs::read_to_string(&spec).unwrap().replace("FILE", &in_folder(&search, "begun"))).unwrap();
    let running = start(&search);
    wait_for_file(&search, "begun");
    std::thread::sleep(Duration::from_millis(500));
    signal(running.id(), "-STOP");
    std::thread::sleep(Duration::from_millis(1500));
    signal(running.id(), "-CONT");
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let words = stderr(&output);
    assert!(words.contains("disturbed, and probed again: gputune was stopped for "), "{words}");
    assert!(matches!(search.lines()[0].outcome, Outcome::Measured(_)));
}

// Leftovers.

/// Returns the folders of probes in the search's folder for temporary files.
fn scratch_folders(search: &Search) -> Vec<PathBuf> {
    let entries = fs::read_dir(search.folder.path()).unwrap().flatten().map(|entry| entry.path());
    entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("gputune-")).collect()
}

#[test]
fn whatever_the_umask_nobody_else_reaches_the_socket() {
    for umask in ["000", "277"] {
        let search = Search::of(&["touch:FILE", "forever:{x}:1000"], &long());
        let spec = search.folder.path().join("spec.toml");
        fs::write(&spec, fs::read_to_string(&spec).unwrap().replace("FILE", &in_folder(&search, "begun"))).unwrap();
        let script = format!("umask {umask}; exec {} search spec.toml --out out", gputune());
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(search.folder.path()).env("TMPDIR", search.folder.path());
        let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for_file(&search, "begun");
        for folder in scratch_folders(&search) {
            let mode = fs::metadata(&folder).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o700, "{}", folder.display());
        }
        signal(running.id(), "-INT");
        running.wait().unwrap();
    }
}

/// The holders of shared memory are recorded a few times a second. Without a record, a file cannot be traced to the probe.
fn wait_until_written_down(search: &Search, name: &str) {
    let is_in = |folder: &PathBuf| fs::read_to_string(folder.join("shared.json")).is_ok_and(|text| text.contains(name));
    wait_for("record", || scratch_folders(search).iter().any(is_in).then_some(()));
}

#[test]
fn what_a_killed_gputune_and_its_killed_supervisor_left_is_swept_by_the_next() {
    let name = format!("gputune-knock-{}", std::process::id());
    let shared = format!("shared:{name}:1000");
    let search = Search::of(&[&shared, "touch:FILE", "forever:{x}:1000"], &long());
    let spec = search.folder.path().join("spec.toml");
    let text = fs::read_to_string(&spec).unwrap().replace("FILE", &in_folder(&search, "begun"));
    fs::write(&spec, &text).unwrap();
    let mut running = start(&search);
    wait_for_file(&search, "begun");
    wait_until_written_down(&search, &name);
    let pid = supervisor(&running);
    signal(pid, "-KILL");
    signal(running.id(), "-KILL");
    running.wait().unwrap();
    let left = scratch_folders(&search);
    assert_eq!(left.len(), 1, "the folder of the probe is left");
    let segment = Path::new("/dev/shm").join(&name);
    // Files of another program are never touched.
    let other = search.folder.path().join("gputune-others");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("owner"), "").unwrap();
    fs::write(other.join("notes.txt"), "mine").unwrap();
    fs::write(&spec, text.replace(&shared, "print:nothing").replace("60s", "2s")).unwrap();
    let output = search.command().env("TMPDIR", search.folder.path()).arg("--fresh").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!left[0].exists() && other.join("notes.txt").exists());
    assert!(!segment.exists(), "{}", segment.display());
    search.assert_no_survivors();
}

#[test]
fn a_killed_gputune_leaves_nothing_in_shared_memory() {
    let name = format!("gputune-knock2-{}", std::process::id());
    let shared = format!("shared:{name}:1000");
    let search = Search::of(&[&shared, "touch:FILE", "forever:{x}:1000"], &long());
    let spec = search.folder.path().join("spec.toml");
    fs::write(&spec, fs::read_to_string(&spec).unwrap().replace("FILE", &in_folder(&search, "begun"))).unwrap();
    let mut running = start(&search);
    wait_for_file(&search, "begun");
    wait_until_written_down(&search, &name);
    signal(running.id(), "-KILL");
    running.wait().unwrap();
    search.assert_no_survivors();
    let segment = Path::new("/dev/shm").join(&name);
    assert!(!segment.exists() && scratch_folders(&search).is_empty(), "{:?}", scratch_folders(&search));
}

#[test]
fn a_step_that_removes_its_socket_costs_no_time() {
    let search = Search::of(&["send:{\"event\":\"hello\"}", "unlink-socket", "steps:400:{x}:1000"], GRID);
    let begin = Instant::now();
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let probes: f64 = search.lines().iter().map(|line| line.elapsed_s).sum();
    assert!(probes < 18.0, "two probes of 0.4 s took {probes} s of {:?}", begin.elapsed());
}

// The journal.

/// A search of four slow probes; `change` alters the journal once it has a trial.
fn with_changed_journal(change: impl FnOnce(&Path)) -> (Search, Output) {
    let limits = "[limits]\nmeasure_time = \"1s\"\nprecision = 0.0001\n";
    let search =
        Search::of(&["forever:{x}:1000"], &format!("[space]\nx = {{ values = [1, 2, 3, 4] }}\n{limits}{GRID}"));
    let running = start(&search);
    let path = search.out().join("journal.jsonl");
    wait_for("trial", || fs::read_to_string(&path).ok().filter(|text| text.lines().count() > 1).map(drop));
    change(&path);
    let output = running.wait_with_output().unwrap();
    (search, output)
}

#[test]
fn a_journal_that_is_taken_away_is_noticed_and_no_trial_is_lost() {
    type Change = fn(&Path);
    let changes: [(Change, &str); 4] = [
        (|path| fs::remove_file(path).unwrap(), "was deleted while the search ran"),
        (
            |path| {
                fs::write(path.with_extension("new"), "x\n")
                    .and_then(|()| fs::rename(path.with_extension("new"), path))
                    .unwrap()
            },
            "was replaced by another file",
        ),
        (|path| fs::File::options().write(true).open(path).unwrap().set_len(100).unwrap(), "was cut to 100 of its"),
        (|path| fs::rename(path, path.with_extension("old")).unwrap(), "was moved to"),
    ];
    for (change, words) in changes {
        let (search, output) = with_changed_journal(change);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
        let kept = search.out().join("journal-kept-1.jsonl");
        let (_, lines) = gputune::search::journal::read(&kept).unwrap();
        assert!(lines.len() >= 2, "{words}: the trial of before and the one that found out: {}", lines.len());
        // The suggested remedy works.
        fs::rename(&kept, search.out().join("journal.jsonl")).unwrap();
        assert_eq!(search.run().status.code(), Some(0), "{words}");
        assert_eq!(search.lines().len(), 4);
    }
}

#[test]
fn fresh_follows_a_link_and_keeps_it() {
    let search = Search::of(&["forever:{x}:1000"], GRID);
    let disk = search.folder.path().join("disk/results");
    fs::create_dir_all(&disk).unwrap();
    fs::write(disk.join("mine.txt"), "kept").unwrap();
    std::os::unix::fs::symlink(&disk, search.out()).unwrap();
    assert_eq!(search.run().status.code(), Some(0));
    let output = search.command().arg("--fresh").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(fs::symlink_metadata(search.out()).unwrap().is_symlink());
    assert!(disk.join("journal.jsonl").exists(), "results go where the link leads");
    let aside = search.folder.path().join("disk/results.1");
    assert!(aside.join("journal.jsonl").exists() && aside.join("mine.txt").exists());
}

#[test]
fn odd_names_and_values_break_neither_a_shell_nor_a_terminal() {
    let space = "[space]\npath = { values = [\"a\\nb\\u001b[31m\", \"c\"] }\nlr = { values = [1] }\nLR = { values = [2] }\n[baseline]\npath = \"a\\nb\\u001b[31m\"\nlr = 1\nLR = 2\n";
    let search = Search::of(&["token:{path}", "forever:1:1000"], &format!("{space}[search]\nprobes = 1\nrounds = 0\n"));
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for text in [
        stderr(&output),
        fs::read_to_string(search.out().join("summary.md")).unwrap(),
        fs::read_to_string(search.out().join("trials.csv")).unwrap(),
    ] {
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
    let mut emit = Command::new(gputune());
    let emitted = emit.args(["emit", "out", "--format", "command"]).current_dir(search.folder.path()).output().unwrap();
    assert!(!stdout(&emitted).contains('\u{1b}'), "{:?}", stdout(&emitted));
    // A parameter called `path` is not a variable of the command, so a shell keeps its `PATH`.
    let mut emit = Command::new(gputune());
    let emitted = emit.args(["emit", "out", "--format", "env"]).current_dir(search.folder.path()).output().unwrap();
    assert!(!stdout(&emitted).to_lowercase().contains("path="), "{:?}", stdout(&emitted));
}

// Disturbed probes.

/// Measures everything, except for the first tries of one config.
struct Disturbing {
    x: i64,
    tries: u32,
}

impl gputune::probe::Prober for Disturbing {
    fn probe(
        &mut self,
        job: &gputune::probe::Job,
        _: &mut dyn FnMut(&gputune::model::Progress) -> std::ops::ControlFlow<()>,
    ) -> Result<Outcome, gputune::probe::ProbeError> {
        if job.settings.integer("x") == Some(self.x) && self.tries > 0 {
            self.tries -= 1;
            return Ok(Outcome::Disturbed(gputune::model::Failure::new("heat")));
        }
        let throughput = Some(gputune::model::Estimate::interval(100.0, 99.0, 101.0));
        Ok(Outcome::Measured(gputune::model::Measurement { throughput, ..Default::default() }))
    }
}

#[test]
fn a_config_that_is_disturbed_each_time_is_tried_later_and_the_search_goes_on() {
    let space = gputune::model::Space::new([gputune::model::Parameter::range("x", 1, 6, 1)]).unwrap();
    let budget = gputune::search::Budget { rounds: 0, ..Default::default() };
    let mut put_back = 0;
    let study = gputune::search::Tuner::with_prober(space, Disturbing { x: 2, tries: 3 })
        .budget(budget)
        .strategy("grid")
        .unwrap()
        .run(|event| put_back += u32::from(matches!(event, gputune::model::Event::PutBack { .. })))
        .unwrap();
    let xs: Vec<i64> =
        study.history.trials().iter().map(|trial| study.settings(&trial.config).integer("x").unwrap()).collect();
    assert_eq!((xs, put_back), (vec![1, 3, 4, 5, 2, 6], 1));
}
