//! Finds arguments from the command alone: if a command has `--batch-size 12`, its script accepts `--batch-size`.

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
}
