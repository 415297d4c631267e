//! The first line of a journal: the conditions under which trials are comparable, and how two headers differ.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::FORMAT;

/// The conditions that must be equal for trials to be comparable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The device that trains.
    pub device: String,
    /// The device's driver.
    pub driver: String,
    /// The job before settings are filled in: command, environment, folder and files.
    pub command: Value,
    /// Parameters, derived values and rules.
    pub space: Value,
}

/// The first line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the format.
    pub format: u32,
    /// The program that began the journal.
    pub gputune_version: String,
    /// The conditions that make trials comparable.
    pub fingerprint: Fingerprint,
    /// Further conditions of the trials.
    #[serde(default)]
    pub conditions: Conditions,
    /// The earlier studies that the search learns from; its proposals depend on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm_start: Vec<WarmStart>,
    /// The totals of the file's earlier eras, whose trials no longer count; not part of the line itself.
    #[serde(skip)]
    pub older: OlderEras,
}

/// The eras before the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OlderEras {
    /// How many there are.
    pub eras: usize,
    /// Their trials.
    pub trials: usize,
}

impl std::fmt::Display for OlderEras {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { eras, trials } = *self;
        let many = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let have = if eras == 1 { "has" } else { "have" };
        let (eras, trials) = (many(eras, "older era"), many(trials, "trial"));
        write!(f, "{eras} of this journal, under other conditions, {have} {trials}, which do not count")
    }
}

/// An earlier study that a search learns from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmStart {
    /// Its folder or journal, as it was given.
    pub place: String,
    /// The trials in it.
    pub trials: usize,
    /// A digest that shows whether the trials are still the same.
    pub digest: String,
}

impl Header {
    /// The header that this program writes.
    pub fn new(fingerprint: Fingerprint) -> Self {
        Self {
            format: FORMAT,
            gputune_version: env!("CARGO_PKG_VERSION").to_owned(),
            fingerprint,
            conditions: Conditions::default(),
            warm_start: Vec::new(),
            older: OlderEras::default(),
        }
    }

    /// Returns the differences between this command and the command of another search, one sentence each.
    pub fn command_differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        json_differences("command", &self.fingerprint.command, &other.fingerprint.command, &mut found);
        found
    }

    pub(super) fn differences(&self, now: &Self) -> Vec<String> {
        let digests = |header: &Self| -> Vec<String> { header.warm_start.iter().map(|w| w.digest.clone()).collect() };
        let shown = |header: &Self| -> String {
            let each = header.warm_start.iter().map(|study| format!("{} trials of {}", study.trials, study.place));
            let all = each.collect::<Vec<_>>().join(", ");
            if all.is_empty() { "nothing".to_owned() } else { all }
        };
        let mut found = self.fingerprint.differences(&now.fingerprint);
        found.extend(self.conditions.differences(&now.conditions));
        if digests(self) != digests(now) {
            let (then, now) = (shown(self), shown(now));
            // A study may have as many trials, but different ones.
            let other = if then == now { "others of " } else { "" };
            found.push(format!("it started from {then} and is to start from {other}{now}"));
        }
        found
    }
}

impl Fingerprint {
    fn differences(&self, now: &Self) -> Vec<String> {
        let texts = [("device", &self.device, &now.device), ("driver", &self.driver, &now.driver)];
        let differ = texts.into_iter().filter(|(_, then, now)| then != now);
        let mut found: Vec<String> =
            differ.map(|(what, then, now)| format!("the {what} was `{then}` and is `{now}`")).collect();
        json_differences("command", &self.command, &now.command, &mut found);
        json_differences("space", &self.space, &now.space, &mut found);
        found
    }
}

/// Collects the innermost entries that differ, with the path to each.
fn json_differences(path: &str, then: &Value, now: &Value, found: &mut Vec<String>) {
    use Value::{Null, Object};
    match (then, now) {
        (Object(a), Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let path = format!("{path}.{key}");
                json_differences(&path, a.get(key).unwrap_or(&Null), b.get(key).unwrap_or(&Null), found);
            }
        }
        _ if then == now => {}
        (Null, now) => found.push(format!("{path} was absent and is {now}")),
        (then, Null) => found.push(format!("{path} was {then} and is absent")),
        (then, now) => found.push(format!("{path} was {then} and is {now}")),
    }
}

/// The conditions of trials besides command, space and device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// The interpreter that runs the job's script; `None` if it needs none, or none was found.
    pub interpreter: Option<Interpreter>,
    /// The versions of the frameworks in the interpreter.
    pub frameworks: BTreeMap<String, String>,
    /// The script and its imports from the project, as paths from the job's folder, with a digest of each.
    pub code: BTreeMap<String, String>,
    /// The limits of a probe.
    pub limits: Value,
    /// The version of the measuring method.
    pub measuring: u32,
    /// The part of the machine that a probe had, if other probes had the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
}

/// An interpreter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpreter {
    /// Its program.
    pub path: String,
    /// Its version; empty if it did not report one.
    pub version: String,
}

impl std::fmt::Display for Interpreter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, version } = self;
        if version.is_empty() { write!(f, "`{path}`") } else { write!(f, "`{path}` ({version})") }
    }
}

impl Conditions {
    /// Returns the differences, one sentence each.
    fn differences(&self, now: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.interpreter != now.interpreter {
            let shown = |of: &Option<Interpreter>| of.as_ref().map_or("none".to_owned(), ToString::to_string);
            found.push(format!("the interpreter was {} and is {}", shown(&self.interpreter), shown(&now.interpreter)));
        }
        for name in keys(&self.frameworks, &now.frameworks) {
            match (self.frameworks.get(name), now.frameworks.get(name)) {
                (then, now) if then == now => {}
                (Some(then), Some(now)) => found.push(format!("{name} was {then} and is {now}")),
                (Some(then), None) => found.push(format!("{name} was {then} and is not installed")),
                (None, now) => {
                    found.push(format!("{name} was not installed and is {}", now.map_or("", String::as_str)))
                }
            }
        }
        found.extend(self.code_differences(now));
        json_differences("limits", &self.limits, &now.limits, &mut found);
        if self.slot != now.slot {
            let shown = |of: &Option<String>| of.clone().unwrap_or_else(|| "the whole machine".to_owned());
            found.push(format!("a probe had {} and is to have {}", shown(&self.slot), shown(&now.slot)));
        }
        if self.measuring != now.measuring {
            let (then, now) = (self.measuring, now.measuring);
            found.push(format!("gputune measured in another way (version {then}, now {now})"));
        }
        found
    }

    fn code_differences(&self, now: &Self) -> Vec<String> {
        const SHOWN: usize = 5;
        let differs = |name: &&String| self.code.get(*name) != now.code.get(*name);
        let mut found: Vec<String> = keys(&self.code, &now.code)
            .filter(differs)
            .map(|name| match (self.code.contains_key(name), now.code.contains_key(name)) {
                (true, true) => format!("{name} changed"),
                (false, _) => format!("{name} was not there, or not imported"),
                (_, false) => format!("{name} is gone, or not imported any more"),
            })
            .collect();
        let more = found.len().saturating_sub(SHOWN);
        found.truncate(SHOWN);
        if more > 0 {
            found.push(format!("so did {more} files more"));
        }
        found
    }
}

/// Returns the keys of the first map, then the further keys of the second.
fn keys<'m, V>(a: &'m BTreeMap<String, V>, b: &'m BTreeMap<String, V>) -> impl Iterator<Item = &'m String> {
    a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pair = (&'static str, &'static str);

    fn conditions((path, version): Pair, (name, of): Pair, code: &[Pair], limit: f64, measuring: u32) -> Conditions {
        Conditions {
            interpreter: Some(Interpreter { path: path.to_owned(), version: version.to_owned() }),
            frameworks: [(name.to_owned(), of.to_owned())].into(),
            code: code.iter().map(|&(name, digest)| (name.to_owned(), digest.to_owned())).collect(),
            limits: serde_json::json!({ "probe_time_s": limit }),
            measuring,
            slot: None,
        }
    }

    #[test]
    fn every_difference_is_named() {
        let code = [("train.py", "a"), ("model.py", "b")];
        let then = conditions(("/job/.venv/bin/python", "3.12.1"), ("torch", "2.8.0"), &code, 60.0, 2);
        assert!(then.differences(&then).is_empty());
        let now = conditions(("/usr/bin/python3", ""), ("jax", "0.6"), &[("train.py", "c")], 90.0, 3);
        assert_eq!(
            then.differences(&now),
            [
                "the interpreter was `/job/.venv/bin/python` (3.12.1) and is `/usr/bin/python3`",
                "torch was 2.8.0 and is not installed",
                "jax was not installed and is 0.6",
                "model.py is gone, or not imported any more",
                "train.py changed",
                "limits.probe_time_s was 60.0 and is 90.0",
                "gputune measured in another way (version 2, now 3)",
            ]
        );
    }

    #[test]
    fn of_many_files_some_are_named() {
        let now = Conditions {
            code: (0..9).map(|at| (format!("{at}.py"), "x".to_owned())).collect(),
            ..Conditions::default()
        };
        let found = Conditions::default().differences(&now);
        assert_eq!((found.len(), found[5].as_str()), (6, "so did 4 files more"));
    }
}
