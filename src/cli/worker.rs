//! `gputune worker`: runs probes on this node for a search elsewhere. `gputune relay`: passes on the reports of the
//! processes on this node to their probe on another node.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use gputune::machine::{Allocation, Device};
use gputune::model::{Slot, quantity};
use gputune::probe::worker::{Hello, Parting, Refusal, Site, Token, VERSION, Welcome, dial, serve};
use gputune::probe::{CommandProber, relay, supervisor};
use gputune::spec::Spec;

use super::exit::{Exit, Failed};
use super::{interrupt, steps};

/// Run probes on this node for a search elsewhere
///
/// A search with a `launcher` in [machine] starts workers by itself. With --dial the worker connects to a search that listens. It
/// ends, with all its processes, when its input or the connection ends.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune cluster token token
  gputune search tune.toml --listen 10.0.0.5:7331 --token-file token
  gputune worker --dial 10.0.0.5:7331 --token-file token --wait 10m --again")]
pub(super) struct Args {
    /// Connect to the search that listens here
    #[arg(long, value_name = "HOST:PORT", requires = "token_file")]
    dial: Option<String>,
    /// The file with the search's token, which only its user may read
    #[arg(long, value_name = "FILE", requires = "dial")]
    token_file: Option<PathBuf>,
    /// What the search calls this worker [default: the name of the machine]
    #[arg(long)]
    name: Option<String>,
    /// How long to wait for a search that does not answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = quantity::parse_duration)]
    wait: Duration,
    /// Dial again if the connection drops
    #[arg(long, requires = "dial")]
    again: bool,
    /// How long this node may be used, such as 30m: only probes that fit begin [default: the rest of the Slurm job]
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    time_left: Option<Duration>,
    /// The process that has dialled; this process ends with it
    #[arg(long, value_name = "PID", hide = true)]
    serve_for: Option<i32>,
}

/// Pass on the reports of a probe's processes on this node
///
/// A search whose probes span nodes (`spans_nodes` in [machine]) starts it by itself, over its standard input and output. It ends when
/// its input does.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct Relay {}

pub(super) fn relay() -> super::Result {
    relay::serve(io::stdin(), io::stdout(), Device::detect())
        .map(|()| Exit::Found)
        .map_err(|error| Failed::because(Exit::Usage, &error).hint("a search starts its relays: see docs/slots.md"))
}

pub(super) fn run(args: &Args) -> super::Result {
    // The time left counts from now, including the time until a search connects.
    let allocation = args.time_left.map_or_else(Allocation::here, Allocation::lasting);
    if let (Some(address), Some(file)) = (&args.dial, &args.token_file) {
        return dialled(args, (address, file), allocation);
    }
    args.serve_for.map_or(Ok(()), supervisor::end_with)?;
    let host = args.name.clone().unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    supervisor::adopt_orphans()?;
    // Leftover processes end with this process.
    let parting = serve(io::stdin(), io::stdout(), |hello, folder| site(hello, folder, host, allocation));
    let parting = parting.map_err(|error| {
        let hint = args.serve_for.is_none().then_some("a search starts its workers: see docs/slots.md");
        Failed::because(Exit::Usage, &error).maybe_hint(hint)
    })?;
    let (refused, refusal) = match parting {
        Parting::Over => return Ok(Exit::Found),
        // The search that started this worker knows the reason and reports it.
        _ if args.serve_for.is_none() => return Ok(Exit::Found),
        Parting::Gone => return Ok(Exit::Interrupted),
        Parting::Refused(refusal) => ("this worker cannot serve the search", refusal),
        Parting::Unwanted(refusal) => ("the search does not want this worker", refusal),
    };
    Err(Failed::impossible(format!("{refused}: {refusal}")).hint(refusal.hint))
}

/// Connects to a search and starts a process to serve it, with the connection as its standard streams. All processes
/// of a search end with that process, so that the next search finds none.
fn dialled(args: &Args, (address, file): (&str, &Path), allocation: Option<Allocation>) -> super::Result {
    let token = Token::read(file)?;
    // Without its flag, the first signal ends this process at once, and the serving process ends with it. A container's
    // first process needs this: such signals have no default effect on it (pid_namespaces(7)).
    drop(interrupt::stop_flag()?);
    loop {
        let stream = dial(address, &token, args.wait, |error| {
            say!("{}; trying for {} s", Failed::because(Exit::Impossible, error).message(), args.wait.as_secs());
        })?;
        let code = served(args, stream, allocation)?.code();
        match code.and_then(|code| u8::try_from(code).ok()).and_then(Exit::with_code) {
            Some(Exit::Found) => return Ok(Exit::Found),
            // The serving process has reported why.
            Some(Exit::Impossible) => return Ok(Exit::Impossible),
            _ if args.again => say!("the connection to {address} has ended; dialling again"),
            _ => {
                let message = format!("the connection to {address} has ended before the search did");
                return Err(
                    Failed::impossible(message).hint("has the search ended there? With --again a worker dials again")
                );
            }
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn served(args: &Args, stream: TcpStream, allocation: Option<Allocation>) -> io::Result<ExitStatus> {
    let stream = OwnedFd::from(stream);
    let mut command = Command::new(steps::SUPERVISOR);
    command.args(["worker", "--serve-for", &std::process::id().to_string()]);
    if let Some(name) = &args.name {
        command.args(["--name", name]);
    }
    if let Some(allocation) = allocation.filter(|_| args.time_left.is_some()) {
        command.args(["--time-left", &format!("{}s", allocation.left().as_secs())]);
    }
    command.stdin(Stdio::from(stream.try_clone()?)).stdout(Stdio::from(stream));
    let mut child = command.spawn()?;
    // Closes the connection here, so that only the child holds it.
    drop(command);
    child.wait()
}

/// Prepares this node for the search that `hello` names.
fn site(hello: &Hello, folder: &Path, host: String, allocation: Option<Allocation>) -> Result<Site, Refusal> {
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
    let step = steps::of_spec(spec.step, &device);
    let (mut probers, slots): (Vec<CommandProber>, _) = if slots.is_empty() {
        // The whole node, which is not divided.
        (vec![CommandProber::new(step, folder)], vec![Slot::numbered(1)])
    } else {
        let prober = |slot: &Slot| CommandProber::new(step.clone().in_slot(slot.clone()), folder);
        (slots.iter().map(prober).collect(), slots)
    };
    let mut writes = String::new();
    for prober in &mut probers {
        writes = prober.protect().map_err(|error| refusal(error.to_string(), error.hint()))?.line();
    }
    let (gputune_version, time_left_s) = (own.gputune_version, allocation.map(|known| known.left().as_secs_f64()));
    let welcome = Welcome { version: VERSION, gputune_version, host, device, slots, writes, gpus, time_left_s };
    Ok(Site { welcome, space: spec.space, probers, allocation })
}
