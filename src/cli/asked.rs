//! The options that `search` and `tune` share: the limits of the search, its strategy, and the format of its result.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use gputune::model::{
    Config, LocateError, Measurement, Parameter, SAMPLES_PER_SECOND, Settings, Space, Value, quantity,
};
use gputune::report::emit::Format;
use gputune::search::{STRATEGIES, strategy::Entry};
use gputune::spec::{Spec, suggestion};

use super::exit::{Exit, Failed};
use super::{folder, paths};

/// The options of a search.
#[derive(Debug, clap::Args)]
pub(super) struct Asked {
    /// The folder for journal, logs and results [default: gputune-out/<name of the spec or script>]
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// How long the search may take, such as 20m [default: the spec's time]
    #[arg(long, value_name = "DURATION", value_parser = super::init::duration)]
    pub(super) time: Option<String>,
    /// The most probes [default: the spec's number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    probes: Option<u32>,
    /// The strategy [default: the spec's strategy]
    #[arg(long, value_parser = super::one_of(STRATEGIES, |entry| (entry.name, entry.about)))]
    strategy: Option<&'static Entry>,
    /// Keep a parameter at this setting; may be given again
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Probes that run at the same time, each on its part of the machine [default: the spec's number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: Option<u32>,
    /// The format of the best config
    #[arg(long, value_name = "FORMAT", default_value = "toml", value_parser = folder::format_parser())]
    format: &'static Format,
    /// Print JSON: --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Start over: an earlier DIR is kept as DIR.1
    #[arg(long)]
    pub(super) fresh: bool,
    /// Go on although the interpreter, frameworks, script, limits or anything else changed: in a new era of the same journal,
    /// in which earlier trials do not count
    #[arg(long, conflicts_with = "fresh")]
    pub(super) accept_changes: bool,
    /// Learn from an earlier search, on another device or with another model: its folder or journal; may be given again
    /// [default: the spec's studies]
    #[arg(long, value_name = "DIR")]
    pub(super) warm_start: Vec<PathBuf>,
    /// Print all details: ties, where time went, how probes were measured
    #[arg(short, long, conflicts_with = "quiet")]
    pub(super) verbose: bool,
    /// Print nothing but errors and the best config
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// The time of the first run of `gputune tune`, if it took a large part of the requested time
    #[arg(skip)]
    pub(super) first_run: Option<Duration>,
    /// The measurement of the unmodified job by that run, and how long the run took.
    #[arg(skip)]
    pub(super) measured: Option<(Measurement, Duration)>,
}

impl Asked {
    /// Returns the format of the best config.
    pub(super) fn format(&self) -> &'static Format {
        folder::format_or_json(self.format, self.json)
    }

    /// Returns the measurement of the first run if it can replace the first probe of the spec's baseline. Both must run
    /// the same settings alone on this machine, and the objective must be the throughput in samples.
    pub(super) fn of_baseline(&self, spec: &Spec) -> Option<(Measurement, Duration)> {
        /// The fewest measured steps of a first run that is worth keeping. A round number.
        const FEWEST: u64 = 10;
        let is_alone = spec.machine.slots.is_none_or(|slots| slots == 1) && spec.engine.launcher.is_none();
        let has_baseline = spec.baseline.is_some() || spec.is_baseline_as_it_is;
        let is_of_baseline = self.set.is_empty() && has_baseline && spec.objective.is_largest_throughput();
        let measured = self.measured.clone().filter(|_| is_alone && is_of_baseline)?;
        (measured.0.timing.steps >= FEWEST && measured.0.unit == SAMPLES_PER_SECOND).then_some(measured)
    }

    /// Returns the spec with these options in place of its own.
    pub(super) fn applied(&self, mut spec: Spec) -> Result<Spec, Failed> {
        if let Some(time) = self.time.as_deref().and_then(|time| quantity::parse_duration(time).ok()) {
            spec.budget.time = time;
        }
        spec.budget.probes = self.probes.unwrap_or(spec.budget.probes);
        spec.strategy = self.strategy.map_or(spec.strategy, |strategy| strategy.name);
        spec.machine.slots = self.slots.or(spec.machine.slots);
        if !self.set.is_empty() {
            self.keep(&mut spec)?;
        }
        Ok(spec)
    }

    /// Gives each parameter of `--set` its only setting, in the space and in a stated baseline.
    fn keep(&self, spec: &mut Spec) -> Result<(), Failed> {
        let kept = settings(&spec.space, &self.set)?;
        let parameters = spec.space.parameters();
        for (name, value) in kept.iter() {
            let parameter = spec.space.parameter_index(name).map(|at| &parameters[at]).ok_or_else(|| {
                Failed::usage(format!("the spec has no parameter `{name}`"))
                    .hint(suggestion(name, parameters.iter().map(Parameter::name)))
            })?;
            if parameter.level(value).is_none() {
                return Err(Failed::usage(format!("`{name}` has no setting {value}"))
                    .hint(format!("the spec has {}", parameter.summary())));
            }
        }
        let level = |parameter: &Parameter| kept.get(parameter.name()).and_then(|value| parameter.level(value));
        spec.space = spec.space.with_only(level).map_err(|error| Failed::because(Exit::Usage, &error))?;
        if let Some(baseline) = &mut spec.baseline {
            let with = |(name, value): (&str, _)| (name.to_owned(), kept.get(name).unwrap_or(value).clone());
            *baseline = located(&spec.space, baseline.iter().map(with).collect(), &kept)?.0;
        }
        Ok(())
    }

    /// Returns the arguments for the job of `--slurm`, besides spec and folder.
    pub(super) fn handed_on(&self) -> Vec<OsString> {
        let flags = [("--quiet", self.quiet), ("--verbose", self.verbose), ("--accept-changes", self.accept_changes)];
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.into());
        let earlier = self.warm_start.iter().flat_map(|place| ["--warm-start".into(), paths::absolute(place).into()]);
        let set = self.set.iter().map(|(name, value)| ("--set", Some(format!("{name}={value}"))));
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        let options = [
            ("--format", Some(self.format().name.to_owned())),
            ("--time", self.time.clone()),
            ("--probes", number(self.probes)),
            ("--strategy", self.strategy.map(|strategy| strategy.name.to_owned())),
            ("--slots", number(self.slots)),
        ];
        let options = options.into_iter().chain(set).filter_map(|(name, value)| Some([name.into(), value?.into()]));
        options.flatten().chain(flags).chain(earlier).collect()
    }
}

/// Reads `NAME=VALUE`.
pub(super) fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, such as batch_size=64")?;
    if name.is_empty() {
        return Err("there is no name before the `=`".to_owned());
    }
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Returns the value that a string stands for. If the parameter has strings, a string that looks like a number stays a string.
pub(super) fn value(parameter: Option<&Parameter>, text: &str) -> Value {
    let read = Value::parse(text);
    let plain = Value::Text(text.to_owned());
    let has = |value: &Value| parameter.is_some_and(|parameter| parameter.level(value).is_some());
    if !has(&read) && has(&plain) { plain } else { read }
}

/// Returns the settings of `--set`.
///
/// # Errors
/// A parameter is set twice.
pub(super) fn settings(space: &Space, set: &[(String, String)]) -> Result<Settings, Failed> {
    let mut read: Vec<(String, Value)> = Vec::new();
    for (name, text) in set {
        if read.iter().any(|(known, _)| known == name) {
            return Err(Failed::usage(format!("`{name}` is set twice")).hint("give each parameter once"));
        }
        let parameter = space.parameter_index(name).map(|at| &space.parameters()[at]);
        read.push((name.clone(), value(parameter, text)));
    }
    Ok(read.into_iter().collect())
}

/// Returns settings and their config. Drops the parameters that other settings make inactive.
///
/// # Errors
/// The settings are not in the space, or a parameter of `set` is inactive.
pub(super) fn located(space: &Space, mut settings: Settings, set: &Settings) -> Result<(Settings, Config), Failed> {
    loop {
        let error = match space.locate(&settings) {
            Ok(config) => return Ok((settings, config)),
            Err(error) => error,
        };
        let hint = match &error {
            LocateError::Inactive { name, .. } if set.get(name).is_none() => {
                settings = settings.without(&[name.as_str()]);
                continue;
            }
            LocateError::Inactive { .. } => "also set the parameters that its condition names".to_owned(),
            LocateError::UnknownName(name) => suggestion(name, space.parameters().iter().map(Parameter::name)),
            LocateError::UnknownValue { .. } => "add it to the parameter's settings in the spec".to_owned(),
            LocateError::Forbidden { .. } => {
                return Err(Failed::usage(format!("{error}: {}", settings.line())).hint("set more parameters"));
            }
            _ => return Err(Failed::usage(error.to_string())),
        };
        return Err(Failed::usage(error.to_string()).hint(hint));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        asked: Asked,
    }

    #[test]
    fn kept_settings_replace_those_of_a_stated_baseline() {
        const SPEC: &str = "step.command = [\"train\", \"{batch_size}\", \"{workers}\"]\n\
            space.batch_size.values = [8, 16]\n\
            space.workers.values = [0, 2, 4]\n\
            space.prefetch = { values = [2, 4], when = \"workers > 0\" }\n\
            baseline = { batch_size = 8, workers = 2, prefetch = 4 }\n";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spec.toml");
        std::fs::write(&path, SPEC).unwrap();
        let kept = |set: &[&str]| {
            let words = ["search"].into_iter().chain(set.iter().flat_map(|set| ["--set", *set]));
            let spec = Line::parse_from(words).asked.applied(Spec::load(&path).unwrap());
            spec.map(|spec| spec.baseline.unwrap().line()).map_err(Failed::message)
        };
        assert_eq!(kept(&["workers=4"]).unwrap(), "batch_size=8 workers=4 prefetch=4");
        // Without workers, the baseline's `prefetch` is inactive.
        assert_eq!(kept(&["workers=0"]).unwrap(), "batch_size=8 workers=0");
        assert_eq!(kept(&["workers=2", "workers=4"]).unwrap_err(), "`workers` is set twice");
        assert!(kept(&["workers=0", "prefetch=2"]).unwrap_err().starts_with("`prefetch` is not active here"));
    }
}
