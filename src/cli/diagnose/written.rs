//! Writes the spec of `--write`: the examined job, and a space of the parameters that are worth opening.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use gputune::diagnosis::{Evidence, Examined, Opening, openable};
use gputune::model::Role;
use gputune::probe::{adapter::Apply, escaped};
use gputune::report::{self, emit::toml_scalar};
use gputune::spec::Spec;

use super::Subject;
use crate::cli::exit::Failed;
use crate::cli::{folder, paths};

/// Writes a spec for the job that opens parameters, which means that a search may change them.
pub(super) struct Opener {
    kind: Kind,
    pub(super) has_adapter: bool,
}

enum Kind {
    /// A command, and the folder that it runs in.
    Command(Vec<String>, PathBuf),
    /// An existing spec: its place, its text, the targets and roles of its parameters, and all their names.
    Spec { path: PathBuf, text: String, has_baseline: bool, targets: Vec<String>, roles: Vec<Role>, names: Vec<String> },
}

impl Opener {
    pub(super) fn of(subject: &Subject, command: &[String]) -> Self {
        let apply: &Apply = &subject.step.template.apply;
        let kind = match &subject.spec {
            None => Kind::Command(command.to_vec(), subject.step.template.cwd.clone()),
            Some((path, text)) => Kind::Spec {
                path: path.clone(),
                text: text.clone(),
                has_baseline: has_table(text, "baseline"),
                targets: apply.applied.iter().map(|applied| applied.name.clone()).collect(),
                roles: subject.space.parameters().iter().filter_map(|parameter| parameter.role()).collect(),
                names: subject.space.parameters().iter().map(|parameter| parameter.name().to_owned()).collect(),
            },
        };
        Self { kind, has_adapter: apply.adapter.is_some() }
    }

    /// Fails, before anything runs, if no spec could be written.
    pub(super) fn check(&self, path: &Path) -> Result<(), Failed> {
        let usage = |message: String, hint: String| Err(Failed::usage(message).hint(hint));
        if !self.has_adapter {
            let hint = "write adapter = \"torch\" in [step] if it trains with PyTorch, and diagnose again";
            return usage("without an adapter there is nothing that could be opened".to_owned(), hint.to_owned());
        }
        let folder = paths::folder_of(path);
        if !folder.is_dir() {
            let message = format!("cannot write {}: there is no folder {}", path.display(), folder.display());
            return usage(message, "make it, or choose another file".to_owned());
        }
        match &self.kind {
            Kind::Spec { path: old, .. } if paths::folder_of(old).canonicalize().ok() != folder.canonicalize().ok() => {
                let hint = format!("write the new spec next to {}", old.display());
                usage("paths in a spec are relative to its folder".to_owned(), hint)
            }
            _ => Ok(()),
        }
    }

    /// Returns true if a new spec would have parameters that the job's spec lacks.
    pub(super) fn can_write(&self, examined: &Examined) -> bool {
        let openings = examined.verdict.openings(&examined.evidence);
        matches!(self.kind, Kind::Command(..)) || openings.iter().any(|opening| self.can_open(opening))
    }

    /// Writes the spec as a whole or not at all, and only if a search accepts it. Keeps an earlier file aside.
    pub(super) fn write(&self, path: &Path, examined: &Examined) -> Result<PathBuf, Failed> {
        self.check(path)?;
        let text = self.text(path, examined)?;
        let cannot = |error: std::io::Error| Failed::impossible(format!("cannot write {}: {error}", path.display()));
        let file = folder::temporary(paths::folder_of(path), &text).map_err(cannot)?;
        // Checks that the new spec can be read: an error here is better than at the next command.
        if let Some(reason) = refused(file.path()) {
            return Err(Failed::impossible(format!("the spec to be written is not accepted: {reason}"))
                .hint("please report this with the spec that was diagnosed; add the parameters by hand meanwhile"));
        }
        folder::persist(file, path, true).map_err(cannot)?;
        Ok(path.to_owned())
    }

    fn text(&self, path: &Path, examined: &Examined) -> Result<String, Failed> {
        let evidence = &examined.evidence;
        let openings: Vec<_> = examined.verdict.openings(evidence).into_iter().filter(|it| self.can_open(it)).collect();
        match &self.kind {
            Kind::Command(command, cwd) => {
                let openings = some(openings, evidence);
                if openings.is_empty() {
                    return Err(Failed::usage("the job has nothing that a search could set: nothing was written")
                        .hint("give the script options, such as one for its batch size, and run `gputune init`"));
                }
                Ok(fresh(path, command, cwd, &openings, examined))
            }
            Kind::Spec { .. } if openings.is_empty() => {
                Err(Failed::usage("the spec has all parameters already that are worth opening")
                    .hint("search it unchanged"))
            }
            Kind::Spec { text, has_baseline, .. } => Ok(extended(text, *has_baseline, &openings, examined)),
        }
    }

    fn can_open(&self, opening: &Opening) -> bool {
        let Kind::Spec { targets, roles, names, .. } = &self.kind else { return true };
        let role = openable(opening.parameter).and_then(|openable| openable.role);
        !targets.iter().any(|target| target == opening.target)
            && !names.iter().any(|name| name == opening.parameter)
            && role.is_none_or(|role| !roles.contains(&role))
    }
}

/// Returns why a search would not accept a spec.
fn refused(path: &Path) -> Option<String> {
    match Spec::load(path) {
        Err(error) => Some(error.message),
        Ok(spec) if spec.space.first().is_none() => Some("no config satisfies its rules".to_owned()),
        Ok(spec) => spec.device().err().map(|error| error.to_string()),
    }
}

/// Returns the openings. If they are empty, returns the usual parameters, because a space needs at least one parameter.
fn some(openings: Vec<Opening>, evidence: &Evidence) -> Vec<Opening> {
    if !openings.is_empty() {
        return openings;
    }
    let usual = ["batch_size", "num_workers", "precision", "threads"].into_iter();
    usual.filter_map(|name| openable(name)?.for_job(evidence)).collect()
}

fn quoted(text: &str) -> String {
    toml_scalar(&text.into())
}

fn parameter_line(opening: &Opening) -> String {
    let values: Vec<String> = opening.values.iter().map(toml_scalar).collect();
    let (why, name, target) = (&opening.why, &opening.parameter, quoted(opening.target));
    format!("# {why}\n{name} = {{ values = [{}], apply = {target} }}\n", values.join(", "))
}

/// Returns the lines of `[baseline]`: the job's settings today. Prefetching and persistence count only with workers.
fn baseline_lines(openings: &[Opening], evidence: &Evidence) -> String {
    let needs_workers = |opening: &Opening| matches!(opening.parameter, "prefetch_factor" | "persistent_workers");
    let is_opened = openings.iter().any(|opening| opening.parameter == "num_workers");
    let has_workers = evidence.workers().map_or(!is_opened, |workers| workers > 0 || !is_opened);
    let mut text = String::new();
    for opening in openings {
        let Some(today) = opening.today.as_ref().filter(|_| has_workers || !needs_workers(opening)) else { continue };
        let _ = writeln!(text, "{} = {}", opening.parameter, toml_scalar(today));
    }
    text
}

fn headline(examined: &Examined) -> String {
    let line = report::diagnosis_line(&examined.verdict).or_else(|| report::largest_part(&examined.evidence));
    let line = line.unwrap_or_else(|| "not known, since the job tells neither phases nor facts".to_owned());
    format!("# By gputune diagnose. The bottleneck: {line}\n")
}

fn fresh(path: &Path, command: &[String], cwd: &Path, openings: &[Opening], examined: &Examined) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(&escaped(word))).collect();
    let mut text = headline(examined);
    let name = report::emit::shell_word(&path.display().to_string()).replace(|c: char| c.is_control(), " ");
    let _ = writeln!(text, "# Look at it with: gputune check {name}\n# Search with: gputune search {name}\n");
    let _ = writeln!(text, "[step]\ncommand = [{}]\nadapter = \"torch\"", words.join(", "));
    if paths::folder_of(path).canonicalize().ok() != cwd.canonicalize().ok() {
        let _ = writeln!(text, "cwd = {}", quoted(&cwd.display().to_string()));
    }
    // Without `batch_size`, no parameter changes the number of samples in a step.
    let has_batch = openings.iter().any(|opening| opening.parameter == "batch_size");
    if examined.evidence.observed.timing.samples_per_step.is_none() && !has_batch {
        text += "samples_per_step = 1 # gputune cannot count the samples, so it compares steps: write the samples per step\n";
    }
    text += "\n# What may be tried; take out what you do not want to change.\n[space]\n";
    openings.iter().for_each(|opening| text.push_str(&parameter_line(opening)));
    text += "\n# No [baseline]: the first probe runs the unmodified command, and the search compares with it.\n";
    let seconds = probe_seconds(examined);
    text += "\n[limits]\n# How long one probe may take, start-up included.\n";
    let _ = writeln!(text, "probe_time = \"{seconds}s\"");
    text += "\n[search]\nprobes = 24\ntime = \"20m\"\n";
    text
}

/// Returns three times the mean time of a probe, but one minute at least and ten at most.
fn probe_seconds(examined: &Examined) -> u64 {
    let probes = examined.evidence.runs.iter().filter(|(_, ran)| !matches!(ran, gputune::diagnosis::Ran::LeftOut(_)));
    let probes = u32::try_from(probes.count()).unwrap_or(u32::MAX).saturating_add(1);
    (examined.elapsed / probes * 3).as_secs().clamp(60, 600)
}

/// Adds parameters to a spec; everything else stays as written.
///
/// A baseline must state all values that run today, so it also gets the new parameters.
fn extended(text: &str, has_baseline: bool, openings: &[Opening], examined: &Examined) -> String {
    let parameters: String = openings.iter().map(parameter_line).collect();
    let baseline = baseline_lines(openings, &examined.evidence);
    let text = inserted(text, "space", &parameters);
    let text = if baseline.is_empty() || !has_baseline { text } else { inserted(&text, "baseline", &baseline) };
    headline(examined) + &text
}

/// Returns true if a line is the header of the table.
fn is_head(line: &str, table: &str) -> bool {
    let line = line.split('#').next().unwrap_or_default().trim();
    line.strip_prefix('[').and_then(|line| line.strip_suffix(']')).is_some_and(|name| name.trim() == table)
}

fn has_table(text: &str, table: &str) -> bool {
    text.lines().any(|line| is_head(line, table))
}

/// Inserts lines after the header of a table. If the text has no such header, adds the table at the end.
fn inserted(text: &str, table: &str, lines: &str) -> String {
    let is_head = |line: &str| is_head(line, table);
    let mut written = String::with_capacity(text.len() + lines.len());
    let mut is_done = false;
    for line in text.split_inclusive('\n') {
        written.push_str(line);
        if !is_done && is_head(line) {
            if !line.ends_with('\n') {
                written.push('\n');
            }
            written.push_str(lines);
            is_done = true;
        }
    }
    if !is_done {
        let newline = if written.ends_with('\n') { "" } else { "\n" };
        let _ = write!(written, "{newline}\n[{table}]\n{lines}");
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_behind_the_head_of_their_table() {
        let text = "[step]\nx = 1\n[space] # here\ny = 2\n";
        assert_eq!(inserted(text, "space", "z = 3\n"), "[step]\nx = 1\n[space] # here\nz = 3\ny = 2\n");
        assert_eq!(inserted("a = 1", "baseline", "b = 2\n"), "a = 1\n\n[baseline]\nb = 2\n");
        assert_eq!(inserted("[space]", "space", "b = 2\n"), "[space]\nb = 2\n");
    }
}
