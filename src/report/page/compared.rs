//! Writes a comparison of two searches as one page for a browser: static, in one file that loads nothing.

use std::fmt::Write as _;

use super::{filled, nonce};
use crate::report::compare::Comparison;
use crate::report::compare_text::{most_changed, notes, rows, shown, verdict, word};
use crate::report::escape::as_markup;
use crate::report::row::shown_ratio;

/// Writes the page: the verdict, both searches side by side, the configs that both measured, and notes.
pub(in crate::report) fn comparison_page(comparison: &Comparison) -> String {
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
