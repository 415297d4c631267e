//! The steps that gputune's commands probe: the step of a spec, or a command without a spec. Also reports how files are
//! protected from a step, and which line a spec needs if the samples of its step are unknown.

use std::path::{Path, PathBuf};

use gputune::machine::{Device, DeviceChoice, nvml::Visible};
use gputune::model::{Parameter, Role, Space};
use gputune::probe::relay::Relays;
use gputune::probe::{
    CommandProber, CommandStep, ProbeError, Protection, Rate, Start, StepTemplate, Template, WritesError, WritesWish,
    adapter::{Apply, adapter},
};
use gputune::spec::{Spec, StepSpec};

use super::exit::{Exit, Failed};
use super::{diagnostic, paths};

/// The executable of the supervisor. The link leads to the running executable, even if its file has been replaced.
pub(super) const SUPERVISOR: &str = "/proc/self/exe";

pub(super) fn of_spec(step: StepSpec, device: &Device) -> CommandStep {
    step.into_command(paths::gputune_path(), PathBuf::from(SUPERVISOR), device)
}

/// A command without a spec, the space of its only config, and the device.
pub(super) struct Bare {
    pub(super) space: Space,
    pub(super) step: CommandStep,
    pub(super) device: Device,
}

impl Bare {
    /// Makes the step of a command in the current folder; the hook of the torch adapter is loaded. `words` are templates.
    pub(super) fn of(words: &[String]) -> Result<Self, Failed> {
        let cwd = std::env::current_dir()
            .map_err(|error| Failed::impossible(format!("there is no current folder: {error}")))?;
        let device = Device::choose(DeviceChoice::Auto, &Visible::of(&Default::default()))?;
        // A job without parameters is the only config of a dummy space.
        let space = Space::new([Parameter::values("job", ["as it is"])]);
        let space = space.map_err(|error| Failed::because(Exit::Impossible, &error))?;
        let template = StepTemplate {
            command: words.iter().map(|word| Template::parse(word)).collect(),
            env: Vec::new(),
            cwd,
            files: Vec::new(),
            apply: Apply { adapter: adapter("torch"), applied: Vec::new(), seed: 0 },
        };
        let step = CommandStep {
            template,
            rate: Rate::Events,
            samples_per_step: None,
            may_count_steps: true,
            ranks: None,
            gputune: paths::gputune_path(),
            supervisor: PathBuf::from(SUPERVISOR),
            is_gpu: device.is_gpu,
            writes: WritesWish::default(),
            start: Start::Fresh,
            slot: None,
            relays: Relays::default(),
        };
        Ok(Self { space, step, device })
    }
}

/// Returns the same step with one rank; `None` if `torchrun` does not start it, or it already has one rank.
///
/// Also returns `None` if the spec has `samples_per_step`: it counts the samples of all ranks together.
pub(super) fn with_one_rank(step: &CommandStep) -> Option<CommandStep> {
    if step.samples_per_step.is_some() {
        return None;
    }
    let command = one_process(&step.template.command.iter().map(Template::text).collect::<Vec<_>>())?;
    let command = command.iter().map(|word| Template::parse(word)).collect();
    let template = StepTemplate { command, ..step.template.clone() };
    Some(CommandStep { template, ranks: None, slot: None, relays: Relays::default(), ..step.clone() })
}

/// Returns a `torchrun` command with one process per node; `None` if it has one already, or no option for the number.
fn one_process(command: &[&str]) -> Option<Vec<String>> {
    /// The options for the number of processes on a node (torch.distributed.run, its documentation).
    const PROCESSES: [&str; 2] = ["--nproc-per-node", "--nproc_per_node"];
    let is_launcher = |word: &&str| word.rsplit('/').next() == Some("torchrun") || *word == "torch.distributed.run";
    let launcher = command.iter().position(is_launcher)?;
    let mut changed: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    for at in launcher + 1..command.len() {
        for option in PROCESSES {
            if let Some(value) = command[at].strip_prefix(option).and_then(|rest| rest.strip_prefix('=')) {
                changed[at] = format!("{option}=1");
                return (value != "1").then_some(changed);
            }
            if command[at] == option && at + 1 < command.len() {
                let is_one = command[at + 1] == "1";
                "1".clone_into(&mut changed[at + 1]);
                return (!is_one).then_some(changed);
            }
        }
    }
    None
}

/// Makes the prober of a step with the folder `out`, and reports how files are protected.
pub(super) fn prober(step: CommandStep, out: &Path, quiet: bool) -> Result<CommandProber, Failed> {
    let mut prober = CommandProber::new(step, out);
    announce(&mut prober, quiet)?;
    Ok(prober)
}

/// Finds what protects files, and reports it in one line, with a warning if nothing does.
pub(super) fn announce(prober: &mut CommandProber, quiet: bool) -> Result<(), Failed> {
    let protection = prober.protect().map_err(unprotected)?;
    if !quiet {
        say!("{:<10} {}", "writes", protection.line());
        warn(protection);
    }
    Ok(())
}

/// Makes the failure for a protection that is not possible.
pub(super) fn unprotected(error: WritesError) -> Failed {
    Failed::because(Exit::Impossible, &error).hint(error.hint())
}

/// Warns if files are unprotected and the user did not ask for that.
pub(super) fn warn(protection: &Protection) {
    if let Some(warning) = protection.warning() {
        diagnostic::print_warning(&warning);
    }
}

/// The facts of a spec for the hint that helps if its steps report no samples.
pub(super) struct Samples {
    path: PathBuf,
    /// The line number of `[step]`, counted from 1.
    step: Option<usize>,
    /// The samples of a step, as an expression of the spec's parameters; `None` if no parameter is a batch size.
    expression: Option<String>,
}

impl Samples {
    /// Collects the facts from a spec, before the search consumes the spec.
    pub(super) fn of(spec: &Spec) -> Self {
        let line = spec.text.lines().position(|line| line.trim_start().starts_with("[step]"));
        Self { path: spec.path.clone(), step: line.map(|line| line + 1), expression: expression(spec) }
    }

    /// Returns the failure of a probe. If the samples are missing, its hint has the line for the spec.
    pub(super) fn failed(&self, error: &ProbeError) -> Failed {
        let hint = matches!(error, ProbeError::NoSamples).then(|| self.hint());
        Failed::from(error).maybe_hint(hint)
    }

    fn hint(&self) -> String {
        let place = match self.step {
            Some(line) => format!("below [step], line {line} of {}", self.path.display()),
            None => format!("into [step] of {}", self.path.display()),
        };
        let lines = match &self.expression {
            Some(expression) => format!("  samples_per_step = \"{expression}\""),
            // The `1` is a placeholder: gputune does not know the script's number.
            None => "  samples_per_step = 1   # how many a step of your script takes, an expression of parameters \
                     if it depends on them"
                .to_owned(),
        };
        format!("paste this {place}, and run with --fresh:\n{lines}")
    }
}

/// Returns the name of the batch parameter. A micro-batch is multiplied by the accumulation parameter, if one exists.
fn expression(spec: &Spec) -> Option<String> {
    let parameters = spec.space.parameters();
    let batches = || parameters.iter().filter(|parameter| parameter.is_batch_size());
    let batch = batches().find(|batch| !batch.name().contains("micro")).or_else(|| batches().next())?;
    let accumulation = parameters.iter().find(|parameter| parameter.role() == Some(Role::Accumulation));
    let is_part = batch.name().contains("micro");
    Some(match accumulation.filter(|_| is_part) {
        Some(accumulation) => format!("{} * {}", batch.name(), accumulation.name()),
        None => batch.name().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torchrun_gets_one_process() {
        for (command, changed) in [
            ("torchrun --nproc-per-node=4 train.py", Some("torchrun --nproc-per-node=1 train.py")),
            (
                "python -m torch.distributed.run --nproc_per_node {gpus} train.py",
                Some("python -m torch.distributed.run --nproc_per_node 1 train.py"),
            ),
            ("python train.py --nproc-per-node=4", None),
            ("torchrun --nproc-per-node 1 train.py", None),
            ("torchrun", None),
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(one_process(&words).map(|words| words.join(" ")).as_deref(), changed);
        }
    }
}
