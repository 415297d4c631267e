//! Reads the two configs of `gputune compare`.

use std::path::Path;

use gputune::model::{Config, Settings};
use gputune::report::emit::shell_word;
use gputune::search::Study;
use gputune::spec::Spec;

use crate::cli::asked::assignment;
use crate::cli::exit::{Exit, Failed};
use crate::cli::probe::chosen;
use crate::cli::report;

/// One of the two configs.
pub(super) struct Contender {
    /// The words of the user.
    pub(super) text: String,
    pub(super) config: Config,
    /// The settings with their derived values; for the unmodified job, only the stated settings.
    pub(super) settings: Settings,
}

pub(super) struct Contenders {
    pub(super) a: Contender,
    pub(super) b: Contender,
}

/// The ways to name a config.
enum Named {
    Baseline,
    Best,
    Trial(u32),
    Settings(Vec<(String, String)>),
}

const WAYS: &str =
    "write settings such as batch_size=64,workers=4, the number of a trial such as 12, `baseline` or `best`";

impl Contenders {
    /// Reads both configs. `search` is the folder of the spec's earlier search, and is read only if needed.
    pub(super) fn read(spec: &Spec, search: &Path, [a, b]: [&str; 2]) -> Result<Self, Failed> {
        Ok(Self { a: contender(spec, search, ("A", a))?, b: contender(spec, search, ("B", b))? })
    }
}

fn contender(spec: &Spec, search: &Path, (side, text): (&str, &str)) -> Result<Contender, Failed> {
    let usage = |message: String| Failed::new(Exit::Usage, format!("{side} `{text}`: {message}"));
    let config = match named(text).map_err(|message| usage(message).hint(WAYS))? {
        Named::Baseline => baseline(spec)?,
        Named::Settings(set) => chosen(&spec.space, spec.baseline.as_ref(), &set)?,
        Named::Best => {
            let study = report::read(search)?.study;
            let best = study.best().ok_or_else(|| {
                let message = format!("{} has no best config: nothing feasible was found", search.display());
                let search = shell_word(&search.display().to_string());
                usage(message).hint(format!("see what became of each trial: gputune report {search}"))
            })?;
            of_study(spec, &study, &best.winner.config).map_err(|message| usage(message).hint(CHANGED))?
        }
        Named::Trial(number) => {
            let study = report::read(search)?.study;
            let trial = study.history.trials().iter().find(|trial| trial.number == number);
            let trial = trial.ok_or_else(|| {
                let last = study.history.trials().iter().map(|trial| trial.number).max().unwrap_or(0);
                usage(format!("{} has no trial {number}", search.display()))
                    .hint(format!("its trials are 1 to {last}; choose another search with --search DIR"))
            })?;
            of_study(spec, &study, &trial.config).map_err(|message| usage(message).hint(CHANGED))?
        }
    };
    Ok(Contender { text: text.to_owned(), settings: spec.space.settings(&config), config })
}

const CHANGED: &str = "the spec has changed since that search; name the settings instead";

fn named(text: &str) -> Result<Named, String> {
    match text.trim() {
        "baseline" => return Ok(Named::Baseline),
        "best" => return Ok(Named::Best),
        _ => {}
    }
    let digits = text.trim().strip_prefix('#').unwrap_or(text.trim());
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return digits.parse().map(Named::Trial).map_err(|_| "there are not so many trials".to_owned());
    }
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    text.split(',').map(assignment).collect::<Result<_, _>>().map(Named::Settings)
}

/// Returns the baseline as a search takes it: the config that the user runs today.
fn baseline(spec: &Spec) -> Result<Config, Failed> {
    if spec.is_baseline_as_it_is {
        let set = spec.baseline.clone().unwrap_or_default();
        return spec.space.as_it_is_with(&set).map_err(|error| Failed::because(Exit::Usage, &error));
    }
    chosen(&spec.space, spec.baseline.as_ref(), &[])
}

/// Converts a config of a search to the spec's space, which may have changed since.
fn of_study(spec: &Spec, study: &Study, config: &Config) -> Result<Config, String> {
    let settings = study.space.settings(config).chosen(&spec.space);
    let found = if config.is_as_it_is() { spec.space.as_it_is_with(&settings) } else { spec.space.locate(&settings) };
    found.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ways_to_name_a_config_are_told_apart() {
        let is = |text: &str| match named(text) {
            Ok(Named::Baseline) => "baseline".to_owned(),
            Ok(Named::Best) => "best".to_owned(),
            Ok(Named::Trial(number)) => format!("trial {number}"),
            Ok(Named::Settings(set)) => format!("{set:?}"),
            Err(message) => message,
        };
        assert_eq!(is("baseline"), "baseline");
        assert_eq!(is(" best"), "best");
        assert_eq!((is("12"), is("#12")), ("trial 12".to_owned(), "trial 12".to_owned()));
        assert_eq!(is("x=1, y = two"), r#"[("x", "1"), ("y", "two")]"#);
        assert_eq!(is("12a"), "write NAME=VALUE, such as batch_size=64");
        assert_eq!(is("#"), "write NAME=VALUE, such as batch_size=64");
        assert_eq!(is(""), "it is empty");
        assert_eq!(is("99999999999"), "there are not so many trials");
    }
}
