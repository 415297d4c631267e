//! Checks the templates and patterns of `[step]`: arguments, variables, rendered files, and the pattern of a rate.

use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use regex::bytes::RegexBuilder;

use super::error::{SourceFile, SpecError, suggestion};
use super::file::{FileTable, StepTable, ThroughputTable};
use super::located::Located;
use crate::model::{Derived, Parameter, Space, Value};
use crate::probe::{BUILTINS, Rate, Template, escaped, protocol::REPLACED_FILES};

pub(super) fn template(source: &SourceFile, text: &Located<String>, space: &Space) -> Result<Template, SpecError> {
    if let Some(at) = text.value.find('\0') {
        let span = source.inside(&text.span, &text.value, Some(at..at + 1));
        let message = "a zero byte cannot be in an argument or an environment variable";
        return Err(source.error(span, message, "take it out"));
    }
    let template = Template::parse(&text.value);
    let place = |part| source.inside(&text.span, &text.value, Some(part));
    check_names(source, &template, space, place)?;
    Ok(template)
}

/// Checks that every name exists, and that a name with a `?` is a boolean.
fn check_names(
    source: &SourceFile,
    template: &Template,
    space: &Space,
    place: impl Fn(Range<usize>) -> Range<usize>,
) -> Result<(), SpecError> {
    let names = || {
        let parameters = space.parameters().iter().map(Parameter::name);
        parameters.chain(space.derived().iter().map(Derived::name)).chain(BUILTINS.iter().map(|(name, _)| *name))
    };
    for (name, must_be_boolean) in template.names() {
        let span = || place(placeholder(template.text(), name).unwrap_or(0..0));
        if names().all(|known| known != name) {
            let hint = format!("{} (a literal {{{name}}} is written {{{{{name}}}}})", suggestion(name, names()));
            return Err(source.error(span(), format!("no parameter is called `{name}`"), hint));
        }
        let parameter = space.parameter_index(name).map(|at| &space.parameters()[at]);
        let is_boolean = parameter.is_none_or(|parameter| matches!(parameter.value(0), Value::Bool(_)));
        if must_be_boolean && !is_boolean {
            let message = format!("`{name}` is not true or false, and `{{{name}?...}}` needs that");
            let hint = format!("write {{{name}}} for its setting, or give it values = [true, false]");
            return Err(source.error(span(), message, hint));
        }
    }
    Ok(())
}

/// Returns the bytes of a name in a template; `{{name}}` does not count.
fn placeholder(text: &str, name: &str) -> Option<Range<usize>> {
    let found = text.match_indices(&format!("{{{name}")).find_map(|(at, matched)| {
        let end = at + matched.len();
        let is_literal = text[..at].ends_with('{') && text[end..].starts_with("}}");
        (text[end..].starts_with(['}', '?']) && !is_literal).then_some(at + 1..end)
    });
    found.or_else(|| text.find(name).map(|at| at..at + name.len()))
}

pub(super) fn rendered_files(
    source: &SourceFile,
    files: &[FileTable],
    space: &Space,
) -> Result<Vec<(PathBuf, Template)>, SpecError> {
    let mut rendered: Vec<(PathBuf, Template)> = Vec::new();
    for file in files {
        let target = &file.path.value;
        let stays_below = target.components().all(|part| matches!(part, Component::Normal(_)));
        if target.as_os_str().is_empty() || !stays_below {
            let hint = "give a relative path such as \"run.json\"; the command finds the file as {probe_dir}/run.json";
            return Err(source.error(file.path.span.clone(), "a rendered file stays in the folder of its probe", hint));
        }
        if rendered.iter().any(|(path, _)| path == target) {
            let message = format!("two files are rendered to `{}`", target.display());
            return Err(source.error(file.path.span.clone(), message, "give each a path of its own"));
        }
        let content = source.read_beside(&file.template.value, &file.template.span)?;
        let template = Template::parse(&content.text);
        check_names(&content, &template, space, |part| part)?;
        rendered.push((target.clone(), template));
    }
    Ok(rendered)
}

/// Returns the variable that tells Python which rendered files a script opens instead of its own.
pub(super) fn replaced_files(
    source: &SourceFile,
    files: &[FileTable],
    cwd: &Path,
) -> Result<Option<(String, Template)>, SpecError> {
    let mut replaced = serde_json::Map::new();
    for file in files {
        let Some(own) = &file.replaces else { continue };
        let path = cwd.join(&own.value);
        if !path.is_file() {
            let message = format!("there is no file `{}` to replace", own.value.display());
            return Err(source.error(own.span.clone(), message, "the path is relative to the folder of the command"));
        }
        let path = escaped(&path.canonicalize().unwrap_or(path).display().to_string());
        let rendered = format!("{{probe_dir}}/{}", escaped(&file.path.value.display().to_string()));
        replaced.insert(path, rendered.into());
    }
    let variable = |all| (REPLACED_FILES.to_owned(), Template::parse(&serde_json::Value::Object(all).to_string()));
    Ok((!replaced.is_empty()).then(|| variable(replaced)))
}

const EXAMPLE: &str = "write pattern = '([0-9.]+) samples/s'";
const TOO_LARGE: &str = "it is too large";

/// Reads the rate of `throughput = { pattern = ..., unit = ... }`.
pub(super) fn rate(source: &SourceFile, table: &ThroughputTable, step: &StepTable) -> Result<Rate, SpecError> {
    let ThroughputTable { pattern, unit } = table;
    if pattern.value.is_empty() {
        return Err(source.error(pattern.span.clone(), "the pattern is empty", EXAMPLE));
    }
    let compiled = RegexBuilder::new(&pattern.value).size_limit(1 << 20).build().map_err(|error| {
        let (reason, part) = explained(&error.to_string(), &pattern.value);
        let span = source.inside(&pattern.span, &pattern.value, part);
        let hint = match reason.as_str() {
            TOO_LARGE => "repeat less often: * and + need no number",
            _ => "a sign that is meant itself has a backslash in front, such as '\\(' in single quotes",
        };
        source.error(span, format!("this is no regular expression: {reason}"), hint)
    })?;
    let groups = compiled.captures_len();
    // Alternatives with one group each are fine: the first group that matches counts.
    if groups > 2 && compiled.static_captures_len() == Some(groups) {
        let hint = "write (?:...) for the groups that are not the number";
        let message = "the pattern has several groups, so which is the number?";
        return Err(source.error(pattern.span.clone(), message, hint));
    }
    let unit_of_rate = unit.value.0.clone();
    if unit_of_rate.counts_steps() && step.samples_per_step.is_none() {
        let message = "a rate of steps does not tell how fast samples are trained";
        let hint = "add samples_per_step to [step], for example samples_per_step = \"batch_size\"";
        return Err(source.error(unit.span.clone(), message, hint));
    }
    Ok(Rate::Pattern { pattern: compiled, unit: unit_of_rate })
}

/// Returns the reason from the last line of a pattern's error, and the place in the pattern that the error marks with carets.
fn explained(error: &str, pattern: &str) -> (String, Option<Range<usize>>) {
    let last = error.lines().last().unwrap_or_default();
    let reason = match last.trim_start_matches("error: ") {
        long if long.contains("size limit") => TOO_LARGE.to_owned(),
        short => short.to_owned(),
    };
    let lines: Vec<&str> = error.lines().collect();
    let part = lines.windows(2).find_map(|pair| {
        let (text, carets) = (pair[0], pair[1]);
        let indent = text.strip_suffix(pattern)?.len();
        let is_carets = carets.contains('^') && carets.chars().all(|c| matches!(c, ' ' | '^'));
        let first = carets.find('^').filter(|_| is_carets)?.checked_sub(indent)?;
        let mut places = pattern.char_indices().map(|(place, _)| place).skip(first);
        let count = carets[first + indent..].chars().take_while(|c| *c == '^').count();
        let start = places.next()?;
        Some(start..places.nth(count.checked_sub(1)?).unwrap_or(pattern.len()))
    });
    (reason, part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found_behind_longer_names_and_literals() {
        assert_eq!(placeholder("{batch_size} {{batch}} {batch}", "batch"), Some(24..29));
        assert_eq!(placeholder("{amp?--amp}", "amp"), Some(1..4));
        assert_eq!(placeholder("{{batch}", "batch"), Some(2..7));
    }

    #[test]
    fn the_place_in_a_pattern_is_that_of_the_carets() {
        for (pattern, part) in [("é(a", 2..3), (r"rate \y+", 5..7), ("a**b{", 4..5)] {
            let error = RegexBuilder::new(pattern).build().unwrap_err().to_string();
            assert_eq!(explained(&error, pattern).1, Some(part), "{error}");
        }
    }
}
