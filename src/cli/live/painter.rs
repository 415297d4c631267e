//! Draws lines that stay at the bottom of a terminal, with finished ones scrolling up above them.
//!
//! It writes only changes, in one piece, between the marks of a synchronized update (a terminal that does not know them
//! ignores them), so nothing flickers. The cursor rests at the end of the last line.

use std::collections::VecDeque;

use unicode_width::UnicodeWidthStr;

/// The contents of the screen, and how to change them.
#[derive(Debug, Default)]
pub(super) struct Painter {
    drawn: Vec<String>,
    /// The latest finished lines, to write them again when the terminal's size changes.
    recent: VecDeque<String>,
    /// The columns and rows of the terminal at that time.
    size: (usize, usize),
}

const BEGIN: &str = "\x1b[?2026h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?2026l";
const TO_END_OF_LINE: &str = "\x1b[K";
const TO_END_OF_SCREEN: &str = "\x1b[J";
const EMPTY_SCREEN: &str = "\x1b[2J\x1b[H";

/// The number of finished lines that are kept: more than a screen has. A round number.
const RECENT: usize = 300;

impl Painter {
    /// Returns the text to write so that the lines `above` stand above the block for good, and the block is `block`;
    /// empty if nothing changed. `size` is columns and rows.
    pub(super) fn frame(&mut self, above: &[String], mut block: Vec<String>, size: (usize, usize)) -> String {
        // The cursor could not go back to the start of a block that is higher than the screen.
        block.truncate(size.1.saturating_sub(1).max(1));
        self.recent.extend(above.iter().cloned());
        while self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        let is_same_shape = self.size == size && self.drawn.len() == block.len() && !block.is_empty();
        let was_drawn = !self.drawn.is_empty();
        let text = if self.size != size && was_drawn {
            self.again(&block, size)
        } else if above.is_empty() && is_same_shape {
            self.changed(&block)
        } else if above.is_empty() && self.drawn.is_empty() && block.is_empty() {
            String::new()
        } else {
            self.whole(above, &block)
        };
        (self.drawn, self.size) = (block, size);
        if text.is_empty() { text } else { format!("{BEGIN}{text}{END}") }
    }

    /// Forgets what is on the screen, so that the next output begins on a new line.
    pub(super) fn forget(&mut self) {
        self.drawn.clear();
    }

    /// Returns the changed lines, each written over the old one.
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
        // Goes back to where the cursor rests.
        let width = block.last().map_or(0, |line| width(line));
        if width > 0 { format!("{text}\x1b[{width}C") } else { text }
    }

    /// Returns everything anew, over the previous output.
    fn whole(&self, above: &[String], block: &[String]) -> String {
        let mut text = format!("{}\r", up(self.drawn.len().saturating_sub(1)));
        for line in above {
            text += &format!("{line}{TO_END_OF_LINE}\r\n");
        }
        let lines: Vec<String> = block.iter().map(|line| format!("{line}{TO_END_OF_LINE}")).collect();
        text + &lines.join("\r\n") + TO_END_OF_SCREEN
    }

    /// Returns the whole screen for its new size. Where the old lines are now cannot be known: one terminal breaks
    /// lines that are too long, another cuts them off, and a third reports its new size only a moment later.
    fn again(&self, block: &[String], (columns, rows): (usize, usize)) -> String {
        let rows_of = |line: &String| width(line).div_ceil(columns.max(1)).max(1);
        let mut free = rows.saturating_sub(block.len());
        let fits = self.recent.iter().rev().take_while(|line| {
            let left = free.checked_sub(rows_of(line));
            free = left.unwrap_or(0);
            left.is_some()
        });
        let shown = fits.count();
        let lines = self.recent.iter().skip(self.recent.len() - shown).map(|line| format!("{line}\r\n"));
        format!("{EMPTY_SCREEN}{}{}", lines.collect::<String>(), block.join("\r\n"))
    }
}

/// Returns the columns that a line takes; colours take none.
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

    /// Returns what a terminal shows after some frames, from the top, without empty lines at the end.
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
    fn in_another_size_everything_is_written_again() {
        let mut painter = Painter::default();
        let mut terminal = vt100::Parser::new(8, 40, 10);
        let trials: Vec<String> = (1..9).map(|number| format!("trial {number}")).collect();
        terminal.process(painter.frame(&trials, lines(&["one", "two"]), (40, 8)).as_bytes());
        for (columns, rows) in [(20, 5), (60, 12), (10, 3)] {
            terminal.screen_mut().set_size(rows, columns);
            let size = (usize::from(columns), usize::from(rows));
            terminal.process(painter.frame(&[], lines(&["one", "two"]), size).as_bytes());
            let shown = shown(&terminal);
            assert_eq!(shown[shown.len() - 3..], ["trial 8", "one", "two"], "{shown:?}");
        }
        terminal.screen_mut().set_size(12, 60);
        terminal.process(painter.frame(&[], lines(&["one", "two"]), (60, 12)).as_bytes());
        assert_eq!(shown(&terminal)[0], "trial 1");
        assert_eq!(shown(&terminal).len(), 10);
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
