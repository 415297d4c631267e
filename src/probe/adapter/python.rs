//! The Python package and the hook's files, which are part of the binary and are written to disk for a probe.

use std::fs;
use std::io;
use std::path::Path;

/// Pairs a file of the repository's `python/` with its text. The file's path is relative to the folder that is put on `PYTHONPATH`.
macro_rules! package {
    ($($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../../python/", $path)))),*]
    };
}

/// The files of the package `gputune`, by their path below `python/`, and their texts.
pub const FILES: &[(&str, &str)] = package! {
    "gputune/__init__.py"
    "gputune/__main__.py"
    "gputune/_client.py"
    "gputune/_hook/__init__.py"
    "gputune/_hook/accumulation.py"
    "gputune/_hook/applying.py"
    "gputune/_hook/backends.py"
    "gputune/_hook/backward.py"
    "gputune/_hook/batches.py"
    "gputune/_hook/by_hand.py"
    "gputune/_hook/call_sites.py"
    "gputune/_hook/checkpointing.py"
    "gputune/_hook/communication.py"
    "gputune/_hook/compiling.py"
    "gputune/_hook/data_files.py"
    "gputune/_hook/data_parallel.py"
    "gputune/_hook/dataset_watch.py"
    "gputune/_hook/devices.py"
    "gputune/_hook/dynamic_shapes.py"
    "gputune/_hook/entry.py"
    "gputune/_hook/errors.py"
    "gputune/_hook/experiment.py"
    "gputune/_hook/facts.py"
    "gputune/_hook/file_calls.py"
    "gputune/_hook/guarded_places.py"
    "gputune/_hook/first_run.py"
    "gputune/_hook/flops.py"
    "gputune/_hook/graphs.py"
    "gputune/_hook/import_times.py"
    "gputune/_hook/importing.py"
    "gputune/_hook/imports.py"
    "gputune/_hook/install.py"
    "gputune/_hook/invocation.py"
    "gputune/_hook/layer_changes.py"
    "gputune/_hook/layer_journal.py"
    "gputune/_hook/layer_listing.py"
    "gputune/_hook/line_table.py"
    "gputune/_hook/lines.py"
    "gputune/_hook/live.py"
    "gputune/_hook/loader.py"
    "gputune/_hook/loader_kinds.py"
    "gputune/_hook/loader_only.py"
    "gputune/_hook/loader_settings.py"
    "gputune/_hook/logs.py"
    "gputune/_hook/losses.py"
    "gputune/_hook/marks.py"
    "gputune/_hook/memory.py"
    "gputune/_hook/model_facts.py"
    "gputune/_hook/modules.py"
    "gputune/_hook/native_writers.py"
    "gputune/_hook/no_communication.py"
    "gputune/_hook/observer.py"
    "gputune/_hook/operations.py"
    "gputune/_hook/optimizers.py"
    "gputune/_hook/outside.py"
    "gputune/_hook/own_gradients.py"
    "gputune/_hook/parts.py"
    "gputune/_hook/patching.py"
    "gputune/_hook/precision.py"
    "gputune/_hook/reads.py"
    "gputune/_hook/refusals.py"
    "gputune/_hook/renewal.py"
    "gputune/_hook/replaying.py"
    "gputune/_hook/run_length.py"
    "gputune/_hook/samples.py"
    "gputune/_hook/sampling.py"
    "gputune/_hook/scaling.py"
    "gputune/_hook/scratch_layer.py"
    "gputune/_hook/session.py"
    "gputune/_hook/sharding.py"
    "gputune/_hook/shards.py"
    "gputune/_hook/short_epochs.py"
    "gputune/_hook/silence.py"
    "gputune/_hook/stacks.py"
    "gputune/_hook/step_times.py"
    "gputune/_hook/steps.py"
    "gputune/_hook/stopping.py"
    "gputune/_hook/syncs.py"
    "gputune/_hook/targets.py"
    "gputune/_hook/timeline.py"
    "gputune/_hook/training_stacks.py"
    "gputune/_hook/transfers.py"
    "gputune/_hook/warm_child.py"
    "gputune/_hook/writes.py"
    "gputune/_hook/zygote.py"
    "gputune/_hook/zygote_guards.py"
    "gputune/_program.py"
    "gputune/_search.py"
    "gputune/_study.py"
    "gputune/integrations/__init__.py"
    "gputune/integrations/accelerate.py"
    "gputune/integrations/keras.py"
    "gputune/integrations/lightning.py"
    "gputune/integrations/transformers.py"
    "gputune/py.typed"
};

/// The file that Python reads at start-up. Since 2.5, torch also loads the entry point.
const SITECUSTOMIZE: &str = include_str!("../../../python/hook/sitecustomize.py");
/// The script that starts a zygote, a process to fork from.
pub(in crate::probe) const START_ZYGOTE: &str = "start_zygote.py";
const START_ZYGOTE_TEXT: &str = include_str!("../../../python/hook/start_zygote.py");
const ENTRY_POINTS: &str = include_str!("../../../python/hook/entry_points.txt");

/// Writes the package and its hook below a folder that must come first on `PYTHONPATH`.
///
/// # Errors
/// A file cannot be written.
pub fn install(folder: &Path) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    for (path, text) in FILES {
        write(&folder.join(path), text)?;
    }
    write(&folder.join("sitecustomize.py"), SITECUSTOMIZE)?;
    write(&folder.join(START_ZYGOTE), START_ZYGOTE_TEXT)?;
    // A distribution as Python's packaging user guide describes it ("Recording installed projects", "Entry points specification").
    // Its name differs from the package's name, because the package may also be installed.
    let distribution = folder.join(format!("gputune_hook-{version}.dist-info"));
    write(&distribution.join("entry_points.txt"), ENTRY_POINTS)?;
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
        assert!(FILES.iter().any(|(path, text)| *path == "gputune/__init__.py" && text.contains(&version)));
    }

    #[test]
    fn all_files_are_laid_down() {
        let folder = tempfile::tempdir().unwrap();
        install(folder.path()).unwrap();
        for (path, text) in FILES {
            assert_eq!(fs::read_to_string(folder.path().join(path)).unwrap(), *text);
        }
        let distribution = format!("gputune_hook-{}.dist-info", env!("CARGO_PKG_VERSION"));
        let metadata = fs::read_to_string(folder.path().join(distribution).join("METADATA")).unwrap();
        assert!(metadata.contains("Name: gputune-hook\n"), "{metadata}");
    }
}
