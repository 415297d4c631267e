//! The words of a command, with placeholders in place of settings.

use std::path::Path;

use super::argument::{Argument, Kind};
use super::command::Command;
use crate::model::Settings;
use crate::probe::{StepTemplate, Template, adapter::Apply, escaped};

/// The error for a word that the spec's templates cannot express, because it reads as a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the word `{0}` of the command reads like a setting of gputune, and cannot be written otherwise")]
pub struct Unwritable(pub String);

/// A value that a command states for a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Its value.
    pub value: String,
    /// The words that state it, such as `--batch-size 12`.
    pub words: String,
}

impl Given {
    /// Returns true if the stated value means on.
    pub fn is_on(&self) -> bool {
        truth(&self.value) == Some(true)
    }
}

/// Returns the boolean that a word means to argument parsers (`distutils.util.strtobool` and Python's literals).
pub fn truth(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" | "t" | "y" => Some(true),
        "false" | "no" | "off" | "0" | "f" | "n" => Some(false),
        _ => None,
    }
}

/// The words of a command, as `[step]` has them.
#[derive(Debug, Clone)]
pub struct Words {
    words: Vec<Word>,
    /// The index of the script's first own argument.
    own: usize,
}

#[derive(Debug, Clone)]
struct Word {
    text: String,
    is_template: bool,
}

impl Words {
    /// Takes the words of a command.
    pub fn of(command: &Command) -> Self {
        let own = command.told_at();
        let words = command.words.iter().map(|text| Word { text: text.clone(), is_template: false }).collect();
        Self { words, own }
    }

    /// Puts a setting in place of the argument's value; returns the value that the command stated.
    pub fn set(&mut self, argument: &Argument, parameter: &str) -> Option<Given> {
        self.put(argument, format!("{{{parameter}}}"))
    }

    /// Puts a template in place of the argument's value; returns the value that the command stated.
    pub fn put(&mut self, argument: &Argument, placeholder: String) -> Option<Given> {
        if let Some((at, prefix)) = self.find_assigned(argument) {
            let words = self.words[at].text.clone();
            self.words[at] = template(format!("{}{placeholder}", escaped(&prefix)));
            return Some(Given { value: words[prefix.len()..].to_owned(), words });
        }
        match &argument.kind {
            Kind::Place(place) => {
                let at = self.own + place.checked_sub(1)?;
                let word = self.words.get_mut(at).filter(|word| !word.is_template)?;
                let today = std::mem::replace(word, template(placeholder)).text;
                return Some(Given { value: today.clone(), words: today });
            }
            Kind::Override => self.append([template(format!("{}={placeholder}", escaped(argument.spelled())))]),
            Kind::Assigned { .. } => {
                self.append([template(format!("{}={placeholder}", escaped(argument.spelled())))]);
            }
            _ => {
                if let Some(at) = self.find(&argument.names) {
                    return Some(self.set_behind(at, placeholder));
                }
                self.append([Word { text: argument.spelled().to_owned(), is_template: false }, template(placeholder)]);
            }
        }
        None
    }

    /// Returns the option that a parameter's setting follows, or shares a word with.
    pub(super) fn option_of(&self, parameter: &str) -> Option<&str> {
        let placeholder = format!("{{{parameter}}}");
        let at = self.words.iter().position(|word| word.is_template && word.text.ends_with(&placeholder))?;
        let before = self.words[at].text.strip_suffix(&placeholder)?;
        let option = match before.strip_suffix('=') {
            Some(option) => option,
            None if before.is_empty() => &self.words.get(at.checked_sub(1)?).filter(|word| !word.is_template)?.text,
            None => return None,
        };
        option.starts_with('-').then_some(option)
    }

    /// Puts a setting after an existing option, in place of its value.
    fn set_behind(&mut self, at: usize, placeholder: String) -> Given {
        let option = self.words[at].text.clone();
        match self.value_at(at + 1) {
            Some(today) => {
                self.words[at + 1] = template(placeholder);
                Given { words: format!("{option} {today}"), value: today }
            }
            None => {
                self.words.insert(at + 1, template(placeholder));
                Given { value: "true".to_owned(), words: option }
            }
        }
    }

    /// Returns the word at an index, if it is an option's value.
    fn value_at(&self, at: usize) -> Option<String> {
        let next = self.words.get(at).filter(|word| !word.is_template);
        let is_number = |text: &str| text.parse::<f64>().is_ok();
        next.filter(|word| !word.text.starts_with('-') || is_number(&word.text)).map(|word| word.text.clone())
    }

    /// Adds words at the end of the script's arguments, but before a `--`, after which no word is an option.
    fn append(&mut self, words: impl IntoIterator<Item = Word>) {
        let own = self.words.get(self.own..).unwrap_or_default();
        let end = own.iter().position(|word| !word.is_template && word.text == "--");
        let at = end.map_or(self.words.len(), |end| self.own + end);
        self.words.splice(at..at, words);
    }

    /// Makes a switch depend on a boolean, adding the switch if it is missing. Returns the value that the command stated: `true`,
    /// unless it states `false`.
    pub fn switch(&mut self, argument: &Argument, spelled: &str, parameter: &str) -> Option<Given> {
        let placeholder = template(format!("{{{parameter}?{spelled}}}"));
        let is_boolean = |text: &str| truth(text).is_some();
        if let Some((at, prefix)) = self.find_assigned(argument) {
            let words = std::mem::replace(&mut self.words[at], placeholder).text;
            let value = truth(&words[prefix.len()..]).unwrap_or(true).to_string();
            return Some(Given { value, words });
        }
        let Some(at) = self.find(&argument.names) else {
            self.append([placeholder]);
            return None;
        };
        let mut words = std::mem::replace(&mut self.words[at], placeholder).text;
        let takes = argument.kind == Kind::MaybeValue || argument.kind.takes_value();
        let value = self.value_at(at + 1).filter(|value| takes && is_boolean(value));
        if let Some(value) = &value {
            self.words.remove(at + 1);
            words = format!("{words} {value}");
        }
        let value = value.and_then(|value| truth(&value)).unwrap_or(true).to_string();
        Some(Given { value, words })
    }

    /// Returns true if the command has any spelling of an argument, with or without a value.
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

    /// Finds a word like `--batch-size=32`, `-b32` or `data.batch_size=32`; also returns the part in front of its value.
    fn find_assigned(&self, argument: &Argument) -> Option<(usize, String)> {
        let own = self.words.iter().enumerate().skip(self.own).filter(|(_, word)| !word.is_template);
        own.filter_map(|(at, word)| Some((at, assigned(&word.text, argument)?))).next_back()
    }

    /// Returns the words as written in the spec.
    ///
    /// # Errors
    /// One of the user's words cannot be expressed.
    pub fn written(&self) -> Result<Vec<String>, Unwritable> {
        self.words.iter().map(|word| if word.is_template { Ok(word.text.clone()) } else { write(&word.text) }).collect()
    }
}

/// Returns the part of a word in front of an argument's value, if the word has both.
fn assigned(word: &str, argument: &Argument) -> Option<String> {
    let has = |name: &str| argument.names.iter().any(|known| known == name);
    if let Some((name, _)) = word.split_once('=') {
        // Hydra adds keys with `+`.
        let plain = if argument.kind == Kind::Override { name.trim_start_matches('+') } else { name };
        return has(plain).then(|| format!("{name}="));
    }
    // A short option with its number: `-b32`.
    let (name, value) = (word.get(..2)?, word.get(2..)?);
    let is_short = name.starts_with('-') && !name.ends_with('-');
    (is_short && value.parse::<u32>().is_ok() && argument.kind.takes_value() && has(name)).then(|| name.to_owned())
}

fn template(text: String) -> Word {
    Word { text, is_template: true }
}

/// Returns a user's word as written in the spec, so that rendering the template gives the word again.
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
            (&["t.py", "-b64"], "python3 t.py -b{n}", Some("64")),
            (&["t.py", "x", "--", "y"], "python3 t.py x --batch-size {n} -- y", None),
            (&["t.py", "x"], "python3 t.py x --batch-size {n}", None),
        ] {
            let mut words = words(line);
            assert_eq!(words.set(&value, "n").map(|given| given.value).as_deref(), today);
            assert_eq!(words.written().unwrap().join(" "), expected);
        }
        let over = argument(&["data.size"], Kind::Override);
        let mut given = words(&["t.py", "+data.size=8"]);
        assert_eq!(given.set(&over, "n").map(|given| given.value).as_deref(), Some("8"));
        assert_eq!(given.written().unwrap().join(" "), "python3 t.py +data.size={n}");
        let mut absent = words(&["t.py"]);
        assert_eq!(absent.set(&over, "n"), None);
        assert_eq!(absent.written().unwrap().join(" "), "python3 t.py data.size={n}");
    }

    #[test]
    fn a_script_that_reads_its_own_words_gets_them_as_it_reads_them() {
        let size = argument(&["--batch_size"], Kind::Assigned { choices: Vec::new() });
        for (line, expected, said) in [
            (&["t.py", "c.py", "--batch_size=12"][..], "python3 t.py c.py --batch_size={n}", Some("--batch_size=12")),
            (&["t.py", "c.py"], "python3 t.py c.py --batch_size={n}", None),
        ] {
            let mut words = words(line);
            assert_eq!(words.set(&size, "n").map(|given| given.words).as_deref(), said);
            assert_eq!(words.written().unwrap().join(" "), expected);
        }
        let second = argument(&["batch_size"], Kind::Place(2));
        let mut given = words(&["t.py", "10", "32"]);
        assert_eq!(given.set(&second, "n").unwrap().value, "32");
        assert_eq!(given.written().unwrap().join(" "), "python3 t.py 10 {n}");
        let mut absent = words(&["t.py", "10"]);
        assert_eq!(absent.set(&second, "n"), None);
        assert_eq!(absent.written().unwrap().join(" "), "python3 t.py 10", "a place that is not there stays so");
    }

    #[test]
    fn a_switch_takes_its_own_value_along() {
        let maybe = argument(&["--bf16"], Kind::MaybeValue);
        for (line, expected, on) in [
            (&["t.py", "--bf16", "True", "x"][..], "python3 t.py {b?--bf16} x", Some(true)),
            (&["t.py", "--bf16", "False"], "python3 t.py {b?--bf16}", Some(false)),
            (&["t.py", "--bf16=True"], "python3 t.py {b?--bf16}", Some(true)),
            (&["t.py", "--bf16", "x"], "python3 t.py {b?--bf16} x", Some(true)),
            (&["t.py"], "python3 t.py {b?--bf16}", None),
        ] {
            let mut words = words(line);
            assert_eq!(words.switch(&maybe, "--bf16", "b").map(|given| given.is_on()), on, "{line:?}");
            assert_eq!(words.written().unwrap().join(" "), expected);
        }
    }

    #[test]
    fn the_users_braces_stay_braces() {
        for text in ["{a}", "{{a}}", "{\"a\": {b}}", "{", "}", "{gputune}", "a b'c\"d", "{a b}", "{{{x}}}", ""] {
            let mut own = words(&["t.py", text]);
            own.switch(&argument(&["--no"], Kind::Switch), "--no", "n");
            let written = own.written().unwrap();
            let step = StepTemplate {
                command: written.iter().map(|word| Template::parse(word)).collect(),
                env: Vec::new(),
                cwd: ".".into(),
                files: Vec::new(),
                apply: Apply::default(),
            };
            let settings: Settings = [("n", crate::model::Value::Bool(false))].into_iter().collect();
            let rendered = step.render(&settings, Path::new("g"), Path::new("p")).command;
            assert_eq!(rendered, ["python3", "t.py", text]);
        }
        assert_eq!(words(&["t.py", "{a?b}"]).written(), Err(Unwritable("{a?b}".to_owned())));
    }
}
