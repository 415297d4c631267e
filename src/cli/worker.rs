//! `gputune worker`: runs probes on this node for a search elsewhere.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use gputune::machine::{Allocation, Device};
use gputune::model::{Slot, quantity};
use gputune::probe::worker::{Hello, Parting, Refusal, Site, Token, VERSION, Welcome, dial, serve};
use gputune::probe::{CommandProber, supervisor};
use gputune::spec::Spec;

use super::exit::{Exit, Failed};
use super::{interrupt, paths};

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

pub(super) fn run(args: &Args) -> super::Result {
    // The time counts from now, however long the connection takes.
    let allocation = args.time_left.map_or_else(Allocation::here, Allocation::lasting);
    if let (Some(address), Some(file)) = (&args.dial, &args.token_file) {
        return dialled(args, (address, file), allocation);
    }
    if let Some(parent) = args.serve_for {
        let impossible = |error: io::Error| Failed::because(Exit::Impossible, &error);
        supervisor::end_with(parent).map_err(impossible)?;
    }
    let host = args.name.clone().unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    supervisor::adopt_orphans().map_err(|error| Failed::because(Exit::Impossible, &error))?;
    let allocation = args.time_left.map_or_else(Allocation::here, Allocation::lasting);
    // Leftover processes end with this process.
    let parting = serve(io::stdin(), io::stdout(), |hello, folder| site(hello, folder, host, allocation));
    let parting = parting.map_err(|error| {
        let failed = Failed::because(Exit::Usage, &error);
        let is_started = args.serve_for.is_some();
        if is_started { failed } else { failed.hint("a search starts its workers: see docs/slots.md") }
    })?;
    match parting {
        Parting::Over => Ok(Exit::Found),
        // The search that started this worker knows the reason and reports it.
        _ if args.serve_for.is_none() => Ok(Exit::Found),
        Parting::Gone => Ok(Exit::Interrupted),
        Parting::Refused(refusal) => {
            let message = format!("this worker cannot serve the search: {refusal}");
            Err(Failed::new(Exit::Impossible, message).hint(refusal.hint))
        }
        Parting::Unwanted(refusal) => {
            let message = format!("the search does not want this worker: {refusal}");
            Err(Failed::new(Exit::Impossible, message).hint(refusal.hint))
        }
    }
}

/// Connects to a search and starts a separate process to serve it, with the connection as its standard streams. So nothing that
/// one search starts is left for the next.
fn dialled(args: &Args, (address, file): (&str, &Path), allocation: Option<Allocation>) -> super::Result {
    let token = Token::read(file).map_err(|error| Failed::because(Exit::Usage, &error).hint(error.hint()))?;
    // The serving process ends with this process.
    interrupt::end_at_once().map_err(|error| Failed::because(Exit::Impossible, &error))?;
    loop {
        let stream = dial(address, &token, args.wait, |error| {
            say!("{}; trying for {} s", Failed::because(Exit::Impossible, error).message(), args.wait.as_secs());
        });
        let stream = stream.map_err(|error| Failed::because(Exit::Impossible, &error).hint(error.hint()))?;
        let status = served(args, stream, allocation).map_err(|error| Failed::because(Exit::Impossible, &error))?;
        match status.code() {
            Some(0) => return Ok(Exit::Found),
            // The serving process has reported why.
            Some(3) => return Ok(Exit::Impossible),
            _ if args.again => say!("the connection to {address} has ended; dialling again"),
            _ => {
                let message = format!("the connection to {address} has ended before the search did");
                return Err(Failed::new(Exit::Impossible, message)
                    .hint("has the search ended there? With --again a worker dials again"));
            }
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn served(args: &Args, stream: TcpStream, allocation: Option<Allocation>) -> io::Result<ExitStatus> {
    let stream = OwnedFd::from(stream);
    let mut command = Command::new("/proc/self/exe");
    command.args(["worker", "--serve-for", &std::process::id().to_string()]);
    if let Some(name) = &args.name {
        command.args(["--name", name]);
    }
    if let Some(allocation) = allocation.filter(|_| args.time_left.is_some()) {
        command.args(["--time-left", &format!("{}s", allocation.left().as_secs())]);
    }
    command.stdin(Stdio::from(stream.try_clone()?)).stdout(Stdio::from(stream));
    let mut child = command.spawn()?;
    // Only the child holds the connection.
    drop(command);
    child.wait()
}

/// Prepares for the search that a driver names.
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
    let (space, probers, slots) = probers(spec, slots, &device, folder);
    let mut welcome = welcome(host, device, slots);
    welcome.gpus = gpus;
    welcome.time_left_s = allocation.map(|allocation| allocation.left().as_secs_f64());
    let mut site = Site { welcome, space, probers, allocation };
    for prober in &mut site.probers {
        let protection = prober.protect().map_err(|error| refusal(error.to_string(), error.hint()))?;
        site.welcome.writes = protection.line();
    }
    Ok(site)
}

fn welcome(host: String, device: Device, slots: Vec<Slot>) -> Welcome {
    let gputune_version = env!("CARGO_PKG_VERSION").to_owned();
    let (writes, gpus, time_left_s) = (String::new(), 0, None);
    Welcome { version: VERSION, gputune_version, host, device, slots, writes, gpus, time_left_s }
}

/// Makes a prober for each slot, or for the whole node if it is not divided.
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
