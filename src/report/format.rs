//! The formats of a report, and how each is made.

use std::fmt::Write as _;
use std::path::Path;

use super::best::BestReport;
use super::care::left_out;
use super::compare::Comparison;
use super::compare_text;
use super::ending::{brief, verdict};
use super::escape::{as_markdown, fence};
use super::front::{Rows, same_in_all};
use super::row::{result_name, shown_result, sorted};
use super::screen::{Screen, Tone};
use super::table::table;
use super::{Output, Place, Subject, front_table, older, optuna, tensorboard, trials_csv};
use crate::machine::Device;
use crate::model::{Parameter, quantity::show_bytes};
use crate::search::Study;

/// A format of a report.
#[derive(Debug, Clone, Copy)]
pub struct ReportFormat {
    /// Its name on the command line.
    pub name: &'static str,
    /// A short description.
    pub about: &'static str,
    /// The default place of the report.
    pub place: Place,
    /// Makes the report; the error is a sentence about the missing input.
    pub make: fn(&Subject<'_>) -> Result<Output, String>,
}

/// All formats, the default first. `docs/emit.md` describes each.
pub const REPORTS: &[ReportFormat] = &[
    ReportFormat {
        name: "terminal",
        about: "what `search` prints at its end: the trials, the best and why it ended",
        place: Place::Stdout,
        make: |subject| {
            let text = terminal(subject.study, subject.best, subject.folder, subject.screen);
            let older = older(subject).map(|older| format!("\n\n{older}"));
            Ok(Output::text(text + &older.unwrap_or_default() + "\n"))
        },
    },
    ReportFormat {
        name: "summary",
        about: "the same as Markdown, for the step summary of a CI",
        place: Place::Stdout,
        make: |subject| {
            let Subject { study, device, name, best, .. } = *subject;
            let older = older(subject).map(|older| format!("\n{older}.\n"));
            Ok(Output::text(summary(study, device, name, best) + &older.unwrap_or_default()))
        },
    },
    ReportFormat {
        name: "trials",
        about: "one line of CSV for each trial, with all numbers",
        place: Place::Stdout,
        make: |subject| Ok(Output::text(trials_csv(subject.study))),
    },
    ReportFormat {
        name: "json",
        about: "the best config as JSON, with all measurements",
        place: Place::Stdout,
        make: |subject| {
            let best = subject.best.ok_or("there is no best config: nothing feasible was found")?;
            let json = serde_json::to_string_pretty(&best.for_sharing()).map_err(|error| error.to_string())?;
            Ok(Output::text(json + "\n"))
        },
    },
    ReportFormat {
        name: "tensorboard",
        about: "event files for TensorBoard: hparams, and scalars over the trials",
        place: Place::Folder("tensorboard"),
        make: |subject| Ok(tensorboard::make(subject)),
    },
    ReportFormat {
        name: "optuna",
        about: "the journal of an Optuna study, for optuna and optuna-dashboard",
        place: Place::File(optuna::FILE),
        make: |subject| Ok(optuna::make(subject)),
    },
    #[cfg(feature = "cli")]
    ReportFormat {
        name: "html",
        about: "a page for a browser, in one file that loads nothing: figures, trials, logs",
        place: Place::File("report.html"),
        make: |subject| Ok(Output::text(super::page(subject))),
    },
];

/// Returns the format of this name.
pub fn report_format(name: &str) -> Option<&'static ReportFormat> {
    REPORTS.iter().find(|format| format.name == name)
}

/// Writes what a search prints at its end. The parts are the trials, the front if any, the best config with its speedup, why the
/// search ended, the results folder and the next command. A verbose screen gets ties and details of measuring as well.
pub fn terminal(study: &Study, best: Option<&BestReport>, folder: &Path, screen: impl Into<Screen>) -> String {
    let screen = screen.into();
    let mut lines = if screen.is_verbose { verdict(study) } else { brief(study) };
    let scaling =
        best.and_then(|best| best.learning_rate.as_ref()).map(|rate| format!("lr        {}", rate.sentence()));
    let more = best.filter(|_| screen.is_verbose).map_or_else(|| Vec::from_iter(scaling), BestReport::more_lines);
    for line in more {
        lines += &format!("\n{line}");
    }
    lines += &format!("\nresults   {}", folder.display());
    let parts = [table(study, screen), front_table(study, screen), screen.lay_out(&lines)];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let mut text = parts.join("\n\n");
    // A command is never wrapped, so that it can be copied.
    if let Some(command) = best.and_then(|best| best.one_line(folder)) {
        text += &format!("\n{}{command}", screen.paint(Tone::Good, "next      "));
    }
    text
}

/// A format of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct ComparisonFormat {
    /// Its name on the command line.
    pub name: &'static str,
    /// A short description of the format.
    pub about: &'static str,
    /// Writes the comparison.
    pub write: fn(&Comparison, Screen) -> String,
}

/// All formats of a comparison, the default first. `docs/compare.md` describes each.
pub const COMPARISONS: &[ComparisonFormat] = &[
    ComparisonFormat { name: "terminal", about: "both side by side, for a person", write: compare_text::terminal },
    ComparisonFormat {
        name: "summary",
        about: "the same as Markdown, for the step summary of a CI",
        write: |comparison, _| compare_text::markdown(comparison),
    },
    #[cfg(feature = "cli")]
    ComparisonFormat {
        name: "html",
        about: "the same as a page for a browser",
        write: |comparison, _| super::page::comparison_page(comparison),
    },
    ComparisonFormat {
        name: "json",
        about: "all numbers, for another program",
        write: |comparison, _| compare_text::json(comparison),
    },
];

/// Returns the format of this name.
pub fn comparison_format(name: &str) -> Option<&'static ComparisonFormat> {
    COMPARISONS.iter().find(|format| format.name == name)
}

/// Writes a study as Markdown: the verdict with further facts about the best config, the command, and the table of trials.
pub fn summary(study: &Study, device: &Device, name: &str, best: Option<&BestReport>) -> String {
    let mut text = format!(
        "# gputune: {}\n\nDevice: {} (driver: {})\n\n",
        as_markdown(name),
        as_markdown(&device.name),
        as_markdown(&device.driver)
    );
    let more: String = best.iter().flat_map(|best| best.more_lines()).map(|line| format!("\n{line}")).collect();
    let verdict = verdict(study) + &more;
    let around = fence(&verdict);
    let _ = writeln!(text, "{around}text\n{verdict}\n{around}\n");
    if let Some(command) = best.and_then(|best| best.for_sharing().shown_command()) {
        let fence = fence(&command);
        let _ = writeln!(text, "{fence}sh\n{command}\n{fence}\n");
    }
    front(study, &mut text);
    let names: Vec<&str> = study.space.parameters().iter().map(Parameter::name).collect();
    let _ = writeln!(
        text,
        "| # | {} | {} | peak memory | left out |",
        names.join(" | "),
        as_markdown(&result_name(&study.objective))
    );
    let _ = writeln!(text, "|--:|{}---|--:|---|", "--:|".repeat(names.len()));
    for trial in sorted(study) {
        let settings = study.settings(&trial.config);
        let values = names
            .iter()
            .map(|name| settings.get(name).map_or_else(|| "-".to_owned(), |value| as_markdown(&value.to_string())));
        let memory = trial.outcome.measurement().and_then(|measurement| measurement.memory.peak_bytes);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            trial.number,
            values.collect::<Vec<_>>().join(" | "),
            as_markdown(&shown_result(&study.objective, trial)),
            memory.map(show_bytes).unwrap_or_default(),
            as_markdown(&left_out(trial.outcome.measurement()))
        );
    }
    text
}

/// Writes the front as a separate table, if the objective is a front.
fn front(study: &Study, text: &mut String) {
    if !study.objective.is_pareto() {
        return;
    }
    let front = study.front();
    let Rows { header, rows, .. } = Rows::of(study, &front);
    let line = |row: &[String]| row.iter().map(|text| as_markdown(text)).collect::<Vec<_>>().join(" | ");
    let _ = writeln!(text, "## Front\n\n| {} |\n|---|{}", line(&header), "--:|".repeat(header.len() - 1));
    for row in rows {
        let _ = writeln!(text, "| {} |", line(&row));
    }
    if let Some(same) = same_in_all(study, &front) {
        let _ = writeln!(text, "\nIn all: {}", as_markdown(&same));
    }
    let _ = writeln!(text, "\n## Trials\n");
}
