//! The best config reaches the command again: a real shell runs the output, and the tests read back the script's inputs.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::{self, python::python_with};
use crate::support::{kept, stderr, stdout};
use gputune::machine::Device;
use gputune::model::{Outcome, Purpose, Settings, Trial, Value, Walk};
use gputune::search::{
    Fingerprint, Header, Journal, StopReason,
    kept::{JOURNAL, Record, STUDY},
};
use gputune::spec::Spec;

/// A script that prints its arguments and its environment.
const ECHO: &str = "import json, os, sys\nprint(json.dumps({'argv': sys.argv[1:], 'env': dict(os.environ)}))\n";

pub(crate) fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Writes `out`, the folder of a search of `gputune.toml` with this winner, on a machine with a GPU or without.
pub(crate) fn searched(folder: &Path, winner: &Settings, is_gpu: bool) -> Spec {
    let spec = Spec::load_for(&folder.join("gputune.toml"), &|| None).unwrap_or_else(|error| panic!("{error}"));
    write_spec(&folder.join("out"), &spec, winner, is_gpu);
    spec
}

/// Writes the folder of a search with this winner. A baseline in the spec had a quarter of its speed.
fn write_spec(folder: &Path, spec: &Spec, winner: &Settings, is_gpu: bool) {
    fs::create_dir_all(folder).unwrap();
    let device = Device { name: "Test".to_owned(), driver: "1".to_owned(), is_gpu };
    let (name, driver) = (device.name.clone(), device.driver.clone());
    let fingerprint = Fingerprint { device: name, driver, command: "train".into(), space: "space".into() };
    let (space, baseline) = (&spec.space, spec.baseline.as_ref());
    let (mut journal, _) = Journal::open(&folder.join(JOURNAL), &Header::new(fingerprint), space).unwrap();
    let before = baseline.filter(|baseline| space.locate(baseline).unwrap() != space.locate(winner).unwrap());
    let measured_trials = before.into_iter().map(|settings| (Purpose::Baseline, settings, 50.0));
    let last = if before.is_none() { Purpose::Baseline } else { Purpose::Search };
    for (number, (purpose, settings, speed)) in (1..).zip(measured_trials.chain([(last, winner, 200.0)])) {
        let (config, elapsed) = (space.locate(settings).unwrap(), Duration::from_secs(12));
        let outcome = Outcome::Measured(kept::measured(speed, 32));
        let trial = Trial { elapsed, ..Trial::new(number, purpose, config, outcome) };
        journal.record(&trial, space, None, None).unwrap();
    }
    let (sought, step) = ((space, &spec.objective), spec.step.template());
    let record = Record::new("spec.toml", sought, baseline, spec.budget, &device, step)
        .ended(StopReason::ProbesSpent, Duration::from_secs(60));
    fs::write(folder.join(STUDY), record.to_json().unwrap()).unwrap();
}

/// Returns a config that differs from the baseline wherever possible.
fn far(spec: &Spec) -> Settings {
    let mut walk = Walk::shuffled(&spec.space, 1);
    let mut fuel = 1_000_000;
    let mut found: Vec<Settings> = Vec::new();
    while let gputune::model::Advance::Found(config) = walk.advance(&mut fuel) {
        found.push(spec.space.settings(&config));
        if found.len() == 400 {
            break;
        }
    }
    let baseline = spec.baseline.clone().unwrap_or_default();
    let differing =
        |settings: &Settings| settings.iter().filter(|(name, value)| baseline.get(name) != Some(value)).count();
    // The setting that the example's script states itself must change as well.
    let is_other = |settings: &Settings| settings.get("persistent_workers") == Some(&Value::Bool(false));
    found.into_iter().max_by_key(|settings| (is_other(settings), differing(settings))).unwrap()
}

fn emit(folder: &Path, format: &str) -> Output {
    Command::new(support::gputune()).args(["emit", "out", "--format", format]).current_dir(folder).output().unwrap()
}

fn emitted(folder: &Path, format: &str) -> (String, String) {
    let output = emit(folder, format);
    assert!(output.status.success(), "{format}: {}", stderr(&output));
    (stdout(&output), stderr(&output))
}

/// Runs shell lines with `gputune` and `python3` in the path, and reads the last line as JSON.
pub(crate) fn shell(folder: &Path, python: &Path, script: &str) -> serde_json::Value {
    let path = [Path::new(support::gputune()).parent().unwrap(), python.parent().unwrap()];
    let path: Vec<String> = path.iter().map(|folder| folder.display().to_string()).collect();
    let path = format!("{}:{}", path.join(":"), std::env::var("PATH").unwrap());
    let output = Command::new("sh").args(["-ec", script]).current_dir(folder).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{script}\n{}", stderr(&output));
    let said = stdout(&output);
    serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn words(value: &serde_json::Value) -> Vec<String> {
    value["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

const RATE: &str = "throughput = { pattern = '([0-9.]+) samples/s', unit = \"samples/s\" }\n";

#[test]
fn each_shape_of_a_command_gets_its_own_arguments_back() {
    let python = python_with(&[]).unwrap();
    let space = "[space]\nbatch = { values = [8, 64] }\namp = { values = [false, true] }\nname = { values = [\"a\", \"b\"] }\n\
                 threads = { values = [1, 4] }\n[baseline]\nbatch = 8\namp = false\nname = \"a\"\nthreads = 1\n";
    for (command, wanted) in [
        (
            r#""--data", "imgs", "--batch", "{batch}", "{amp?--amp}", "--name={name}""#,
            &["--batch", "64", "--amp", "--name=b"][..],
        ),
        (
            r#""model=x", "train.batch={batch}", "+name={name}", "amp={amp}""#,
            &["train.batch=64", "+name=b", "amp=true"],
        ),
        (r#""--batch={batch}", "-v", "{name}", "{amp?--amp}""#, &["--batch=64", "-v", "b", "--amp"]),
    ] {
        let spec = format!(
            "[step]\ncommand = [\"python3\", \"echo.py\", {command}]\nenv = {{ OMP_NUM_THREADS = \"{{threads}}\", FIXED = \"1\" }}\n{RATE}{space}"
        );
        let folder = folder(&[("echo.py", ECHO), ("gputune.toml", &spec)]);
        let settings: Settings =
            [("batch", Value::from(64)), ("amp", true.into()), ("name", "b".into()), ("threads", 4.into())]
                .into_iter()
                .collect();
        searched(folder.path(), &settings, false);
        let got = shell(
            folder.path(),
            &python,
            "args=$(gputune emit out --format args 2>/dev/null) && eval \"python3 echo.py $args\"",
        );
        assert_eq!(words(&got), wanted, "{command}");
        let got = shell(
            folder.path(),
            &python,
            "set -a; eval \"$(gputune emit out --format env 2>/dev/null)\"; set +a; python3 echo.py",
        );
        assert_eq!(got["env"]["OMP_NUM_THREADS"], "4");
        assert!(got["env"].get("THREADS").is_none() && got["env"].get("BATCH").is_none());
        let (env, notes) = emitted(folder.path(), "env");
        assert_eq!(env, "OMP_NUM_THREADS=4\n");
        assert!(
            notes.contains("note: an argument of the command, see --format args: `batch` = 64, `amp` = true"),
            "{notes}"
        );
        let (next, _) = emitted(folder.path(), "command");
        let got = shell(folder.path(), &python, &next);
        let fixed = if command.contains("imgs") {
            &["--data", "imgs"][..]
        } else if command.contains("model=x") {
            &["model=x"][..]
        } else {
            &[][..]
        };
        assert_eq!(words(&got), [fixed, wanted].concat(), "{next}");
        assert_eq!((&got["env"]["OMP_NUM_THREADS"], &got["env"]["FIXED"]), (&"4".into(), &"1".into()));
        let report =
            Command::new(support::gputune()).args(["report", "out"]).current_dir(folder.path()).output().unwrap();
        assert!(stdout(&report).contains(&format!("next      {}", next.trim_end())), "{}", stdout(&report));
    }
}

#[test]
fn values_of_every_kind_survive_the_shell() {
    let python = python_with(&[]).unwrap();
    let odd = [
        "-x",
        "--",
        "a b",
        "it's",
        "\"q\"",
        "$HOME",
        "`id`",
        "$(id)",
        "a\nb",
        "a\n",
        "\n# b",
        "\u{1b}[31mred",
        "\t\r",
        "ä中🚀",
        "*",
        "~",
        "\\",
        "",
        "=x",
        "a;b",
        "#",
        "{}",
        "!!",
        "\u{9b}",
        "%s",
        "```",
    ];
    let listed: Vec<String> = odd.iter().map(|text| serde_json::Value::from(*text).to_string()).collect();
    let listed = listed.join(", ").replace('\u{9b}', "\\u009B");
    let spec = format!(
        "[step]\ncommand = [\"python3\", \"echo.py\", \"--name\", \"{{name}}\", \"--also={{name}}\"]\nenv = {{ NAME = \"{{name}}\", odd-name = \"{{name}}\" }}\n{RATE}[space]\nname = {{ values = [{listed}] }}\n"
    );
    let folder = folder(&[("echo.py", ECHO), ("gputune.toml", &spec)]);
    for text in odd {
        let _ = fs::remove_dir_all(folder.path().join("out"));
        searched(folder.path(), &[("name", Value::from(text))].into_iter().collect(), false);
        let wanted = ["--name".to_owned(), text.to_owned(), format!("--also={text}")];
        let got = shell(
            folder.path(),
            &python,
            "args=$(gputune emit out --format args 2>/dev/null) && eval \"python3 echo.py $args\"",
        );
        assert_eq!(words(&got), wanted, "{text:?}");
        let (command, _) = emitted(folder.path(), "command");
        assert!(command.chars().all(|c| !c.is_control() || c == '\n'), "{command:?}");
        let got = shell(folder.path(), &python, &command);
        assert_eq!(words(&got), wanted, "{text:?}: {command}");
        assert_eq!((&got["env"]["NAME"], &got["env"]["odd-name"]), (&text.into(), &text.into()), "{command}");
        let script = "set -a; eval \"$(gputune emit out --format env 2>/dev/null)\"; set +a; python3 echo.py";
        assert_eq!(shell(folder.path(), &python, script)["env"]["NAME"], text, "{text:?}");
        // A code block in the summary ends at the end of the command.
        let summary = Command::new(support::gputune())
            .args(["report", "out", "--format", "summary", "--out", "-"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let fence = if text.contains("```") { "\n````sh\n" } else { "\n```sh\n" };
        assert!(stdout(&summary).contains(&format!("{fence}{command}")), "{}", stdout(&summary));
    }
}

#[test]
fn a_folder_without_a_command_says_so_and_prints_nothing() {
    let spec =
        format!("[step]\ncommand = [\"sh\", \"-c\", \"./train {{x}}\"]\n{RATE}[space]\nx = {{ values = [1, 2] }}\n");
    let folder = folder(&[("gputune.toml", &spec)]);
    searched(folder.path(), &[("x", Value::from(2))].into_iter().collect(), false);
    let output = emit(folder.path(), "args");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
    assert!(
        stderr(&output).contains("`--format args` has nothing to print: the command is a line for a shell"),
        "{}",
        stderr(&output)
    );
    // A search reports this before it begins.
    let search = ["search", "gputune.toml", "--format", "args"];
    let output = Command::new(support::gputune()).args(search).current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(!folder.path().join("gputune-out").exists());
    // A folder with only the best config.
    let kept = gputune::search::Kept::read(&folder.path().join("out")).unwrap();
    let mut best = gputune::report::best(&kept.study, &kept.device).unwrap();
    best.command = Some("sh -c './train 2'".to_owned());
    let best = serde_json::to_string(&best).unwrap();
    fs::remove_dir_all(folder.path().join("out")).unwrap();
    fs::create_dir(folder.path().join("out")).unwrap();
    fs::write(folder.path().join("out/best.json"), best).unwrap();
    for format in ["args", "env"] {
        let output = emit(folder.path(), format);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{}", stderr(&output));
        assert!(stderr(&output).contains("the results here name no command"), "{}", stderr(&output));
    }
    assert_eq!(emitted(folder.path(), "command").0, "sh -c './train 2'\n");
}

#[test]
fn a_winner_that_is_the_baseline_is_the_command_with_nothing_to_write() {
    let spec = "[step]\ncommand = [\"python3\", \"train.py\", \"--epochs\", \"3\"]\nadapter = \"torch\"\n[space]\n\
                workers = { values = [0, 2], apply = \"dataloader.num_workers\" }\n[baseline]\nworkers = 2\n";
    let script = "import torch\nloader = DataLoader(x, shuffle=True, num_workers=2)\n";
    let folder = folder(&[("gputune.toml", spec), ("train.py", script)]);
    searched(folder.path(), &[("workers", Value::from(2))].into_iter().collect(), false);
    let (command, notes) = emitted(folder.path(), "command");
    assert_eq!((command.as_str(), notes.as_str()), ("python3 train.py --epochs 3\n", ""));
    fs::remove_dir_all(folder.path().join("out")).unwrap();
    searched(folder.path(), &[("workers", Value::from(0))].into_iter().collect(), false);
    assert_eq!(
        emitted(folder.path(), "command").0,
        "python3 train.py --epochs 3\n# and in the script, since the command does not set it:\n\
         # train.py:2: in DataLoader(...): num_workers=0 (instead of num_workers=2)\n"
    );
    let here = folder.path().canonicalize().unwrap();
    let elsewhere = Command::new(support::gputune())
        .args(["emit", &here.join("out").display().to_string(), "--format", "command"])
        .current_dir("/")
        .output()
        .unwrap();
    let expected = format!("(cd {} && python3 train.py --epochs 3)\n", here.display());
    assert!(stdout(&elsewhere).starts_with(&expected), "{}", stdout(&elsewhere));
    for (format, wanted) in
        [("summary", "# train.py:2: in DataLoader(...)"), ("html", "train.py:2: in DataLoader(...)")]
    {
        let report = Command::new(support::gputune())
            .args(["report", "out", "--format", format, "--out", "-"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(stdout(&report).contains(wanted), "{format}: {}{}", stdout(&report), stderr(&report));
    }
}

/// Writes a first spec for an example, as a user would, and names its interpreter.
fn initialised(example: &str, python: &Path) -> tempfile::TempDir {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(example).join("train.py");
    let folder = folder(&[("train.py", &fs::read_to_string(own).unwrap())]);
    let path = format!("{}:{}", python.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new(support::gputune())
        .args(["init", "--yes", "--", "python3", "train.py"])
        .current_dir(folder.path())
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{example}: {}", stderr(&output));
    // The spec as on a machine with bf16.
    let path = folder.path().join("gputune.toml");
    let text = fs::read_to_string(&path).unwrap();
    if !text.contains("\nprecision") && example != "pytorch" {
        let precision = "precision = { values = [\"fp32\", \"bf16\"], apply = \"torch.precision\" }\n";
        fs::write(&path, text.replace("[space]\n", &format!("[space]\n{precision}"))).unwrap();
    }
    folder
}

/// Returns the settings that a script trains with, as the frameworks receive them: `tests/python/effective.py`.
fn effective(folder: &Path, python: &Path, script: &str, arguments: &str) -> BTreeMap<String, serde_json::Value> {
    let helper = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/effective.py");
    let said = shell(
        folder,
        python,
        &format!(
            "set -a; eval \"$(gputune emit out --format env 2>/dev/null)\"; set +a; python3 {} {script} {arguments} 2>said || {{ cat said >&2; exit 1; }}",
            helper.display()
        ),
    );
    serde_json::from_value(said).unwrap()
}

fn is_effective(example: &str, modules: &[&str]) {
    let Some(python) = python_with(modules) else { return };
    let folder = initialised(example, &python);
    let spec = Spec::load_for(&folder.path().join("gputune.toml"), &|| None).unwrap();
    let winner = far(&spec);
    write_spec(&folder.path().join("out"), &spec, &winner, false);
    // The documented line runs, and the script's own arguments reach the script.
    let arguments = "$(gputune emit out --format args 2>/dev/null)";
    let before = effective(folder.path(), &python, "train.py", arguments);
    // Writes the lines of `next` at the places and with the code that it names.
    let (next, _) = emitted(folder.path(), "command");
    fs::write(folder.path().join("next"), &next).unwrap();
    let helper = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/write_edits.py");
    let written =
        Command::new(&python).arg(helper).args(["next", "train.py"]).current_dir(folder.path()).output().unwrap();
    assert!(written.status.success(), "{next}\n{}", stderr(&written));
    fs::write(folder.path().join("written.py"), written.stdout).unwrap();
    let after = effective(folder.path(), &python, "written.py", arguments);
    for (name, value) in winner.iter() {
        let Some(told) = after.get(name) else { continue };
        assert_eq!(*told, serde_json::to_value(value).unwrap(), "{example}: {name}\n{next}\n{before:?}\n{after:?}");
    }
    for name in ["batch_size", "workers", "precision"] {
        assert!(after.contains_key(name) || winner.get(name).is_none(), "{example}: {name} was not seen: {after:?}");
    }
    assert_ne!(before, after, "{example}: something was to be written: {winner:?}");
}

#[test]
fn the_pytorch_example_trains_with_the_winner() {
    is_effective("pytorch", &["torch"]);
}

#[test]
fn the_lightning_example_trains_with_the_winner() {
    if support::is_thorough() {
        is_effective("lightning", &["torch", "lightning"]);
    }
}

#[test]
fn the_hugging_face_example_trains_with_the_winner() {
    if support::is_thorough() {
        is_effective("huggingface", &["torch", "transformers", "accelerate"]);
    }
}

#[test]
fn the_accelerate_example_trains_with_the_winner() {
    if support::is_thorough() {
        is_effective("accelerate", &["torch", "accelerate"]);
    }
}
