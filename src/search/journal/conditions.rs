//! The conditions of trials besides command, space and device: the interpreter, the frameworks, the job's own code, the
//! limits, and the measuring method.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::json_differences;

/// The known conditions of trials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// The interpreter that runs the job's script; `None` if it needs none, or none was found.
    pub interpreter: Option<Interpreter>,
    /// The versions of its frameworks.
    pub frameworks: BTreeMap<String, String>,
    /// The script and its imports from the project, as paths from the job's folder, with a digest of each.
    pub code: BTreeMap<String, String>,
    /// The limits of a probe.
    pub limits: serde_json::Value,
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
    /// Returns how they differ, one sentence for each difference.
    pub(super) fn differences(&self, now: &Self) -> Vec<String> {
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

    fn conditions() -> Conditions {
        Conditions {
            interpreter: Some(Interpreter { path: "/job/.venv/bin/python".to_owned(), version: "3.12.1".to_owned() }),
            frameworks: [("torch".to_owned(), "2.8.0".to_owned())].into(),
            code: [("train.py".to_owned(), "a".to_owned()), ("model.py".to_owned(), "b".to_owned())].into(),
            limits: serde_json::json!({ "probe_time_s": 60.0 }),
            measuring: 2,
            slot: None,
        }
    }

    #[test]
    fn every_difference_is_named() {
        let then = conditions();
        assert!(then.differences(&then).is_empty());
        let mut now = conditions();
        now.interpreter = Some(Interpreter { path: "/usr/bin/python3".to_owned(), version: String::new() });
        now.frameworks = [("jax".to_owned(), "0.6".to_owned())].into();
        now.code.insert("train.py".to_owned(), "c".to_owned());
        now.code.remove("model.py");
        now.limits = serde_json::json!({ "probe_time_s": 90.0 });
        now.measuring = 3;
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
