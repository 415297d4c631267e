//! Names the lines to change in settings files that the script opens at a fixed path.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::model::Settings;
use crate::probe::{StepTemplate, protocol::REPLACED_FILES};
use crate::report::Edit;

/// Returns the lines of the user's files that differ from the rendered files for a config.
pub fn file_edits(step: &StepTemplate, settings: &Settings) -> Vec<Edit> {
    let rendered = step.render(settings, Path::new(""), Path::new(""));
    let variable = rendered.env.iter().find(|(name, _)| name == REPLACED_FILES);
    let replaced: BTreeMap<String, String> =
        variable.and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or_default();
    let of_file = |(own, path): (&String, &String)| {
        let (_, new) = rendered.files.iter().find(|(file, _)| Path::new("/").join(file) == Path::new(path))?;
        let old = fs::read_to_string(own).ok()?;
        let shown = Path::new(own).strip_prefix(&step.cwd).unwrap_or(Path::new(own)).display().to_string();
        Some(changed_lines(&old, new, &shown))
    };
    replaced.iter().filter_map(of_file).flatten().collect()
}

/// Returns the changed lines of two texts with the same number of lines.
fn changed_lines(old: &str, new: &str, file: &str) -> Vec<Edit> {
    let pairs = old.lines().zip(new.lines()).zip(1..).filter(|((old, new), _)| old != new);
    let edit = |((old, new), number): ((&str, &str), u32)| Edit {
        place: Some(format!("{file}:{number}")),
        what: "write".to_owned(),
        lines: vec![new.trim().to_owned()],
        instead_of: vec![old.trim().to_owned()],
        ..Edit::default()
    };
    pairs.map(edit).collect()
}
