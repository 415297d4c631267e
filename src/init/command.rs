//! Reads the command of a training run word by word: its launcher, its script, and the command that asks for help.

use std::path::{Path, PathBuf};

use super::wrapper::Wrapped;

/// A program that starts a script once or on each device.
#[derive(Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The words of the launcher, such as `["accelerate", "launch"]`.
    pub words: &'static [&'static str],
    /// The options for the number of processes on this machine.
    pub ranks: &'static [&'static str],
}

/// The known launchers: PyTorch's (its documentation, "torchrun"), Accelerate's and DeepSpeed's ("Launching").
pub const LAUNCHERS: &[Launcher] = &[
    Launcher { words: &["torchrun"], ranks: &["--nproc-per-node", "--nproc_per_node"] },
    Launcher { words: &["-m", "torch.distributed.run"], ranks: &["--nproc-per-node", "--nproc_per_node"] },
    Launcher { words: &["-m", "torch.distributed.launch"], ranks: &["--nproc-per-node", "--nproc_per_node"] },
    Launcher { words: &["accelerate", "launch"], ranks: &["--num_processes", "--num-processes"] },
    Launcher { words: &["deepspeed"], ranks: &["--num_gpus"] },
];

/// Programs that interpret a command line themselves, so that nothing can be appended to it.
pub(super) const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "fish"];

/// A command of a training run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments.
    pub words: Vec<String>,
    /// The index of the script among the words.
    script_at: Option<usize>,
    /// True if the command names the script as a module, after `-m`.
    is_module: bool,
    launcher: Option<&'static Launcher>,
    /// The index of the launcher's first word.
    launcher_at: usize,
    /// The inner command, if the command is a shell script that could be read.
    pub(super) wrapped: Option<Wrapped>,
}

/// The most words in front of a launcher or an interpreter, such as `uv run` or `nice -n 5`: a round number.
const FRONT: usize = 6;

impl Command {
    /// Reads a command; a single Python script is run with `python`.
    pub fn new(mut words: Vec<String>, python: &str) -> Self {
        if words.first().is_some_and(|first| first.ends_with(".py") && !first.starts_with('-')) {
            words.insert(0, python.to_owned());
        }
        let launched = LAUNCHERS.iter().find_map(|launcher| {
            let plain: Vec<&str> = words.iter().map(|word| base(word)).collect();
            let at = plain.windows(launcher.words.len()).take(FRONT).position(|window| window == launcher.words)?;
            Some((launcher, at))
        });
        let script = words.iter().position(|word| word.ends_with(".py") && !word.starts_with('-'));
        let behind = launched.map(|(launcher, at)| at + launcher.words.len());
        let module = module_at(&words, behind);
        let (script_at, is_module) = match (script, module) {
            (Some(script), Some(module)) if module < script => (Some(module), true),
            (Some(script), _) => (Some(script), false),
            (None, module) => (module, module.is_some()),
        };
        let (launcher, launcher_at) = launched.map_or((None, 0), |(launcher, at)| (Some(launcher), at));
        Self { words, script_at, is_module, launcher, launcher_at, wrapped: None }
    }

    /// Returns the training command: the command in the shell script, or this command.
    pub fn inner(&self) -> &Self {
        self.wrapped.as_ref().map_or(self, |wrapped| &wrapped.command)
    }

    /// Returns the word that names the Python script or module, if there is one.
    pub fn script_word(&self) -> Option<&str> {
        self.words.get(self.script_at?).map(String::as_str)
    }

    /// Returns the launcher's name, as the command writes it.
    pub fn launcher(&self) -> Option<&'static str> {
        self.inner()
            .launcher
            .and_then(|launcher| launcher.words.first().map(|first| if *first == "-m" { "torchrun" } else { *first }))
    }

    /// Returns the script's file, if it is a Python script.
    pub fn script(&self, cwd: &Path) -> Option<PathBuf> {
        if let Some(wrapped) = &self.wrapped {
            return wrapped.command.script(cwd);
        }
        let word = self.words.get(self.script_at?)?;
        if !self.is_module {
            return Some(cwd.join(word));
        }
        let parts: PathBuf = word.split('.').collect();
        let folders = [cwd.to_owned(), cwd.join("src")];
        let files = folders.iter().map(|folder| folder.join(&parts));
        files.flat_map(|path| [path.with_extension("py"), path.join("__main__.py")]).find(|file| file.is_file())
    }

    /// Returns the script as the command names it, or the program.
    pub fn name(&self) -> &str {
        let at = self.script_at.unwrap_or(0);
        self.words.get(at).map_or("", String::as_str)
    }

    /// Returns the script's arguments: the words after it.
    pub fn told(&self) -> &[String] {
        self.words.get(self.told_at()..).unwrap_or_default()
    }

    /// Returns the index of the script's first argument.
    pub fn told_at(&self) -> usize {
        self.script_at.map_or(1, |at| at + 1)
    }

    /// Returns the number of processes of the script on this machine; 1 if the command does not state it.
    pub fn ranks(&self) -> usize {
        if let Some(wrapped) = &self.wrapped {
            return wrapped.command.ranks();
        }
        let options = self.launcher.map_or(&[][..], |launcher| launcher.ranks);
        let value = self.words.iter().enumerate().find_map(|(at, word)| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let next = self.words.get(at + 1).map_or("", String::as_str);
            options.contains(&name).then_some(if value.is_empty() { next } else { value })
        });
        value.and_then(|value| value.parse().ok()).filter(|&ranks| ranks > 0).unwrap_or(1)
    }

    /// Returns true if arguments can be appended. They cannot be appended to the command line of a shell, which is a single word.
    pub fn takes_arguments(&self) -> bool {
        if let Some(wrapped) = &self.wrapped {
            return wrapped.forwards;
        }
        let program = self.words.first().map_or("", |program| base(program));
        !(SHELLS.contains(&program)
            && self.words.get(1).is_some_and(|word| word.starts_with('-') && word.contains('c')))
    }

    /// Returns the command that prints the help. It runs the script without its launcher and options, but keeps the words before
    /// the options, which may select a subcommand (`train.py fit --help`).
    pub fn asking_for_help(&self, python: &str) -> Vec<String> {
        if let Some(wrapped) = &self.wrapped {
            return wrapped.command.asking_for_help(python);
        }
        let behind = self.told_at();
        let front = self.words.get(..behind).unwrap_or_default();
        let mut words: Vec<String> = match (self.launcher, self.script_at) {
            (Some(_), Some(at)) => {
                let module = self.is_module.then(|| "-m".to_owned());
                let before = self.words.get(..self.launcher_at).unwrap_or_default();
                let has_python = before.iter().any(|word| is_python(word));
                let python = (!has_python).then(|| self.beside_launcher().unwrap_or_else(|| python.to_owned()));
                before.iter().cloned().chain(python).chain(module).chain(self.words.get(at).cloned()).collect()
            }
            _ => front.to_vec(),
        };
        let rest = self.words.get(behind..).unwrap_or_default();
        words.extend(rest.iter().take_while(|word| !word.starts_with('-')).cloned());
        words.push("--help".to_owned());
        words
    }

    /// Returns the interpreter in the launcher's folder, if the command names the launcher by its path.
    fn beside_launcher(&self) -> Option<String> {
        let folder = Path::new(self.words.get(self.launcher_at)?).parent().filter(|folder| folder.is_absolute())?;
        let python = ["python3", "python"].into_iter().map(|name| folder.join(name)).find(|file| file.is_file())?;
        python.to_str().map(str::to_owned)
    }
}

/// Returns the index of a module's name, after the `-m` of an interpreter, of `uv run` or of a launcher. The launcher's own words
/// begin at `behind`.
fn module_at(words: &[String], behind: Option<usize>) -> Option<usize> {
    let python = words.iter().take(FRONT).position(|word| is_python(word)).map(|at| at + 1);
    let runner = words.windows(2).take(FRONT).position(|pair| base(&pair[0]) == "uv" && pair[1] == "run");
    let from = behind.or(python).or(runner)?;
    let is_module = |word: &String| matches!(word.as_str(), "-m" | "--module");
    let at = words.iter().skip(from).position(is_module).map(|at| from + at + 1)?;
    (at < words.len()).then_some(at)
}

pub(super) fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn is_python(word: &str) -> bool {
    base(word).starts_with("python") && !word.ends_with(".py")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Command {
        Command::new(line.split(' ').map(str::to_owned).collect(), "python3")
    }

    #[test]
    fn the_script_is_found_behind_its_launcher() {
        for (line, name, launcher, ranks, help) in [
            ("train.py", "train.py", None, 1, "python3 train.py --help"),
            ("python -u train.py --lr 1", "train.py", None, 1, "python -u train.py --help"),
            ("main.py fit --config x.yaml", "main.py", None, 1, "python3 main.py fit --help"),
            ("torchrun --nproc-per-node 2 train.py --x", "train.py", Some("torchrun"), 2, "python3 train.py --help"),
            ("/opt/bin/torchrun --nproc_per_node=4 t.py", "t.py", Some("torchrun"), 4, "python3 t.py --help"),
            (
                "python -m torch.distributed.run --nproc-per-node 8 t.py",
                "t.py",
                Some("torchrun"),
                8,
                "python t.py --help",
            ),
            ("accelerate launch --num_processes 2 t.py a", "t.py", Some("accelerate"), 2, "python3 t.py a --help"),
            ("deepspeed --num_gpus 4 t.py --deepspeed", "t.py", Some("deepspeed"), 4, "python3 t.py --help"),
            ("python -m package.train --x", "package.train", None, 1, "python -m package.train --help"),
            ("torchrun -m package.train --x", "package.train", Some("torchrun"), 1, "python3 -m package.train --help"),
            (
                "accelerate launch --num_processes=2 --module package.train fit",
                "package.train",
                Some("accelerate"),
                2,
                "python3 -m package.train fit --help",
            ),
            (
                "python -m package.train config/small.py",
                "package.train",
                None,
                1,
                "python -m package.train config/small.py --help",
            ),
            ("python train.py -m resnet", "train.py", None, 1, "python train.py --help"),
            ("uv run python -m package.train", "package.train", None, 1, "uv run python -m package.train --help"),
            ("uv run -m package.train", "package.train", None, 1, "uv run -m package.train --help"),
            ("uv run torchrun --nproc-per-node=2 t.py", "t.py", Some("torchrun"), 2, "uv run python3 t.py --help"),
            ("./train --size 3", "./train", None, 1, "./train --help"),
            ("uv run train.py x=1", "train.py", None, 1, "uv run train.py x=1 --help"),
        ] {
            let command = command(line);
            assert_eq!(command.name(), name, "{line}");
            assert_eq!(command.launcher(), launcher, "{line}");
            assert_eq!(command.ranks(), ranks, "{line}");
            assert_eq!(command.asking_for_help("python3").join(" "), help, "{line}");
        }
        assert!(!command("bash -c x").takes_arguments() && command("bash train.sh").takes_arguments());
    }
}
