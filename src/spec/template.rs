//! Checks the templates of `[step]`: arguments, variables, and files that are rendered for each probe.

use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use super::error::{SourceFile, SpecError, suggestion};
use super::file::FileTable;
use super::located::Located;
use crate::model::{Derived, Parameter, Space, Value};
use crate::probe::{BUILTINS, Template, escaped, protocol::REPLACED_FILES};

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

/// Checks that every name exists, and that one with a `?` is a boolean.
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
            return Err(source.error(
                span(),
                format!("`{name}` is not true or false, and `{{{name}?...}}` needs that"),
                format!("write {{{name}}} for its setting, or give it values = [true, false]"),
            ));
        }
    }
    Ok(())
}

/// Returns where a name stands in a template, as bytes; `{{name}}` does not count.
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
    let variable =
        |replaced| (REPLACED_FILES.to_owned(), Template::parse(&serde_json::Value::Object(replaced).to_string()));
    Ok((!replaced.is_empty()).then(|| variable(replaced)))
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
}
