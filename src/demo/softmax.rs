//! The cross-entropy loss of a batch and its gradient.

use super::scalar::Scalar;
use super::shape::CLASSES;

/// Returns the mean loss and writes its gradient, times the loss scale, to `gradient`.
pub(super) fn cross_entropy<S: Scalar>(logits: &[S], labels: &[u8], gradient: &mut [S]) -> f64 {
    let share = S::LOSS_SCALE / labels.len() as f32;
    let mut loss = 0.0;
    let rows = logits.chunks_exact(CLASSES).zip(gradient.chunks_exact_mut(CLASSES));
    for ((logits, gradient), &label) in rows.zip(labels) {
        let mut values = [0.0; CLASSES];
        S::load(logits, &mut values);
        let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let label = usize::from(label);
        let label_logit = f64::from(values[label] - largest);
        values = values.map(|value| (value - largest).exp());
        let sum: f32 = values.iter().sum();
        loss += f64::from(sum).ln() - label_logit;
        values = values.map(|value| value / sum * share);
        values[label] -= share;
        S::store(&values, gradient);
    }
    loss / labels.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_logits_lose_the_logarithm_of_the_classes() {
        let mut gradient = [0.0_f32; 2 * CLASSES];
        let loss = cross_entropy(&[3.0; 2 * CLASSES], &[0, 1], &mut gradient);
        assert!((loss - (CLASSES as f64).ln()).abs() < 1e-6);
        assert!((gradient[0] - (0.125 - 1.0) / 2.0).abs() < 1e-6);
        assert!((gradient[1] - 0.125 / 2.0).abs() < 1e-6);
    }

    #[test]
    fn huge_logits_stay_finite() {
        let mut logits = [0.0_f32; CLASSES];
        logits[2] = 1e30;
        let mut gradient = [0.0; CLASSES];
        assert_eq!(cross_entropy(&logits, &[2], &mut gradient), 0.0);
        assert!(gradient.iter().all(|value| value.is_finite()));
    }
}
