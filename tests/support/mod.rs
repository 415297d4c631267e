//! Tools of several tests: a folder with a spec, the real binary in it, and a check for leftover processes.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::allow_attributes, reason = "the part differs from file to file, so nothing can be expected")]

pub(crate) mod commands;
pub(crate) mod kept;
pub(crate) mod kube;
pub(crate) mod python;
pub(crate) mod ray;
pub(crate) mod slurm;
pub(crate) mod stand_in;
pub(crate) mod terminal;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use gputune::model::Line;
use gputune::search::journal;

/// Returns true if slow tests run that add little to other tests: with `GPUTUNE_TEST_ALL=1`.
pub(crate) fn is_thorough() -> bool {
    let is_thorough = std::env::var_os("GPUTUNE_TEST_ALL").is_some();
    if !is_thorough {
        eprintln!("NOT RUN in whole: GPUTUNE_TEST_ALL=1 does");
    }
    is_thorough
}

/// Returns the real binary under its own name: a parallel build, such as the wheel's, removes Cargo's binary for a moment.
pub(crate) fn gputune() -> &'static str {
    static GPUTUNE: LazyLock<String> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tested");
        let (path, new) = (folder.join("gputune"), folder.join(format!("gputune.{}", std::process::id())));
        fs::create_dir_all(&folder).unwrap();
        fs::hard_link(env!("CARGO_BIN_EXE_gputune"), &new).unwrap();
        fs::rename(&new, &path).unwrap();
        let _ = fs::remove_file(new); // which stays where both are one file already
        path.display().to_string()
    });
    &GPUTUNE
}

/// Returns the lines to add to a script in a hint: the code of each, and its place.
pub(crate) fn lines_to_add(told: &str) -> Vec<(String, String)> {
    let lines = told.lines().skip_while(|line| !line.starts_with("hint: add these lines")).skip(1);
    let parts = lines.map_while(|line| line.trim().rsplit_once("   # "));
    parts.map(|(code, place)| (code.trim_end().to_owned(), place.to_owned())).collect()
}

/// Returns Cargo's folder of this profile.
pub(crate) fn profile() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_gputune")).parent().unwrap()
}

/// The step that misbehaves on demand.
pub(crate) fn child() -> PathBuf {
    static CHILD: LazyLock<PathBuf> = LazyLock::new(|| example("child", "child"));
    CHILD.clone()
}

/// A stand-in for a foreign library, by the name of its example.
pub(crate) fn library(name: &str) -> PathBuf {
    example(name, &format!("lib{name}.so"))
}

/// Builds an example and returns its file: `cargo test --test NAME` does not build examples.
pub(crate) fn example(name: &str, file: &str) -> PathBuf {
    let profile = profile();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--offline", "--example", name, "--target-dir"]).arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
    profile.join("examples").join(file)
}

/// A folder with a spec in it.
pub(crate) struct Search {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) token: String,
}

impl Search {
    /// Returns a search over `x = 1, 2` (or the space in `more`) whose step gets these arguments. Without `[baseline]` or
    /// `as_it_is` it has no baseline.
    pub(crate) fn of(arguments: &[&str], more: &str) -> Self {
        let mut words = vec![child().display().to_string(), "token:TOKEN".to_owned()];
        words.extend(arguments.iter().map(|&argument| argument.to_owned()));
        Self::of_command(&words, more)
    }

    /// Returns the same search with another command; `TOKEN` in it becomes a word that identifies its processes.
    pub(crate) fn of_command(words: &[String], more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = format!("survivor-{}", folder.path().file_name().unwrap().to_string_lossy().replace('.', ""));
        let words: Vec<String> = words.iter().map(|word| word.replace("TOKEN", &token)).collect();
        let space = if more.contains("[space]") { "" } else { "[space]\nx = { values = [1, 2] }\n" };
        let limits =
            "[limits]\nprobe_time = \"20s\"\nstall_time = \"10s\"\ngrace_time = \"300ms\"\nmeasure_time = \"300ms\"\n";
        let limits = if more.contains("[limits]") { "" } else { limits };
        let search = if more.contains("[search]") { "" } else { "[search]\nrounds = 0\n" };
        let (more, search) = if more.contains("[baseline]") || more.contains("as_it_is") {
            (more.to_owned(), search.to_owned())
        } else {
            let without = |text: &str| text.replace("[search]\n", "[search]\nas_it_is = false\n");
            (without(more), without(search))
        };
        let command = serde_json::to_string(&words).unwrap();
        // A step that signals the test by a file must be allowed to write.
        let tells = words.iter().any(|word| word.starts_with("pid:") || word.starts_with("touch:"));
        let more =
            if tells && !more.contains("writes") { format!("writes = \"allow\"\n{more}") } else { more.to_owned() };
        let text = format!("[step]\ncommand = {command}\n{more}\n{space}{limits}{search}");
        fs::write(folder.path().join("spec.toml"), text).unwrap();
        Self { folder, token }
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(gputune());
        command.args(["search", "spec.toml", "--out", "out"]).current_dir(self.folder.path());
        command
    }

    pub(crate) fn run(&self) -> Output {
        self.command().output().unwrap()
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        journal::read(&self.out().join("journal.jsonl")).unwrap().1
    }

    pub(crate) fn best(&self) -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(self.out().join("best.json")).unwrap()).unwrap()
    }

    /// Returns the running processes of this search's steps.
    pub(crate) fn survivors(&self) -> Vec<String> {
        processes_with(&self.token)
    }

    /// Waits until all processes of the search have ended, including a supervisor that is starting or ending a process.
    pub(crate) fn assert_no_survivors(&self) {
        let deadline = Instant::now() + Duration::from_secs(240);
        let mut left = self.processes();
        while !left.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            left = self.processes();
        }
        assert_eq!(left, Vec::<String>::new());
    }

    /// Returns the search's processes, supervisors and gputune itself included: all work in its folder.
    fn processes(&self) -> Vec<String> {
        let folder = fs::canonicalize(self.folder.path()).unwrap();
        let works_here = |process: &Path| fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(&folder));
        let is_of_step = |process: &Path| command_line(process).is_some_and(|line| line.contains(&self.token));
        let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let processes = entries.filter(|process| works_here(process) || is_of_step(process));
        processes.map(|process| format!("{} {:?}", process.display(), command_line(&process))).collect()
    }
}

/// Returns the command lines that contain a word.
pub(crate) fn processes_with(word: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| command_line(&entry.path())).filter(|line| line.contains(word)).collect()
}

fn command_line(process: &Path) -> Option<String> {
    let line = fs::read(process.join("cmdline")).ok()?;
    Some(String::from_utf8_lossy(&line).replace('\0', " "))
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
