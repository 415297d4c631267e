//! `gputune schema`: what a spec may look like, for editors.

use super::exit::{Exit, Failed};
use super::stdout;

/// Print the JSON Schema of a spec, which editors use for completion
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gputune schema > gputune.schema.json
  and as the first line of the spec: #:schema ./gputune.schema.json")]
pub(super) struct Args {}

pub(super) fn run(_args: &Args) -> super::Result {
    let text = serde_json::to_string_pretty(&gputune::spec::schema())
        .map_err(|error| Failed::because(Exit::Impossible, &error))?;
    stdout::print(&(text + "\n"))?;
    Ok(Exit::Found)
}
