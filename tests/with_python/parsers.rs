//! The shipped spaces for parallel degrees name options of the real parsers. The tests run if the parsers are installed:
//! Megatron-LM's is in its repository only (its package on PyPI has none), torchtitan's and DeepSpeed's are on PyPI.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use gputune::model::Settings;
use gputune::spec::Spec;
use regex::Regex;

use crate::support::python::python_with;

/// Returns the options that the comment of a shipped space names, each with its parameter.
fn options(space: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("search-spaces/{space}.toml"));
    let text = fs::read_to_string(path).unwrap();
    let comment = text.lines().map_while(|line| line.strip_prefix("# ")).collect::<Vec<_>>().join(" ");
    let pair = Regex::new(r#""(--[a-z_.-]+)", "\{([a-z_]+)\}""#).unwrap();
    pair.captures_iter(&comment).map(|found| (found[1].to_owned(), found[2].to_owned())).collect()
}

/// Returns settings of a shipped space: all configs, but at most a hundred.
fn configs(space: &str) -> Vec<Settings> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spec.toml");
    fs::write(&path, format!("[step]\ncommand = [\"train\"]\n[space]\nimport = [\"{space}\"]\n")).unwrap();
    let spec = Spec::load(&path).unwrap();
    (0..100).filter_map(|at| spec.space.config(at)).map(|config| spec.space.settings(&config)).collect()
}

/// Gives each config's arguments to a parser. `code` defines `parse(arguments)`, which returns the values of the options.
fn check(space: &str, python: &Path, code: &str) {
    let options = options(space);
    assert_eq!(options.len(), 4, "{options:?}");
    for settings in configs(space).iter().step_by(9) {
        let value = |parameter: &str| settings.get(parameter).unwrap().to_string();
        let words: Vec<String> = options.iter().flat_map(|(name, of)| [name.clone(), value(of)]).collect();
        let run = format!(
            "import sys\n{code}\nfound = parse(sys.argv[1:])\nprint(*(found(name) for name in sys.argv[1::2]))"
        );
        let output = Command::new(python).args(["-c", &run]).args(&words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {error}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let wanted: Vec<String> = options.iter().map(|(_, of)| value(of)).collect();
        assert_eq!(text.lines().last(), Some(wanted.join(" ").as_str()), "{words:?}");
    }
}

#[test]
fn megatron_takes_what_its_space_names() {
    let Some(python) = python_with(&["megatron.training.arguments"]) else { return };
    let code = r#"
import argparse
from megatron.training.arguments import add_megatron_arguments
def parse(words):
    parser = add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    known = parser.parse_args(words + ["--sequence-parallel", "--use-distributed-optimizer"])
    return lambda name: getattr(known, name.removeprefix("--").replace("-", "_"))
"#;
    check("megatron", &python, code);
}

#[test]
fn torchtitan_takes_what_its_space_names() {
    let Some(python) = python_with(&["torchtitan.config.configs", "tyro"]) else { return };
    // The parser of its ConfigManager, with the two parts of its config that the space names; the whole config needs a model.
    let code = r#"
import dataclasses, functools, tyro
from torchtitan.config.configs import ParallelismConfig, TrainingConfig
@dataclasses.dataclass
class Job:
    parallelism: ParallelismConfig = dataclasses.field(default_factory=ParallelismConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
def parse(words):
    job = tyro.cli(Job, args=words)
    return lambda name: functools.reduce(getattr, name.removeprefix("--").split("."), job)
"#;
    check("torchtitan", &python, code);
}

#[test]
fn deepspeed_takes_what_its_space_names() {
    let Some(python) = python_with(&["deepspeed"]) else { return };
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("search-spaces/deepspeed-parallel.toml"));
    let text = text.unwrap();
    let comment = text.lines().map_while(|line| line.strip_prefix("# ")).collect::<Vec<_>>().join(" ");
    let config =
        comment.split_once("probe, as for \"deepspeed\", with ").unwrap().1.split_once("; stages are").unwrap().0;
    let code = "
import json, sys
from deepspeed.runtime.config import DeepSpeedConfig
for line in sys.stdin:
    given = json.loads(line)
    found = DeepSpeedConfig(given)
    print(found.train_micro_batch_size_per_gpu, found.gradient_accumulation_steps, int(found.zero_config.stage),
          found.tensor_parallel_config.autotp_size, sep=',')
";
    let names = ["micro_batch_size", "accumulation", "zero_stage", "tensor_parallel"];
    let (mut given, mut wanted) = (String::new(), Vec::new());
    for settings in configs("deepspeed-parallel").iter().step_by(9) {
        let values = names.map(|name| settings.get(name).unwrap().to_string());
        let one = names.iter().zip(&values).fold(config.to_owned(), |text, (name, value)| {
            assert!(text.contains(&format!("{{{name}}}")), "{name}: {text}");
            text.replace(&format!("{{{name}}}"), value)
        });
        given += &format!("{{{one}}}\n");
        wanted.push(values.join(","));
    }
    let mut run = Command::new(python);
    run.args(["-c", code]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    run.stdin.take().unwrap().write_all(given.as_bytes()).unwrap();
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{given}: {}", String::from_utf8_lossy(&output.stderr));
    // The output has other lines.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found: Vec<&str> = text.lines().filter(|line| line.matches(',').count() == 3 && !line.contains(' ')).collect();
    assert_eq!(found, wanted);
}
