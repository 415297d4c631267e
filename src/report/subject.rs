//! The input and the output of a report.

use std::path::{Path, PathBuf};

use super::best::BestReport;
use super::screen::Screen;
use crate::machine::Device;
use crate::model::Line;
use crate::probe::StepTemplate;
use crate::search::{Header, Study};

/// The input of a report: a search in its folder, with the report on its best config.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'s> {
    /// The study.
    pub study: &'s Study,
    /// The device that trained.
    pub device: &'s Device,
    /// The spec, as the command line named it.
    pub name: &'s str,
    /// The best config, with the command that runs it.
    pub best: Option<&'s BestReport>,
    /// The step before settings are filled in.
    pub step: &'s StepTemplate,
    /// The folder of the search; logs of trials are in `logs/`.
    pub folder: &'s Path,
    /// The first line of the journal.
    pub header: &'s Header,
    /// The journal's line for each trial of the study, in the same order; it has the reason for the proposal.
    pub lines: &'s [Line],
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

/// Returns a note if the journal has older eras.
pub(super) fn older(subject: &Subject<'_>) -> Option<String> {
    let older = subject.header.older;
    (older.eras > 0).then(|| older.to_string())
}
