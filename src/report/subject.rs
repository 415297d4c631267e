//! What a report is made from, and what it is as it is written.

use std::path::{Path, PathBuf};

use super::best::BestReport;
use super::screen::Screen;
use crate::machine::Device;
use crate::model::Line;
use crate::probe::StepTemplate;
use crate::search::{Header, Study};

/// Everything that a report can tell of: a search as it is kept, with the report on its best config.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'s> {
    /// What was searched and found.
    pub study: &'s Study,
    /// What trained.
    pub device: &'s Device,
    /// The spec, as it was named on the command line.
    pub name: &'s str,
    /// The best config, with the command that runs it.
    pub best: Option<&'s BestReport>,
    /// What is run, before settings are filled in.
    pub step: &'s StepTemplate,
    /// The folder of the search: logs of trials are in `logs/`.
    pub folder: &'s Path,
    /// The first line of the journal.
    pub header: &'s Header,
    /// What the journal says of each trial of the study, in the same order; why it was proposed is there.
    pub lines: &'s [Line],
    /// What it is read on, where that is a terminal.
    pub screen: Screen,
}

/// Where a report goes unless another place is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Standard output.
    Stdout,
    /// A file of this name in the folder of the search.
    File(&'static str),
    /// A folder of this name in the folder of the search.
    Folder(&'static str),
}

/// A report as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// One file.
    File(Vec<u8>),
    /// Files with their paths below a folder; those of an earlier report that have the same names are replaced.
    Folder(Vec<(PathBuf, Vec<u8>)>),
}

impl Output {
    /// A file with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::File(text.into().into_bytes())
    }
}

/// That the journal has older eras, if it has.
pub(super) fn older(subject: &Subject<'_>) -> Option<String> {
    let older = subject.header.older;
    (older.eras > 0).then(|| older.to_string())
}
