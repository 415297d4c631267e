//! Facts that a training step reports about itself besides its metrics: the settings it uses, and signs of its waits.

mod table;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use table::{FACTS, FactRow, KINDS_OF_FILES, Kind};

/// The fact with the seconds that the process spent importing modules before its first step.
pub const IMPORT_SECONDS: &str = "import_seconds";
/// The fact that says who counts samples.
pub const COUNTED_BY: &str = "samples.counted_by";
/// The value of [`COUNTED_BY`] if only `samples_per_step` in the spec says how many samples a step has.
pub const BY_SPEC: &str = "the spec";
/// The fact that the script left training, with how long and where; gputune adds it.
pub const LEFT_TRAINING: &str = "left_training";
/// The fact that the script ended before enough was measured, with the remedy; gputune adds it.
pub const ENDED_EARLY: &str = "ended_early";
/// The prefix of the facts about recorded steps.
pub const TRACE: &str = "trace.";
/// The fact with the number of recorded steps.
pub const TRACE_STEPS: &str = "trace.steps";
/// The fact that says why no steps were recorded.
pub const TRACE_ERROR: &str = "trace.error";
/// The fact with the file of the recorded steps, relative to the folder of the search; gputune adds it.
pub const TRACE_FILE: &str = "trace.file";
/// The fact with the elements of the largest batch over the mean, if batches differ in size.
pub const LARGEST_BATCH: &str = "batches.largest";
/// The fact with the number of batches behind [`LARGEST_BATCH`].
pub const READ_BATCHES: &str = "batches.compared";
/// The fact with the reason why the loader cannot be read ahead of training.
pub const NOT_READ: &str = "batches.not_read";
/// The fact that a step trained on the largest batch of the loader.
pub const TRAINED_LARGEST: &str = "batches.trained";
/// The fact with the peak device memory of that step, in bytes.
pub const LARGEST_PEAK: &str = "batches.peak_bytes";
/// The prefix of the facts with the loader's rates, before the number of workers.
pub const LOADER_RATE: &str = "loader_only.rate.";

/// The largest number of facts that a measurement keeps: a round number, as a bound on memory.
const MOST: usize = 512;
/// The largest number of bytes in a name or a string (4 KiB): longer strings are not plausible.
const LONGEST: usize = 4096;

/// One fact: a number, a flag, or a string.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number, a boolean or a text")]
pub enum Fact {
    /// A number in the unit that [`FACTS`] gives.
    Number(f64),
    /// True if the fact holds.
    Flag(bool),
    /// A word, or a human-readable list.
    Text(String),
}

impl Fact {
    /// Returns the number, if the fact is a number.
    pub fn as_number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// Facts by name; [`FACTS`] explains the names. Facts of ranks other than 0 have the prefix `rankN.`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Facts(BTreeMap<String, Fact>);

impl Facts {
    /// Returns true if there are no facts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the fact of this name.
    pub fn get(&self, name: &str) -> Option<&Fact> {
        self.0.get(name)
    }

    /// Returns the number of this name.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_number()
    }

    /// Returns the flag of this name.
    pub fn flag(&self, name: &str) -> Option<bool> {
        if let Fact::Flag(flag) = self.get(name)? { Some(*flag) } else { None }
    }

    /// Returns the string of this name.
    pub fn text(&self, name: &str) -> Option<&str> {
        if let Fact::Text(text) = self.get(name)? { Some(text) } else { None }
    }

    /// Returns all facts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Fact)> {
        self.0.iter().map(|(name, fact)| (name.as_str(), fact))
    }

    /// Returns the numbers whose names are `prefix` and a whole number, such as `loader_only.rate.4`, by that whole number.
    pub fn numbered(&self, prefix: &str) -> BTreeMap<u32, f64> {
        let of_it = |(name, fact): (&str, &Fact)| Some((name.strip_prefix(prefix)?.parse().ok()?, fact.as_number()?));
        self.iter().filter_map(of_it).collect()
    }

    /// Returns a number as each rank reported it, keyed by rank. Rank 0 is included if it reported it.
    pub fn by_rank(&self, name: &str) -> BTreeMap<u32, f64> {
        let of_rank = |(full, fact): (&str, &Fact)| {
            let (rank, rest) = rank_and_name(full);
            (rest == name).then_some((rank, fact.as_number()?))
        };
        self.iter().filter_map(of_rank).collect()
    }

    /// Removes a fact of rank 0.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Adds or replaces a fact of a rank. Drops non-finite numbers, and names or strings that are too long.
    pub fn insert(&mut self, rank: u32, name: &str, fact: Fact) {
        let is_sound = match &fact {
            Fact::Number(number) => number.is_finite(),
            Fact::Flag(_) => true,
            Fact::Text(text) => text.len() <= LONGEST,
        };
        let name = if rank == 0 { name.to_owned() } else { format!("rank{rank}.{name}") };
        let has_room = self.0.len() < MOST || self.0.contains_key(&name);
        if is_sound && has_room && !name.is_empty() && name.len() <= LONGEST {
            self.0.insert(name, fact);
        }
    }
}

impl<N: Into<String>> FromIterator<(N, Fact)> for Facts {
    fn from_iter<I: IntoIterator<Item = (N, Fact)>>(facts: I) -> Self {
        Self(facts.into_iter().map(|(name, fact)| (name.into(), fact)).collect())
    }
}

from!(Fact: f64 => Number, bool => Flag, &str => Text);

/// Splits a name such as `rank3.loader.workers` into the rank and the rest.
fn rank_and_name(full: &str) -> (u32, &str) {
    let parts = full.strip_prefix("rank").and_then(|rest| rest.split_once('.'));
    parts.and_then(|(rank, name)| Some((rank.parse().ok()?, name))).unwrap_or((0, full))
}

/// Returns the row of a fact by its full name; `None` for a name that gputune does not know.
pub fn row(name: &str) -> Option<&'static FactRow> {
    let (_, name) = rank_and_name(name);
    FACTS.iter().find(|row| match row.name.strip_suffix('W') {
        Some(prefix) => name.strip_prefix(prefix).is_some_and(|workers| workers.parse::<u32>().is_ok()),
        None => row.name == name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_survive_json_and_have_types() {
        let facts = Facts::from_iter([
            ("loader.workers", Fact::from(4.0)),
            ("compiled", Fact::from(false)),
            ("device", Fact::from("cpu")),
            ("loader_only.rate.0", Fact::from(10.0)),
            ("loader_only.rate.4", Fact::from(35.0)),
        ]);
        let json = serde_json::to_string(&facts).unwrap();
        assert!(json.contains(r#""compiled":false"#) && json.contains(r#""device":"cpu""#), "{json}");
        let again: Facts = serde_json::from_str(&json).unwrap();
        assert_eq!(again, facts);
        assert_eq!((again.number("loader.workers"), again.number("device")), (Some(4.0), None));
        assert_eq!((again.flag("compiled"), again.text("device")), (Some(false), Some("cpu")));
        assert_eq!(again.numbered("loader_only.rate."), BTreeMap::from([(0, 10.0), (4, 35.0)]));
    }

    #[test]
    fn the_last_sound_fact_counts_and_ranks_are_kept_apart() {
        let mut facts = Facts::default();
        facts.insert(0, "loader.workers", Fact::Number(2.0));
        facts.insert(0, "loader.workers", Fact::Number(4.0));
        facts.insert(0, "loader.workers", Fact::Number(f64::NAN));
        facts.insert(3, "loader.workers", Fact::Number(1.0));
        facts.insert(0, "optimizer", Fact::Text("x".repeat(LONGEST + 1)));
        assert_eq!(facts.number("loader.workers"), Some(4.0));
        assert_eq!(facts.by_rank("loader.workers"), BTreeMap::from([(0, 4.0), (3, 1.0)]));
        assert_eq!(facts.get("optimizer"), None);
        for at in 0..2 * MOST {
            facts.insert(0, &format!("other.{at}"), Fact::Flag(true));
        }
        assert_eq!(facts.iter().count(), MOST);
    }

    #[test]
    fn names_are_found_in_the_table() {
        assert_eq!(row("loader.workers").unwrap().name, "loader.workers");
        assert_eq!(row("rank2.loader.workers").unwrap().name, "loader.workers");
        assert_eq!(row("loader_only.rate.16").unwrap().name, "loader_only.rate.W");
        assert!(row("loader_only.rate.many").is_none() && row("colour").is_none());
        for (at, row) in FACTS.iter().enumerate() {
            assert!(!row.about.is_empty() && FACTS[..at].iter().all(|other| other.name != row.name), "{}", row.name);
            assert_eq!(row.kind == Kind::Number, !row.unit.is_empty(), "{}", row.name);
        }
    }

    #[test]
    fn the_docs_describe_each_fact_and_each_kind_of_file() {
        let docs = include_str!("../../docs/design/facts.md");
        for row in FACTS {
            let unit = match row.kind {
                Kind::Number => row.unit,
                Kind::Flag => "boolean",
                Kind::Text => "text",
            };
            let free = if row.is_free { "yes" } else { "no" };
            let line = format!("| `{}` | {unit} | {} | {free} |", row.name, row.about);
            assert!(docs.contains(&line), "docs/design/facts.md lacks: {line}");
        }
        for (kind, about) in KINDS_OF_FILES {
            assert!(docs.contains(&format!("`{kind}` ({about})")), "{kind}");
        }
    }

    #[test]
    fn the_hook_says_each_fact_and_no_other() {
        let texts =
            crate::probe::adapter::FILES.iter().filter(|(path, _)| path.contains("_hook/")).map(|(_, text)| *text);
        let code: String = texts.collect();
        let said: Vec<&str> = code.split("say(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        for row in FACTS.iter().filter(|row| !row.about.ends_with("gputune adds it")) {
            let name = row.name.trim_end_matches('W');
            assert!(said.contains(&name), "python/gputune/_hook says nothing of {name}");
        }
        for name in said {
            let known = FACTS.iter().any(|row| row.name.trim_end_matches('W') == name);
            assert!(known, "src/model/fact/table.rs lacks {name}, which the hook says");
        }
    }
}
