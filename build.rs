//! Puts the Python package and its hook into the binary: writes a list of the files below `python/` with their texts.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder that paths in the list are relative to.
const PYTHON: &str = "python";

/// The folders that are embedded.
const FOLDERS: [&str; 2] = ["python/gputune", "python/hook"];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in FOLDERS {
        println!("cargo::rerun-if-changed={folder}");
        collect(&root.join(folder), &mut files);
    }
    files.sort();
    let mut list = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(root.join(PYTHON)).expect("a file of the folder");
        // The compiler knows where the crate is. A path from here is wrong if the checkout moves or shares its target folder.
        let text = format!("include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/{PYTHON}/\", {name:?}))");
        writeln!(list, "    ({name:?}, {text}),").expect("a string grows");
    }
    list.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("python_files.rs"), list).expect("OUT_DIR can be written");
}

/// Adds all files below a folder, without what Python compiled.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("an entry of a folder").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "__pycache__") {
                collect(&path, files);
            }
        } else if path.extension().is_none_or(|extension| extension != "pyc") {
            files.push(path);
        }
    }
}
