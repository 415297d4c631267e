//! Writes the spec and its templates next to each other, as a whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gputune::init::{Template, draft::RenderedFile};
use gputune::spec::Spec;
use tempfile::NamedTempFile;

use super::Args;
use crate::cli::exit::{Exit, Failed};
use crate::cli::folder;

/// Writes the spec as a whole or not at all, and only once it is known to be accepted.
pub(super) fn write(args: &Args, folder: &Path, text: &str, templates: &[Template]) -> Result<Spec, Failed> {
    let failed = |error: &io::Error| {
        let message = format!("cannot write {}: {error}", args.out.display());
        Failed::new(Exit::Impossible, message)
            .hint("is the folder there, and may this user write in it? Choose another file with --out FILE")
    };
    let is_kept = args.keeps_spec();
    // Templates are written first, because the spec is not accepted without them. A failure removes them again.
    let named = templates.iter().filter_map(|template| Some((rendered(&args.out, template)?.0, template)));
    let missing = named.filter(|(name, _)| !(is_kept && folder.join(name).exists()));
    let placed = missing.map(|(name, template)| place(&folder.join(name), &template.text, args.fresh));
    let mut placed = placed.collect::<io::Result<Vec<Placed>>>().map_err(|error| failed(&error))?;
    let file = temporary(folder, text).map_err(|error| failed(&error))?;
    let spec = Spec::load(file.path()).map_err(|error| {
        let message = format!("the spec for this command would not be accepted: {}", error.message);
        Failed::new(Exit::Impossible, message)
            .hint("nothing was written; write the spec by hand, as docs/spec.md says, and report this, please")
    })?;
    if is_kept {
        return same_job(&args.out, spec);
    }
    persist(file, &args.out, args.fresh).map_err(|error| failed(&error))?;
    placed.iter_mut().for_each(|placed| placed.stays = true);
    Ok(spec)
}

/// Returns the spec that is there if it runs the same job as a new one.
fn same_job(path: &Path, new: Spec) -> Result<Spec, Failed> {
    let old = Spec::load(path)?;
    let device = |spec: &Spec| spec.device().map_err(Failed::from);
    if old.fingerprint(&device(&old)?).command == new.fingerprint(&device(&new)?).command {
        return Ok(old);
    }
    let message = format!("{} is there already, and runs another command", path.display());
    let search = gputune::report::emit::shell_word(&path.display().to_string());
    Err(Failed::new(Exit::Usage, message).hint(format!(
        "replace it with --fresh (the old folder is kept), or search it unchanged: gputune search {search}"
    )))
}

/// Returns true if the spec that is there runs these words, with the settings of its baseline.
pub(super) fn is_there_for(args: &Args, words: &[String]) -> bool {
    let Some(spec) = Some(&args.out).filter(|_| args.keeps_spec()) else { return false };
    let Ok(spec) = Spec::load(spec) else { return false };
    let stated = spec.baseline.clone().unwrap_or_default();
    let Ok(config) = spec.space.as_it_is_with(&stated) else { return false };
    let settings = spec.space.settings(&config);
    let rendered = spec.step.template().render(&settings, Path::new("gputune"), Path::new("."));
    rendered.command == words && rendered.files.is_empty()
}

/// Describes the file of a template, which lies next to the spec. The command runs in `cwd`.
pub(super) fn rendered_file(out: &Path, cwd: &Path, template: &Template) -> Option<RenderedFile> {
    let (name, path) = rendered(out, template)?;
    let own = template.config.strip_prefix(cwd).unwrap_or(&template.config);
    Some(RenderedFile { template: name, path, replaces: template.is_opened.then(|| own.display().to_string()) })
}

/// Returns the names of the template, which lies next to the spec, and of the rendered file.
fn rendered(out: &Path, template: &Template) -> Option<(String, String)> {
    let name = template.config.file_name()?.to_str()?;
    let stem = out.file_stem()?.to_str()?;
    Some((format!("{stem}.{name}.in"), name.to_owned()))
}

/// A file that is removed unless it stays.
struct Placed {
    path: PathBuf,
    stays: bool,
}

impl Drop for Placed {
    fn drop(&mut self) {
        if !self.stays {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn place(path: &Path, text: &str, replaces: bool) -> io::Result<Placed> {
    let file = temporary(path.parent().unwrap_or(Path::new(".")), text)?;
    persist(file, path, replaces)?;
    Ok(Placed { path: path.to_owned(), stays: false })
}

fn temporary(folder: &Path, text: &str) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix(".gputune-").suffix(".toml").tempfile_in(folder)?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_data())?;
    Ok(file)
}

/// Gives a file its name, as a whole or not at all; replaces another file only if that is wanted.
fn persist(file: NamedTempFile, path: &Path, replaces: bool) -> io::Result<()> {
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644))?;
    if replaces {
        folder::keep_aside(path)?;
    }
    let kept = if replaces { file.persist(path) } else { file.persist_noclobber(path) };
    kept.map(|_| ()).map_err(|error| error.error)
}
