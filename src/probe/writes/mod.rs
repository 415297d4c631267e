//! Protects the user's files from a probe's writes.
//!
//! The best protection is a *scratch layer*: the probe runs in its own mount namespace, in which overlays cover
//! everything that it may write to. Its writes are discarded. If that is not possible, guards in an adapter's hook keep
//! the probe from changing existing files. gputune tries the scratch layer to find out if it is possible.
//! `docs/adapters.md` lists the protected and the unprotected files.

mod data;
mod enter;
mod layout;
mod places;
mod scratch;
mod store;
mod surroundings;

use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use enter::{REHEARSE, answer_rehearsal, enter, enter_with_way_out};
pub(super) use layout::{Layout, explanation};
use scratch::Scratch;
pub(super) use scratch::{ProbeScratch, name as layer_name};
use store::Store;
pub(super) use store::remove_unless_used;
use surroundings::Surroundings;

use super::{StepTemplate, Template};
use crate::model::{Headroom, quantity::show_bytes};

/// How a probe's writes are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Writes {
    /// Writes go to a layer that is discarded.
    Scratch,
    /// An adapter's hook keeps the probe from changing existing files.
    Guard,
    /// Writes change files as the script intends.
    Allow,
}

/// The requested protection.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WritesWish {
    /// The required protection; `None` for the best available.
    pub writes: Option<Writes>,
    /// How much of the free disk a probe may write; `None` for half.
    pub scratch_size: Option<Headroom>,
    /// True if processes on other nodes also write.
    pub spans_nodes: bool,
}

/// The protection in effect for the probes of a search.
#[derive(Debug)]
pub struct Protection {
    writes: Writes,
    /// The reason why a better protection is not in effect, if gputune tried any.
    reason: Option<String>,
    scratch: Option<Scratch>,
    /// The folder to which guards redirect writes, and the maximum number of bytes in it.
    guarded: Option<(Store, u64)>,
}

/// The requested protection is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WritesError {
    /// A scratch layer is not possible.
    #[error("`writes = \"scratch\"` cannot be had: {0}")]
    NoScratch(String),
    /// The job has no hook for guards.
    #[error("`writes = \"guard\"` needs an adapter: the guards are in its hook")]
    NoHook,
}

impl WritesError {
    /// Returns the remedy.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoScratch { .. } => {
                "leave `writes` out for the best kind that works here, or see \"No scratch layer\" in docs/adapters.md"
            }
            Self::NoHook => "set `adapter = \"torch\"` in [step], or leave `writes` out",
        }
    }
}

impl Protection {
    /// Finds the best possible protection for a step, by trying the scratch layer. `out` is the folder for the logs,
    /// which may not exist yet. `supervisor` is the executable that starts probes.
    ///
    /// # Errors
    /// The requested protection is not possible.
    pub fn find(template: &StepTemplate, wish: WritesWish, supervisor: &Path, out: &Path) -> Result<Self, WritesError> {
        let has_hook = template.apply.adapter.is_some();
        let none = Self { writes: Writes::Allow, reason: None, scratch: None, guarded: None };
        let around = Surroundings::of(template, out);
        let size = wish.scratch_size.unwrap_or(Headroom::Fraction(0.5));
        let reason = match wish.writes {
            Some(Writes::Allow) => return Ok(none),
            Some(Writes::Guard) if has_hook => None,
            Some(Writes::Guard) => return Err(WritesError::NoHook),
            asked => match elsewhere(template, wish).map_or_else(|| Scratch::find(&around, supervisor, size), Err) {
                Ok(scratch) => return Ok(Self { writes: Writes::Scratch, scratch: Some(scratch), ..none }),
                Err(reason) if asked.is_some() => return Err(WritesError::NoScratch(reason)),
                Err(reason) => Some(reason),
            },
        };
        let store = [&around.out, &around.temporary].into_iter().filter(|_| has_hook);
        let store = store.map(|parent| Store::create(parent)).find_map(Result::ok);
        let guarded = store.map(|store| {
            let free = store::free_bytes(store.path()).unwrap_or(0);
            (store, size.of(free).min(free))
        });
        let writes = if guarded.is_some() { Writes::Guard } else { Writes::Allow };
        Ok(Self { writes, reason, guarded, ..none })
    }

    /// Makes the folder for a probe's writes, if writes go to a layer or are guarded. `own` are gputune's folders; the
    /// probe writes to them directly.
    pub(super) fn for_probe(&self, name: &str, own: &[PathBuf]) -> io::Result<Option<ProbeScratch>> {
        match (&self.scratch, &self.guarded) {
            (Some(scratch), _) => scratch.for_probe(name, own).map(Some),
            (None, Some((store, most))) => ProbeScratch::without_layers(store.path().join(name), *most).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Returns the folder with the writes of probes; remove it at the end of the search.
    pub(super) fn store(&self) -> Option<&Path> {
        let of_guards = self.guarded.as_ref().map(|(store, _)| store.path());
        self.scratch.as_ref().map(Scratch::store).or(of_guards)
    }

    /// Searches the lines of a probe's output for a failed write to a read-only data folder. Covers that folder with a
    /// layer in later probes, or all data folders if no line names the folder. Returns true if a write failed.
    pub(super) fn cover_written(&mut self, lines: &[String]) -> bool {
        self.scratch.as_mut().is_some_and(|scratch| scratch.cover_written(lines))
    }

    /// Returns the kind of protection in effect.
    pub fn writes(&self) -> Writes {
        self.writes
    }

    /// Returns the folders that a layer covers.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.scratch.as_ref().map(Scratch::covered).unwrap_or_default()
    }

    /// Returns the folders that keep their content and are read-only.
    pub fn read_only_folders(&self) -> Vec<PathBuf> {
        self.scratch.as_ref().map(Scratch::read_only).unwrap_or_default()
    }

    pub(super) fn name(&self) -> &'static str {
        match self.writes {
            Writes::Scratch => "scratch",
            Writes::Guard => "guard",
            Writes::Allow => "allow",
        }
    }

    /// Describes the protection in one line, which continues a sentence that begins with `writes`.
    pub fn line(&self) -> String {
        let why = self.reason.as_ref().map(|reason| format!("; no scratch layer: {reason}")).unwrap_or_default();
        match (&self.scratch, self.writes) {
            (Some(scratch), _) => {
                let (most, free) = scratch.bounds();
                let mut line = format!(
                    "go to a temporary scratch layer: {} ({} of {} free at most)",
                    listed(&self.folders()),
                    show_bytes(most),
                    show_bytes(free)
                );
                let read_only = self.read_only_folders();
                if !read_only.is_empty() {
                    line += &format!("; read-only: {}", listed(&read_only));
                }
                line
            }
            (None, Writes::Guard) => {
                format!("are kept off files that were there by guards in the hook, which see only Python's own{why}")
            }
            (None, _) => format!("change files as the script would{why}"),
        }
    }

    /// Returns a warning for the time before the first probe, if no protection is possible and the user did not request
    /// `writes = "allow"`.
    pub fn warning(&self) -> Option<String> {
        let reason = self.reason.as_ref().filter(|_| self.writes == Writes::Allow)?;
        Some(format!(
            "nothing keeps probes from changing or deleting your files: a scratch layer is not possible ({reason}), and \
             guards need `adapter` in [step]. Write to a copy, or set `writes = \"allow\"` in [step] to accept this"
        ))
    }
}

/// Returns the reason if some processes of a step run outside of any layer on this machine.
fn elsewhere(template: &StepTemplate, wish: WritesWish) -> Option<String> {
    let program = template.command.first().map(Template::text).unwrap_or_default();
    if wish.spans_nodes {
        Some("processes on other nodes are outside of it".to_owned())
    } else if program.rsplit('/').next() == Some("srun") {
        Some("`srun` has Slurm's daemon start the processes, outside of it".to_owned())
    } else {
        None
    }
}

fn listed(folders: &[PathBuf]) -> String {
    const SHOWN: usize = 5;
    let mut words: Vec<String> = folders.iter().take(SHOWN).map(|folder| folder.display().to_string()).collect();
    if folders.len() > SHOWN {
        words.push(format!("{} more", folders.len() - SHOWN));
    }
    words.join(", ")
}
