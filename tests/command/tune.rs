//! `gputune tune`: one command from a script to its best config, and commands that find their search by themselves.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{self, stderr, stdout};

/// A script of argparse that needs no framework, and prints its rate.
const SCRIPT: &str = r#"
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--epochs", type=int, default=1)
arguments = parser.parse_args()
for step in range(200 * arguments.epochs):
    begin = time.perf_counter()
    time.sleep(0.005 + 0.0001 * arguments.batch_size)
    print(f"{arguments.batch_size / (time.perf_counter() - begin):.2f} images/sec", flush=True)
"#;

fn folder(script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.py"), script).unwrap();
    folder
}

fn gputune(folder: &Path, words: &[&str]) -> Output {
    Command::new(support::gputune()).args(words).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

fn trials(folder: &Path) -> usize {
    fs::read_to_string(folder.join("gputune-out/train/journal.jsonl")).unwrap().lines().count()
}

#[test]
fn one_command_finds_a_config_and_the_next_ones_go_on_with_it() {
    let folder = folder(SCRIPT);
    let folder = folder.path();
    let words =
        ["tune", "--time", "60s", "--probes", "3", "--set", "batch_size=16", "--json", "train.py", "--epochs", "3"];
    let output = gputune(folder, &words);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let best: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(best["batch_size"], 16, "{best}");
    assert!(stderr(&output).contains("next      "), "{}", stderr(&output));
    let spec = fs::read_to_string(folder.join("gputune-out/train/gputune.toml")).unwrap();
    assert!(spec.contains("\"--epochs\", \"3\"") && spec.contains("time = \"60s\""), "{spec}");
    let before = trials(folder);
    // Without a word, commands find the search and its spec.
    for words in [&["search", "--probes", "3", "--set", "batch_size=16"][..], &words] {
        let output = gputune(folder, words);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(trials(folder), before, "it goes on: {}", stderr(&output));
    }
    for words in [&["report"][..], &["emit", "--format", "args"], &["watch", "--once"]] {
        let output = gputune(folder, words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
    }
    assert_eq!(stdout(&gputune(folder, &["emit", "--format", "args"])), "--batch-size 16\n");
    let ran = gputune(folder, &["run", "--", "python3", "train.py", "--epochs", "0"]);
    assert_eq!((ran.status.code(), stdout(&ran).as_str()), (Some(0), ""), "{}", stderr(&ran));
    // Another command is not searched with the spec of this one.
    let other = gputune(folder, &["search", "train.py"]);
    assert_eq!(other.status.code(), Some(2), "{}", stderr(&other));
    assert!(stderr(&other).contains("runs another command"), "{}", stderr(&other));
    let fresh = gputune(folder, &["tune", "--fresh", "--time", "60s", "--probes", "1", "train.py"]);
    assert_eq!(fresh.status.code(), Some(0), "{}", stderr(&fresh));
    let spec = fs::read_to_string(folder.join("gputune-out/train/gputune.toml")).unwrap();
    assert!(!spec.contains("--epochs"), "{spec}");
    assert!(folder.join("gputune-out/train.1/journal.jsonl").exists());
}

#[test]
fn what_no_search_can_tune_is_refused_with_the_lines_to_add() {
    let options = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int, default=8)\n\
                   args = p.parse_args()\nprint(args.batch_size)\n";
    for (script, reason, line) in [
        ("print('hello')\n", "gputune found no setting that this command accepts", "batch_size=<YOUR BATCH SIZE>)"),
        (options, "cannot see how fast this command trains", "gputune.step(samples=args.batch_size) "),
    ] {
        let folder = folder(script);
        let output = gputune(folder.path(), &["tune", "train.py"]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let told = stderr(&output);
        for part in [reason, "import gputune", line, "gputune.step("] {
            assert!(told.contains(part), "{part}\n{told}");
        }
        assert!(!folder.path().join("gputune-out/train/gputune.toml").exists());
    }
}

#[test]
fn the_lines_to_add_have_the_scripts_own_values_and_work_as_printed() {
    let script = "import time\nBATCH_SIZE = 16\nNUM_WORKERS = 2  # of the loader\nfor step in range(100000):\n    \
                  time.sleep(0.005)\n";
    let folder = folder(script);
    let output = gputune(folder.path(), &["tune", "train.py"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let lines = support::lines_to_add(&stderr(&output));
    let expected = [
        ("import gputune", "at the top of train.py"),
        ("BATCH_SIZE = gputune.config(batch_size=16)[\"batch_size\"]", "replaces line train.py:2"),
        ("NUM_WORKERS = gputune.config(workers=2)[\"workers\"]", "replaces line train.py:3"),
        ("gputune.step(samples=BATCH_SIZE)", "at the end of each training step"),
    ];
    assert_eq!(lines, expected.map(|(code, place)| (code.to_owned(), place.to_owned())), "{}", stderr(&output));
    let [import, batch, workers, step] = expected.map(|(code, _)| code);
    let loop_lines = script.lines().skip(3).collect::<Vec<_>>().join("\n");
    let pasted = format!("{import}\nimport time\n{batch}\n{workers}\n{loop_lines}\n    {step}\n");
    fs::write(folder.path().join("train.py"), pasted).unwrap();
    let output = gputune(folder.path(), &["tune", "--time", "60s", "--probes", "2", "train.py", "--slots", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let warning = "warning: `--slots` went to the script: options of gputune stand before the script";
    assert!(stderr(&output).contains(warning), "{}", stderr(&output));
    let spec = fs::read_to_string(folder.path().join("gputune-out/train/gputune.toml")).unwrap();
    assert!(spec.contains("batch_size = { powers_of_two = [4, 256] }") && spec.contains("workers    = {"), "{spec}");
}

#[test]
fn what_is_not_searched_is_told_in_one_line() {
    let options = "parser.add_argument(\"--compile\", action=\"store_true\")\n\
                   parser.add_argument(\"--accum-steps\", type=int, default=1)\narguments =";
    let folder = folder(&SCRIPT.replace("arguments =", options));
    let told = |verbose: &[&str]| {
        let words = ["tune", "--fresh", "--time", "30s", "--probes", "1"];
        let output = gputune(folder.path(), &[&words, verbose, &["train.py"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let told = stderr(&output);
        told.lines().filter(|line| line.starts_with("Not searched: ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let reason = "it changes the effective batch, and so the learning rate that fits";
    assert_eq!(told(&[]), [format!("Not searched: --accum-steps ({reason}); -v lists 1 more.")]);
    let all = told(&["-v"]);
    assert_eq!(all[0], format!("Not searched: --accum-steps ({reason})."));
    assert!(all.len() == 2 && all[1].starts_with("Not searched: --compile (compiling costs minutes"), "{all:?}");
}

#[test]
fn a_script_that_fails_at_once_is_run_once() {
    let folder = folder(&SCRIPT.replace("begin = time.perf_counter()", "open('imgs')"));
    let output = gputune(folder.path(), &["tune", "train.py", "--epochs", "3"]);
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{told}");
    let reason = "the command failed before its first training step: exit code 1: FileNotFoundError";
    for part in [reason, "'imgs'", "run `python3 train.py --epochs 3 < /dev/null`"] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    assert!(!folder.path().join("gputune-out/train/journal.jsonl").exists());
}

#[test]
fn wrong_words_are_named() {
    let folder = folder(SCRIPT);
    let folder = folder.path();
    for (words, reason) in [
        (&["tune", "--tme", "5m", "train.py"][..], "there is no option `--tme`"),
        (&["tune", "none.py"], "cannot read the script none.py"),
        (&["search"], "there is no gputune.toml here"),
        (&["diagnose"], "there is no gputune.toml here"),
        (&["emit"], "there is no search below gputune-out"),
        (&["search", "train.py", "--slurm", "-N1"], "is a script, and --listen and --slurm need a spec"),
    ] {
        let output = gputune(folder, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{words:?}: {}", stderr(&output));
    }
}
