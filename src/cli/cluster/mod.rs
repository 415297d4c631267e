//! `gputune cluster`: writes the objects and the token that a search on a cluster needs.

mod k8s;
mod manifests;

use std::path::PathBuf;

use gputune::probe::worker::Token;

use super::exit::{Exit, Failed};

/// Write what a search on a cluster needs
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    K8s(Box<k8s::Args>),
    Token(TokenArgs),
}

/// Write a new token for a search and its workers into a file that only you may read
#[derive(Debug, clap::Args)]
struct TokenArgs {
    /// The file, which must not be there yet
    file: PathBuf,
}

pub(super) fn run(args: &Args) -> super::Result {
    match &args.command {
        Command::K8s(args) => k8s::run(args),
        Command::Token(TokenArgs { file }) => {
            let token = Token::fresh().map_err(|error| Failed::because(Exit::Impossible, &error))?;
            token.write(file).map_err(|error| {
                let failed = Failed::because(Exit::Usage, &error);
                if file.exists() { failed.hint("use the existing file, or remove it first") } else { failed }
            })?;
            Ok(Exit::Found)
        }
    }
}
