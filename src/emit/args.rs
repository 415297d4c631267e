//! One line of `--name value` pairs.

use super::shell_word;
use crate::space::Settings;

pub(super) fn write(settings: &Settings) -> String {
    let words: Vec<String> = settings
        .iter()
        .map(|(name, value)| format!("--{} {}", name.replace('_', "-"), shell_word(&value.to_string())))
        .collect();
    words.join(" ") + "\n"
}
