//! The GPUs while a probe runs: what they did in the measured time, and who disturbed them.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use super::throughput::Throughput;
use crate::metric::GpuUse;
use crate::outcome::{Failure, Measurement, Outcome};
use crate::telemetry::nvml::{Metered, NoNvml, Visible, Window};
use crate::telemetry::{GpuMeter, GpuState};

/// Watches the GPUs of one probe, where there is a meter.
pub(super) struct GpuWatch {
    meter: Option<Result<&'static GpuMeter, &'static NoNvml>>,
    /// When the probe began.
    begin: Instant,
    metered: Option<Metered>,
    /// The answer to a question that was asked without waiting.
    asked: Option<Receiver<Result<Metered, String>>>,
}

impl GpuWatch {
    /// Of a device that has none.
    pub(super) fn none() -> Self {
        Self { meter: None, begin: Instant::now(), metered: None, asked: None }
    }

    /// Of a probe whose processes are `root` and all below it; `idle` is what was in use before it.
    pub(super) fn begin(visible: &Visible, root: u32, idle: GpuState, begin: Instant) -> Self {
        let meter = GpuMeter::shared();
        if let Ok(meter) = meter {
            meter.begin(visible, root, idle);
        }
        Self { meter: Some(meter), begin, metered: None, asked: None }
    }

    /// What the GPUs did between two moments, as it was when it was asked for last; asks anew, without waiting. None where
    /// there is no answer yet.
    pub(super) fn live(&mut self, from: Instant, to: Instant) -> Option<Vec<GpuUse>> {
        let meter = self.meter?.ok()?;
        let answer = match self.asked.as_ref().map(Receiver::try_recv) {
            // Still under way.
            Some(Err(TryRecvError::Empty)) => return None,
            Some(Ok(answer)) => answer.ok().map(|metered| metered.gpus),
            Some(Err(TryRecvError::Disconnected)) | None => None,
        };
        self.asked = meter.ask_now(Window { begin: from.max(self.begin), end: to });
        answer
    }

    /// Looks once more, while the processes are still there.
    pub(super) fn look(&self) {
        if let Some(Ok(meter)) = self.meter {
            meter.look();
        }
    }

    /// The measurement with what the GPUs did meanwhile, or `Disturbed`.
    pub(super) fn measured(&mut self, mut measurement: Measurement, throughput: &Throughput) -> Outcome {
        let end = self.begin + throughput.ended;
        let begin = end.checked_sub(throughput.measured).unwrap_or(self.begin);
        match self.end(Window { begin, end }) {
            None => {}
            Some(Err(reason)) => {
                let nothing = vec![format!("SM activity and all else: {reason}")];
                measurement.gpus = vec![GpuUse { absent: nothing, ..GpuUse::default() }];
            }
            Some(Ok(metered)) if metered.disturbances.is_empty() => measurement.gpus = metered.gpus,
            Some(Ok(metered)) => return Outcome::Disturbed(Failure::new(metered.disturbances.join("; "))),
        }
        Outcome::Measured(measurement)
    }

    /// The outcome, with the errors that the driver reported where the probe failed.
    pub(super) fn explained(mut self, mut outcome: Outcome) -> Outcome {
        let now = Instant::now();
        let metered = self.end(Window { begin: self.begin, end: now });
        if let Outcome::TimedOut(failure) | Outcome::Stalled(failure) | Outcome::Crashed(failure) = &mut outcome
            && let Some(Ok(metered)) = metered
            && !metered.xids.is_empty()
        {
            failure.reason += &format!("; the driver reported {}", metered.xids.join(", "));
        }
        outcome
    }

    /// Ends to watch; what is known then is known when it is asked for again.
    fn end(&mut self, window: Window) -> Option<Result<Metered, String>> {
        if let Some(metered) = &self.metered {
            return Some(Ok(metered.clone()));
        }
        let ended = match self.meter? {
            Ok(meter) => meter.end(window),
            Err(error) => Err(error.to_string()),
        };
        self.metered = ended.as_ref().ok().cloned();
        Some(ended)
    }
}
