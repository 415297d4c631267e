//! Chooses the settings of a parameter that are worth trying on a machine, around today's value.

use super::knobs;
use super::machine::Means;
use super::preset::Preset;
use crate::model::Precision;

/// The range of batch sizes: from a quarter of today's batch size to sixteen times as much. Round numbers; memory may end the range
/// sooner.
const BATCH_BELOW: i64 = 4;
const BATCH_ABOVE: i64 = 16;
/// The range of batch sizes if today's batch size is not known: round numbers.
const BATCHES: (i64, i64) = (8, 512);
/// The most workers: a loader that gains from more workers gains from more cores first. A round number.
const MOST_WORKERS: usize = 32;
/// The largest number that counts as a setting of a training script.
const LARGEST: i64 = 1 << 40;

/// Formats a string in TOML.
pub(super) fn text(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Parses a whole number.
pub(super) fn literal_number(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

/// Returns true if a number can be a setting.
pub(super) fn is_possible(kind: knobs::Settings, number: i64) -> bool {
    let least = i64::from(!matches!(kind, knobs::Settings::Workers | knobs::Settings::Prefetch));
    (least..=LARGEST).contains(&number)
}

/// Returns the family of names that a name of full precision belongs to.
pub(super) fn family(default: &str, preset: &Preset) -> Vec<String> {
    let has = |family: &&[&str; 3]| family.contains(&default);
    let keras = |family: &&[&str; 3]| preset.name == "keras" && family[1].starts_with("mixed_");
    let found = knobs::VOCABULARIES.iter().filter(has).find(keras).or_else(|| knobs::VOCABULARIES.iter().find(has));
    found.map(|family| family.iter().map(|&name| name.to_owned()).collect()).unwrap_or_default()
}

/// Returns the settings of a number, limited to `choices` if any are given; `None` if there is nothing to choose.
pub(super) fn numbers(
    kind: knobs::Settings,
    today: Option<i64>,
    choices: &[i64],
    means: &Means,
    ranks: usize,
) -> Option<String> {
    if !choices.is_empty() {
        let mut choices: Vec<i64> = choices.iter().copied().filter(|&choice| is_possible(kind, choice)).collect();
        choices.sort_unstable();
        choices.dedup();
        return (choices.len() > 1).then(|| list(&choices));
    }
    let today = today.filter(|&today| is_possible(kind, today));
    Some(match (kind, today) {
        (knobs::Settings::BatchSize, None) => format!("powers_of_two = [{}, {}]", BATCHES.0, BATCHES.1),
        (knobs::Settings::BatchSize, Some(today)) if today.count_ones() == 1 => {
            let (low, high) = ((today / BATCH_BELOW).max(1), today.saturating_mul(BATCH_ABOVE));
            format!("powers_of_two = [{low}, {high}]")
        }
        (knobs::Settings::BatchSize, Some(today)) => {
            let below = [4, 2].into_iter().filter(|by| today % by == 0).map(|by| today / by);
            let above = (0..=4).map(|power| today.saturating_mul(1 << power));
            list(&below.chain(above).collect::<Vec<_>>())
        }
        (knobs::Settings::Workers, today) => {
            let cores = (means.cores / ranks.max(1)).clamp(1, MOST_WORKERS);
            let powers = (0..).map(|power| 1_usize << power).take_while(|&workers| workers <= cores);
            let all = std::iter::once(0).chain(powers).chain([cores]);
            let mut all: Vec<i64> = all.filter_map(|workers| i64::try_from(workers).ok()).chain(today).collect();
            all.sort_unstable();
            all.dedup();
            list(&all)
        }
        (knobs::Settings::Prefetch, today) => {
            let mut all: Vec<i64> = [2, 4, 8].into_iter().chain(today).collect();
            all.sort_unstable();
            all.dedup();
            list(&all)
        }
        (_, None) => return None,
        (_, Some(today)) => list(&(0..=3).map(|power| today.saturating_mul(1 << power)).collect::<Vec<_>>()),
    })
}

/// Returns the numbers from the first to the last by doubling, and today's number.
pub(super) fn doubled(first: usize, last: usize, today: usize) -> String {
    let powers = (0..usize::BITS)
        .filter_map(|power| first.checked_shl(power))
        .take_while(|&number| number <= last && number > 0);
    let mut all: Vec<i64> = powers.chain([last, today]).filter_map(|number| i64::try_from(number).ok()).collect();
    all.sort_unstable();
    all.dedup();
    list(&all)
}

fn list(numbers: &[i64]) -> String {
    let mut numbers = numbers.to_vec();
    numbers.dedup();
    let all: Vec<String> = numbers.iter().map(i64::to_string).collect();
    format!("values = [{}]", all.join(", "))
}

/// Names of the number formats that the machine supports, one for each format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Precisions {
    /// The name of full precision, if it is among the names.
    pub(super) full: Option<String>,
    names: Vec<String>,
}

/// Selects the names that the machine supports; `None` if fewer than two are left.
pub(super) fn precisions(names: &[String], means: &Means) -> Option<Precisions> {
    let mut known: Vec<(Precision, &String)> = Vec::new();
    for name in names {
        let Some(precision) = named(name).filter(|precision| means.has(*precision)) else { continue };
        if known.iter().all(|(other, _)| *other != precision) && !is_pure(name) {
            known.push((precision, name));
        }
    }
    known.sort_by_key(|(precision, _)| *precision);
    let full = known.iter().find(|(precision, _)| *precision == Precision::Fp32).map(|(_, name)| (*name).clone());
    let names: Vec<String> = known.into_iter().map(|(_, name)| name.clone()).collect();
    (names.len() > 1).then_some(Precisions { full, names })
}

/// Returns the format that a name means in any library.
pub(super) fn named(name: &str) -> Option<Precision> {
    let plain = name.strip_prefix("mixed_").unwrap_or(name);
    let full = matches!(name, "no" | "32-true" | "none" | "off");
    if full { Some(Precision::Fp32) } else { Precision::named(plain) }
}

/// Returns true if a name means weights in 16 bits, which changes the training itself.
fn is_pure(name: &str) -> bool {
    matches!(name, "16-true" | "bf16-true")
}

impl Precisions {
    /// Returns `values = [...]` with today's value.
    pub(super) fn values(&self, today: Option<&str>) -> String {
        let missing = today.filter(|today| self.names.iter().all(|name| name != today));
        let all: Vec<String> = self.names.iter().map(String::as_str).chain(missing).map(text).collect();
        format!("values = [{}]", all.join(", "))
    }

    /// Returns `values = [...]` with today's value, and the name of full precision.
    pub(super) fn definition(&self, today: Option<&str>) -> String {
        let full = self.full.as_deref().map(|full| format!(", full_precision = {}", text(full))).unwrap_or_default();
        format!("{}{full}", self.values(today))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Hardware;

    fn cpu(cores: usize) -> Means {
        Means { cores, gpus: 0, hardware: None, cpu_has_bf16: false, threads: None }
    }

    #[test]
    fn settings_lie_around_todays() {
        let shown = |kind, today, cores| numbers(kind, today, &[], &cpu(cores), 1).unwrap();
        assert_eq!(shown(knobs::Settings::BatchSize, Some(32), 2), "powers_of_two = [8, 512]");
        assert_eq!(shown(knobs::Settings::BatchSize, Some(1), 2), "powers_of_two = [1, 16]");
        assert_eq!(shown(knobs::Settings::BatchSize, Some(100), 2), "values = [25, 50, 100, 200, 400, 800, 1600]");
        assert_eq!(shown(knobs::Settings::BatchSize, Some(-3), 2), "powers_of_two = [8, 512]");
        assert_eq!(shown(knobs::Settings::Workers, Some(10), 12), "values = [0, 1, 2, 4, 8, 10, 12]");
        assert_eq!(numbers(knobs::Settings::Workers, None, &[], &cpu(16), 4).unwrap(), "values = [0, 1, 2, 4]");
        assert_eq!(shown(knobs::Settings::Prefetch, Some(3), 1), "values = [2, 3, 4, 8]");
        assert_eq!(numbers(knobs::Settings::Count, None, &[], &cpu(1), 1), None);
        assert_eq!(numbers(knobs::Settings::BatchSize, None, &[16, 8], &cpu(1), 1).unwrap(), "values = [8, 16]");
    }

    #[test]
    fn only_formats_that_the_hardware_has_are_offered() {
        let names = ["32-true", "bf16-mixed", "16-mixed", "bf16-true", "transformer-engine"].map(str::to_owned);
        assert_eq!(precisions(&names, &cpu(1)), None);
        let modern = Means { cpu_has_bf16: true, ..cpu(1) };
        let offered = precisions(&names, &modern).unwrap();
        assert_eq!(offered.definition(None), "values = [\"32-true\", \"bf16-mixed\"], full_precision = \"32-true\"");
        let turing = Hardware { name: "T4".to_owned(), compute_capability: (7, 5) };
        let offered = precisions(&names, &Means { gpus: 1, hardware: Some(turing), ..cpu(1) }).unwrap();
        assert_eq!(offered.values(Some("64-true")), "values = [\"32-true\", \"16-mixed\", \"64-true\"]");
    }
}
