//! Generates the pages of the documentation that follow from the command line, and checks every command that the
//! documentation shows.
//!
//! `GPUTUNE_BLESS=1 cargo test --bin gputune` writes the pages anew.

use std::fmt::Write as _;
use std::fs;

use clap::{Arg, ArgAction, Command, CommandFactory, Parser};

use super::{Cli, exit};

#[expect(dead_code, reason = "the tests of the documentation read the same pages")]
#[path = "../../tests/docs/pages.rs"]
mod pages;

const NOTE: &str = "<!-- generated from src/cli/ by `GPUTUNE_BLESS=1 cargo test --bin gputune` -->\n";

/// The mark before the table of exit codes.
const EXIT_CODES: &str =
    "<!-- exit codes: generated from src/cli/exit.rs by `GPUTUNE_BLESS=1 cargo test --bin gputune` -->\n";

/// The page on commands and their options.
fn command_line() -> String {
    let program = Cli::command();
    let mut text = format!("# Command line\n\n{NOTE}\n{}.\n\n", sentence(&about(&program)));
    text += "`gputune COMMAND --help` says more, has examples, and describes each format, preset and strategy. Each command ends\n\
             with one of the [exit codes](outcomes.md#exit-codes). Every command takes `--color auto`, `always` or `never`.\n";
    let tune = program.find_subcommand("tune").unwrap();
    for command in program.get_subcommands().filter(|command| command.get_name() != "relay") {
        describe(command, command.get_name(), tune, &mut text);
        for part in command.get_subcommands().filter(|part| part.get_name() != "help") {
            describe(part, &format!("{} {}", command.get_name(), part.get_name()), tune, &mut text);
        }
    }
    text
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn sentence(text: &str) -> &str {
    text.trim_end().trim_end_matches('.')
}

fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}

/// Writes a section about a command. `gputune search` only names the options that `gputune tune` describes.
fn describe(command: &Command, name: &str, tune: &Command, text: &mut String) {
    let mut complete = command.clone().bin_name(format!("gputune {name}")).disable_help_flag(true);
    complete.build();
    let usage = complete.render_usage().to_string();
    let _ = writeln!(text, "\n## `gputune {name}`\n");
    let _ = writeln!(text, "{}.\n", sentence(&about(command)));
    let _ = writeln!(text, "```text\n{}\n```", usage.trim_start_matches("Usage: ").trim());
    let is_shared = |argument: &&Arg| name == "search" && tune.get_arguments().any(|it| entry(it) == entry(argument));
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let (shared, own): (Vec<&Arg>, Vec<&Arg>) = arguments.partition(is_shared);
    if !own.is_empty() {
        text.push('\n');
        for argument in own {
            let _ = writeln!(text, "{}", entry(argument));
        }
    }
    if !shared.is_empty() {
        let options: Vec<String> = shared.into_iter().map(names).collect();
        let _ = writeln!(text, "- As for `gputune tune`: {}", options.join(", "));
    }
    // Examples are indented, and only in the help.
    for line in after(command).lines().filter(|line| !line.is_empty() && !line.starts_with([' ', 'E'])) {
        let _ = writeln!(text, "\n{line}");
    }
}

/// Returns the text below a help.
fn after(command: &Command) -> String {
    command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string).unwrap_or_default()
}

fn names(argument: &Arg) -> String {
    let value = argument.get_value_names().and_then(<[_]>::first).map(ToString::to_string).unwrap_or_default();
    let mut names = Vec::new();
    if let Some(short) = argument.get_short() {
        names.push(format!("`-{short}`"));
    }
    match argument.get_long() {
        Some(long) if takes_value(argument) => names.push(format!("`--{long} {value}`")),
        Some(long) => names.push(format!("`--{long}`")),
        None => names.push(format!("`{value}`")),
    }
    names.join(", ")
}

fn takes_value(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

fn entry(argument: &Arg) -> String {
    let takes_value = takes_value(argument);
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    // If the command computes a default, the help states it.
    let (help, worked_out) = match help.split_once("[default: ") {
        Some((help, default)) => (help.trim_end().to_owned(), Some(default.trim_end_matches(']').to_owned())),
        None => (help, None),
    };
    let mut meaning = cell(&help);
    let choices = argument.get_possible_values();
    let choices = choices.iter().filter(|choice| takes_value && !choice.is_hide_set());
    let choices: Vec<String> = choices.map(|choice| format!("`{}`", choice.get_name())).collect();
    if !choices.is_empty() {
        meaning += &format!(": {}", choices.join(", "));
    }
    let defaults = argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy()));
    let stated = || defaults.filter(|_| takes_value).collect::<Vec<_>>().join(", ");
    let default = worked_out.map(|text| cell(&text)).unwrap_or_else(stated);
    let default = if default.is_empty() { default } else { format!(". Default: {default}") };
    format!("- {}: {meaning}{default}", names(argument))
}

/// The page on outcomes, with the current table of exit codes.
fn outcomes() -> String {
    let page = pages::read("docs/outcomes.md");
    let (before, rest) = page.split_once(EXIT_CODES).unwrap();
    let (_, after) = rest.split_once("<!-- end -->").unwrap();
    let mut table = String::from("\n| code | when |\n|---|---|\n");
    for (exit, _, when) in exit::ROWS {
        let _ = writeln!(table, "| {} | {} |", exit.code(), cell(when));
    }
    format!("{before}{EXIT_CODES}{table}\n<!-- end -->{after}")
}

#[test]
fn the_pages_are_what_the_program_says() {
    for (path, text) in [("docs/cli.md", command_line()), ("docs/outcomes.md", outcomes())] {
        if std::env::var_os("GPUTUNE_BLESS").is_some() {
            fs::write(pages::root().join(path), &text).unwrap();
        }
        let kept = fs::read_to_string(pages::root().join(path)).unwrap_or_default();
        assert!(kept == text, "{path} is not up to date: run `GPUTUNE_BLESS=1 cargo test --bin gputune`");
    }
}

/// Splits a shell line, also within `$(...)`, into commands and words. Knows only the syntax of the documentation.
fn commands(line: &str) -> Vec<Vec<String>> {
    let parts = line.split("$(").flat_map(|part| part.split(['|', ';', '&', '(', ')', '`']));
    // A part of `eval "$(...)"` may have one quote only, and no command of gputune.
    let all = parts.filter_map(shlex::split).filter(|words| !words.is_empty());
    // The file of a redirection is no argument.
    all.map(|words| words.into_iter().take_while(|word| !word.starts_with(['<', '>'])).collect()).collect()
}

/// Returns gputune's arguments in a command, after any variables and launchers; `None` for other commands.
fn arguments(words: &[String]) -> Option<Vec<String>> {
    let is_gputune = |word: &String| word == "gputune" || word.ends_with("/gputune");
    let is_before = |word: &String| {
        word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
            || ["time", "exec", "nohup", "srun", "if", "then", "!", "do", "$"].contains(&word.as_str())
    };
    let start = words.iter().position(|word| !is_before(word))?;
    let rest = words.get(start..)?;
    match rest {
        [first, arguments @ ..] if is_gputune(first) => Some(arguments.to_vec()),
        [cargo, run, others @ ..] if cargo == "cargo" && run == "run" => {
            let behind = others.iter().position(|word| word == "--")?;
            Some(others[behind + 1..].to_vec())
        }
        _ => None,
    }
}

/// Returns why the real parser rejects a command, if it does.
fn refusal(arguments: &[String]) -> Option<String> {
    match Cli::try_parse_from(std::iter::once("gputune".to_owned()).chain(arguments.iter().cloned())) {
        Err(error) if error.use_stderr() => Some(error.to_string()),
        _ => None,
    }
}

/// Gives the commands of gputune in a line to the real parser. Returns their number.
fn check(place: &str, line: &str) -> usize {
    let all: Vec<Vec<String>> = commands(line).iter().filter_map(|words| arguments(words)).collect();
    for arguments in &all {
        if let Some(why) = refusal(arguments) {
            panic!("{place}: `{line}`: {why}");
        }
    }
    all.len()
}

#[test]
fn every_command_that_the_documentation_shows_is_one() {
    let mut checked = 0;
    for block in pages::pages().iter().flat_map(pages::Page::blocks) {
        let prompt = match block.language.as_str() {
            "sh" | "bash" | "yaml" => "",
            "console" => "$ ",
            _ => continue,
        };
        for line in block.text.replace("\\\n", " ").lines() {
            let line = line.trim().trim_start_matches("- ").trim_start_matches("run: ");
            checked += line.strip_prefix(prompt).map_or(0, |line| check(&block.place, line));
        }
    }
    assert!(checked > 20, "only {checked} commands were seen: does the test still read the pages?");
}

#[test]
fn every_example_in_a_help_is_a_command() {
    let program = Cli::command();
    let all = program.get_subcommands().flat_map(|command| std::iter::once(command).chain(command.get_subcommands()));
    for command in all {
        for line in after(command).lines() {
            check(command.get_name(), line);
        }
    }
}

#[test]
fn every_command_and_option_that_a_sentence_names_is_there() {
    let program = Cli::command();
    let known = |name: &str| name == "help" || program.get_subcommands().any(|command| command.get_name() == name);
    for page in pages::pages() {
        for (line, code) in page.inline_code() {
            let words: Vec<&str> = code.split_whitespace().collect();
            let ["gputune", name, rest @ ..] = words.as_slice() else { continue };
            if name.starts_with('-') || name.chars().all(|c| c.is_ascii_uppercase() || c == '.' || c == '…') {
                continue;
            }
            assert!(known(name), "{}:{line}: there is no `gputune {name}`", page.path);
            let command = program.find_subcommand(name);
            let options = rest.iter().take_while(|word| **word != "--").filter_map(|word| word.strip_prefix("--"));
            for option in options.map(|option| option.split(['=', ' ']).next().unwrap_or(option)) {
                let is_there = ["help", "version"].contains(&option)
                    || command.is_some_and(|command| command.get_arguments().any(|arg| arg.get_long() == Some(option)));
                assert!(is_there, "{}:{line}: `gputune {name}` has no --{option}", page.path);
            }
        }
    }
}

#[test]
fn lines_are_read_as_a_shell_does() {
    for (line, expected) in [
        ("gputune emit out --format json > best.json # kept", "emit out --format json"),
        ("args=$(gputune search a.toml --format args) && eval \"python t.py $args\"", "search a.toml --format args"),
        ("eval \"$(gputune emit out --format env)\"", "emit out --format env"),
        ("python train.py $(gputune emit out --format args)", "emit out --format args"),
        ("A=1 gputune check 'my_spec.toml'", "check my_spec.toml"),
        ("cargo run --release -- search a.toml", "search a.toml"),
    ] {
        let read: Vec<String> = commands(line).iter().filter_map(|words| Some(arguments(words)?.join(" "))).collect();
        assert_eq!(read, [expected]);
    }
    assert_eq!(commands("a 'b c'"), [["a", "b c"]]);
    let refusal = |words: &[&str]| refusal(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    assert!(refusal(&["search", "a.toml", "--no-such-option"]).is_some());
    assert!(refusal(&["search", "--help"]).is_none());
}

/// The commands without `--json`: they print a document in its own format, or what another program prints.
const WITHOUT_JSON: &[&str] = &["run", "schema", "demo-step", "worker", "relay", "cluster", "completions", "man"];

/// The beginnings of the help of options that several commands have.
const ALIKE: &[(&str, &[&str])] = &[
    ("json", &["Print JSON instead of text", "Print JSON: --format json"]),
    ("out", &["The folder ", "The file "]),
    ("fresh", &["Start over: an earlier "]),
    ("format", &["The format"]),
    ("quiet", &["Show no progress", "Print nothing but errors and the best config"]),
    ("verbose", &["Print all details: ties, where time went, how probes were measured"]),
    ("set", &["Keep a parameter at this setting; may be given again", "Set a parameter; may be given again"]),
    ("time", &["How long "]),
];

#[test]
fn options_that_commands_share_mean_the_same() {
    let program = Cli::command();
    for command in program.get_subcommands() {
        let name = command.get_name();
        let has = |option: &str| command.get_arguments().any(|argument| argument.get_long() == Some(option));
        assert!(has("json") != WITHOUT_JSON.contains(&name), "`gputune {name}` has --json: {}", has("json"));
        assert!(!["force", "overwrite", "replace"].into_iter().any(has), "`gputune {name}`: --fresh is the word");
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let alike = ALIKE.iter().find(|(option, _)| argument.get_long() == Some(option));
            let Some((option, known)) = alike else { continue };
            assert!(known.iter().any(|begin| help.starts_with(begin)), "`gputune {name} --{option}`: {help}");
        }
    }
}
