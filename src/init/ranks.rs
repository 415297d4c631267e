//! Finds out how a script with several ranks is started: by a launcher, or by the script.

use std::sync::LazyLock;

use regex::Regex;

use super::calls::code;
use super::command::Command;
use super::source::Source;

/// The variables that torch's launchers set for each rank (torch's documentation, "torchrun", "Environment Variables").
const SET_BY_LAUNCHERS: &[&str] = &["RANK", "LOCAL_RANK", "WORLD_SIZE"];

impl Source {
    /// Returns true if the script always starts its ranks: it calls `torch.multiprocessing.spawn` unconditionally.
    pub fn spawns_ranks(&self) -> bool {
        let spawns = |text: &String| {
            let code = code(text);
            let lines: Vec<&str> = code.lines().collect();
            let calls = lines.iter().enumerate().filter(|(_, line)| line.contains("spawn(") && !line.contains("def "));
            let mut unconditional = calls.filter(|(at, _)| !is_conditional(&lines, *at));
            unconditional.next().is_some()
        };
        self.imports("torch.multiprocessing") && self.texts.iter().any(spawns)
    }

    /// Returns the launcher's variable that the script requires, if the command has no launcher.
    pub fn needs_launcher(&self, command: &Command) -> Option<&'static str> {
        static READ: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r#"environ\[\s*['"](RANK|LOCAL_RANK|WORLD_SIZE)['"]\s*\](\s*=[^=])?"#).ok());
        static ASKED: LazyLock<Option<Regex>> = LazyLock::new(|| {
            let name = r#"['"](?:RANK|LOCAL_RANK|WORLD_SIZE|SLURM_PROCID)['"]"#;
            let asked =
                format!(r"(?:environ\.get|getenv)\(\s*{name}|{name}\s+(?:not\s+)?in\b|environ\[\s*{name}\s*\]\s*=[^=]");
            Regex::new(&asked).ok()
        });
        if command.launcher().is_some() || self.spawns_ranks() {
            return None;
        }
        let (read, asked) = (READ.as_ref()?, ASKED.as_ref()?);
        if self.texts.iter().any(|text| asked.is_match(text) || setdefault(text)) {
            return None;
        }
        let main = self.texts.first()?;
        let lines: Vec<&str> = main.lines().collect();
        let found = lines.iter().enumerate().filter(|(at, _)| !is_conditional(&lines, *at));
        let mut found = found.flat_map(|(_, line)| read.captures_iter(line)).filter(|found| found.get(2).is_none());
        let name = found.next();
        let listed = || {
            // `{key: os.environ[key] for key in ("RANK", ...)}`
            let reads = main.contains("os.environ[") && self.imports("torch.distributed");
            let lists = |name: &str| main.contains(&format!("\"{name}\",")) || main.contains(&format!("'{name}',"));
            SET_BY_LAUNCHERS.iter().copied().find(|name| reads && lists(name))
        };
        let name = name.and_then(|found| found.get(1));
        let known = name.and_then(|name| SET_BY_LAUNCHERS.iter().copied().find(|known| *known == name.as_str()));
        known.or_else(listed)
    }
}

fn setdefault(text: &str) -> bool {
    SET_BY_LAUNCHERS
        .iter()
        .any(|name| ["'", "\""].iter().any(|quote| text.contains(&format!("environ.setdefault({quote}{name}{quote}"))))
}

/// Returns true if a line is inside an `if`, except for the `if` of the main module.
fn is_conditional(lines: &[&str], at: usize) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut depth = lines.get(at).map_or(0, |line| indent(line));
    for line in lines.iter().take(at).rev().filter(|line| !line.trim().is_empty()) {
        let here = indent(line);
        if here >= depth {
            continue;
        }
        depth = here;
        let words = line.trim_start();
        let is_condition = ["if ", "elif ", "else:"].iter().any(|word| words.starts_with(word));
        if is_condition && !words.starts_with("if __name__") {
            return true;
        }
        if words.starts_with("def ") {
            break;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_always_spawned_makes_ranks() {
        for (text, spawns) in [
            ("import torch.multiprocessing as mp\nif __name__ == '__main__':\n    mp.spawn(main, nprocs=2)", true),
            ("import torch.multiprocessing as mp\nif args.many:\n    mp.spawn(f)\nelse:\n    f()", false),
            ("import torch.multiprocessing as mp\ndef run():\n    for x in y:\n        mp.spawn(f)", true),
            ("import os\nos.spawn(f)", false),
        ] {
            assert_eq!(Source::of(text).spawns_ranks(), spawns, "{text}");
        }
    }

    #[test]
    fn a_variable_that_is_not_asked_for_is_needed() {
        let python = Command::new(vec!["t.py".to_owned()], "python3");
        let launched = Command::new(["torchrun", "t.py"].map(str::to_owned).to_vec(), "python3");
        for (text, needs) in [
            ("rank = int(os.environ['RANK'])", Some("RANK")),
            ("ddp = int(os.environ.get('RANK', -1)) != -1\nif ddp: r = int(os.environ['RANK'])", None),
            ("if 'RANK' in os.environ: r = os.environ[\"RANK\"]", None),
            ("os.environ['RANK'] = '0'\nr = os.environ['RANK']", None),
            (
                "import torch.distributed\nenv = {key: os.environ[key] for key in (\"MASTER_ADDR\", \"RANK\", \"X\")}",
                Some("RANK"),
            ),
            ("if args.url == 'env://':\n    size = int(os.environ['WORLD_SIZE'])", None),
            ("def main():\n    rank = int(os.environ['RANK'])", Some("RANK")),
            ("x = os.environ['HOME']", None),
        ] {
            assert_eq!(Source::of(text).needs_launcher(&python), needs, "{text}");
            assert_eq!(Source::of(text).needs_launcher(&launched), None, "{text}");
        }
    }
}
