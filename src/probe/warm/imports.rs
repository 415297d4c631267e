//! The imports of a fresh probe up to its first step, and the start of its Python.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// The file that the hook writes next to `probe.json` (`imports.py`).
const FILE: &str = "imports.json";

/// The prefixes of variables that libraries read while they load, unseen by Python: the dynamic linker and allocator, OpenMP and
/// BLAS, Python itself, torch, time zone and language.
pub(in crate::probe) const LOAD_TIME: &[&str] = &[
    "ATEN_",
    "BLIS_",
    "DNNL_",
    "GLIBC_",
    "GOMP_",
    "KMP_",
    "LANG",
    "LC_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTHON",
    "PYTORCH_",
    "TORCH",
    "TZ",
];

/// The facts about the first probe that the zygote needs.
#[derive(Debug, Clone, Deserialize)]
pub(in crate::probe) struct Imports {
    pid: u32,
    pub(in crate::probe) executable: PathBuf,
    arguments: Vec<String>,
    pub(in crate::probe) options: Vec<String>,
    unfit: Option<String>,
    /// Name, file and installed flag of each module; only the zygote reads them.
    pub(in crate::probe) modules: Value,
    /// The variables that changed between the start and the first step.
    pub(in crate::probe) environment: BTreeMap<String, String>,
    /// The interpreter's arguments before the words of the command.
    #[serde(skip)]
    front: Vec<String>,
}

impl Imports {
    /// Reads the report of a probe from its scratch folder; `command` ran as process `pid`. Returns `None` without a report. The
    /// error is the reason why no zygote can run the command.
    pub(in crate::probe) fn read(scratch: &Path, command: &[String], pid: Option<u32>) -> Option<Result<Self, String>> {
        let text = fs::read(scratch.join("python").join(FILE)).ok()?;
        let mut imports: Self = serde_json::from_slice(&text).ok()?;
        if let Some(reason) = imports.unfit.take() {
            return Some(Err(reason));
        }
        if Some(imports.pid) != pid {
            return Some(Err("the command starts Python by way of another program".to_owned()));
        }
        let words = command.get(1..).unwrap_or_default();
        let Some(front) = imports.arguments.strip_suffix(words) else {
            return Some(Err("the command line of Python differs from the command".to_owned()));
        };
        // A shell script that ends in `exec python` may have changed anything before.
        let name = |word: Option<&String>| word.and_then(|word| Path::new(word).file_name().map(ToOwned::to_owned));
        if name(front.last()) != name(command.first()) {
            return Some(Err("the command starts Python by way of another program".to_owned()));
        }
        imports.front = front.to_vec();
        Some(Ok(imports))
    }

    /// Returns the interpreter's command line for another probe of the same command.
    pub(in crate::probe) fn arguments(&self, command: &[String]) -> Vec<String> {
        self.front.iter().chain(command.get(1..).unwrap_or_default()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str], command: &[&str], pid: u32) -> Option<Result<Imports, String>> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("python")).unwrap();
        let file = serde_json::json!({
            "pid": pid, "executable": "/usr/bin/python3", "arguments": arguments, "options": ["-u"], "unfit": null,
            "modules": [["torch", "/x/site-packages/torch/__init__.py", true]], "environment": {},
        });
        fs::write(folder.path().join("python").join(FILE), file.to_string()).unwrap();
        let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        Imports::read(folder.path(), &command, Some(7))
    }

    #[test]
    fn a_script_with_other_arguments_is_started_the_same_way() {
        let found = read(&["python3", "-u", "t.py", "--b", "4"], &["python3", "-u", "t.py", "--b", "4"], 7);
        let command = ["python3", "-u", "t.py", "--b", "8"].map(str::to_owned);
        assert_eq!(found.unwrap().unwrap().arguments(&command), command);
        let found = read(&["/v/python", "/v/bin/yolo", "train"], &["yolo", "train"], 7).unwrap().unwrap();
        assert_eq!(found.arguments(&["yolo".to_owned(), "x".to_owned()]), ["/v/python", "/v/bin/yolo", "x"]);
    }

    #[test]
    fn a_launcher_between_is_told() {
        let words = ["python3", "t.py"];
        assert!(read(&words, &words, 8).unwrap().unwrap_err().contains("another program"));
        let by_script = read(&["python", "t.py", "--b", "4"], &["./train.sh", "--b", "4"], 7);
        assert!(by_script.unwrap().unwrap_err().contains("another program"));
        assert!(read(&words, &["sh", "-c", "python3 t.py"], 7).unwrap().unwrap_err().contains("command line"));
        assert!(Imports::read(Path::new("/nonexistent"), &[], None).is_none());
    }
}
