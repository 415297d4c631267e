//! Lays out a table in a given width: headers wrap, long texts are shortened, and the least important columns are left out.

use super::screen::{Screen, Tone, shortened, width};

const GAP: usize = 2;

#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) header: String,
    /// True if cells are aligned to the right, as for numbers, so that digits line up.
    pub(super) is_right: bool,
    /// The rank for leaving the column out: higher ranks go first, and columns with 0 always stay.
    pub(super) dispensable: u32,
    /// The cells from the top, each with its tone.
    pub(super) cells: Vec<(String, Tone)>,
}

impl Column {
    pub(super) fn new(header: impl Into<String>, is_right: bool, dispensable: u32) -> Self {
        Self { header: header.into(), is_right, dispensable, cells: Vec::new() }
    }

    fn widest_cell(&self) -> usize {
        self.cells.iter().map(|(text, _)| width(text)).max().unwrap_or(0)
    }

    /// Returns the width of the widest piece of the header between possible line breaks.
    fn widest_piece(&self) -> usize {
        pieces(&self.header).iter().map(|piece| width(piece.trim_end())).max().unwrap_or(0)
    }

    fn least(&self) -> usize {
        self.widest_piece().max(self.widest_cell())
    }
}

pub(super) struct LaidOut {
    pub(super) text: String,
    /// The headers of the columns that did not fit.
    pub(super) left_out: Vec<String>,
}

/// Lays the columns out in the width of the screen.
pub(super) fn lay_out(mut columns: Vec<Column>, screen: Screen) -> LaidOut {
    /// Texts are shortened to this width, or to a quarter of a wide screen, before any column is left out. If nothing
    /// else helps, they are shortened to half of this width.
    const SHORT: usize = 24;
    let mut left_out = Vec::new();
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    let least = |columns: &[Column]| columns.iter().map(Column::least).collect::<Vec<_>>();
    shorten(&mut columns, SHORT.max(screen.columns / 4), |columns| total(&least(columns)) > screen.columns);
    while total(&least(&columns)) > screen.columns {
        let most = columns.iter().enumerate().filter(|(_, column)| column.dispensable > 0);
        let Some((at, _)) = most.max_by_key(|(at, column)| (column.dispensable, *at)) else { break };
        left_out.push(columns.remove(at).header);
    }
    shorten(&mut columns, SHORT / 2, |columns| total(&least(columns)) > screen.columns);
    let natural = |column: &Column| width(&column.header).max(column.widest_cell());
    let mut widths: Vec<usize> = columns.iter().map(natural).collect();
    let floor = least(&columns);
    while total(&widths) > screen.columns {
        let slack = widths.iter().zip(&floor).map(|(now, least)| now - least).enumerate();
        let Some((at, _)) = slack.filter(|(_, slack)| *slack > 0).max_by_key(|(_, slack)| *slack) else { break };
        widths[at] -= 1;
    }
    left_out.reverse();
    LaidOut { text: text(&columns, &widths, screen), left_out }
}

/// Shortens cells to `most` columns if the table is too wide.
fn shorten(columns: &mut [Column], most: usize, is_too_wide: impl Fn(&[Column]) -> bool) {
    if !is_too_wide(columns) {
        return;
    }
    for column in columns.iter_mut() {
        for (text, _) in &mut column.cells {
            *text = shortened(text, most);
        }
        if width(&column.header) > most && column.widest_piece() > most {
            column.header = shortened(&column.header, most);
        }
    }
}

fn text(columns: &[Column], widths: &[usize], screen: Screen) -> String {
    let headers: Vec<Vec<String>> = columns.iter().zip(widths).map(|(it, width)| broken(&it.header, *width)).collect();
    let height = headers.iter().map(Vec::len).max().unwrap_or(0);
    let mut lines: Vec<String> = Vec::new();
    for line in 0..height {
        let cells = headers.iter().map(|header| {
            // Shorter headers are aligned at the bottom, on the rule.
            let at = (line + header.len()).checked_sub(height);
            (at.and_then(|at| header.get(at)).cloned().unwrap_or_default(), Tone::Plain)
        });
        lines.push(row(cells, columns, widths, screen));
    }
    let all = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    lines.push(screen.paint(Tone::Faint, &"─".repeat(all)));
    let rows = columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    for at in 0..rows {
        let cells = columns.iter().map(|column| column.cells.get(at).cloned().unwrap_or((String::new(), Tone::Plain)));
        lines.push(row(cells, columns, widths, screen));
    }
    lines.join("\n")
}

fn row(cells: impl Iterator<Item = (String, Tone)>, columns: &[Column], widths: &[usize], screen: Screen) -> String {
    let mut line = String::new();
    // Spaces are written only before a further cell, so that no line ends with spaces.
    let mut owed = 0;
    for ((text, tone), (column, wide)) in cells.zip(columns.iter().zip(widths)) {
        let free = wide.saturating_sub(width(&text));
        let (before, after) = if column.is_right { (free, 0) } else { (0, free) };
        if !text.is_empty() {
            line.push_str(&" ".repeat(owed + before));
            line.push_str(&screen.paint(tone, &text));
            owed = after + GAP;
        } else {
            owed += free + GAP;
        }
    }
    line
}

/// Splits the header into pieces, each ending with the character after which it may be broken.
fn pieces(header: &str) -> Vec<&str> {
    header.split_inclusive(['_', '-', '.', '/', ' ']).collect()
}

/// Breaks the header into lines of at most this many columns.
fn broken(header: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces(header) {
        match lines.last_mut() {
            Some(line) if width(line) + width(piece.trim_end()) <= columns => line.push_str(piece),
            _ => lines.push(piece.to_owned()),
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(header: &str, dispensable: u32, cells: &[&str]) -> Column {
        let cells = cells.iter().map(|&text| (text.to_owned(), Tone::Plain)).collect();
        Column { cells, ..Column::new(header, true, dispensable) }
    }

    fn at(columns: usize) -> Screen {
        Screen { columns, colours: false, is_verbose: false }
    }

    #[test]
    fn headers_wrap_before_columns_are_left_out() {
        let columns = || vec![column("gradient_accumulation_steps", 1, &["4", "16"]), column("speed", 0, &["1", "2"])];
        let wide = lay_out(columns(), at(80));
        assert!(wide.text.starts_with("gradient_accumulation_steps  speed\n"), "{}", wide.text);
        let narrow = lay_out(columns(), at(21));
        assert!(narrow.left_out.is_empty());
        assert_eq!(narrow.text.lines().next().unwrap(), "     gradient_");
        let tiny = lay_out(columns(), at(12));
        assert_eq!(tiny.left_out, ["gradient_accumulation_steps"]);
    }
}
