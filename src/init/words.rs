//! A command's words: placeholders for its settings, and the arguments that it states or lacks.

use std::path::Path;

use super::argument::{Argument, Kind};
use super::command::Command;
use super::knobs::{AMP_SWITCHES, KNOBS, PRECISION_SWITCHES};
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
            Kind::Override | Kind::Assigned { .. } => {
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

    /// Returns the option of a parameter's placeholder: `--option {p}` or `--option={p}`.
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

    /// Makes a switch depend on a boolean, or adds it. Returns the command's value: `true`, unless it states `false`.
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
    let rendered = rendered([written.as_str()], &Settings::default());
    if rendered == [text] { Ok(written) } else { Err(Unwritable(text.to_owned())) }
}

fn rendered<'w>(words: impl IntoIterator<Item = &'w str>, settings: &Settings) -> Vec<String> {
    let command = words.into_iter().map(Template::parse).collect();
    let step = StepTemplate { command, env: Vec::new(), cwd: ".".into(), files: Vec::new(), apply: Apply::default() };
    step.render(settings, Path::new("gputune"), Path::new(".")).command
}

/// Returns the knobs' arguments that a command passes and that are not known yet.
pub fn told(command: &Command, known: &[Argument]) -> Vec<Argument> {
    let words = command.told();
    let mut found: Vec<Argument> = Vec::new();
    for (at, word) in words.iter().enumerate().take_while(|(_, word)| *word != "--") {
        let Some(argument) = of_word(word, words.get(at + 1)) else { continue };
        let is_known = |other: &Argument| other.names.iter().any(|name| argument.names.contains(name));
        if !known.iter().chain(&found).any(is_known) {
            found.push(argument);
        }
    }
    found
}

fn of_word(word: &str, next: Option<&String>) -> Option<Argument> {
    let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    let plain = Argument::plain(name);
    let is_switch = PRECISION_SWITCHES.has(&plain) || AMP_SWITCHES.has(&plain);
    let is_knob = || KNOBS.iter().any(|knob| knob.names.has(&plain) || knob.off.has(&plain));
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+'));
    if !is_name || !(is_switch || is_knob()) {
        return None;
    }
    let names = vec![name.trim_start_matches('+').to_owned()];
    let kind = match (name.starts_with('-'), value, next.filter(|next| !next.starts_with('-'))) {
        (false, Some(_), _) => Kind::Override,
        (false, None, _) => return None,
        (true, Some(value), _) if is_switch && truth(value).is_some() => Kind::MaybeValue,
        (true, None, Some(next)) if is_switch && truth(next).is_some() => Kind::MaybeValue,
        (true, Some(_), _) => Kind::Value { choices: Vec::new() },
        (true, None, Some(_)) if !is_switch => Kind::Value { choices: Vec::new() },
        (true, None, _) => Kind::Switch,
    };
    Some(Argument::new(names, kind))
}

/// Returns the words that a command lacks, as the user has to write them: required options that `planned` does not set, then
/// positional values. `values` are the positional values that the script requires.
pub fn missing(command: &Command, arguments: &[Argument], values: &[String], planned: &[&str]) -> Vec<String> {
    let told = command.told();
    let has = |name: &str| {
        let spelled = |word: &String| word.split_once('=').map_or(word.as_str(), |(name, _)| name) == name;
        told.iter().any(spelled) || planned.contains(&name)
    };
    let options = arguments.iter().filter(|argument| argument.is_required);
    let options = options.filter(|argument| !argument.names.iter().any(|name| has(name))).map(|argument| {
        let name = argument.spelled();
        if argument.kind == Kind::Override { format!("{name}=...") } else { format!("{name} ...") }
    });
    let given = told.iter().enumerate().filter(|(at, word)| {
        let before = at.checked_sub(1).and_then(|at| told.get(at));
        !word.starts_with('-') && !before.is_some_and(|before| takes_value(before, arguments))
    });
    options.chain(values.iter().skip(given.count()).cloned()).collect()
}

/// Returns true if the word after an option is its value; unknown options are assumed to take a value.
fn takes_value(word: &str, arguments: &[Argument]) -> bool {
    if !word.starts_with('-') || word.contains('=') {
        return false;
    }
    let known = arguments.iter().find(|argument| argument.names.iter().any(|name| name == word));
    known.is_none_or(|argument| !matches!(argument.kind, Kind::Switch | Kind::Pair { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Command {
        Command::new(line.split_whitespace().map(str::to_owned).collect(), "python3")
    }

    fn argument(names: &[&str], kind: Kind) -> Argument {
        Argument::new(names.iter().map(|&name| name.to_owned()).collect(), kind)
    }

    fn value() -> Kind {
        Kind::Value { choices: Vec::new() }
    }

    #[test]
    fn a_setting_takes_the_place_of_the_value_that_is_there() {
        let size = argument(&["-b", "--batch-size"], value());
        let over = argument(&["data.size"], Kind::Override);
        let assigned = argument(&["--batch_size"], Kind::Assigned { choices: Vec::new() });
        let second = argument(&["batch_size"], Kind::Place(2));
        for (argument, line, expected, said) in [
            (&size, "t.py -b 32 -x", "t.py -b {n} -x", Some("-b 32")),
            (&size, "t.py --batch-size=64", "t.py --batch-size={n}", Some("--batch-size=64")),
            (&size, "t.py -b64", "t.py -b{n}", Some("-b64")),
            (&size, "t.py x -- y", "t.py x --batch-size {n} -- y", None),
            (&size, "t.py x", "t.py x --batch-size {n}", None),
            (&over, "t.py +data.size=8", "t.py +data.size={n}", Some("+data.size=8")),
            (&over, "t.py", "t.py data.size={n}", None),
            (&assigned, "t.py c.py --batch_size=12", "t.py c.py --batch_size={n}", Some("--batch_size=12")),
            (&assigned, "t.py c.py", "t.py c.py --batch_size={n}", None),
            (&second, "t.py 10 32", "t.py 10 {n}", Some("32")),
            (&second, "t.py 10", "t.py 10", None),
        ] {
            let mut words = Words::of(&command(line));
            let given = words.set(argument, "n");
            assert_eq!(given.as_ref().map(|given| given.words.as_str()), said, "{line}");
            let stated = said.map(|said| said.trim_start_matches(|c: char| !c.is_ascii_digit()));
            assert_eq!(given.as_ref().map(|given| given.value.as_str()), stated, "{line}");
            assert_eq!(words.written().unwrap().join(" "), format!("python3 {expected}"));
        }
    }

    #[test]
    fn a_switch_takes_its_own_value_along() {
        let maybe = argument(&["--bf16"], Kind::MaybeValue);
        for (line, expected, on) in [
            ("t.py --bf16 True x", "python3 t.py {b?--bf16} x", Some(true)),
            ("t.py --bf16 False", "python3 t.py {b?--bf16}", Some(false)),
            ("t.py --bf16=True", "python3 t.py {b?--bf16}", Some(true)),
            ("t.py --bf16 x", "python3 t.py {b?--bf16} x", Some(true)),
            ("t.py", "python3 t.py {b?--bf16}", None),
        ] {
            let mut words = Words::of(&command(line));
            assert_eq!(words.switch(&maybe, "--bf16", "b").map(|given| given.is_on()), on, "{line}");
            assert_eq!(words.written().unwrap().join(" "), expected);
        }
    }

    #[test]
    fn what_the_command_gives_is_known() {
        for (line, expected) in [
            ("t.py --batch_size=12 --lr 3", "--batch_size="),
            ("t.py -b 4 --num-workers 2 --amp", "-b= --num-workers= --amp!"),
            ("t.py --bf16 True --fp16", "--bf16? --fp16!"),
            ("t.py data.batch_size=8 model=b", "data.batch_size:"),
            ("t.py --data x=1 -- --bs 3", ""),
            ("torchrun --nproc_per_node 2 t.py --bs=4", "--bs="),
        ] {
            let sign = |argument: &Argument| match argument.kind {
                Kind::Switch => "!",
                Kind::MaybeValue => "?",
                Kind::Override => ":",
                _ => "=",
            };
            let all = told(&command(line), &[]);
            let shown: Vec<String> = all.iter().map(|argument| argument.names.join(",") + sign(argument)).collect();
            assert_eq!(shown.join(" "), expected, "{line}");
            assert!(told(&command(line), &all).is_empty(), "known arguments stay");
        }
    }

    #[test]
    fn what_the_command_or_the_search_says_is_not_missing() {
        let required = |names: &[&str]| Argument { is_required: true, ..argument(names, value()) };
        let arguments = [required(&["-d", "--data"]), required(&["--batch-size"]), argument(&["--amp"], Kind::Switch)];
        for (told, left) in [
            ("", "--data ... DIR"),
            ("-d x", "DIR"),
            ("--data=x", "DIR"),
            ("--amp here", "--data ..."),
            ("here -d x", ""),
            ("--lr 0.1", "--data ... DIR"),
        ] {
            let command = command(&format!("python3 train.py {told}"));
            let missing = missing(&command, &arguments, &["DIR".to_owned()], &["--batch-size"]);
            assert_eq!(missing.join(" "), left, "{told}");
        }
    }
}
