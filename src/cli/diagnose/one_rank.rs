//! Changes a distributed job to one rank: the command of `torchrun` with one process instead of many.

use gputune::probe::relay::Relays;
use gputune::probe::{CommandStep, StepTemplate, Template};

/// The options for the number of processes on a node (torch.distributed.run, its documentation).
const PROCESSES: [&str; 2] = ["--nproc-per-node", "--nproc_per_node"];

/// Returns the same step with one rank; `None` if `torchrun` does not start it, or it already has one rank.
///
/// Also returns `None` if the spec counts samples: it counts all ranks, so the samples of one rank are unknown.
pub(super) fn of(step: &CommandStep) -> Option<CommandStep> {
    if step.samples_per_step.is_some() {
        return None;
    }
    let command = with_one_rank(&step.template.command.iter().map(Template::text).collect::<Vec<_>>())?;
    let template =
        StepTemplate { command: command.iter().map(|word| Template::parse(word)).collect(), ..step.template.clone() };
    Some(CommandStep {
        template,
        rate: step.rate.clone(),
        samples_per_step: None,
        may_count_steps: step.may_count_steps,
        ranks: None,
        gputune: step.gputune.clone(),
        supervisor: step.supervisor.clone(),
        is_gpu: step.is_gpu,
        writes: step.writes,
        start: step.start,
        slot: None,
        relays: Relays::default(),
    })
}

fn with_one_rank(command: &[&str]) -> Option<Vec<String>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torchrun_gets_one_process() {
        let changed = with_one_rank(&["torchrun", "--nproc-per-node=4", "train.py"]).unwrap();
        assert_eq!(changed, ["torchrun", "--nproc-per-node=1", "train.py"]);
        let changed =
            with_one_rank(&["python", "-m", "torch.distributed.run", "--nproc_per_node", "{gpus}", "train.py"]);
        assert_eq!(changed.unwrap()[4], "1");
        for other in [
            &["python", "train.py", "--nproc-per-node=4"][..],
            &["torchrun", "--nproc-per-node", "1", "train.py"],
            &["torchrun"],
        ] {
            assert_eq!(with_one_rank(other), None);
        }
    }
}
