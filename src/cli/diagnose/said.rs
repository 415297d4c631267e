//! Shows a running diagnosis: a moving line on a terminal, plain lines elsewhere.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gputune::diagnosis::Note;
use gputune::model::quantity::show_duration;
use gputune::report::shown_estimate;

use super::{label, result_words};
use crate::cli::live::Live;

/// Shows notes on standard error.
pub(super) enum Said {
    Nothing,
    Lines,
    Moving { line: Live, what: &'static str },
}

impl Said {
    /// `q` sets `stop`.
    pub(super) fn new(quiet: bool, stop: &Arc<AtomicBool>) -> Self {
        if quiet {
            return Self::Nothing;
        }
        if !Live::is_possible() {
            return Self::Lines;
        }
        Self::Moving { line: Live::begin(Arc::clone(stop)), what: "" }
    }

    pub(super) fn hear(&mut self, note: &Note<'_>) {
        match note {
            Note::Begins(which) => {
                if let Self::Moving { line, what } = self {
                    *what = label(*which);
                    line.note(&format!("{what}: starts"));
                }
            }
            Note::Progress(progress) => {
                if let Self::Moving { line, what } = self {
                    let rate = progress.throughput.map(|rate| shown_estimate(rate, &progress.unit));
                    let rate = rate.unwrap_or_else(|| format!("{} steps", progress.steps));
                    line.note(&format!("{what}: {} {rate}", show_duration(progress.elapsed)));
                }
            }
            Note::Ended(which, ran, took) => {
                self.say(&format!("{:<17} {} ({})", label(*which), result_words(ran), show_duration(*took)));
            }
            // The report covers all other notes.
            _ => {}
        }
    }

    fn say(&self, text: &str) {
        match self {
            Self::Nothing => {}
            Self::Lines => say!("{text}"),
            Self::Moving { line, .. } => line.say(text),
        }
    }

    /// Removes the moving line.
    pub(super) fn finish(&mut self) {
        *self = Self::Nothing;
    }
}
