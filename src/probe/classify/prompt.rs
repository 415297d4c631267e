//! Recognises a script that ended because it asked for input, which a probe does not have.

use super::last_words;
use super::lines::Line;

/// How Python's traceback begins, possibly behind a prompt.
const TRACEBACK: &str = "Traceback (most recent call last):";

/// Returns a sentence about the prompt, if the last error is that input has ended: `EOFError` of Python's `input`, or `Aborted!`
/// of click and typer.
pub(in crate::probe) fn asked_for_input(reason: &str, last_lines: &[String]) -> Option<String> {
    let is_aborted = || last_words(last_lines).is_some_and(|line| matches!(line.trim(), "Aborted!" | "Aborted."));
    let is_asked = reason.contains("EOFError: EOF when reading a line") || is_aborted();
    let lines = || last_lines.iter().rev().map(|line| Line::of(line).text.trim());
    let is_prompt = |text: &&str| !text.is_empty() && text.ends_with(['?', ':', ']', ')', '>']);
    is_asked.then(|| {
        let before_trace = lines().find_map(|line| line.strip_suffix(TRACEBACK)).map(str::trim);
        let prompt = before_trace.or_else(|| lines().skip(1).find(is_prompt)).filter(|text| !text.is_empty());
        let shown = prompt.map(|text| format!(" (`{}`)", super::cut(text))).unwrap_or_default();
        format!("the script asks for input{shown}, and a probe has none")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(reason: &str, lines: &[&str]) -> Option<String> {
        asked_for_input(reason, &lines.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn a_prompt_is_named() {
        let error = "EOFError: EOF when reading a line";
        let python = ["Overwrite? [y/N] Traceback (most recent call last):", "  File \"t.py\", line 3", error];
        let sentence = "the script asks for input (`Overwrite? [y/N]`), and a probe has none";
        assert_eq!(asked(error, &python).as_deref(), Some(sentence));
        let click = ["starting", "Overwrite? [y/N]:", "Aborted!"];
        assert!(asked("exit code 1: Aborted!", &click).unwrap().contains("(`Overwrite? [y/N]:`)"));
        let bare = ["Traceback (most recent call last):", "  File \"t.py\", line 3", error];
        assert_eq!(asked(error, &bare).as_deref(), Some("the script asks for input, and a probe has none"));
        assert_eq!(asked("EOFError: Ran out of input", &["EOFError: Ran out of input"]), None, "of pickle");
        assert_eq!(asked("exit code 1: Aborted! no data", &["Aborted! no data"]), None);
    }
}
