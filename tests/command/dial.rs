//! Workers that dial in to a search, all on this machine.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::support::commands::{printed, shell_command};
use crate::support::{Search, gputune, stderr};

const MACHINE: &str = "[machine]\ncompare_slots = false\n";

/// A search that listens, with its printed lines.
struct Listening {
    process: Child,
    address: String,
    /// The command that it prints for workers.
    worker: String,
    said: Arc<Mutex<String>>,
}

impl Listening {
    fn start(search: &Search) -> Self {
        let token = search.folder.path().join("token");
        if !token.exists() {
            let made = Command::new(gputune()).args(["cluster", "token"]).arg(&token).status().unwrap();
            assert!(made.success());
        }
        let mut command = search.command();
        command.args(["--listen", "127.0.0.1:0", "--token-file", "token"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let first = lines.next().unwrap();
        let address = first.split_whitespace().nth(1).unwrap().to_owned();
        let worker = printed(&first).remove(0);
        let said = Arc::new(Mutex::new(String::new()));
        let told = Arc::clone(&said);
        std::thread::spawn(move || lines.for_each(|line| *told.lock().unwrap() += &(line + "\n")));
        Self { process, address, worker, said }
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    fn worker(&self, search: &Search, name: &str, more: &[&str]) -> Worker {
        let line = format!("exec {} --name {name} {}", self.worker, more.join(" "));
        let mut command = shell_command(search.folder.path(), &line);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Worker(command.spawn().unwrap())
    }

    fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(240);
        while !self.said().contains(text) {
            assert!(Instant::now() < deadline, "not said: {text}\n{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A worker, which is killed when dropped.
struct Worker(Child);

impl Worker {
    fn end(mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.0.wait().unwrap(), said)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hosts(search: &Search) -> BTreeSet<String> {
    search.lines().iter().filter_map(|line| Some(line.slot.clone()?.host)).collect()
}

/// Waits until the journal has this many trials of a worker.
fn wait_for_trials(search: &Search, host: &str, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(240);
    let named = format!("\"host\":\"{host}\"");
    let kept = || fs::read_to_string(search.out().join("journal.jsonl")).map_or(0, |text| text.matches(&named).count());
    while kept() < count {
        assert!(Instant::now() < deadline, "{host} does nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn workers_join_go_and_come_again() {
    let space =
        format!("[space]\nx = {{ range = [1, 60] }}\n{MACHINE}[search]\nrounds = 0\nprobes = 24\nleast_gain = 0\n");
    let search = Search::of(&["forever:8:5000"], &space);
    let listening = Listening::start(&search);

    // Peers without a token, with a wrong token, or that stay silent, are refused and named.
    let mut stranger = TcpStream::connect(&listening.address).unwrap();
    stranger.write_all(format!("{}\n", "0".repeat(64)).as_bytes()).unwrap();
    stranger.write_all(b"{\"welcome\":{}}\n").unwrap();
    let mut answer = String::new();
    let _ = stranger.read_to_string(&mut answer);
    assert!(answer.starts_with("{\"refused\":") && answer.lines().count() == 1, "{answer}");
    listening.wait_for("refused a connection from 127.0.0.1: its token is wrong");
    drop(TcpStream::connect(&listening.address).unwrap());
    listening.wait_for("it has shown no token");
    let silent = TcpStream::connect(&listening.address).unwrap();

    let mut first = listening.worker(&search, "first", &[]);
    wait_for_trials(&search, "first", 2);
    let late = listening.worker(&search, "late", &[]);
    listening.wait_for("slot 2 on late has joined");
    wait_for_trials(&search, "late", 2);
    first.kill();
    listening.wait_for("the worker on first is gone");
    let again = listening.worker(&search, "first", &[]);
    listening.wait_for("slot 1 on first has joined");
    let mut listening = listening;
    assert_eq!(listening.process.wait().unwrap().code(), Some(0), "{}", listening.said());
    for worker in [late, again] {
        let (status, said) = worker.end();
        assert_eq!(status.code(), Some(0), "{said}");
    }
    assert_eq!(hosts(&search), ["first", "late"].map(str::to_owned).into());
    let lines = search.lines();
    let configs: BTreeSet<String> = lines.iter().map(|line| line.config.line()).collect();
    assert_eq!((configs.len(), lines.len()), (24, 24), "nothing is lost, and nothing done twice");
    drop(silent);
    search.assert_no_survivors();
}

#[test]
fn the_last_worker_may_come_again_and_nothing_outlives_the_driver() {
    let space =
        format!("[space]\nx = {{ range = [1, 60] }}\n{MACHINE}[search]\nrounds = 0\nprobes = 60\nleast_gain = 0\n");
    let search = Search::of(&["forever:8:5000"], &space);
    let mut listening = Listening::start(&search);
    // The worker's serving process is killed, and the worker dials again.
    let worker = listening.worker(&search, "only", &["--again", "--wait", "0s"]);
    wait_for_trials(&search, "only", 2);
    let serving = crate::support::processes_with(&format!("--serve-for {} ", worker.0.id()));
    assert!(!serving.is_empty());
    let pid = fs::read_to_string(format!("/proc/{0}/task/{0}/children", worker.0.id())).unwrap();
    let pid = pid.split_whitespace().next().and_then(|pid| Pid::from_raw(pid.parse().ok()?)).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    listening.wait_for("no worker is left; the search waits for one");
    listening.wait_for("slot 1 on only has joined");
    wait_for_trials(&search, "only", 5);

    listening.process.kill().unwrap();
    listening.process.wait().unwrap();
    let begin = Instant::now();
    while !search.survivors().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", search.survivors());
        std::thread::sleep(Duration::from_millis(10));
    }
    let (status, said) = worker.end();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("dialling again") && said.contains("cannot reach a search at"), "{said}");
    search.assert_no_survivors();
}

#[test]
fn mistakes_are_told_with_their_cure() {
    let search = Search::of(&["forever:8:5000"], "");
    let path = |name: &str| search.folder.path().join(name);
    let digits = "0".repeat(64);
    for (name, text, mode) in
        [("open", &*digits, 0o644), ("group", &digits, 0o640), ("short", "abc", 0o600), ("bad", "z", 0o600)]
    {
        fs::write(path(name), text).unwrap();
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    assert!(Command::new(gputune()).args(["cluster", "token"]).arg(path("token")).status().unwrap().success());
    assert!(!Command::new(gputune()).args(["cluster", "token"]).arg(path("token")).status().unwrap().success());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (listen, token, code, said, cure) in [
        (address.as_str(), "token", 2, "cannot listen on", "choose another port"),
        ("host.invalid:1", "token", 2, "`host.invalid:1` is no address to listen on", "HOST:PORT"),
        ("127.0.0.1:0", "open", 2, "other users may read the token file open (mode 0644)", "chmod 600"),
        ("127.0.0.1:0", "group", 2, "other users may read the token file group (mode 0640)", "chmod 600"),
        ("127.0.0.1:0", "bad", 2, "it has other characters", "gputune cluster token"),
        ("127.0.0.1:0", "short", 2, "64 hexadecimal digits are one, and it has 3", "gputune cluster token"),
        ("127.0.0.1:0", "none", 2, "cannot read the token file none", "gputune cluster token"),
    ] {
        let output = search.command().args(["--listen", listen, "--token-file", token]).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(said) && text.contains(cure) && text.matches("error: ").count() == 1, "{text}");
    }
    drop(taken);
    for (dial, token, code, said, cure) in [
        (address.as_str(), "token", 3, "Connection refused", "nothing listens there"),
        ("host.invalid:1", "token", 3, "cannot reach a search at host.invalid:1", "HOST:PORT"),
        ("nowhere", "token", 3, "cannot reach a search at nowhere", "HOST:PORT"),
        (address.as_str(), "open", 2, "other users may read the token file", "chmod 600"),
    ] {
        let mut command = Command::new(gputune());
        command
            .args(["worker", "--dial", dial, "--token-file", token, "--wait", "0s"])
            .current_dir(search.folder.path());
        let output = command.output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(said) && text.contains(cure), "{text}");
    }
    let dial = Search::of(&["forever:8:5000"], "[machine]\nlauncher = \"dial\"\n");
    let output = dial.run();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("workers that dial in need a token"), "{}", stderr(&output));

    // A worker with a wrong token gets the refusal.
    assert!(Command::new(gputune()).args(["cluster", "token"]).arg(path("other")).status().unwrap().success());
    let mut listening = Listening::start(&search);
    let mut command = Command::new(gputune());
    command.args(["worker", "--dial", &listening.address, "--token-file", "other"]).current_dir(search.folder.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr(&output).contains("the search does not want this worker: its token is another"),
        "{}",
        stderr(&output)
    );
    listening.process.kill().unwrap();
    listening.process.wait().unwrap();
}
