//! Finds cuBLASLt, also in the wheels of Python, where the loader does not look.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;

use super::CudaError;
use super::error::BLAS;

/// The searched major versions of the library; the interface used here is the same in both.
const MAJORS: [i32; 2] = [13, 12];

/// Loads the first cuBLASLt that works, once for the process. For each version, supported and later versions first, it tries the
/// loader by name, then [`search_folders`].
///
/// # Errors
/// No library can be loaded.
pub(crate) fn find_blas(driver_major: i32) -> Result<(), CudaError> {
    static IS_PRESENT: OnceLock<bool> = OnceLock::new();
    let is_present = *IS_PRESENT.get_or_init(|| load(driver_major));
    is_present.then_some(()).ok_or(CudaError::NotFound { library: BLAS })
}

fn load(driver_major: i32) -> bool {
    let mut majors = MAJORS;
    majors.sort_by_key(|&major| major > driver_major);
    let folders = search_folders();
    let files = majors.map(|major| format!("{BLAS}.so.{major}"));
    let mut places = files.iter().flat_map(|file| {
        let in_folders = folders.iter().map(move |folder| folder.join(file)).filter(|path| path.is_file());
        std::iter::once(PathBuf::from(file)).chain(in_folders)
    });
    // SAFETY: the initialisers of the library have no preconditions.
    let library = places.find_map(|path| unsafe { Library::new(path) }.ok());
    // It stays loaded: when cudarc asks for it by name, the loader returns this copy, whatever its folder.
    let library = library.map(|library| Box::leak(Box::new(library)));
    // SAFETY: as above.
    library.is_some() && unsafe { cudarc::cublaslt::sys::is_culib_present() }
}

/// Returns the folders for libraries that the loader does not find: `CUDA_HOME` and `CUDA_PATH`, Python wheels, and
/// `/usr/local/cuda`. The wheels are in the Python environments of `VIRTUAL_ENV`, `CONDA_PREFIX` and `PATH`, installed by
/// pip for the user, or next to the system's Python.
fn search_folders() -> Vec<PathBuf> {
    let mut folders = candidates(&|name| std::env::var_os(name));
    let mut seen = BTreeSet::new();
    folders.retain(|folder| folder.is_dir() && seen.insert(folder.clone()));
    folders
}

fn candidates(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let all = |names: [&str; 2]| names.into_iter().filter_map(folder).collect::<Vec<PathBuf>>();
    let mut folders: Vec<PathBuf> = all(["CUDA_HOME", "CUDA_PATH"]).into_iter().flat_map(toolkit).collect();
    let path = variable("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute() && folder.join("python3").exists())
        .filter_map(|folder| folder.parent().map(Path::to_owned));
    for prefix in all(["VIRTUAL_ENV", "CONDA_PREFIX"]).into_iter().chain(on_path) {
        folders.extend(wheels(&prefix));
        // Debian's Python in /usr/bin installs to /usr/local (its patch of `sysconfig`, scheme `posix_local`).
        folders.extend(wheels(&prefix.join("local")));
        folders.push(prefix.join("lib"));
    }
    // `pip --user`: PEP 370.
    let user = folder("PYTHONUSERBASE").or_else(|| folder("HOME").map(|home| home.join(".local")));
    folders.extend(user.iter().flat_map(|base| wheels(base)));
    folders.extend(wheels(Path::new("/usr/local")));
    folders.extend(toolkit(PathBuf::from("/usr/local/cuda")));
    folders
}

fn toolkit(home: PathBuf) -> [PathBuf; 3] {
    [home.join("lib64"), home.join("lib"), home.join(format!("targets/{}-linux/lib", std::env::consts::ARCH))]
}

/// Returns the folders of libraries in a Python environment's wheels: `lib/python3.11/site-packages/nvidia/*/lib`, on
/// Debian also `dist-packages`.
fn wheels(prefix: &Path) -> Vec<PathBuf> {
    let entries = |folder: PathBuf| {
        let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
        paths.sort();
        paths
    };
    let pythons = ["lib", "lib64"].into_iter().flat_map(|lib| entries(prefix.join(lib)));
    let is_python = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"));
    let packages =
        pythons.filter(is_python).flat_map(|python| [python.join("site-packages"), python.join("dist-packages")]);
    packages.flat_map(|folder| entries(folder.join("nvidia"))).map(|wheel| wheel.join("lib")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_of_both_layouts_are_found() {
        let prefix = tempfile::tempdir().unwrap();
        let packages = prefix.path().join("lib/python3.12/site-packages/nvidia");
        for wheel in ["cublas/lib", "cu13/lib", "cuda_nvrtc/lib"] {
            fs::create_dir_all(packages.join(wheel)).unwrap();
        }
        let found = wheels(prefix.path());
        assert_eq!(found, ["cu13/lib", "cublas/lib", "cuda_nvrtc/lib"].map(|wheel| packages.join(wheel)));
        assert!(wheels(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn wheels_are_found_wherever_pip_puts_them() {
        let root = tempfile::tempdir().unwrap();
        let usr = root.path().join("usr");
        fs::create_dir_all(usr.join("bin")).unwrap();
        fs::write(usr.join("bin/python3"), "").unwrap();
        let below = |path: &str| {
            let folder = root.path().join(path).join("nvidia/cu13/lib");
            fs::create_dir_all(&folder).unwrap();
            folder
        };
        let wheels = [
            below("venv/lib/python3.12/site-packages"),
            below("usr/lib/python3/dist-packages"),
            below("usr/local/lib/python3.12/dist-packages"),
            below("home/.local/lib/python3.12/site-packages"),
        ];
        let found = candidates(&|name| match name {
            "VIRTUAL_ENV" => Some(root.path().join("venv").into()),
            "PATH" => Some(usr.join("bin").into()),
            "HOME" => Some(root.path().join("home").into()),
            _ => None,
        });
        let places: Vec<_> = wheels.iter().map(|wheel| found.iter().position(|folder| folder == wheel)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {found:?}");
        let other = below("base/lib/python3.12/site-packages");
        let found = candidates(&|name| (name == "PYTHONUSERBASE").then(|| root.path().join("base").into()));
        assert!(found.contains(&other), "{found:?}");
    }
}
