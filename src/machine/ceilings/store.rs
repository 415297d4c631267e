//! Stores ceilings in the user's cache, in one file for each GPU and driver.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Ceilings, FORMAT};
use crate::machine::telemetry::Device;
use crate::model::GpuUse;

/// The error for ceilings that could not be read or stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No folder for the cache is known.
    #[error("neither XDG_CACHE_HOME nor HOME names a folder")]
    NoFolder,
    /// The file cannot be read or written: the attempted action, and the file.
    #[error("cannot {0} {path}", path = .1.display())]
    Io(&'static str, PathBuf, #[source] io::Error),
    /// The file is not in this program's format.
    #[error("{} is damaged", .0.display())]
    Damaged(PathBuf, #[source] serde_json::Error),
}

/// Returns `gputune/ceilings` in `XDG_CACHE_HOME`, or in `~/.cache` (XDG Base Directory Specification).
pub fn folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("gputune/ceilings"))
}

fn file(folder: &Path, uuid: &str, driver: &str) -> PathBuf {
    // CUDA reports the UUID of a MIG instance with the prefix of a GPU, so the file name has no prefix.
    let uuid = uuid.trim_start_matches("GPU-").trim_start_matches("MIG-");
    let plain = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' }).collect()
    };
    folder.join(format!("{}_{}.json", plain(uuid), plain(driver)))
}

/// Reads the ceilings of a GPU under a driver, if they were measured. A file of another format counts as missing.
///
/// # Errors
/// The file exists and cannot be read.
pub fn load(folder: &Path, uuid: &str, driver: &str) -> Result<Option<Ceilings>, StoreError> {
    let found = read(&file(folder, uuid, driver))?;
    Ok(found.filter(|ceilings| ceilings.driver == driver))
}

fn read(path: &Path) -> Result<Option<Ceilings>, StoreError> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        format: u32,
    }
    let path = path.to_owned();
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::Io("read", path, source)),
    };
    let parsed = serde_json::from_slice::<Versioned>(&text)
        .and_then(|version| (version.format == FORMAT).then(|| serde_json::from_slice::<Ceilings>(&text)).transpose());
    parsed.map_err(|source| StoreError::Damaged(path, source))
}

/// Returns the ceilings for a device that trained on `gpus`: the ceilings of one of these GPUs, or else of another GPU
/// of the same model. `None` if models are mixed. The ceilings of another MIG instance do not count: its size may
/// differ. If `gpus` has no names, the device must have a single model. An unreadable file counts as not measured.
///
/// A search predicts the gain of a precision from these ceilings ([`Ceilings::relative_speeds`]). A diagnosis compares
/// a step with them ([`Ceilings::matmul`]).
pub fn known(folder: &Path, device: &Device, gpus: &[GpuUse]) -> Option<Ceilings> {
    // An entry without a name only says why no GPU could be queried.
    let mut names = gpus.iter().map(|gpu| gpu.name.as_str()).filter(|name| !name.is_empty());
    let model = names.next().or_else(|| only_model(&device.name))?;
    if names.any(|name| name != model) {
        return None;
    }
    let is_divided = model.contains(" MIG ") || gpus.iter().any(|gpu| gpu.uuid.starts_with("MIG-"));
    let mut of_gpus = gpus.iter().filter_map(|gpu| load(folder, &gpu.uuid, &device.driver).ok().flatten());
    of_gpus.next().or_else(|| of_model(folder, &device.driver, model).filter(|_| !is_divided))
}

/// Returns the model in a device's name, such as `2 x NVIDIA L4`; `None` for several, such as `NVIDIA L4 + NVIDIA T4`.
fn only_model(device: &str) -> Option<&str> {
    let is_count = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let counted = device.split_once(" x ").filter(|(count, _)| is_count(count));
    Some(counted.map_or(device, |(_, model)| model)).filter(|_| !device.contains(" + "))
}

fn of_model(folder: &Path, driver: &str, name: &str) -> Option<Ceilings> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = files.filter_map(|path| read(&path).ok().flatten());
    all.filter(|ceilings| ceilings.driver == driver && ceilings.name == name)
        .max_by_key(|ceilings| ceilings.measured_at)
}

/// Replaces stored ceilings; a concurrent reader finds the old or the new file, complete.
///
/// # Errors
/// The file cannot be written.
pub fn save(folder: &Path, ceilings: &Ceilings) -> Result<PathBuf, StoreError> {
    let path = file(folder, &ceilings.uuid, &ceilings.driver);
    let failed = |source| StoreError::Io("write", path.clone(), source);
    let text = serde_json::to_vec_pretty(ceilings).map_err(|error| failed(error.into()))?;
    fs::create_dir_all(folder).map_err(failed)?;
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    new.write_all(&text).and_then(|()| new.as_file().sync_data()).map_err(failed)?;
    new.persist(&path).map_err(|error| failed(error.error))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn what_is_kept_comes_back_for_the_same_gpu_and_driver_only() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("not/there/yet");
        let ceilings = example();
        let path = save(&below, &ceilings).unwrap();
        assert_eq!(load(&below, "GPU-1", "580.95.05").unwrap(), Some(ceilings.clone()));
        assert_eq!(load(&below, "GPU-1", "590.1").unwrap(), None);
        assert_eq!(load(&below, "GPU-2", "580.95.05").unwrap(), None);
        save(&below, &ceilings).unwrap();
        assert_eq!(fs::read_dir(&below).unwrap().count(), 1, "one file, and no leftovers");
        assert!(path.starts_with(&below));
        let path = file(Path::new("/cache"), "../../etc/passwd", "5/8");
        assert_eq!(path.parent(), Some(Path::new("/cache")), "names cannot leave the folder");
    }

    #[test]
    fn another_format_is_none_and_damage_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = save(folder.path(), &example()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"format\": 1", "\"format\": 2")).unwrap();
        assert_eq!(load(folder.path(), "GPU-1", "580.95.05").unwrap(), None);
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(matches!(load(folder.path(), "GPU-1", "580.95.05"), Err(StoreError::Damaged { .. })));
    }

    fn device(name: &str, driver: &str) -> Device {
        Device { name: name.to_owned(), driver: driver.to_owned(), is_gpu: true }
    }

    #[test]
    fn ceilings_of_another_gpu_count_if_it_is_of_the_same_model() {
        const TEST: &str = "NVIDIA Test";
        const OTHER: &str = "NVIDIA Other";
        const BOTH: &str = "NVIDIA Other + NVIDIA Test";
        const A100: &str = "NVIDIA A100-SXM4-40GB";
        const MIG: &str = "NVIDIA H200 MIG 1g.18gb";
        for (measured, name, gpus, is_known) in [
            (TEST, "2 x NVIDIA Test", vec![("GPU-9", TEST), ("GPU-8", TEST)], true),
            (TEST, "2 x NVIDIA Test", vec![("GPU-9", TEST), ("GPU-1", TEST)], true),
            (TEST, "2 x NVIDIA Test", vec![("GPU-9", OTHER)], false),
            (TEST, BOTH, vec![("GPU-1", TEST), ("GPU-2", OTHER)], false),
            (TEST, BOTH, vec![("MIG-9", TEST)], false),
            (TEST, BOTH, vec![("MIG-1", TEST)], true),
            (TEST, BOTH, vec![], false),
            (TEST, TEST, vec![("", "")], true),
            (TEST, "8 x NVIDIA Test", vec![], true),
            ("NVIDIA A10", A100, vec![("GPU-9", A100)], false),
            ("NVIDIA A10", A100, vec![], false),
            ("NVIDIA L4", "NVIDIA L40S", vec![], false),
            ("NVIDIA H200", "NVIDIA H200 NVL", vec![], false),
            ("NVIDIA H200", MIG, vec![], false),
            (MIG, MIG, vec![("GPU-9", MIG)], false),
            (MIG, MIG, vec![], false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let ceilings = Ceilings { name: measured.to_owned(), ..example() };
            save(folder.path(), &ceilings).unwrap();
            fs::write(folder.path().join("other.json"), "no ceilings").unwrap();
            let used =
                gpus.iter().map(|&(uuid, name)| GpuUse { uuid: uuid.into(), name: name.into(), ..GpuUse::default() });
            let used: Vec<GpuUse> = used.collect();
            let found = known(folder.path(), &device(name, "580.95.05"), &used);
            assert_eq!(found, is_known.then_some(ceilings), "{measured} for {gpus:?} of {name}");
            assert_eq!(known(folder.path(), &device(name, "590.1"), &used), None, "the driver is another");
        }
    }
}
