//! Searches with several probes side by side, through the real binary.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use gputune::model::Line;

use crate::support::{Search, stderr};

const SPACE: &str = "[space]\nx = { values = [1, 2, 3, 4, 5, 6, 7, 8] }\n";

/// Returns true if the machine has two cores, and so room for two slots.
fn are_two() -> bool {
    let are_two = std::thread::available_parallelism().is_ok_and(|count| count.get() >= 2);
    if !are_two {
        eprintln!("NOT RUN: there is one processor");
    }
    are_two
}

fn cores(line: &Line) -> Vec<u32> {
    line.slot.as_ref().map(|slot| slot.cores.clone()).unwrap_or_default()
}

#[test]
fn each_slot_has_processors_of_its_own() {
    if !are_two() {
        return;
    }
    let machine = format!("{SPACE}[machine]\nslots = 2\ncores_per_slot = 1\ncompare_slots = false\n");
    let search = Search::of(&["cat:/proc/self/status", "forever:8:2000"], &machine);
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = search.lines();
    let (first, second): (Vec<&Line>, Vec<&Line>) =
        lines.iter().partition(|line| line.slot.as_ref().is_some_and(|slot| slot.number == 1));
    assert!(!first.is_empty() && !second.is_empty());
    assert!(cores(first[0]).iter().all(|core| !cores(second[0]).contains(core)));
    for line in &lines {
        let log = fs::read_to_string(search.out().join(format!("logs/{:04}.log", line.trial))).unwrap();
        let allowed = log.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
        let cores = cores(line).iter().map(u32::to_string).collect::<Vec<_>>();
        assert!(allowed == cores.join(",") || cores.len() > 1, "{allowed}, {cores:?}");
    }
    let mut trials = csv::Reader::from_path(search.out().join("trials.csv")).unwrap();
    let names = trials.headers().unwrap().clone();
    let at = |name: &str| names.iter().position(|known| known == name).unwrap();
    let told: Vec<(String, String)> = trials
        .records()
        .map(|row| row.map(|row| (row[at("slot")].to_owned(), row[at("slot_processors")].to_owned())).unwrap())
        .collect();
    let kept = |line: &Line| line.slot.as_ref().map(|slot| (slot.number.to_string(), slot.processors())).unwrap();
    assert_eq!(told, lines.iter().map(kept).collect::<Vec<_>>());
    let page = fs::read_to_string(search.out().join("report.html")).unwrap();
    assert!(
        page.contains("\"slots\":[{\"number\":1,\"has\":") && page.contains("\"label\":\"slot\""),
        "the page has them"
    );
    search.assert_no_survivors();
}

#[test]
fn what_needs_the_whole_machine_gets_it() {
    if !are_two() {
        return;
    }
    let threads = std::thread::available_parallelism().unwrap().get();
    let burning = format!("burning-by:{threads}:8:3000");
    // On a busy machine the config is slowed down alone as well, so a single failure may be chance.
    let search = (0..4).find_map(|_| {
        let search = Search::of(&[&burning], &format!("{SPACE}[machine]\nslots = 2\n"));
        let output = search.run();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stderr(&output).contains("one probe at a time instead of 2").then_some(search)
    });
    let search = search.expect("two slots slow each other down");
    let lines = search.lines();
    let summary = fs::read_to_string(search.out().join("summary.md")).unwrap();
    assert!(summary.contains("one probe at a time instead of 2"), "{summary}");
    let searched = lines.iter().filter(|line| line.purpose.to_string() == "search");
    assert!(searched.map(cores).all(|cores| cores.is_empty()), "they have the whole machine");
    search.assert_no_survivors();
}

#[test]
fn a_killed_search_goes_on_and_nothing_survives() {
    if !are_two() {
        return;
    }
    let machine = format!("{SPACE}[machine]\nslots = 2\ncores_per_slot = 1\ncompare_slots = false\n");
    let search = Search::of(&["daemon:forever:8:2000", "forever:8:2000"], &machine);
    let mut child = search.command().stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let journal = search.out().join("journal.jsonl");
    let deadline = Instant::now() + Duration::from_secs(240);
    let finished = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    while finished() < 6 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    search.assert_no_survivors();
    let before = search.lines();
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let after = search.lines();
    assert_eq!(after[..before.len()], before[..]);
    let mut values: Vec<String> =
        after.iter().filter(|line| line.purpose.to_string() == "search").map(|line| line.config.line()).collect();
    let count = values.len();
    values.sort_unstable();
    values.dedup();
    assert_eq!((values.len(), count), (8, 8), "each config once");
    search.assert_no_survivors();
}

#[test]
fn gpu_time_without_gpus_is_refused_with_the_cure() {
    let search = Search::of(&["forever:8:2000"], "device = \"cpu\"\n[search]\ngpu_time = \"1h\"\n");
    let output = search.run();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("`gpu_time` in [search] counts GPUs, and probes have none here") && said.contains("`time`"),
        "{said}"
    );
}

#[test]
fn shares_that_do_not_fit_are_refused_with_the_cure() {
    let search = Search::of(&["forever:8:2000"], "[machine]\nslots = 900\ncores_per_slot = 1\n");
    let output = search.run();
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("900 slots of 1 physical cores each do not fit") && said.contains("fewer `slots`"), "{said}");
}
