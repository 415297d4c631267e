//! Writes words for a POSIX shell (POSIX.1-2017, "Shell Command Language", 2.2 Quoting and 2.10.2, rule 7).

use std::fmt::Write as _;

/// Bare words that begin a shell construct: POSIX.1-2017, 2.4 Reserved Words, and the words that POSIX lets a shell add.
const RESERVED: &[&str] = &[
    "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then",
    "time", "until", "while",
];

/// Variables that shells reserve: bash ignores values for some, zsh ties other names to its search paths.
const KEPT: &str = "BASHOPTS BASH_VERSINFO EUID IFS OPTIND PPID SHELLOPTS UID argv cdpath fpath histchars mailpath manpath \
    module_path path prompt psvar signals status watch";

/// Programs that take a whole command line as one word.
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "fish", "ksh"];

/// Returns true if a command is a shell with a command line as one word, such as `bash --norc -c LINE`.
pub fn is_shell_line(command: &[impl AsRef<str>]) -> bool {
    /// Long options with a value in the next word.
    const WITH_VALUE: &[&str] = &["--init-file", "--rcfile"];
    let mut words = command.iter().map(AsRef::<str>::as_ref);
    let program = words.next().unwrap_or_default();
    if !SHELLS.contains(&program.rsplit('/').next().unwrap_or(program)) {
        return false;
    }
    while let Some(word) = words.next().filter(|word| word.starts_with('-')) {
        let is_long = word.starts_with("--");
        if !is_long && word.contains('c') {
            return true;
        }
        let has_value = if is_long { WITH_VALUE.contains(&word) } else { word.ends_with(['o', 'O']) };
        if has_value {
            words.next();
        }
    }
    false
}

/// Returns a word for a POSIX shell, quoted unless a bare word is safe. Control characters, which a terminal would
/// interpret, are written as octal numbers for `printf`.
pub fn shell_word(word: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    // zsh reads a word that begins with `=` as the path of a program.
    if !word.is_empty() && !word.starts_with('=') && word.chars().all(is_safe) {
        return word.to_owned();
    }
    // `$(...)` drops line breaks at the end of its output, so line breaks are not written this way.
    let is_command = |c: char| c.is_control() && c != '\n';
    let mut quoted = String::from("'");
    for c in word.chars() {
        match c {
            '\'' => quoted += r"'\''",
            c if is_command(c) => {
                quoted += "'\"$(printf '";
                for byte in c.to_string().bytes() {
                    let _ = write!(quoted, "\\{byte:03o}");
                }
                quoted += "')\"'";
            }
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

/// Joins words to a command. The first word is quoted if a shell would not read it as a program.
pub(super) fn command<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let mut words = words.into_iter();
    let program = words.next().map(|program| {
        let shown = shell_word(program);
        let is_misread = RESERVED.contains(&program) || is_assignment(program);
        if is_misread && shown == program { format!("'{program}'") } else { shown }
    });
    program.into_iter().chain(words.map(shell_word)).collect::<Vec<_>>().join(" ")
}

/// Returns a command with variables in front; `env` sets variables that a shell cannot set.
pub(super) fn command_with(variables: &[(String, String)], command: &str) -> String {
    if variables.is_empty() {
        return command.to_owned();
    }
    let env = if variables.iter().all(|(name, _)| is_variable(name)) { "" } else { "env " };
    let set = variables.iter().map(|(name, value)| match env {
        "" => assignment(name, value),
        _ => shell_word(&format!("{name}={value}")),
    });
    format!("{env}{} {command}", set.collect::<Vec<_>>().join(" "))
}

pub(super) fn assignment(name: &str, value: &str) -> String {
    format!("{name}={}", shell_word(value))
}

/// Returns true if a shell can safely set a variable of this name.
pub(super) fn is_variable(name: &str) -> bool {
    is_name(name) && KEPT.split(' ').all(|kept| kept != name)
}

/// Returns true if a shell reads a word in front of a command as an assignment.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    /// Returns the words that a shell passes to `printf '%s\0'`.
    fn read_back(shell: &str, words: &str) -> Vec<String> {
        let script = format!("set -- {words}\nfor word in \"$@\"; do printf '%s\\0' \"$word\"; done");
        let output = Command::new(shell).args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        said.split_terminator('\0').map(str::to_owned).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_shell_reads_back_every_word(
            words in prop::collection::vec("([ -~]|[\n\t\r\u{1b}\u{7f}\u{9b}'\"$`\\\\!*?~#&|;<>(){}=-]|[äß中🚀\u{202e}]){0,12}", 1..12)
        ) {
            let text = words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ");
            prop_assert!(text.chars().all(|c| !c.is_control() || c == '\n'), "{text:?}");
            prop_assert_eq!(read_back("sh", &text), words);
        }

        #[test]
        fn a_command_reads_its_variables_back(
            values in prop::collection::vec("([ -~]|[\n\u{1b}'\"$`\\\\=-]|[ä中]){0,10}", 1..4),
            odd in any::<bool>(),
        ) {
            let name = |at: usize| if odd && at == 0 { "odd-name".to_owned() } else { format!("V{at}") };
            let variables: Vec<_> = values.iter().enumerate().map(|(at, value)| (name(at), value.clone())).collect();
            let script = command_with(&variables, "env -0");
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            for (name, value) in &variables {
                let line = format!("{name}={value}");
                prop_assert!(said.split('\0').any(|found| found == line), "{script}\n{said}");
            }
        }
    }

    #[test]
    fn line_breaks_at_the_end_and_dashes_at_the_front_stay() {
        for word in ["a\n", "\n\n", "-x", "--", "", "'", "\u{1b}\n", "=ls", "a\u{1b}"] {
            assert_eq!(read_back("sh", &shell_word(word)), [word], "{word:?}");
        }
    }

    #[test]
    fn a_shell_takes_a_line_only_after_the_option_c() {
        for (text, is_line) in [
            ("bash -c x", true),
            ("/bin/bash -lc x", true),
            ("bash --norc -c x", true),
            ("bash --rcfile a -c x", true),
            ("bash -eo pipefail -c x", true),
            ("bash --norc x.sh", false),
            ("bash x.sh -c", false),
            ("sh -e x.sh", false),
            ("sh", false),
            ("python -c x", false),
        ] {
            let words: Vec<&str> = text.split(' ').collect();
            assert_eq!(is_shell_line(&words), is_line, "{text}");
        }
    }

    #[test]
    fn a_program_is_a_program_whatever_it_is_called() {
        assert_eq!(command(["time", "time"]), "'time' time");
        assert_eq!(command(["a=b", "a=b"]), "'a=b' a=b");
        assert_eq!(command(["my program", "x"]), "'my program' x");
        assert_eq!(command_with(&[("path".to_owned(), "5".to_owned())], "x"), "env path=5 x");
        assert_eq!(command_with(&[("N".to_owned(), "a b".to_owned())], "x"), "N='a b' x");
    }
}
