//! Searches with workers as jobs of a real Ray, if one can be started.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::ray::Ray;
use crate::support::{Search, child, stderr};

fn search(url: &str, configs: u32) -> Search {
    let words = [child().display().to_string(), "token:TOKEN".to_owned(), "env:CUDA_VISIBLE_DEVICES".to_owned()];
    let words: Vec<String> = words.into_iter().chain(["forever:8:10000".to_owned()]).collect();
    let spec = format!(
        "samples_per_step = \"x\"\n[space]\nx = {{ range = [1, {configs}] }}\n[machine]\nlauncher = \"ray\"\nray = \"{url}\"\n\
         workers = 2\ngpus_per_slot = 1\ncompare_slots = false\n[limits]\nmeasure_time = \"600ms\"\nprecision = 0.00001\n\
         [search]\nrounds = 0\nprobes = {configs}\nleast_gain = 0\nstrategy = \"random\"\n"
    );
    Search::of_command(&words, &spec)
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(240);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn begun(search: &Search, trials: usize) -> Child {
    let mut command = search.command();
    let log = fs::File::create(search.folder.path().join("told")).unwrap();
    let running = Ray::with(&mut command).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let count = || fs::read_to_string(search.out().join("journal.jsonl")).map_or(0, |text| text.lines().count());
    wait_for("there are too few trials", || count() > trials);
    running
}

#[test]
fn a_search_by_ray_outlives_a_job_and_leaves_none() {
    let Some(ray) = Ray::start() else { return };
    let are_over =
        || ray.jobs().iter().all(|(_, status)| ["STOPPED", "SUCCEEDED", "FAILED"].contains(&status.as_str()));
    let told = |search: &Search| fs::read_to_string(search.folder.path().join("told")).unwrap_or_default();

    // Without the cluster's token, gputune reports the reason.
    let whole = search(&ray.url, 20);
    let output = whole.command().env("RAY_AUTH_MODE", "token").env("RAY_AUTH_TOKEN", "wrong").output().unwrap();
    let said = stderr(&output);
    assert!(output.status.code() == Some(3) && said.contains("40") && said.contains("RAY_AUTH_TOKEN"), "{said}");

    // A whole search in which one job is stopped during a probe: its worker's GPU is no longer used, and nothing is lost.
    let mut running = begun(&whole, 4);
    wait_for("one worker does everything", || {
        whole.lines().iter().filter_map(|line| Some(line.slot.clone()?.host)).collect::<BTreeSet<String>>().len() == 2
    });
    let (first, _) = ray.jobs().into_iter().find(|(_, status)| status == "RUNNING").unwrap();
    ray.ask("POST", &format!("{first}/stop"));
    assert_eq!(running.wait().unwrap().code(), Some(0), "{}", told(&whole));
    assert!(told(&whole).contains("is gone: its connection has ended"), "{}", told(&whole));
    let lines = whole.lines();
    let configs: BTreeSet<String> = lines.iter().map(|line| line.config.line()).collect();
    assert_eq!((configs.len(), lines.len()), (20, 20));
    let gpus: BTreeSet<Vec<String>> = lines.iter().filter_map(|line| Some(line.slot.clone()?.gpus)).collect();
    assert_eq!(gpus.len(), 2, "{gpus:?}");
    assert!(are_over(), "{:?}", ray.jobs());
    whole.assert_no_survivors();

    // The driver is killed: its workers and their jobs end.
    let killed = search(&ray.url, 200);
    let mut running = begun(&killed, 4);
    running.kill().unwrap();
    running.wait().unwrap();
    let begin = Instant::now();
    while !killed.survivors().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", killed.survivors());
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_for("jobs stay", are_over);
}

#[test]
fn without_a_head_it_says_so() {
    let search = search("http://127.0.0.1:9", 20);
    let output = search.run();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("Ray's jobs API at http://127.0.0.1:9 does not help") && said.contains("does the head run"),
        "{said}"
    );
}
