//! The `gputune` command.
fn main() {}
