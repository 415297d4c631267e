//! `gputune init` with the real binary: its questions, its spec, and the actions that it must avoid.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{self, stderr, stdout};
use gputune::init::preset::PRESETS;
use gputune::spec::Spec;

/// A script of argparse that does not import a framework, so that it starts at once.
const SCRIPT: &str = r#"
import argparse
parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--batch-size", type=int, default=48)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--amp", action="store_true")
arguments = parser.parse_args()
open("trained", "w")
print("3.5 images/sec")
"#;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Runs `init`, which reads the source and the help only: `first_run.rs` has the tests that run the script.
fn init(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(support::gputune());
    command.args(["init", "--no-run"]).args(arguments).current_dir(folder).stdin(Stdio::null());
    command.output().unwrap()
}

fn spec(folder: &Path) -> String {
    fs::read_to_string(folder.join("gputune.toml")).unwrap()
}

#[test]
fn a_script_with_arguments_gets_a_spec_that_check_accepts() {
    let folder = folder(&[("train.py", SCRIPT)]);
    let output = init(folder.path(), &["--time", "5m", "--", "python3", "train.py", "--batch-size", "24"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!folder.path().join("trained").exists(), "it trained");
    let text = spec(folder.path());
    for line in [
        "batch_size = { values = [6, 12, 24, 48, 96, 192, 384] }",
        "batch_size = 24 # --batch-size 24",
        "time = \"5m\"",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(
        text.contains(
            r"throughput = { pattern = '([0-9](?:[0-9.,]*[0-9])?(?:[eE][+-]?[0-9]+)?)\s*images/sec', unit = "
        ),
        "{text}"
    );
    assert!(stdout(&output).contains("gputune search gputune.toml"), "{}", stdout(&output));
    let check =
        Command::new(support::gputune()).args(["check", "gputune.toml"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(check.status.code(), Some(0), "{}", stderr(&check));
    let again = init(folder.path(), &["train.py", "--yes"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("--fresh"), "{}", stderr(&again));
    assert_eq!(spec(folder.path()), text, "it is as it was");
    assert_eq!(init(folder.path(), &["--fresh", "train.py"]).status.code(), Some(0));
    assert_eq!(fs::read_to_string(folder.path().join("gputune.toml.1")).unwrap(), text, "the old file is kept");
    let text = spec(folder.path());
    assert!(text.contains("by its argument --batch-size, by default 48") && !text.contains("[baseline]\n"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing else is left");
}

#[test]
fn what_the_script_must_be_told_is_warned_of() {
    let script = SCRIPT.replace(
        "arguments = ",
        "parser.add_argument('data')\nparser.add_argument('--out', required=True)\narguments = ",
    );
    let folder = folder(&[("train.py", &script)]);
    let output = init(folder.path(), &["train.py"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told = stderr(&output);
    assert!(told.contains("train.py needs --out ..., data, and every probe fails"), "{told}");
    let whole = ["--fresh", "--", "python3", "train.py", "pictures", "--out", "here", "--batch-size", "24"];
    let output = init(folder.path(), &whole);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!stderr(&output).contains("every probe fails"), "{}", stderr(&output));
}

#[test]
fn the_one_script_of_a_folder_is_taken() {
    let obvious = folder(&[("train.py", SCRIPT), ("model.py", ""), ("setup.py", "")]);
    assert_eq!(init(obvious.path(), &[]).status.code(), Some(0));
    let unclear = folder(&[("a.py", ""), ("b.py", "")]);
    let output = init(unclear.path(), &["--yes"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("a.py, b.py"), "{}", stderr(&output));
    assert_eq!(init(folder(&[]).path(), &[]).status.code(), Some(2));
}

#[test]
fn words_with_blanks_quotes_and_braces_come_out_as_they_went_in() {
    let folder = folder(&[("my script.py", SCRIPT)]);
    let words = ["python3", "my script.py", "--name", "it's \"x\" {batch_size} \u{e9}\n\t\\"];
    let output = init(folder.path(), &[&["--"], &words[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let spec = Spec::load(&folder.path().join("gputune.toml")).unwrap();
    let settings = spec.space.settings(&spec.space.first().unwrap());
    let rendered = spec.step.template().render(&settings, Path::new("g"), Path::new("p"));
    assert_eq!(&rendered.command[..4], words);
    let output = init(folder.path(), &["--fresh", "my script.py", "{a?b}"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("{a?b}"), "{}", stderr(&output));
}

#[test]
fn a_spec_in_another_folder_runs_the_command_in_this_one() {
    let folder = folder(&[("train.py", SCRIPT)]);
    fs::create_dir(folder.path().join("specs")).unwrap();
    assert_eq!(init(folder.path(), &["--out", "specs/a.toml", "train.py"]).status.code(), Some(0));
    let spec = Spec::load(&folder.path().join("specs/a.toml")).unwrap();
    assert_eq!(spec.step.template().cwd, folder.path().canonicalize().unwrap());
}

/// Runs `init` on a script with common imports; returns its folder and the output.
fn asked(script: &str) -> (tempfile::TempDir, Output) {
    let script = format!("import argparse, os, sys, time\n{script}\n");
    let folder = folder(&[("train.py", &script)]);
    let output = init(folder.path(), &["train.py"]);
    (folder, output)
}

#[test]
fn a_script_that_does_not_answer_is_ended_and_its_source_is_read() {
    // The source declares an argument, and the script ignores `--help`, hangs, or starts a child that would stay.
    let declares = "p = argparse.ArgumentParser(add_help=False)\np.add_argument('--batch-size', type=int, default=40)\np.parse_known_args()\n";
    let behaviours = [
        ("time.sleep(600)", "was ended"),
        ("while True: print('step', flush=True); time.sleep(0.01)", "was ended"),
        ("while True: print('x' * 100000)", "more than a megabyte"),
        ("if os.fork() == 0: os.setsid(); time.sleep(600)\ntime.sleep(600)", "was ended"),
        ("pass", "it printed no help;"),
        ("sys.exit(7)", "exit code 7"),
        ("os.write(1, bytes([200, 255, 10]))", "it printed no help;"),
    ];
    let check = |behaviour: &str, reason: &str| {
        let mark = format!("init-{}", std::process::id());
        let (folder, output) = asked(&format!("{declares}mark = '{mark}'\n{behaviour}"));
        assert_eq!(output.status.code(), Some(0), "{behaviour}: {}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{behaviour}: {}", stderr(&output));
        assert!(stderr(&output).contains("asking `python3 train.py --help`"), "{behaviour}: it was asked");
        assert!(spec(folder.path()).contains("by default 40"), "{behaviour}: {}", spec(folder.path()));
        let name = folder.path().file_name().unwrap().to_string_lossy().into_owned();
        let left = processes_in(folder.path());
        assert!(left.is_empty(), "{behaviour} {name}: {left:?}");
    };
    // Three of them take the whole time that a script has to print its help.
    std::thread::scope(|scope| {
        for (behaviour, reason) in behaviours {
            scope.spawn(move || check(behaviour, reason));
        }
    });
}

/// Returns the processes whose working folder is this folder.
fn processes_in(folder: &Path) -> Vec<String> {
    let folder = folder.canonicalize().unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let here = entries.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder));
    here.map(|entry| fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default()).collect()
}

#[test]
fn what_takes_no_arguments_is_not_run() {
    let script =
        "import torch\nopen('ran', 'w')\nloader = torch.utils.data.DataLoader(x, batch_size=12, shuffle=True)\n";
    let folder = folder(&[("train.py", script), ("run.sh", "#!/bin/sh\ntouch ran\n")]);
    let output = init(folder.path(), &["train.py"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = spec(folder.path());
    assert!(text.contains("batch_size         = { values = [3, 6, 12, 24, 48, 96, 192], apply = "), "{text}");
    assert!(!text.contains("[baseline]\n"), "what the source has is no baseline: {text}");
    for command in [&["sh", "run.sh"][..], &["./run.sh"], &["bash", "-c", "touch ran"]] {
        let output = init(folder.path(), &[&["--fresh", "--"], command].concat());
        assert_eq!(output.status.code(), Some(2), "nothing can be set: {}", stderr(&output));
    }
    assert!(!folder.path().join("ran").exists());
}

#[test]
fn what_cannot_be_read_or_written_is_said() {
    let folder = folder(&[("train.py", SCRIPT)]);
    let path = folder.path();
    for (arguments, says) in [
        (&["missing.py"][..], "cannot read the script missing.py"),
        (&["--", "/no/such/program"], "cannot start"),
        (&["--out", "no/such/folder/a.toml", "train.py"], "cannot write no/such/folder/a.toml"),
        (&["--out", ".", "train.py"], "is a folder"),
        (&["--time", "soon", "train.py"], "--time"),
        (&["--preset", "caffe", "train.py"], "huggingface"),
    ] {
        let output = init(path, arguments);
        assert!(matches!(output.status.code(), Some(2 | 3)), "{arguments:?}");
        assert!(stderr(&output).contains(says), "{arguments:?}: {}", stderr(&output));
    }
    assert_eq!(fs::read_dir(path).unwrap().count(), 1, "nothing was written");
    let bytes = std::ffi::OsStr::from_bytes(b"caf\xe9.py");
    fs::write(path.join("latin.py"), b"# caf\xe9\nimport argparse, torch\nDataLoader(x, 4)\n").unwrap();
    let output =
        Command::new(support::gputune()).args(["init", "--no-run"]).arg(bytes).current_dir(path).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("UTF-8"), "{}", stderr(&output));
    let output = init(path, &["latin.py"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_folder_that_may_not_be_written_stays_as_it_is() {
    let folder = folder(&[("train.py", SCRIPT)]);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let is_root = fs::write(folder.path().join("try"), "").is_ok();
    let output = init(folder.path(), &["train.py"]);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if is_root {
        eprintln!("NOT RUN: root may write anywhere");
        return;
    }
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("cannot write gputune.toml"), "{}", stderr(&output));
}

/// Runs `init` on its own terminal (util-linux's `script`) with these keys; returns its screen and its exit code.
fn on_a_terminal(folder: &Path, arguments: &str, keys: &[u8]) -> Option<(String, i32)> {
    let line = format!("exec {} init --no-run {arguments}", support::gputune());
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--echo", "never", "--command", &line, "/dev/null"]);
    command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else {
        eprintln!("NOT RUN: there is no `script` of util-linux");
        return None;
    };
    let (mut keyboard, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    // A key before the first question is lost: Ctrl-C then reaches another program on the terminal.
    let (mut shown, mut byte) = (Vec::new(), [0]);
    while !shown.contains(&b'?') && screen.read(&mut byte).unwrap() > 0 {
        shown.push(byte[0]);
    }
    keyboard.write_all(keys).unwrap();
    screen.read_to_end(&mut shown).unwrap();
    drop(keyboard);
    let shown = String::from_utf8_lossy(&shown).into_owned();
    let status = child.wait().unwrap();
    Some((shown, status.code().unwrap_or(-1)))
}

#[test]
fn a_terminal_is_asked_three_questions_at_most() {
    let both = format!("import torch\nimport jax\n{SCRIPT}");
    let folder = folder(&[("a.py", &both), ("b.py", SCRIPT)]);
    let Some((shown, code)) = on_a_terminal(folder.path(), "", b"9\n1\n2\nlater\n90s\n") else { return };
    assert_eq!(code, 0, "{shown}");
    for words in [
        "Which command trains?",
        "there are numbers from 1 to 2",
        "Which of these trains?",
        "How long may the search take? [20m]",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let text = spec(folder.path());
    assert!(text.contains("preset jax") && text.contains("time = \"90s\"") && text.contains("\"a.py\""), "{text}");
}

#[test]
fn enter_takes_the_defaults() {
    let folder = folder(&[("train.py", SCRIPT)]);
    let Some((shown, code)) = on_a_terminal(folder.path(), "", b"\n") else { return };
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains("Which"), "one script of one kind: {shown}");
    assert!(spec(folder.path()).contains("time = \"20m\""));
}

#[test]
fn an_end_of_input_and_ctrl_c_write_nothing() {
    for (keys, expected) in [(&b"\x04"[..], 130), (b"\x03", 130)] {
        let folder = folder(&[("train.py", SCRIPT)]);
        let Some((shown, code)) = on_a_terminal(folder.path(), "", keys) else { return };
        assert_eq!(code, expected, "{shown}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{shown}");
    }
}

#[test]
fn the_help_lists_the_presets() {
    let output = init(Path::new("."), &["--help"]);
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/init.md")).unwrap();
    for preset in PRESETS {
        let row = format!("| `{}` | {} | [", preset.name, preset.about);
        assert!(page.contains(&row), "docs/init.md has no {row}");
        assert!(stdout(&output).contains(preset.name), "{}", preset.name);
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(preset.page).is_file(), "{}", preset.page);
        assert!(gputune::spec::SHIPPED_SPACES.iter().any(|(name, _)| *name == preset.space), "{}", preset.space);
    }
}
