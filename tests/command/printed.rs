//! Each command that gputune prints runs as it is printed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::commands::{printed, shell, shell_command};
use crate::support::{stderr, stdout};

/// A script of argparse that needs no framework, and prints its rate.
const SCRIPT: &str = r#"
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--epochs", type=int, default=1)
arguments = parser.parse_args()
for step in range(500):
    begin = time.perf_counter()
    time.sleep(0.004 + 0.00002 * arguments.batch_size)
    print(f"{arguments.batch_size / (time.perf_counter() - begin):.2f} images/sec", flush=True)
"#;

/// A folder whose name a shell must have quoted, with these files.
fn place(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("it's here");
    fs::create_dir(&place).unwrap();
    for (name, text) in files {
        fs::write(place.join(name), text).unwrap();
    }
    (folder, place)
}

/// Runs a command, and returns the commands that it prints.
fn commands_of(place: &Path, command: &str, code: i32) -> Vec<String> {
    let output = shell(place, command);
    let text = stdout(&output) + &stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{command}: {text}");
    printed(&text)
}

/// Runs a command that must print these commands, and runs these.
fn run_all(place: &Path, command: &str, code: i32, expected: &[&str]) {
    let commands = commands_of(place, command, code);
    assert_eq!(commands, expected, "{command}");
    for printed in &commands {
        commands_of(place, printed, 0);
    }
}

#[test]
fn the_next_command_of_each_command_runs() {
    let (_folder, place) = place(&[("my train.py", SCRIPT)]);
    let first = commands_of(&place, "gputune init --yes --time 10s --out 'my spec.toml' 'my train.py'", 0);
    assert_eq!(first, ["gputune diagnose 'my spec.toml'", "gputune search 'my spec.toml'"]);
    commands_of(&place, &first[0], 0);
    // Few probes instead of little time, which a busy machine may need for its first probe.
    let spec = place.join("my spec.toml");
    let text = fs::read_to_string(&spec).unwrap();
    assert!(text.contains("\ntime = \"10s\"\n"), "{text}");
    fs::write(&spec, text.replace("\ntime = \"10s\"\n", "\ntime = \"2m\"\nprobes = 3\nrounds = 2\n")).unwrap();
    let next = commands_of(&place, &first[1], 0);
    assert!(next.len() == 1 && next[0].contains("'my train.py'"), "{next:?}");
    let trained = shell(&place, &next[0]);
    assert!(trained.status.success() && stdout(&trained).contains("images/sec"), "{next:?}: {}", stderr(&trained));
    for command in ["gputune report", "gputune watch --once", "gputune report 'gputune-out/my spec' -v"] {
        assert_eq!(commands_of(&place, command, 0), next, "{command}");
    }
    // From another folder, the command leads back.
    let elsewhere = place.parent().unwrap();
    let from = commands_of(elsewhere, "gputune report \"it's here/gputune-out/my spec\"", 0);
    assert!(from.len() == 1 && from[0].starts_with("(cd "), "{from:?}");
    commands_of(elsewhere, &from[0], 0);
    let is_step =
        |text: &str| ["search", "emit", "report"].iter().any(|name| text.starts_with(&format!("gputune {name} ")));
    let page = fs::read_to_string(place.join("gputune-out/my spec/report.html")).unwrap();
    let mut steps = page.split('"').filter(|text| is_step(text)).collect::<Vec<_>>();
    steps.dedup();
    assert!(steps.iter().any(|step| step.contains("--fresh")) && steps.len() >= 3, "{steps:?}");
    for step in steps {
        // The page has them as strings of JSON.
        commands_of(&place, &step.replace("\\\\", "\\"), 0);
    }
}

#[test]
fn the_advice_of_errors_runs() {
    let (_folder, place) = place(&[("a train.py", SCRIPT), ("other.py", SCRIPT), ("open", "x"), ("short", "x")]);
    let place = place.as_path();
    run_all(place, "gputune tune --tme 5m", 2, &["gputune tune --help"]);
    run_all(place, "gputune init --yes", 2, &["gputune init 'a train.py'"]);
    fs::remove_file(place.join("gputune.toml")).unwrap();
    run_all(place, "gputune search 'a train.py' --slurm -N1", 2, &["gputune init 'a train.py'"]);
    fs::write(
        place.join("gputune.toml"),
        "[step]\ncommand = [\"sh\", \"-c\", \"exit 1\"]\n[space]\nx = { values = [1, 2] }\n[search]\nas_it_is = false\n",
    )
    .unwrap();
    let search = "gputune search gputune.toml --listen 127.0.0.1:0 --token-file";
    run_all(place, &format!("{search} 'no file'"), 2, &["gputune cluster token 'no file'"]);
    run_all(place, &format!("{search} short"), 2, &["chmod 600 short", "gputune cluster token short.new"]);
    // A search without a result, and a spec of another command.
    commands_of(place, "gputune search gputune.toml --probes 1", 1);
    for command in ["gputune emit", "gputune run"] {
        run_all(place, command, 1, &["gputune report gputune-out/gputune"]);
    }
    let compare = "gputune compare gputune.toml best x=1";
    run_all(place, compare, 2, &["gputune report gputune-out/gputune"]);
    // The spec of `gputune tune` has its search in its own folder.
    commands_of(place, "gputune tune --time 2m --probes 1 --out 'a run' 'a train.py'", 0);
    let again = "gputune search 'a run/gputune.toml'";
    run_all(place, "gputune tune --out 'a run' 'a train.py' --epochs 2", 2, &[again]);
    assert!(stderr(&shell(place, again)).contains("results   a run (report.html)\n"));
}

#[test]
fn the_advice_for_scripts_and_for_watchers_runs() {
    let (_folder, place) = place(&[("a train.py", SCRIPT)]);
    let place = place.as_path();
    let tune = "gputune tune --time 2m --probes 1 'a train.py' --epochs 2";
    run_all(place, "gputune search --time 2m --probes 1 'a train.py' --epochs 2", 2, &[tune]);
    // The script trains, though without PyTorch it has no steps to diagnose.
    for (command, advised) in [
        ("gputune diagnose --set x=1 'a train.py'", "gputune diagnose -- python3 'a train.py'"),
        ("gputune diagnose -q 'a train.py' --epochs 2", "gputune diagnose -q -- python3 'a train.py' --epochs 2"),
    ] {
        assert_eq!(commands_of(place, command, 2), [advised]);
        commands_of(place, advised, 1);
        let log = fs::read_to_string(place.join("gputune-out/a train-diagnose/logs/0001.log")).unwrap();
        assert!(log.contains("images/sec"), "{log}");
    }
    fs::create_dir(place.join("out")).unwrap();
    let advised = commands_of(place, "gputune watch out --once", 2);
    assert_eq!(advised, ["gputune watch out"]);
    let watching = shell_command(place, &advised[0]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    fs::write(place.join("short.toml"), SHORT).unwrap();
    commands_of(place, "gputune search short.toml --out out", 0);
    let watched = watching.wait_with_output().unwrap();
    assert!(watched.status.success(), "{}", stderr(&watched));
    fs::write(place.join("out/status.json"), "{").unwrap();
    assert_eq!(commands_of(place, "gputune watch out --json", 3), ["gputune watch out --once"]);
    commands_of(place, "gputune watch out --once", 3);
}

const SHORT: &str = r#"
[step]
command = ["python3", "a train.py", "--batch-size", "{batch_size}"]
throughput = { pattern = '([0-9.]+) images/sec', unit = "images/s" }
[space]
batch_size = { values = [8, 16] }
[search]
probes = 2
rounds = 0
"#;
