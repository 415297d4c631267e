//! Maps parameters to targets, and returns everything to set for the settings of a probe.

use super::{Adapter, By, Target};
use crate::model::{Precision, Settings, Value};

/// A parameter or derived value, and the target of its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The parameter's name.
    pub parameter: String,
    /// The target's name as the spec writes it, such as `env.OMP_NUM_THREADS`.
    pub name: String,
    /// The target.
    pub target: &'static Target,
    /// The script's own option for the parameter, such as `--batch-size`; `None` if only the target sets the parameter.
    /// The option sets the parameter when a process starts: it is appended to the command, unless the command already
    /// has the setting. The target then only changes the setting later, in a process that already trains.
    pub argument: Option<String>,
}

/// How settings reach the script without placeholders in its command, environment and files.
#[derive(Debug, Clone, Default)]
pub struct Apply {
    /// The adapter whose hook is loaded with the script's framework, if the spec names an adapter.
    pub adapter: Option<&'static Adapter>,
    /// The parameters and their targets, in the order of the space.
    pub applied: Vec<Applied>,
    /// The seed that the hook gives to random number generators, so that configs see the same data.
    pub seed: u64,
}

/// The variables of torch's allocator: the name that all versions know, and the name since torch 2.9.
const ALLOCATOR_VARIABLES: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// NCCL's variables by target (NCCL User Guide, "Environment Variables"). `NCCL_MIN_CTAS` and `NCCL_MAX_CTAS` are the
/// newer names of the smallest and the largest number of channels. The chunk size is set through the size of a buffer
/// in bytes: NCCL uses chunks of an eighth of a buffer (`NCCL_STEPS` in NCCL's `src/include/device.h`).
const NCCL_VARIABLES: [(&str, &[&str]); 3] = [
    ("nccl.channels", &["NCCL_MIN_CTAS", "NCCL_MAX_CTAS"]),
    ("nccl.threads", &["NCCL_NTHREADS"]),
    ("nccl.chunk_size", &["NCCL_BUFFSIZE"]),
];

impl Applied {
    /// Returns the environment variables that are set to the parameter's value; none if the target is not the
    /// environment.
    pub fn variables(&self) -> Vec<&str> {
        match (self.by(), self.name.strip_prefix("env.")) {
            (By::Environment, Some(variable)) => vec![variable],
            (By::Environment, None) => {
                let of_nccl = NCCL_VARIABLES.iter().find(|(target, _)| *target == self.name);
                of_nccl.map_or(&ALLOCATOR_VARIABLES[..], |(_, variables)| variables).to_vec()
            }
            (By::Hook { .. } | By::Argument, _) => Vec::new(),
        }
    }

    /// Returns how the parameter is set when a process starts.
    pub fn by(&self) -> By {
        if self.argument.is_some() { By::Argument } else { self.target.by }
    }

    /// Returns the name of the option or target, for tables and messages.
    pub fn shown(&self) -> String {
        if self.by() == By::Argument { self.option() } else { self.name.clone() }
    }

    fn option(&self) -> String {
        self.argument.clone().unwrap_or_else(|| format!("--{}", self.parameter))
    }

    /// Returns the words to append to the command. An option that ends in `=` forms one word with the setting.
    fn words(&self, value: &Value) -> Vec<String> {
        let option = self.option();
        match value {
            value if option.ends_with('=') => vec![format!("{option}{value}")],
            Value::Bool(false) => Vec::new(),
            Value::Bool(true) => vec![option],
            value => vec![option, value.to_string()],
        }
    }

    /// Returns true if the hook sets the parameter when a process starts.
    pub fn is_by_hook(&self) -> bool {
        matches!(self.by(), By::Hook { .. })
    }
}

impl Apply {
    /// Returns the settings under the names of their targets. A setting without a target keeps its name.
    pub fn under_targets(&self, settings: &Settings) -> Settings {
        let target = |name: &str| self.applied.iter().find(|applied| applied.parameter == name);
        let renamed = |(name, value): (&str, &Value)| {
            (target(name).map_or(name, |applied| applied.name.as_str()).to_owned(), value.clone())
        };
        settings.iter().map(renamed).collect()
    }

    /// Returns true if nothing is applied and no hook is loaded.
    pub fn is_nothing(&self) -> bool {
        self.adapter.is_none() && self.applied.is_empty()
    }

    /// Returns the applied parameters under these settings, each with its value. Leaves out inactive settings and settings that
    /// [keep the script's own value](crate::model::AS_IT_IS).
    pub fn active<'a>(&'a self, settings: &'a Settings) -> impl Iterator<Item = (&'a Applied, &'a Value)> {
        let active = self.applied.iter().filter_map(|applied| Some((applied, settings.get(&applied.parameter)?)));
        active.filter(|(_, value)| !value.is_as_it_is())
    }

    /// Returns the parameters that the script takes by an option at its start, with their options.
    pub fn arguments_of_parameters(&self) -> Vec<(String, String)> {
        let with_option = |applied: &Applied| Some((applied.parameter.clone(), applied.argument.clone()?));
        self.applied.iter().filter_map(with_option).collect()
    }

    /// Returns the settings that the hook applies when a process starts.
    pub fn by_hook<'a>(&'a self, settings: &'a Settings) -> impl Iterator<Item = (&'a Applied, &'a Value)> {
        self.active(settings).filter(|(applied, _)| applied.is_by_hook())
    }

    /// Returns the precision of matrix products under these settings: the target `torch.precision` sets it, or else a parameter
    /// called `precision` or `dtype`.
    pub fn precision(&self, settings: &Settings) -> Option<Precision> {
        const NAMES: [&str; 2] = ["precision", "dtype"];
        let target = self.applied.iter().find(|applied| applied.name == "torch.precision");
        let names = target.map(|applied| applied.parameter.as_str()).into_iter().chain(NAMES);
        names.into_iter().find_map(|name| settings.get(name))?.as_text().and_then(Precision::named)
    }

    /// Returns the environment variables for these settings.
    pub fn environment(&self, settings: &Settings) -> Vec<(String, String)> {
        let variables = |(applied, value): (&Applied, &Value)| {
            let text = match value {
                Value::Text(text) if applied.name == "torch.allocator" => allocator_config(text),
                value => value.to_string(),
            };
            applied.variables().into_iter().map(|name| (name.to_owned(), text.clone())).collect::<Vec<_>>()
        };
        self.active(settings).flat_map(variables).collect()
    }

    /// Returns the arguments to append, except for parameters that the command `has` already.
    pub fn arguments(&self, settings: &Settings, has: impl Fn(&str) -> bool) -> Vec<String> {
        let by_argument = self.active(settings).filter(|(applied, _)| applied.by() == By::Argument);
        let by_argument = by_argument.filter(|(applied, _)| !has(&applied.parameter));
        by_argument.flat_map(|(applied, value)| applied.words(value)).collect()
    }

    /// Returns the settings that the hook must apply in a process that already trains.
    pub fn in_session<'a>(&'a self, settings: &'a Settings) -> impl Iterator<Item = (&'a Applied, &'a Value)> {
        self.active(settings).filter(|(applied, _)| matches!(applied.target.by, By::Hook { .. }))
    }

    /// Returns an error message if a target does not accept its value. Only a derived value can fail here, because the
    /// values of the space are checked when the spec is read.
    pub fn refusal(&self, settings: &Settings) -> Option<String> {
        let (applied, value) = self.active(settings).find(|(applied, value)| !applied.target.accepts.takes(value))?;
        let (parameter, target, takes) = (&applied.parameter, &applied.name, applied.target.accepts.words());
        Some(format!("`{parameter}` is {value}, and `{target}` takes {takes}"))
    }
}

/// Formats a setting for the variables of torch's allocator. The default is also written out, because gputune's own
/// environment may set another value.
fn allocator_config(setting: &str) -> String {
    match setting {
        "default" => "expandable_segments:False".to_owned(),
        "expandable-segments" => "expandable_segments:True".to_owned(),
        config => config.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(applied: &[(&str, &str)]) -> Apply {
        let applied = applied.iter().map(|(parameter, name)| Applied {
            parameter: (*parameter).to_owned(),
            name: (*name).to_owned(),
            target: Target::parse(name).unwrap(),
            argument: None,
        });
        Apply { applied: applied.collect(), ..Apply::default() }
    }

    fn settings(entries: &[(&str, Value)]) -> Settings {
        entries.iter().map(|(name, value)| (*name, value.clone())).collect()
    }

    #[test]
    fn the_precision_is_that_of_the_target_or_of_the_name() {
        let config = settings(&[("amp", "bf16".into()), ("precision", "fp16".into())]);
        assert_eq!(apply(&[("amp", "torch.precision")]).precision(&config), Some(Precision::Bf16));
        assert_eq!(apply(&[]).precision(&config), Some(Precision::Fp16));
        assert_eq!(apply(&[]).precision(&settings(&[("batch_size", 8.into())])), None);
        assert_eq!(apply(&[]).precision(&settings(&[("precision", "mixed".into())])), None);
    }

    #[test]
    fn a_value_that_a_target_does_not_take_is_told() {
        let apply = apply(&[("micro", "dataloader.batch_size")]);
        assert_eq!(apply.refusal(&settings(&[("micro", Value::Int(8))])), None);
        let reason = apply.refusal(&settings(&[("micro", Value::Float(1.5))])).unwrap();
        assert_eq!(reason, "`micro` is 1.5, and `dataloader.batch_size` takes whole numbers from 1 on");
    }
}
