//! Searches on machines that `ssh` reaches: this machine, with a real `sshd` of the test.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::support::{Search, child, stderr};

/// A server with its own keys, and an `ssh` that knows them. It ends when dropped.
struct Sshd {
    folder: tempfile::TempDir,
    server: Child,
    far: Option<Child>,
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
        let [port, far] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
        let config = |port: u16| {
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PermitRootLogin yes\n",
                path("host"),
                path("authorized")
            )
        };
        fs::write(path("sshd_config"), config(port)).unwrap();
        fs::write(path("far_config"), config(far)).unwrap();
        let client = format!(
            "Host far\nPort {far}\nHost *\nHostName 127.0.0.1\nPort {port}\nIdentityFile {}\nIdentitiesOnly yes\nStrictHostKeyChecking no\n\
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
        let sshd = Self { folder, server, far: None };
        sshd.wait_for("here");
        Some(sshd)
    }

    /// Starts the machine `far`, where this folder is a different, empty folder. Returns true if that works.
    fn start_far(&mut self, local: &Path) -> bool {
        let mount = "mount -t tmpfs none \"$1\" && exec /usr/sbin/sshd -D -f \"$2\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", mount, "sh"]).arg(local).arg(self.folder.path().join("far_config"));
        let mut far = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        if far.try_wait().unwrap().is_some() {
            eprintln!("NOT RUN: no mount namespace can be had here");
            return false;
        }
        self.far = Some(far);
        self.wait_for("far");
        true
    }

    fn wait_for(&self, host: &str) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !self.on(host, "true").status().unwrap().success() {
            assert!(Instant::now() < deadline, "sshd does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns a command on a machine.
    fn on(&self, host: &str, line: &str) -> Command {
        let mut command = Command::new(self.bin().join("ssh"));
        command.args([host, line]);
        command
    }

    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    fn command(&self, search: &Search) -> Command {
        let mut command = search.command();
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.bin().display()));
        // A search's leftovers lie in its own temporary folder.
        command.env("TMPDIR", search.folder.path());
        command
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        for server in [&mut self.server].into_iter().chain(&mut self.far) {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Returns the folders of gputune's copies: all machines are this one.
fn copies() -> BTreeSet<PathBuf> {
    let entries = fs::read_dir("/tmp").unwrap().flatten().map(|entry| entry.path());
    entries
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("gputune-ssh-")))
        .collect()
}

fn assert_no_copies() {
    let deadline = Instant::now() + Duration::from_secs(240);
    while !copies().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", copies());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_search_on_two_machines_leaves_nothing_there() {
    let _alone = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
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
    let deadline = Instant::now() + Duration::from_secs(240);
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

    // No server answers any more.
    let output = search.command().output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot copy gputune to first"), "{}", stderr(&output));
}

/// Lists the leftovers of probes in the temporary folder of `far`.
fn left(sshd: &Sshd, local: &Path) -> String {
    let listed = sshd.on("far", &format!("ls -A {}", local.display())).output().unwrap();
    String::from_utf8_lossy(&listed.stdout).into_owned()
}

/// All tests keep copies in one folder, so these tests run one after the other.
static COPIES: Mutex<()> = Mutex::new(());

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(240);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A search whose probes have rank 0 here and rank 1 on `far`.
fn of_two_ranks(rank: &str, configs: u32, measure_time: &str) -> Search {
    let search = Search::of_command(
        &[
            "sh".to_owned(),
            "-c".to_owned(),
            "ssh far \"GPUTUNE_SOCKET=$GPUTUNE_SOCKET sh $PWD/rank.sh 1\" & exec sh rank.sh 0".to_owned(),
        ],
        &format!(
            "samples_per_step = \"x\"\nranks = 2\n[space]\nx = {{ range = [1, {configs}] }}\n[machine]\nspans_nodes = true\n\
             hosts = [\"here\", \"far\"]\n[search]\nrounds = 0\nleast_gain = 0\nstrategy = \"random\"\n[limits]\ngrace_time = \"300ms\"\n\
             measure_time = \"{measure_time}\"\nprecision = 0.00001\n"
        ),
    );
    let hello = r#"'send:{"event":"hello","rank":'"$1"',"ranks":2,"orders":true}'"#;
    let script = format!("exec {} token:{} {hello} {rank}\n", child().display(), search.token);
    fs::write(search.folder.path().join("rank.sh"), script).unwrap();
    search
}

#[test]
fn ranks_on_another_machine_are_heard() {
    let _alone = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut sshd) = Sshd::start() else { return };
    let local = tempfile::tempdir().unwrap();
    if !sshd.start_far(local.path()) {
        return;
    }
    let command = |search: &Search| {
        let mut command = sshd.command(search);
        command.env("TMPDIR", local.path());
        command
    };

    let search = of_two_ranks("forever:8:5000", 4, "300ms");
    let output = command(&search).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("each probe spans 2"), "{}", stderr(&output));
    let outcomes: BTreeSet<String> = search.lines().iter().map(|line| line.outcome.name().to_owned()).collect();
    assert_eq!(outcomes, BTreeSet::from(["measured".to_owned()]), "both ranks reported in each");
    assert_eq!(left(&sshd, local.path()), "");
    search.assert_no_survivors();

    // A rank on `far` dies: its connection identifies it.
    let search = of_two_ranks("steps:20:8:5000 $([ $1 = 1 ] && echo signal:9 || echo sleep:30000)", 2, "5s");
    let output = command(&search).output().unwrap();
    let text = search.lines().iter().map(|line| format!("{:?}", line.outcome)).collect::<String>();
    assert!(text.contains("rank 1 is gone"), "{text} {}", stderr(&output));

    // The relay on `far` is killed: the probe is tried again, and the search continues with a new relay.
    let search = of_two_ranks("forever:8:20000", 3, "3s");
    let mut running = command(&search).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a probe is there", || left(&sshd, local.path()).contains("gputune-"));
    let relay = "pkill -9 -f '^/tmp/gputune-ssh-[^ ]*/gputune relay' --newest";
    assert!(sshd.on("far", relay).status().unwrap().success());
    let output = {
        running.wait().unwrap();
        running.wait_with_output().unwrap()
    };
    assert!(stderr(&output).contains("the relay on"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));

    // The search is killed: neither machine has a leftover.
    let search = of_two_ranks("forever:8:20000", 3, "3s");
    let mut running = command(&search).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("a probe is there", || left(&sshd, local.path()).contains("gputune-"));
    running.kill().unwrap();
    running.wait().unwrap();
    search.assert_no_survivors();
    wait_until("nothing is left there", || left(&sshd, local.path()).is_empty());
    assert_no_copies();
}
