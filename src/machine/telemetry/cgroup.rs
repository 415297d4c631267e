//! Finds the files about this process's control group.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folders of this process's group under a controller and of the groups above it, innermost first. It supports
/// version 2 and version 1 of control groups (kernel documentation, admin-guide/cgroup-v2.rst and cgroup-v1/). If both are
/// in use, version 2 is at `unified`, where systemd puts it.
pub(in crate::machine) fn folders(proc: &Path, root: &Path, controller: &str) -> Vec<PathBuf> {
    let text = fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let root = if controllers.is_empty() {
            Some(root.join("unified")).filter(|folder| folder.is_dir()).unwrap_or_else(|| root.to_owned())
        } else if controllers.split(',').any(|name| name == controller) {
            root.join(controller)
        } else {
            continue;
        };
        folders.extend(Path::new(group.trim_start_matches('/')).ancestors().map(|folder| root.join(folder)));
    }
    folders
}
