//! Finds the rate that a script prints: a unit in one of its strings, and the side of the unit on which the number stands.

use std::sync::LazyLock;

use regex::Regex;

/// The number of a rate, however it is written.
const NUMBER: &str = r"([0-9.,]+(?:[eE][+-]?[0-9]+)?)";

/// Returns a pattern for the number, and its unit such as `images/sec`. Comments and docstrings are left out, and so are strings that
/// are not printed.
pub(super) fn printed_rate(source: &str) -> Option<(String, String)> {
    const UNIT: &str =
        r"\b(samples|images|imgs|img|examples|sequences|seqs|tokens|tok|steps|it|iters|batches)/(s|sec|second)\b";
    static UNITS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(UNIT).ok());
    static DOCSTRINGS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"(?ms)^\s*[rR]?(?:""".*?"""|'''.*?''')"#).ok());
    let (units, docstrings) = (UNITS.as_ref()?, DOCSTRINGS.as_ref()?);
    let without_docstrings = docstrings.replace_all(source, "");
    without_docstrings.lines().filter(|line| is_printed(line)).find_map(|line| {
        let unit = units.find_iter(line).find(|unit| is_in_string(&line[..unit.start()]))?;
        let (unit, behind) = (unit.as_str(), &line[unit.end()..]);
        let pattern =
            if is_label(behind) { format!(r#"{unit}['"]?\s*[:=]\s*{NUMBER}"#) } else { format!(r"{NUMBER}\s*{unit}") };
        Some((pattern, unit.to_owned()))
    })
}

/// Whether a line of code prints a string, or makes one that has values.
fn is_printed(line: &str) -> bool {
    !line.trim_start().starts_with('#')
        && ["{", "%", "print", "log", "write", ".format"].iter().any(|word| line.contains(word))
}

/// Whether the text of a line ends inside a string.
fn is_in_string(before: &str) -> bool {
    let mut open = None;
    for sign in before.chars() {
        match (sign, open) {
            ('"' | '\'', None) => open = Some(sign),
            (sign, Some(quote)) if sign == quote => open = None,
            ('#', None) => return false,
            _ => {}
        }
    }
    open.is_some()
}

/// Whether the number follows its unit, as in `samples/s: {rate}`.
fn is_label(behind: &str) -> bool {
    let value = behind.trim_start_matches(['"', '\'']).trim_start();
    value.starts_with([':', '='])
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn the_number_is_found_on_its_side_of_the_unit() {
        for (source, printed, number) in [
            (r#"print(f"step {step}: {rate:,.1f} samples/s")"#, "step 4: 1,461.2 samples/s", "1,461.2"),
            (r#"print(f"step {step} samples/s: {rate:.1f}")"#, "step 40 samples/s: 812.3", "812.3"),
            (r#"print("step %d images/sec = %.1f" % (step, rate))"#, "step 40 images/sec = 812.3", "812.3"),
            (r#"logging.info({"tok/s": rate})"#, "{'tok/s': 812.3}", "812.3"),
            (r#"print("samples/s:", rate)"#, "samples/s: 812.3", "812.3"),
            (r#"print(rate, "samples/s")"#, "1.4e+03 samples/s", "1.4e+03"),
            (r#"bar = f"{1 / s:.2f}it/s" if s < 1 else f"{s:.2f}s/it""#, "3/9 [00:01, 2.08it/s]", "2.08"),
        ] {
            let (pattern, _) = printed_rate(source).unwrap();
            let found = Regex::new(&pattern).unwrap().captures(printed).unwrap();
            assert_eq!(&found[1], number, "{pattern}");
        }
    }

    #[test]
    fn a_unit_that_is_not_printed_is_none() {
        for source in [
            "# about 300 samples/s: print this",
            "print(rate)  # in samples/s",
            "\"\"\"Prints {rate} samples/s.\"\"\"",
            "def f():\n    '''Returns the\n    {rate} in samples/s.'''\n    print(1)",
            "rate = samples/s",
        ] {
            assert_eq!(printed_rate(source), None, "{source}");
        }
    }
}
