//! Finds the conditions of a job's trials besides its settings: the interpreter, its frameworks, the script, and the script's
//! imports from the project. It reads the command before any part of the job runs.

mod python;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::probe::StepTemplate;
use crate::search::journal::{Conditions, Interpreter};

/// Returns the interpreter, the frameworks and the code of a job; limits and the measuring method are added elsewhere.
///
/// Leaves out words of the command that depend on settings, and everything that cannot be found.
pub fn conditions(template: &StepTemplate) -> Conditions {
    let fixed = |text: &crate::probe::Template| text.names().next().is_none();
    let command = template.command.iter().filter(|word| fixed(word)).map(|word| word.text().to_owned()).collect();
    let env = template.env.iter().filter(|(_, text)| fixed(text));
    let env: BTreeMap<String, String> = env.map(|(name, text)| (name.clone(), text.text().to_owned())).collect();
    of_command(command, &env, &template.cwd)
}

fn of_command(command: Vec<String>, env: &BTreeMap<String, String>, cwd: &Path) -> Conditions {
    let found = words::find(&command, env, cwd);
    let asked = found.interpreter.as_ref().and_then(|program| python::look(program, &found, env, cwd));
    let mut files: BTreeSet<PathBuf> = found.files.iter().cloned().collect();
    let interpreter = found.interpreter.as_ref().map(|program| Interpreter {
        path: asked
            .as_ref()
            .map(|told| told.executable.clone())
            .filter(|path| !path.is_empty())
            .unwrap_or_else(|| program.display().to_string()),
        version: asked.as_ref().map(|told| told.version.clone()).unwrap_or_default(),
    });
    let mut frameworks = BTreeMap::new();
    if let Some(told) = asked {
        files.extend(told.files);
        frameworks = told.frameworks;
    }
    let code = files.into_iter().filter_map(|path| Some((shown(&path, cwd), digest(&path)?))).collect();
    Conditions { interpreter, frameworks, code, ..Conditions::default() }
}

/// Runs a script of gputune's own in the interpreter of a command, else in `python3` or `python`. Returns the JSON that the script
/// prints; `None` if no interpreter answers.
pub fn ask<T: serde::de::DeserializeOwned>(
    command: &[String],
    cwd: &Path,
    script: &str,
    asked: &serde_json::Value,
) -> Option<T> {
    let env = BTreeMap::new();
    let own = words::find(command, &env, cwd).interpreter;
    let programs = own.into_iter().chain(["python3", "python"].map(PathBuf::from));
    programs.into_iter().find_map(|program| python::ask(&program, script, asked, &env, cwd))
}

/// Returns a path relative to the job's folder, if it is below.
fn shown(path: &Path, cwd: &Path) -> String {
    path.strip_prefix(cwd).unwrap_or(path).display().to_string()
}

/// The largest file that is read. A larger file is identified by its size and modification time; no script is that large.
const LARGEST: u64 = 64 << 20;

/// Returns the digest of a file; `None` if it cannot be read. It guards against oversight, not against deception.
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

/// Folds all bytes into 64 bits, eight at a time, by the multiplications of FNV-1a with a rotation, so that high bits
/// affect low ones.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn conditions_of(folder: &Path, command: &[&str]) -> Conditions {
        let cwd = folder.canonicalize().unwrap();
        of_command(command.iter().map(|&word| word.to_owned()).collect(), &BTreeMap::new(), &cwd)
    }

    fn names(conditions: &Conditions) -> Vec<&str> {
        conditions.code.keys().map(String::as_str).collect()
    }

    fn project() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("train.py", "import json, os\nimport model\nfrom data.loader import load\nfrom data import *\n");
        write("model.py", "def f():\n    from layers import block\n");
        write("layers/block.py", "from . import norm\n");
        write("layers/norm.py", "x = 1\n");
        write("data/__init__.py", "");
        write("data/loader.py", "from ..nowhere import x\n");
        write("data/unused.py", "");
        write("conf.yaml", "lr: 1\n");
        folder
    }

    fn has_python() -> bool {
        std::process::Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success())
    }

    #[test]
    fn the_script_and_what_it_imports_from_the_project_are_found_and_nothing_of_it_is_run() {
        if !has_python() {
            return;
        }
        let folder = project();
        let found = conditions_of(folder.path(), &["python3", "train.py", "--config", "conf.yaml"]);
        assert_eq!(
            names(&found),
            [
                "conf.yaml",
                "data/__init__.py",
                "data/loader.py",
                "layers/block.py",
                "layers/norm.py",
                "model.py",
                "train.py"
            ]
        );
        let interpreter = found.interpreter.clone().unwrap();
        assert!(interpreter.path.contains("python") && interpreter.version.starts_with("3."), "{interpreter}");
        fs::write(folder.path().join("layers/norm.py"), "x = 2\n").unwrap();
        let changed = conditions_of(folder.path(), &["python3", "train.py", "--config", "conf.yaml"]);
        let differs = |name: &&&str| found.code[**name] != changed.code[**name];
        assert_eq!(names(&found).iter().filter(differs).collect::<Vec<_>>(), [&"layers/norm.py"]);
        assert_eq!(
            names(&conditions_of(folder.path(), &["python3", "-m", "layers.block"])),
            ["layers/block.py", "layers/norm.py"]
        );
    }

    #[test]
    fn a_script_that_imports_by_name_depends_on_all_beside_it() {
        if !has_python() {
            return;
        }
        let folder = project();
        fs::write(folder.path().join("train.py"), "import importlib\nimportlib.import_module('data.' + 'unused')\n")
            .unwrap();
        assert!(names(&conditions_of(folder.path(), &["python3", "train.py"])).contains(&"data/unused.py"));
    }

    #[test]
    fn what_is_no_python_is_its_own_file() {
        let folder = project();
        fs::write(folder.path().join("train"), "\u{7f}ELF").unwrap();
        let found = conditions_of(folder.path(), &["./train", "--fast"]);
        assert_eq!((names(&found), &found.interpreter), (vec!["train"], &None));
        assert_eq!(conditions_of(folder.path(), &["sleep", "1"]), Conditions::default());
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
