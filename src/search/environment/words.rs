//! Finds the files that the words of a command name: the interpreter, scripts, modules, files of settings.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) interpreter: Option<PathBuf>,
    /// Scripts and files of settings that the command names, and the project's own program.
    pub(super) files: Vec<PathBuf>,
    /// Modules that the command names after `-m`.
    pub(super) modules: Vec<String>,
}

/// Launchers that are Python scripts. The first line of a launcher names the Python of the environment that it is
/// installed in.
const LAUNCHERS: &[&str] = &["torchrun", "accelerate", "deepspeed", "lightning", "composer", "fabric", "litgpt"];

/// Programs that run the rest of their command on another machine or in a container, so that nothing found here counts.
const ELSEWHERE: &[&str] = &["docker", "podman", "nerdctl", "apptainer", "singularity", "enroot", "kubectl", "ssh"];

/// Programs that run the rest of their command in the environment of a project.
const IN_PROJECT: &[&str] = &["uv", "poetry", "pdm", "rye", "hatch", "pixi"];

/// Endings of files that define the training.
const ENDINGS: &[&str] = &["py", "sh", "bash", "yaml", "yml", "toml", "json", "cfg", "ini", "gin"];

/// Folders of programs that do not belong to a project.
const SYSTEM: &[&str] = &["/bin", "/sbin", "/usr", "/opt", "/lib", "/snap", "/nix", "/run", "/proc"];

/// Bytes of the largest shell script that is read for the commands in it.
const LARGEST: u64 = 256 * 1024;

/// Finds the files and modules that a command names; nothing if the command runs on another machine or in a container.
pub(super) fn find(command: &[String], env: &BTreeMap<String, String>, cwd: &Path) -> Found {
    let place = Place { env, cwd };
    let mut found = Found::default();
    let words = split(command);
    if words.first().is_some_and(|word| ELSEWHERE.contains(&base(word))) {
        return found;
    }
    place.look(&words, &mut found);
    for script in found.files.clone() {
        if is_shell_script(&script)
            && let Ok(text) = fs::read_to_string(&script)
        {
            place.look(&split(&[text]), &mut found);
        }
    }
    found
}

struct Place<'p> {
    env: &'p BTreeMap<String, String>,
    cwd: &'p Path,
}

impl Place<'_> {
    fn look(&self, words: &[String], found: &mut Found) {
        for (at, word) in words.iter().enumerate() {
            if found.interpreter.is_none() {
                found.interpreter = self.interpreter(word);
            }
            if word == "-m" && found.interpreter.is_some() {
                found.modules.extend(words.get(at + 1).filter(|name| is_module(name)).cloned());
            }
            // `--config=conf.yaml` also names a file.
            let value = word.split_once('=').map_or(word.as_str(), |(_, value)| value);
            let path = self.cwd.join(value);
            let is_system = || SYSTEM.iter().any(|folder| path.starts_with(folder));
            let is_program = at == 0 && word.contains('/') && !is_python(base(word)) && !is_system();
            let is_known = path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| *known == ending));
            if (is_program || is_known) && path.is_file() && !found.files.contains(&path) {
                found.files.push(path);
            }
        }
    }

    /// Returns the Python that a word stands for: the word itself, or the Python of a launcher's environment or of a script.
    fn interpreter(&self, word: &str) -> Option<PathBuf> {
        let name = base(word);
        if is_python(name) {
            return self.program(word);
        }
        if IN_PROJECT.contains(&name) {
            let environment = self.cwd.ancestors().map(|folder| folder.join(".venv/bin/python"));
            return environment.into_iter().find(|python| python.is_file());
        }
        let script = if LAUNCHERS.contains(&name) {
            self.program(word)?
        } else if word.ends_with(".py") {
            self.cwd.join(word)
        } else {
            return None;
        };
        let first = first_line(&script)?;
        let named = first.strip_prefix("#!")?.split_whitespace().find(|word| is_python(base(word)))?;
        self.program(named)
    }

    /// Returns the file of a program, as execvp(3) finds it.
    fn program(&self, word: &str) -> Option<PathBuf> {
        if word.contains('/') {
            return Some(self.cwd.join(word)).filter(|path| path.is_file());
        }
        let path = self.env.get("PATH").map(Into::into).or_else(|| std::env::var_os("PATH"))?;
        let is_program = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
        };
        std::env::split_paths(&path).map(|folder| self.cwd.join(folder).join(word)).find(is_program)
    }
}

/// Splits a command into words, including the words of a shell line.
fn split(command: &[String]) -> Vec<String> {
    let ends = |c: char| c.is_whitespace() || ";&|()\"'`<>".contains(c);
    let words = command.iter().flat_map(|word| word.split(ends).filter(|word| !word.is_empty()));
    words.map(str::to_owned).collect()
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Returns true for names such as `python`, `python3`, `python3.12`, `python3.13t` and `pypy3`.
fn is_python(name: &str) -> bool {
    let rest = name.strip_prefix("python").or_else(|| name.strip_prefix("pypy"));
    rest.is_some_and(|rest| rest.trim_end_matches('t').chars().all(|c| c.is_ascii_digit() || c == '.'))
}

fn is_module(name: &str) -> bool {
    name.split('.').all(|part| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_'))
}

fn is_shell_script(path: &Path) -> bool {
    let is_small = fs::metadata(path).is_ok_and(|data| data.len() <= LARGEST);
    let is_named = path.extension().is_some_and(|ending| ending == "sh" || ending == "bash");
    let is_marked = || first_line(path).is_some_and(|line| line.starts_with("#!") && line.trim_end().ends_with("sh"));
    is_small && (is_named || is_marked())
}

fn first_line(path: &Path) -> Option<String> {
    let mut start = [0; 256];
    let count = fs::File::open(path).ok()?.read(&mut start).ok()?;
    Some(String::from_utf8_lossy(&start[..count]).lines().next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_is_found_through_launchers_shells_and_scripts() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir(folder.join("bin")).unwrap();
        for (name, text) in [
            ("bin/python3.12", ""),
            ("bin/torchrun", "#!/usr/bin/env python3.12\n"),
            ("train.py", "#!/usr/bin/env python3.12\n"),
            ("run.sh", "#!/bin/sh\nset -e\nexec torchrun --nproc 2 train.py \"$@\"\n"),
        ] {
            fs::write(folder.join(name), text).unwrap();
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let env = BTreeMap::from([("PATH".to_owned(), folder.join("bin").display().to_string())]);
        let found =
            |command: &[&str]| find(&command.iter().map(|&word| word.to_owned()).collect::<Vec<_>>(), &env, folder);
        for (command, files) in [
            (&["python3.12", "-u", "train.py"][..], &["train.py"][..]),
            (&["env", "A=b", "nice", "python3.12", "train.py"], &["train.py"]),
            (&["torchrun", "--nproc-per-node=2", "train.py"], &["train.py"]),
            (&["sh", "-c", "cd . && python3.12 train.py; echo done"], &["train.py"]),
            (&["./train.py"], &["train.py"]),
            (&["./run.sh"], &["run.sh", "train.py"]),
        ] {
            let found = found(command);
            assert_eq!(found.interpreter, Some(folder.join("bin/python3.12")), "{command:?}");
            let names: Vec<&str> = found.files.iter().map(|path| base(path.to_str().unwrap())).collect();
            assert_eq!(names, files, "{command:?}");
        }
        assert_eq!(found(&["docker", "run", "image", "python3.12", "train.py"]), Found::default());
        assert_eq!(found(&["python3.12", "-m", "pkg.train"]).modules, ["pkg.train"]);
    }
}
