//! Steps that misbehave, through the real binary: each gives the right outcome and a clear line, and leaves no process.

use std::fs;

use crate::support::{Search, stderr, stdout};
use gputune::model::{Line, Memory, Outcome};

/// A space for tests that wait until a step stalls.
const ONE: &str = "[space]\nx = { values = [1] }\n";

/// Returns the outcome of the first trial.
fn first(search: &Search) -> Outcome {
    search.lines().first().map(|line| line.outcome.clone()).unwrap_or(Outcome::Interrupted)
}

fn reason(outcome: &Outcome) -> String {
    outcome.failure().map(|failure| failure.reason.clone()).unwrap_or_default()
}

#[test]
fn a_step_that_reports_is_measured_and_the_best_is_printed() {
    let search = Search::of(&["steps:1000000:{x}:1000"], "[space]\nx = { values = [1, 200] }\n");
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "x = 200\n");
    let best = search.best();
    let rate = best["throughput"]["value"].as_f64().unwrap();
    // On a busy machine, 1 ms may become 50 ms.
    assert!((4000.0..200_001.0).contains(&rate), "200 samples in 1 ms or more: {rate}");
    let samples = |line: &Line| line.outcome.measurement().and_then(|run| run.timing.samples_per_step);
    assert!(search.lines().iter().any(|line| samples(line) == Some(200.0)));
    assert_eq!(best["throughput"]["unit"], "samples/s");
    search.assert_no_survivors();
}

#[test]
fn a_step_that_ignores_sigterm_is_ended_after_the_grace_time() {
    let search = Search::of(&["ignore-term", "forever:{x}:1000"], "");
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    search.assert_no_survivors();
}

#[test]
fn a_step_that_leaves_a_daemon_is_told_so_and_the_daemon_is_ended() {
    let search = Search::of(&["daemon:TOKEN"], "");
    let output = search.run();
    let crash = first(&search);
    assert!(matches!(crash, Outcome::Crashed(_)), "{crash:?}");
    assert!(reason(&crash).contains("left a process in the background"), "{}", reason(&crash));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    search.assert_no_survivors();
}

#[test]
fn a_daemon_of_a_step_that_is_measured_is_ended_too() {
    let search = Search::of(&["daemon:TOKEN", "forever:{x}:1000"], "");
    assert_eq!(search.run().status.code(), Some(0));
    search.assert_no_survivors();
}

#[test]
fn a_step_that_exits_at_once_says_that_nothing_was_seen() {
    let search = Search::of(&["exit:0"], "");
    let output = search.run();
    assert_eq!(reason(&first(&search)), "ended with exit code 0 before a step was seen");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("nothing feasible"), "{}", stderr(&output));
    assert!(!search.out().join("best.json").exists());
}

#[test]
fn a_step_that_dies_of_a_signal_says_which() {
    let search = Search::of(&["complain:last words", "signal:11", "signal:11"], "");
    search.run();
    assert_eq!(reason(&first(&search)), "killed by signal 11 (SIGSEGV)");
}

#[test]
fn a_step_that_prints_nothing_is_stalled() {
    let search = Search::of(&["sleep:600000"], "[limits]\nstall_time = \"400ms\"\ngrace_time = \"100ms\"\n");
    search.run();
    assert_eq!(reason(&first(&search)), "no output and no step for 0.4 s");
    assert!(matches!(first(&search), Outcome::Stalled(_)));
    search.assert_no_survivors();
}

#[test]
fn a_step_that_stops_in_the_middle_is_stalled_however_much_it_prints() {
    let script = ["steps:5:{x}:1000", "bytes:1000", "sleep:60000"];
    let limits = "[limits]\nstall_time = \"3s\"\ngrace_time = \"100ms\"\n";
    let search = Search::of(&script, &format!("{ONE}{limits}"));
    search.run();
    assert!(matches!(first(&search), Outcome::Stalled(_)), "{:?}", first(&search));
    assert!(reason(&first(&search)).starts_with("no progress for 3 s, after 4 steps"), "{}", reason(&first(&search)));
}

#[test]
fn a_step_that_talks_but_never_steps_runs_out_of_time() {
    let search = Search::of(&["bytes:100000000000"], "[limits]\nprobe_time = \"1s\"\nlog_size = \"1MiB\"\n");
    let output = search.run();
    assert!(matches!(first(&search), Outcome::TimedOut(_)), "{:?} {}", first(&search), stderr(&output));
    assert_eq!(fs::metadata(search.out().join("logs/0001.log")).unwrap().len(), 1 << 20);
    search.assert_no_survivors();
}

#[test]
fn much_output_with_bytes_that_are_no_text_goes_to_the_log_whole() {
    let size = 50_000_000;
    let search = Search::of(&[&format!("bytes:{size}"), "steps:400:{x}:1000"], "");
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::metadata(search.out().join("logs/0001.log")).unwrap().len(), size);
}

#[test]
fn a_flood_of_events_is_survived() {
    let search = Search::of(&["steps:300000:{x}:0"], "");
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn bad_lines_are_counted_and_unknown_things_ignored() {
    let script = [
        "send:no json",
        "send:{\"event\":\"party\"}",
        "send:{\"event\":\"step\",\"samples\":8,\"new\":[1]}",
        "steps:400:{x}:1000",
    ];
    let search = Search::of(&script, "");
    search.run();
    let measured = first(&search);
    assert_eq!(measured.measurement().unwrap().bad_lines, 1);
}

#[test]
fn bad_lines_are_told_of_where_nothing_else_came() {
    let search = Search::of(&["send:no json", "send:{\"event\":7}", "exit:0"], "");
    search.run();
    assert!(reason(&first(&search)).ends_with("; 2 lines on the socket were no events"), "{}", reason(&first(&search)));
}

#[test]
fn a_step_that_is_done_is_measured_however_it_ends() {
    for ending in [&["ignore-term", "sleep:60000"][..], &["exit:1"], &["signal:9"]] {
        let mut script = vec!["steps:30:{x}:1000", "send:{\"event\":\"done\"}"];
        script.extend(ending);
        let search = Search::of(&script, "[limits]\ngrace_time = \"100ms\"\n");
        search.run();
        assert!(matches!(first(&search), Outcome::Measured(_)), "{ending:?}: {:?}", first(&search));
    }
}

#[test]
fn a_slow_first_step_that_reports_its_phases_is_no_stall() {
    let phase = "send:{\"event\":\"phase\",\"name\":\"compile\",\"seconds\":0.3}";
    let script = [phase, "sleep:1500", phase, "sleep:1500", phase, "sleep:1500", "steps:400:{x}:1000"];
    let limits = "[limits]\nstall_time = \"4s\"\nmeasure_time = \"100ms\"\n";
    let search = Search::of(&script, &format!("{ONE}{limits}"));
    search.run();
    assert!(matches!(first(&search), Outcome::Measured(_)), "{:?}", first(&search));
}

#[test]
fn a_program_that_does_not_exist_stops_the_search_at_once() {
    let search = Search::of(&[], "");
    let spec = "[step]\ncommand = [\"no-such-program-here\"]\n[space]\nx = { values = [1, 2] }\n";
    fs::write(search.folder.path().join("spec.toml"), spec).unwrap();
    let output = search.run();
    assert_eq!(output.status.code(), Some(3));
    let text = stderr(&output);
    assert!(text.contains("cannot start `no-such-program-here`: no such program"), "{text}");
    assert!(text.contains("hint: is it installed, and in PATH?"), "{text}");
}

#[test]
fn a_script_whose_interpreter_is_missing_is_told_so() {
    use std::os::unix::fs::PermissionsExt;
    let search = Search::of(&[], "");
    let script = search.folder.path().join("train.sh");
    fs::write(&script, "#!/no/such/shell\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let spec = "[step]\ncommand = [\"./train.sh\"]\n[space]\nx = { values = [1, 2] }\n";
    fs::write(search.folder.path().join("spec.toml"), spec).unwrap();
    let output = search.run();
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("its interpreter `/no/such/shell` does not exist"), "{}", stderr(&output));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(stderr(&search.run()).contains("chmod +x ./train.sh"));
}

#[test]
fn the_same_crash_three_times_stops_the_search() {
    let space = "[space]\nx = { range = [1, 100] }\n[baseline]\nx = 1\n";
    let search = Search::of(&["complain:KeyError: {x}", "exit:1"], space);
    let output = search.run();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(search.lines().len(), 3);
    let text = stderr(&output);
    assert!(text.contains("every config so far failed in the same way: exit code 1: KeyError: 1"), "{text}");
    assert!(text.contains("| KeyError: 1"), "{text}");
}

#[test]
fn memory_that_runs_out_is_told_by_event_and_by_text() {
    let event = "send:{\"event\":\"error\",\"kind\":\"out_of_memory\",\"message\":\"8 GiB\"}";
    for (script, memory, says) in [
        (vec![event, "sleep:60000"], Memory::Device, "8 GiB"),
        (vec!["complain:torch.OutOfMemoryError: CUDA out of memory. Tried", "exit:1"], Memory::Device, "Tried"),
        (vec!["complain:MemoryError", "exit:1"], Memory::Host, "MemoryError"),
    ] {
        let search = Search::of(&script, "");
        search.run();
        match first(&search) {
            Outcome::OutOfMemory { memory: found, failure } => {
                assert_eq!(found, memory);
                assert!(failure.reason.contains(says), "{failure:?}");
            }
            other => panic!("{other:?}"),
        }
        search.assert_no_survivors();
    }
}

#[test]
fn a_loss_that_is_no_number_is_divergence() {
    let search =
        Search::of(&["steps:3:{x}:1000", "send:{\"event\":\"step\",\"samples\":1,\"loss\":NaN}", "sleep:60000"], "");
    search.run();
    assert!(matches!(first(&search), Outcome::Diverged(_)), "{:?}", first(&search));
}

#[test]
fn a_step_may_refuse_a_config() {
    let refusal = "send:{\"event\":\"error\",\"kind\":\"rejected\",\"message\":\"odd\"}";
    let search = Search::of(&[refusal, "exit:1"], "");
    search.run();
    assert!(matches!(first(&search), Outcome::Rejected(failure) if failure.reason == "odd"));
}

#[test]
fn a_rate_that_is_printed_is_read() {
    let step = "throughput = { pattern = '([0-9.]+) it/s', unit = \"it/s\" }\nsamples_per_step = \"x * 10\"\n";
    let search = Search::of(&["print:50.0 it/s", "exit:0"], step);
    let output = search.run();
    assert_eq!(stdout(&output), "x = 2\n", "{}", stderr(&output));
    let best = search.best();
    assert_eq!(best["throughput"]["value"], 1000.0);
    assert_eq!(best["throughput"]["low"], serde_json::Value::Null, "one number says nothing about spread");
}

#[test]
fn steps_without_samples_are_an_error_with_its_cure() {
    let search = Search::of(&["send:{\"event\":\"step\"}", "send:{\"event\":\"step\"}", "sleep:60000"], "");
    let output = search.run();
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("samples_per_step"), "{}", stderr(&output));
    search.assert_no_survivors();
}

#[test]
fn settings_arrive_by_argument_environment_file_and_as_json() {
    let step = "env = { X_VALUE = \"<{x}>\" }\nfiles = [{ template = \"run.in\", path = \"sub/run.json\" }]\n[baseline]\nx = 1\n";
    let arguments =
        ["print:{x}", "env:X_VALUE", "env:GPUTUNE_CONFIG", "cat:{probe_dir}/sub/run.json", "steps:400:1:1000"];
    let search = Search::of(&arguments, step);
    fs::write(search.folder.path().join("run.in"), "{\"x\": {x}, \"y\": {\"z\": 1}}\n").unwrap();
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let log = fs::read_to_string(search.out().join("logs/0001.log")).unwrap();
    assert_eq!(log, "1\n<1>\n{\"x\":1}\n{\"x\": 1, \"y\": {\"z\": 1}}\n");
}

#[test]
fn a_loss_that_is_no_number_counts_even_at_the_very_end() {
    let search =
        Search::of(&["steps:1500:{x}:0", "send:{\"event\":\"step\",\"samples\":1,\"loss\":\"nan\"}", "exit:0"], "");
    search.run();
    assert!(matches!(first(&search), Outcome::Diverged(_)), "{:?}", first(&search));
}

#[test]
fn an_error_after_done_undoes_nothing_and_done_before_anything_is_told_so() {
    let late = [
        "steps:30:{x}:1000",
        "send:{\"event\":\"done\"}",
        "send:{\"event\":\"error\",\"message\":\"ended\"}",
        "exit:1",
    ];
    let search = Search::of(&late, "");
    search.run();
    assert!(matches!(first(&search), Outcome::Measured(_)), "{:?}", first(&search));
    let search = Search::of(&["steps:1:{x}:0", "send:{\"event\":\"done\"}", "sleep:60000"], "");
    search.run();
    let longer = "let it train longer, or in an empty folder if it continues an earlier run";
    assert_eq!(reason(&first(&search)), format!("was done before a second step was seen; {longer}"));
}

#[test]
fn a_search_without_time_for_a_second_config_ends_with_code_3() {
    let limits = "[limits]\nmeasure_time = \"3s\"\nprecision = 0.0001\ngrace_time = \"200ms\"\n";
    let more = format!("{limits}[baseline]\nx = 1\n[search]\ntime = \"5s\"\nrounds = 0\n");
    let output = Search::of(&["forever:{x}:1000"], &more).command().arg("--quiet").output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("baseline  stays: no other config was tried: give more --time"), "{said}");
}

#[test]
fn lines_that_are_no_events_are_told_of_in_a_stall() {
    let limits = "[limits]\nstall_time = \"3s\"\n";
    let search = Search::of(&["send:{\"event\":\"step\",\"samples\":[8]}", "sleep:60000"], &format!("{ONE}{limits}"));
    search.run();
    assert_eq!(reason(&first(&search)), "no output and no step for 3 s; 1 lines on the socket were no events");
}

#[test]
fn the_folder_of_a_probe_is_empty_when_it_begins() {
    let search = Search::of(
        &["cat:{probe_dir}/run.txt", "steps:400:{x}:1000"],
        "files = [{ template = \"run.in\", path = \"run.txt\" }]\n",
    );
    fs::write(search.folder.path().join("run.in"), "x = {x}\n").unwrap();
    fs::create_dir_all(search.out().join("probes/0001")).unwrap();
    fs::write(search.out().join("probes/0001/checkpoint"), "of an interrupted try").unwrap();
    assert_eq!(search.run().status.code(), Some(0));
    assert!(!search.out().join("probes/0001/checkpoint").exists());
}
