//! Escapes foreign text in a report: output of commands, steps and devices cannot break or extend the report's text.

/// Escapes for a terminal, or for a single value: control characters, such as ESC and line breaks, become spaces.
pub(super) fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Escapes control characters for a cell of CSV. Tabs and line breaks stay, because CSV quotes them.
pub(super) fn as_cell(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !matches!(c, '\n' | '\t') { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    safe
}

/// Returns the fence for a code block in Markdown: longer than any run of backticks in the text (CommonMark, "Fenced code blocks").
pub(super) fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}

/// Escapes for Markdown, including table cells.
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

/// Escapes for HTML and XML, including attributes: no elements, and no characters that XML forbids (XML 1.0, production 2).
#[cfg(any(feature = "cli", test))]
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
    fn a_fence_is_longer_than_what_it_holds() {
        assert_eq!(["a", "`a`", "```a````b"].map(fence), ["```", "```", "`````"]);
    }

    #[test]
    fn nothing_breaks_out() {
        assert_eq!(as_cell("a\u{1b}[31m\n"), "a\\u{1b}[31m\n");
        assert_eq!(plain(HOSTILE), "a|b <script> [31m & \"x\" \u{ffff}_*`\\");
        assert_eq!(as_markdown(HOSTILE), r#"a\|b &lt;script> \[31m &amp; "x" "#.to_owned() + "\u{ffff}" + r"\_\*\`\\");
        assert_eq!(as_markup(HOSTILE), r"a|b &lt;script&gt; [31m &amp; &quot;x&quot; _*`\");
    }
}
