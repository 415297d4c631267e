//! What is seen while a diagnosis runs: a line that moves on a terminal, plain lines elsewhere.

use std::time::Duration;

use gputune::diagnosis::Note;
use gputune::quantity::show_duration;
use gputune::report::shown_estimate;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{is_terminal, label, result_words};

/// Shows notes on standard error.
pub(super) enum Said {
    Nothing,
    Lines,
    Moving { line: ProgressBar, what: &'static str },
}

impl Said {
    pub(super) fn new(quiet: bool) -> Self {
        if quiet {
            return Self::Nothing;
        }
        if !is_terminal() {
            return Self::Lines;
        }
        let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            line.set_style(style);
        }
        line.enable_steady_tick(Duration::from_millis(250));
        Self::Moving { line, what: "" }
    }

    pub(super) fn hear(&mut self, note: &Note<'_>) {
        match note {
            Note::Begins(which) => {
                if let Self::Moving { line, what } = self {
                    *what = label(*which);
                    line.set_message(format!("{what}: starts"));
                }
            }
            Note::Progress(progress) => {
                if let Self::Moving { line, what } = self {
                    let rate = progress.throughput.map(|rate| shown_estimate(rate, &progress.unit));
                    let rate = rate.unwrap_or_else(|| format!("{} steps", progress.steps));
                    line.set_message(format!("{what}: {} {rate}", show_duration(progress.elapsed)));
                }
            }
            Note::Ended(which, ran, took) => {
                self.say(&format!("{:<17} {} ({})", label(*which), result_words(ran), show_duration(*took)));
            }
            // The screen has them.
            _ => {}
        }
    }

    fn say(&self, text: &str) {
        match self {
            Self::Nothing => {}
            Self::Lines => eprintln!("{text}"),
            Self::Moving { line, .. } => line.println(text),
        }
    }

    /// Takes the moving line away.
    pub(super) fn finish(&self) {
        if let Self::Moving { line, .. } = self {
            line.finish_and_clear();
        }
    }
}
