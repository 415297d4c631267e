//! Finds the libraries, and the functions in them.

use std::collections::BTreeSet;
use std::ffi::{OsString, c_int};
use std::fs;
use std::path::{Path, PathBuf};

use libloading::Library;

use super::CudaError;

/// A table of a library's functions, which may be absent. A call returns an error if the function is absent or returns
/// another code than 0.
macro_rules! functions {
    ($(#[$attribute:meta])* $table:ident of $library:literal {
        $($(#[$function_attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?);)*
    }) => {
        $(#[$attribute])*
        #[derive(Debug)]
        #[expect(non_snake_case, reason = "the library's own names")]
        pub(super) struct $table { $($name: Option<unsafe extern "C" fn($($kind),*) -> std::ffi::c_int>,)* }

        #[expect(non_snake_case, reason = "the library's own names")]
        impl $table {
            /// Returns the functions that the library does not have.
            #[cfg(test)]
            pub(super) fn missing(&self) -> Vec<&'static str> {
                let all = [$((stringify!($name), self.$name.is_none())),*];
                all.into_iter().filter(|(_, missing)| *missing).map(|(name, _)| name).collect()
            }

            pub(super) fn of(library: &libloading::Library) -> Self {
                // SAFETY: the signatures are those of the library's header, for which `cudarc` has the types.
                unsafe { Self { $($name: $crate::machine::foreign::cuda::library::symbol(library, stringify!($name)),)* } }
            }

            $(
                /// # Safety
                /// The arguments are as the library's documentation asks.
                $(#[$function_attribute])*
                pub(super) unsafe fn $name(&self, $($argument: $kind),*) -> Result<(), CudaError> {
                    let Some(function) = self.$name else {
                        return Err(CudaError::NoSymbol { library: $library, symbol: stringify!($name) });
                    };
                    // SAFETY: the caller's arguments are as documented.
                    let code = unsafe { function($($argument),*) };
                    if code == 0 { Ok(()) } else { Err(self.failure(stringify!($name), code)) }
                }
            )*
        }
    };
}
pub(super) use functions;

/// Returns a function of the library, if it exists.
///
/// # Safety
/// `T` is the function's type.
pub(super) unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> Option<T> {
    // SAFETY: the caller vouches for the type.
    let found = unsafe { library.get::<T>(name.as_bytes()) };
    found.ok().map(|symbol| *symbol)
}

/// A library that may come in several major versions, such as `libcublasLt.so.13`.
pub(super) struct Wanted {
    /// Its name in messages.
    pub(super) name: &'static str,
    /// The file name without version, such as `libcublasLt.so`.
    pub(super) file: &'static str,
}

/// The searched major versions of the CUDA libraries; the interface used here is the same in both.
const MAJORS: [c_int; 2] = [13, 12];

/// Loads the first library that works: by name through the loader, then in [`search_folders`]. Versions that the driver
/// supports come first, latest first.
pub(super) fn load(wanted: &Wanted, driver_major: Option<c_int>) -> Result<&'static Library, CudaError> {
    let mut majors = MAJORS.to_vec();
    majors.sort_by_key(|&major| driver_major.is_some_and(|driver| major > driver));
    let folders = search_folders();
    let mut refused = None;
    for major in majors {
        let file = format!("{}.{major}", wanted.file);
        let in_folders = folders.iter().map(|folder| folder.join(&file)).filter(|path| path.is_file());
        for path in std::iter::once(PathBuf::from(&file)).chain(in_folders) {
            match open(&path) {
                Ok(library) => return Ok(library),
                // A plain name that is not found is no error; a file that does not load is an error.
                Err(error) if path.is_absolute() || !error.contains("No such file") => refused = Some(error),
                Err(_) => {}
            }
        }
    }
    Err(refused.map_or(CudaError::NotFound { library: wanted.name }, |reason| CudaError::Broken {
        library: wanted.name,
        reason,
    }))
}

/// Loads a library for the rest of the process. It must never be unloaded, because the work it started still uses it.
pub(super) fn open(path: &Path) -> Result<&'static Library, String> {
    // SAFETY: the initialisers of the NVIDIA libraries have no preconditions; the names are theirs.
    let library = unsafe { Library::new(path) };
    let leaked: Result<&Library, _> = library.map(|library| &*Box::leak(Box::new(library)));
    leaked.map_err(|error| {
        // The error says only that loading failed; its source says why.
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        cause.replace('\n', " ")
    })
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

    #[test]
    fn a_library_that_is_nowhere_is_told_from_one_that_is_broken() {
        let wanted = Wanted { name: "libnone", file: "libnone-of-that-name.so" };
        assert_eq!(load(&wanted, None).unwrap_err(), CudaError::NotFound { library: "libnone" });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libtext.so");
        fs::write(&file, "no library").unwrap();
        let error = open(&file).unwrap_err();
        assert!(error.contains("libtext.so") && !error.contains('\n'), "{error}");
    }
}
