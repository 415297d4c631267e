//! Turns `[machine]` into the shares of the machine that probes have.

use std::path::Path;

use super::error::{SourceFile, SpecError, suggestion};
use super::file::{Located, MachineTable, StepTable};
use crate::machine::{Shares, VISIBLE_GPUS};
use crate::model::Value;
use crate::probe::worker::{LAUNCHERS, Launcher, Wanted};

/// The launcher that needs no worker.
const LOCAL: &str = "local";

/// The most slots: far more than any machine has, and few enough to be told apart.
const MOST_SLOTS: i64 = 1024;

pub(super) fn build(source: &SourceFile, table: &MachineTable, step: &StepTable) -> Result<Shares, SpecError> {
    let shares = Shares {
        slots: table.slots.as_ref().map(|slots| count(source, slots)).transpose()?.flatten(),
        gpus: share(source, table.gpus_per_slot.as_ref(), "gpus_per_slot")?,
        cores: share(source, table.cores_per_slot.as_ref(), "cores_per_slot")?,
        only: table.only.clone(),
    };
    let chosen = step.env.0.iter().find(|(name, _)| name.value == VISIBLE_GPUS);
    if let Some((name, _)) = chosen.filter(|_| shares != Shares::default()) {
        let message = format!("`{VISIBLE_GPUS}` is set for each slot by [machine], and cannot be set here, too");
        return Err(source.error(name.span.clone(), message, "set it where gputune is started instead"));
    }
    Ok(shares)
}

/// The launcher that is named, or else the one that fits where this runs; none for probes on this machine.
pub(super) fn launcher(source: &SourceFile, table: &MachineTable) -> Result<Option<&'static Launcher>, SpecError> {
    let Some(named) = &table.launcher else {
        let wanted = Wanted { gputune: Path::new(""), hosts: &hosts(source, table)? };
        return Ok(LAUNCHERS.iter().find(|launcher| (launcher.is_here)(&wanted)));
    };
    if named.value == LOCAL {
        return Ok(None);
    }
    LAUNCHERS.iter().find(|launcher| launcher.name == named.value).map(Some).ok_or_else(|| {
        let hint = suggestion(&named.value, LAUNCHERS.iter().map(|launcher| launcher.name).chain([LOCAL]));
        source.error(named.span.clone(), format!("there is no launcher `{}`", named.value), hint)
    })
}

/// The machines that are named.
pub(super) fn hosts(source: &SourceFile, table: &MachineTable) -> Result<Vec<String>, SpecError> {
    let is_one = |host: &str| !host.is_empty() && !host.starts_with('-') && !host.contains(char::is_whitespace);
    match table.hosts.iter().find(|host| !is_one(&host.value)) {
        Some(host) => {
            let message = format!("`{}` is no name of a machine", host.value);
            Err(source.error(host.span.clone(), message, "write it as for `ssh`: gpu1, user@gpu1 or ssh://gpu1:2222"))
        }
        None => Ok(table.hosts.iter().map(|host| host.value.clone()).collect()),
    }
}

fn count(source: &SourceFile, slots: &Located<Value>) -> Result<Option<u32>, SpecError> {
    match &slots.value {
        Value::Text(text) if text == "auto" => Ok(None),
        Value::Int(count @ 1..=MOST_SLOTS) => Ok(u32::try_from(*count).ok()),
        other => {
            let message = format!("`slots` is \"auto\" or a number from 1 to {MOST_SLOTS}, and this is {other}");
            Err(source.error(slots.span.clone(), message, "write slots = 2"))
        }
    }
}

fn share(source: &SourceFile, share: Option<&Located<u32>>, name: &str) -> Result<Option<u32>, SpecError> {
    match share {
        Some(share) if share.value == 0 => {
            let message = format!("`{name}` must be at least 1");
            Err(source.error(share.span.clone(), message, format!("write {name} = 1, or leave it out")))
        }
        share => Ok(share.map(|share| share.value)),
    }
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
        for (step, machine, said) in [
            ("", "slots = 0", "`slots` is \"auto\" or a number from 1 to 1024, and this is 0"),
            ("", "slots = \"many\"", "and this is many"),
            ("", "launcher = \"slrm\"", "there is no launcher `slrm`"),
            ("", "hosts = [\"-oProxyCommand=x\"]", "is no name of a machine"),
            ("", "cores_per_slot = 0", "`cores_per_slot` must be at least 1"),
            ("env = { CUDA_VISIBLE_DEVICES = \"1\" }", "slots = 2", "is set for each slot by [machine]"),
        ] {
            let error = load(step, machine).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
