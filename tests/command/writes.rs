//! A probe never changes or deletes the user's files, whatever a step writes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::support::{gputune, stderr};
use gputune::model::Outcome;
use gputune::search::journal;
use tempfile::TempDir;

/// A project under version control whose step is a shell script, and a data folder elsewhere.
struct Project {
    folder: TempDir,
}

/// Prints a rate until it is ended.
const RUN: &str = "while :; do echo rate 100; sleep 0.02; done\n";

impl Project {
    fn new(script: &str, step: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("writes-").tempdir().unwrap();
        let project = Self { folder };
        for name in ["project/out", "project/sub", "project/folder", "data", "home"] {
            fs::create_dir_all(project.path(name)).unwrap();
        }
        for (name, text) in [
            ("project/model.pt", "real model"),
            ("project/out/checkpoint-1", "real checkpoint"),
            ("project/out/log.txt", "first line\n"),
            ("project/run.sh", "echo hello\n"),
            ("project/folder/file", "in a folder"),
            ("project/.gitignore", "/gputune-out/\n"),
            ("data/processed.bin", "real data"),
            ("home/.netrc", "secret"),
        ] {
            fs::write(project.path(name), text).unwrap();
        }
        fs::write(project.path("project/sub/train.sh"), format!("set -e\n{script}\nset +e\n{RUN}")).unwrap();
        let spec = format!(
            "[step]\ncommand = [\"sh\", \"sub/train.sh\", \"{{x}}\"]\nthroughput = {{ pattern = 'rate ([0-9.]+)', unit = \"samples/s\" }}\n\
             {step}\n[space]\nx = {{ values = [1, 2] }}\n[limits]\nprobe_time = \"20s\"\ngrace_time = \"300ms\"\nmeasure_time = \"300ms\"\n\
             [search]\nprobes = 2\nrounds = 0\n"
        );
        fs::write(project.path("project/spec.toml"), spec).unwrap();
        project.git(&["init", "-q"]);
        project.git(&["add", "-A"]);
        project.git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "as it was"]);
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git").args(arguments).current_dir(self.path("project")).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(gputune());
        command.args(arguments).arg("spec.toml").current_dir(self.path("project")).env("HOME", self.path("home"));
        // As many images of containers have it.
        command.env("DATA", self.path("data")).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn outcomes(&self) -> Vec<Outcome> {
        let lines = journal::read(&self.path("project/gputune-out/spec/journal.jsonl")).unwrap().1;
        lines.into_iter().map(|line| line.outcome).collect()
    }

    /// Returns all files with mode and contents, without gputune's own.
    fn files(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut files = BTreeMap::new();
        collect(&self.path(""), &mut files);
        files
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("project/gputune-out/spec/logs/0001.log")).unwrap_or_default()
    }
}

fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, (u32, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, data) = (entry.path(), entry.metadata().unwrap());
        if entry.file_name() == "gputune-out" || entry.file_name() == ".git" {
            continue;
        }
        let text = if data.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        files.insert(path.clone(), (data.permissions().mode(), text));
        if data.is_dir() {
            collect(&path, files);
        }
    }
}

/// Returns true if `check` reports this protection.
fn holds(project: &Project, what: &str) -> bool {
    let output = project.run(&["check"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line =
        text.lines().find(|line| line.starts_with("writes ")).unwrap_or_else(|| panic!("{text}{}", stderr(&output)));
    line.contains(what)
}

const SCRATCH: &str = "go to a temporary scratch layer";

/// Returns true if a scratch layer is possible here; otherwise prints the reason.
fn has_scratch(project: &Project) -> bool {
    let has = holds(project, SCRATCH);
    if !has {
        eprintln!("skipped: {}", String::from_utf8_lossy(&project.run(&["check"]).stdout));
    }
    has
}

/// Every observed way to destroy files, and more.
const DESTROYS: &str = r#"
echo overwritten > model.pt
echo more >> out/log.txt
rm out/checkpoint-1; echo new > out/checkpoint-2
mv run.sh moved.sh
chmod 777 sub; chmod 600 out/log.txt
ln -s model.pt link; ln model.pt hardlink
mkdir -p lightning_logs/version_0; echo event > lightning_logs/version_0/events
rm -r folder
echo x > "$DATA/processed.bin"; rm "$DATA/processed.bin"; echo new > "$DATA/cache"
echo token > "$HOME/.netrc"; mkdir -p "$HOME/.cache/hub"; echo x > "$HOME/results.csv"
test "$(cat model.pt)" = overwritten
test "$(tail -n 1 out/log.txt)" = more
test ! -e folder && test ! -e run.sh
(setsid sh -c 'while :; do echo late > out/daemon; sleep 0.05; done' > /dev/null 2>&1 &)
until test -e out/daemon; do sleep 0.05; done
"#;

#[test]
fn whatever_a_probe_writes_the_files_are_as_before() {
    let project = Project::new(DESTROYS, "");
    if !has_scratch(&project) {
        return;
    }
    let before = project.files();
    let output = project.run(&["search"]);
    let said = stderr(&output);
    assert!(output.status.success(), "{said}{}", project.log());
    assert!(
        project.outcomes().iter().all(|outcome| matches!(outcome, Outcome::Measured(_))),
        "{:#?}",
        project.outcomes()
    );
    assert!(said.lines().next().unwrap_or_default().contains(SCRATCH), "the first line says what protects: {said}");
    assert_eq!(project.files(), before);
    assert_eq!(project.git(&["status", "--short"]), "");
    let out = fs::read_dir(project.path("project/gputune-out/spec")).unwrap();
    let left: Vec<_> = out
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().starts_with(".gputune"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_is_allowed_changes_files() {
    let project = Project::new("echo overwritten > model.pt", "writes = \"allow\"");
    let output = project.run(&["search"]);
    assert!(stderr(&output).starts_with("writes     change files as the script would\n"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("warning: nothing keeps"), "it was asked for");
    assert_eq!(fs::read_to_string(project.path("project/model.pt")).unwrap(), "overwritten\n");
}

#[test]
fn what_a_killed_gputune_leaves_is_nothing() {
    let project = Project::new("echo overwritten > model.pt; echo $$ > \"$DATA/../pid\"; echo started", "");
    if !has_scratch(&project) {
        return;
    }
    let before = project.files();
    let mut child = project.command(&["search", "--quiet"]).spawn().unwrap();
    wait_for("the first probe", || project.log().contains("started"));
    child.kill().unwrap();
    child.wait().unwrap();
    let store = |folder: &Path| {
        fs::read_dir(folder).unwrap().any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with(".gputune"))
    };
    wait_for("the scratch layer's end", || !store(&project.path("project/gputune-out/spec")));
    assert_eq!(project.files(), before);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("gputune"), "{mounts}");
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(240);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited for {what} in vain");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_full_layer_is_a_clear_outcome() {
    let script = "dd if=/dev/zero of=big bs=1M count=4096 2> /dev/null || true; sleep 30";
    let project = Project::new(script, "scratch_size = \"64MiB\"");
    if !has_scratch(&project) {
        return;
    }
    project.run(&["search"]);
    let outcomes = project.outcomes();
    let Some(Outcome::Crashed(failure)) = outcomes.first() else { panic!("{outcomes:#?}") };
    assert!(failure.reason.starts_with("the scratch layer is full: the probe wrote"), "{failure:?}");
    assert!(failure.reason.contains("may write 64.0 MiB") && failure.reason.contains("scratch_size"), "{failure:?}");
}

#[test]
fn caches_are_kept_from_probe_to_probe_and_go_with_the_search() {
    let script = "mkdir -p \"$HOME/.cache/hub\"; test -e \"$HOME/.cache/hub/model\" && echo found; echo x > \"$HOME/.cache/hub/model\"";
    let script = format!(
        "{script}; test ! -e out/before; touch out/before; echo \"without bytecode: [$PYTHONDONTWRITEBYTECODE]\""
    );
    let project = Project::new(&script.replace("&& echo found", "&& echo found || true"), "");
    if !has_scratch(&project) {
        return;
    }
    project.run(&["search"]);
    assert!(
        project.outcomes().iter().all(|outcome| matches!(outcome, Outcome::Measured(_))),
        "{:#?}",
        project.outcomes()
    );
    assert!(!project.log().contains("found"), "{}", project.log());
    let second = fs::read_to_string(project.path("project/gputune-out/spec/logs/0002.log")).unwrap();
    assert!(second.contains("found"), "{second}");
    assert!(second.contains("without bytecode: []"), "compiled modules are such a cache: {second}");
    assert!(!project.path("home/.cache").exists());
}

#[test]
fn a_folder_of_data_is_read_as_it_is_and_covered_once_it_is_written_to() {
    let project =
        Project::new("cat \"$DATA/photos/1\"; echo index > \"$DATA/photos/index\"; cat \"$DATA/photos/index\"", "");
    fs::create_dir(project.path("data/photos")).unwrap();
    (0..1001).for_each(|at| fs::write(project.path("data/photos").join(at.to_string()), "photo\n").unwrap());
    let spec = fs::read_to_string(project.path("project/spec.toml")).unwrap();
    let named = spec.replace("\"{x}\"]", &format!("\"{{x}}\", \"--data={}\"]", project.path("data").display()));
    fs::write(project.path("project/spec.toml"), named).unwrap();
    if !has_scratch(&project) {
        return;
    }
    let photos = project.path("data/photos");
    assert!(holds(&project, &format!("; read-only: {}", photos.display())));
    project.run(&["search"]);
    assert!(
        project.outcomes().iter().all(|outcome| matches!(outcome, Outcome::Measured(_))),
        "{:#?}",
        project.outcomes()
    );
    assert!(project.log().contains("index"));
    assert!(!photos.join("index").exists());
}

#[test]
fn sockets_of_others_stay_reachable() {
    let script = "python3 -c \"import socket, os; s = socket.socket(socket.AF_UNIX); s.connect(os.environ['DATA'] + '/socket'); print('connected')\"";
    let project = Project::new(script, "");
    let has_python = Command::new("python3").arg("-V").output().is_ok();
    if !has_python || !has_scratch(&project) {
        return;
    }
    let _listener = std::os::unix::net::UnixListener::bind(project.path("data/socket")).unwrap();
    project.run(&["search"]);
    assert!(project.log().contains("connected"), "{}", project.log());
}

#[test]
fn guards_need_a_hook_and_scratch_is_refused_with_its_reason() {
    let project = Project::new("", "writes = \"guard\"");
    let output = project.run(&["search"]);
    assert!(stderr(&output).contains("`writes = \"guard\"` needs an adapter"), "{}", stderr(&output));
    let project = Project::new("", "writes = \"scratch\"");
    let Some(output) = without_namespaces(&project, &["search"]) else { return };
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains("`writes = \"scratch\"` cannot be had"), "{said}");
    assert!(said.contains("user.max_user_namespaces is 0"), "{said}");
    assert!(!project.path("project/gputune-out/spec/logs").exists(), "before the first probe");
}

/// Runs gputune in an environment without new namespaces or mounts, as in most containers.
fn without_namespaces(project: &Project, arguments: &[&str]) -> Option<Output> {
    let inside = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin \"$@\"";
    let of = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-Ur", "sh", "-c", inside, "sh"]).args(words);
        command
            .current_dir(project.path("project"))
            .env("HOME", project.path("home"))
            .env("DATA", project.path("data"));
        command.output().ok()
    };
    if !of(&["true"]).is_some_and(|output| output.status.success()) {
        eprintln!("skipped: no namespace can be made here in which further ones are forbidden");
        return None;
    }
    let program = gputune();
    let words: Vec<&str> = [program].into_iter().chain(arguments.iter().copied()).chain(["spec.toml"]).collect();
    of(&words)
}

#[test]
fn without_namespaces_it_is_said_what_protects() {
    let project = Project::new("", "");
    let Some(output) = without_namespaces(&project, &["search"]) else { return };
    let said = stderr(&output);
    assert!(said.starts_with("writes     change files as the script would; no scratch layer: "), "{said}");
    assert!(said.contains("warning: nothing keeps probes from changing or deleting your files"), "{said}");
    let spec = fs::read_to_string(project.path("project/spec.toml")).unwrap();
    fs::write(project.path("project/spec.toml"), spec.replace("[space]", "adapter = \"torch\"\n[space]")).unwrap();
    let Some(output) = without_namespaces(&project, &["check"]) else { return };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("guards in the hook") && said.contains("user.max_user_namespaces is 0"), "{said}");
    assert!(!stderr(&output).contains("nothing keeps"), "{}", stderr(&output));
}

#[test]
fn an_ordinary_user_is_protected_too() {
    const NOBODY: u32 = 65534;
    let project = Project::new(DESTROYS, "");
    let program = project.path("gputune");
    fs::copy(gputune(), &program).unwrap();
    let owned = Command::new("chown").args(["-R", &NOBODY.to_string()]).arg(project.path("")).status();
    if !owned.is_ok_and(|status| status.success()) {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let group = NOBODY.to_string();
    Command::new("chgrp").args(["-R", &group]).arg(project.path("")).status().unwrap();
    fs::remove_dir_all(project.path("project/.git")).unwrap();
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &group, "--regid", &group, "--clear-groups"]).args(words);
        command
            .current_dir(project.path("project"))
            .env("HOME", project.path("home"))
            .env("DATA", project.path("data"));
        command.output().unwrap()
    };
    let program = program.display().to_string();
    let check = as_nobody(&[&program, "check", "spec.toml"]);
    if !String::from_utf8_lossy(&check.stdout).contains(SCRATCH) {
        eprintln!("skipped: {}{}", String::from_utf8_lossy(&check.stdout), stderr(&check));
        return;
    }
    let before = project.files();
    let output = as_nobody(&[&program, "search", "spec.toml"]);
    assert!(output.status.success(), "{}{}", stderr(&output), project.log());
    assert!(
        project.outcomes().iter().all(|outcome| matches!(outcome, Outcome::Measured(_))),
        "{:#?}",
        project.outcomes()
    );
    assert_eq!(project.files(), before);
}
