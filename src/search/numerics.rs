//! Checks if a config still computes the same as full precision, by comparing the losses of the same first steps.

use crate::model::{Numerics, Settings, Space, Value};
use crate::probe::stats;

/// The fewest losses that can be compared: a round number. Only the second half of the losses counts, so two of four.
pub(crate) const FEWEST: usize = 4;

/// The settings that change the numerical results, with their values in full precision.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct FullPrecision {
    /// The parameters that change the numerical results, each with its value in full precision.
    reference: Vec<(String, Value)>,
    /// Parameters that change neither the results nor the data.
    neutral: Vec<String>,
}

impl FullPrecision {
    /// Takes the parameters that change the numerical results, each with its value in full precision. This value need
    /// not be in the space.
    pub fn new(reference: impl IntoIterator<Item = (String, Value)>) -> Self {
        Self { reference: reference.into_iter().collect(), neutral: Vec::new() }
    }

    /// Adds parameters that change neither the results nor the data, such as pinned memory. Configs that differ only in these
    /// parameters have the same losses.
    pub fn neutral(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.neutral.extend(names);
        self
    }

    /// Adds the parameters of a space that state their value in full precision. These statements take precedence.
    pub fn with_space(mut self, space: &Space) -> Self {
        for parameter in space.parameters() {
            if let Some(value) = parameter.in_full_precision() {
                self.reference.retain(|(name, _)| name != parameter.name());
                self.reference.push((parameter.name().to_owned(), value.clone()));
            }
        }
        self
    }

    /// Returns the same settings in full precision; `None` if they already are. A parameter that [keeps the job's own
    /// value](crate::model::AS_IT_IS) keeps the job's own numerics, which are not judged.
    pub fn of(&self, settings: &Settings, space: &Space) -> Option<Settings> {
        let changes: Vec<(&str, &Value)> = self
            .reference
            .iter()
            .filter(|(name, value)| {
                settings.get(name).is_some_and(|current| current != value && !current.is_as_it_is())
            })
            .map(|(name, value)| (name.as_str(), value))
            .collect();
        (!changes.is_empty()).then(|| settings.changed(&changes, space))
    }

    /// Returns true if two settings, both in full precision, take the same steps.
    pub fn same_steps(&self, a: &Settings, b: &Settings) -> bool {
        let counts = |(name, _): &(&str, &Value)| self.neutral.iter().all(|neutral| neutral != name);
        a.iter().filter(counts).eq(b.iter().filter(counts))
    }
}

pub(crate) fn compared(losses: &[f64], reference: Vec<f64>) -> Numerics {
    let drift = drift(losses, &reference);
    let not_compared = drift.is_none().then(|| "too few losses were reported".to_owned());
    Numerics { drift, reference_losses: reference, not_compared }
}

/// Returns how far losses are from the losses in full precision: 0 for no difference, infinity if a compared loss
/// is not finite.
///
/// The result is a mean over the second half of the common steps, since a drift shows there. Each difference is divided
/// by the loss in full precision, or by a tenth of the range of these losses if that is larger. Near a loss of zero,
/// rounding would otherwise look like a drift. Returns `None` for fewer than four steps, or if a loss in full precision
/// is not finite.
pub fn drift(losses: &[f64], reference: &[f64]) -> Option<f64> {
    let count = losses.len().min(reference.len());
    let (losses, reference) = (&losses[..count], &reference[..count]);
    if losses.iter().any(|loss| !loss.is_finite()) {
        return Some(f64::INFINITY);
    }
    if count < FEWEST || reference.iter().any(|loss| !loss.is_finite()) {
        return None;
    }
    let (low, high) =
        reference.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &loss| (low.min(loss), high.max(loss)));
    let least = ((high - low) / 10.0).max(f64::MIN_POSITIVE);
    let shares: Vec<f64> = losses
        .iter()
        .zip(reference)
        .skip(count / 2)
        .map(|(loss, reference)| (loss - reference).abs() / reference.abs().max(least))
        .collect();
    stats::mean(&shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Expression, Parameter};

    fn space() -> Space {
        let parameters = [
            Parameter::values("precision", ["bf16", "fp16"]),
            Parameter::values("scaler", [true]).when(Expression::parse("precision == 'fp16'").unwrap()),
            Parameter::values("pin", [false, true]),
        ];
        Space::built(parameters, &[("half", "precision != 'fp32'")], &[]).unwrap()
    }

    #[test]
    fn full_precision_is_the_same_config_with_other_numerics() {
        let space = space();
        let full = FullPrecision::new([("precision".to_owned(), Value::from("fp32"))]).neutral(["pin".to_owned()]);
        let config = space.locate(&Settings::from_iter([("precision", "fp16")])).unwrap();
        let settings = space.settings(&config);
        assert_eq!(settings.line(), "precision=fp16 scaler=true pin=false half=true");
        let reference = full.of(&settings, &space).unwrap();
        assert_eq!(reference.line(), "precision=fp32 pin=false half=false");
        assert_eq!(full.of(&reference, &space), None);
        let pinned: Settings =
            [("precision", Value::from("fp32")), ("pin", true.into()), ("half", false.into())].into_iter().collect();
        assert!(full.same_steps(&reference, &pinned));
        assert!(!full.same_steps(&reference, &settings));
    }

    #[test]
    fn rounding_is_no_drift_a_wrong_loss_is_and_too_little_says_nothing() {
        let reference: Vec<f64> = (0..16).map(|step| 2.3 - 0.05 * f64::from(step)).collect();
        let off = |share: f64| reference.iter().map(|loss| loss * (1.0 + share)).collect::<Vec<_>>();
        assert!(drift(&off(0.004), &reference).unwrap() < 0.01);
        assert!(drift(&off(0.5), &reference).unwrap() > 0.1);
        assert_eq!(drift(&reference, &reference), Some(0.0));
        let near_zero = [1.0, 0.1, 1e-4, 1e-6];
        assert!(drift(&[1.0, 0.1, 2e-4, 3e-6], &near_zero).unwrap() < 0.01);
        assert_eq!(drift(&[1.0, f64::NAN, 1.0, 1.0], &[1.0; 4]), Some(f64::INFINITY));
        assert_eq!(drift(&[1.0; 3], &[1.0; 3]), None);
        assert_eq!(drift(&[1.0; 4], &[f64::NAN; 4]), None);
    }
}
