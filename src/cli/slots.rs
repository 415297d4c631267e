//! Makes the probers of a search: for the whole machine, for each slot, or for other nodes.

use std::path::Path;
use std::thread;

use gputune::diagnosis::{Around, is_about_exchange};
use gputune::machine::{Allocation, Device};
use gputune::model::{Slot, Space};
use gputune::probe::worker::{Hello, Node, OnNode, Start, WorkerError, Workers};
use gputune::probe::{CommandProber, CommandStep};
use gputune::search::Tuner;
use gputune::spec::Spec;

use super::dialled::Dialled;
use super::exit::{Exit, Failed};
use super::{paths, steps};

/// The places where the probes of a search run.
pub(super) struct Places {
    /// The device that trains.
    pub(super) device: Device,
    kind: Kind,
    /// True if the user will train on the whole machine, so that the search also probes without a slot.
    is_whole: bool,
    /// True if the search first tests for slots that disturb each other.
    compares: bool,
    /// The number of GPUs of a probe that runs without a slot, or in a slot without GPUs of its own.
    pub(super) whole_gpus: u32,
    /// The number of nodes of each probe, if a probe spans several nodes.
    spans: Option<u32>,
}

enum Kind {
    Here(Vec<Slot>),
    Nodes(Vec<Node>),
    Dialled(Box<Dialled>),
}

impl Places {
    /// Divides the machine, or starts a worker on each node.
    pub(super) fn of(spec: &Spec) -> Result<Self, Failed> {
        let compares = spec.compares_slots;
        if let Some(launcher) = spec.engine.launcher {
            let gputune = paths::gputune_path();
            let wanted = spec.engine.wanted(&gputune, &spec.machine);
            let hello = Hello::new(paths::absolute(&spec.path), spec.text.clone());
            let (device, kind) = match &launcher.start {
                Start::Streams(commands) => {
                    let nodes = started(commands(&wanted)?, &hello)?;
                    (common_device(&nodes)?, Kind::Nodes(nodes))
                }
                Start::Dial(way) => {
                    let dialled = Dialled::wait(&wanted, spec.engine.token_file.as_deref(), way, hello)?;
                    (dialled.device().clone(), Kind::Dialled(Box::new(dialled)))
                }
            };
            let mut places = Self { device, kind, is_whole: false, compares, whole_gpus: 0, spans: None };
            places.whole_gpus = places.nodes().map(|node| node.welcome().gpus).max().unwrap_or(0);
            return places.counted(spec);
        }
        let device = spec.device()?;
        let slots = spec.machine.divide(device.is_gpu);
        let slots = slots.map_err(|error| Failed::because(Exit::Usage, &error).hint(error.hint()))?;
        let is_whole = slots.is_empty() || !spec.machine.has_shape();
        let spans = spec.engine.span.as_ref().map(|span| span.nodes().unwrap_or(1));
        let whole_gpus = spec.count_gpus().saturating_mul(spans.unwrap_or(1));
        Self { device, kind: Kind::Here(slots), is_whole, compares, whole_gpus, spans }.counted(spec)
    }

    /// Refuses a budget of GPU time if probes have no GPUs.
    fn counted(self, spec: &Spec) -> Result<Self, Failed> {
        let has_gpus = self.whole_gpus > 0 || self.slots().any(|slot| !slot.gpus.is_empty());
        if spec.budget.gpu_time.is_none() || has_gpus {
            return Ok(self);
        }
        let message = format!("`gpu_time` in [search] counts GPUs, and probes have none here ({})", self.device.name);
        Err(Failed::usage(message).hint("write `time` for a limit of wall time, or `probes` for their number"))
    }

    /// The nodes whose workers are connected. Of workers that dial in, these are only the first.
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        let nodes = match &self.kind {
            Kind::Here(_) => &[],
            Kind::Nodes(nodes) => nodes.as_slice(),
            Kind::Dialled(dialled) => std::slice::from_ref(dialled.first()),
        };
        nodes.iter()
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        let here = match &self.kind {
            Kind::Here(slots) => slots.as_slice(),
            Kind::Nodes(_) | Kind::Dialled(_) => &[],
        };
        here.iter().chain(self.nodes().flat_map(|node| &node.welcome().slots))
    }

    /// Returns this process's allocation, else the nodes' allocation that ends last, if all nodes have an allocation.
    fn allocation(&self) -> Option<Allocation> {
        let of_nodes = || match &self.kind {
            Kind::Here(_) | Kind::Dialled(_) => None,
            Kind::Nodes(nodes) => {
                let all: Option<Vec<Allocation>> = nodes.iter().map(Node::allocation).collect();
                all?.into_iter().max_by_key(Allocation::left)
            }
        };
        Allocation::here().or_else(of_nodes)
    }

    /// Returns the first slot, unless it is the whole machine.
    fn first_slot(&self) -> Option<&Slot> {
        self.slots().next().filter(|slot| !(self.is_whole || slot.cores.is_empty() && slot.gpus.is_empty()))
    }

    /// Describes the resources of each probe. Trials with different resources cannot be compared.
    pub(super) fn shape(&self) -> Option<String> {
        self.spans.map(|nodes| format!("{nodes} nodes")).or_else(|| self.first_slot().map(Slot::shape))
    }

    /// Takes the handle of the workers that another system was asked to start. Dropping the handle ends these workers.
    pub(super) fn workers(&mut self) -> Option<Box<dyn Workers>> {
        match &mut self.kind {
            Kind::Dialled(dialled) => dialled.workers(),
            _ => None,
        }
    }

    /// Makes the tuner with its probers, and reports how their writes are protected; fails if that is not possible.
    pub(super) fn tuner(
        self,
        space: Space,
        step: &CommandStep,
        out: &Path,
        quiet: bool,
    ) -> Result<Tuner<'static>, Failed> {
        let cores = self.first_slot().map(|slot| slot.cores.len()).filter(|cores| *cores > 0);
        let (allocation, whole_gpus) = (self.allocation(), self.whole_gpus);
        if let Some(nodes) = self.spans.filter(|nodes| !quiet && *nodes > 1) {
            say!("{:<10} each probe spans {nodes}", "nodes");
        }
        let around = cores.map_or_else(Around::processors, Around::with_cores);
        let tuner = match self.kind {
            Kind::Here(slots) => here(slots, self.is_whole, space, step, (out, quiet))?,
            Kind::Nodes(nodes) => on_nodes(nodes, space, out, quiet),
            Kind::Dialled(dialled) => dialled.tuner(space, out, quiet),
        };
        let tuner = tuner.around(around).compare_slots(self.compares).allocation(allocation).whole_gpus(whole_gpus);
        Ok(tuner.exchanging(exchanging(step)))
    }
}

/// Returns the parameters that only change how ranks exchange gradients and weights, each with its target.
fn exchanging(step: &CommandStep) -> Vec<(String, String)> {
    let applied = step.template.apply.applied.iter().filter(|applied| is_about_exchange(&applied.name));
    applied.map(|applied| (applied.parameter.clone(), applied.name.clone())).collect()
}

fn here(
    slots: Vec<Slot>,
    is_whole: bool,
    space: Space,
    step: &CommandStep,
    (out, quiet): (&Path, bool),
) -> Result<Tuner<'static>, Failed> {
    let in_slot = |slot: Slot| (slot.clone(), CommandProber::new(step.clone().in_slot(slot), out));
    let mut slots: Vec<(Slot, CommandProber)> = slots.into_iter().map(in_slot).collect();
    let mut whole = is_whole.then(|| CommandProber::new(step.clone(), out));
    for (at, prober) in whole.iter_mut().chain(slots.iter_mut().map(|(_, prober)| prober)).enumerate() {
        // All probers protect files in the same way, so only the first prints a line.
        steps::announce(prober, quiet || at > 0)?;
    }
    Ok(match whole {
        Some(prober) if slots.is_empty() => Tuner::with_prober(space, prober),
        whole => Tuner::with_slots(space, whole, slots),
    })
}

fn on_nodes(nodes: Vec<Node>, space: Space, out: &Path, quiet: bool) -> Tuner<'static> {
    if let Some(node) = nodes.first().filter(|_| !quiet) {
        say!("{:<10} {}", "writes", node.welcome().writes);
    }
    let mut slots = Vec::new();
    for node in nodes {
        if !quiet {
            say!("{:<10} {}: {} slots", "node", node.host(), node.welcome().slots.len());
        }
        let first = u32::try_from(slots.len()).unwrap_or(u32::MAX).saturating_add(1);
        slots.extend(node.into_probers(out, first));
    }
    Tuner::with_slots(space, None, slots)
}

fn started(commands: Vec<OnNode>, hello: &Hello) -> Result<Vec<Node>, Failed> {
    let started: Vec<_> = thread::scope(|scope| {
        let start = |(host, command): OnNode| {
            let (hello, name) = (hello.clone(), host.clone());
            (name, scope.spawn(move || Node::start(&host, command, hello)))
        };
        let starting: Vec<_> = commands.into_iter().map(start).collect();
        starting.into_iter().map(|(host, node)| (host, node.join())).collect()
    });
    started.into_iter().map(|(host, node)| joined(&host, node)).collect()
}

/// Returns the result of a thread that starts a worker.
///
/// # Errors
/// The worker did not start, or the thread panicked.
fn joined<T>(host: &str, result: thread::Result<Result<T, WorkerError>>) -> Result<T, Failed> {
    match result {
        Ok(started) => started.map_err(Failed::from),
        // The panic's message is already on standard error.
        Err(_) => Err(Failed::impossible(format!("gputune panicked when it started the worker on {host}"))),
    }
}

/// Returns the device that all nodes have: a measurement on one device says nothing about another.
fn common_device(nodes: &[Node]) -> Result<Device, Failed> {
    let first = nodes.first().map(|node| node.welcome().device.clone());
    let Some(first) = first else { return Err(Failed::impossible("there is no node")) };
    let Some(other) = nodes.iter().find(|node| node.welcome().device != first) else { return Ok(first) };
    let (one, host) = (nodes[0].host(), other.host());
    let named = |device: &Device| format!("{} (driver {})", device.name, device.driver);
    let (its, others) = (named(&first), named(&other.welcome().device));
    let message = format!("the nodes have different devices: {one} has {its}, {host} {others}");
    Err(Failed::impossible(message).hint("ask for nodes of one kind, by --constraint or a --gres with a type"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_a_starting_thread_is_an_error() {
        assert_eq!(joined("node1", Ok(Ok(1))).unwrap(), 1);
        let failed = joined::<u32>("node2", Err(Box::new("lost"))).unwrap_err();
        assert_eq!(failed.exit(), Exit::Impossible);
        assert_eq!(failed.message(), "gputune panicked when it started the worker on node2");
    }
}
