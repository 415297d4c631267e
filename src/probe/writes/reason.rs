//! Explains why a scratch layer is not possible, and how a layer may have caused a probe's errors.

use std::fs;

use rustix::io::Errno;

use super::layout::{Refused, Stage};

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
    let said = if refused.errno == 0 { "no answer".to_owned() } else { said_by(refused.errno) };
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

fn said_by(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Returns the kernel setting that forbids user namespaces: a setting of Debian, of AppArmor as in Ubuntu since 23.10, or of
/// namespaces(7).
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

/// Explains how a layer may have caused a probe's errors, and the remedy, from glibc's texts of `ENOSPC`, `EROFS`, `EOVERFLOW` and
/// `EXDEV`.
pub(in crate::probe) fn of_lines<'l>(mut lines: impl Iterator<Item = &'l String>) -> Option<&'static str> {
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
        let of = |line: &str| of_lines([line.to_owned()].iter());
        assert!(of("OSError: [Errno 28] No space left on device").unwrap().contains("full"));
        assert!(of("OSError: [Errno 30] Read-only file system: '/data/x'").unwrap().contains("gputune check"));
        assert!(of("OSError: [Errno 18] Invalid cross-device link: 'a' -> 'b'").unwrap().contains("renamed"));
        assert_eq!(of("ValueError: no"), None);
    }
}
