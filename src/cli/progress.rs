//! What is seen while a search runs: a line that moves on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use console::Term;
use gputune::event::Event;
use gputune::objective::Objective;
use gputune::quantity::{show_bytes, show_duration};
use gputune::report::{shown_estimate, shown_result};
use gputune::space::Settings;
use gputune::spec::Spec;
use gputune::trial::{Purpose, Trial};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows events on standard error.
pub(super) struct Progress {
    show: Show,
    objective: Objective,
    line: Line,
    best: Option<String>,
}

enum Show {
    Nothing,
    Lines,
    Bar(ProgressBar),
}

/// What the moving line says.
#[derive(Default)]
struct Line {
    settings: String,
    live: String,
}

impl Progress {
    pub(super) fn new(quiet: bool, spec: &Spec) -> Self {
        let show = if quiet {
            Show::Nothing
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(u64::from(spec.budget.probes)), ProgressDrawTarget::stderr());
            let template = "{bar:20} {pos}/{len} probes, {prefix}{elapsed_precise}\n  {wide_msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("━╸ "));
            }
            bar.enable_steady_tick(Duration::from_millis(500));
            Show::Bar(bar)
        } else {
            Show::Lines
        };
        Self { show, objective: spec.objective.clone(), line: Line::default(), best: None }
    }

    pub(super) fn hear(&mut self, event: &Event<'_>) {
        match event {
            Event::Resumed { trials, healed } => {
                let cut = if *healed { "; a line that was cut off in writing is dropped" } else { "" };
                self.say(&format!("goes on from {trials} finished trials{cut}"));
            }
            Event::WarmStart { place, trials, in_common, parameters } => {
                self.say(&format!(
                    "warm start: {trials} trials of {place}, {in_common} of {parameters} parameters in common"
                ));
            }
            Event::Started { number, purpose, settings, searched, reason } => {
                self.started(*number, *purpose, settings, *searched);
                self.line.live = reason.unwrap_or_default().to_owned();
                self.redraw();
            }
            Event::Progress { progress, .. } => {
                let rate = progress.throughput.map(|rate| shown_estimate(rate, &progress.unit));
                let rate = rate.unwrap_or_else(|| format!("{} steps", progress.steps));
                self.line.live = format!("{} {rate}", show_duration(progress.elapsed));
                self.redraw();
            }
            Event::Finished { trial, settings, is_best, .. } => self.finished(trial, settings, *is_best),
            Event::Comparing { settings, .. } => {
                self.say(&format!("      {}  runs in full precision, to compare the losses", settings.line()));
            }
            Event::Disturbed { number, reason } => {
                self.say(&format!("{number:>4}  disturbed, and probed again: {reason}"));
            }
            Event::Confirming { probes } => {
                self.say(&format!("confirms the leaders by {probes} longer probes"));
                if let Show::Bar(bar) = &self.show {
                    bar.set_length(bar.position() + *probes as u64);
                }
            }
            _ => {}
        }
    }

    /// Takes the moving line away.
    pub(super) fn finish(&self) {
        if let Show::Bar(bar) = &self.show {
            bar.finish_and_clear();
        }
    }

    fn started(&mut self, number: u32, purpose: Purpose, settings: &Settings, searched: usize) {
        self.line = Line { settings: format!("#{number} {}", settings.line()), live: String::new() };
        if let Show::Bar(bar) = &self.show {
            if purpose != Purpose::Confirm {
                bar.set_position(searched as u64);
            }
            let eta = bar.eta();
            bar.set_prefix(if bar.position() > 0 { format!("{} left, ", show_duration(eta)) } else { String::new() });
        }
        self.redraw();
    }

    fn finished(&mut self, trial: &Trial, settings: &Settings, is_best: bool) {
        let result = shown_result(&self.objective, trial);
        let memory = trial.outcome.partial_measurement().and_then(|m| m.peak_memory_bytes);
        let memory = memory.map(|bytes| format!(", {}", show_bytes(bytes))).unwrap_or_default();
        let mark = match (trial.purpose, is_best) {
            (Purpose::Baseline, _) => "  (baseline)",
            (Purpose::Confirm, _) => "  (confirmation)",
            (Purpose::Screen { .. }, _) => "  (short)",
            (Purpose::Search, true) if self.objective.is_pareto() => "  (on the front so far)",
            (Purpose::Search, true) => "  (best so far)",
            (Purpose::Search, false) => "",
        };
        self.say(&format!("{:>4}  {}  {result}{memory}{mark}", trial.number, settings.line()));
        if is_best && !self.objective.is_pareto() {
            self.best = Some(result);
        }
        if let Show::Bar(bar) = &self.show {
            bar.inc(1);
        }
    }

    fn redraw(&self) {
        if let Show::Bar(bar) = &self.show {
            let best = self.best.as_ref().map(|best| format!("   best {best}")).unwrap_or_default();
            bar.set_message(format!("{}   {}{best}", self.line.settings, self.line.live));
        }
    }

    fn say(&self, text: &str) {
        match &self.show {
            Show::Nothing => {}
            Show::Lines => eprintln!("{text}"),
            Show::Bar(bar) => bar.println(text),
        }
    }
}

/// The width of the terminal that standard error is, or 100 columns.
pub(super) fn columns() -> u16 {
    const ELSEWHERE: u16 = 100;
    Term::stderr().size_checked().map_or(ELSEWHERE, |(_, columns)| columns.max(60))
}
