//! What needs a Python with packages: real frameworks, scripts and browsers. Where they are not there a line says what was not run.

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
mod live;
mod parsers;
mod ranks;
mod warm;
mod wheel;
mod wild;
mod wild_samples;

/// Runs a command, and returns its exit code, -1 where a signal ended it, and what it wrote to each stream.
#[expect(clippy::unwrap_used, reason = "tests")]
fn said(command: &mut assert_cmd::Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    (output.status.code().unwrap_or(-1), support::stdout(&output), support::stderr(&output))
}
