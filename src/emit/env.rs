//! One `NAME=value` line for each setting, as a shell or an environment file takes it.

use std::fmt::Write as _;

use super::shell_word;
use crate::space::Settings;

pub(super) fn write(settings: &Settings) -> String {
    let mut text = String::new();
    for (name, value) in settings.iter() {
        let _ = writeln!(text, "{}={}", name.to_uppercase(), shell_word(&value.to_string()));
    }
    text
}
