//! `gputune worker`: runs probes on this node for a search elsewhere.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gputune::machine::{Allocation, Device};
use gputune::model::{Slot, quantity};
use gputune::probe::worker::{Hello, Refusal, Site, VERSION, Welcome, serve};
use gputune::probe::{CommandProber, supervisor};
use gputune::spec::Spec;

use super::exit::{Exit, Failed};
use super::paths;

/// Run probes on this node for a search elsewhere, over standard input and output
///
/// A search starts it by itself where its spec says so (`launcher` in [machine]). It ends, with everything that it has started, when
/// its input does.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How long this node may be used from now on, such as 30m: no probe is begun that would not fit. In a Slurm job it is known
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    time_left: Option<Duration>,
}

pub(super) fn run(args: &Args) -> super::Result {
    supervisor::adopt_orphans().map_err(|error| Failed::because(Exit::Impossible, &error))?;
    let allocation = args.time_left.map_or_else(Allocation::here, Allocation::lasting);
    // What still runs when it returns ends with this process.
    serve(io::stdin(), io::stdout(), |hello, folder| site(hello, folder, allocation)).map(|()| Exit::Found).map_err(
        |error| Failed::because(Exit::Usage, &error).hint("a search starts workers by itself: see docs/cluster.md"),
    )
}

/// Prepares for the search that a driver names.
fn site(hello: &Hello, folder: &Path, allocation: Option<Allocation>) -> Result<Site, Refusal> {
    let refusal = |reason: String, hint: &str| Refusal { reason, hint: hint.to_owned() };
    let own = Hello::new(hello.spec.clone(), hello.text.clone());
    if *hello != own {
        let versions = format!("it is gputune {}, and the search is of {}", own.gputune_version, hello.gputune_version);
        return Err(refusal(versions, "install the same gputune on all nodes"));
    }
    let spec = Spec::load(&hello.spec).map_err(|error| {
        let hint = error.hint.clone().unwrap_or_default();
        refusal(format!("{}: {error}", hello.spec.display()), &format!("all nodes need the folder of the spec; {hint}"))
    })?;
    if spec.text != hello.text {
        let reason = format!("{} is another file there", hello.spec.display());
        return Err(refusal(reason, "put the spec on a file system that all nodes share"));
    }
    let device = spec.device().map_err(|error| refusal(error.to_string(), "choose nodes that have one"))?;
    let slots = spec.machine.divide(device.is_gpu).map_err(|error| refusal(error.to_string(), error.hint()))?;
    let gpus = spec.count_gpus();
    let (space, probers, slots) = probers(spec, slots, &device, folder);
    let mut welcome = welcome(device, slots);
    welcome.gpus = gpus;
    welcome.time_left_s = allocation.map(|allocation| allocation.left().as_secs_f64());
    let mut site = Site { welcome, space, probers, allocation };
    for prober in &mut site.probers {
        let protection = prober.protect().map_err(|error| refusal(error.to_string(), error.hint()))?;
        site.welcome.writes = protection.line();
    }
    Ok(site)
}

fn welcome(device: Device, slots: Vec<Slot>) -> Welcome {
    let gputune_version = env!("CARGO_PKG_VERSION").to_owned();
    Welcome { version: VERSION, gputune_version, device, slots, writes: String::new(), gpus: 0, time_left_s: None }
}

/// A prober for each slot; for the whole node where it is not divided.
fn probers(
    spec: Spec,
    slots: Vec<Slot>,
    device: &Device,
    folder: &Path,
) -> (gputune::Space, Vec<CommandProber>, Vec<Slot>) {
    let step = spec.step.into_command(paths::gputune_path(), PathBuf::from("/proc/self/exe"), device);
    if slots.is_empty() {
        return (spec.space, vec![CommandProber::new(step, folder)], vec![Slot::numbered(1)]);
    }
    let prober = |slot: &Slot| CommandProber::new(step.clone().in_slot(slot.clone()), folder);
    (spec.space, slots.iter().map(prober).collect(), slots)
}
