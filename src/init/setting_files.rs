//! Turns files of settings that a script reads into templates: YAML, JSON, TOML, INI and `.env`. The other text stays unchanged.

use std::path::{Path, PathBuf};

use super::argument::Argument;
use super::entries::{self, Entry};
use super::knobs::{KNOBS, Knob, Settings};
use super::plan::{Found, Plan, Planned, Way};
use super::seen::{By, Seen};
use super::{settings, today};
use crate::probe::{NotedArgument, escaped};

/// A file of settings that is rendered for each probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The text of the template, with settings in it.
    pub text: String,
    /// The path of the file.
    pub config: PathBuf,
    /// True if the script opens the file by a path in its code; else the rendered file replaces it in the command.
    pub is_opened: bool,
}

/// How the command names a file.
enum Named {
    /// By this word, after a prefix such as `--config=`.
    Word(String, String),
    /// By an option whose default is the file.
    Argument(Argument),
}

/// Puts settings into the files that the script read, if no option sets them.
///
/// If the command does not name a file, the script gets the rendered file when it opens its own. Settings that the adapter can set are
/// then left to the adapter.
pub fn render(plan: &mut Plan, found: &Found<'_>, cwd: &Path) -> Vec<Template> {
    let read = found.seen.map(|seen| seen.notes.files.as_slice()).unwrap_or_default();
    let mut files: Vec<&PathBuf> = read.iter().rev().collect();
    // The file read last usually overrides the others. Files in the command come first: they may load a base file later.
    files.sort_by_key(|file| named(found, file, cwd).is_none());
    files.into_iter().filter_map(|file| of_file(plan, found, file, cwd)).collect()
}

fn of_file(plan: &mut Plan, found: &Found<'_>, file: &Path, cwd: &Path) -> Option<Template> {
    let (text, entries) = entries::read(file)?;
    let knobs = KNOBS.iter().filter(|knob| matches!(knob.settings, Settings::BatchSize | Settings::Workers));
    let chosen = knobs.filter_map(|knob| Some((knob, choose(knob, (file, &entries), plan, found)?)));
    let mut chosen: Vec<(&Knob, &Entry)> = chosen.collect();
    chosen.sort_by_key(|(_, entry)| entry.place.start);
    let shown = file.strip_prefix(cwd).unwrap_or(file).display().to_string();
    let named = named(found, file, cwd);
    if named.is_none() {
        // The adapter can set a loader while it trains.
        chosen.retain(|(knob, _)| plan.parameters.iter().all(|planned| planned.name != knob.parameter));
    }
    if chosen.is_empty() {
        return None;
    }
    let name = file.file_name()?.to_str()?;
    let rendered = format!("{{probe_dir}}/{}", escaped(name));
    let is_opened = named.is_none();
    match named {
        Some(Named::Word(word, prefix)) => drop(plan.words.replace(&word, &(escaped(&prefix) + &rendered))),
        Some(Named::Argument(argument)) => drop(plan.words.put(&argument, rendered)),
        None => {}
    }
    let (mut template, mut at) = (String::new(), 0);
    for (knob, entry) in &chosen {
        template += &escaped(text.get(at..entry.place.start)?);
        template += &format!("{{{}}}", knob.parameter);
        at = entry.place.end;
        plan.parameters.retain(|planned| planned.name != knob.parameter);
        plan.closed.retain(|(name, _)| name != knob.parameter);
    }
    template += &escaped(text.get(at..)?);
    for (at, (knob, entry)) in chosen.iter().enumerate() {
        let ranks = found.command.ranks();
        let definition = settings::numbers(knob.settings, Some(entry.value), &[], found.means, ranks)?;
        let about = format!("{} in {shown}", entry.key);
        let planned = in_file(knob.parameter, definition, about, &shown, Some(entry.value.to_string()));
        plan.parameters.insert(at, planned);
    }
    count_samples(plan, found, &entries);
    Some(Template { text: template, config: file.to_owned(), is_opened })
}

/// Plans a parameter that a rendered file sets. It counts as stated: a file is rendered only if all of its settings are known.
pub(super) fn in_file(name: &str, definition: String, about: String, file: &str, today: Option<String>) -> Planned {
    let (name, way, stated) = (name.to_owned(), Way::File(file.to_owned()), Some(file.to_owned()));
    Planned { name, definition, about, way, today, stated, derived: Vec::new() }
}

/// Sets the samples of a step, if the adapter counts steps but no samples.
fn count_samples(plan: &mut Plan, found: &Found<'_>, entries: &[Entry]) {
    let is_in_file = |planned: &&Planned| planned.name == "batch_size" && matches!(planned.way, Way::File(_));
    let Some(planned) = plan.parameters.iter().find(is_in_file) else { return };
    let is_it = |entry: &&Entry| Knob::named(&entry.key).is_some_and(|knob| knob.parameter == "grad_accumulation");
    let pieces = entries.iter().find(is_it).map_or(1, |entry| entry.value.max(1));
    let batches = pieces.saturating_mul(i64::try_from(found.command.ranks()).unwrap_or(1));
    let has_loader = found.seen.and_then(Seen::has_loader).unwrap_or(true);
    let is_counted =
        has_loader || found.seen.is_some_and(|seen| seen.counts_samples(planned.today.as_deref(), batches));
    if is_counted || found.preset.adapter.is_none() || plan.samples_per_step.is_some() {
        return;
    }
    plan.samples_per_step = Some(today::samples_of(batches));
}

/// Returns the entry that sets a knob: its key is one of the knob's names, and its value is the loader's. An entry with another key
/// sets the knob if a second run showed it.
fn choose<'e>(knob: &Knob, (file, entries): (&Path, &'e [Entry]), plan: &Plan, found: &Found<'_>) -> Option<&'e Entry> {
    let is_set = |planned: &Planned| matches!(planned.way, Way::Argument(_) | Way::Config | Way::File(_));
    if plan.parameters.iter().any(|planned| planned.name == knob.parameter && is_set(planned)) {
        return None;
    }
    let seen = found.seen?;
    let used = seen.number(knob.parameter);
    let is_value = |entry: &&Entry| {
        settings::is_possible(knob.settings, entry.value) && used.is_none_or(|used| used == entry.value)
    };
    let fitting: Vec<&Entry> = entries.iter().filter(|entry| entry.trains()).filter(is_value).collect();
    let named = |name: &str| fitting.iter().filter(|entry| Argument::plain(&entry.key) == name).collect::<Vec<_>>();
    // Two keys of the same name are about different things.
    match knob.names.all().map(named).find(|entries| !entries.is_empty()).as_deref() {
        Some([only]) => Some(only),
        Some(_) => None,
        None => match seen.matched(knob.parameter) {
            Some(By::Entry { file: of, place, .. }) if of == file => entries.iter().find(|entry| entry.place == *place),
            _ => None,
        },
    }
}

fn named(found: &Found<'_>, file: &Path, cwd: &Path) -> Option<Named> {
    let file = file.canonicalize().ok()?;
    let is_it = |text: &str| !text.is_empty() && cwd.join(text).canonicalize().is_ok_and(|path| path == file);
    let told = found.command.told().iter().find_map(|word| {
        let (prefix, path) = match word.split_once('=') {
            Some((name, path)) => (format!("{name}="), path),
            None => (String::new(), word.as_str()),
        };
        is_it(path).then(|| Named::Word(word.clone(), prefix))
    });
    let arguments = found.seen?.notes.arguments.iter();
    let value = |noted: &&NotedArgument| noted.value.as_ref().and_then(|value| value.as_str()).is_some_and(is_it);
    let spelled = |noted: &NotedArgument| found.arguments.iter().find(|known| known.names == noted.names).cloned();
    let by_default = || arguments.filter(value).find_map(spelled).map(Named::Argument);
    told.or_else(by_default).filter(|_| found.command.takes_arguments())
}
