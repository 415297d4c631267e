//! Chooses the settings of a parameter that are worth trying on a machine, around today's value.

use std::collections::BTreeSet;

use super::knobs;
use super::preset::Preset;
use crate::machine::{Hardware, Machine};
use crate::model::Precision;

/// The facts about the machine that a draft depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Means {
    /// The number of available cores.
    pub cores: usize,
    /// The number of GPUs that programs see.
    pub gpus: usize,
    /// The least capable GPU.
    pub hardware: Option<Hardware>,
    /// True if the CPU multiplies in bf16.
    pub cpu_has_bf16: bool,
    /// The value of `OMP_NUM_THREADS`, if set.
    pub threads: Option<usize>,
}

/// CPU features for multiplying in bf16, under their names in `/proc/cpuinfo`: Intel's and AMD's, and Arm's.
const BF16_FEATURES: &[&str] = &["avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"];

impl Means {
    /// Takes the facts from a description of the machine.
    pub fn of(machine: &Machine) -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let features = cpuinfo.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
        let cores = machine.host.processors.effective().floor().max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of cores")]
        let cores = cores as usize;
        let threads = std::env::var("OMP_NUM_THREADS").ok().and_then(|threads| threads.trim().parse().ok());
        Self {
            cores,
            gpus: machine.gpus.iter().filter(|gpu| gpu.is_visible).count(),
            hardware: Hardware::of(&machine.gpus),
            cpu_has_bf16: features
                .is_some_and(|line| line.split_whitespace().any(|word| BF16_FEATURES.contains(&word))),
            threads,
        }
    }

    /// Returns true if this precision is faster than fp32, according to the hardware.
    pub fn has(&self, precision: Precision) -> bool {
        match (&self.hardware, precision) {
            (_, Precision::Fp32) => true,
            (Some(hardware), Precision::Tf32 | Precision::Bf16 | Precision::Fp16) => hardware.has(precision),
            (None, Precision::Bf16) => self.gpus > 0 || self.cpu_has_bf16,
            (None, Precision::Fp16) => self.gpus > 0,
            // fp8 needs a separate library.
            (_, Precision::Fp8) | (None, Precision::Tf32) => false,
        }
    }

    /// Describes the machine in one line.
    pub fn line(&self) -> String {
        let cores = if self.cores == 1 { "1 core".to_owned() } else { format!("{} cores", self.cores) };
        let gpus = match (&self.hardware, self.gpus) {
            (_, 0) => "no GPU".to_owned(),
            (Some(hardware), 1) => hardware.name.clone(),
            (Some(hardware), many) => format!("{many} x {}", hardware.name),
            (None, many) => format!("{many} GPUs"),
        };
        format!("{cores}, {gpus}")
    }
}

/// The range of batch sizes: from a quarter of today's to sixteen times as much. Round numbers; memory may end the range sooner.
const BATCH_BELOW: i64 = 4;
const BATCH_ABOVE: i64 = 16;
/// The range of batch sizes if today's batch size is not known: round numbers.
const BATCHES: (i64, i64) = (8, 512);
/// The most workers: a loader that needs more workers needs more cores first. A round number.
const MOST_WORKERS: usize = 32;
/// The largest number that counts as a setting of a training script.
const LARGEST: i64 = 1 << 40;

/// Formats a string in TOML.
pub(super) fn text(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

pub(super) fn literal_number(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

pub(super) fn is_possible(kind: knobs::Settings, number: i64) -> bool {
    let least = i64::from(!matches!(kind, knobs::Settings::Workers | knobs::Settings::Prefetch));
    (least..=LARGEST).contains(&number)
}

/// Returns the family of precision names that contains a name; empty if none does.
pub(super) fn family(default: &str, preset: &Preset) -> Vec<String> {
    let has = |family: &&[&str; 3]| family.contains(&default);
    let keras = |family: &&[&str; 3]| preset.name == "keras" && family[1].starts_with("mixed_");
    let found = knobs::VOCABULARIES.iter().filter(has).find(keras).or_else(|| knobs::VOCABULARIES.iter().find(has));
    found.map(|family| family.iter().map(|&name| name.to_owned()).collect()).unwrap_or_default()
}

/// Returns the settings of a numeric parameter, only from `choices` if there are any; `None` if there is nothing to choose.
pub(super) fn numbers(
    kind: knobs::Settings,
    today: Option<i64>,
    choices: &[i64],
    means: &Means,
    ranks: usize,
) -> Option<String> {
    use knobs::Settings::{BatchSize, Prefetch, Workers};
    if !choices.is_empty() {
        let choices: BTreeSet<i64> = choices.iter().copied().filter(|&choice| is_possible(kind, choice)).collect();
        return (choices.len() > 1).then(|| list(choices));
    }
    let today = today.filter(|&today| is_possible(kind, today));
    Some(match (kind, today) {
        (BatchSize, None) => format!("powers_of_two = [{}, {}]", BATCHES.0, BATCHES.1),
        (BatchSize, Some(today)) if today.count_ones() == 1 => {
            let (low, high) = ((today / BATCH_BELOW).max(1), today.saturating_mul(BATCH_ABOVE));
            format!("powers_of_two = [{low}, {high}]")
        }
        (BatchSize, Some(today)) => {
            let below = [4, 2].into_iter().filter(|by| today % by == 0).map(|by| today / by);
            list(below.chain((0..=4).map(|power| today.saturating_mul(1 << power))))
        }
        (Workers, today) => {
            let cores = count((means.cores / ranks.max(1)).clamp(1, MOST_WORKERS));
            list(powers(cores).chain([0, cores]).chain(today))
        }
        (Prefetch, today) => list([2, 4, 8].into_iter().chain(today)),
        (_, None) => return None,
        (_, Some(today)) => list((0..=3).map(|power| today.saturating_mul(1 << power))),
    })
}

/// Returns the powers of two up to a number, the number itself, and today's number.
pub(super) fn doubled(most: usize, today: usize) -> String {
    list(powers(count(most)).chain([count(most), count(today)]))
}

fn powers(most: i64) -> impl Iterator<Item = i64> {
    (0..i64::BITS - 1).map(|power| 1 << power).take_while(move |&number| number <= most)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Lists settings in order, each once.
fn list(numbers: impl IntoIterator<Item = i64>) -> String {
    let numbers: BTreeSet<i64> = numbers.into_iter().collect();
    format!("values = [{}]", numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", "))
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
        if known.iter().all(|(other, _)| *other != precision) && !PURE.contains(&name.as_str()) {
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

/// Names that mean weights in 16 bits, which changes the training itself.
const PURE: [&str; 2] = ["16-true", "bf16-true"];

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

    fn cpu(cores: usize) -> Means {
        Means { cores, gpus: 0, hardware: None, cpu_has_bf16: false, threads: None }
    }

    #[test]
    fn settings_lie_around_todays() {
        use knobs::Settings::{BatchSize, Count, Prefetch, Workers};
        for (kind, today, choices, cores, ranks, expected) in [
            (BatchSize, Some(32), &[][..], 2, 1, Some("powers_of_two = [8, 512]")),
            (BatchSize, Some(1), &[], 2, 1, Some("powers_of_two = [1, 16]")),
            (BatchSize, Some(100), &[], 2, 1, Some("values = [25, 50, 100, 200, 400, 800, 1600]")),
            (BatchSize, Some(-3), &[], 2, 1, Some("powers_of_two = [8, 512]")),
            (Workers, Some(10), &[], 12, 1, Some("values = [0, 1, 2, 4, 8, 10, 12]")),
            (Workers, None, &[], 16, 4, Some("values = [0, 1, 2, 4]")),
            (Prefetch, Some(3), &[], 1, 1, Some("values = [2, 3, 4, 8]")),
            (Count, None, &[], 1, 1, None),
            (BatchSize, None, &[16, 8], 1, 1, Some("values = [8, 16]")),
        ] {
            assert_eq!(numbers(kind, today, choices, &cpu(cores), ranks).as_deref(), expected);
        }
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
