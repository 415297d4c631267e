//! Finds from the command alone which arguments its script accepts, and which required arguments the command lacks.
//! If a command has `--batch-size 12`, its script accepts `--batch-size`.

use super::argument::{Argument, Kind};
use super::command::Command;
use super::knobs::{AMP_SWITCHES, KNOBS, PRECISION_SWITCHES};
use super::words::truth;

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
    let is_switch =
        PRECISION_SWITCHES.iter().any(|(known, _)| *known == plain) || AMP_SWITCHES.contains(&plain.as_str());
    let knob = |plain: &str| KNOBS.iter().any(|knob| knob.names.contains(&plain) || knob.off.contains(&plain));
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+'));
    if !is_name || !(is_switch || knob(&plain)) {
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
    Some(Argument { names, kind, default: None, is_required: false })
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
            let command = Command::new(line.split(' ').map(str::to_owned).collect(), "python3");
            let sign = |argument: &Argument| match argument.kind {
                Kind::Switch => "!",
                Kind::MaybeValue => "?",
                Kind::Override => ":",
                _ => "=",
            };
            let all = told(&command, &[]);
            let all: Vec<String> = all.iter().map(|argument| argument.names.join(",") + sign(argument)).collect();
            assert_eq!(all.join(" "), expected, "{line}");
        }
        let command = Command::new(["t.py", "--bs=4"].map(str::to_owned).to_vec(), "python3");
        assert!(told(&command, &told(&command, &[])).is_empty(), "known arguments stay");
    }

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
