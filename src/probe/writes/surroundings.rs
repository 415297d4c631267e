//! Finds the folders that a step is known to use, from its command and environment.
//!
//! Some are caches: folders that only grow, with files that are compiled, downloaded or unpacked once and then read. If they were
//! discarded after each probe, the next probe would have to fill them again: minutes for `torch.compile`, gigabytes for a model. So
//! their layers are kept for the whole search, and discarded at its end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::probe::{StepTemplate, Template};

#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub(super) cwd: PathBuf,
    /// gputune's output folder, or its nearest existing parent.
    pub(super) out: PathBuf,
    pub(super) home: Option<PathBuf>,
    pub(super) temporary: PathBuf,
    /// Folders that the command and the environment name, and the targets of links in the working folder.
    pub(super) named: Vec<PathBuf>,
    pub(super) caches: Vec<PathBuf>,
    /// The folder of the Python environment that runs the command.
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
        let prefix = words.first().and_then(|program| environment_of(program, &cwd, &env));
        Self {
            named: named(&cwd, words.iter().copied().chain(env.values().map(String::as_str))),
            caches: cache_folders(&env, home.as_deref(), prefix.as_deref()),
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

/// Returns the folders to which words refer, and the targets of links in the working folder. A word is a path, or has a
/// path after a `=`. A file stands for its folder, and a path that does not exist for its nearest existing parent.
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

/// Variables that name a cache, from the documentation of XDG, Hugging Face, PyTorch, Triton, CUDA, Numba, JAX and Keras.
const VARIABLES: &str = "XDG_CACHE_HOME HF_HOME HF_HUB_CACHE HF_DATASETS_CACHE TRANSFORMERS_CACHE TORCH_HOME \
    TORCH_EXTENSIONS_DIR TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR CUDA_CACHE_PATH NUMBA_CACHE_DIR \
    JAX_COMPILATION_CACHE_DIR KERAS_HOME PYTHONPYCACHEPREFIX";

/// The default folders of such caches in the home folder.
const IN_HOME: &[&str] = &[".cache", ".triton", ".nv/ComputeCache", ".keras"];

/// Returns the cache folders: from these variables, in this home, and the Python environment if it has uncompiled
/// modules. A folder inside another cache folder is left out.
fn cache_folders(env: &BTreeMap<String, String>, home: Option<&Path>, prefix: Option<&Path>) -> Vec<PathBuf> {
    let value = |name: &str| env.get(name).cloned().or_else(|| std::env::var(name).ok());
    let mut folders: Vec<PathBuf> = VARIABLES.split(' ').filter_map(value).map(PathBuf::from).collect();
    folders.extend(home.into_iter().flat_map(|home| IN_HOME.iter().map(|name| home.join(name))));
    // torch/_inductor/runtime/cache_dir_utils.py, `default_cache_dir`.
    let temporary = value("TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let user = value("LOGNAME").or_else(|| value("USER")).unwrap_or_else(|| "root".to_owned());
    folders.push(temporary.join(format!("torchinductor_{user}")));
    folders.extend(prefix.filter(|prefix| !is_compiled(prefix)).map(Path::to_owned));
    folders.retain(|folder| folder.is_absolute() && folder.parent().is_some());
    folders.sort();
    let all = folders.clone();
    folders.retain(|folder| !all.iter().any(|other| folder != other && folder.starts_with(other)));
    folders.dedup();
    folders
}

/// Returns the folder of a program's Python environment: the parent of `bin`, with `lib/python3.x/site-packages` in it.
fn environment_of(program: &str, cwd: &Path, env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let path = if program.contains('/') {
        cwd.join(program)
    } else {
        let path = env.get("PATH").cloned().or_else(|| std::env::var("PATH").ok())?;
        std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())?
    };
    // The path is not resolved, because the interpreter of a virtual environment is a link to another interpreter.
    let prefix = path.parent()?.parent()?.canonicalize().ok()?;
    site_packages(&prefix).map(|_| prefix)
}

fn site_packages(prefix: &Path) -> Option<PathBuf> {
    let libraries = fs::read_dir(prefix.join("lib")).ok()?.flatten().map(|entry| entry.path().join("site-packages"));
    libraries.filter(|folder| folder.is_dir()).last()
}

/// Returns true if all packages are already compiled. Some installers leave compilation to the first import. Then the
/// modules that `import torch` loads may be compiled, but not the modules that an optimizer loads. On an H100 machine,
/// each probe compiled the missing modules again, for 7 s.
fn is_compiled(prefix: &Path) -> bool {
    let Some(packages) = site_packages(prefix) else { return true };
    let packages = fs::read_dir(packages).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut packages = packages.filter(|package| package.join("__init__.py").is_file());
    packages.all(|package| package.join("__pycache__").is_dir())
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

    #[test]
    fn the_outermost_caches_are_named() {
        let env = [("HF_HOME", "/data/hf"), ("HF_HUB_CACHE", "/data/hf/hub"), ("XDG_CACHE_HOME", "/home/me/.cache")];
        let mut env: BTreeMap<String, String> = env.map(|(name, path)| (name.to_owned(), path.to_owned())).into();
        env.extend([("TMPDIR", "/t"), ("LOGNAME", "me")].map(|(name, value)| (name.to_owned(), value.to_owned())));
        let found = cache_folders(&env, Some(Path::new("/home/me")), None);
        for folder in ["/data/hf", "/home/me/.cache", "/home/me/.triton", "/t/torchinductor_me"] {
            assert!(found.contains(&folder.into()), "{folder} in {found:?}");
        }
        assert!(!found.contains(&"/data/hf/hub".into()));
    }

    #[test]
    fn an_environment_without_compiled_modules_is_a_cache() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().canonicalize().unwrap();
        let package = prefix.join("lib/python3.12/site-packages/torch");
        fs::create_dir_all(&package).unwrap();
        fs::create_dir(prefix.join("bin")).unwrap();
        fs::write(prefix.join("bin/python"), "").unwrap();
        fs::write(package.join("__init__.py"), "").unwrap();
        let none = BTreeMap::new();
        assert_eq!(environment_of("bin/python", &prefix, &none), Some(prefix.clone()));
        assert!(cache_folders(&none, None, Some(&prefix)).contains(&prefix));
        fs::create_dir(package.join("__pycache__")).unwrap();
        assert!(!cache_folders(&none, None, Some(&prefix)).contains(&prefix));
        let other = prefix.join("lib/python3.12/site-packages/sympy");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("__init__.py"), "").unwrap();
        assert!(cache_folders(&none, None, Some(&prefix)).contains(&prefix), "a part is compiled");
    }
}
