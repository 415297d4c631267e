//! Shows a running search: the live view on a terminal, plain lines elsewhere. Also writes the status file next to the journal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use gputune::model::{Event, Objective, Outcome, Purpose, Settings, quantity::show_bytes};
use gputune::report::{Screen, Tone, shown_outcome, wrap};
use gputune::search::{Ended, Recovered, StatusFile, Watched};
use gputune::spec::Spec;

use super::colour;
use super::live::Live;
use super::report;

/// Shows events on standard error, and keeps the status file.
pub(super) struct Progress {
    show: Show,
    objective: Objective,
    watched: Watched,
    file: Option<StatusFile>,
    /// The folder of the search, and the time of the next update of its page.
    page: Option<(PathBuf, Instant)>,
    /// The time of the next update of the view.
    next: Instant,
}

/// Shows lines on standard error, above a live view if the terminal can show it.
pub(super) enum Show {
    Nothing,
    Lines,
    Live(Live),
}

impl Show {
    /// Begins to show lines. The key `q` sets `stop`.
    pub(super) fn new(quiet: bool, stop: &Arc<AtomicBool>) -> Self {
        match (quiet, Live::is_possible()) {
            (true, _) => Self::Nothing,
            (false, false) => Self::Lines,
            (false, true) => Self::Live(Live::begin(Arc::clone(stop))),
        }
    }

    pub(super) fn say(&self, text: &str, tone: Tone) {
        match self {
            Self::Nothing => {}
            Self::Lines => say!("{}", text.replace(char::is_control, " ")),
            Self::Live(live) => live.say(&on_terminal(text, tone)),
        }
    }

    /// Replaces the last line of the view.
    pub(super) fn note(&self, text: &str) {
        if let Self::Live(live) = self {
            live.note(text);
        }
    }
}

const NOTE: &str = "q or Ctrl-C stops the search and keeps everything";

impl Progress {
    /// Begins to show a search. `kept` has the trials that its journal had at the start; the key `q` sets `stop`.
    /// `whole_gpus` is the number of GPUs of a probe without a slot.
    pub(super) fn new(quiet: bool, (spec, whole_gpus): (&Spec, u32), kept: &Recovered, stop: &Arc<AtomicBool>) -> Self {
        let show = Show::new(quiet, stop);
        let name = spec.path.display().to_string();
        let watched = Watched::new(&name, &spec.space, &spec.objective, (spec.budget, whole_gpus), &kept.trials);
        Self { show, objective: spec.objective.clone(), watched, file: None, page: None, next: Instant::now() }
    }

    /// Also writes the status into the folder, for `gputune watch`, and the page with the results so far.
    #[must_use]
    pub(super) fn with_files(mut self, folder: &Path) -> Self {
        self.file = Some(StatusFile::new(folder));
        self.page = Some((folder.to_owned(), Instant::now()));
        self.keep_status();
        self
    }

    pub(super) fn hear(&mut self, event: &Event<'_>) {
        self.watched.hear(event);
        self.lines(event).iter().for_each(|(text, tone)| self.show.say(text, *tone));
        if matches!(event, Event::Finished { .. } | Event::RoundEnds { .. }) {
            self.keep_page();
        }
        let is_rare = !matches!(event, Event::Progress { .. });
        self.show_status(is_rare);
    }

    fn lines(&self, event: &Event<'_>) -> Vec<(String, Tone)> {
        let plain = |text: String| vec![(text, Tone::Plain)];
        let doubtful = |text: String| vec![(text, Tone::Doubtful)];
        match event {
            // A round prints a single line, and none for its trials.
            Event::Finished { trial, .. } if trial.outcome.measurement().is_some_and(|run| run.round.is_some()) => {
                Vec::new()
            }
            Event::Finished { trial, settings, is_best, .. } => {
                vec![trial_line(&self.objective, trial.number, trial.purpose, settings, &trial.outcome, *is_best)]
            }
            Event::Amended { trial, settings } if trial.outcome.failure().is_some() => {
                vec![trial_line(&self.objective, trial.number, trial.purpose, settings, &trial.outcome, false)]
            }
            Event::Remark { text } => plain((*text).to_owned()),
            Event::Warning { text } => doubtful((*text).to_owned()),
            Event::PutBack { number, reason } => {
                doubtful(format!("{number:>4}  disturbed each time, and put back for later: {reason}"))
            }
            Event::RoundEnds { number, ratios } => {
                let of = |(settings, ratio): &(Settings, f64)| format!("{ratio:.2}x {}", settings.line());
                plain(format!("round {number}: {}", ratios.iter().map(of).collect::<Vec<_>>().join("; ")))
            }
            _ => Vec::new(),
        }
    }

    /// Writes the page if it is due. With more than `MOST` trials this takes too long, so only the end of the search
    /// writes the page. A failure is ignored, because the end writes the page again. Both limits are round numbers.
    fn keep_page(&mut self) {
        const EVERY: Duration = Duration::from_secs(10);
        const MOST: u32 = 300;
        if let Some((folder, next)) = &mut self.page
            && Instant::now() >= *next
            && self.watched.status().searched <= MOST
        {
            *next = Instant::now() + EVERY;
            let _ = report::write_page(None, folder);
        }
    }

    /// Removes the view, and writes the end of the search into the status.
    pub(super) fn finish(&mut self, ended: Ended) {
        self.watched.end(ended);
        self.show = Show::Nothing;
        self.keep_status();
    }

    fn show_status(&mut self, at_once: bool) {
        const EVERY: Duration = Duration::from_millis(200);
        if let Show::Live(live) = &self.show
            && (at_once || Instant::now() >= self.next)
        {
            self.next = Instant::now() + EVERY;
            // The view appears with the first event: before that, other code writes to the terminal.
            live.note(NOTE);
            live.show(self.watched.status());
        }
        if self.file.as_ref().is_some_and(StatusFile::is_due) {
            self.keep_status();
        }
    }

    /// Writes the status. If that fails, the search goes on, and watchers see the journal alone.
    fn keep_status(&mut self) {
        if let Some(file) = &mut self.file {
            let _ = file.write(self.watched.status());
        }
    }
}

pub(super) fn trial_line(
    objective: &Objective,
    number: u32,
    purpose: Purpose,
    settings: &Settings,
    outcome: &Outcome,
    is_best: bool,
) -> (String, Tone) {
    let result = shown_outcome(objective, outcome);
    let memory = outcome.measurement().and_then(|m| m.memory.peak_bytes);
    let memory = memory.map(|bytes| format!(", {}", show_bytes(bytes))).unwrap_or_default();
    let mark = match (purpose, is_best) {
        (Purpose::Baseline, _) => "  (baseline)",
        (Purpose::Round, _) => "  (round)",
        (Purpose::Search, true) if objective.is_pareto() => "  (on the front so far)",
        (Purpose::Search, true) => "  (best so far)",
        (Purpose::Search, false) => "",
    };
    let tone = match outcome {
        _ if outcome.failure().is_some() => Tone::Bad,
        _ if is_best && purpose == Purpose::Search => Tone::Good,
        _ => Tone::Plain,
    };
    (format!("{number:>4}  {}  {result}{memory}{mark}", settings.line()), tone)
}

/// Formats a line for the terminal above the view. Long lines wrap, and are indented by the width of a trial's number.
pub(super) fn on_terminal(text: &str, tone: Tone) -> String {
    const INDENT: usize = 6;
    let screen = colour::stderr();
    let text = text.replace(char::is_control, " ");
    // `wrap` drops blanks at the start of a text, so they belong to the head.
    let begin = text.char_indices().nth(INDENT).map_or(text.len(), |(at, _)| at);
    let begin = text.len() - text[begin..].trim_start().len();
    let (head, rest) = text.split_at(begin);
    // The last column stays free, since some terminals break a line that fills it.
    let Screen { columns, .. } = screen;
    let lines = wrap(rest, columns.saturating_sub(head.chars().count().max(INDENT) + 1));
    let lines = lines.iter().enumerate().map(|(at, line)| {
        let head = if at == 0 { head.to_owned() } else { " ".repeat(INDENT) };
        screen.paint(tone, &format!("{head}{line}"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_above_the_view_keeps_the_blanks_between_its_columns() {
        for line in ["loader alone      5", "bf16              123 samples/s", "   1  batch_size=8", "once"] {
            assert_eq!(on_terminal(line, Tone::Plain), line);
        }
    }
}
