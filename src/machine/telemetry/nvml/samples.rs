//! Reads the driver's own buffers of samples from time to time.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Sampling;
use nvml_wrapper::enums::device::SampleValue;

use super::ask::{Question, Told};

/// The most samples that are kept; the driver makes six to fifty a second.
const KEPT: usize = 1 << 14;

/// Samples of one kind; each covers the time since the previous sample.
#[derive(Debug)]
pub(super) struct Samples {
    kind: Sampling,
    /// The largest plausible number.
    largest: f64,
    question: Question,
    /// Microseconds since 1970, rising, and the number.
    kept: Vec<(u64, f64)>,
    failure: Option<String>,
}

impl Samples {
    pub(super) fn of(kind: Sampling, largest: f64) -> Self {
        Self { kind, largest, question: Question::default(), kept: Vec::new(), failure: None }
    }

    /// Takes the samples that the driver has gathered since the last time.
    pub(super) fn drain(&mut self, device: &Device<'_>) {
        let seen = self.kept.last().map(|(time, _)| *time);
        let kind = self.kind;
        match self.question.ask(|| device.samples(kind, seen)) {
            Ok(samples) => {
                for sample in samples {
                    self.push(sample.timestamp, number(&sample.value));
                }
            }
            // The buffer of a device that has just been opened may still be empty.
            Err(failure) => self.failure = Some(failure),
        }
    }

    /// Adds a sample. Places that the driver has not filled have the time 0, and some samples come twice.
    fn push(&mut self, time: u64, number: f64) {
        let is_new = self.kept.last().is_none_or(|(last, _)| time > *last);
        if time == 0 || !is_new || !(0.0..=self.largest).contains(&number) {
            return;
        }
        if self.kept.len() >= KEPT {
            self.kept.drain(..KEPT / 2);
        }
        self.kept.push((time, number));
    }

    /// Returns the mean over a time span, in microseconds since 1970, with each sample weighted by the time that it
    /// covers.
    pub(super) fn mean(&self, from: u64, to: u64) -> Told<f64> {
        let (mut sum, mut covered) = (0.0, 0.0);
        for pair in self.kept.windows(2) {
            let ((before, _), (time, number)) = (pair[0], pair[1]);
            #[expect(clippy::cast_precision_loss, reason = "a short time")]
            let weight = time.min(to).saturating_sub(before.max(from)) as f64;
            sum += weight * number;
            covered += weight;
        }
        #[expect(clippy::cast_precision_loss, reason = "a short time")]
        let is_covered = covered * 2.0 >= to.saturating_sub(from) as f64 && covered > 0.0;
        match &self.failure {
            _ if is_covered => Ok(sum / covered),
            Some(failure) => Err(failure.clone()),
            None => Err("too few samples in the measured time".to_owned()),
        }
    }
}

pub(super) fn number(value: &SampleValue) -> f64 {
    match *value {
        SampleValue::F64(number) => number,
        SampleValue::U32(number) => f64::from(number),
        #[expect(clippy::cast_precision_loss, reason = "counters are compared over short times")]
        SampleValue::U64(number) => number as f64,
        #[expect(clippy::cast_precision_loss, reason = "counters are compared over short times")]
        SampleValue::I64(number) => number as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_counts_for_the_time_that_it_stands_for() {
        let mut samples = Samples::of(Sampling::GpuUtilization, 100.0);
        for (time, number) in [(0, 50.0), (1_000, 10.0), (2_000, 100.0), (2_000, 0.0), (5_000, 0.0), (6_000, 101.0)] {
            samples.push(time, number);
        }
        assert_eq!(samples.mean(1_000, 5_000), Ok(25.0));
        assert_eq!(samples.mean(1_500, 2_500), Ok(50.0));
        assert!(samples.mean(4_000, 9_000).is_err(), "most of it has no samples");
        assert!(Samples::of(Sampling::Power, 1e9).mean(0, 1).is_err());
    }
}
