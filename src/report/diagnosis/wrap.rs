//! Breaks text into lines that fit.

/// Wraps text between words behind a label; further lines are indented below the first.
pub(super) fn hanging(label: &str, text: &str, indent: usize, columns: usize) -> String {
    let width = columns.saturating_sub(indent).max(20);
    let mut shown = String::new();
    for (at, line) in text.lines().flat_map(|line| broken(line, width)).enumerate() {
        let label = if at == 0 { label } else { "" };
        shown.push_str(format!("{label:<indent$}{line}").trim_end());
        shown.push('\n');
    }
    shown
}

/// Breaks a line into pieces of at most this many characters. Longer words are cut; text after `- ` is indented.
fn broken(line: &str, width: usize) -> Vec<String> {
    let inner = if line.starts_with("- ") { "  " } else { "" };
    let mut lines: Vec<String> = Vec::new();
    let mut current = String::new();
    for word in line.split(' ') {
        let mut word: Vec<char> = word.chars().filter(|c| !c.is_control()).collect();
        let used = current.chars().count();
        if used > inner.len() && used + 1 + word.len() > width {
            lines.push(std::mem::replace(&mut current, inner.to_owned()));
        } else if !current.is_empty() && current != inner {
            current.push(' ');
        }
        while current.chars().count() + word.len() > width {
            let room = width - current.chars().count();
            let rest = word.split_off(room);
            current.extend(word);
            lines.push(std::mem::replace(&mut current, inner.to_owned()));
            word = rest;
        }
        current.extend(word);
    }
    lines.push(current);
    lines
}

/// Lays entries out side by side, without breaking any of them.
pub(super) fn pairs(entries: &[String], width: usize) -> String {
    let mut lines = vec![String::new()];
    for entry in entries {
        let used = lines.last().map_or(0, |line| line.chars().count());
        if used > 0 && used + 2 + entry.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push_str("  ");
            }
            line.push_str(entry);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_long_words_are_cut() {
        assert_eq!(hanging("a", "one two three four five", 2, 22), "a one two three four\n  five\n");
        assert_eq!(broken("- alpha beta gamma", 12), ["- alpha beta", "  gamma"]);
        assert_eq!(broken("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(broken("", 10), [""]);
        for line in broken("- a very long word: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa and then more", 20) {
            assert!(line.chars().count() <= 20, "{line}");
        }
    }

    #[test]
    fn entries_stay_whole() {
        let entries = ["data wait 40 %", "forward 30 %", "backward 30 %"].map(str::to_owned);
        assert_eq!(pairs(&entries, 30), "data wait 40 %  forward 30 %\nbackward 30 %");
    }
}
