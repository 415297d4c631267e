//! Texts of others in a report: what a command, a step or a device says can neither break nor extend what it stands in.

/// On a terminal, or as a value of its own: no control character, so no escape sequence and no new line.
pub(super) fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// In Markdown, also in a cell of a table.
pub(super) fn as_markdown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' => safe.extend(['\\', c]),
            '<' => safe.push_str("&lt;"),
            '&' => safe.push_str("&amp;"),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

/// In HTML and XML, also in an attribute: no element, and none of the characters that XML has no place for (XML 1.0,
/// production 2).
pub(super) fn as_markup(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => {}
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a|b\n<script>\u{1b}[31m & \"x\" \u{ffff}_*`\\";

    #[test]
    fn nothing_breaks_out() {
        assert_eq!(plain(HOSTILE), "a|b <script> [31m & \"x\" \u{ffff}_*`\\");
        assert_eq!(as_markdown(HOSTILE), r#"a\|b &lt;script> \[31m &amp; "x" "#.to_owned() + "\u{ffff}" + r"\_\*\`\\");
        assert_eq!(as_markup(HOSTILE), r"a|b &lt;script&gt; [31m &amp; &quot;x&quot; _*`\");
    }
}
