//! The folder of a search: its files, and how they are written.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gputune::Space;
use gputune::report::emit::{FORMATS, Format};
use gputune::search::kept::{self, Record};

use super::exit::{Exit, Failed};

pub(super) const JOURNAL: &str = kept::JOURNAL;
pub(super) const BEST_JSON: &str = "best.json";
pub(super) const BEST_TOML: &str = "best.toml";
pub(super) const TRIALS: &str = "trials.csv";
pub(super) const PAGE: &str = "report.html";
pub(super) const SUMMARY: &str = "summary.md";
pub(super) const SPEC: &str = "spec.toml";

/// Reads the name of a format; help and errors list the known formats.
pub(super) fn format_parser() -> impl TypedValueParser<Value = &'static Format> {
    let known = FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(known)
        .try_map(|name| gputune::report::emit::format(&name).ok_or_else(|| format!("there is no form `{name}`")))
}

/// Returns the default folder of a spec's search: `gputune-out/<name of the file>`.
pub(super) fn default_for(spec: &Path) -> PathBuf {
    Path::new("gputune-out").join(spec.file_stem().unwrap_or(spec.as_os_str()))
}

/// Returns the default folder of another command for a spec: the search's folder with a suffix such as `-probe`.
pub(super) fn beside(spec: &Path, suffix: &str) -> PathBuf {
    let mut folder = default_for(spec).into_os_string();
    folder.push(suffix);
    folder.into()
}

/// Makes the folder and checks that it is writable, before any probe costs time.
pub(super) fn prepare(folder: &Path) -> Result<(), Failed> {
    let failed = |error: io::Error| {
        Failed::new(Exit::Impossible, format!("cannot write to the folder {}: {error}", folder.display()))
            .hint("choose another with --out DIR")
    };
    fs::create_dir_all(folder).map_err(failed)?;
    tempfile::tempfile_in(folder).map_err(failed)?;
    Ok(())
}

/// Writes a file as a whole or not at all.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> Result<(), Failed> {
    let path = folder.join(name);
    replace(&path, text.as_bytes()).map_err(|error| {
        Failed::new(Exit::Impossible, format!("cannot write {}: {error}", path.display()))
            .hint("all trials are in the journal; make room and run the same command again")
    })
}

/// Puts a file in its place as a whole or not at all. A file that is there keeps its permissions, and is refused if they forbid
/// writing. Writes directly to a pipe, /dev/stdout or other special file.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if path.exists() && !path.is_file() {
        return fs::write(path, bytes);
    }
    let permissions = match fs::metadata(path) {
        Ok(known) => known.permissions(),
        Err(_) => fs::Permissions::from_mode(0o644),
    };
    // Replacing a file ignores its own write permission, so that is checked here.
    if permissions.readonly() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is read-only"));
    }
    if path.exists() {
        fs::OpenOptions::new().write(true).open(path)?;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_data()?;
    fs::set_permissions(file.path(), permissions)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Writes the record of the folder's search.
pub(super) fn describe(folder: &Path, record: &Record<&Space>) -> Result<(), Failed> {
    let json = record.to_json().map_err(|error| Failed::because(Exit::Impossible, &error))?;
    write(folder, kept::STUDY, &json)
}

/// Removes a file that an earlier run may have left.
pub(super) fn remove(folder: &Path, name: &str) {
    let _ = fs::remove_file(folder.join(name));
}

/// Moves the folder of an earlier search aside to a free name, and returns that name; leaves any other folder alone. If the path
/// is a link, the link stays and the folder behind it moves: `--fresh` must not change the place of results.
pub(super) fn set_aside(folder: &Path) -> Result<Option<PathBuf>, Failed> {
    if !folder.join(JOURNAL).exists() {
        return Ok(None);
    }
    let failed = |error: io::Error| {
        Failed::new(Exit::Impossible, format!("cannot move {} aside: {error}", folder.display()))
            .hint("choose another folder with --out DIR")
    };
    let is_link = fs::symlink_metadata(folder).map_err(failed)?.is_symlink();
    let real = if is_link { folder.canonicalize().map_err(failed)? } else { folder.to_owned() };
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let free = (1..10_000).map(|number| real.with_file_name(format!("{name}.{number}"))).find(|path| !path.exists());
    let aside = free.ok_or_else(|| Failed::new(Exit::Impossible, "there are too many old folders"))?;
    fs::rename(&real, &aside).map_err(failed)?;
    if is_link {
        // The folder behind the link is made again, with its earlier permissions.
        let permissions = fs::metadata(&aside).map_err(failed)?.permissions();
        fs::create_dir(&real).and_then(|()| fs::set_permissions(&real, permissions)).map_err(failed)?;
    }
    Ok(Some(aside))
}
