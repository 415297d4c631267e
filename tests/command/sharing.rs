//! Files to share have no secrets, and files to run have them. Trackers are silent in each probe.

use std::fs;

use crate::support::{self, Search, gputune, stderr, stdout};
use gputune::probe::SILENCERS;

/// A search whose command, environment and output have secrets, each with `sEkReT` in it.
fn secretive() -> Search {
    let child = support::child();
    let script = "echo \"api_key=sEkReTprinted\"; exec \"$CHILD\" steps:400:1:1000";
    let command =
        ["sh", "-c", script, "sh", "--hf-token", "sEkReToption", "--password=sEkReTequals", "--tokenizer", "gpt2"];
    let env = format!(
        "env = {{ CHILD = \"{}\", WANDB_API_KEY = \"sEkReTvariable\", DB = \"postgres://me:sEkReTurl@host/db\" }}\n",
        child.display()
    );
    Search::of_command(&command.map(str::to_owned), &env)
}

#[test]
fn files_for_sharing_have_no_secrets_and_next_runs() {
    let search = secretive();
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for name in ["report.html", "summary.md", "best.json", "best.toml", "trials.csv"] {
        let text = fs::read_to_string(search.out().join(name)).unwrap();
        assert!(!text.contains("sEkReT"), "{name}: {}", text.lines().find(|line| line.contains("sEkReT")).unwrap());
    }
    let summary = fs::read_to_string(search.out().join("summary.md")).unwrap();
    assert!(summary.contains("--hf-token REDACTED --password=REDACTED --tokenizer gpt2"), "{summary}");
    let next = stderr(&output);
    let next = next.lines().find(|line| line.starts_with("next")).unwrap();
    for secret in ["sEkReToption", "sEkReTequals", "sEkReTvariable", "sEkReTurl"] {
        assert!(next.contains(secret), "{next}");
    }
}

#[test]
fn exports_have_no_secrets() {
    let search = secretive();
    assert_eq!(search.run().status.code(), Some(0));
    for format in ["summary", "trials", "best", "optuna", "html"] {
        let mut report = std::process::Command::new(gputune());
        report.args(["report", "out", "--format", format]).current_dir(search.folder.path());
        let output = report.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{format}: {}", stderr(&output));
        assert!(!stdout(&output).contains("sEkReT"), "{format}");
    }
}

#[test]
fn trackers_are_silent_unless_the_spec_says_otherwise() {
    let variables: Vec<String> = SILENCERS.iter().map(|silencer| format!("\"${}\"", silencer.variable)).collect();
    let echo = format!("echo {}; exec \"$CHILD\" steps:400:1:1000", variables.join(" "));
    let env = format!("env = {{ CHILD = \"{}\", NEPTUNE_MODE = \"offline\" }}\n", support::child().display());
    let search = Search::of_command(&["sh".to_owned(), "-c".to_owned(), echo], &env);
    // The probe's variable overrides the shell's variable.
    let output = search.command().env("WANDB_MODE", "online").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let log = fs::read_to_string(search.out().join("logs/0001.log")).unwrap();
    let set: Vec<&str> = log.lines().next().unwrap().split_whitespace().collect();
    for (silencer, set) in SILENCERS.iter().zip(set) {
        let expected = if silencer.variable == "NEPTUNE_MODE" { "offline" } else { silencer.value };
        let (begin, end) = expected.split_once("{scratch}").unwrap_or((expected, ""));
        assert!(set.starts_with(begin) && set.ends_with(end) && !set.contains('{'), "{}: {set}", silencer.variable);
    }
}

/// A spec without an adapter, and a script that sets its tracker's mode.
#[test]
fn a_script_cannot_overrule_it_and_needs_no_adapter() {
    let Some(python) = support::python::python_with(&[]) else { return };
    let script = "import wandb, time\nwandb.init(mode='online')\n\
                  for step in range(400):\n    time.sleep(0.005)\n    print('800.0 samples/s', flush=True)\n";
    let rate = "throughput = { pattern = '([0-9.]+) samples/s', unit = \"samples/s\" }\n";
    let search = Search::of_command(&[python.display().to_string(), "train.py".to_owned()], rate);
    fs::write(search.folder.path().join("train.py"), script).unwrap();
    fs::write(search.folder.path().join("wandb.py"), "def init(mode=None): print('mode', mode)\n").unwrap();
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let log = fs::read_to_string(search.out().join("logs/0001.log")).unwrap();
    assert!(log.starts_with("mode disabled\n"), "{log}");
}
