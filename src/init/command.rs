//! Reads the command of a training run word by word: its launcher, its script, and the command that asks for help. Also reads a
//! shell script around a training run: the command that it runs, and if it passes its arguments on.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

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
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "fish"];

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
    wrapped: Option<Wrapped>,
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

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn is_python(word: &str) -> bool {
    base(word).starts_with("python") && !word.ends_with(".py")
}

/// The bytes of a shell script that are read.
const MOST_BYTES: u64 = 64 * 1024;
/// Words that may precede a command and run it unchanged.
const RUNNERS: &[&str] = &["exec", "nohup", "time", "command", "srun", "env"];
/// The notations for all arguments of a shell script.
const ALL_ARGUMENTS: &[&str] = &["$@", "${@}", "$*"];

/// The command that a shell script runs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wrapped {
    command: Box<Command>,
    /// True if the script passes its arguments on to the command.
    forwards: bool,
    /// The variables that the script sets whatever the environment has.
    sets: Vec<String>,
}

impl Command {
    /// Reads the shell script that a command runs, if any; the script's first training line becomes the inner command.
    #[must_use]
    pub fn looked_into(mut self, cwd: &Path, python: &str) -> Self {
        let text = shell_script(&self, cwd).filter(|_| self.script_word().is_none());
        self.wrapped = text.and_then(|text| {
            let lines = shell_lines(&text);
            let sets = lines.iter().flat_map(|line| variables_of(line)).collect();
            let wrapped = lines.iter().find_map(|line| trains(line, python))?;
            Some(Wrapped { sets, ..wrapped })
        });
        self
    }

    /// Returns true if the shell script around the command sets this variable itself.
    pub(super) fn sets(&self, variable: &str) -> bool {
        self.wrapped.as_ref().is_some_and(|wrapped| wrapped.sets.iter().any(|name| name == variable))
    }
}

/// Returns the text of the shell script that a command names.
fn shell_script(command: &Command, cwd: &Path) -> Option<String> {
    let program = command.words.first()?;
    let is_shell = SHELLS.contains(&base(program));
    let file = if is_shell { command.words.get(1).filter(|word| !word.starts_with('-'))? } else { program };
    let mut bytes = Vec::new();
    fs::File::open(cwd.join(file)).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let first = text.lines().next().unwrap_or_default();
    let has_shell =
        first.starts_with("#!") && SHELLS.iter().any(|shell| first.split(['/', ' ']).any(|word| word == *shell));
    (is_shell || has_shell).then_some(text)
}

/// Returns the lines of a script without comments; lines that end with a backslash are joined.
fn shell_lines(text: &str) -> Vec<String> {
    let whole = text.replace("\\\n", " ");
    whole.lines().map(|line| line.trim().to_owned()).filter(|line| !line.starts_with('#')).collect()
}

/// Returns the training command in a line: a command that runs a Python script.
fn trains(line: &str, python: &str) -> Option<Wrapped> {
    let mut words = shell_words(line);
    let end =
        words.iter().position(|word| matches!(word.as_str(), "|" | "||" | "&&" | ";" | "&" | ">" | ">>" | "2>&1"));
    words.truncate(end.unwrap_or(words.len()));
    let is_front = |word: &&String| RUNNERS.contains(&word.as_str()) || assignment(word).is_some();
    let front = words.iter().take_while(is_front).count();
    words.drain(..front);
    let forwards = words.iter().any(|word| ALL_ARGUMENTS.contains(&word.as_str()));
    words.retain(|word| !ALL_ARGUMENTS.contains(&word.as_str()));
    let command = Command::new(words, python);
    let is_training = command.script_word().is_some() && command.words.len() > 1;
    is_training.then(|| Wrapped { command: Box::new(command), forwards, sets: Vec::new() })
}

/// Returns name and value of an assignment such as `A=1`.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
}

/// Returns the variables that a line sets at its front. A value such as `${A:-1}` keeps the value of the environment.
fn variables_of(line: &str) -> Vec<String> {
    let words = shell_words(line);
    let is_front =
        |word: &&String| word.as_str() == "export" || RUNNERS.contains(&word.as_str()) || assignment(word).is_some();
    let set = words.iter().take_while(is_front).filter_map(|word| assignment(word));
    let is_own =
        |(name, value): &(&str, &str)| !value.contains(&format!("${name}")) && !value.contains(&format!("${{{name}"));
    set.filter(is_own).map(|(name, _)| name.to_owned()).collect()
}

/// Splits a line into words without their quotes; variables stay as written.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut open, mut quote) = (Vec::new(), String::new(), false, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(known), c) if c == known => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, open) = (Some(c), true),
            (None, ';') => {
                words.extend((open || !word.is_empty()).then(|| std::mem::take(&mut word)));
                words.push(";".to_owned());
                open = false;
            }
            (None, c) if c.is_whitespace() => {
                words.extend((open || !word.is_empty()).then(|| std::mem::take(&mut word)));
                open = false;
            }
            (None, c) => word.push(c),
        }
    }
    words.extend((open || !word.is_empty()).then_some(word));
    words
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
            ("python -m a.train --x", "a.train", None, 1, "python -m a.train --help"),
            ("torchrun -m a.train --x", "a.train", Some("torchrun"), 1, "python3 -m a.train --help"),
            (
                "accelerate launch --num_processes=2 --module a.b fit",
                "a.b",
                Some("accelerate"),
                2,
                "python3 -m a.b fit --help",
            ),
            ("python -m a.train config/small.py", "a.train", None, 1, "python -m a.train config/small.py --help"),
            ("python train.py -m resnet", "train.py", None, 1, "python train.py --help"),
            ("uv run python -m a.train", "a.train", None, 1, "uv run python -m a.train --help"),
            ("uv run -m a.train", "a.train", None, 1, "uv run -m a.train --help"),
            ("uv run torchrun --nproc-per-node=2 t.py", "t.py", Some("torchrun"), 2, "uv run python3 t.py --help"),
            ("./train --size 3", "./train", None, 1, "./train --help"),
            ("uv run train.py x=1", "train.py", None, 1, "uv run train.py x=1 --help"),
        ] {
            let command = command(line);
            assert_eq!((command.name(), command.launcher(), command.ranks()), (name, launcher, ranks), "{line}");
            assert_eq!(command.asking_for_help("python3").join(" "), help, "{line}");
        }
        assert!(!command("bash -c x").takes_arguments() && command("bash train.sh").takes_arguments());
    }

    #[test]
    fn the_line_that_trains_is_found_in_a_shell_script() {
        let looked_into = |line: &str, script: &str| {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("run.sh"), script).unwrap();
            command(line).looked_into(folder.path(), "python3")
        };
        for (text, inner, forwards) in [
            ("set -e\nexport A=1\nGPU=0 python train.py --bs 4 \"$@\" > log\n", "python train.py --bs 4", true),
            ("torchrun --nnodes=2 \\\n  train.py \\\n  --bs 4\n", "torchrun --nnodes=2 train.py --bs 4", false),
            ("# python old.py\nexec python -m pkg.train 'a b'; echo done\n", "python -m pkg.train a b", false),
        ] {
            let command = looked_into("bash run.sh", text);
            let wrapped = command.wrapped.as_ref().unwrap();
            assert_eq!((wrapped.command.words.join(" ").as_str(), wrapped.forwards), (inner, forwards), "{text}");
            assert_eq!(command.takes_arguments(), forwards);
        }
        let text = "export A=1 B=2\nC=3 exec python t.py D=4\nexport E=${E:-5}\nF=$F:x\n";
        let sets: Vec<String> = text.lines().flat_map(variables_of).collect();
        assert_eq!(sets, ["A", "B", "C"]);
        assert_eq!(looked_into("./run.sh", "#!/bin/sh\ntouch ran\n").wrapped, None);
    }
}
