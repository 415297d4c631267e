//! The screens at the end of a search: for any study, they fit and show the results that matter.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use gputune::model::{
    Constraint, Estimate, Failure, Measurement, Memory, MemoryUse, Objective, Outcome, Parameter, Purpose, Space,
    Timing, Trial,
};
use gputune::report::{self, Screen};
use gputune::search::Study;
use unicode_width::UnicodeWidthStr;

const GIB: u64 = 1 << 30;

fn measurement(speed: f64, half: f64, memory: u64) -> Measurement {
    Measurement {
        throughput: Some(Estimate::interval(speed, speed * (1.0 - half), speed * (1.0 + half))),
        unit: "samples/s".to_owned(),
        phase_seconds: [("data_wait".to_owned(), 0.03)].into(),
        memory: MemoryUse { peak_bytes: Some(memory), capacity_bytes: Some(80 * GIB), ..Default::default() },
        timing: Timing { step_seconds: Some(0.1), is_unstable: half > 0.05, ..Default::default() },
        ..Measurement::default()
    }
}

fn measured(speed: f64, half: f64, memory: u64) -> Outcome {
    Outcome::Measured(measurement(speed, half, memory))
}

fn study(space: Space, outcomes: Vec<(Purpose, Outcome)>) -> Study {
    let config = |at: usize| space.config(at as u128).unwrap();
    let trials = outcomes.into_iter().enumerate().map(|(at, (purpose, outcome))| Trial {
        elapsed: Duration::from_secs(9),
        ..Trial::new(at as u32 + 1, purpose, config(at), outcome)
    });
    let (trials, baseline): (Vec<Trial>, _) = (trials.collect(), Some(config(0)));
    let objective = Objective::default().constraint(Constraint::parse("peak_memory < 70GiB").unwrap());
    Study { baseline, objective, elapsed: Duration::from_secs(130), ..Study::new(space, trials) }
}

/// A study with one trial of each outcome.
fn ordinary() -> Study {
    let space = Space::new([
        Parameter::powers_of_two("batch_size", 8, 64),
        Parameter::range("workers", 0, 4, 2),
        Parameter::values("precision", ["f32", "bf16"]),
    ])
    .unwrap();
    let oom = |gib: u32| Outcome::OutOfMemory {
        memory: Memory::Device,
        failure: Failure::new(format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {gib}.00 GiB. GPU 0 has a total capacity of 79.10 GiB"
        )),
    };
    use Purpose::{Baseline, Search};
    study(
        space,
        vec![
            (Baseline, measured(1_105.0, 0.011, 12 * GIB)),
            (Search, measured(3_214.0, 0.009, 31 * GIB)),
            (Search, measured(3_190.0, 0.061, 30 * GIB)),
            (Search, measured(1_245.0, 0.043, 9 * GIB)),
            (Search, measured(4_100.0, 0.01, 75 * GIB)),
            (Search, oom(2)),
            (Search, oom(2)),
            (Search, oom(4)),
            (Search, Outcome::Crashed(Failure::new("exit code 1: ValueError: batch_size must be\na multiple of 3"))),
            (Search, Outcome::TimedOut(Failure::new("nothing was measured within 60 s"))),
            (Search, measured(1_100.0, 0.2, 20 * GIB)),
        ],
    )
}

/// Thirty parameters with names, values and letters of all kinds.
fn wide() -> Study {
    let long = "/data/imagenet-21k/shards-of-2026/train-{000000..001023}.tar";
    let mut parameters = vec![
        Parameter::powers_of_two("train_data_loader_batch_size_per_device", 8, 64),
        Parameter::values("schedule", ["標準的な値", "小さい値"]),
        Parameter::values("shards", [long, "short"]),
    ];
    parameters.extend((3..30).map(|at| Parameter::values(format!("option_{at}"), [at, at + 1])));
    let outcomes = (0..12).map(|at| (Purpose::Search, measured(1000.0 + f64::from(at), 0.02, GIB))).collect();
    study(Space::new(parameters).unwrap(), outcomes)
}

fn many(count: usize) -> Study {
    let space = Space::new([Parameter::range("x", 1, 3000, 1)]).unwrap();
    let outcome = |at: usize| match at % 5 {
        4 => Outcome::Crashed(Failure::new(format!("exit code {at}"))),
        _ => measured(1000.0 + at as f64, 0.02, GIB),
    };
    let purpose = |at: usize| if at == 0 { Purpose::Baseline } else { Purpose::Search };
    study(space, (0..count).map(|at| (purpose(at), outcome(at))).collect())
}

/// Returns the table and the verdict as on a screen.
fn shown(study: &Study, columns: usize, colours: bool) -> String {
    let screen = Screen { columns, colours, is_verbose: true };
    format!("{}\n\n{}\n", report::table(study, screen), screen.lay_out(&report::verdict(study)))
}

#[test]
fn what_a_search_prints_at_its_end_is_short() {
    let text = report::terminal(&ordinary(), None, (Path::new("gputune-out/train"), None), 80);
    let (_, lines) = text.split_once("\nbest      ").unwrap();
    assert!(lines.lines().count() <= 15, "{text}");
    insta::assert_snapshot!("ordinary_brief", text);
}

#[test]
fn unverified_settings_have_a_label_after_settings_that_nothing_takes() {
    let mut study = ordinary();
    let mut failure = Failure::new("nothing takes `precision`");
    failure.closes = vec!["precision".to_owned()];
    let config = study.space.config(11).unwrap();
    let trial = Trial::new(12, Purpose::Search, config, Outcome::Rejected(failure));
    study.history.push(Trial { elapsed: Duration::from_secs(9), ..trial });
    let brief = report::terminal(&study, None, (Path::new("gputune-out/train"), None), 120);
    let unverified = "not verified, since the step does not tell them: batch_size, workers\n";
    assert!(brief.contains(&format!("\nsettings  {unverified}")), "{brief}");
    let all = shown(&study, 120, false);
    let unchanged = "unchanged, since nothing takes them: precision";
    assert!(all.contains(&format!("\nsettings  {unchanged}\n          {unverified}")), "{all}");
}

#[test]
fn an_ordinary_study_at_80_and_at_120_columns() {
    insta::assert_snapshot!("ordinary_80", shown(&ordinary(), 80, false));
    insta::assert_snapshot!("ordinary_120", shown(&ordinary(), 120, false));
}

#[test]
fn thirty_parameters_at_80_and_at_120_columns() {
    insta::assert_snapshot!("wide_80", shown(&wide(), 80, false));
    insta::assert_snapshot!("wide_120", shown(&wide(), 120, false));
}

#[test]
fn of_many_trials_the_best_and_the_baseline_are_shown_and_where_the_rest_is() {
    let text = shown(&many(2000), 80, false);
    assert!(text.contains("... and 1969 more (400 failed) in trials.csv"), "{text}");
    assert!(text.contains("1  baseline") && text.contains("2000") || text.contains("1999"), "{text}");
    assert!(text.contains("for 394 more reasons see trials.csv"), "{text}");
    assert!(text.lines().count() < 65, "{text}");
}

#[test]
fn nothing_is_wider_than_the_screen_and_nothing_that_matters_is_missing() {
    let one = || {
        study(Space::new([Parameter::values("x", [1])]).unwrap(), vec![(Purpose::Baseline, measured(9.0, 0.01, GIB))])
    };
    let none = || {
        let outcome = || Outcome::Rejected(Failure::new("no such device: 学習".repeat(9)));
        study(
            Space::new([Parameter::range("x", 1, 9, 1)]).unwrap(),
            vec![(Purpose::Baseline, outcome()), (Purpose::Search, outcome())],
        )
    };
    let empty = || study(Space::new([Parameter::values("x", [1])]).unwrap(), Vec::new());
    for study in [ordinary(), wide(), many(40), one(), none(), empty()] {
        for columns in [40, 60, 80, 100, 120, 200] {
            let text = shown(&study, columns, false);
            for line in text.lines() {
                assert!(line.width() <= columns, "{columns}: {line}\n{text}");
                assert!(!line.ends_with(' '), "{line:?}");
            }
            if let Some(best) = study.best() {
                let words: String = text.split_whitespace().collect();
                assert!(words.contains(&best.winner.config_words(&study)), "{text}");
                assert!(text.contains(" best "), "{text}");
            }
        }
    }
}

/// The settings of a winner without blanks, since a line may break anywhere.
trait Words {
    fn config_words(&self, study: &Study) -> String;
}

impl Words for gputune::search::Ranked {
    fn config_words(&self, study: &Study) -> String {
        study.settings(&self.config).line().split_whitespace().collect()
    }
}

#[test]
fn colours_only_repeat_what_the_words_say() {
    let without = |text: &str| {
        let mut plain = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("\x1b[") {
            plain += before;
            rest = after.split_once('m').unwrap().1;
        }
        plain + rest
    };
    let coloured = shown(&ordinary(), 80, true);
    assert!(
        coloured.contains("\x1b[1;32mbest\x1b[0m") && coloured.contains("\x1b[31mout of memory\x1b[0m"),
        "{coloured}"
    );
    assert_eq!(without(&coloured), shown(&ordinary(), 80, false));
}
