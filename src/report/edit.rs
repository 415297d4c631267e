//! A change to a script that applies settings which its command cannot set.

use serde::{Deserialize, Serialize};

/// A piece of code to write into a script, with its place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// The targets whose settings it applies.
    pub targets: Vec<String>,
    /// The file and line of the code to change, such as `train.py:31`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The change to make there, such as `in DataLoader(...)`.
    pub what: String,
    /// The code to write: lines, or arguments of the call.
    pub lines: Vec<String>,
    /// The code there now, which the change replaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instead_of: Vec<String>,
}

impl Edit {
    /// Returns the lines for the terminal; code of several lines keeps its own lines.
    pub fn shown(&self) -> Vec<String> {
        let place = self.place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
        let gone = match self.instead_of.as_slice() {
            [] => String::new(),
            all if self.lines.is_empty() => format!(" {}", all.join(", ")),
            all => format!(" (instead of {})", all.join(", ")),
        };
        let shown = match self.lines.as_slice() {
            [] => vec![format!("{place}{}{gone}", self.what)],
            [line] => vec![format!("{place}{}: {line}{gone}", self.what)],
            lines => {
                let head = format!("{place}{}{gone}:", self.what);
                std::iter::once(head).chain(lines.iter().map(|line| format!("    {line}"))).collect()
            }
        };
        // These lines become a shell comment, so each must be one line without control characters.
        let plain = |line: String| line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        shown.into_iter().map(plain).collect()
    }
}
