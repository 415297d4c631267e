//! A study as text: for the terminal, for a page, for a table, for other programs. Pure functions.

mod best;
mod care;
mod compute;
mod devices;
mod diagnosis;
mod figure;
mod figures;
mod format;
mod front;
mod gpus;
mod host;
mod learning_rate;
mod machine;
mod markdown;
mod optuna;
#[cfg(feature = "cli")]
mod page;
mod probe;
mod row;
mod table;
mod tensorboard;
mod trials;

pub use best::{BestReport, FrontReport, PartReport, best};
pub use care::Care;
pub use compute::Compute;
pub use diagnosis::{
    CauseReport, CureReport, DiagnosisReport, Occasion, Part, ProbeLine, diagnosis_json, diagnosis_line,
    diagnosis_text, parts,
};
pub use figure::{
    Axis, Bar, Bars, Drawing, Figure, Limit, Line, MARKS, Mark, MarkRow, Parallel, Points, Scale, Series, Shape,
    Strand, Tick, Unit,
};
pub use figures::{FIGURES, FigureRow, figures};
pub use format::{Output, Place, REPORTS, ReportFormat, Subject, report_format, terminal};
pub use front::front_table;
pub use learning_rate::{LearningRate, Rate};
pub use machine::{ceilings_text, machine_text};
pub use markdown::summary;
#[cfg(feature = "cli")]
pub use page::page;
pub use probe::{ProbeReport, probe_json, probe_text};
pub use row::{shown_estimate, shown_result};
pub use table::{table, verdict};
pub use trials::trials_csv;
