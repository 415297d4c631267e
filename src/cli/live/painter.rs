//! Lines that stay at the foot of a terminal, with finished ones scrolling up above them.
//!
//! Only what changed is written, in one piece, between the marks of a synchronized update (a terminal that does not know
//! them ignores them), so nothing flickers. The cursor rests at the end of the last line.

use unicode_width::UnicodeWidthStr;

/// What is on the screen, and how to change it.
#[derive(Debug, Default)]
pub(super) struct Painter {
    drawn: Vec<String>,
    /// The columns and rows that the terminal had then.
    size: (usize, usize),
}

const BEGIN: &str = "\x1b[?2026h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?2026l";
const TO_END_OF_LINE: &str = "\x1b[K";
const TO_END_OF_SCREEN: &str = "\x1b[J";

impl Painter {
    /// What to write so that the lines `above` stand above the block for good, and the block is `block`; nothing where
    /// nothing changed. `size` is columns and rows.
    pub(super) fn frame(&mut self, above: &[String], mut block: Vec<String>, size: (usize, usize)) -> String {
        // A block that is higher than the screen could not be gone back to.
        block.truncate(size.1.saturating_sub(1).max(1));
        let is_same_shape = self.size == size && self.drawn.len() == block.len() && !block.is_empty();
        let text = if above.is_empty() && is_same_shape {
            self.changed(&block)
        } else if above.is_empty() && self.drawn.is_empty() && block.is_empty() {
            String::new()
        } else {
            self.whole(above, &block, size.0)
        };
        (self.drawn, self.size) = (block, size);
        if text.is_empty() { text } else { format!("{BEGIN}{text}{END}") }
    }

    /// Forgets what is on the screen: what comes next begins on a new line.
    pub(super) fn forget(&mut self) {
        self.drawn.clear();
    }

    /// The lines that are others than before, each written over the old one.
    fn changed(&self, block: &[String]) -> String {
        let last = block.len() - 1;
        let mut text = String::new();
        for (at, (line, old)) in block.iter().zip(&self.drawn).enumerate() {
            if line != old {
                text += &format!("{}\r{line}{TO_END_OF_LINE}{}\r", up(last - at), down(last - at));
            }
        }
        if text.is_empty() {
            return text;
        }
        // Back to where the cursor rests.
        let width = block.last().map_or(0, |line| width(line));
        if width > 0 { format!("{text}\x1b[{width}C") } else { text }
    }

    /// Everything anew, over what was there.
    fn whole(&self, above: &[String], block: &[String], columns: usize) -> String {
        let mut text = format!("{}\r", up(self.rows(columns).saturating_sub(1)));
        for line in above {
            text += &format!("{line}{TO_END_OF_LINE}\r\n");
        }
        let lines: Vec<String> = block.iter().map(|line| format!("{line}{TO_END_OF_LINE}")).collect();
        text + &lines.join("\r\n") + TO_END_OF_SCREEN
    }

    /// The rows that the block takes now: where a terminal became narrower it has broken lines that were longer.
    fn rows(&self, columns: usize) -> usize {
        let rows = |line: &String| width(line).div_ceil(columns.max(1)).max(1);
        self.drawn.iter().map(rows).sum()
    }
}

/// The columns that a line takes; colours take none.
pub(super) fn width(line: &str) -> usize {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default().width();
    first + parts.map(|part| part.split_once('m').map_or(0, |(_, rest)| rest.width())).sum::<usize>()
}

fn up(rows: usize) -> String {
    if rows == 0 { String::new() } else { format!("\x1b[{rows}A") }
}

fn down(rows: usize) -> String {
    if rows == 0 { String::new() } else { format!("\x1b[{rows}B") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    /// What a terminal shows after some frames, from the top, without empty lines at its end.
    fn shown(terminal: &vt100::Parser) -> Vec<String> {
        let (_, columns) = terminal.screen().size();
        let mut rows: Vec<String> = terminal.screen().rows(0, columns).map(|row| row.trim_end().to_owned()).collect();
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }

    #[test]
    fn finished_lines_scroll_above_and_the_block_stays_below() {
        let mut terminal = vt100::Parser::new(6, 20, 100);
        let mut painter = Painter::default();
        let size = (20, 6);
        terminal.process(painter.frame(&[], lines(&["one", "two"]), size).as_bytes());
        assert_eq!(shown(&terminal), ["one", "two"]);
        for number in 1..8 {
            let above = vec![format!("trial {number}")];
            let block = vec![format!("one {number}"), "two".to_owned()];
            terminal.process(painter.frame(&above, block, size).as_bytes());
        }
        assert_eq!(shown(&terminal), ["trial 4", "trial 5", "trial 6", "trial 7", "one 7", "two"]);
        terminal.process(painter.frame(&[], Vec::new(), size).as_bytes());
        assert_eq!(shown(&terminal), ["trial 4", "trial 5", "trial 6", "trial 7"]);
    }

    #[test]
    fn only_lines_that_changed_are_written_and_nothing_where_none_did() {
        let mut painter = Painter::default();
        let mut terminal = vt100::Parser::new(10, 40, 0);
        let block = || lines(&["first", "\x1b[32msecond\x1b[0m", "third"]);
        terminal.process(painter.frame(&[], block(), (40, 10)).as_bytes());
        assert_eq!(painter.frame(&[], block(), (40, 10)), "");
        let frame = painter.frame(&[], lines(&["first", "other", "third"]), (40, 10));
        assert!(frame.contains("other") && !frame.contains("first") && !frame.contains("third"), "{frame:?}");
        terminal.process(frame.as_bytes());
        assert_eq!(shown(&terminal), ["first", "other", "third"]);
        assert_eq!(terminal.screen().cursor_position(), (2, 5), "it rests at the end");
        let frame = painter.frame(&[], lines(&["first", "other", "4th"]), (40, 10));
        terminal.process(frame.as_bytes());
        assert_eq!(shown(&terminal), ["first", "other", "4th"]);
    }

    #[test]
    fn a_narrower_terminal_keeps_what_stands_above() {
        let mut painter = Painter::default();
        let wide = "x".repeat(30);
        painter.frame(&[], vec![wide.clone(), wide], (40, 10));
        // A terminal of 20 columns has broken both lines in two.
        let frame = painter.frame(&[], lines(&["short", "short"]), (20, 10));
        assert!(frame.contains("\x1b[3A"), "{frame:?}");
    }

    #[test]
    fn a_block_never_fills_the_whole_screen() {
        let mut painter = Painter::default();
        let mut terminal = vt100::Parser::new(4, 20, 10);
        let block = lines(&["1", "2", "3", "4", "5", "6"]);
        terminal.process(painter.frame(&lines(&["above"]), block, (20, 4)).as_bytes());
        assert_eq!(shown(&terminal), ["above", "1", "2", "3"]);
    }
}
