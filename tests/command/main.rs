//! The real `gputune` as users run it, with steps that misbehave on demand and stand-ins for missing hardware and libraries.

#[path = "../support/mod.rs"]
mod support;

mod acceptance;
mod as_it_is;
mod cli;
mod compare;
mod conformance;
mod dcgm;
mod device;
mod dial;
mod duel;
mod experiments;
mod first_run;
mod host_meter;
mod init;
mod init_wild;
mod knocks;
mod kubernetes;
mod live;
mod measuring;
mod meters;
mod objectives;
mod printed;
mod probe;
mod probes;
mod ray;
mod replay;
mod report;
mod run;
mod search;
mod sharing;
mod slots;
mod slurm;
mod spec;
mod ssh;
mod step_terminal;
mod tune;
mod warm_start;
mod writes;
