//! Finds calls in Python source, with their names and arguments as written. It is no full parser and skips code that it cannot
//! read.

/// A call in Python source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The name of the called function, as written: `torch.utils.data.DataLoader`.
    pub name: String,
    /// Positional arguments, as written.
    pub positional: Vec<String>,
    /// Keyword arguments.
    pub named: Vec<(String, String)>,
    /// The line where the call begins, counted from 1.
    pub line: usize,
}

/// The most characters within a call's brackets; a longer call is skipped. A round number, like [`MOST`].
const LONGEST: usize = 20_000;
/// The most calls that are read; a script usually has a handful.
const MOST: usize = 2_000;

impl Call {
    /// Returns the last part of the name.
    pub fn last(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }

    /// Returns the code of a named argument.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }

    /// Returns the value of a named argument, if it is a literal.
    pub fn literal(&self, name: &str) -> Option<String> {
        literal(self.get(name)?)
    }
}

/// Returns the value of a literal: a string without its quotes, a number, `True`, `False` or `None`. Returns Rust's `None` for any
/// other code.
pub fn literal(text: &str) -> Option<String> {
    let text = text.trim();
    let quoted = |quote: char| {
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains([quote, '\\'])).then(|| inner.to_owned())
    };
    let plain = || {
        let is_number =
            text.parse::<f64>().is_ok() && text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.');
        let is_constant = matches!(text, "True" | "False" | "None");
        (is_number || is_constant).then(|| text.to_owned())
    };
    quoted('"').or_else(|| quoted('\'')).or_else(plain)
}

/// Returns the strings in a list or tuple of literals.
pub(super) fn literals(text: &str) -> Vec<String> {
    let inner = text.trim().trim_start_matches(['[', '(']).trim_end_matches([']', ')']);
    split(inner).iter().filter_map(|part| literal(part)).collect()
}

/// Returns the calls whose last name part is in `wanted`, in the order of the text.
pub fn calls(text: &str, wanted: &[&str]) -> Vec<Call> {
    let mut found = Vec::new();
    let mut at = 0;
    let bytes = text.as_bytes();
    while let Some(&byte) = bytes.get(at) {
        if let Some(end) = skip(text, at) {
            at = end;
        } else if byte.is_ascii_alphabetic() || byte == b'_' {
            let rest = text.get(at..).unwrap_or_default();
            let end =
                at + rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len());
            let name = text.get(at..end).unwrap_or_default();
            let is_wanted = wanted.contains(&name.rsplit('.').next().unwrap_or_default());
            if is_wanted
                && bytes.get(end) == Some(&b'(')
                && !is_definition(text, at)
                && let Some(inside) = inside(text, end)
            {
                let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
                found.push(Call { line, ..call(name, inside) });
                if found.len() >= MOST {
                    break;
                }
            }
            at = end;
        } else {
            at += 1;
        }
    }
    found
}

/// A function that the source defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Definition {
    /// Its name.
    pub(super) name: String,
    /// The line before it.
    pub(super) decorator: String,
    /// The parameters of the function.
    pub(super) parameters: Vec<Parameter>,
}

/// A parameter of a function, or a field of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameter {
    /// Its name.
    pub(super) name: String,
    /// The annotation as written; empty if the parameter has none.
    pub(super) annotation: String,
    /// The default as written.
    pub(super) default: Option<String>,
}

/// Returns the functions that begin at the start of a line, with their parameters.
pub(super) fn definitions(text: &str) -> Vec<Definition> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("def ").take(MOST) {
        let before = text.get(..at).unwrap_or_default();
        if !(before.is_empty() || before.ends_with('\n')) {
            continue;
        }
        let rest = text.get(at + 4..).unwrap_or_default();
        let Some((name, _)) = rest.split_once('(') else { continue };
        let Some(inside) = inside(text, at + 4 + name.len()) else { continue };
        found.push(Definition {
            name: name.trim().to_owned(),
            decorator: before.trim_end().rsplit('\n').next().unwrap_or_default().trim().to_owned(),
            parameters: split(inside).iter().filter_map(|part| parameter(part)).collect(),
        });
    }
    found
}

/// Reads `batch_size: int = 32`; `None` for `*` and `**kwargs`.
fn parameter(part: &str) -> Option<Parameter> {
    let (declared, default) = match part.split_once('=') {
        Some((declared, default)) => (declared, Some(default.trim().to_owned())),
        None => (part, None),
    };
    let (name, annotation) = declared.split_once(':').unwrap_or((declared, ""));
    let name = name.trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| Parameter { name: name.to_owned(), annotation: annotation.trim().to_owned(), default })
}

/// Returns source in which comments and strings are replaced by spaces, with the length unchanged.
pub(super) fn code(text: &str) -> String {
    let (mut bare, mut at) = (String::with_capacity(text.len()), 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if let Some(end) = skip(text, at) {
            let skipped = text.get(at..end).unwrap_or_default();
            bare.extend(skipped.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
            continue;
        }
        // Skip to the next character that may begin a comment or a string.
        let end = rest.char_indices().skip(1).find(|(_, c)| matches!(c, '#' | '"' | '\''));
        let end = end.map_or(rest.len(), |(end, _)| end);
        bare.push_str(rest.get(..end).unwrap_or_default());
        at += end;
    }
    bare
}

/// Returns true if the name at this position belongs to a `def` or a `class`.
fn is_definition(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default().trim_end_matches(' ');
    before.ends_with("def") || before.ends_with("class")
}

/// Returns the end of the comment or string that begins here.
fn skip(text: &str, at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    if rest.starts_with('#') {
        return Some(at + rest.find('\n').unwrap_or(rest.len()));
    }
    for quotes in ["\"\"\"", "'''"] {
        if let Some(inner) = rest.strip_prefix(quotes) {
            return Some(at + inner.find(quotes).map_or(rest.len(), |end| end + 6));
        }
    }
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut escaped = false;
    for (end, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            // An unclosed string ends at the end of its line.
            '\n' => return Some(at + end),
            c if c == quote => return Some(at + end + 1),
            _ => {}
        }
    }
    Some(text.len())
}

/// Returns the text between a bracket and its closing bracket.
fn inside(text: &str, open: usize) -> Option<&str> {
    let mut depth = 0_usize;
    let mut at = open;
    while at < text.len() && at - open < LONGEST {
        if let Some(end) = skip(text, at) {
            at = end;
            continue;
        }
        match text.as_bytes().get(at)? {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return text.get(open + 1..at - 1);
        }
    }
    None
}

/// Splits code at commas outside brackets and strings.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut part, mut depth, mut at) = (Vec::new(), String::new(), 0_usize, 0);
    while at < text.len() {
        if let Some(end) = skip(text, at) {
            let skipped = text.get(at..end).unwrap_or_default();
            part.push_str(if skipped.starts_with('#') { "" } else { skipped });
            at = end;
            continue;
        }
        let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) else {
            at += 1;
            continue;
        };
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c == ',' && depth == 0 {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(c);
        }
        at += c.len_utf8();
    }
    parts.push(part);
    parts.iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

fn call(name: &str, inside: &str) -> Call {
    let is_word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let mut call = Call { name: name.to_owned(), positional: Vec::new(), named: Vec::new(), line: 1 };
    for part in split(inside) {
        match part.split_once('=') {
            Some((key, value)) if is_word(key.trim()) && !value.starts_with('=') => {
                call.named.push((key.trim().to_owned(), value.trim().to_owned()));
            }
            _ => call.positional.push(part),
        }
    }
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_where_they_are_and_nowhere_else() {
        let text = r#"
# DataLoader(batch_size=1)
"""DataLoader(batch_size=2)"""
text = "DataLoader(batch_size=3)"
class DataLoader(object): pass
loader = torch.utils.data.DataLoader(
    Data(a, b=[1, 2]),  # the data, with a comma
    batch_size=args.batch_size or 64, shuffle = True,
    collate_fn=lambda x: x, num_workers=4)
other = DataLoader(x, batch_size=16
"#;
        let found = calls(text, &["DataLoader"]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].name.as_str(), found[0].line), ("torch.utils.data.DataLoader", 6));
        assert_eq!(found[0].positional, ["Data(a, b=[1, 2])"]);
        assert_eq!(found[0].literal("num_workers").as_deref(), Some("4"));
        assert_eq!(found[0].literal("shuffle").as_deref(), Some("True"));
        assert_eq!(found[0].literal("batch_size"), None);
    }

    #[test]
    fn literals_are_values_and_nothing_else_is() {
        for (text, value) in [
            ("'a'", Some("a")),
            ("\"b\"", Some("b")),
            ("1e-3", Some("1e-3")),
            ("True", Some("True")),
            ("x", None),
            ("'a' + b", None),
            ("inf", None),
            ("", None),
            ("f'x'", None),
        ] {
            assert_eq!(literal(text).as_deref(), value, "{text}");
        }
        assert_eq!(literals("['fp32', \"bf16\"]"), ["fp32", "bf16"]);
    }
}
