//! The command line: parses the arguments and calls the library. Only this module prints, exits and handles signals.
//!
//! Each command has a file of its name; `completions` also has `man` and `schema`, `worker` has `relay`. Begin with
//! `search`.

/// Prints a line to standard error. If the reader is gone, the line is lost and the search goes on.
macro_rules! say {
    ($($word:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($word)*);
    }};
}

/// Prints a part of a line to standard error.
macro_rules! say_part {
    ($($word:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr(), $($word)*);
    }};
}

mod apply;
mod asked;
mod asking;
mod best;
mod check;
mod cluster;
mod colour;
mod compare;
mod completions;
#[cfg(feature = "demo")]
mod demo_step;
mod device;
mod diagnose;
mod diagnostic;
mod dialled;
mod emit;
mod exit;
mod first_run;
mod folder;
mod init;
mod interrupt;
mod live;
mod paths;
mod probe;
mod progress;
#[cfg(test)]
mod reference;
mod replay;
mod report;
mod run;
mod script_options;
mod scripts;
mod search;
mod slots;
mod slurm;
mod stdout;
mod steps;
mod tune;
mod watch;
mod worker;

use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};

use exit::{Exit, Failed};

/// Finds the batch size, loader workers, precision and other settings that train a model fastest, by measuring the
/// real training step.
#[derive(Debug, Parser)]
#[command(name = "gputune", version, propagate_version = true, before_help = EXAMPLES, after_help = exit::help())]
struct Cli {
    /// When text for people is coloured
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    color: colour::When,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  gputune tune train.py        find the settings that train this script fastest
  gputune run                  train with them
  gputune diagnose train.py    say what a training step waits for";

#[derive(Debug, Subcommand)]
enum Command {
    Tune(tune::Args),
    Init(init::Args),
    Search(search::Args),
    Probe(probe::Args),
    Compare(compare::Args),
    Watch(watch::Args),
    Diagnose(diagnose::Args),
    Check(check::Args),
    Device(device::Args),
    Report(report::Args),
    Emit(emit::Args),
    Run(run::Args),
    #[command(hide = true)]
    Replay(replay::Args),
    #[command(hide = true)]
    Schema(completions::Schema),
    #[cfg(feature = "demo")]
    #[command(hide = true)]
    DemoStep(demo_step::Args),
    #[command(hide = true)]
    Worker(worker::Args),
    Relay(worker::Relay),
    Cluster(cluster::Args),
    Completions(completions::Args),
    Man(completions::Man),
}

/// Parses an argument that names a row of a table. `words` returns the name and the description of a row, for the help.
fn one_of<T: Sync>(
    rows: &'static [T],
    words: fn(&T) -> (&'static str, &'static str),
) -> impl TypedValueParser<Value = &'static T> {
    let known = rows.iter().map(words).map(|(name, about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(known).try_map(move |name| {
        rows.iter().find(|row| words(row).0 == name).ok_or_else(|| format!("there is no `{name}`"))
    })
}

pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let words = std::env::args_os().skip(1).map(|it| it.into_string().ok()).collect::<Option<Vec<String>>>();
            if let Some(failed) = words.and_then(|words| script_options::refused(&error, &words)) {
                return failed.report().into();
            }
            // Help and version go to standard output and are no failure; a reader that closes the pipe is no failure either.
            let is_unwritten = error.print().is_err_and(|error| error.kind() != std::io::ErrorKind::BrokenPipe);
            return match (error.use_stderr(), is_unwritten) {
                (true, _) => Exit::Usage,
                (false, true) => Exit::Impossible,
                (false, false) => Exit::Found,
            }
            .into();
        }
    };
    colour::ask(cli.color);
    let result = match cli.command {
        Command::Tune(args) => tune::run(args),
        Command::Init(args) => init::run(&args),
        Command::Search(args) => search::run(args),
        Command::Probe(args) => probe::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Diagnose(args) => diagnose::run(args),
        Command::Check(args) => check::run(&args),
        Command::Device(args) => device::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Emit(args) => emit::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Schema(_) => completions::schema(),
        #[cfg(feature = "demo")]
        Command::DemoStep(args) => demo_step::run(&args),
        Command::Worker(args) => worker::run(&args),
        Command::Relay(_) => worker::relay(),
        Command::Cluster(args) => cluster::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => completions::man(&args),
    };
    result.unwrap_or_else(|failed| failed.report()).into()
}

pub(crate) type Result<T = Exit> = std::result::Result<T, Failed>;
