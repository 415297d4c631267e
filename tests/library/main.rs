//! Behaviour of the library through its public API: nothing is started but steps in this process and small commands.

#[path = "../support/mod.rs"]
mod support;

mod checks;
mod ending;
mod endings;
mod init_help;
mod limits;
mod metrics;
mod resume;
mod screens;
mod search_spaces;
mod slots;
mod space;
mod strategies;
mod study;
