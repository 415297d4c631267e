//! `gputune replay` on recorded tables, through the program itself.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

const TABLES: [&str; 3] = ["gavel-LM.csv", "zeus-a40-imagenet.csv", "zeus-v100-cifar100.csv"];

fn table(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables").join(name)
}

fn replay(table: &Path, args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_gputune")).arg("replay").arg(table).args(args).output().unwrap()
}

fn json(table: &Path, args: &[&str]) -> Value {
    let output = replay(table, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Returns the values of the rows that succeeded.
fn values(path: &Path) -> Vec<f64> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    let headers = reader.headers().unwrap().clone();
    let column = |name| headers.iter().position(|header| header == name).unwrap();
    let (status, value) = (column("status"), column("value"));
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    rows.iter().filter(|row| &row[status] == "ok").map(|row| row[value].parse().unwrap()).collect()
}

fn best_of(run: &Value) -> Vec<Option<f64>> {
    run["best"].as_array().unwrap().iter().map(Value::as_f64).collect()
}

/// A table in a temporary folder.
fn written(text: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn every_strategy_finds_the_optimum_of_a_table_that_the_probes_cover() {
    for name in TABLES {
        let all = values(&table(name));
        let most = all.iter().copied().fold(f64::MIN, f64::max);
        let least = all.iter().copied().fold(f64::MAX, f64::min);
        // A model of many trials is slow in a test build.
        let modelled: &[&str] = if name.starts_with("zeus-a40") { &["auto"] } else { &[] };
        for strategy in ["grid", "random", "anneal"].iter().chain(modelled) {
            for (direction, optimum) in [(None, most), (Some("--minimize"), least)] {
                let mut args = vec!["--strategy", *strategy, "--probes", "200"];
                args.extend(direction);
                let answer = json(&table(name), &args);
                assert_eq!(answer["optimum"].as_f64(), Some(optimum), "{name}");
                let best = best_of(&answer["runs"][0]);
                assert_eq!(best.last(), Some(&Some(optimum)), "{name} {strategy}");
                assert_eq!(best.len(), all.len(), "{name} {strategy}");
            }
        }
    }
}

#[test]
fn the_best_value_only_improves_and_each_seed_has_its_run() {
    let answer = json(&table("zeus-v100-cifar100.csv"), &["--strategy", "random", "--probes", "30", "--seeds", "5"]);
    let runs = answer["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|run| run["seed"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    for run in runs {
        let best: Vec<f64> = best_of(run).into_iter().map(Option::unwrap).collect();
        assert_eq!(best.len(), 30);
        assert!(best.is_sorted());
    }
    assert_ne!(runs[0], runs[1]);
}

#[test]
fn what_runs_in_other_slots_is_not_proposed_again() {
    let path = table("zeus-a40-imagenet.csv");
    let all = values(&path);
    let most = all.iter().copied().fold(f64::MIN, f64::max);
    for entry in ["grid", "random", "anneal", "auto"] {
        let slots = |slots| json(&path, &["--strategy", entry, "--probes", "200", "--slots", slots]);
        let run = &slots("8")["runs"][0];
        assert_eq!(best_of(run).len(), all.len(), "{entry}");
        assert_eq!(best_of(run).last(), Some(&Some(most)), "{entry}");
        assert_eq!(slots("8"), slots("8"), "{entry}: the same seed, the same run");
    }
    assert_eq!(json(&path, &["--slots", "1"]), json(&path, &[]));
    let refused = replay(&path, &["--slots", "2", "--until-end"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// Returns the mean and standard deviation of the largest of `probes` values drawn without replacement.
fn largest_of(values: &[f64], probes: usize) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // P(the largest has rank k) = C(k-1, n-1) / C(N, n), from the top down.
    let mut chance = probes as f64 / count as f64;
    let (mut mean, mut square) = (0.0, 0.0);
    for rank in (probes..=count).rev() {
        let value = sorted[rank - 1];
        mean += chance * value;
        square += chance * value * value;
        if rank > probes {
            chance *= (rank - probes) as f64 / (rank - 1) as f64;
        }
    }
    (mean, (square - mean * mean).max(0.0).sqrt())
}

#[test]
fn the_largest_of_a_few_draws_is_computed_right() {
    let (mean, deviation) = largest_of(&[1.0, 2.0, 3.0], 2);
    // {1,2}: 2, {1,3}: 3, {2,3}: 3
    assert!((mean - 8.0 / 3.0).abs() < 1e-12 && (deviation - (2.0_f64 / 9.0).sqrt()).abs() < 1e-12);
    assert_eq!(largest_of(&[1.0, 2.0, 3.0], 3), (3.0, 0.0));
}

#[test]
fn random_search_is_sampling_without_replacement() {
    const SEEDS: usize = 200;
    for name in TABLES {
        let all = values(&table(name));
        let answer = json(&table(name), &["--strategy", "random", "--probes", "60", "--seeds", "200"]);
        for probes in [1, 2, 3, 5, 10, 20, 40, 60] {
            let best: Vec<f64> =
                answer["runs"].as_array().unwrap().iter().map(|run| best_of(run)[probes - 1].unwrap()).collect();
            let mean = best.iter().sum::<f64>() / SEEDS as f64;
            let (expected, deviation) = largest_of(&all, probes);
            let error = deviation / (SEEDS as f64).sqrt();
            assert!((mean - expected).abs() <= 4.0 * error, "{name} after {probes}: {mean}, not {expected} ± {error}");
        }
    }
}

#[test]
fn unusual_but_plain_tables_are_read() {
    for (what, text, optimum) in [
        ("quotes and CRLF", "\"a\",mode,status,value\r\n1,\"x, y\",ok,2\r\n2,\"z\",ok,3\r\n", 3.0),
        ("blank lines", "\na,status,value\n\n1,ok,2\n\n   \n2,ok,4\n\n", 4.0),
        ("a byte order mark", "\u{feff}a,status,value\n1,ok,2\n", 2.0),
        ("further columns", "a,status,value,value_std,x_note\n1,ok,2,0.1,\"q\"\n2,ok,1,,\n", 2.0),
        ("repeated rows", "a,status,value\n1,ok,2\n1,ok,4\n1,oom,\n", 3.0),
        ("booleans", "compile,a,status,value\ntrue,1,ok,2\nfalse,1,ok,5\n", 5.0),
        ("mixed kinds", "a,status,value\n1,ok,2\n0.5,ok,3\nauto,ok,4\n,ok,5\ntrue,ok,1\n", 5.0),
        ("both zeros", "a,status,value\n0.0,ok,2\n-0.0,ok,4\n1,ok,1\n", 3.0),
        ("failures without a value", "a,status,value\n1,ok,2\n2,oom_fail\n3,runtime_fail,\n4,,\n", 2.0),
        ("one row", "a,status,value\n1,ok,-7e3\n", -7000.0),
        ("no end of line", "a,status,value\n1,ok,2", 2.0),
        ("the value before the status", "a,value,status\n1,2,ok\n3,4,ok\n", 4.0),
        ("names that no expression could speak of", "block-size,if,größe,status,value\n1,2,3,ok,6\n", 6.0),
    ] {
        let (_folder, path) = written(text);
        for strategy in ["grid", "random", "auto"] {
            let answer = json(&path, &["--strategy", strategy]);
            assert_eq!(answer["optimum"].as_f64(), Some(optimum), "{what}");
            assert_eq!(best_of(&answer["runs"][0]).last(), Some(&Some(optimum)), "{what}: {strategy}");
        }
    }
}

#[test]
fn a_table_where_everything_fails_has_no_optimum() {
    let (_folder, path) = written("a,status,value\n1,oom_fail,\n2,compile_fail,\n");
    let output = replay(&path, &["--strategy", "grid", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["optimum"], Value::Null);
    assert_eq!(best_of(&answer["runs"][0]), [None, None]);
}

/// Asserts one line with the mistake, a hint with the remedy, and the exit code for wrong usage.
fn assert_refused(path: &Path, args: &[&str], says: &str) {
    let output = replay(path, args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{says}: {text}");
    assert!(text.starts_with("error: ") && text.contains(says), "{says}: {text}");
    assert_eq!(text.matches("hint: ").count(), 1, "{text}");
    assert!(!text.contains("panicked") && text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
    assert!(output.stdout.is_empty());
}

#[test]
fn what_is_no_table_is_refused_with_a_cure() {
    for (text, says) in [
        ("", "no column `status`"),
        ("a,b\n1,2\n", "no column `status`"),
        ("a,status\n1,ok\n", "no column `value`"),
        ("status,value,a\nok,1,2\n", "no column stands in front of `status`"),
        ("a,status,value\n", "no rows"),
        ("a,status,value\n\n1,ok,fast\n", "row 1: \"fast\""),
        ("a,status,value\n1,ok,\n", "no finite number"),
        ("a,status,value\n1,ok,nan\n", "no finite number"),
        ("a,status,value\n1\n", "row 1 has 1 cells"),
        ("a,status,value\n1,ok,2,3\n", "row 1 has 4 cells"),
        ("a,a,status,value\n1,1,ok,2\n", "`a` is there twice"),
    ] {
        let (_folder, path) = written(text);
        assert_refused(&path, &["--json"], says);
    }
}

#[test]
fn what_is_no_text_at_all_is_refused_with_a_cure() {
    let garbage: Vec<u8> = (0..4000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let (_folder, path) = written(garbage);
    assert_refused(&path, &[], "");
    let (_folder, path) = written([0_u8; 300]);
    assert_refused(&path, &[], "no column `status`");
    let (_folder, path) = written(b"a,status,value\n\xff\xfe,ok,1\n");
    assert_refused(&path, &[], "invalid UTF-8");
}

#[test]
fn a_folder_a_missing_file_and_an_unknown_parameter_are_refused_with_a_cure() {
    let (folder, path) = written("a,status,value\n1,ok,2\n");
    assert_refused(folder.path(), &[], "folder");
    assert_refused(&folder.path().join("nowhere.csv"), &[], "No such file");
    assert_refused(&folder.path().join("nowhere.jsonl"), &[], "No such file");
    assert_refused(&path, &["--monotone", "b"], "no parameter `b`");
    let journal = folder.path().join("journal.jsonl");
    std::fs::write(&journal, "this is no journal\n").unwrap();
    assert_refused(&journal, &[], "journal");
}

#[test]
fn a_lack_of_memory_rules_larger_values_out_where_that_is_asked_for() {
    let (_folder, path) = written("batch,status,value\n1,ok,1\n2,ok,2\n4,oom_fail,\n8,oom_fail,\n16,oom_fail,\n");
    let probes = |args: &[&str]| best_of(&json(&path, &[&["--strategy", "grid"], args].concat())["runs"][0]).len();
    assert_eq!(probes(&[]), 5);
    assert_eq!(probes(&["--monotone", "batch"]), 3);
}

#[test]
fn a_journal_is_a_table_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.jsonl");
    let header = r#"{"format":2,"gputune_version":"0.1.0","fingerprint":{"device":"cpu","driver":"","command":null,"space":{"parameters":{"a":"1 .. 3","twice":"derive a * 2"}}}}"#;
    let line = |trial: u32, purpose: &str, a: u32, value: f64| {
        format!(
            r#"{{"trial":{trial},"purpose":"{purpose}","config":{{"a":{a},"twice":{}}},"elapsed_s":1.0,"outcome":"measured","throughput":{{"value":{value},"low":null,"high":null}}}}"#,
            2 * a
        )
    };
    let lines = [line(1, "baseline", 1, 5.0), line(2, "search", 2, 7.0), line(3, "round", 2, 100.0)];
    std::fs::write(&path, format!("{header}\n{}\n", lines.join("\n"))).unwrap();
    let answer = json(&path, &["--strategy", "grid"]);
    assert_eq!(answer["optimum"].as_f64(), Some(7.0), "a round is no row");
    assert_eq!(best_of(&answer["runs"][0]), [Some(5.0), Some(7.0)]);
}

#[test]
fn the_table_for_people_names_the_optimum() {
    let output = replay(&table("gavel-LM.csv"), &["--strategy", "grid", "--probes", "500"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("120 configs") && text.contains("0.0 %"), "{text}");
    let (_folder, path) = written("a,status,value\n1,ok,0\n");
    let output = replay(&path, &[]);
    assert!(!String::from_utf8(output.stdout).unwrap().contains("NaN"));
}

/// A table of 200 configs. Only the batch matters until it is large enough.
fn with_a_plateau() -> String {
    let mut text = "batch_size,color,shape,status,value\n".to_owned();
    for batch in 1..=10 {
        for rest in 0..20 {
            text += &format!("{batch},{},{},ok,{}\n", rest % 4, rest / 4, batch.min(6) * 100);
        }
    }
    text
}

#[test]
fn a_run_until_its_end_is_as_long_as_a_search_and_says_why_it_ended() {
    let (_folder, path) = written(with_a_plateau());
    let until_end = ["--until-end", "--probes", "100", "--seeds", "2"];
    let answer = json(&path, &until_end);
    assert_eq!(answer, json(&path, &until_end), "the same seeds have the same ends");
    for run in answer["runs"].as_array().unwrap() {
        let best = best_of(run);
        assert!((10..60).contains(&best.len()), "{}", best.len());
        assert_eq!((best.last(), &run["stopped"]), (Some(&Some(600.0)), &Value::from("little_to_gain")));
        assert_eq!(run["expected_gain"].as_array().unwrap().len(), best.len());
        assert_eq!(run["failed"], 0);
    }
    let text = String::from_utf8(replay(&path, &until_end).stdout).unwrap();
    assert!(text.contains("2 runs: another probe is expected to gain too little"), "{text}");
    assert!(text.contains("0.0 % from the optimum (mean); 0 runs more than 5 % from it"), "{text}");

    // A run to the last probe finds the same values on the way.
    let on = json(&path, &["--probes", "70"]);
    let (ended, on) = (best_of(&answer["runs"][0]), &on["runs"][0]);
    assert_eq!((best_of(on).len(), &best_of(on)[..ended.len()], &on["stopped"]), (70, &ended[..], &Value::Null));
}

#[test]
fn a_run_until_its_end_may_end_for_other_reasons() {
    let (_folder, path) = written(with_a_plateau());
    for (strategy, probes, reason) in [("grid", "12", "probes_spent"), ("random", "300", "space_exhausted")] {
        let answer = json(&path, &["--until-end", "--strategy", strategy, "--probes", probes]);
        assert_eq!(answer["runs"][0]["stopped"], reason);
        assert_eq!(answer["runs"][0]["expected_gain"][0], Value::Null, "{strategy} expects nothing");
    }
    let (_folder, path) = written("a,status,value\n1,crash,\n2,crash,\n3,crash,\n4,crash,\n5,ok,1\n");
    let run = &json(&path, &["--until-end", "--strategy", "grid"])["runs"][0];
    assert_eq!((&run["stopped"], &run["failed"]), (&Value::from("same_failure"), &Value::from(3)));
}
