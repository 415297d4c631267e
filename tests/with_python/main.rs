//! Tests that need a Python with packages: real frameworks, scripts and browsers. If they are missing, a line reports the skip.

#[path = "../support/mod.rs"]
mod support;

mod adapter;
mod browser;
mod diagnose;
mod diagnosing;
mod duel;
mod emit;
mod examples;
mod exports;
mod failures;
mod frameworks;
mod init_frameworks;
mod largest_batch;
mod live;
mod padding;
mod parsers;
mod plausible;
mod ranks;
mod run;
mod searching;
mod settings_elsewhere;
mod warm;
mod wheel;
mod wild;
mod wild_samples;

/// Runs a command, and returns its exit code, -1 if a signal ended it, and its output on each stream.
#[expect(clippy::unwrap_used, reason = "tests")]
fn said(command: &mut assert_cmd::Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    (output.status.code().unwrap_or(-1), support::stdout(&output), support::stderr(&output))
}
