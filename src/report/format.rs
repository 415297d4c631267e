//! The formats of a report, and how each is made.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::best::BestReport;
use super::care::left_out;
use super::compare::Comparison;
use super::compare_text;
use super::ending::{brief, verdict, verdict_after};
use super::escape::{as_markdown, fence};
use super::front::{Rows, same_in_all};
use super::row::{result_name, shown_outcome, sorted};
use super::screen::{Screen, Tone, labelled};
use super::table::table;
use super::{Output, Place, Subject, front_table, older, optuna, tensorboard, trials_csv};
use crate::machine::Device;
use crate::model::{Parameter, quantity::show_bytes};
use crate::search::{Kept, Study};

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
    /// Writes the comparison of two searches, if the format can; `docs/compare.md` describes it.
    pub of_two: Option<fn(&Comparison, Screen) -> String>,
}

/// All formats, the default first. `docs/emit.md` describes each.
pub const REPORTS: &[ReportFormat] = &[
    ReportFormat {
        name: "terminal",
        about: "what `search` prints at its end: the trials, the best and why it ended",
        place: Place::Stdout,
        make: |subject| {
            let Subject { kept, best, screen } = *subject;
            let text = terminal(&kept.study, best, (&kept.folder, None), screen);
            let older = older(kept).map(|older| format!("\n\n{older}"));
            Ok(Output::text(text + &older.unwrap_or_default() + "\n"))
        },
        of_two: Some(compare_text::terminal),
    },
    ReportFormat {
        name: "summary",
        about: "the same as Markdown, for the step summary of a CI",
        place: Place::Stdout,
        make: |subject| {
            let Kept { study, device, spec, .. } = subject.kept;
            let older = older(subject.kept).map(|older| format!("\n{older}.\n"));
            Ok(Output::text(summary(study, device, spec, subject.best) + &older.unwrap_or_default()))
        },
        of_two: Some(|comparison, _| compare_text::markdown(comparison)),
    },
    ReportFormat {
        name: "trials",
        about: "one line of CSV for each trial, with all numbers",
        place: Place::Stdout,
        make: |subject| Ok(Output::text(trials_csv(&subject.kept.study))),
        of_two: None,
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
        of_two: Some(|comparison, _| compare_text::json(comparison)),
    },
    ReportFormat {
        name: "tensorboard",
        about: "event files for TensorBoard: hparams, and scalars over the trials",
        place: Place::Folder("tensorboard"),
        make: |subject| Ok(tensorboard::make(subject)),
        of_two: None,
    },
    ReportFormat {
        name: "optuna",
        about: "the journal of an Optuna study, for optuna and optuna-dashboard",
        place: Place::File(optuna::FILE),
        make: |subject| Ok(optuna::make(subject)),
        of_two: None,
    },
    #[cfg(feature = "cli")]
    ReportFormat {
        name: "html",
        about: "a page for a browser, in one file that loads nothing: figures, trials, logs",
        place: Place::File(PAGE),
        make: |subject| Ok(Output::text(super::page(subject))),
        of_two: Some(|comparison, _| super::page::comparison_page(comparison)),
    },
];

/// Returns the format of this name.
pub fn report_format(name: &str) -> Option<&'static ReportFormat> {
    REPORTS.iter().find(|format| format.name == name)
}

const PAGE: &str = "report.html";

/// Writes what a search prints at its end. The parts are the trials, the front if any, the best config with its speedup, why the
/// search ended, the results folder and the next command. A verbose screen gets ties and details of measuring as well.
/// `first_run` is the duration of the script's first run before the search, if it took much of the search's time.
pub fn terminal(
    study: &Study,
    best: Option<&BestReport>,
    (folder, first_run): (&Path, Option<Duration>),
    screen: impl Into<Screen>,
) -> String {
    let screen = screen.into();
    let mut lines = if screen.is_verbose { verdict_after(study, first_run) } else { brief(study, first_run) };
    let more = match best {
        Some(best) if screen.is_verbose => best.more_lines(),
        Some(BestReport { learning_rate: Some(rate), .. }) => labelled("lr", rate.brief()),
        _ => Vec::new(),
    };
    for line in more {
        lines += &format!("\n{line}");
    }
    let page = if folder.join(PAGE).is_file() { format!(" ({PAGE})") } else { String::new() };
    lines += &format!("\nresults   {}{page}", folder.display());
    let parts = [table(study, screen), front_table(study, screen), screen.lay_out(&lines)];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let mut text = parts.join("\n\n");
    // A command is never wrapped, so that it can be copied.
    if let Some(command) = best.and_then(|best| best.one_line(folder)) {
        text += &format!("\n{}{command}", screen.paint(Tone::Good, "next      "));
    }
    text
}

/// Writes a study as Markdown: the verdict with further facts about the best config, the command, and the table of trials.
pub fn summary(study: &Study, device: &Device, name: &str, best: Option<&BestReport>) -> String {
    let [title, model, driver] = [name, device.name.as_str(), device.driver.as_str()].map(as_markdown);
    let mut text = format!("# gputune: {title}\n\nDevice: {model} (driver: {driver})\n\n");
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
    let result = as_markdown(&result_name(&study.objective));
    let _ = writeln!(text, "| # | {} | {result} | peak memory | left out |", names.join(" | "));
    let _ = writeln!(text, "|--:|{}---|--:|---|", "--:|".repeat(names.len()));
    for trial in sorted(study) {
        let settings = study.settings(&trial.config);
        let value = |name: &&str| settings.get(name).map(|value| as_markdown(&value.to_string()));
        let values = names.iter().map(|name| value(name).unwrap_or_else(|| "-".to_owned()));
        let memory = trial.outcome.measurement().and_then(|measurement| measurement.memory.peak_bytes);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            trial.number,
            values.collect::<Vec<_>>().join(" | "),
            as_markdown(&shown_outcome(&study.objective, &trial.outcome)),
            memory.map(show_bytes).unwrap_or_default(),
            as_markdown(&left_out(trial.outcome.measurement()))
        );
    }
    text
}

/// Writes the front as a separate table, then the heading of the table of trials; nothing if there is no front.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Account, Config, Estimate, Fact, InRound, Measurement, MemoryUse, Outcome, Purpose, Settings, Space, Timing,
        Trial,
    };
    use crate::report::{self, Rate};
    use crate::search::{StopReason, Verdict};

    const GIB: u64 = 1 << 30;

    /// Makes the measurement of a training of 2,000 steps that starts slowly. `wait` is the share of a step that waits for data.
    fn measurement(rate: f64, batch: f64, wait: f64) -> Measurement {
        let step = batch / rate;
        let phases = [("data_wait", wait), ("forward", 0.95 - wait)];
        let seconds = |scale: f64| phases.map(|(name, share)| (name.to_owned(), share * scale));
        let facts = [
            ("device", Fact::from("cuda")),
            ("import_seconds", Fact::Number(4.0)),
            ("run.steps", Fact::Number(2000.0)),
            ("run.steps_option", Fact::from("--steps")),
            ("loader.batch_size", Fact::Number(batch)),
            ("loader.workers", Fact::Number(if wait > 0.1 { 0.0 } else { 4.0 })),
            ("loader.prefetch_factor", Fact::Number(2.0)),
            ("loader.pin_memory", Fact::Flag(true)),
            ("loader.item_seconds", Fact::Number(0.01)),
            ("loader.item_cpu_seconds", Fact::Number(0.01)),
            ("precision", Fact::from("bf16")),
        ];
        Measurement {
            throughput: Some(Estimate::interval(rate, rate * 0.99, rate * 1.01)),
            unit: "samples/s".to_owned(),
            phase_seconds: seconds(step).into(),
            facts: facts.into_iter().collect(),
            memory: MemoryUse { peak_bytes: Some(30 * GIB), capacity_bytes: Some(80 * GIB), ..Default::default() },
            timing: Timing {
                steps: 100,
                step_seconds: Some(step),
                samples_per_step: Some(batch),
                ..Default::default()
            },
            account: Some(Account {
                start_s: 9.0,
                steps_s: 100.0 * step,
                phases: seconds(100.0 * step).map(|(name, seconds)| (name, Estimate::point(seconds))).into(),
                rest: Estimate::point(5.0 * step),
            }),
            ..Measurement::default()
        }
    }

    fn study(rounds: u32) -> Study {
        study_with(rounds, |_| 1.0)
    }

    /// Makes a study in which a larger batch with workers is faster. In each round, `load` multiplies its rate.
    fn study_with(rounds: u32, load: impl Fn(u32) -> f64) -> Study {
        let space = Space::new([
            Parameter::powers_of_two("batch_size", 32, 256),
            Parameter::range("workers", 0, 4, 4),
            Parameter::range("prefetch", 2, 4, 2),
            Parameter::values("pin_memory", [false, true]),
            Parameter::values("precision", ["bf16"]),
        ])
        .unwrap();
        let config = |batch: i64, workers: i64| -> Config {
            let settings = Settings::from_iter([("batch_size", batch), ("workers", workers), ("prefetch", 2)]);
            let others = [("pin_memory", crate::model::Value::from(true)), ("precision", "bf16".into())];
            let all = settings.iter().map(|(name, value)| (name, value.clone())).chain(others);
            space.locate(&all.collect::<Settings>()).unwrap()
        };
        let (baseline, best) = (config(32, 0), config(256, 4));
        let of_config = [(&baseline, measurement(1_105.0, 32.0, 0.6)), (&best, measurement(2_400.0, 256.0, 0.01))];
        let mut trials = Vec::new();
        for round in 0..=rounds {
            for (place, (config, measurement)) in (1..).zip(&of_config) {
                let number = u32::try_from(trials.len()).unwrap() + 1;
                let purpose = if round == 0 { Purpose::Search } else { Purpose::Round };
                let mut measurement = measurement.clone();
                let process = place + 2 * (round.saturating_sub(1) / 3);
                let load = if round > 0 && *config == &best { load(round) } else { 1.0 };
                let throughput = measurement.throughput.unwrap().times(load);
                let rate = throughput.value * (1.0 + 0.002 * f64::from(round % 3));
                measurement.throughput = Some(throughput);
                measurement.round =
                    (round > 0).then(|| InRound { number: round, process, slices: vec![rate, rate * 1.001] });
                let outcome = Outcome::Measured(measurement);
                let elapsed = Duration::from_secs(12);
                trials.push(Trial { elapsed, ..Trial::new(number, purpose, (*config).clone(), outcome) });
            }
        }
        let elapsed = Duration::from_secs(58);
        Study { baseline: Some(baseline), stopped: StopReason::TimeSpent, elapsed, ..Study::new(space, trials) }
    }

    /// Returns the lines that a search prints from the best config on.
    fn ending(study: &Study) -> (Vec<String>, BestReport) {
        let device = Device { name: "NVIDIA H100".to_owned(), driver: "none".to_owned(), is_gpu: true };
        let mut best = report::best(study, &device).unwrap();
        best.command = Some("python3 train.py --batch-size 256 --workers 4".to_owned());
        let rate = best.learning_rate.as_mut().unwrap();
        let name = "learning_rate".to_owned();
        rate.rate = Some(Rate { name, before: 3e-4, linear: 2.4e-3, square_root: 8.485e-4, searched: None });
        let text = terminal(study, Some(&best), (Path::new("gputune-out/train"), None), 100);
        let (_, lines) = text.split_once("\nbest ").unwrap();
        (format!("best {lines}").lines().map(str::to_owned).collect(), best)
    }

    #[test]
    fn a_usual_search_ends_with_at_most_ten_lines() {
        for (rounds, verdict) in [(9, Verdict::Faster), (0, Verdict::Unproven)] {
            let study = study(rounds);
            let (lines, best) = ending(&study);
            assert_eq!(best.verdict, verdict, "{lines:#?}");
            assert!(lines.len() <= 10, "{lines:#?}");
            assert!(lines.iter().all(|line| line.chars().count() <= 100), "{lines:#?}");
            for label in ["best", "speedup", "run", "limit", "tried", "lr", "results", "next"] {
                let is_there = lines.iter().filter(|line| line.starts_with(&format!("{label:<10}"))).count() == 1;
                assert!(is_there, "{label}: {lines:#?}");
            }
            let joined = lines.join("\n");
            assert!(joined.contains(" with --steps 250") && !joined.contains("\nnumerics"), "{joined}");
            let few = "; no time is left; 4 min are enough for about 10 configs";
            assert_eq!(joined.contains(few), verdict == Verdict::Unproven, "{joined}");
        }
    }

    #[test]
    fn a_first_run_that_took_long_is_told() {
        let results = (Path::new("gputune-out/train"), Some(Duration::from_secs(30)));
        let said = terminal(&study(0), None, results, 100);
        assert!(said.contains("tried     2 configs in 58.0 s after a first run of 30.0 s; "), "{said}");
        let screen = Screen { columns: 120, colours: false, is_verbose: true };
        let said = terminal(&study(0), None, results, screen);
        assert!(said.contains(" after a first run of 30.0 s; no time is left for another"), "{said}");
    }

    #[test]
    fn a_speedup_within_a_wide_interval_is_no_fact() {
        let study = study_with(4, |round| if round == 2 { 8.0 } else { 1.0 });
        let best = study.best().unwrap();
        assert_eq!(best.verdict, Verdict::Faster, "the slowest slice is over twice as fast as the baseline");
        let said = terminal(&study, None, (Path::new("out"), None), 100);
        assert!(said.contains("speedup   at least 1.") && said.contains("x faster than the baseline ("), "{said}");
    }

    #[test]
    fn a_search_without_another_config_says_so() {
        let mut study = study(0);
        study.history = study.history.trials().iter().take(1).map(|trial| Trial::clone(trial)).collect();
        let said = terminal(&study, None, (Path::new("out"), None), 100);
        assert!(said.contains("baseline  stays: no other config was tried: give more --time\n"), "{said}");
    }
}
