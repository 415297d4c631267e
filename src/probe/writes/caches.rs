//! Finds caches: folders that only grow, with files that are compiled, downloaded or unpacked once and then read.
//!
//! If they were discarded after each probe, the next probe would have to fill them again: minutes for `torch.compile`, gigabytes
//! for a model. So their layers are kept for the whole search, and discarded at its end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Variables that name such a folder, from the documentation of the XDG base directories, Hugging Face, PyTorch (hub,
/// extensions, Inductor), Triton, CUDA, Numba, JAX and Keras.
const VARIABLES: &[&str] = &[
    "XDG_CACHE_HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "TRANSFORMERS_CACHE",
    "TORCH_HOME",
    "TORCH_EXTENSIONS_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "NUMBA_CACHE_DIR",
    "JAX_COMPILATION_CACHE_DIR",
    "KERAS_HOME",
    "PYTHONPYCACHEPREFIX",
];

/// The default places of such folders in the home.
const IN_HOME: &[&str] = &[".cache", ".triton", ".nv/ComputeCache", ".keras"];

/// Returns the folders of these variables, of this home, and of a Python environment with uncompiled modules. No folder lies in
/// another.
pub(super) fn folders(env: &BTreeMap<String, String>, home: Option<&Path>, prefix: Option<&Path>) -> Vec<PathBuf> {
    let value = |name: &str| env.get(name).cloned().or_else(|| std::env::var(name).ok());
    let mut folders: Vec<PathBuf> = VARIABLES.iter().filter_map(|name| value(name)).map(PathBuf::from).collect();
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
pub(super) fn environment_of(program: &str, cwd: &Path, env: &BTreeMap<String, String>) -> Option<PathBuf> {
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

/// Returns true if all packages are already compiled. Some installers leave compilation to the first use, so a part may be compiled:
/// what `import torch` reads, but not what an optimizer reads. On an H100 machine each probe compiled the rest again, for 7 s.
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
    fn the_outermost_caches_are_named() {
        let env = [("HF_HOME", "/data/hf"), ("HF_HUB_CACHE", "/data/hf/hub"), ("XDG_CACHE_HOME", "/home/me/.cache")];
        let mut env: BTreeMap<String, String> = env.map(|(name, path)| (name.to_owned(), path.to_owned())).into();
        env.extend([("TMPDIR", "/t"), ("LOGNAME", "me")].map(|(name, value)| (name.to_owned(), value.to_owned())));
        let found = folders(&env, Some(Path::new("/home/me")), None);
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
        assert!(folders(&none, None, Some(&prefix)).contains(&prefix));
        fs::create_dir(package.join("__pycache__")).unwrap();
        assert!(!folders(&none, None, Some(&prefix)).contains(&prefix));
        let other = prefix.join("lib/python3.12/site-packages/sympy");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("__init__.py"), "").unwrap();
        assert!(folders(&none, None, Some(&prefix)).contains(&prefix), "a part is compiled");
    }
}
