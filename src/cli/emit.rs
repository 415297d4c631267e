//! `gputune emit`: the best config of a finished search once more, in any form.

use std::path::PathBuf;

use gputune::report::BestReport;

use super::exit::{Exit, Failed};
use super::folder;
use super::stdout;

/// Print the best config of a finished search again, in any form
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune emit gputune-out/config --format json
  python train.py $(gputune emit gputune-out/config --format args)
  eval \"$(gputune emit gputune-out/config --format env)\"")]
pub(super) struct Args {
    /// The folder of the search
    dir: PathBuf,
    /// The form in which the config is written
    #[arg(long, value_name = "FORMAT", default_value = "toml", value_parser = folder::format_parser())]
    format: &'static gputune::emit::Format,
}

pub(super) fn run(args: &Args) -> super::Result {
    let path = args.dir.join(folder::BEST_JSON);
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Failed::new(Exit::Usage, format!("cannot read {}: {error}", path.display()))
            .hint("give the folder of a search that found something; `gputune search` prints it")
    })?;
    let best: BestReport = serde_json::from_str(&text)
        .map_err(|error| Failed::new(Exit::Usage, format!("{} is no best config: {error}", path.display())))?;
    stdout::print(&(args.format.write)(&best.config))?;
    Ok(Exit::Found)
}
