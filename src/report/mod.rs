//! Writes a study as text: for the terminal, as a page, as a table, and for other programs. No function prints or
//! writes files. A page also reads files from the folder of the search, such as logs.
//!
//! Start with `format`, the table of formats, and [`best`](fn@best), the facts about the best config. `table` writes
//! for the terminal and `page` for a browser. [`emit`] writes the best config as a command or for a framework.

mod best;
mod bottleneck;
mod care;
mod compare;
mod compare_text;
mod compute;
mod diagnosis;
pub mod emit;
mod ending;
mod escape;
#[cfg(feature = "cli")]
mod figure;
#[cfg(feature = "cli")]
mod figures;
mod format;
mod front;
mod gpus;
mod layout;
mod learning_rate;
mod machine;
mod optuna;
#[cfg(feature = "cli")]
mod page;
mod probe;
mod redact;
mod row;
mod screen;
mod table;
mod tensorboard;
mod trace;
mod trials;
mod whole_run;

pub use best::{AheadReport, BestReport, Edit, FrontReport, PartReport, best};
pub use bottleneck::{Bottleneck, HeldBack, Spending};
pub use care::Care;
pub use compare::{Comparison, Side};
pub use compute::Compute;
pub use diagnosis::{Occasion, diagnosis_json, diagnosis_line, diagnosis_text, largest_part};
pub use ending::verdict;
pub use format::{REPORTS, ReportFormat, report_format, summary, terminal};
pub use front::front_table;
pub use learning_rate::{LearningRate, Rate};
pub use machine::{ceilings_text, machine_text};
#[cfg(feature = "cli")]
pub use page::page;
pub use probe::{probe_json, probe_text};
pub use row::{shown_estimate, shown_outcome, shown_settings};
pub use screen::{Page, Screen, Tone, shortened, wrap};
pub use table::table;
pub use trials::trials_csv;

use std::path::PathBuf;

use crate::search::Kept;

/// The input of a report: a search in its folder, with the report on its best config.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'s> {
    /// The search. Logs of trials are in `logs/` of its folder.
    pub kept: &'s Kept,
    /// The best config, with the command that runs it.
    pub best: Option<&'s BestReport>,
    /// The screen that shows the report.
    pub screen: Screen,
}

/// The default place of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Standard output.
    Stdout,
    /// A file of this name in the folder of the search.
    File(&'static str),
    /// A folder of this name in the folder of the search.
    Folder(&'static str),
}

/// A finished report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// One file.
    File(Vec<u8>),
    /// Files with their paths below a folder; they replace files of the same names from an earlier report.
    Folder(Vec<(PathBuf, Vec<u8>)>),
}

impl Output {
    /// Makes a text file.
    pub fn text(text: impl Into<String>) -> Self {
        Self::File(text.into().into_bytes())
    }
}

/// Returns a note if the journal has older eras, whose trials do not count.
fn older(kept: &Kept) -> Option<String> {
    let older = kept.header.older;
    (older.eras > 0).then(|| older.to_string())
}
