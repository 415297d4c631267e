//! Turns `[machine]` into the shares of the machine that probes have.

use std::path::{Path, PathBuf};

use super::error::{SourceFile, SpecError};
use super::file::{MachineTable, StepTable};
use super::located::{given, place};
use super::values::Valid;
use crate::machine::{Device, Shares, VISIBLE_GPUS};
use crate::probe::relay::Relays;
use crate::probe::worker::{Commands, LAUNCHERS, Launcher, Start, Wanted};

pub(super) fn build(source: &SourceFile, table: &MachineTable, step: &StepTable) -> Result<Shares, SpecError> {
    let shares = Shares {
        slots: table.slots.as_ref().and_then(|slots| slots.value.0),
        gpus: table.gpus_per_slot.as_ref().map(|gpus| gpus.value.0),
        cores: table.cores_per_slot.as_ref().map(|cores| cores.value.0),
        only: table.only.clone(),
    };
    let chosen = step.env.0.iter().find(|(name, _)| name.value == VISIBLE_GPUS);
    if let Some((name, _)) = chosen.filter(|_| shares != Shares::default()) {
        let message = format!("[machine] sets `{VISIBLE_GPUS}` for each slot, so it cannot also be set here");
        return Err(source.error(name.span.clone(), message, "set it where gputune is started instead"));
    }
    let divided = given([
        ("slots", place(&table.slots)),
        ("gpus_per_slot", place(&table.gpus_per_slot)),
        ("cores_per_slot", place(&table.cores_per_slot)),
    ]);
    let spans_nodes = table.spans_nodes.as_ref().is_some_and(|spans| spans.value);
    if let Some((name, span)) = divided.into_iter().next().filter(|_| spans_nodes) {
        let message = format!("a probe that spans nodes has all of them, and `{name}` divides a machine");
        return Err(source.error(span, message, "leave it out, or leave `spans_nodes` out"));
    }
    Ok(shares)
}

/// The nodes of each probe.
#[derive(Debug, Clone)]
pub struct Span {
    commands: Commands,
    hosts: Vec<String>,
}

impl Span {
    /// Returns the number of nodes; `None` outside of an allocation if there are no `hosts`.
    pub fn nodes(&self) -> Option<u32> {
        let allocated = || std::env::var("SLURM_JOB_NUM_NODES").ok()?.parse().ok();
        u32::try_from(self.hosts.len()).ok().filter(|hosts| *hosts > 0).or_else(allocated)
    }

    /// Returns the relays on these nodes. All nodes must have this device, if it is a GPU.
    pub(super) fn relays(self, gputune: PathBuf, device: Device) -> Relays {
        let commands = move || {
            let (gputune, hosts, each) = (&gputune, &self.hosts, (None, None));
            let wanted = Wanted { gputune, serves: "relay", hosts, listen: None, ray: None, workers: 1, each };
            (self.commands)(&wanted)
        };
        Relays::by(commands, device)
    }
}

/// The place of probes: this machine, or workers that a launcher starts.
#[derive(Debug, Clone)]
pub struct Engine {
    /// The launcher of workers; `None` for probes on this machine.
    pub launcher: Option<&'static Launcher>,
    /// The file with the token that workers show.
    pub token_file: Option<PathBuf>,
    /// The address that workers connect to.
    pub listen: Option<String>,
    /// The nodes of each probe, if it spans several nodes.
    pub span: Option<Span>,
    hosts: Vec<String>,
    ray: Option<String>,
    workers: u32,
}

impl Engine {
    /// Sets the address at which to wait for workers that the user starts, and overrides the launcher of the spec.
    pub fn listening(&mut self, at: String, token_file: PathBuf) {
        (self.listen, self.token_file) = (Some(at), Some(token_file));
        self.launcher = LAUNCHERS.iter().find(|launcher| launcher.name == "dial");
    }

    /// Returns the input of the launcher. Each worker gets the slots of `shares`.
    pub fn wanted<'w>(&'w self, gputune: &'w Path, shares: &Shares) -> Wanted<'w> {
        let slots = shares.slots.unwrap_or(1);
        let each = |share: Option<u32>| share.map(|share| share.saturating_mul(slots));
        let each = (each(shares.gpus), each(shares.cores));
        let (listen, ray) = (self.listen.as_deref(), self.ray.as_deref());
        Wanted { gputune, serves: "worker", hosts: &self.hosts, listen, ray, workers: self.workers, each }
    }
}

/// Returns the named launcher, or else the launcher that fits this machine, with its input.
pub(super) fn engine(source: &SourceFile, table: &MachineTable) -> Result<Engine, SpecError> {
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let mut engine = Engine {
        launcher: None,
        span: None,
        token_file: table.token_file.as_ref().map(|file| folder.join(&file.value)),
        listen: table.listen.as_ref().map(|at| at.0.clone()),
        hosts: table.hosts.iter().map(|host| host.0.clone()).collect(),
        ray: table.ray.as_ref().map(|at| at.0.clone()),
        workers: Valid::or(table.workers.as_ref(), 1),
    };
    match &table.launcher {
        None => {
            let wanted = engine.wanted(Path::new(""), &Shares::default());
            engine.launcher = LAUNCHERS.iter().find(|launcher| (launcher.is_here)(&wanted));
        }
        Some(named) => engine.launcher = named.0,
    }
    if let Some(spans) = table.spans_nodes.as_ref().filter(|spans| spans.value) {
        // Outside of an allocation, no launcher fits. Slurm is assumed, so that the spec can still be checked there.
        let usual = LAUNCHERS.iter().find(|launcher| launcher.name == "slurm");
        let way = engine.launcher.take().or(usual).map(|launcher| launcher.start);
        let Some(Start::Streams(commands)) = way else {
            let message = "only nodes of a Slurm allocation, or `hosts` by ssh, can be spanned";
            let hint = "leave `spans_nodes` out, or write launcher = \"slurm\"";
            return Err(source.error(spans.span.clone(), message, hint));
        };
        engine.span = Some(Span { commands, hosts: engine.hosts.clone() });
    }
    Ok(engine)
}

#[cfg(test)]
mod tests {
    use crate::machine::Shares;
    use crate::spec::Spec;

    fn load(step: &str, machine: &str) -> Result<Shares, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spec.toml");
        let text = format!(
            "[step]\ncommand = [\"sh\", \"{{x}}\"]\n{step}\n[space]\nx = {{ values = [1, 2] }}\n[machine]\n{machine}\n"
        );
        std::fs::write(&path, text).unwrap();
        Spec::load(&path).map(|spec| spec.machine).map_err(|error| error.to_string())
    }

    #[test]
    fn slots_are_a_number_or_auto() {
        assert_eq!(load("", "").unwrap(), Shares::default());
        assert_eq!(load("", "slots = \"auto\"").unwrap(), Shares::default());
        let shares = load("", "slots = 4\ngpus_per_slot = 2\ncores_per_slot = 3\nonly = \"H100\"").unwrap();
        let only = Some("H100".to_owned());
        assert_eq!(shares, Shares { slots: Some(4), gpus: Some(2), cores: Some(3), only });
    }

    #[test]
    fn mistakes_have_a_place_and_a_cure() {
        for (machine, said) in [
            ("slots = 0", "`slots` is \"auto\" or a number from 1 to 1024, and this is 0"),
            ("slots = \"many\"", "and this is many"),
            ("launcher = \"slrm\"", "there is no launcher `slrm`"),
            ("hosts = [\"-oProxyCommand=x\"]", "is no name of a machine"),
            ("listen = \"7331\"", "`7331` is no address to listen on"),
            ("ray = \"head:8265\"", "is not the address of a Ray head"),
            ("workers = 0", "`workers` must be at least 1"),
            ("slots = 2\nspans_nodes = true", "a probe that spans nodes has all of them"),
            ("launcher = \"ray\"\nspans_nodes = true", "only nodes of a Slurm allocation"),
            ("cores_per_slot = 0", "`cores_per_slot` must be at least 1"),
        ] {
            let error = load("", machine).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        let error = load("env = { CUDA_VISIBLE_DEVICES = \"1\" }", "slots = 2").unwrap_err();
        assert!(error.contains("[machine] sets `CUDA_VISIBLE_DEVICES` for each slot"), "{error}");
    }
}
