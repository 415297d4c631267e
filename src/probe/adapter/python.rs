//! The Python package and the hook's files, which are part of the binary and are written to disk for a probe.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The files of the repository's `python/gputune` and `python/hook`, by their path below `python/`, and their texts. `build.rs`
/// writes the list.
pub const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/python_files.rs"));

/// The script, without its extension, that starts a zygote, a process to fork from.
const START_ZYGOTE: &str = "start_zygote";

/// Returns the path of the script that starts a zygote, below a folder that [`install`] wrote.
pub(in crate::probe) fn start_zygote(folder: &Path) -> PathBuf {
    folder.join(START_ZYGOTE).with_extension("py")
}

/// Writes the package and its hook below a folder that must come first on `PYTHONPATH`.
///
/// # Errors
/// A file cannot be written.
pub fn install(folder: &Path) -> io::Result<()> {
    // A distribution as Python's packaging user guide describes it ("Recording installed projects", "Entry points specification").
    // Its name differs from the package's name, because the package may also be installed.
    let version = env!("CARGO_PKG_VERSION");
    let distribution = folder.join(format!("gputune_hook-{version}.dist-info"));
    for (path, text) in FILES {
        let target = match path.strip_prefix("hook/") {
            // Since 2.5, torch also loads the entry point. Python itself reads `sitecustomize.py` at start-up.
            Some("entry_points.txt") => distribution.join("entry_points.txt"),
            Some(name) => folder.join(name),
            None => folder.join(path),
        };
        write(&target, text)?;
    }
    write(&distribution.join("METADATA"), &format!("Metadata-Version: 2.1\nName: gputune-hook\nVersion: {version}\n"))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_has_the_version_of_the_binary() {
        let version = format!("__version__ = \"{}\"\n", env!("CARGO_PKG_VERSION"));
        assert!(FILES.iter().any(|(_, text)| text.contains(&version)));
    }

    #[test]
    fn all_files_are_laid_down() {
        let folder = tempfile::tempdir().unwrap();
        install(folder.path()).unwrap();
        for (path, text) in FILES.iter().filter(|(path, _)| path.ends_with(".py")) {
            let path = path.strip_prefix("hook/").unwrap_or(path);
            assert_eq!(fs::read_to_string(folder.path().join(path)).unwrap(), *text);
        }
        assert!(start_zygote(folder.path()).exists());
        let distribution = format!("gputune_hook-{}.dist-info", env!("CARGO_PKG_VERSION"));
        let metadata = fs::read_to_string(folder.path().join(distribution).join("METADATA")).unwrap();
        assert!(metadata.contains("Name: gputune-hook\n"), "{metadata}");
    }
}
