//! Behaviour of the library through its public API, with steps in this process and small commands only.

#[path = "../support/mod.rs"]
mod support;

mod checks;
mod disturbed;
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
mod traces;
