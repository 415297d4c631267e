//! Files that an adapter's hook writes for the user. They are kept next to the probe's log.

use std::fs;
use std::path::{Path, PathBuf};

use crate::model::{Memory, Outcome};

/// A kind of file.
#[derive(Debug, Clone, Copy)]
pub struct KeptFile {
    /// The name under which the hook writes it, next to `probe.json`.
    written: &'static str,
    /// The extension of the kept file. The kept file has the name of the log, with this extension in place of `log`.
    ending: &'static str,
    is_wanted: fn(&Outcome) -> bool,
}

/// The segments and blocks of the GPU's allocator when memory ran out (`_hook/memory_snapshot.py`).
pub const MEMORY_SNAPSHOT: KeptFile = KeptFile {
    written: "memory.pickle",
    ending: "memory.pickle",
    is_wanted: |outcome| matches!(outcome, Outcome::OutOfMemory { memory: Memory::Device, .. }),
};

/// A few steps as the framework's profiler sees them (`_hook/tracing.py`). TensorBoard's plugin looks for this ending.
pub(super) const TRACE: KeptFile = KeptFile {
    written: "trace.pt.trace.json.gz",
    ending: "pt.trace.json.gz",
    is_wanted: |outcome| outcome.measurement().is_some(),
};

const ALL: [KeptFile; 2] = [MEMORY_SNAPSHOT, TRACE];

impl KeptFile {
    /// Returns the path of the file next to a log, if the probe has kept it.
    pub fn of_log(self, log: &Path) -> Option<PathBuf> {
        Some(self.path(log)).filter(|path| path.is_file())
    }

    fn path(self, log: &Path) -> PathBuf {
        log.with_extension(self.ending)
    }
}

/// Copies the wanted files of a probe from its scratch folder. If a file cannot be copied, it is left out without an
/// error.
pub(super) fn keep(scratch: &Path, log: &Path, outcome: &Outcome) {
    for kind in ALL.into_iter().filter(|kind| (kind.is_wanted)(outcome)) {
        let (from, to) = (scratch.join("python").join(kind.written), kind.path(log));
        if from.is_file() && fs::copy(&from, &to).and_then(|_| fs::remove_file(&from)).is_err() {
            let _ = fs::remove_file(&to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Failure, Measurement};

    #[test]
    fn the_blocks_are_kept_if_the_memory_of_the_device_ran_out() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("0003.log");
        let written = folder.path().join("python/memory.pickle");
        fs::create_dir(folder.path().join("python")).unwrap();
        let full = |memory| Outcome::OutOfMemory { memory, failure: Failure::default() };
        let measured = Outcome::Measured(Measurement::default());
        for (outcome, is_kept) in [(measured, false), (full(Memory::Host), false), (full(Memory::Device), true)] {
            fs::write(&written, "blocks").unwrap();
            keep(folder.path(), &log, &outcome);
            assert_eq!(MEMORY_SNAPSHOT.of_log(&log).is_some(), is_kept, "{outcome:?}");
        }
        assert!(!written.exists());
        assert_eq!(fs::read_to_string(folder.path().join("0003.memory.pickle")).unwrap(), "blocks");
        assert_eq!(TRACE.of_log(&log), None);
    }
}
