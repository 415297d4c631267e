//! Learning from earlier studies: a good study helps, and a bad study does little harm.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{self, Search, stderr};
use gputune::model::{
    Config, Constraint, Direction, Estimate, Expression, Failure, Goal, History, Measurement, Memory, Objective,
    Outcome, Parameter, Purpose, Settings, Space, Trial, Value, Walk,
};
use gputune::probe::{Replay, Table};
use gputune::search::{
    Budget, Earlier, EarlierError, EarlierStudy, Fingerprint, Header, Journal, JournalError, STRATEGIES, Tuner,
    strategy::{View, strategy},
};

fn measured(value: f64) -> Outcome {
    Outcome::Measured(Measurement { throughput: Some(Estimate::point(value)), ..Measurement::default() })
}

fn trial(config: Config, outcome: Outcome) -> Trial {
    Trial::new(1, Purpose::Search, config, outcome)
}

fn settings(pairs: &[(&str, Value)]) -> Settings {
    pairs.iter().map(|(name, value)| (*name, value.clone())).collect()
}

/// Returns a study of these settings with their throughputs.
fn study(space: &Space, trials: &[(&[(&str, Value)], f64)]) -> EarlierStudy {
    let trial =
        |(pairs, value): &(&[(&str, Value)], f64)| trial(space.locate(&settings(pairs)).unwrap(), measured(*value));
    EarlierStudy::of("before", space, &trials.iter().map(trial).collect())
}

fn first(space: &Space, earlier: &EarlierStudy, start: Option<&Config>) -> Option<String> {
    let (objective, mut history) = (Objective::default(), History::default());
    history.extend_with_start(start);
    let earlier = [earlier.seen_from(space, &objective).unwrap()];
    let view = View::new(space, &objective, &history, &[], start).with(9, 0).with_earlier(&earlier);
    let proposal = (strategy("auto").unwrap().build)().propose(&view)?;
    assert!(proposal.reason.unwrap().contains("before"));
    Some(space.settings(&proposal.config).line())
}

trait WithStart {
    fn extend_with_start(&mut self, start: Option<&Config>);
}

impl WithStart for History {
    fn extend_with_start(&mut self, start: Option<&Config>) {
        if let Some(start) = start {
            self.push(trial(start.clone(), measured(1.0)));
        }
    }
}

fn batch_and_workers() -> Space {
    Space::new([Parameter::powers_of_two("batch_size", 8, 256), Parameter::range("workers", 0, 8, 1)]).unwrap()
}

#[test]
fn the_best_of_an_earlier_study_comes_right_after_the_baseline() {
    let space = batch_and_workers();
    let earlier = study(
        &space,
        &[
            (&[("batch_size", 8.into()), ("workers", 0.into())], 10.0),
            (&[("batch_size", 128.into()), ("workers", 3.into())], 30.0),
            (&[("batch_size", 256.into()), ("workers", 8.into())], 20.0),
        ],
    );
    assert_eq!(first(&space, &earlier, None).unwrap(), "batch_size=128 workers=3");
    let start = space.first().unwrap();
    assert_eq!(first(&space, &earlier, Some(&start)).unwrap(), "batch_size=128 workers=3");
}

#[test]
fn settings_are_found_by_name_and_value_and_the_rest_is_as_in_the_baseline() {
    let there = Space::new([
        Parameter::values("batch_size", [24, 100, 1000]),
        Parameter::values("precision", ["bf16", "fp8"]),
        Parameter::values("allreduce", ["ring", "tree"]),
    ])
    .unwrap();
    let here = Space::builder()
        .parameter(Parameter::values("precision", ["fp32", "bf16"]))
        .parameter(Parameter::powers_of_two("batch_size", 8, 256))
        .parameter(Parameter::range("workers", 0, 8, 1))
        .parameter(Parameter::values("prefetch", [2, 4]).when(Expression::parse("workers > 0").unwrap()))
        .build()
        .unwrap();
    let of = |batch: i32, precision: &'static str, allreduce: &'static str| {
        [("batch_size", batch.into()), ("precision", precision.into()), ("allreduce", allreduce.into())]
    };
    let trials = [
        // The largest batch and the lowest precision are no settings here; the other settings count.
        (of(1000, "bf16", "ring"), 90.0),
        (of(100, "fp8", "ring"), 80.0),
        (of(100, "bf16", "ring"), 60.0),
        (of(100, "bf16", "tree"), 20.0),
        (of(24, "bf16", "ring"), 30.0),
    ];
    let borrowed: Vec<(&[(&str, Value)], f64)> = trials.iter().map(|(pairs, value)| (&pairs[..], *value)).collect();
    let earlier = study(&there, &borrowed);
    let seen = earlier.seen_from(&here, &Objective::default()).unwrap();
    assert_eq!((seen.trials(), seen.in_common(), seen.place()), (3, 2, "before"));
    let start = here.locate(&settings(&[("workers", 2.into()), ("prefetch", 4.into())])).unwrap();
    // As a ratio, 100 is nearer to 128 than to 64.
    let proposed = first(&here, &earlier, Some(&start)).unwrap();
    assert_eq!(proposed, "precision=bf16 batch_size=128 workers=2 prefetch=4");
}

#[test]
fn what_failed_or_broke_a_bound_there_is_not_its_best() {
    let space = batch_and_workers();
    let config = |batch: i32| space.locate(&settings(&[("batch_size", batch.into()), ("workers", 1.into())])).unwrap();
    let with_loss = |value: f64, loss: f64| {
        let metrics = [("loss".to_owned(), loss)].into_iter().collect();
        Outcome::Measured(Measurement { throughput: Some(Estimate::point(value)), metrics, ..Measurement::default() })
    };
    let out_of_memory = Outcome::OutOfMemory { memory: Memory::Device, failure: Failure::new("full") };
    let history: History = [
        trial(config(256), out_of_memory),
        trial(config(128), with_loss(90.0, 9.0)),
        trial(config(64), with_loss(50.0, 1.0)),
        trial(config(32), with_loss(40.0, 1.0)),
    ]
    .into_iter()
    .collect();
    let objective = Objective::default().constraint(Constraint::parse("loss < 2").unwrap());
    let earlier = [EarlierStudy::of("x", &space, &history).seen_from(&space, &objective).unwrap()];
    assert_eq!(earlier[0].trials(), 2);
    let nothing = History::default();
    let view = View::new(&space, &objective, &nothing, &[], None).with_earlier(&earlier);
    let proposed = (strategy("bayes").unwrap().build)().propose(&view).unwrap().config;
    assert_eq!(proposed, config(64));
    // A lack of memory in the earlier study rules nothing out here.
    assert!(view.is_open(&config(256)));
}

#[test]
fn a_study_that_says_nothing_is_refused_with_the_reason() {
    let space = batch_and_workers();
    let objective = Objective::default();
    let refusal = |study: &EarlierStudy, objective: &Objective| study.seen_from(&space, objective).unwrap_err();
    let nothing = EarlierStudy::of("before", &space, &History::default());
    assert!(matches!(refusal(&nothing, &objective), EarlierError::Empty { .. }));

    let other = Space::new([Parameter::values("BATCH", [8, 16])]).unwrap();
    let error = refusal(&study(&other, &[(&[("BATCH", 8.into())], 1.0)]), &objective);
    let text = error.to_string();
    assert!(text.contains("there BATCH; here batch_size, workers"), "{text}");

    let beyond = Space::new([Parameter::values("batch_size", [512, 1024])]).unwrap();
    let error = refusal(&study(&beyond, &[(&[("batch_size", 512.into())], 1.0)]), &objective);
    assert!(matches!(error, EarlierError::NoneWithin { .. }), "{error}");

    let known = study(&space, &[(&[("batch_size", 8.into()), ("workers", 0.into())], 10.0)]);
    let error = refusal(&known, &Objective::new("loss", Direction::Minimize));
    assert!(error.to_string().contains("no trial of before has a `loss`"), "{error}");
    assert!(!error.hint().is_empty());

    let goals = ["throughput", "power"].map(|metric| Goal::known(metric).unwrap());
    let error = refusal(&known, &Objective::pareto(goals).unwrap());
    assert!(matches!(error, EarlierError::Front), "{error}");
}

/// Every strategy stays within the space, with or without an earlier study, whatever the study says.
#[test]
fn proposals_are_functions_of_the_view_whatever_the_earlier_study_says() {
    let space = batch_and_workers();
    let configs: Vec<Config> = Walk::new(&space).collect();
    let extreme = [f64::MAX, f64::MIN_POSITIVE, 0.0, -5.0, f64::NAN, f64::INFINITY];
    let history: History =
        configs.iter().zip(extreme.into_iter().cycle()).map(|(c, v)| trial(c.clone(), measured(v))).collect();
    let single: History = [trial(configs[3].clone(), measured(2.0))].into_iter().collect();
    for history in [history, single] {
        for objective in [Objective::default(), Objective::new("throughput", Direction::Minimize)] {
            let study = EarlierStudy::of("extreme", &space, &history);
            let earlier: Vec<Earlier> = (0..2).map(|_| study.seen_from(&space, &objective).unwrap()).collect();
            for entry in STRATEGIES {
                let (mut kept, mut known) = ((entry.build)(), History::default());
                for number in 1..=8 {
                    let view = View::new(&space, &objective, &known, &[], None).with(20, 1).with_earlier(&earlier);
                    let proposal = kept.propose(&view).unwrap();
                    assert_eq!(Some(&proposal), (entry.build)().propose(&view).as_ref(), "{}", entry.name);
                    assert!(view.is_open(&proposal.config) && space.allows(&proposal.config));
                    known.push(trial(proposal.config, measured(f64::from(number % 3) + 1.0)));
                }
            }
        }
    }
}

/// A recorded table, or its rows with one setting.
struct Recorded {
    space: Space,
    replay: Replay,
    best: f64,
}

fn recorded(name: &str, part: Option<(&str, &str)>) -> Recorded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables").join(name);
    let text = fs::read_to_string(path).unwrap();
    let header: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let at = part.map(|(column, _)| header.iter().position(|known| *known == column).unwrap());
    let kept = text.lines().enumerate().filter_map(|(number, line)| {
        let mut cells: Vec<&str> = line.split(',').collect();
        if let (Some(at), Some((_, setting))) = (at, part) {
            if number > 0 && cells[at] != setting {
                return None;
            }
            cells.remove(at);
        }
        Some(cells.join(","))
    });
    let text = kept.collect::<Vec<_>>().join("\n");
    let (space, replay) = Table::from_csv(text.as_bytes()).unwrap().into_replay(&[]).unwrap();
    let best = replay.optimum(&Objective::default()).unwrap();
    Recorded { space, replay, best }
}

impl Recorded {
    /// Returns the regret after each probe: how far the search is below the best of the table, as a share.
    fn searched(&self, name: &str, seed: u64, probes: u32, earlier: &[Earlier]) -> (Vec<f64>, History) {
        let (mut strategy, mut history) = ((strategy(name).unwrap().build)(), History::default());
        let (objective, mut top, mut regret) = (Objective::default(), 0.0_f64, Vec::new());
        for left in (1..=probes).rev() {
            let view = View::new(&self.space, &objective, &history, &[], None).with(left, seed).with_earlier(earlier);
            let Some(proposal) = strategy.propose(&view) else { break };
            let outcome = self.replay.answer(&proposal.config).unwrap().clone();
            top = top.max(objective.score_of(&outcome).unwrap_or(0.0));
            regret.push(1.0 - top / self.best);
            history.push(trial(proposal.config, outcome));
        }
        regret.resize(probes as usize, 1.0 - top / self.best);
        (regret, history)
    }

    /// Returns the earlier study that a search of another table gives, with changed scores.
    fn taught(&self, by: &History, space: &Space, change: impl Fn(usize, &[f64]) -> f64) -> Earlier {
        let value = |trial: &Trial| trial.outcome.measurement().and_then(|m| m.throughput).map(|t| t.value);
        let values: Vec<f64> = by.trials().iter().filter_map(|trial| value(trial)).collect();
        let measured_ones = by.trials().iter().filter(|trial| value(trial).is_some());
        let changed =
            measured_ones.enumerate().map(|(at, known)| trial(known.config.clone(), measured(change(at, &values))));
        let study = EarlierStudy::of("elsewhere", space, &changed.collect());
        study.seen_from(&self.space, &Objective::default()).unwrap()
    }
}

/// A replacement for a trial's score, from its number and all scores.
type Change<'c> = &'c dyn Fn(usize, &[f64]) -> f64;

/// Returns the probe after which a search is within 5% of the best.
fn reached(regret: &[f64]) -> usize {
    regret.iter().position(|regret| *regret <= 0.05).map_or(regret.len() + 1, |at| at + 1)
}

/// The same model on three GPUs; on the oldest GPU other settings are best.
#[test]
fn a_study_on_another_gpu_saves_probes_and_one_on_an_unlike_gpu_costs_few() {
    const PROBES: u32 = 8;
    let gpus = ["k80", "p100", "v100"].map(|gpu| recorded("gavel-LM.csv", Some(("gpu", gpu))));
    let [k80, p100, v100] = &gpus;
    let (mut cold, mut warm) = (0, 0);
    for (old, new) in [(p100, v100), (v100, p100), (k80, v100), (v100, k80)] {
        for seed in 0..2 {
            let (_, before) = old.searched("random", seed, 40, &[]);
            let earlier = [new.taught(&before, &old.space, |at, values| values[at])];
            let without = reached(&new.searched("auto", seed, PROBES, &[]).0);
            let with = reached(&new.searched("auto", seed, PROBES, &earlier).0);
            assert!(with <= without + 2, "{with} probes with it, {without} without");
            (cold, warm) = (cold + without, warm + with);
        }
    }
    println!("{warm} probes with it, {cold} without");
    assert!(warm + 4 <= cold, "{warm} probes with it, {cold} without");
}

/// Scores upside down, in another order, and from an unrelated problem.
#[test]
fn a_study_that_misleads_costs_little() {
    const PROBES: u32 = 20;
    let upside_down = |at: usize, values: &[f64]| 1.0 / values[at];
    let in_another_order = |at: usize, values: &[f64]| values[(at * 7 + 3) % values.len()];
    let changes: [Change<'_>; 2] = [&upside_down, &in_another_order];
    let tables = [recorded("gavel-LM.csv", None), recorded("zeus-v100-cifar100.csv", None)];
    let (mut cold, mut misled) = ((0.0, 0.0), [(0.0, 0.0); 3]);
    let mean = |regret: &[f64]| regret.iter().sum::<f64>() / f64::from(PROBES);
    let mut runs = 0.0;
    for (table, other) in [(&tables[0], &tables[1]), (&tables[1], &tables[0])] {
        for seed in 0..3 {
            let add = |sums: &mut (f64, f64), regret: &[f64]| {
                *sums = (sums.0 + regret.last().unwrap(), sums.1 + mean(regret));
            };
            add(&mut cold, &table.searched("auto", seed, PROBES, &[]).0);
            let (_, before) = table.searched("auto", seed + 100, 25, &[]);
            let (_, elsewhere) = other.searched("random", seed + 100, 60, &[]);
            for (change, sums) in changes.iter().zip(&mut misled) {
                add(sums, &table.searched("auto", seed, PROBES, &[table.taught(&before, &table.space, change)]).0);
            }
            if let Ok(foreign) =
                EarlierStudy::of("other", &other.space, &elsewhere).seen_from(&table.space, &Objective::default())
            {
                add(&mut misled[2], &table.searched("auto", seed, PROBES, &[foreign]).0);
            } else {
                add(&mut misled[2], &table.searched("auto", seed, PROBES, &[]).0);
            }
            runs += 1.0;
        }
    }
    for (kind, sums) in ["upside down", "in another order", "of another problem"].iter().zip(misled) {
        let (at_the_end, on_the_way) = ((sums.0 - cold.0) / runs, (sums.1 - cold.1) / runs);
        println!(
            "{kind}: {at_the_end:+.4} at the end, {on_the_way:+.4} on the way; cold {:.4} {:.4}",
            cold.0 / runs,
            cold.1 / runs
        );
        assert!(at_the_end <= 0.02, "{kind}: {at_the_end}");
        assert!(on_the_way <= 0.06, "{kind}: {on_the_way}");
    }
}

fn journal_of(folder: &Path, probes: u32, earlier: &EarlierStudy) -> Result<Vec<Config>, JournalError> {
    let table = recorded("zeus-a40-imagenet.csv", None);
    let nothing = || serde_json::Value::Null;
    let fingerprint =
        Fingerprint { device: String::new(), driver: String::new(), command: nothing(), space: nothing() };
    let header = Header { warm_start: vec![earlier.record()], ..Header::new(fingerprint) };
    let (journal, recovered) = Journal::open(&folder.join("journal.jsonl"), &header, &table.space)?;
    let budget = Budget { probes, rounds: 0, least_gain: 0.0, ..Budget::default() };
    let tuner = Tuner::with_prober(table.space, table.replay).budget(budget).journal(journal, recovered);
    let study = tuner.warm_start(earlier.clone()).run(|_| ()).unwrap();
    Ok(study.history.trials().iter().map(|trial| trial.config.clone()).collect())
}

#[test]
fn a_search_that_is_resumed_goes_on_as_if_it_had_not_stopped_and_only_with_the_same_study() {
    let folder = tempfile::tempdir().unwrap();
    let table = recorded("zeus-a40-imagenet.csv", None);
    let (_, before) = table.searched("random", 5, 12, &[]);
    let earlier = EarlierStudy::of("before", &table.space, &before);
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    fs::create_dir(&whole).unwrap();
    fs::create_dir(&parts).unwrap();
    let all = journal_of(&whole, 9, &earlier).unwrap();
    assert_eq!(journal_of(&parts, 1, &earlier).unwrap(), all[..1]);
    assert_eq!(journal_of(&parts, 4, &earlier).unwrap(), all[..4]);
    assert_eq!(journal_of(&parts, 9, &earlier).unwrap(), all);

    let shorter: History = before.trials()[..11].iter().cloned().collect();
    let error = journal_of(&parts, 10, &EarlierStudy::of("before", &table.space, &shorter)).unwrap_err().to_string();
    assert!(error.contains("started from 12 trials of before and is to start from 11 trials of before"), "{error}");
}

const SPACE: &str = "[space]\nx = { range = [1, 12] }\ny = { values = [\"a\", \"b\"] }\n[baseline]\nx = 3\ny = \"b\"\n\
                     [limits]\nmeasure_time = \"60ms\"\ngrace_time = \"200ms\"\n";

/// A search whose step is faster for a larger x.
fn quick(search: &str) -> Search {
    Search::of(&["print:{y}", "forever:{x}:500"], &format!("{SPACE}[search]\nrounds = 0\n{search}"))
}

#[test]
fn the_program_starts_from_an_earlier_search_tells_so_and_keeps_it() {
    let before = quick("strategy = \"grid\"\nprobes = 24\n");
    assert_eq!(before.run().status.code(), Some(0));
    let after = quick("probes = 2\n");
    let place = before.out();
    let run = |more: &[&str]| after.command().arg("--warm-start").arg(&place).args(more).output().unwrap();
    let output = run(&[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let told = format!("warm start: 24 trials of {}, 2 of 2 parameters in common", place.display());
    assert!(text.contains(&told), "{text}");
    let lines = after.lines();
    assert_eq!(lines[0].purpose, Purpose::Baseline);
    let best = before.lines().into_iter().max_by(|a, b| {
        let value = |line: &gputune::model::Line| line.outcome.measurement().unwrap().throughput.unwrap().value;
        value(a).total_cmp(&value(b))
    });
    let best = best.unwrap();
    // The fastest of 12; on a busy machine its neighbours may be first.
    assert!(best.config.integer("x") > Some(6), "{}", best.config.line());
    assert_eq!(lines[1].config, best.config);
    assert_eq!(lines[1].why, Some(format!("tries the best of {}", place.display())));
    assert_eq!(after.best()["warm_start"][0]["trials"], 24);
    let header = gputune::search::journal::read(&after.out().join("journal.jsonl")).unwrap().0;
    assert_eq!(header.warm_start[0].place, place.display().to_string());

    // The same command continues. Without the study, or with another study, the journal does not belong to the search.
    assert_eq!(run(&[]).status.code(), Some(0));
    let without = after.run();
    assert_eq!(without.status.code(), Some(2));
    assert!(stderr(&without).contains("and is to start from nothing"), "{}", stderr(&without));
    let journal = place.join("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let shorter = text.lines().take(24).fold(String::new(), |all, line| all + line + "\n");
    fs::write(&journal, shorter).unwrap();
    let changed = run(&[]);
    assert_eq!(changed.status.code(), Some(2));
    // The number of useful trials in a part of the study depends on the part.
    let told = stderr(&changed);
    assert!(told.contains("it started from 24 trials of") && told.contains("and is to start from 2"), "{told}");
    fs::remove_file(&journal).unwrap();
    let gone = run(&[]);
    assert_eq!(gone.status.code(), Some(2));
    assert!(stderr(&gone).contains("is no folder of a search and no journal"), "{}", stderr(&gone));
    assert_eq!(after.lines().len(), 2, "nothing was probed");
}

#[test]
fn a_spec_names_earlier_searches_relative_to_itself_and_check_tells_of_them() {
    let search = quick("probes = 1\nwarm_start = [\"old\"]\n");
    let old = search.folder.path().join("old");
    fs::create_dir(&old).unwrap();
    fs::write(old.join("journal.jsonl"), JOURNAL).unwrap();
    let mut check = std::process::Command::new(support::gputune());
    let elsewhere = tempfile::tempdir().unwrap();
    let spec = search.folder.path().join("spec.toml");
    let output = check.arg("check").arg(&spec).current_dir(elsewhere.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = support::stdout(&output);
    let expected = format!("warm start 1 trials of {}, 1 of 2 parameters in common", old.display());
    assert!(text.contains(&expected), "{text}");
}

const JOURNAL: &str = concat!(
    r#"{"format":2,"gputune_version":"0.1.0","fingerprint":{"device":"A100","driver":"1","command":null,"space":{}}}"#,
    "\n",
    r#"{"trial":1,"purpose":"search","config":{"x":7,"z":1},"elapsed_s":1.0,"outcome":"measured","throughput":{"value":9.0,"low":null,"high":null}}"#,
    "\n"
);

#[test]
fn what_a_spec_names_is_read_only_where_it_is_used() {
    let search = quick("probes = 1\nwarm_start = [\"nowhere\"]\n");
    let spec = search.folder.path().join("spec.toml");
    assert!(gputune::spec::Spec::load(&spec).is_ok());
    let output = search.run();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("nowhere is no folder of a search and no journal"), "{}", stderr(&output));
    assert!(stderr(&output).contains("spec.toml:"), "{}", stderr(&output));
    assert!(!search.out().exists());
    let old = search.folder.path().join("old.jsonl");
    fs::write(&old, JOURNAL).unwrap();
    let output = search.command().arg("--warm-start").arg(&old).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_spec_cannot_name_its_own_folder() {
    let search = quick("");
    let own = format!("[search]\nwarm_start = ['{}']\n", search.out().display());
    let spec = search.folder.path().join("spec.toml");
    let text = fs::read_to_string(&spec).unwrap().replace("[search]\n", &own);
    fs::write(&spec, text).unwrap();
    let output = search.run();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("is the folder of this search itself"), "{}", stderr(&output));
    assert!(!search.out().exists());
}

#[test]
fn wrong_places_give_one_error_with_the_place_and_a_cure() {
    let search = quick("");
    let place = search.folder.path().join("old.jsonl");
    let refused = |search: &Search, place: &Path, reason: &str| {
        let output = search.command().arg("--warm-start").arg(place).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert_eq!(text.matches("error").count(), 1, "{text}");
        assert!(text.contains(reason) && text.contains("hint: "), "{reason}: {text}");
        assert!(!search.out().exists(), "{reason}");
    };
    let with = |text: &str| -> PathBuf {
        fs::write(&place, text).unwrap();
        place.clone()
    };
    refused(&search, Path::new("nowhere"), "nowhere is no folder of a search and no journal");
    refused(&search, search.folder.path(), "is no folder of a search and no journal");
    refused(&search, &with(""), "old.jsonl has no finished trial");
    refused(&search, &with(JOURNAL.lines().next().unwrap()), "line 1 of");
    refused(&search, &with(&format!("{}\n", JOURNAL.lines().next().unwrap())), "old.jsonl has no finished trial");
    refused(&search, &with(&JOURNAL.replace("\"format\":2", "\"format\":9")), "has format 9");
    refused(&search, &with(&JOURNAL.replace("\"trial\":1", "\"trial\":true")), "line 2 of");
    refused(&search, &with(&JOURNAL.replace("\"x\"", "\"X\"")), "there X, z; here x, y");
    refused(&search, &with(&JOURNAL.replace("\"x\":7", "\"x\":77")), "x = 1, 2 .. 12");
    refused(&search, &search.out(), "is the folder of this search itself");
    with(JOURNAL);
    refused(&quick("strategy = \"random\"\n"), &place, "`random` does not learn from earlier studies");
    let loss = format!("{SPACE}[objective]\nminimize = \"loss\"\n");
    refused(&Search::of(&["forever:1:500"], &loss), &place, "has a `loss` to learn from");
    let mut six = search.command();
    six.args(std::iter::repeat_n(["--warm-start", "old.jsonl"], 6).flatten());
    assert!(stderr(&six.output().unwrap()).contains("at most 5 earlier studies"));
}
