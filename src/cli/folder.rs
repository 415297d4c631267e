//! The folder of a search: what is in it, and how it is written.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gputune::emit::{FORMATS, Format};

use super::exit::{Exit, Failed};

pub(super) const JOURNAL: &str = "journal.jsonl";
pub(super) const BEST_JSON: &str = "best.json";
pub(super) const BEST_TOML: &str = "best.toml";
pub(super) const TRIALS: &str = "trials.csv";
pub(super) const PAGE: &str = "report.html";
pub(super) const SUMMARY: &str = "summary.md";
pub(super) const SPEC: &str = "spec.toml";

/// Reads the name of a form; help and errors list those that there are.
pub(super) fn format_parser() -> impl TypedValueParser<Value = &'static Format> {
    let known = FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(known)
        .try_map(|name| gputune::emit::format(&name).ok_or_else(|| format!("there is no form `{name}`")))
}

/// The default folder of a spec's search: `gputune-out/<name of the file>`.
pub(super) fn default_for(spec: &Path) -> PathBuf {
    Path::new("gputune-out").join(spec.file_stem().unwrap_or(spec.as_os_str()))
}

/// Makes the folder, and tries whether files can be made in it, before any probe has cost time.
pub(super) fn prepare(folder: &Path) -> Result<(), Failed> {
    let failed = |error: io::Error| {
        Failed::new(Exit::Impossible, format!("cannot write to the folder {}: {error}", folder.display()))
            .hint("choose another with --out DIR")
    };
    fs::create_dir_all(folder).map_err(failed)?;
    tempfile::tempfile_in(folder).map_err(failed)?;
    Ok(())
}

/// Writes a file whole or not at all.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> Result<(), Failed> {
    let path = folder.join(name);
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.as_file().sync_data()?;
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644))?;
        file.persist(&path).map_err(|error| error.error)
    });
    written.map(|_| ()).map_err(|error| {
        Failed::new(Exit::Impossible, format!("cannot write {}: {error}", path.display()))
            .hint("all trials are in the journal; make room and run the same command again")
    })
}

/// Removes a file that an earlier run may have left.
pub(super) fn remove(folder: &Path, name: &str) {
    let _ = fs::remove_file(folder.join(name));
}

/// Keeps the folder of an earlier search aside under a free name, and tells which; another folder stays as it is.
pub(super) fn set_aside(folder: &Path) -> Result<Option<PathBuf>, Failed> {
    if !folder.join(JOURNAL).exists() {
        return Ok(None);
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let free = (1..10_000).map(|number| folder.with_file_name(format!("{name}.{number}"))).find(|path| !path.exists());
    let aside = free.ok_or_else(|| Failed::new(Exit::Impossible, "there are too many old folders"))?;
    fs::rename(folder, &aside)
        .map_err(|error| Failed::new(Exit::Impossible, format!("cannot move {} aside: {error}", folder.display())))?;
    Ok(Some(aside))
}
