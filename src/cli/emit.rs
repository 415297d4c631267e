//! `gputune emit`: the best config of a search once more, in any form.

use std::path::PathBuf;

use gputune::emit::{Chosen, Format};
use gputune::kept::Kept;
use gputune::report::BestReport;

use super::exit::{Exit, Failed};
use super::{diagnostic, folder, report, stdout};

/// Print the best config of a search again, in any form
///
/// What a form has no place for, and what a changed batch size asks of the learning rate, is said on standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune emit gputune-out/config --format json
  gputune emit gputune-out/config --format huggingface > training_args.json
  python train.py $(gputune emit gputune-out/config --format args)
  eval \"$(gputune emit gputune-out/config --format env)\"")]
pub(super) struct Args {
    /// The folder of the search
    dir: PathBuf,
    /// The form in which the config is written
    #[arg(long, value_name = "FORMAT", default_value = "toml", value_parser = folder::format_parser())]
    format: &'static Format,
}

pub(super) fn run(args: &Args) -> super::Result {
    let found = Found::read(&args.dir)?;
    print(args.format, &found.chosen())?;
    if let Some(rate) = &found.best.learning_rate {
        diagnostic::print_note(&rate.sentence());
    }
    Ok(Exit::Found)
}

/// The best config of a folder, and what is known of its parameters.
struct Found {
    best: BestReport,
    kept: Option<Kept>,
}

impl Found {
    /// Reads the folder of a search, which may still run; of one that only has the best config left, that.
    fn read(dir: &std::path::Path) -> Result<Self, Failed> {
        match report::read(dir) {
            Ok(kept) => {
                let best = report::best_of(&kept).ok_or_else(|| {
                    let message = format!("{} has no best config: nothing feasible was found", dir.display());
                    Failed::new(Exit::NothingFeasible, message).hint("`gputune report` says what became of each trial")
                })?;
                Ok(Self { best, kept: Some(kept) })
            }
            Err(error) => {
                let text = std::fs::read_to_string(dir.join(folder::BEST_JSON)).map_err(|_| error)?;
                let best = serde_json::from_str(&text).map_err(|error| {
                    let path = dir.join(folder::BEST_JSON);
                    Failed::new(Exit::Usage, format!("{} is no best config: {error}", path.display()))
                })?;
                Ok(Self { best, kept: None })
            }
        }
    }

    fn chosen(&self) -> Chosen<'_> {
        let Self { best, kept } = self;
        let apply = kept.as_ref().map_or(&[][..], |kept| &kept.step.apply.applied);
        Chosen { settings: &best.config, apply, space: kept.as_ref().map(|kept| &kept.study.space) }
    }
}

/// Prints a config, and on standard error what the form has no place for.
pub(super) fn print(format: &Format, chosen: &Chosen<'_>) -> Result<(), Failed> {
    let written = (format.write)(chosen);
    stdout::print(&written.text)?;
    for note in &written.notes {
        diagnostic::print_note(note);
    }
    Ok(())
}
