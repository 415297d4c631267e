//! Finds the folders that a step is known to use, from its command and environment.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::caches;
use crate::probe::StepTemplate;
use crate::probe::Template;

/// The folders that matter for a layout.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub(super) cwd: PathBuf,
    /// gputune's output folder, or its nearest existing parent.
    pub(super) out: PathBuf,
    pub(super) home: Option<PathBuf>,
    pub(super) temporary: PathBuf,
    /// Folders that the command and the environment name, and the targets of links in the working folder.
    pub(super) named: Vec<PathBuf>,
    /// The caches.
    pub(super) caches: Vec<PathBuf>,
    /// The Python environment of the program.
    pub(super) prefix: Option<PathBuf>,
    /// Folders of named pipes on which other tools listen.
    pub(super) pipes: Vec<PathBuf>,
}

impl Surroundings {
    pub(super) fn of(template: &StepTemplate, out: &Path) -> Self {
        let fixed = |template: &Template| template.names().next().is_none();
        let env: BTreeMap<String, String> = template
            .env
            .iter()
            .filter(|(_, value)| fixed(value))
            .map(|(name, value)| (name.clone(), value.text().to_owned()))
            .collect();
        let value = |name: &str| env.get(name).map(PathBuf::from).or_else(|| std::env::var_os(name).map(PathBuf::from));
        let words: Vec<&str> = template.command.iter().filter(|word| fixed(word)).map(Template::text).collect();
        let home = value("HOME").and_then(|home| home.canonicalize().ok()).filter(|home| home.parent().is_some());
        let cwd = template.cwd.clone();
        let prefix = words.first().and_then(|program| caches::environment_of(program, &cwd, &env));
        Self {
            named: named(&cwd, words.iter().copied().chain(env.values().map(String::as_str))),
            caches: caches::folders(&env, home.as_deref(), prefix.as_deref()),
            out: out.ancestors().find_map(|folder| folder.canonicalize().ok()).unwrap_or_else(|| cwd.clone()),
            temporary: value("TMPDIR").filter(|path| path.is_dir()).unwrap_or_else(std::env::temp_dir),
            // NVIDIA's documentation of MPS, "CUDA_MPS_PIPE_DIRECTORY".
            pipes: vec![value("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| "/tmp/nvidia-mps".into())],
            cwd,
            home,
            prefix,
        }
    }

    /// Returns the folders that must be writable for an unchanged script.
    pub(super) fn essential(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.cwd].into_iter().chain(&self.home)
    }
}

/// Returns the folders that words name: the word itself, or the part after a `=`. For a file, its folder.
fn named<'w>(cwd: &Path, words: impl Iterator<Item = &'w str>) -> Vec<PathBuf> {
    let parts =
        words.map(|word| word.split_once('=').filter(|_| !cwd.join(word).exists()).map_or(word, |(_, value)| value));
    let paths = parts.filter(|part| part.contains('/') || cwd.join(part).is_dir()).map(|part| cwd.join(part));
    let links = fs::read_dir(cwd).into_iter().flatten().flatten();
    let links = links.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink())).map(|entry| entry.path());
    let folder = |path: PathBuf| {
        let there = path.ancestors().find_map(|above| above.canonicalize().ok())?;
        Some(if there.is_dir() { there } else { there.parent()?.to_owned() })
    };
    let mut folders: Vec<PathBuf> =
        paths.chain(links).filter_map(folder).filter(|folder| folder.parent().is_some()).collect();
    folders.sort();
    folders.dedup();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_named_by_words_and_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let cwd = root.join("project");
        for name in ["project/local", "data", "elsewhere", "out"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::write(root.join("data/train.bin"), "").unwrap();
        std::os::unix::fs::symlink(root.join("elsewhere"), cwd.join("link")).unwrap();
        let data = root.join("data/train.bin").display().to_string();
        let output = format!("--out={}", root.join("out/new/deep").display());
        let found = named(&cwd, ["python", "--data", &data, &output, "local"].into_iter());
        assert_eq!(found, ["data", "elsewhere", "out", "project/local"].map(|name| root.join(name)));
    }
}
