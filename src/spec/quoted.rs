//! Maps parts of a text to their places in the file: texts can have escapes, three quotes, or several lines.

use std::ops::Range;
use std::str::CharIndices;

/// Returns the bytes of a quoted token in which a part of its value is written; `None` where the token is no such text.
pub(super) fn part_of(token: &str, value: &str, part: &Range<usize>) -> Option<Range<usize>> {
    let starts = starts(token, value)?;
    // The end is that of the last character, so that an escape or a line break after it is not included.
    let last = part.end.checked_sub(1).filter(|last| *last >= part.start)?;
    Some(starts.get(part.start)?.start..starts.get(last)?.end)
}

/// Returns, for each byte of the value, the bytes of the token in which its character is written.
fn starts(token: &str, value: &str) -> Option<Vec<Range<usize>>> {
    let quotes = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quotes| token.starts_with(quotes))?;
    let mut rest = token.char_indices();
    rest.by_ref().take(quotes.len()).for_each(drop);
    if quotes.len() == 3 {
        let body = &token[quotes.len()..];
        let newline = ["\r\n", "\n"].into_iter().find(|newline| body.starts_with(newline)).map_or(0, str::len);
        rest.by_ref().take(newline).for_each(drop);
    }
    let mut found = Vec::with_capacity(value.len());
    for character in value.chars() {
        let place = written(&mut rest, character, quotes.starts_with('"'))?;
        found.extend(std::iter::repeat_n(place, character.len_utf8()));
    }
    Some(found)
}

/// Reads one character of the value from the token.
fn written(rest: &mut CharIndices<'_>, character: char, has_escapes: bool) -> Option<Range<usize>> {
    loop {
        let (start, first) = rest.next()?;
        if first == '\r' && character == '\n' {
            continue;
        }
        if first == '\\' && has_escapes {
            let more = match rest.next()?.1 {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                blank if blank.is_whitespace() => {
                    skip_blanks(rest);
                    continue;
                }
                _ => 0,
            };
            rest.by_ref().take(more).for_each(drop);
            return Some(start..rest.offset());
        }
        return (first == character).then(|| start..rest.offset());
    }
}

/// Skips the white space after a backslash at the end of a line, which belongs to it.
fn skip_blanks(rest: &mut CharIndices<'_>) {
    while rest.clone().next().is_some_and(|(_, next)| next.is_whitespace()) {
        rest.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(token: &str, part: &str) -> Option<String> {
        let value: String = toml::from_str::<toml::Table>(&format!("x = {token}")).unwrap()["x"].as_str()?.to_owned();
        let start = value.find(part)?;
        part_of(token, &value, &(start..start + part.len())).map(|range| token[range].to_owned())
    }

    #[test]
    fn parts_are_found_in_every_kind_of_text() {
        for token in ["\"a bc d\"", "'a bc d'", "'''a bc d'''", "\"\"\"\na bc d\"\"\"", "\"\"\"\r\na\r\nbc d\"\"\""] {
            assert_eq!(part(token, "bc").as_deref(), Some("bc"), "{token}");
        }
    }

    #[test]
    fn escapes_take_more_room_than_what_they_stand_for() {
        assert_eq!(part(r#""\"\u00e4\t\U0001F600 bc""#, "bc").as_deref(), Some("bc"));
        assert_eq!(part(r#""\u00e4b""#, "äb").as_deref(), Some(r"\u00e4b"));
        assert_eq!(part("\"\"\"a \\\n   bc\"\"\"", "bc").as_deref(), Some("bc"));
        assert_eq!(part(r"'C:\bc'", "bc").as_deref(), Some("bc"));
    }

    #[test]
    fn another_text_has_no_such_part() {
        assert_eq!(part_of("\"abc\"", "abd", &(2..3)), None);
        assert_eq!(part_of("3", "3", &(0..1)), None);
        assert_eq!(part_of("\"abc\"", "abc", &(1..1)), None);
    }
}
