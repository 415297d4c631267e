//! Finds required arguments that a command lacks; probes without them would fail.

use super::argument::{Argument, Kind};
use super::command::Command;

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

    #[test]
    fn what_the_command_or_the_search_says_is_not_missing() {
        let argument = |names: &[&str], kind: Kind| Argument {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            kind,
            default: None,
            is_required: true,
        };
        let value = || Kind::Value { choices: Vec::new() };
        let arguments = [
            argument(&["-d", "--data"], value()),
            argument(&["--batch-size"], value()),
            Argument { is_required: false, ..argument(&["--amp"], Kind::Switch) },
        ];
        let values = ["DIR".to_owned()];
        for (told, left) in [
            ("", "--data ... DIR"),
            ("-d x", "DIR"),
            ("--data=x", "DIR"),
            ("--amp here", "--data ..."),
            ("here -d x", ""),
            ("--lr 0.1", "--data ... DIR"),
        ] {
            let words = ["python3", "train.py"].into_iter().chain(told.split_whitespace()).map(str::to_owned);
            let command = Command::new(words.collect(), "python3");
            assert_eq!(missing(&command, &arguments, &values, &["--batch-size"]).join(" "), left, "{told}");
        }
    }
}
