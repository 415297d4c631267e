//! Writes a study, or a comparison of two studies, as one page for a browser. The file contains everything and loads
//! nothing. No text of the study can run as a script.
//!
//! The user's command, its settings and its output are embedded as JSON that cannot end the surrounding `<script>`
//! element. The script inserts them as text, never as HTML. A Content-Security-Policy allows only the page's own script
//! and style: no request, no image, no frame, no handler in an attribute.

mod detail;
mod importance;
mod summary;
mod table;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};

use serde::Serialize;

use super::Subject;
use super::compare::Comparison;
use super::compare_text::{most_changed, notes, rows, shown, verdict, word};
use super::escape::as_markup;
use super::figure::{MARKS, MarkRow};
use super::figures::{FIGURES, FigureRow, Studied};
use super::redact::redacted;
use super::row::shown_ratio;
use crate::report::emit::shell_word;
use crate::search::StopReason;
use detail::Detail;
use summary::Summary;
use table::Rows;

/// Everything that the page's script draws.
#[derive(Debug, Serialize)]
struct Content<'c> {
    title: &'c str,
    version: &'static str,
    summary: Summary,
    kinds: &'static [FigureRow],
    figures: Vec<serde_json::Value>,
    marks: &'static [MarkRow],
    table: Rows,
    details: BTreeMap<u32, Detail>,
    about: Vec<(&'static str, String)>,
    /// Instructions to reproduce the result: commands or texts, each after its purpose.
    reproduce: Vec<(&'static str, String)>,
}

/// Makes the browser reload the page of a running search every 10 seconds.
const REFRESH: &str = "<meta http-equiv=\"refresh\" content=\"10\">";

/// Writes the page of a search that is kept in a folder.
pub fn page(subject: &Subject<'_>) -> String {
    let studied = Studied::of(&subject.kept.study);
    let kept = detail::kept(subject);
    let content = Content {
        title: &subject.kept.spec,
        version: env!("CARGO_PKG_VERSION"),
        summary: Summary::of(subject, &studied, &kept),
        kinds: FIGURES,
        figures: studied.figures(),
        marks: MARKS,
        table: Rows::of(&studied),
        details: detail::details(&subject.kept.study, kept),
        about: summary::about(subject),
        reproduce: reproduce(subject),
    };
    // Serialising fails only for map keys that are neither strings nor numbers; these keys are numbers.
    let json = serde_json::to_string(&content).unwrap_or_else(|_| "null".to_owned());
    let is_running = subject.kept.study.stopped == StopReason::Running;
    assembled(&subject.kept.spec, &in_an_element(&json), if is_running { REFRESH } else { "" })
}

fn reproduce(subject: &Subject<'_>) -> Vec<(&'static str, String)> {
    let (spec, folder) = (shell_word(&subject.kept.spec), shell_word(&subject.kept.folder.display().to_string()));
    let mut steps = vec![
        ("The same search, started over", format!("gputune search {spec} --out {folder} --fresh")),
        ("The best config again, in another form", format!("gputune emit {folder} --format json")),
        ("This page again", format!("gputune report {folder} --format html")),
    ];
    let spec = std::fs::read(subject.kept.folder.join("spec.toml")).ok();
    steps.extend(spec.map(|text| ("The spec as it was", redacted(&String::from_utf8_lossy(&text)))));
    steps
}

/// The hash of the style that Observable Plot puts into each figure; `chart/build` computes it.
const PLOT_STYLE: &str = include_str!("chart/style.sha256");

fn assembled(name: &str, json: &str, refresh: &str) -> String {
    let nonce = nonce();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}' '{}'; base-uri 'none'; form-action 'none'",
        PLOT_STYLE.trim()
    );
    let parts = [
        ("%policy%", policy.as_str()),
        ("%refresh%", refresh),
        ("%title%", &as_markup(name)),
        ("%nonce%", &nonce),
        ("%style%", include_str!("page.css")),
        ("%plot%", include_str!("chart/plot.min.js")),
        ("%script%", include_str!("page.js")),
        ("%content%", json),
    ];
    filled(include_str!("page.html"), &parts)
}

/// Replaces names in a template; the inserted parts are not searched again.
fn filled(template: &str, parts: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len() + parts.iter().map(|(_, part)| part.len()).sum::<usize>());
    let mut rest = template;
    while let Some((at, (name, part))) =
        parts.iter().filter_map(|entry| Some((rest.find(entry.0)?, entry))).min_by_key(|(at, _)| *at)
    {
        text.push_str(&rest[..at]);
        text.push_str(part);
        rest = &rest[at + name.len()..];
    }
    text.push_str(rest);
    text
}

/// Returns a number for the Content-Security-Policy that no author of a text can predict: a hash map's random keys.
fn nonce() -> String {
    let word = || RandomState::new().hash_one(0_u8);
    format!("{:016x}{:016x}", word(), word())
}

/// Escapes JSON so that nothing in it starts or ends an element, or ends a line (ECMA-262, "Line Terminators").
fn in_an_element(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                let _ = write!(safe, "\\u{:04x}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    safe
}

/// Writes the page of a comparison: the verdict, both searches side by side, the configs that both measured, and notes.
pub(super) fn comparison_page(comparison: &Comparison) -> String {
    let nonce = nonce();
    let title = format!("{} and {}", comparison.a.name, comparison.b.name);
    let parts = [
        ("%nonce%", nonce.as_str()),
        ("%style%", include_str!("page.css")),
        ("%title%", &as_markup(&title)),
        ("%verdict%", &as_markup(&capital(&verdict(comparison).1))),
        ("%sides%", &sides(comparison)),
        ("%configs%", &configs(comparison)),
        ("%notes%", &list(comparison)),
    ];
    filled(include_str!("compared.html"), &parts)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().collect::<String>() + letters.as_str()).unwrap_or_default()
}

fn sides(comparison: &Comparison) -> String {
    let row = |(name, [a, b]): (&str, [String; 2])| {
        format!("<tr><th scope=\"row\">{name}</th><td>{}</td><td>{}</td></tr>\n", as_markup(&a), as_markup(&b))
    };
    rows(comparison).into_iter().map(row).collect()
}

fn configs(comparison: &Comparison) -> String {
    let (listed, hidden) = most_changed(&comparison.configs);
    if listed.is_empty() {
        return String::new();
    }
    let head = ["B to A", "", "config", "A", "B", ""].map(|name| format!("<th scope=\"col\">{name}</th>")).concat();
    let mut text = format!("<table class=\"data\"><thead><tr>{head}</tr></thead><tbody>\n");
    for both in listed {
        let [a, b] = [both.a, both.b].map(|estimate| shown(comparison, estimate, ""));
        let marks = both.marks.join(", ");
        let cells = [&shown_ratio(both.ratio), word(both.change).0, &both.config.line(), &a, &b, &marks];
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", as_markup(cell))).collect();
        let _ = writeln!(text, "<tr>{cells}</tr>");
    }
    text += "</tbody></table>";
    if hidden > 0 {
        let _ = write!(text, "<p class=\"hint\">{hidden} more are between these, in --format json</p>");
    }
    text
}

fn list(comparison: &Comparison) -> String {
    notes(comparison).iter().map(|note| format!("<li>{}</li>\n", as_markup(note))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_in_a_page_reads_back_and_ends_nothing() {
        let hostile = "</script><!-- <script> & ]]> \u{2028}\u{2029}\u{feff} \"'`";
        let json = serde_json::to_string(hostile).unwrap();
        let safe = in_an_element(&json);
        assert!(!safe.contains(['<', '>', '&', '\u{2028}', '\u{2029}']), "{safe}");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), hostile);
    }

    #[test]
    fn names_in_what_is_put_in_are_left_alone() {
        assert_eq!(filled("a %x% b %y%", &[("%x%", "%y%"), ("%y%", "%x%")]), "a %y% b %x%");
    }

    #[test]
    fn each_page_has_a_nonce_of_its_own() {
        assert_ne!(nonce(), nonce());
        assert_eq!(nonce().len(), 32);
    }

    #[test]
    fn nothing_that_comes_along_ends_its_element_or_fetches_anything() {
        for (name, text) in [
            ("page.js", include_str!("page.js")),
            ("page.css", include_str!("page.css")),
            ("plot.min.js", include_str!("chart/plot.min.js")),
        ] {
            let low = text.to_lowercase();
            assert!(!low.contains("</script") && !low.contains("<!--") && !low.contains("</style"), "{name}");
        }
        for text in [include_str!("page.js"), include_str!("page.css"), include_str!("page.html")] {
            assert!(!text.contains("http:") && !text.contains("innerHTML") && !text.contains("@import"));
        }
    }
}
