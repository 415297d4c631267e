//! Finds the constants of a script that fix a parameter, such as `BATCH_SIZE = 16`.

use std::sync::LazyLock;

use regex::Regex;

use super::knobs::Knob;

/// A constant that fixes a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// The parameter.
    pub parameter: &'static str,
    /// Its name in the script.
    pub name: String,
    /// Its value.
    pub value: i64,
    /// Its code, such as `BATCH_SIZE = 16`.
    pub code: String,
    /// Its line, such as `train.py:2`.
    pub place: String,
    /// True if it belongs to a class, so that the script uses it by another name.
    pub is_of_class: bool,
}

/// Returns the constants at the top level of a script's text, and the annotated ones of its classes, such as those of a dataclass.
/// `file` is the path in their places.
pub(super) fn constants(text: &str, file: &str) -> Vec<Constant> {
    static CONSTANT: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^(([A-Za-z]\w*)\s*(:\s*[\w.\[\]]+\s*)?=\s*(\d+))\s*(?:#.*)?$").ok());
    let Some(constant) = CONSTANT.as_ref() else { return Vec::new() };
    let of_line = |(line, at): (&str, usize)| {
        let is_of_class = line.starts_with([' ', '\t']);
        let captures = constant.captures(line.trim_start()).filter(|it| !is_of_class || it.get(3).is_some())?;
        Some(Constant {
            parameter: Knob::named(&captures[2])?.parameter,
            name: captures[2].to_owned(),
            value: captures[4].parse().ok()?,
            code: captures[1].to_owned(),
            place: format!("{file}:{at}"),
            is_of_class,
        })
    };
    text.lines().zip(1..).filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_that_fix_a_parameter_are_found() {
        for (text, expected) in [
            (
                "import sys\nBATCH_SIZE = 16  # samples\nnum_workers = 2\n",
                "t.py:2 batch_size BATCH_SIZE = 16; t.py:3 workers num_workers = 2",
            ),
            ("\nbatch_size: int = 8\n", "t.py:2 batch_size batch_size: int = 8"),
            ("BATCH_SIZE = args.batch_size\nSEED = 1\n", ""),
            ("def main():\n    batch_size = 8\n", ""),
            ("BATCH_SIZE == 16\n", ""),
            ("class C:\n    micro_batch_size: int = 16\n", "t.py:2 batch_size micro_batch_size: int = 16"),
        ] {
            let shown = |constant: &Constant| format!("{} {} {}", constant.place, constant.parameter, constant.code);
            let found = constants(text, "t.py").iter().map(shown).collect::<Vec<_>>().join("; ");
            assert_eq!(found, expected, "{text}");
        }
    }
}
