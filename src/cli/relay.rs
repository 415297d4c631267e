//! `gputune relay`: the socket of a probe on another node.

use std::io;

use gputune::machine::Device;
use gputune::probe::relay;

use super::exit::{Exit, Failed};

/// Hand on what the processes of a probe say on this node
///
/// A search whose probes span nodes (`spans_nodes` in [machine]) starts it by itself, over its standard input and output. It ends when
/// its input does.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct Args {}

pub(super) fn run(_: &Args) -> super::Result {
    let served = relay::serve(io::stdin(), io::stdout(), Device::detect());
    served
        .map(|()| Exit::Found)
        .map_err(|error| Failed::because(Exit::Usage, &error).hint("a search starts its relays: see docs/slots.md"))
}
