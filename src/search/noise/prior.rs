//! What is known of the noise between runs before any run is repeated: what this machine showed in earlier searches.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::probe::PRECISION;

/// How far runs of one config are expected to be apart before any is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NoisePrior {
    /// The standard deviation between runs, as a share.
    pub deviation: f64,
    /// How many repetitions that knowledge is worth; zero where nothing is known.
    pub degrees: u32,
}

impl NoisePrior {
    /// A training job on a machine that has not been searched on: 3 %, worth two repetitions. Runs of one config on a quiet
    /// machine were 1 to 7 % apart.
    pub const RATE: Self = Self { deviation: 0.03, degrees: 2 };

    /// Nothing is known.
    pub const NONE: Self = Self { deviation: 0.0, degrees: 0 };

    /// The precision, as half the width of a 95 % interval, beyond which measuring a run longer is of little use: the error
    /// within the run is then three quarters of what another run differs by, and both together are a quarter more than that;
    /// measuring for twice as long makes it an eighth. At least [`PRECISION`], and at most 5 %, a round number: a reader compares
    /// runs by eye, too.
    pub(crate) fn precision(self) -> f64 {
        const DEVIATIONS: f64 = 1.5;
        const COARSEST: f64 = 0.05;
        (DEVIATIONS * self.deviation).clamp(PRECISION, COARSEST)
    }

    /// The file in which searches of this user keep how far runs were apart: `gputune/noise.json` in the folder for state
    /// (`XDG_STATE_HOME`, or `.local/state` in the home folder). `None` where there is no such folder.
    pub fn file() -> Option<PathBuf> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
        state.is_absolute().then(|| state.join("gputune/noise.json"))
    }

    /// Returns what the last searches on a device showed; [`RATE`](Self::RATE) where there is none, or the file cannot be
    /// read.
    pub fn of_device(file: &Path, device: &str) -> Self {
        Self::after(read(file).iter().filter(|study| study.device == device))
    }

    /// What some studies showed, and what is known of any machine as far as they are worth less than that. Another job need not repeat
    /// as these did, so each of their repetitions counts half, and together they are worth at most eight: both are round numbers.
    fn after<'s>(studies: impl Iterator<Item = &'s Shown>) -> Self {
        const MOST: f64 = 8.0;
        /// A study of few repetitions may show none at all by luck; the quietest machine showed this much.
        const LEAST: f64 = 0.01;
        let (mut squares, mut degrees) = (0.0, 0.0);
        for study in studies {
            let worth = f64::from(study.repetitions) / 2.0;
            squares += worth * study.between_runs.max(LEAST).powi(2);
            degrees += worth;
        }
        let share = (MOST / f64::max(degrees, MOST)).min(1.0);
        let (squares, degrees) = (squares * share, degrees * share);
        let rest = (f64::from(Self::RATE.degrees) - degrees).max(0.0);
        let all = degrees + rest;
        let of_any = rest * Self::RATE.deviation * Self::RATE.deviation;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most eight")]
        let whole = all.floor() as u32;
        Self { deviation: ((squares + of_any) / all).sqrt(), degrees: whole }
    }

    /// Keeps what a study showed. The newest are kept, a few of each device.
    ///
    /// # Errors
    /// The file cannot be written. An earlier one is then as it was.
    pub fn keep(file: &Path, device: &str, between_runs: f64, repetitions: u32) -> io::Result<()> {
        /// How many studies of a device are kept: a round number.
        const EACH: usize = 8;
        /// How many are kept in all: a round number, far more than one machine has devices.
        const ALL: usize = 100;
        let mut studies = read(file);
        studies.push(Shown { device: device.to_owned(), between_runs, repetitions });
        let own = studies.iter().filter(|study| study.device == device).count();
        let mut too_many = own.saturating_sub(EACH);
        studies.retain(|study| {
            let goes = too_many > 0 && study.device == device;
            too_many -= usize::from(goes);
            !goes
        });
        studies.drain(..studies.len().saturating_sub(ALL));
        let folder = file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let beside = file.with_extension(format!("{}.new", std::process::id()));
        let written = File::create(&beside).and_then(|mut new| {
            new.write_all(serde_json::to_string_pretty(&studies)?.as_bytes())?;
            fs::rename(&beside, file)
        });
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    }
}

/// What a study showed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Shown {
    device: String,
    between_runs: f64,
    repetitions: u32,
}

/// Reads the file; what cannot be read is nothing.
fn read(file: &Path) -> Vec<Shown> {
    let text = fs::read(file).unwrap_or_default();
    let mut studies: Vec<Shown> = serde_json::from_slice(&text).unwrap_or_default();
    studies.retain(|study| study.between_runs.is_finite() && study.between_runs >= 0.0);
    studies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_showed_takes_the_place_of_what_is_known_of_any() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/noise.json");
        assert_eq!(NoisePrior::of_device(&file, "gpu"), NoisePrior::RATE);
        NoisePrior::keep(&file, "gpu", 0.01, 2).unwrap();
        let prior = NoisePrior::of_device(&file, "gpu");
        assert_eq!(prior.degrees, 2);
        let expected = (0.0009 + 0.0001) / 2.0;
        assert!((prior.deviation.powi(2) - expected).abs() < 1e-9, "{prior:?}");
        NoisePrior::keep(&file, "gpu", 0.01, 4).unwrap();
        let prior = NoisePrior::of_device(&file, "gpu");
        assert!(prior.degrees == 3 && (prior.deviation - 0.01).abs() < 1e-9, "{prior:?}");
        assert_eq!(NoisePrior::of_device(&file, "other"), NoisePrior::RATE);
        for _ in 0..20 {
            NoisePrior::keep(&file, "gpu", 0.01, 6).unwrap();
        }
        let prior = NoisePrior::of_device(&file, "gpu");
        assert_eq!(prior.degrees, 8);
        assert!((prior.deviation - 0.01).abs() < 1e-9, "{prior:?}");
        assert_eq!(read(&file).len(), 8);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_damaged_file_says_nothing_and_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("noise.json");
        fs::write(&file, "[{").unwrap();
        assert_eq!(NoisePrior::of_device(&file, "gpu"), NoisePrior::RATE);
        NoisePrior::keep(&file, "gpu", 0.02, 3).unwrap();
        assert_eq!(NoisePrior::of_device(&file, "gpu").degrees, 2);
    }
}
