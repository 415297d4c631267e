//! Finds the conditions of a job's trials besides its settings: the interpreter, its frameworks, the script, and the script's
//! imports from the project. No part of the job runs for this: gputune reads the command, and runs a small script of its own in the
//! interpreter.

mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::machine::telemetry::output_within;
use crate::probe::{StepTemplate, Template};
use crate::search::journal::{Conditions, Interpreter};

const SCRIPT: &str = include_str!("look.py");

/// How long to wait for the interpreter. It may take seconds to start on a slow file system. A round number.
const PATIENCE: Duration = Duration::from_secs(30);

/// The packages whose versions affect how fast a job is.
const FRAMEWORKS: &str = "torch torchvision triton nvidia-cudnn-cu12 nvidia-cudnn-cu13 nvidia-nccl-cu12 \
    nvidia-nccl-cu13 tensorflow keras jax jaxlib lightning pytorch-lightning transformers accelerate deepspeed \
    datasets timm flash-attn xformers bitsandbytes numpy";

/// The interpreter's answer.
#[derive(Debug, Default, Deserialize)]
struct Told {
    executable: String,
    version: String,
    frameworks: BTreeMap<String, String>,
    files: Vec<PathBuf>,
}

/// Returns the interpreter, the frameworks and the code of a job; limits and the measuring method are added elsewhere.
///
/// Leaves out words of the command that depend on settings, and everything that cannot be found.
pub fn conditions(template: &StepTemplate) -> Conditions {
    let fixed = |text: &Template| text.names().next().is_none();
    let command = template.command.iter().filter(|word| fixed(word)).map(|word| word.text().to_owned()).collect();
    let env = template.env.iter().filter(|(_, text)| fixed(text));
    let env: BTreeMap<String, String> = env.map(|(name, text)| (name.clone(), text.text().to_owned())).collect();
    of_command(command, &env, &template.cwd)
}

fn of_command(command: Vec<String>, env: &BTreeMap<String, String>, cwd: &Path) -> Conditions {
    let words::Found { interpreter, files, modules } = words::find(&command, env, cwd);
    let frameworks: Vec<&str> = FRAMEWORKS.split_ascii_whitespace().collect();
    let asked = json!({ "cwd": cwd, "roots": files, "modules": modules, "frameworks": frameworks });
    let told: Option<Told> = interpreter.as_ref().and_then(|program| ask_of(program, SCRIPT, &asked, env, cwd));
    let told = told.unwrap_or_default();
    let interpreter = interpreter.map(|program| {
        let path = if told.executable.is_empty() { program.display().to_string() } else { told.executable };
        Interpreter { path, version: told.version }
    });
    let files: BTreeSet<PathBuf> = files.into_iter().chain(told.files).collect();
    let shown = |path: &Path| path.strip_prefix(cwd).unwrap_or(path).display().to_string();
    let code = files.into_iter().filter_map(|path| Some((shown(&path), digest(&path)?))).collect();
    Conditions { interpreter, frameworks: told.frameworks, code, ..Conditions::default() }
}

/// Runs a script of gputune's own in the interpreter of a command, else in `python3` or `python`. Returns the JSON that the script
/// prints; `None` if no interpreter answers.
pub fn ask<T: DeserializeOwned>(command: &[String], cwd: &Path, script: &str, asked: &Value) -> Option<T> {
    let env = BTreeMap::new();
    let own = words::find(command, &env, cwd).interpreter;
    let mut programs = own.into_iter().chain(["python3", "python"].map(PathBuf::from));
    programs.find_map(|program| ask_of(&program, script, asked, &env, cwd))
}

/// The largest file that is read. A larger file is identified by its size and modification time; no script is that large.
const LARGEST: u64 = 64 << 20;

/// Returns the digest of a file, which is not cryptographic; `None` if the file cannot be read.
fn digest(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let data = file.metadata().ok()?;
    if data.len() > LARGEST {
        let changed = data.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        return Some(format!("{}-{}", data.len(), changed.as_nanos()));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    Some(format!("{:016x}", fold(&text)))
}

/// Folds all bytes into 64 bits by the multiplications of FNV-1a. A rotation lets high bits affect low bits.
fn fold(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xCBF2_9CE4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01B3;
    let mut digest = BASIS ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        digest = (digest ^ u64::from_le_bytes(word)).wrapping_mul(PRIME).rotate_left(29);
    }
    digest
}

/// Runs a script in an interpreter with a JSON argument; `None` if it prints no JSON.
fn ask_of<T: DeserializeOwned>(
    program: &Path,
    script: &str,
    asked: &Value,
    env: &BTreeMap<String, String>,
    cwd: &Path,
) -> Option<T> {
    let mut command = Command::new(program);
    command.args(["-c", script, &asked.to_string()]).envs(env).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(cwd);
    let text = output_within(&mut command, PATIENCE)?;
    // The environment's start-up code may print before the script does.
    let begin = text.windows(2).rposition(|pair| pair == b"\n{").map_or(0, |at| at + 1);
    serde_json::from_slice(&text[begin..]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn conditions_of(folder: &Path, command: &str) -> Conditions {
        let cwd = folder.canonicalize().unwrap();
        of_command(command.split(' ').map(str::to_owned).collect(), &BTreeMap::new(), &cwd)
    }

    fn names(conditions: &Conditions) -> Vec<&str> {
        conditions.code.keys().map(String::as_str).collect()
    }

    fn project() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("train.py", "import json, os\nimport model\nfrom data.loader import load\nfrom data import *\n"),
            ("by_name.py", "import importlib\nimportlib.import_module('data.' + 'unused')\n"),
            ("model.py", "def f():\n    from layers import block\n"),
            ("layers/block.py", "from . import norm\n"),
            ("layers/norm.py", "x = 1\n"),
            ("data/__init__.py", ""),
            ("data/loader.py", "from ..nowhere import x\n"),
            ("data/unused.py", ""),
            ("conf.yaml", "lr: 1\n"),
            ("train", "\u{7f}ELF"),
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn the_script_and_what_it_imports_from_the_project_are_found_and_nothing_of_it_is_run() {
        let has_python = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
        if !has_python {
            return;
        }
        let folder = project();
        let train = || conditions_of(folder.path(), "python3 train.py --config conf.yaml");
        let found = train();
        let data = ["conf.yaml", "data/__init__.py", "data/loader.py"];
        let code = ["layers/block.py", "layers/norm.py", "model.py", "train.py"];
        assert_eq!(names(&found), [&data[..], &code].concat());
        let interpreter = found.interpreter.clone().unwrap();
        assert!(interpreter.path.contains("python") && interpreter.version.starts_with("3."), "{interpreter}");
        fs::write(folder.path().join("layers/norm.py"), "x = 2\n").unwrap();
        let changed = train();
        let differs = |name: &&&str| found.code[**name] != changed.code[**name];
        assert_eq!(names(&found).iter().filter(differs).collect::<Vec<_>>(), [&"layers/norm.py"]);
        assert_eq!(names(&conditions_of(folder.path(), "python3 -m layers.block")), code[..2]);
        // A script that imports by computed names may depend on any file in its folder.
        assert!(names(&conditions_of(folder.path(), "python3 by_name.py")).contains(&"data/unused.py"));
    }

    #[test]
    fn what_is_no_python_is_its_own_file() {
        let folder = project();
        let found = conditions_of(folder.path(), "./train --fast");
        assert_eq!((names(&found), &found.interpreter), (vec!["train"], &None));
        assert_eq!(conditions_of(folder.path(), "sleep 1"), Conditions::default());
    }

    #[test]
    fn every_byte_counts() {
        let text = b"for step in range(100):\n    train(step)\n".repeat(50);
        let whole = fold(&text);
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] ^= 1;
            assert_ne!(fold(&other), whole, "byte {at}");
        }
        assert_ne!(fold(b"a\0"), fold(b"a"));
        assert_ne!(fold(b""), fold(b"\0\0\0\0\0\0\0\0"));
    }
}
