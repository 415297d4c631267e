//! Queries NVML, and keeps the reasons for missing answers.

use std::collections::BTreeMap;

use nvml_wrapper::error::NvmlError;

/// An answer, or the reason for a missing answer, in words.
pub(super) type Told<T> = Result<T, String>;

/// A question that is asked repeatedly, until an answer shows that it will always fail.
#[derive(Debug, Default)]
pub(super) struct Question {
    refused: Option<String>,
}

impl Question {
    /// Asks, unless the question was refused for good.
    pub(super) fn ask<T>(&mut self, call: impl FnOnce() -> Result<T, NvmlError>) -> Told<T> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        call().map_err(|error| {
            let words = reason(&error);
            if is_final(&error) {
                self.refused = Some(words.clone());
            }
            words
        })
    }

    pub(super) fn give_up(&mut self, reason: &str) {
        self.refused.get_or_insert_with(|| reason.to_owned());
    }

    /// Returns the reason if the question is no longer asked.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

/// Questions by their names.
#[derive(Debug, Default)]
pub(super) struct Questions(BTreeMap<&'static str, Question>);

impl Questions {
    pub(super) fn ask<T>(&mut self, name: &'static str, call: impl FnOnce() -> Result<T, NvmlError>) -> Told<T> {
        self.0.entry(name).or_default().ask(call)
    }

    /// Returns true if a question was refused for good.
    pub(super) fn is_refused(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|question| question.refusal().is_some())
    }
}

/// Returns true if asking again is useless. A lost GPU does not come back before the machine restarts.
fn is_final(error: &NvmlError) -> bool {
    use NvmlError::{FailedToLoadSymbol, FunctionNotFound, GpuLost, NoPermission, NotSupported};
    matches!(error, FailedToLoadSymbol(_) | FunctionNotFound | GpuLost | NoPermission | NotSupported)
}

pub(super) fn reason(error: &NvmlError) -> String {
    match error {
        NvmlError::NotSupported => "not supported by this device".to_owned(),
        NvmlError::NoPermission => "no permission".to_owned(),
        NvmlError::GpuLost => "the GPU is lost".to_owned(),
        NvmlError::FunctionNotFound => "this driver does not have it".to_owned(),
        NvmlError::FailedToLoadSymbol(text) => {
            let symbol = text.split_whitespace().last().unwrap_or_default();
            format!("this driver has no {symbol}")
        }
        NvmlError::UnexpectedVariant(value) => format!("NVML answers {value}, which has no meaning here"),
        // The loader's text has one line for each library that it tried.
        NvmlError::LibloadingError(error) => {
            let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
            text.replace(char::is_control, " ")
        }
        error => error.to_string(),
    }
}

/// The reason why NVML cannot be used, with a remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("NVML: {reason}")]
pub struct NoNvml {
    /// The reason, in a few words.
    pub reason: String,
    /// The remedy.
    pub cure: &'static str,
}

impl NoNvml {
    pub(super) fn because(error: &NvmlError) -> Self {
        let reason = reason(error);
        Self { cure: cure(error, &reason), reason }
    }

    /// Makes the error from a reason in words. The remedy fits a library that opened.
    pub fn told(reason: &str) -> Self {
        let cure = if reason == self::reason(&NvmlError::NoPermission) { CHECK_PERMISSIONS } else { LOOK_INTO_THE_LOG };
        Self { reason: reason.trim_start_matches("NVML: ").to_owned(), cure }
    }
}

const INSTALL: &str = "install the NVIDIA driver; a container needs the capability `utility`";
const CHECK_PERMISSIONS: &str = "check the permissions of /dev/nvidia*, and the container's devices";
const LOOK_INTO_THE_LOG: &str = "look into the kernel's log with `dmesg`; a GPU that is lost needs a restart";

/// Returns the remedy if the library does not open (NVML API reference, `nvmlReturn_t`).
fn cure(error: &NvmlError, reason: &str) -> &'static str {
    let has = |words| reason.to_lowercase().contains(words);
    match error {
        // `dlopen` distinguishes these errors only in words (`elf/dl-load.c` of glibc, `ldso/dynlink.c` of musl).
        NvmlError::LibloadingError(_) if has("no such file") => INSTALL,
        NvmlError::LibloadingError(_) if has("permission denied") => "check the permissions of the library's file",
        NvmlError::LibraryNotFound => INSTALL,
        NvmlError::LibloadingError(_) => "the file is broken, or of another kind of machine: install the driver anew",
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => "update the NVIDIA driver",
        NvmlError::DriverNotLoaded => {
            "load the kernel module with `nvidia-modprobe` as root, or restart the machine after the driver's installation"
        }
        NvmlError::LibRmVersionMismatch => {
            "library and kernel module are of different drivers, as after an update: restart the machine"
        }
        NvmlError::NoPermission => CHECK_PERMISSIONS,
        _ => LOOK_INTO_THE_LOG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_for_good_is_not_asked_again() {
        let mut question = Question::default();
        assert_eq!(question.ask(|| Ok(1)), Ok(1));
        let unknown = question.ask::<u32>(|| Err(NvmlError::Unknown));
        assert_eq!(unknown.unwrap_err(), "an internal driver error occurred");
        assert_eq!(question.ask(|| Ok(2)), Ok(2), "it may have been a moment's failure");
        assert!(question.ask::<u32>(|| Err(NvmlError::NotSupported)).is_err());
        assert_eq!(question.ask(|| Ok(3)), Err("not supported by this device".to_owned()));
    }
}
