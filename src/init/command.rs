//! Reads the command of a training run word by word: its launcher, its script, and the command that asks for help. Also reads a
//! shell script around a training run: the command that it runs, and if it passes its arguments on.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::report::emit::is_shell_line;

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

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "fish"];

/// A command of a training run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments.
    pub words: Vec<String>,
    /// The index of the program behind runners such as `srun -n 1`.
    program_at: usize,
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

/// The launcher or interpreter must begin within the first 6 words behind the runners (own choice).
const FRONT: usize = 6;

impl Command {
    /// Reads a command. Inserts `python` if the first word is a Python file.
    pub fn new(mut words: Vec<String>, python: &str) -> Self {
        if words.first().is_some_and(|first| first.ends_with(".py") && !first.starts_with('-')) {
            words.insert(0, python.to_owned());
        }
        let program_at = Some(front(&words)).filter(|&at| at < words.len()).unwrap_or(0);
        let plain: Vec<&str> = words.iter().skip(program_at).map(|word| base(word)).collect();
        let launched = LAUNCHERS.iter().find_map(|launcher| {
            let at = plain.windows(launcher.words.len()).take(FRONT).position(|window| window == launcher.words)?;
            Some((launcher, program_at + at))
        });
        let script = words.iter().position(|word| word.ends_with(".py") && !word.starts_with('-'));
        let behind = launched.map(|(launcher, at)| at + launcher.words.len());
        let module = module_at(&words, program_at, behind);
        let (script_at, is_module) = match (script, module) {
            (Some(script), Some(module)) if module < script => (Some(module), true),
            (Some(script), _) => (Some(script), false),
            (None, module) => (module, module.is_some()),
        };
        let (launcher, launcher_at) = launched.map_or((None, 0), |(launcher, at)| (Some(launcher), at));
        Self { words, program_at, script_at, is_module, launcher, launcher_at, wrapped: None }
    }

    /// Returns the training command: the command in the shell script, or this command.
    pub fn inner(&self) -> &Self {
        self.wrapped.as_ref().map_or(self, |wrapped| &wrapped.command)
    }

    /// Returns the word that names the Python script or module, if there is one.
    pub fn script_word(&self) -> Option<&str> {
        self.words.get(self.script_at?).map(String::as_str)
    }

    /// Returns the launcher's usual name, such as `torchrun`.
    pub fn launcher(&self) -> Option<&'static str> {
        let first = *self.inner().launcher?.words.first()?;
        Some(if first == "-m" { "torchrun" } else { first })
    }

    /// Returns the script's file, if it is a Python script.
    pub fn script(&self, cwd: &Path) -> Option<PathBuf> {
        let command = self.inner();
        let word = command.words.get(command.script_at?)?;
        if !command.is_module {
            return Some(cwd.join(word));
        }
        let parts: PathBuf = word.split('.').collect();
        let folders = [cwd.to_owned(), cwd.join("src")];
        let files = folders.iter().map(|folder| folder.join(&parts));
        files.flat_map(|path| [path.with_extension("py"), path.join("__main__.py")]).find(|file| file.is_file())
    }

    /// Returns the script as the command names it, or the program.
    pub fn name(&self) -> &str {
        let at = self.script_at.unwrap_or(self.program_at);
        self.words.get(at).map_or("", String::as_str)
    }

    /// Returns the program, such as the one behind `srun -n 1`.
    pub fn program(&self) -> &str {
        self.words.get(self.program_at).map_or("", String::as_str)
    }

    /// Returns the script's arguments: the words after it.
    pub fn told(&self) -> &[String] {
        self.words.get(self.told_at()..).unwrap_or_default()
    }

    /// Returns the index of the script's first argument.
    pub fn told_at(&self) -> usize {
        self.script_at.unwrap_or(self.program_at) + 1
    }

    /// Returns the number of processes of the script on this machine; 1 if the command does not state it.
    pub fn ranks(&self) -> usize {
        let command = self.inner();
        let options = command.launcher.map_or(&[][..], |launcher| launcher.ranks);
        let value = command.words.iter().enumerate().find_map(|(at, word)| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let next = command.words.get(at + 1).map_or("", String::as_str);
            options.contains(&name).then_some(if value.is_empty() { next } else { value })
        });
        value.and_then(|value| value.parse().ok()).filter(|&ranks| ranks > 0).unwrap_or(1)
    }

    /// Returns true if arguments can be appended. They cannot be appended to the command line of a shell, which is a single word.
    pub fn takes_arguments(&self) -> bool {
        let is_line = || is_shell_line(self.words.get(self.program_at..).unwrap_or_default());
        self.wrapped.as_ref().map_or_else(|| !is_line(), |wrapped| wrapped.forwards)
    }

    /// Returns the command that prints the help. It runs the script without its launcher and options, but keeps the words before
    /// the options, which may select a subcommand (`train.py fit --help`).
    pub fn asking_for_help(&self, python: &str) -> Vec<String> {
        let command = self.inner();
        let mut words: Vec<String> = match (command.launcher, command.script_at) {
            (Some(_), Some(at)) => {
                let module = command.is_module.then(|| "-m".to_owned());
                let before = command.words.get(..command.launcher_at).unwrap_or_default();
                let has_python = before.iter().any(|word| is_python(word));
                let python = (!has_python).then(|| command.beside_launcher().unwrap_or_else(|| python.to_owned()));
                before.iter().cloned().chain(python).chain(module).chain(command.words.get(at).cloned()).collect()
            }
            _ => command.words.get(..command.told_at()).unwrap_or_default().to_vec(),
        };
        words.extend(command.told().iter().take_while(|word| !word.starts_with('-')).cloned());
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

/// Returns the index of a module's name, after `-m` of an interpreter, of `uv run` or of the launcher before `behind`.
fn module_at(words: &[String], program_at: usize, behind: Option<usize>) -> Option<usize> {
    let front = words.get(program_at..).unwrap_or_default();
    let python = front.iter().take(FRONT).position(|word| is_python(word)).map(|at| program_at + at + 1);
    let is_uv = |pair: &[String]| base(&pair[0]) == "uv" && pair[1] == "run";
    let runner = front.windows(2).take(FRONT).position(is_uv).map(|at| program_at + at);
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

const MOST_BYTES: u64 = 64 * 1024;
/// Programs that run the command after them unchanged.
const RUNNERS: &[&str] = &[
    "exec", "nohup", "time", "command", "env", "nice", "ionice", "timeout", "stdbuf", "setsid", "taskset", "numactl",
    "srun", "mpirun", "mpiexec", "sudo",
];
/// Words of the shell itself in front of a command.
const KEYWORDS: &[&str] = &["if", "then", "else", "while", "do", "{", "!", "export"];
/// Programs that run a command in another environment. The command for the help needs them as well.
const ENVIRONMENTS: &[&str] = &["uv", "poetry", "pipenv", "conda", "singularity", "apptainer", "docker"];
const ALL_ARGUMENTS: &[&str] = &["$@", "${@}", "$*"];

/// The command that a shell script runs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wrapped {
    command: Box<Command>,
    /// True if the script passes its arguments on to the command.
    forwards: bool,
    /// The variables that the script always sets.
    sets: Vec<String>,
    /// The variables that the script takes from the environment, with their defaults.
    defaults: Vec<(String, String)>,
}

impl Command {
    /// Reads the shell script that a command runs, if any; the script's first training line becomes the inner command.
    #[must_use]
    pub fn looked_into(mut self, cwd: &Path, python: &str) -> Self {
        let text = shell_script(&self, cwd).filter(|_| self.script_word().is_none());
        self.wrapped = text.and_then(|text| {
            // Lines that end with a backslash are joined.
            let text = text.replace("\\\n", " ");
            let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
            let commands: Vec<_> = lines.flat_map(shell_commands).collect();
            let sets = commands.iter().flat_map(|words| variables_of(words)).collect();
            let defaults = commands.iter().flatten().flat_map(|word| defaults_in(word)).collect();
            let mut folder = PathBuf::new();
            let mut wrapped = commands.iter().find_map(|words| {
                folder.extend(changed_folder(words));
                trains(words, python)
            })?;
            wrapped.command.seen_from(&folder, cwd);
            Some(Wrapped { sets, defaults, ..wrapped })
        });
        self
    }

    /// Names the script as seen from `cwd`, if the command runs in `folder`.
    fn seen_from(&mut self, folder: &Path, cwd: &Path) {
        let Some(word) = self.script_at.and_then(|at| self.words.get_mut(at)) else { return };
        let script = folder.join(word.as_str());
        if let Some(script) = script.to_str().filter(|_| !self.is_module && cwd.join(&script).is_file()) {
            script.clone_into(word);
        }
    }

    /// Returns true if the shell script around the command sets this variable itself.
    pub(super) fn sets(&self, variable: &str) -> bool {
        self.wrapped.as_ref().is_some_and(|wrapped| wrapped.sets.iter().any(|name| name == variable))
    }

    /// Returns the variables to which the shell script around the command only gives a default, with that default.
    pub(super) fn shell_defaults(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.wrapped.iter().flat_map(|wrapped| &wrapped.defaults);
        all.map(|(name, value)| (name.as_str(), value.as_str())).filter(|(name, _)| !self.sets(name))
    }
}

/// Returns the text of the shell script that a command names.
fn shell_script(command: &Command, cwd: &Path) -> Option<String> {
    let program = command.words.get(command.program_at)?;
    let is_shell = SHELLS.contains(&base(program));
    let argument = command.words.get(command.program_at + 1);
    let file = if is_shell { argument.filter(|word| !word.starts_with('-'))? } else { program };
    let mut bytes = Vec::new();
    fs::File::open(cwd.join(file)).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let first = text.lines().next().unwrap_or_default();
    let has_shell = first.starts_with("#!") && SHELLS.iter().any(|it| first.split(['/', ' ']).any(|word| word == *it));
    (is_shell || has_shell).then_some(text)
}

/// Returns the training command in a command of a shell script, if it runs a Python script.
fn trains(words: &[String], python: &str) -> Option<Wrapped> {
    let (all, own): (Vec<String>, Vec<String>) =
        words.iter().skip(front(words)).cloned().partition(|word| ALL_ARGUMENTS.contains(&word.as_str()));
    let command = Command::new(own, python);
    command.script_word().filter(|_| !is_shell_line(&command.words))?;
    Some(Wrapped { command: Box::new(command), forwards: !all.is_empty(), sets: Vec::new(), defaults: Vec::new() })
}

/// Returns the number of words in front of a command's program: keywords, assignments, and runners with their options.
fn front(words: &[String]) -> usize {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let is_runner = RUNNERS.contains(&base(word));
        if !is_runner && !KEYWORDS.contains(&word.as_str()) && assignment(word).is_none() {
            break;
        }
        at += 1;
        // The word after an option may be its value, so the runner's arguments end at the next known program.
        let has_arguments = |word: &String| word.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        if is_runner && words.get(at).is_some_and(has_arguments) {
            at += words[at..].iter().take_while(|word| !is_program(word)).count();
        }
    }
    at
}

/// Returns true if a word is known to begin a command that may train.
fn is_program(word: &str) -> bool {
    let (name, is_script) = (base(word), word.ends_with(".py") && !word.starts_with('-'));
    let is_shell = SHELLS.contains(&name) || word.ends_with(".sh") && !word.starts_with('-');
    let is_launcher = LAUNCHERS.iter().any(|launcher| launcher.words[0] == name && name != "-m");
    let is_known = is_script || is_shell || is_launcher || is_python(word);
    is_known || RUNNERS.contains(&name) || ENVIRONMENTS.contains(&name)
}

/// Returns the folder of a `cd`, if the shell script states it.
fn changed_folder(words: &[String]) -> Option<&str> {
    match words.get(front(words)..)? {
        [cd, folder] if cd == "cd" && !folder.starts_with(['-', '~']) && !folder.contains(['$', '`']) => Some(folder),
        _ => None,
    }
}

fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
}

/// Returns the variables that a command sets at its front. A value such as `${A:-1}` keeps the value of the environment.
fn variables_of(words: &[String]) -> Vec<String> {
    let set = words.iter().take(front(words)).filter_map(|word| assignment(word));
    let is_own =
        |(name, value): &(&str, &str)| !value.contains(&format!("${name}")) && !value.contains(&format!("${{{name}"));
    set.filter(is_own).map(|(name, _)| name.to_owned()).collect()
}

/// Returns the variables that have a default in a word, with the default: `${A:-1}`, `${A-1}`, `${A:=1}`, `${A=1}`.
fn defaults_in(word: &str) -> impl Iterator<Item = (String, String)> {
    word.split("${").skip(1).filter_map(|text| {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        let (name, rest) = text.split_at(end);
        let value = [":-", "-", ":=", "="].iter().find_map(|sign| rest.strip_prefix(sign))?;
        Some((name.to_owned(), value.split('}').next().unwrap_or_default().to_owned()))
    })
}

/// Splits a line of a shell script into commands, and their words without quotes and redirections; variables stay as written.
fn shell_commands(line: &str) -> Vec<Vec<String>> {
    let mut split = Split::default();
    let (mut quote, mut depth) = (None, 0_u32);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let next = letters.peek().copied();
        match (quote, letter) {
            (Some(known), _) if letter == known => quote = None,
            (Some(_), _) => split.word.push(letter),
            (None, '\'' | '"') => (quote, split.is_open) = (Some(letter), true),
            // The inside of `$(...)` and `${...}` is part of the word.
            (None, '(' | '{') if depth > 0 || split.word.ends_with('$') => {
                depth += 1;
                split.word.push(letter);
            }
            (None, _) if depth > 0 => {
                depth -= u32::from(matches!(letter, ')' | '}'));
                split.word.push(letter);
            }
            (None, '#') if split.is_empty() => break,
            (None, '<' | '>') => split.begin_redirection(&mut letters),
            (None, '&') if next == Some('>') => split.end_word(),
            (None, ';' | '&' | '|' | '(' | ')') => split.end_command(),
            (None, _) if letter.is_whitespace() => split.end_word(),
            (None, _) => split.word.push(letter),
        }
    }
    split.end_command();
    split.commands
}

#[derive(Debug, Default)]
struct Split {
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    word: String,
    /// True if the word has quotes, and so is a word even if it is empty.
    is_open: bool,
    /// True if the word is the target of a redirection.
    is_target: bool,
}

impl Split {
    fn is_empty(&self) -> bool {
        self.word.is_empty() && !self.is_open
    }

    fn end_word(&mut self) {
        if self.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        if !self.is_target {
            self.words.push(word);
        }
        (self.is_open, self.is_target) = (false, false);
    }

    /// Begins a redirection such as `2>&1` or `>> log`; a number in front of it belongs to it.
    fn begin_redirection(&mut self, letters: &mut std::iter::Peekable<std::str::Chars<'_>>) {
        if self.is_open || !self.word.chars().all(|letter| letter.is_ascii_digit()) {
            self.end_word();
        }
        self.word.clear();
        while letters.next_if(|letter| matches!(letter, '<' | '>' | '&' | '|')).is_some() {}
        self.is_target = true;
    }

    fn end_command(&mut self) {
        self.end_word();
        self.is_target = false;
        let words = std::mem::take(&mut self.words);
        self.commands.extend((!words.is_empty()).then_some(words));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Command {
        Command::new(line.split(' ').map(str::to_owned).collect(), "python3")
    }

    #[test]
    fn the_script_is_found_behind_its_launcher() {
        let (torchrun, accelerate) = (Some("torchrun"), Some("accelerate"));
        for (line, name, launcher, ranks, help) in [
            ("train.py", "train.py", None, 1, "python3 train.py --help"),
            ("python -u train.py --lr 1", "train.py", None, 1, "python -u train.py --help"),
            ("main.py fit --config x.yaml", "main.py", None, 1, "python3 main.py fit --help"),
            ("torchrun --nproc-per-node 2 train.py --x", "train.py", torchrun, 2, "python3 train.py --help"),
            ("/opt/bin/torchrun --nproc_per_node=4 t.py", "t.py", torchrun, 4, "python3 t.py --help"),
            ("python -m torch.distributed.run --nproc-per-node 8 t.py", "t.py", torchrun, 8, "python t.py --help"),
            ("accelerate launch --num_processes 2 t.py a", "t.py", accelerate, 2, "python3 t.py a --help"),
            ("deepspeed --num_gpus 4 t.py --deepspeed", "t.py", Some("deepspeed"), 4, "python3 t.py --help"),
            ("python -m a.train --x", "a.train", None, 1, "python -m a.train --help"),
            ("torchrun -m a.train --x", "a.train", torchrun, 1, "python3 -m a.train --help"),
            ("accelerate launch --num_processes=2 --module a.b fit", "a.b", accelerate, 2, "python3 -m a.b fit --help"),
            ("python -m a.train config/small.py", "a.train", None, 1, "python -m a.train config/small.py --help"),
            ("python train.py -m resnet", "train.py", None, 1, "python train.py --help"),
            ("uv run python -m a.train", "a.train", None, 1, "uv run python -m a.train --help"),
            ("uv run -m a.train", "a.train", None, 1, "uv run -m a.train --help"),
            ("uv run torchrun --nproc-per-node=2 t.py", "t.py", torchrun, 2, "uv run python3 t.py --help"),
            ("./train --size 3", "./train", None, 1, "./train --help"),
            ("uv run train.py x=1", "train.py", None, 1, "uv run train.py x=1 --help"),
            ("srun -n1 torchrun train.py", "train.py", Some("torchrun"), 1, "srun -n1 python3 train.py --help"),
            (
                "srun -N 1 -n 4 --gres gpu:1 --mem 0 torchrun --nproc-per-node=2 -m a.b",
                "a.b",
                Some("torchrun"),
                2,
                "srun -N 1 -n 4 --gres gpu:1 --mem 0 python3 -m a.b --help",
            ),
            ("sudo -E python train.py --lr 1", "train.py", None, 1, "sudo -E python train.py --help"),
            ("sudo ./train --size 3", "./train", None, 1, "sudo ./train --help"),
        ] {
            let command = command(line);
            assert_eq!((command.name(), command.launcher(), command.ranks()), (name, launcher, ranks), "{line}");
            assert_eq!(command.asking_for_help("python3").join(" "), help, "{line}");
        }
        for (line, takes) in [("bash -c x", false), ("bash train.sh", true), ("bash --norc train.sh", true)] {
            assert_eq!(command(line).takes_arguments(), takes, "{line}");
        }
    }

    #[test]
    fn the_line_that_trains_is_found_in_a_shell_script() {
        let looked_into = |line: &str, script: &str| {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("run.sh"), script).unwrap();
            fs::create_dir(folder.path().join("sub")).unwrap();
            fs::write(folder.path().join("sub/t.py"), "").unwrap();
            command(line).looked_into(folder.path(), "python3")
        };
        for (text, inner, forwards) in [
            ("set -e\nexport A=1\nGPU=0 python train.py --bs 4 \"$@\" > log\n", "python train.py --bs 4", true),
            ("torchrun --nnodes=2 \\\n  train.py \\\n  --bs 4\n", "torchrun --nnodes=2 train.py --bs 4", false),
            ("# python old.py\nexec python -m pkg.train 'a b'; echo done\n", "python -m pkg.train a b", false),
            ("srun -n 4 --gres gpu:1 python t.py", "python t.py", false),
            ("srun --ntasks=2 uv run t.py", "uv run t.py", false),
            ("srun -n 2 bash -c 'python x.py'\nsudo -E python t.py", "python t.py", false),
            ("mpirun -x A=1 -np 4 -H a:4 ./t.py \"$@\"", "python3 ./t.py", true),
            ("A=1 env -u B C=2 /usr/bin/time -v nice -n 5 torchrun t.py", "torchrun t.py", false),
            ("exec -a name nohup timeout 10m python t.py &", "python t.py", false),
            ("python t.py >log 2>err --a 1>>log <in", "python t.py --a", false),
            ("python t.py --a 'x > y' &> log", "python t.py --a x > y", false),
            ("python t.py --a=1>&2 2>&1|tee log", "python t.py --a=1", false),
            ("cd sub && python t.py --a", "python sub/t.py --a", false),
            ("cd sub\ncd ..\npython t.py", "python t.py", false),
            ("cd \"$(dirname \"$0\")\" && python t.py", "python t.py", false),
            ("(cd sub; python -m t)", "python -m t", false),
            ("source e&&python t.py --a $(ls | wc -l) ${B:-2} || exit", "python t.py --a $(ls | wc -l) ${B:-2}", false),
            ("export T=t.py\nif true; then python t.py --a; fi # python x.py", "python t.py --a", false),
        ] {
            let command = looked_into("bash run.sh", text);
            let wrapped = command.wrapped.as_ref().unwrap();
            assert_eq!((wrapped.command.words.join(" ").as_str(), wrapped.forwards), (inner, forwards), "{text}");
            assert_eq!(command.takes_arguments(), forwards);
        }
        let text = "export A=1 B=2\nC=3 exec python t.py D=4\nexport E=${E:-5}\nF=$F:x\n\
                    export G=1; H=1 env -u I J=1 python t.py\n";
        let commands: Vec<Vec<String>> = text.lines().flat_map(shell_commands).collect();
        let sets: Vec<String> = commands.iter().flat_map(|words| variables_of(words)).collect();
        assert_eq!(sets, ["A", "B", "C", "G", "H", "J"]);
        for (text, defaults) in [
            ("export B=${B:-16}", true),
            ("export B=\"${B-16}\"", true),
            (": ${B:=16}; export B", true),
            ("export B=16", false),
            ("export B=${B}", false),
            ("export B=16; echo ${B:-1}", false),
        ] {
            let command = looked_into("bash run.sh", &format!("{text}\npython t.py\n"));
            assert_eq!(command.shell_defaults().any(|(name, _)| name == "B"), defaults, "{text}");
        }
        assert_eq!(looked_into("./run.sh", "#!/bin/sh\ntouch ran\n").wrapped, None);
        for line in ["srun -n1 bash run.sh", "sudo -E ./run.sh", "sudo bash run.sh"] {
            let command = looked_into(line, "#!/bin/sh\ntorchrun t.py \"$@\"\n");
            assert_eq!((command.launcher(), command.takes_arguments()), (Some("torchrun"), true), "{line}");
        }
    }
}
