//! Finds the branches of an account that no parameter of a space can shorten.

use super::account::{Account, Branch};
use super::cause::shown_share;
use super::evidence::Evidence;
use super::search::opens;
use super::starvation::WAIT;
use crate::model::{Measurement, Space};

/// Returns the parameters that can shorten a leaf of a branch, by name or role; `*` is any parameter. Empty if only the script can.
fn touching(branch: Branch, leaf: &str) -> &'static [&'static str] {
    match (branch, leaf) {
        (Branch::Outside, "epoch_edge") => &["persistent_workers", "num_workers", "prefetch_factor"],
        (Branch::Outside, _) => &[],
        (Branch::Data, _) => &["num_workers", "prefetch_factor", "persistent_workers", "threads", "pin_memory"],
        (Branch::Copies, _) => &["pin_memory", "batch_size"],
        (Branch::Communication, _) => &[
            "batch_size",
            "grad_accumulation",
            "precision",
            "bucket_cap_mb",
            "gradient_as_bucket_view",
            "compression",
            "reshard_after_forward",
            "prefetch_depth",
            "sharding_strategy",
            "nccl_channels",
            "nccl_threads",
            "nccl_chunk_size",
        ],
        (Branch::OwnCode, _) => &["batch_size"],
        // Any parameter may change the start, the device's computing time, and the parts that the script names.
        (Branch::Start | Branch::Device | Branch::Told, _) => &["*"],
    }
}

/// Describes in one line the large parts of a run that no parameter of the space can shorten; `None` if none is large.
pub fn out_of_reach(space: &Space, measurement: &Measurement) -> Option<String> {
    let evidence = Evidence::of(measurement, super::Around::default());
    let account = Account::of(&evidence)?;
    let mut parts: Vec<String> = Vec::new();
    for (branch, _) in account.branches() {
        let reaches = |leaf: &str| {
            let names = touching(branch, leaf);
            names.contains(&"*") || names.iter().any(|name| opens(space, name))
        };
        let leaves = account.leaves.iter().filter(|leaf| leaf.branch == branch && !reaches(&leaf.name));
        if branch == Branch::Outside {
            let large = leaves.filter(|leaf| leaf.share_after_start >= WAIT.value);
            parts.extend(large.map(|leaf| {
                let what = match leaf.name.as_str() {
                    "checkpoint" => "writing checkpoints",
                    "epoch_edge" => "starting each epoch",
                    name => name,
                };
                format!("{what} takes {}", shown_share(leaf.share_after_start))
            }));
            continue;
        }
        let share: f64 = leaves.map(|leaf| leaf.share_after_start).sum();
        if share >= WAIT.value {
            parts.push(format!("{} takes {}", branch.row().label, shown_share(share)));
        }
    }
    (!parts.is_empty()).then(|| format!("{} of this run; no setting here changes that", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::sample::Job;
    use crate::model::Parameter;

    #[test]
    fn what_no_parameter_can_touch_is_told_and_nothing_else() {
        let space = Space::new([Parameter::range("num_workers", 0, 4, 1)]).unwrap();
        let told = |job: Job| out_of_reach(&space, &job.evidence().observed);
        let validating = told(Job::cpu().spent("evaluation", 0.9)).unwrap();
        assert!(validating.starts_with("evaluation takes 4"), "{validating}");
        assert!(validating.ends_with(" % of this run; no setting here changes that"), "{validating}");
        assert_eq!(told(Job::cpu().spent("data_wait", 0.5)), None, "workers change that");
        assert_eq!(told(Job::cpu()), None);
        let batches = Space::new([Parameter::powers_of_two("batch_size", 8, 64)]).unwrap();
        let waiting = out_of_reach(&batches, &Job::cpu().spent("data_wait", 0.9).evidence().observed).unwrap();
        assert!(waiting.starts_with("waiting for data takes 4"), "{waiting}");
    }
}
