//! Finds a framework's own arguments for a target, in the call that takes them.

use serde_json::Value as Json;

use super::script::{Found, Script};
use crate::init::knobs::Names;
use crate::model::Value;
use crate::report::emit::{FRAMEWORKS, KNOBS};

/// A call that takes a framework's settings.
struct Owner {
    /// The framework's name in [`FRAMEWORKS`].
    framework: &'static str,
    modules: Names,
    calls: Names,
    /// The prefix of the framework's keys, which the call omits.
    prefix: &'static str,
    /// The place to name if the script has no such call.
    otherwise: Option<&'static str>,
    /// The only target that the call has an argument for; `None` if the call takes all of the framework's settings.
    only: Option<&'static str>,
}

const fn owner(framework: &'static str, modules: &'static str, calls: &'static str) -> Owner {
    Owner { framework, modules: Names(modules), calls: Names(calls), prefix: "", otherwise: None, only: None }
}

const OWNERS: &[Owner] = &[
    Owner {
        otherwise: Some("the TrainingArguments"),
        ..owner(
            "huggingface",
            "transformers trl",
            "TrainingArguments Seq2SeqTrainingArguments SFTConfig DPOConfig GRPOConfig",
        )
    },
    Owner { prefix: "trainer.", ..owner("lightning", "lightning pytorch_lightning", "Trainer") },
    Owner {
        prefix: "trainer.",
        only: Some("torch.precision"),
        ..owner("lightning", "lightning lightning_fabric", "Fabric")
    },
    owner("accelerate", "accelerate", "Accelerator"),
];

/// A call, or the name of a place if the script has no call; and the arguments for it, as names and code.
type Asked<'s> = (Result<Found<'s>, String>, Vec<(String, String)>);

/// Returns the call and its arguments for a setting of a target; `None` if the script's framework has none.
pub(super) fn arguments<'s>(script: &'s Script, target: &str, value: &Value, device: &str) -> Option<Asked<'s>> {
    let knob = KNOBS.iter().find(|facts| facts.target == Some(target))?.knob;
    let is_its = |owner: &&Owner| {
        owner.only.is_none_or(|only| only == target) && owner.modules.all().any(|module| script.imports(module))
    };
    OWNERS.iter().filter(is_its).find_map(|owner| {
        // `HfArgumentParser` makes the arguments from the command line, so the script has no call for them.
        let is_parsed = || script.all(&["HfArgumentParser"]).next().is_some();
        let calls: Vec<&str> = owner.calls.all().collect();
        let call = match (script.call(&calls), owner.otherwise) {
            (Some(found), _) => Ok(found),
            (None, Some(name)) if is_parsed() => Err(name.to_owned()),
            (None, _) => return None,
        };
        let (_, framework) = FRAMEWORKS.iter().find(|(name, _)| *name == owner.framework)?;
        let key = framework.keys.iter().find(|key| key.knob == knob)?;
        let own = |(key, value): (&'static str, Json)| {
            let name = key.strip_prefix(owner.prefix).filter(|name| !name.contains('.'))?;
            Some((name.to_owned(), python(&value)))
        };
        let arguments: Option<Vec<(String, String)>> = (key.write)(value).ok()?.into_iter().map(own).collect();
        let mut arguments = arguments?;
        // The framework's check of bf16 looks for a GPU unless `use_cpu` is set.
        let is_half = arguments.iter().any(|(name, code)| name == "bf16" && code == "True");
        if is_half && device == "cpu" {
            arguments.push(("use_cpu".to_owned(), "True".to_owned()));
        }
        Some((call, arguments))
    })
}

fn python(value: &Json) -> String {
    match value {
        Json::Bool(true) => "True".to_owned(),
        Json::Bool(false) => "False".to_owned(),
        other => other.to_string(),
    }
}
