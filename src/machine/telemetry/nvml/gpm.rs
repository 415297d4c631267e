//! GPU performance monitoring (GPM): the activity of the multiprocessors between two samples.
//!
//! Only two samples show if a device supports GPM. The driver's own answer does not: virtual GPUs answer yes, but
//! sampling then fails (NVIDIA/dcgm-exporter #701).

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{GpmSample, Nvml};

use super::ask::{Question, Told, reason};
use super::list::Handle;
use crate::model::Metric;

const MIB: f64 = 1_048_576.0;

/// The requested metrics, with the factors from NVML's units to ours. NVML's units are percent, and MiB per second from
/// the GPU's view: received data comes from the host (nvml.h, `nvmlGpmMetricId_t`).
pub(super) const METRICS: &[(Metric, GpmMetricId, f64)] = &[
    (Metric::SmActive, GpmMetricId::SmUtil, 0.01),
    (Metric::SmOccupancy, GpmMetricId::SmOccupancy, 0.01),
    (Metric::TensorActive, GpmMetricId::AnyTensorUtil, 0.01),
    (Metric::DramActive, GpmMetricId::DramBwUtil, 0.01),
    (Metric::PcieReceived, GpmMetricId::PcieRxPerSec, MIB),
    (Metric::PcieSent, GpmMetricId::PcieTxPerSec, MIB),
    (Metric::NvlinkReceived, GpmMetricId::NvlinkTotalRxPerSec, MIB),
    (Metric::NvlinkSent, GpmMetricId::NvlinkTotalTxPerSec, MIB),
];

#[derive(Debug, Default)]
pub(super) struct Gpm {
    question: Question,
    is_proven: bool,
    failure: Option<String>,
}

impl Gpm {
    /// Takes a sample, unless sampling has proved useless.
    pub(super) fn sample(&mut self, nvml: &'static Nvml, handle: &Handle) -> Option<GpmSample<'static>> {
        // Samples must be freed, so the call that frees them must exist.
        if let Err(error) = &nvml.lib().nvmlGpmSampleFree {
            self.question.give_up(&reason(&NvmlError::FailedToLoadSymbol(error.to_string())));
        }
        let sample = match &handle.parent {
            None => self.question.ask(|| handle.device.gpm_sample()),
            Some((whole, Ok(instance))) => self.question.ask(|| whole.gpm_mig_sample(*instance)),
            Some((_, Err(reason))) => Err(reason.clone()),
        };
        match sample {
            Ok(sample) => {
                self.failure = None;
                Some(sample)
            }
            Err(reason) => {
                // If the first sample fails, so will the second.
                if !self.is_proven {
                    self.question.give_up(&reason);
                }
                self.failure = Some(reason);
                None
            }
        }
    }

    /// Checks that two samples give at least one number. If they give none, no more samples are taken.
    pub(super) fn prove(&mut self, nvml: &Nvml, first: &GpmSample<'static>, last: &GpmSample<'static>) {
        if self.is_proven {
            return;
        }
        let told = between(nvml, first, last);
        match told.iter().find_map(|(_, told)| told.as_ref().err()) {
            Some(reason) if told.iter().all(|(_, told)| told.is_err()) => self.question.give_up(reason),
            _ => self.is_proven = true,
        }
    }

    /// Returns the reason if there are no numbers.
    pub(super) fn failure(&self) -> Option<&str> {
        self.question.refusal().or(self.failure.as_deref())
    }
}

/// Returns the means between two samples, in our units.
pub(super) fn between(nvml: &Nvml, first: &GpmSample<'_>, last: &GpmSample<'_>) -> Vec<(Metric, Told<f64>)> {
    let ids: Vec<GpmMetricId> = METRICS.iter().map(|(_, id, _)| *id).collect();
    let told = match gpm_metrics_get(nvml, first, last, &ids) {
        Ok(told) => told,
        Err(error) => return METRICS.iter().map(|(metric, ..)| (*metric, Err(reason(&error)))).collect(),
    };
    let in_our_unit = |(&(metric, _, unit), told): (&(Metric, GpmMetricId, f64), Result<_, NvmlError>)| {
        let value = told.map(|told: nvml_wrapper::struct_wrappers::gpm::GpmMetricResult| told.value);
        (metric, value.map_err(|error| reason(&error)).and_then(|value| sensible(value, unit)))
    };
    METRICS.iter().zip(told).map(in_our_unit).collect()
}

/// Checks a value in NVML's unit: NVML returns "not a number" for an unmeasured metric.
fn sensible(value: f64, unit: f64) -> Told<f64> {
    /// The largest share in percent: a share above 100 is possible since it refers to another clock. A round number.
    const MOST: f64 = 110.0;
    let is_share = unit < 1.0;
    if !value.is_finite() || value < 0.0 || is_share && value > MOST {
        return Err(format!("NVML says {value}"));
    }
    Ok(if is_share { (value * unit).min(1.0) } else { value * unit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_meaning_are_no_numbers() {
        assert_eq!(sensible(50.0, 0.01), Ok(0.5));
        assert_eq!(sensible(100.4, 0.01), Ok(1.0));
        assert_eq!(sensible(2.0, MIB), Ok(2_097_152.0));
        for value in [f64::NAN, f64::INFINITY, -1.0, 4e9] {
            assert!(sensible(value, 0.01).is_err(), "{value}");
        }
    }
}
