//! Writes the text of a spec from a plan.

use std::path::Path;

use super::plan::{Plan, Planned, Way};
use super::settings::text;
use super::words::Unwritable;

/// The parts of a draft besides its plan.
#[derive(Debug, Clone)]
pub struct Frame<'f> {
    /// The working directory of the command, if it is not the folder of the spec.
    pub cwd: Option<&'f Path>,
    /// The source of the throughput.
    pub rate: Rate,
    /// The time budget of a search, such as `20m`.
    pub time: &'f str,
    /// A line about the machine.
    pub machine: &'f str,
    /// A line about the source of the arguments.
    pub told_by: &'f str,
    /// The file name of the spec, for the commands in its comments.
    pub file: &'f str,
    /// Files that are rendered for each probe.
    pub files: Vec<RenderedFile>,
}

/// A file that is rendered for each probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedFile {
    /// The template, relative to the spec.
    pub template: String,
    /// The path of the result, relative to the probe's folder.
    pub path: String,
    /// The file that the script opens at a fixed path, if the result replaces it.
    pub replaces: Option<String>,
}

/// The source of the throughput.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rate {
    /// An adapter's hook counts the steps.
    Adapter(&'static str),
    /// The script reports events already.
    Events,
    /// The script prints the rate.
    Printed {
        /// The pattern of the number.
        pattern: String,
        /// The unit of the number.
        unit: String,
    },
    /// No source is known: change the script, or write a pattern.
    Missing,
}

/// Writes the spec.
///
/// # Errors
/// A word of the command cannot be expressed in a spec.
pub fn write(plan: &Plan, frame: &Frame<'_>) -> Result<String, Unwritable> {
    let Plan { preset, .. } = plan;
    let (machine, told_by, file) = (one_line(frame.machine), one_line(frame.told_by), one_line(frame.file));
    let mut out = format!(
        "# Written by `gputune init`; preset {}: {}.\n\
         # This machine: {machine}. {told_by}\n\
         #\n\
         #     gputune check {file}     what a search would do; nothing is started\n\
         #     gputune search {file}\n",
        preset.name, preset.about
    );
    write_step(plan, frame, &mut out)?;
    write_space(plan, &mut out);
    write_baseline(plan, frame, &mut out);
    out += &format!(
        "\n[limits]\nprobe_time = \"2m\"   # of one probe, imports and warm-up included; the steps measured by then count\n\
         stall_time = \"90s\"  # longest silence, imports included\n\n[search]\ntime = {}\n",
        text(frame.time)
    );
    Ok(out)
}

fn write_step(plan: &Plan, frame: &Frame<'_>, out: &mut String) -> Result<(), Unwritable> {
    *out += "\n# A probe is ended when enough was measured; the script must not be over before that: let it train for long.\n[step]\n";
    *out += &format!("command = {}\n", command(&plan.words.written()?));
    if let Some(cwd) = frame.cwd {
        *out += &format!("cwd = {}\n", text(&cwd.display().to_string()));
    }
    match &frame.rate {
        Rate::Adapter(adapter) => {
            let about = "counts the steps, and sets each parameter with `apply`; the script is not changed";
            *out += &format!("adapter = {} # {about}\n", text(adapter));
            if let Some(samples) = &plan.samples_per_step {
                let about = "it has no DataLoader whose samples could be counted: see that this is right";
                *out += &format!("samples_per_step = {} # {about}\n", text(samples));
            }
        }
        Rate::Events => *out += "# Its throughput comes from the steps that it tells gputune.\n",
        Rate::Printed { pattern, unit } => {
            *out += "# Read from what the script prints: see that the pattern finds the number in such a line.\n";
            *out += &format!("throughput = {{ pattern = {}, unit = {} }}\n", text(pattern), text(unit));
            let is_searched = plan.parameters.iter().any(|parameter| parameter.name == "batch_size");
            if is_searched && is_of_steps(unit) {
                *out += "samples_per_step = \"batch_size\" # steps of different sizes cannot be compared\n";
            }
        }
        Rate::Missing => {
            let page = plan.preset.page;
            *out += "# gputune cannot see a rate yet. Either let the script report its steps (";
            *out += &format!("{page}), or read the rate that it prints:\n");
            *out += "# throughput = { pattern = '([0-9.]+) samples/s', unit = \"samples/s\" }\n";
        }
    }
    if !frame.files.is_empty() {
        let file = |RenderedFile { template, path, replaces }: &RenderedFile| {
            let replaces = replaces.as_ref().map(|own| format!(", replaces = {}", text(own))).unwrap_or_default();
            format!("{{ template = {}, path = {}{replaces} }}", text(template), text(path))
        };
        let files = frame.files.iter().map(file).collect::<Vec<_>>().join(", ");
        let is_opened = frame.files.iter().any(|file| file.replaces.is_some());
        let which = if is_opened { "; the script opens it instead of its own file" } else { "" };
        *out += &format!("files = [{files}] # rendered for each probe, with its settings{which}\n");
    }
    Ok(())
}

/// Returns true if a unit counts steps, under any of its names.
pub fn is_of_steps(unit: &str) -> bool {
    crate::probe::RateUnit::parse(unit).is_ok_and(|unit| unit.counts_steps())
}

fn command(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| text(word)).collect();
    let line = format!("[{}]", words.join(", "));
    const WIDEST: usize = 100;
    if line.chars().count() <= WIDEST {
        return line;
    }
    // Keep an option and its value on the same line.
    let mut lines: Vec<String> = Vec::new();
    let mut after_option = false;
    for (at, word) in words.iter().enumerate() {
        let is_option = word.starts_with("\"-") && !word.contains('=');
        let is_value = (after_option && !word.starts_with("\"-") && !word.contains('?')) || at == 1;
        match lines.last_mut().filter(|_| is_value) {
            Some(line) => *line += &format!(" {word},"),
            None => lines.push(format!("    {word},")),
        }
        after_option = is_option;
    }
    format!("[\n{}\n]", lines.join("\n"))
}

fn write_space(plan: &Plan, out: &mut String) {
    *out += "\n# What may be tried; take out what must stay, add settings, or remove some. docs/spec.md says what can stand here.\n[space]\n";
    let width = plan.parameters.iter().map(|parameter| parameter.name.len()).max().unwrap_or(0);
    for parameter in &plan.parameters {
        let about = if parameter.about.is_empty() { String::new() } else { format!("{}; ", parameter.about) };
        *out += &format!("# {}{}\n", one_line(&about), one_line(&way(plan, parameter)));
        *out += &format!("{:<width$} = {{ {} }}\n", parameter.name, parameter.definition);
        for (name, expression) in &parameter.derived {
            *out += &format!("{name:<width$} = {{ derive = {} }}\n", text(expression));
        }
    }
    for (argument, reason) in &plan.closed {
        *out += &format!("# Not searched: {}, since {}.\n", one_line(argument), one_line(reason));
    }
    for note in &plan.notes {
        *out += &format!("# Note: {}.\n", one_line(note));
    }
}

/// Describes how a parameter reaches the script.
fn way(plan: &Plan, parameter: &Planned) -> String {
    match (&parameter.way, &plan.loader) {
        (Way::Argument(argument), _) => {
            let default = parameter.today.as_ref().filter(|_| parameter.stated.is_none());
            let default = default.map(|today| format!(", by default {today}")).unwrap_or_default();
            let is_live = parameter.definition.contains("argument = ");
            let live = if is_live { "; while it trains by the adapter" } else { "" };
            format!("by its argument {argument}{default}{live}")
        }
        (Way::Target(it), _) if it.starts_with("env.") => format!("by the variable {}", it.trim_start_matches("env.")),
        (Way::Target(target), Some(loader)) if target.starts_with("dataloader.") => {
            format!("by the adapter, in the DataLoader of {loader}")
        }
        (Way::Target(_), _) if plan.has_arguments() => "by the adapter: the script has no argument for it".to_owned(),
        (Way::Target(_), _) => "by the adapter".to_owned(),
        (Way::File(file), _) => format!("by {file}, rendered for each probe"),
        (Way::Config, _) => "the script asks for it with gputune.config".to_owned(),
    }
}

/// Writes the settings that the command states, and a batch size that follows. The first probe observes the rest.
fn write_baseline(plan: &Plan, frame: &Frame<'_>, out: &mut String) {
    let counts_batches = match &frame.rate {
        Rate::Adapter(_) => plan.samples_per_step.is_some(),
        Rate::Printed { unit, .. } => is_of_steps(unit),
        Rate::Events | Rate::Missing => false,
    };
    let row = |parameter: &Planned| {
        let is_counted = counts_batches && parameter.name == "batch_size";
        let of_script = || is_counted.then(|| "the script's own value".to_owned());
        let words = parameter.stated.clone().or_else(of_script)?;
        Some((parameter.name.clone(), parameter.today.clone()?, words))
    };
    let stated: Vec<_> = plan.parameters.iter().filter_map(row).collect();
    if stated.is_empty() {
        *out += "\n# No [baseline]: the first probe runs the unmodified command, and the search compares with it.\n";
        return;
    }
    *out += "\n# The settings of the command: gputune probes them first, and measures the speedup against them.\n[baseline]\n";
    for (name, today, words) in stated {
        *out += &format!("{name} = {today} # {}\n", one_line(&words));
    }
}

/// Puts a user's text into a comment, as a single line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
