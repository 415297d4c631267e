//! The layout of a probe's mount namespace: the mounts that cover folders, in order. Explains why a layout is not possible, and how a
//! layer may have caused a probe's errors.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::probe) struct Layout {
    /// User and group to map to themselves in a user namespace; `None` if this user may mount without a user namespace.
    pub(super) user: Option<(u32, u32)>,
    /// True if layers keep their marks in `user.*` attributes, as in a user namespace (filesystems/overlayfs.rst, "User xattr").
    pub(super) user_attributes: bool,
    /// The empty folder at which the new root is built.
    pub(super) root: PathBuf,
    pub(super) steps: Vec<Step>,
}

/// One mount. `folder` is a path in the new root; all other paths are current paths.
///
/// `Everything` has all current mounts, at the new root. `ReadOnly` keeps the other options of a mount. `AsItIs` is an
/// unchanged file or folder in its own place; if `whole`, it includes everything mounted below. `Empty` is a read-only
/// folder that hides the content of this folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    Everything,
    ReadOnly { folder: PathBuf, flags: u32 },
    Layer(Layer),
    AsItIs { folder: PathBuf, read_only: bool, whole: bool },
    Empty { folder: PathBuf },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layer {
    pub(super) folder: PathBuf,
    /// The lower folder: the folder itself, unless it does not exist.
    pub(super) below: PathBuf,
    pub(super) store: PathBuf,
    /// The size of a file system in memory to mount at `store` first.
    pub(super) memory_bytes: Option<u64>,
    /// True if other probes of the search also see the writes; then the writes must survive a crash.
    pub(super) is_shared: bool,
}

impl Layer {
    pub(super) fn upper(&self) -> PathBuf {
        self.store.join("upper")
    }

    pub(super) fn work(&self) -> PathBuf {
        self.store.join("work")
    }
}

impl Step {
    pub(super) fn folder(&self) -> &Path {
        match self {
            Self::Everything => Path::new("/"),
            Self::ReadOnly { folder, .. } | Self::AsItIs { folder, .. } | Self::Empty { folder } => folder,
            Self::Layer(layer) => &layer.folder,
        }
    }
}

/// The reason why a namespace could not be made: the first step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::probe) struct Refused {
    pub(super) stage: Stage,
    /// The number of the error (errno(3)); 0 if unknown.
    pub(super) errno: i32,
}

/// The steps of making a namespace and of trying it. `Rehearsal` could not be run at all, or did not finish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    Namespace,
    Map,
    Mount { step: usize, folder: PathBuf },
    Root,
    Write { folder: PathBuf },
    Change { file: PathBuf },
    Rehearsal,
}

impl Layout {
    /// Returns the same layout for a process that is already in the user namespace.
    pub(in crate::probe) fn without_user_namespace(self) -> Self {
        Self { user: None, ..self }
    }

    pub(in crate::probe) fn has_user_namespace(&self) -> bool {
        self.user.is_some()
    }
}

impl Refused {
    /// Describes which step was refused, and why.
    pub(in crate::probe) fn words(&self, in_user_namespace: bool) -> String {
        let setting =
            |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|text| text.trim().to_owned());
        words_with(self, in_user_namespace, &setting)
    }
}

fn words_with(refused: &Refused, in_user_namespace: bool, setting: &dyn Fn(&str) -> Option<String>) -> String {
    let error = Errno::from_raw_os_error(refused.errno);
    let is_refusal = matches!(error, Errno::PERM | Errno::ACCESS);
    let text = std::io::Error::from_raw_os_error(refused.errno).to_string();
    let said = text.split(" (os error").next().filter(|_| refused.errno != 0).unwrap_or("no answer").to_owned();
    match &refused.stage {
        Stage::Namespace if !in_user_namespace => format!("this user may not make a mount namespace ({said})"),
        Stage::Namespace | Stage::Map => {
            let why = forbidding(setting).unwrap_or_else(|| {
                if is_refusal { "a container's or service's filter refuses it".to_owned() } else { said }
            });
            format!("this user may not make user namespaces: {why}")
        }
        Stage::Root | Stage::Mount { .. } if in_user_namespace && is_refusal => {
            let why = forbidding(setting).unwrap_or_else(|| format!("a security module refuses it ({said})"));
            format!("nothing may be mounted in a user namespace: {why}")
        }
        Stage::Mount { .. } if error == Errno::NODEV => "the kernel has no overlay file system".to_owned(),
        Stage::Mount { folder, .. } => {
            let old = if in_user_namespace && error == Errno::INVAL { ", as before Linux 5.11" } else { "" };
            format!("{} cannot be covered with an overlay ({said}{old})", folder.display())
        }
        Stage::Root => format!("the namespace has no root ({said})"),
        Stage::Write { folder } => format!("nothing can be written to the layer over {} ({said})", folder.display()),
        Stage::Change { file } if error == Errno::OVERFLOW => {
            let file = file.display();
            format!("{file} belongs to a user or group that a user namespace does not map, so it cannot be copied")
        }
        Stage::Change { file } => format!("{} cannot be changed in a layer ({said})", file.display()),
        Stage::Rehearsal => format!("trying it out failed ({said})"),
    }
}

/// Returns the setting that forbids user namespaces: of namespaces(7), of Debian, or of Ubuntu's AppArmor.
fn forbidding(setting: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    const FORBIDDING: &[(&str, &str, &str)] = &[
        ("user/max_user_namespaces", "0", "user.max_user_namespaces"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor, kernel.apparmor_restrict_unprivileged_userns"),
    ];
    let forbids = |(file, value, _): &&(&str, &str, &str)| setting(file).is_some_and(|found| found == *value);
    FORBIDDING.iter().find(forbids).map(|(_, value, name)| format!("{name} is {value}"))
}

/// Returns true if a line reports a read-only file system: by glibc's text of `EROFS`, or by Python's number.
pub(super) fn is_read_only_error(line: &str) -> bool {
    line.contains("Read-only file system") || line.contains("[Errno 30]") || line.contains("os error 30")
}

/// Explains how a layer may have caused errors, from glibc's texts of `ENOSPC`, `EROFS`, `EOVERFLOW` and `EXDEV`.
pub(in crate::probe) fn explanation<'l>(mut lines: impl Iterator<Item = &'l String>) -> Option<&'static str> {
    const TEXTS: &[(&str, &str)] = &[
        (
            "No space left on device",
            "the disk that takes the probe's writes is full: make room there, or put gputune's folder (--out) on a larger disk",
        ),
        (
            "Read-only file system",
            "in a probe only the folders that `gputune check` names can be written to: write there, or set writes = \"guard\" or \"allow\" in [step]",
        ),
        (
            "Value too large for defined data type",
            "the scratch layer cannot copy a file whose user or group the user namespace does not map: set writes = \"guard\" or \"allow\" in [step]",
        ),
        (
            "Invalid cross-device link",
            "in a scratch layer without root a folder that was there before cannot be renamed: set writes = \"guard\" or \"allow\" in [step]",
        ),
    ];
    lines.find_map(|line| TEXTS.iter().find(|(text, _)| line.contains(text)).map(|(_, words)| *words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(stage: Stage, errno: Errno, in_user_namespace: bool, set: &[(&str, &str)]) -> String {
        let setting = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        words_with(&Refused { stage, errno: errno.raw_os_error() }, in_user_namespace, &setting)
    }

    #[test]
    fn what_forbids_namespaces_is_named() {
        let mount = || Stage::Mount { step: 0, folder: "/home".into() };
        let apparmor = [("kernel/apparmor_restrict_unprivileged_userns", "1")];
        let said = reason(mount(), Errno::ACCESS, true, &apparmor);
        assert!(said.contains("AppArmor, kernel.apparmor_restrict_unprivileged_userns is 1"), "{said}");
        let said = reason(Stage::Namespace, Errno::NOSPC, true, &[("user/max_user_namespaces", "0")]);
        assert!(said.contains("user.max_user_namespaces is 0"), "{said}");
        let said = reason(Stage::Namespace, Errno::PERM, true, &[("kernel/unprivileged_userns_clone", "0")]);
        assert!(said.contains("kernel.unprivileged_userns_clone is 0"), "{said}");
        let said = reason(Stage::Namespace, Errno::PERM, true, &[("kernel/unprivileged_userns_clone", "1")]);
        assert!(said.contains("filter"), "{said}");
        assert!(reason(mount(), Errno::NODEV, true, &[]).contains("no overlay file system"));
        assert!(reason(mount(), Errno::INVAL, true, &[]).contains("Linux 5.11"));
        assert!(reason(Stage::Change { file: "/a".into() }, Errno::OVERFLOW, true, &[]).contains("group"));
    }

    #[test]
    fn errors_of_a_layer_are_explained() {
        let of = |line: &str| explanation([line.to_owned()].iter());
        assert!(of("OSError: [Errno 28] No space left on device").unwrap().contains("full"));
        assert!(of("OSError: [Errno 30] Read-only file system: '/data/x'").unwrap().contains("gputune check"));
        assert!(of("OSError: [Errno 18] Invalid cross-device link: 'a' -> 'b'").unwrap().contains("renamed"));
        assert_eq!(of("ValueError: no"), None);
    }
}
