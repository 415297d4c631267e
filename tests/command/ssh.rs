//! Searches on machines that `ssh` reaches: on this one, by a real `sshd` of its own.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Search, stderr};

/// A server with keys of its own, and an `ssh` that knows them. It ends when dropped.
struct Sshd {
    folder: tempfile::TempDir,
    server: Child,
}

impl Sshd {
    fn start() -> Option<Self> {
        let server = Path::new("/usr/sbin/sshd");
        if !server.exists() || !rustix::process::geteuid().is_root() {
            eprintln!("NOT RUN: no sshd can be started here");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]);
            assert!(keygen.status().unwrap().success());
        }
        fs::copy(path("user.pub"), path("authorized")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PermitRootLogin yes\n",
            path("host"),
            path("authorized")
        );
        fs::write(path("sshd_config"), config).unwrap();
        let client = format!(
            "Host *\nHostName 127.0.0.1\nPort {port}\nIdentityFile {}\nIdentitiesOnly yes\nStrictHostKeyChecking no\n\
             UserKnownHostsFile /dev/null\nLogLevel ERROR\n",
            path("user")
        );
        fs::write(path("ssh_config"), client).unwrap();
        fs::create_dir(path("bin")).unwrap();
        fs::write(path("bin/ssh"), format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", path("ssh_config"))).unwrap();
        fs::set_permissions(path("bin/ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all("/run/sshd").unwrap();
        let mut command = Command::new(server);
        command.args(["-D", "-f", &path("sshd_config")]).stdin(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().unwrap();
        let sshd = Self { folder, server };
        let deadline = Instant::now() + Duration::from_secs(20);
        while !Command::new(sshd.bin().join("ssh")).args(["here", "true"]).status().unwrap().success() {
            assert!(Instant::now() < deadline, "sshd does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(sshd)
    }

    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    fn command(&self, search: &Search) -> Command {
        let mut command = search.command();
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.bin().display()));
        // So that what is left of this search can be told from others.
        command.env("TMPDIR", search.folder.path());
        command
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The folders of copies on the machines: all that are on this one.
fn copies() -> BTreeSet<PathBuf> {
    let entries = fs::read_dir("/tmp").unwrap().flatten().map(|entry| entry.path());
    entries
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("gputune-ssh-")))
        .collect()
}

fn assert_no_copies() {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !copies().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", copies());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_search_on_two_machines_leaves_nothing_there() {
    let Some(sshd) = Sshd::start() else { return };
    let machine =
        "[space]\nx = { range = [1, 12] }\n[machine]\ncompare_slots = false\nhosts = [\"first\", \"second\"]\n";
    let search = Search::of(&["forever:8:5000"], machine);
    let output = sshd.command(&search).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = search.lines();
    let hosts: BTreeSet<String> = lines.iter().filter_map(|line| Some(line.slot.clone()?.host)).collect();
    assert_eq!(hosts, ["first", "second"].map(str::to_owned).into());
    search.assert_no_survivors();
    assert_no_copies();

    let search = Search::of(&["forever:8:5000"], machine);
    let mut running = sshd.command(&search).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let finished = || fs::read_to_string(search.out().join("journal.jsonl")).map_or(0, |text| text.lines().count());
    while finished() < 5 {
        assert!(Instant::now() < deadline, "the search does not begin");
        std::thread::sleep(Duration::from_millis(50));
    }
    running.kill().unwrap();
    running.wait().unwrap();
    search.assert_no_survivors();
    assert_no_copies();
    drop(sshd);

    // Nobody answers any more.
    let output = search.command().output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot copy gputune to first"), "{}", stderr(&output));
}
