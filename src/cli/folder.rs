//! The folder of a search: its files, and how they are written.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::builder::TypedValueParser;
use gputune::Space;
use gputune::report::emit::{FORMATS, Format};
use gputune::search::Kept;
use gputune::search::kept::{self, Record};
use tempfile::NamedTempFile;

use super::exit::Failed;
use super::paths;

pub(super) const JOURNAL: &str = kept::JOURNAL;
pub(super) const BEST_JSON: &str = "best.json";
pub(super) const BEST_TOML: &str = "best.toml";
pub(super) const TRIALS: &str = "trials.csv";
pub(super) const PAGE: &str = "report.html";
pub(super) const SUMMARY: &str = "summary.md";
pub(super) const SPEC: &str = "spec.toml";

/// Parses the name of a format. Help and errors list the known formats.
pub(super) fn format_parser() -> impl TypedValueParser<Value = &'static Format> {
    super::one_of(FORMATS, |format| (format.name, format.about))
}

/// Returns the format, or JSON if the user gave `--json`.
pub(super) fn format_or_json(format: &'static Format, is_json: bool) -> &'static Format {
    gputune::report::emit::format("json").filter(|_| is_json).unwrap_or(format)
}

/// The folder of all searches, in the current folder.
pub(super) const ALL: &str = "gputune-out";
/// The spec that `gputune init` and `gputune tune` write.
pub(super) const OWN_SPEC: &str = "gputune.toml";

/// Returns the default folder of a spec's search: `gputune-out/<name of the file>`, or the folder of a spec that `gputune tune` wrote.
pub(super) fn default_for(spec: &Path) -> PathBuf {
    let has_search =
        |folder: &Path| folder.join(JOURNAL).exists() || folder.parent().is_some_and(|all| all.ends_with(ALL));
    let is_of_tune =
        spec.file_name().is_some_and(|name| name == OWN_SPEC) && paths::absolute(spec).parent().is_some_and(has_search);
    match spec.parent().filter(|_| is_of_tune) {
        Some(folder) if folder.as_os_str().is_empty() => PathBuf::from("."),
        Some(folder) => folder.to_owned(),
        None => Path::new(ALL).join(spec.file_stem().unwrap_or(spec.as_os_str())),
    }
}

/// Returns the given folder of a search, else the search below `gputune-out` that was active last.
pub(super) fn of_search(given: Option<&Path>) -> Result<PathBuf, Failed> {
    let newest = || newest().ok_or_else(|| Failed::usage(format!("there is no search below {ALL}")));
    let hint = "name the folder of a search, or begin one: gputune tune SCRIPT";
    given.map_or_else(newest, |dir| Ok(dir.to_owned())).map_err(|failed| failed.hint(hint))
}

/// Returns the given spec, else `gputune.toml` of this folder, else the spec of the search below `gputune-out` that was active last.
pub(super) fn spec(given: Option<&Path>) -> Result<PathBuf, Failed> {
    if let Some(spec) = given.map(Path::to_owned).or_else(|| Some(PathBuf::from(OWN_SPEC)).filter(|own| own.is_file()))
    {
        return Ok(spec);
    }
    let of_study = |folder: PathBuf| {
        let own = Some(folder.join(OWN_SPEC)).filter(|own| own.is_file());
        own.or_else(|| Kept::read(&folder).ok().map(|kept| PathBuf::from(kept.spec)).filter(|spec| spec.is_file()))
    };
    newest().and_then(of_study).ok_or_else(|| {
        Failed::usage(format!("there is no {OWN_SPEC} here, and no search with a spec below {ALL}"))
            .hint("name a spec, or a script: gputune tune SCRIPT")
    })
}

/// Returns the search below `gputune-out` that was active last.
fn newest() -> Option<PathBuf> {
    let entries = fs::read_dir(ALL).ok()?.flatten().map(|entry| entry.path());
    let active = |folder: &PathBuf| fs::metadata(folder.join(JOURNAL)).and_then(|journal| journal.modified()).ok();
    entries.filter_map(|folder| Some((active(&folder)?, folder))).max().map(|(_, folder)| folder)
}

/// Returns the default folder of another command for a spec: the search's folder with a suffix such as `-probe`.
pub(super) fn beside(spec: &Path, suffix: &str) -> PathBuf {
    let mut folder = default_for(spec).into_os_string();
    folder.push(suffix);
    folder.into()
}

/// Makes the folder and checks that it is writable, before any probe costs time. Returns its absolute path.
pub(super) fn prepare(folder: &Path) -> Result<PathBuf, Failed> {
    let failed = |error: io::Error| {
        Failed::impossible(format!("cannot write to the folder {}: {error}", folder.display()))
            .hint("choose another with --out DIR")
    };
    fs::create_dir_all(folder).map_err(failed)?;
    tempfile::tempfile_in(folder).map_err(failed)?;
    Ok(paths::absolute(folder))
}

pub(super) fn write(folder: &Path, name: &str, text: &str) -> Result<(), Failed> {
    let path = folder.join(name);
    replace(&path, text.as_bytes()).map_err(|error| {
        Failed::impossible(format!("cannot write {}: {error}", path.display()))
            .hint("all trials are in the journal; make room and run the same command again")
    })
}

/// Writes a file as a whole or not at all. An existing file keeps its permissions; a read-only file is an error.
/// Writes directly to a pipe, /dev/stdout or other special file.
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
    let mut file = tempfile::NamedTempFile::new_in(paths::folder_of(path))?;
    file.write_all(bytes)?;
    file.as_file().sync_data()?;
    fs::set_permissions(file.path(), permissions)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Writes a temporary file, which [`persist`] renames.
pub(super) fn temporary(folder: &Path, text: &str) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix(".gputune-").suffix(".toml").tempfile_in(folder)?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_data())?;
    Ok(file)
}

/// Renames a temporary file to `path`. With `replaces`, an existing file is kept aside; without, it is an error.
pub(super) fn persist(file: NamedTempFile, path: &Path, replaces: bool) -> io::Result<()> {
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644))?;
    if replaces {
        keep_aside(path)?;
    }
    let kept = if replaces { file.persist(path) } else { file.persist_noclobber(path) };
    kept.map(|_| ()).map_err(|error| error.error)
}

/// Copies a file that is about to be replaced to a free name, such as `gputune.toml.1`.
fn keep_aside(path: &Path) -> io::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let numbered = |number: u32| PathBuf::from(format!("{}.{number}", path.display()));
    let free = (1..).map(numbered).find(|place| place.symlink_metadata().is_err());
    free.map_or(Ok(0), |place| fs::copy(path, place)).map(|_| ())
}

pub(super) fn describe(folder: &Path, record: &Record<&Space>) -> Result<(), Failed> {
    write(folder, kept::STUDY, &record.to_json()?)
}

/// Removes a file that an earlier run may have left.
pub(super) fn remove(folder: &Path, name: &str) {
    let _ = fs::remove_file(folder.join(name));
}

/// Moves the folder of an earlier search aside. The spec of `gputune tune` stays.
pub(super) fn start_over(folder: &Path, is_quiet: bool) -> Result<(), Failed> {
    let Some(aside) = set_aside(folder)? else { return Ok(()) };
    bring_own_spec(&aside, folder)?;
    if !is_quiet {
        say!("the earlier search is kept in {}", aside.display());
    }
    Ok(())
}

/// Copies the spec of `gputune tune`, with its templates, from a folder that was set aside into the new folder.
fn bring_own_spec(aside: &Path, folder: &Path) -> Result<(), Failed> {
    for entry in fs::read_dir(aside)?.flatten() {
        let name = entry.file_name();
        let is_template = |name: &str| name.starts_with("gputune.") && name.ends_with(".in");
        if name == OWN_SPEC || name.to_str().is_some_and(is_template) {
            fs::create_dir_all(folder).and_then(|()| fs::copy(entry.path(), folder.join(name)))?;
        }
    }
    Ok(())
}

/// Moves the folder of an earlier search aside to a free name, and returns that name; leaves any other folder alone. If the path
/// is a link, the link stays and the folder behind it moves: `--fresh` must not change the place of results.
pub(super) fn set_aside(folder: &Path) -> Result<Option<PathBuf>, Failed> {
    if !folder.join(JOURNAL).exists() {
        return Ok(None);
    }
    let failed = |error: io::Error| {
        Failed::impossible(format!("cannot move {} aside: {error}", folder.display()))
            .hint("choose another folder with --out DIR")
    };
    let is_link = fs::symlink_metadata(folder).map_err(failed)?.is_symlink();
    let real = if is_link { folder.canonicalize().map_err(failed)? } else { folder.to_owned() };
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let free = (1..10_000).map(|number| real.with_file_name(format!("{name}.{number}"))).find(|path| !path.exists());
    let aside = free.ok_or_else(|| Failed::impossible("there are too many old folders"))?;
    fs::rename(&real, &aside).map_err(failed)?;
    if is_link {
        // The folder behind the link is made again, with its earlier permissions.
        let permissions = fs::metadata(&aside).map_err(failed)?.permissions();
        fs::create_dir(&real).and_then(|()| fs::set_permissions(&real, permissions)).map_err(failed)?;
    }
    Ok(Some(aside))
}
