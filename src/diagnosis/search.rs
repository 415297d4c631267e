//! Uses a diagnosis in a search: what holds a config back, and what no parameter can shorten.

use super::account::{Account, Branch};
use super::cause::shown_share;
use super::evidence::{Around, Evidence};
use super::openings::openable;
use super::starvation::WAIT;
use crate::model::{Fact, Measurement, Parameter, Settings, Space, Value, arrival};

/// Returns the evidence of a probe of a config: its measurement, completed by its settings.
pub fn evidence_of(space: &Space, settings: &Settings, measurement: &Measurement, around: Around) -> Evidence {
    let mut evidence = Evidence::of(measurement, around);
    let parameters = space.parameters().iter();
    let said = parameters.filter_map(|parameter| {
        let fact = arrival::fact_of_role(parameter.role()?)?;
        let fact_is_known = measurement.facts.get(fact).is_some();
        let value = settings.get(parameter.name()).filter(|_| !fact_is_known)?;
        let value = match value {
            Value::Text(text) => Fact::from(text.as_str()),
            Value::Bool(flag) => Fact::Flag(*flag),
            number => Fact::Number(number.as_f64()?),
        };
        Some((fact.to_owned(), value))
    });
    let told = measurement.facts.iter().map(|(name, fact)| (name.to_owned(), fact.clone()));
    evidence.observed.facts = told.chain(said).collect();
    evidence
}

/// Returns true if a space has a parameter of this name, or with the role of the openable parameter of this name.
pub fn opens(space: &Space, name: &str) -> bool {
    let role = openable(name).and_then(|openable| openable.role);
    let is_it = |parameter: &Parameter| parameter.name() == name || (role.is_some() && parameter.role() == role);
    space.parameters().iter().any(is_it)
}

/// Returns the parameters that can shorten a leaf of a branch, by name or role; `*` is any parameter. Empty if only a
/// change of the script can shorten the leaf.
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
    let evidence = Evidence::of(measurement, Around::default());
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
                format!("{what} took {}", shown_share(leaf.share_after_start))
            }));
            continue;
        }
        let share: f64 = leaves.map(|leaf| leaf.share_after_start).sum();
        if share >= WAIT.value {
            parts.push(format!("{} took {}", branch.row().label, shown_share(share)));
        }
    }
    (!parts.is_empty()).then(|| format!("{} of this probe; no setting here changes that", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::sample::Job;
    use crate::model::Role;

    fn space() -> Space {
        let batch = Parameter::powers_of_two("batch_size", 8, 64);
        Space::new([batch, Parameter::range("workers", 0, 4, 1), Parameter::values("precision", ["fp32", "bf16"])])
            .unwrap()
    }

    #[test]
    fn a_space_has_what_plays_the_same_role() {
        let own = Space::new([Parameter::range("readers", 0, 4, 1).plays(Role::Workers)]).unwrap();
        assert!(opens(&own, "num_workers") && opens(&space(), "batch_size"));
        assert!(!opens(&own, "batch_size") && !opens(&space(), "pin_memory"));
    }

    #[test]
    fn settings_say_what_the_step_does_not() {
        let space = space();
        let settings = space.settings(&space.first().unwrap());
        let mut measurement = Measurement::default();
        let evidence = evidence_of(&space, &settings, &measurement, Around::default());
        assert_eq!((evidence.workers(), evidence.batch_size()), (Some(0), Some(8)));
        measurement.facts = [("loader.workers", Fact::from(3.0))].into_iter().collect();
        let evidence = evidence_of(&space, &settings, &measurement, Around::default());
        assert_eq!((evidence.workers(), evidence.batch_size()), (Some(3), Some(8)));
    }

    #[test]
    fn what_no_parameter_can_touch_is_told_and_nothing_else() {
        let space = Space::new([Parameter::range("num_workers", 0, 4, 1)]).unwrap();
        let told = |job: Job| out_of_reach(&space, &job.evidence().observed);
        let validating = told(Job::cpu().spent("evaluation", 0.9)).unwrap();
        assert!(validating.starts_with("evaluation took 4"), "{validating}");
        assert!(validating.ends_with(" % of this probe; no setting here changes that"), "{validating}");
        assert_eq!(told(Job::cpu().spent("data_wait", 0.5)), None, "workers change that");
        assert_eq!(told(Job::cpu()), None);
        let batches = Space::new([Parameter::powers_of_two("batch_size", 8, 64)]).unwrap();
        let waiting = out_of_reach(&batches, &Job::cpu().spent("data_wait", 0.9).evidence().observed).unwrap();
        assert!(waiting.starts_with("waiting for data took 4"), "{waiting}");
    }
}
