//! Writes a study as text: for the terminal, as a page, as a table, and for other programs. All functions are pure: they neither
//! print nor write files.
//!
//! Start with `format`, the table of formats, and [`best`](fn@best), the facts about the best config. `table` writes for the
//! terminal and `page` for a browser. [`emit`] writes the best config as a command or as a framework's configuration.

mod best;
mod bottleneck;
mod care;
mod compare;
mod compare_text;
mod compute;
mod devices;
mod diagnosis;
mod edit;
pub mod emit;
mod ending;
mod escape;
mod figure;
mod figures;
mod format;
mod front;
mod gpus;
mod labelled;
mod layout;
mod learning_rate;
mod machine;
mod markdown;
mod marks;
mod memory_parts;
mod optuna;
#[cfg(feature = "cli")]
mod page;
mod probe;
mod redact;
mod row;
mod screen;
mod spending;
mod subject;
mod table;
mod tensorboard;
mod trace;
mod trials;
mod whole_run;

pub use best::{AheadReport, BestReport, FrontReport, PartReport, best};
pub use bottleneck::{Bottleneck, HeldBack};
pub use care::Care;
pub use compare::{Both, Change, Comparison, Lost, Side, SideReport};
pub use compute::Compute;
pub use diagnosis::{
    CauseReport, CureReport, DiagnosisReport, Occasion, Part, ProbeLine, diagnosis_json, diagnosis_line,
    diagnosis_text, largest_part, parts,
};
pub use edit::Edit;
pub use figure::{
    Axis, Bar, Bars, Drawing, Figure, Limit, Line, MARKS, Mark, MarkRow, Parallel, Points, Scale, Series, Shape,
    Strand, Tick, Unit,
};
pub use figures::{FIGURES, FigureRow, figures};
pub use format::{COMPARISONS, ComparisonFormat, REPORTS, ReportFormat, comparison_format, report_format, terminal};
pub use front::front_table;
pub use learning_rate::{LearningRate, Rate};
pub use machine::{ceilings_text, machine_text};
pub use markdown::summary;
#[cfg(feature = "cli")]
pub use page::page;
pub use probe::{ProbeReport, probe_json, probe_text};
pub use row::{shown_estimate, shown_outcome, shown_result};
pub use screen::{Screen, Tone, shortened, wrap};
pub use spending::Spending;
pub use subject::{Output, Place, Subject};
pub use table::{table, verdict};
pub use trials::trials_csv;
