//! The words of the command, with placeholders where settings go.

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use super::argument::{Argument, Kind};
use super::command::Command;
use crate::adapter::Apply;
use crate::probe::{StepTemplate, Template};
use crate::space::Settings;

/// A word that the spec's templates cannot have: it reads as a setting, and there is no way to write it otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the word `{0}` of the command reads like a setting of gputune, and cannot be written otherwise")]
pub struct Unwritable(pub String);

/// The words of a command as `[step]` has them.
#[derive(Debug, Clone)]
pub struct Words {
    words: Vec<Word>,
    /// Where the script's own arguments begin.
    own: usize,
}

#[derive(Debug, Clone)]
struct Word {
    text: String,
    is_template: bool,
}

impl Words {
    /// Those of a command.
    pub fn of(command: &Command) -> Self {
        let own = command.words.iter().position(|word| word == command.name()).map_or(1, |at| at + 1);
        let words = command.words.iter().map(|text| Word { text: text.clone(), is_template: false }).collect();
        Self { words, own }
    }

    /// Puts a setting where the argument's value goes; the value that the command has there today.
    pub fn set(&mut self, argument: &Argument, parameter: &str) -> Option<String> {
        let placeholder = format!("{{{parameter}}}");
        if let Some((at, prefix)) = self.find_assigned(argument) {
            let today = self.words[at].text[prefix.len()..].to_owned();
            self.words[at] = template(format!("{}{placeholder}", escaped(&prefix)));
            return Some(today);
        }
        if argument.kind != Kind::Override
            && let Some(at) = self.find(&argument.names)
        {
            let next = self.words.get(at + 1).filter(|word| !word.is_template && !word.text.starts_with('-'));
            let today = next.map(|word| word.text.clone());
            match (&today, &argument.kind) {
                (Some(_), _) => self.words[at + 1] = template(placeholder),
                (None, _) => self.words.insert(at + 1, template(placeholder)),
            }
            return today.or_else(|| Some("true".to_owned()));
        }
        if argument.kind == Kind::Override {
            self.words.push(template(format!("{}={placeholder}", escaped(argument.spelled()))));
        } else {
            self.words.push(Word { text: argument.spelled().to_owned(), is_template: false });
            self.words.push(template(placeholder));
        }
        None
    }

    /// Puts a switch that is there where a boolean is true; whether the command has it today.
    pub fn switch(&mut self, names: &[String], spelled: &str, parameter: &str) -> bool {
        let placeholder = template(format!("{{{parameter}?{spelled}}}"));
        match self.find(names) {
            Some(at) => {
                self.words[at] = placeholder;
                true
            }
            None => {
                self.words.push(placeholder);
                false
            }
        }
    }

    /// Whether the command has any of these, with or without a value.
    pub fn has(&self, argument: &Argument) -> bool {
        self.find(&argument.names).is_some() || self.find_assigned(argument).is_some()
    }

    /// Replaces a word that is equal to a text by a template.
    pub fn replace(&mut self, text: &str, with: &str) -> bool {
        let at = self.words.iter().position(|word| !word.is_template && word.text == text);
        if let Some(at) = at {
            self.words[at] = template(with.to_owned());
        }
        at.is_some()
    }

    fn find(&self, names: &[String]) -> Option<usize> {
        let own = self.words.iter().enumerate().skip(self.own);
        own.filter(|(_, word)| !word.is_template && names.contains(&word.text)).map(|(at, _)| at).next_back()
    }

    /// A word like `--batch-size=32` or `data.batch_size=32`, and what is in front of its value.
    fn find_assigned(&self, argument: &Argument) -> Option<(usize, String)> {
        let own = self.words.iter().enumerate().skip(self.own).filter(|(_, word)| !word.is_template);
        own.filter_map(|(at, word)| {
            let (name, _) = word.text.split_once('=')?;
            // Hydra adds keys with `+`.
            let plain = if argument.kind == Kind::Override { name.trim_start_matches('+') } else { name };
            argument.names.iter().any(|known| known == plain).then(|| (at, format!("{name}=")))
        })
        .next_back()
    }

    /// The words as the spec has them.
    ///
    /// # Errors
    /// One of the user's own cannot be written.
    pub fn written(&self) -> Result<Vec<String>, Unwritable> {
        self.words.iter().map(|word| if word.is_template { Ok(word.text.clone()) } else { write(&word.text) }).collect()
    }
}

fn template(text: String) -> Word {
    Word { text, is_template: true }
}

/// A text in which every `{name}` is written `{{name}}`.
pub(super) fn escaped(text: &str) -> String {
    static NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\{([A-Za-z_][A-Za-z0-9_]*)\}").ok());
    NAMES.as_ref().map_or_else(|| text.to_owned(), |names| names.replace_all(text, "{{$1}}").into_owned())
}

/// A word of the user's as the spec has it: it comes out of a template as it went in.
fn write(text: &str) -> Result<String, Unwritable> {
    let written = escaped(text);
    let step = StepTemplate {
        command: vec![Template::parse(&written)],
        env: Vec::new(),
        cwd: Path::new(".").to_owned(),
        files: Vec::new(),
        apply: Apply::default(),
    };
    let rendered = step.render(&Settings::default(), Path::new("gputune"), Path::new(".")).command;
    if rendered == [text] { Ok(written) } else { Err(Unwritable(text.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[&str]) -> Words {
        Words::of(&Command::new(line.iter().map(|&word| word.to_owned()).collect(), "python3"))
    }

    fn argument(names: &[&str], kind: Kind) -> Argument {
        Argument { names: names.iter().map(|&name| name.to_owned()).collect(), kind, default: None, is_required: false }
    }

    #[test]
    fn a_setting_takes_the_place_of_the_value_that_is_there() {
        let value = argument(&["-b", "--batch-size"], Kind::Value { choices: Vec::new() });
        for (line, expected, today) in [
            (&["t.py", "-b", "32", "-x"][..], "python3 t.py -b {n} -x", Some("32")),
            (&["t.py", "--batch-size=64"], "python3 t.py --batch-size={n}", Some("64")),
            (&["t.py", "x"], "python3 t.py x --batch-size {n}", None),
        ] {
            let mut words = words(line);
            assert_eq!(words.set(&value, "n").as_deref(), today);
            assert_eq!(words.written().unwrap().join(" "), expected);
        }
        let over = argument(&["data.size"], Kind::Override);
        let mut given = words(&["t.py", "+data.size=8"]);
        assert_eq!(given.set(&over, "n").as_deref(), Some("8"));
        assert_eq!(given.written().unwrap().join(" "), "python3 t.py +data.size={n}");
        let mut absent = words(&["t.py"]);
        assert_eq!(absent.set(&over, "n"), None);
        assert_eq!(absent.written().unwrap().join(" "), "python3 t.py data.size={n}");
    }

    #[test]
    fn the_users_braces_stay_braces() {
        for text in ["{a}", "{{a}}", "{\"a\": {b}}", "{", "}", "{gputune}", "a b'c\"d", "{a b}", "{{{x}}}", ""] {
            let mut own = words(&["t.py", text]);
            own.switch(&["--no".to_owned()], "--no", "n");
            let written = own.written().unwrap();
            let step = StepTemplate {
                command: written.iter().map(|word| Template::parse(word)).collect(),
                env: Vec::new(),
                cwd: ".".into(),
                files: Vec::new(),
                apply: Apply::default(),
            };
            let settings: Settings = [("n", crate::space::Value::Bool(false))].into_iter().collect();
            let rendered = step.render(&settings, Path::new("g"), Path::new("p")).command;
            assert_eq!(rendered, ["python3", "t.py", text]);
        }
        assert_eq!(words(&["t.py", "{a?b}"]).written(), Err(Unwritable("{a?b}".to_owned())));
    }
}
