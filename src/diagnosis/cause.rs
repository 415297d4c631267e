//! Defines a cause: its signature with thresholds, its worth, the parameters to search, and other remedies.

use serde::Serialize;

use super::evidence::{Differential, Evidence};

/// A possible cause of a job's speed, and the signature that recognises it.
#[derive(Debug)]
pub struct Cause {
    /// The name in JSON.
    pub name: &'static str,
    /// The title on the screen.
    pub title: &'static str,
    /// A description in one or two sentences.
    pub about: &'static str,
    /// A description of what the signature checks.
    pub signature: &'static str,
    /// The thresholds of the signature.
    pub thresholds: &'static [&'static Threshold],
    /// The kind of cause.
    pub kind: Kind,
    /// The jobs in which the cause can occur.
    pub scope: Scope,
    /// The signature: returns the finding if the evidence shows the cause.
    pub find: fn(&Evidence) -> Option<Found>,
    /// Names of [`PARAMETERS`](super::PARAMETERS) that are worth searching, the most promising first.
    pub opens: &'static [&'static str],
    /// Remedies that no parameter can provide.
    pub cures: &'static [Cure],
}

/// The confidence from one [`Strength::Sign`]. A finding below it neither postpones other parameters nor explains a wait.
pub(super) const SURE_ENOUGH: f64 = Strength::Sign.weight();

impl Cause {
    /// Returns true if the worth already is a share of the whole run, not of its steps.
    pub(super) fn is_outside(&self) -> bool {
        ["evaluation", "checkpoints", "own_code", "worker_start"].contains(&self.name)
    }
}

/// The kind of a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A disturbance outside the job falsifies the measurement. It ranks before other causes of equal worth.
    Validity,
    /// A bottleneck inside the job.
    Bottleneck,
    /// Nothing holds the job back.
    Healthy,
}

/// The jobs in which a cause can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// On any device.
    Any,
    /// On a GPU only; the rule has not run on a GPU yet.
    Gpu,
    /// In jobs of several ranks.
    Ranks,
}

/// A number that a signature compares with.
#[derive(Debug)]
pub struct Threshold {
    /// A description of the compared quantity.
    pub what: &'static str,
    /// The number.
    pub value: f64,
    /// The source of the number.
    pub source: &'static str,
}

/// Makes [`Threshold`]s from rows: the name, the number, the compared quantity, and the source of the number.
macro_rules! thresholds {
    ($($(#[$doc:meta])* $name:ident = $value:expr => $what:literal, $source:expr;)*) => {$(
        $(#[$doc])*
        pub(in crate::diagnosis) static $name: $crate::diagnosis::Threshold =
            $crate::diagnosis::Threshold { what: $what, value: $value, source: $source };
    )*};
}
pub(super) use thresholds;

/// A remedy that is not a parameter.
#[derive(Debug, Serialize)]
pub struct Cure {
    /// The action to take.
    pub what: &'static str,
    /// Why the action helps and a parameter does not.
    pub why: &'static str,
    /// Returns true if the remedy applies to the job.
    #[serde(skip)]
    pub applies: fn(&Evidence) -> bool,
}

/// Makes the table `CAUSES` of a file from rows. The function of a cause has its name. A remedy says what to do, why it helps, and in
/// which jobs; the default is all jobs.
macro_rules! causes {
    ($($name:ident ($kind:ident, $scope:ident): $title:literal;
        about $about:literal;
        signature $signature:literal;
        thresholds [$($threshold:ident),*];
        $(opens [$($opens:literal),* $(,)?];)?
        cures {$($what:literal: $why:literal $(, if $applies:expr)?;)*}
    )*) => {
        pub(in crate::diagnosis) static CAUSES: &[$crate::diagnosis::Cause] = &[$($crate::diagnosis::Cause {
            name: stringify!($name),
            title: $title,
            about: $about,
            signature: $signature,
            thresholds: &[$(&$threshold),*],
            kind: $crate::diagnosis::Kind::$kind,
            scope: $crate::diagnosis::Scope::$scope,
            find: $name,
            opens: &[$($($opens),*)?],
            cures: &[$($crate::diagnosis::Cure { what: $what, why: $why, applies: causes!(@applies $($applies)?) }),*],
        }),*];
    };
    (@applies) => { |_| true };
    (@applies $applies:expr) => { $applies };
}
pub(super) use causes;

/// The finding of a signature.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// The evidence for and against the cause.
    pub clues: Vec<Clue>,
    /// The gain from removing the cause.
    pub worth: Worth,
}

/// One piece of evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Clue {
    /// The observation, with its numbers.
    pub text: String,
    /// The contribution to the confidence in the cause, from -1 to 1; negative for evidence against the cause.
    pub weight: f64,
}

/// The gain from removing a cause.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Worth {
    /// The highest possible speedup of the job; `None` if it cannot be known.
    pub times: Option<f64>,
    /// The basis of `times`.
    pub basis: Basis,
    /// The expected speedup from parameters alone.
    pub by_parameters: Option<f64>,
    /// The origin of the number in words.
    pub words: String,
}

/// The basis of a worth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// A differential probe measured it.
    Measured,
    /// It was computed from seconds, shares or counts of the observed probe.
    Estimated,
    /// It is not known.
    #[default]
    NotMeasured,
}

impl Worth {
    pub(super) fn measured(times: f64, words: impl Into<String>) -> Self {
        Self { times: sensible(times), basis: Basis::Measured, by_parameters: None, words: words.into() }
    }

    pub(super) fn estimated(times: f64, words: impl Into<String>) -> Self {
        Self { times: sensible(times), basis: Basis::Estimated, by_parameters: None, words: words.into() }
    }

    pub(super) fn unknown(words: impl Into<String>) -> Self {
        Self { words: words.into(), ..Self::default() }
    }

    /// Returns the larger of this worth and the speedup that a differential probe measured.
    pub(super) fn or_more(self, times: f64, by: &str) -> Self {
        if self.times.is_some_and(|known| known >= times) {
            return self;
        }
        let words = format!("{}; {by}: {} as fast", self.words, shown_times(times));
        Self { times: sensible(times), basis: Basis::Measured, words, ..self }
    }

    /// Adds the expected speedup from parameters alone, at most the whole worth.
    pub(super) fn by_parameters(mut self, times: Option<f64>) -> Self {
        let most = self.times.unwrap_or(f64::INFINITY);
        self.by_parameters = times.and_then(sensible).map(|times| times.min(most));
        self
    }
}

/// The strength of a piece of evidence.
///
/// There are only five levels, because a number for each piece of evidence would look measured. Each level counts as several hints.
/// So only the doubt that a hint leaves is a free number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strength {
    /// Shown for information; adds no confidence.
    Told,
    /// Occurs with the cause, and as often with other causes.
    Hint,
    /// Typical of the cause: two hints.
    Sign,
    /// Typical of the cause and of hardly anything else: three hints.
    Strong,
    /// A measurement that means the cause: as much as two strong pieces.
    Proof,
}

impl Strength {
    /// The doubt that a hint leaves. Own choice: with 0.75, a proof and a hint leave a doubt of an eighth, and two signs a third.
    const LEFT: f64 = 0.75;

    /// The contribution to the confidence in a cause, from 0 to 1.
    pub(super) const fn weight(self) -> f64 {
        let mut hints = match self {
            Self::Told => 0,
            Self::Hint => 1,
            Self::Sign => 2,
            Self::Strong => 3,
            Self::Proof => 6,
        };
        let mut doubt = 1.0;
        while hints > 0 {
            doubt *= Self::LEFT;
            hints -= 1;
        }
        1.0 - doubt
    }

    /// Returns the next stronger level if a share of the time is at least [`LARGE`].
    pub(super) fn raised(self, share: f64) -> Self {
        match self {
            _ if share < LARGE.value => self,
            Self::Told => Self::Hint,
            Self::Hint => Self::Sign,
            Self::Sign => Self::Strong,
            Self::Strong | Self::Proof => Self::Proof,
        }
    }
}

/// The smallest share of the time that counts as a loss, in most signatures.
pub(super) const MODERATE: f64 = 0.05;
thresholds! {
    /// The smallest share of the time that counts as a large loss, which is stronger evidence.
    LARGE = 0.2 => "share of the time from which on a loss is large",
        "TensorFlow's input-pipeline analyzer: from 20 % of a step on a program is `highly` input-bound";
}

/// Returns the speedup of a job that saves this share of its time.
pub(super) fn times_without(share: f64) -> f64 {
    /// A guard: no measured part takes all of the time.
    const MOST: f64 = 0.99;
    1.0 / (1.0 - share.clamp(0.0, MOST))
}

pub(super) fn saved_by(times: f64) -> f64 {
    1.0 - 1.0 / times.max(1.0)
}

/// Returns the speedup, cut to a sensible range; `None` if it is not finite.
fn sensible(times: f64) -> Option<f64> {
    /// A guard against division by nearly zero: no cause slows a job down a thousandfold.
    const MOST: f64 = 1000.0;
    times.is_finite().then(|| times.clamp(1.0, MOST))
}

impl Found {
    pub(super) fn new(worth: Worth) -> Self {
        Self { clues: Vec::new(), worth }
    }

    /// Makes a finding whose first piece of evidence is the origin of its worth.
    pub(super) fn by(worth: Worth, strength: Strength) -> Self {
        let clue = Clue { text: worth.words.clone(), weight: strength.weight() };
        Self { clues: vec![clue], worth }
    }

    pub(super) fn add(&mut self, strength: Strength, text: impl Into<String>) {
        self.clues.push(Clue { text: text.into(), weight: strength.weight() });
    }

    pub(super) fn add_known(&mut self, strength: Strength, text: Option<impl Into<String>>) {
        text.into_iter().for_each(|text| self.add(strength, text));
    }

    pub(super) fn against(&mut self, strength: Strength, text: impl Into<String>) {
        self.clues.push(Clue { text: text.into(), weight: -strength.weight() });
    }

    /// Returns the confidence in the cause, from 0 to 1.
    ///
    /// Pieces of evidence count as independent, so the remaining doubt is the product of the doubts that they leave. This is a
    /// noisy-or (Pearl, "Probabilistic Reasoning in Intelligent Systems", 1988, section 4.3.2). Evidence against the cause then
    /// reduces the result by its weight.
    pub fn sureness(&self) -> f64 {
        let (mut doubt, mut kept) = (1.0, 1.0);
        for clue in self.clues.iter().filter(|clue| clue.weight.is_finite()) {
            if clue.weight >= 0.0 {
                doubt *= 1.0 - clue.weight;
            } else {
                kept *= 1.0 + clue.weight;
            }
        }
        (1.0 - doubt) * kept
    }
}

/// Formats a factor: `1.8x`.
pub(super) fn shown_times(times: f64) -> String {
    if times >= 9.95 { format!("{times:.0}x") } else { format!("{times:.1}x") }
}

/// Formats a share: `34 %`.
pub(super) fn shown_share(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Describes the gain of a differential probe in words.
pub(super) fn shown_gain(evidence: &Evidence, differential: Differential, times: f64) -> String {
    let rate = evidence
        .rate_of(differential)
        .map_or_else(String::new, |rate| format!(" ({})", evidence.shown_rate(rate.value)));
    format!("{} ran {} as fast as the job{rate}", differential.row().label, shown_times(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_adds_up_and_doubt_takes_off() {
        let mut found = Found::new(Worth::unknown("no probe"));
        assert_eq!(found.sureness(), 0.0);
        found.add(Strength::Told, "beside");
        assert_eq!(found.sureness(), 0.0);
        found.add(Strength::Sign, "one");
        found.add(Strength::Hint, "another");
        assert_eq!(found.sureness(), Strength::Strong.weight(), "three hints");
        found.against(Strength::Hint, "but");
        assert!((found.sureness() - 0.75 * Strength::Strong.weight()).abs() < 1e-12);
        found.clues.push(Clue { text: "nonsense".to_owned(), weight: f64::NAN });
        assert!((found.sureness() - 0.75 * Strength::Strong.weight()).abs() < 1e-12);
    }

    #[test]
    fn a_large_share_makes_a_piece_of_evidence_the_next_stronger_one() {
        let all = [Strength::Told, Strength::Hint, Strength::Sign, Strength::Strong, Strength::Proof];
        for (at, strength) in all.into_iter().enumerate() {
            assert_eq!(strength.raised(0.1), strength);
            assert_eq!(strength.raised(0.3), all[(at + 1).min(4)]);
            assert!(at == 0 || strength.weight() > all[at - 1].weight());
        }
    }

    #[test]
    fn worth_is_a_sensible_factor_and_parameters_bring_no_more() {
        assert_eq!(Worth::measured(0.8, "").times, Some(1.0));
        assert_eq!(Worth::estimated(f64::INFINITY, "").times, None);
        assert_eq!(Worth::measured(2.0, "").by_parameters(Some(3.0)).by_parameters, Some(2.0));
        assert_eq!(Worth::unknown("").by_parameters(Some(3.0)).by_parameters, Some(3.0));
    }
}
