//! Watches the GPUs while a probe runs: their activity in the measured time, and other programs that disturbed them.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use super::classify;
use super::measuring::throughput::Throughput;
use super::timeline::Timeline;
use crate::machine::{
    GpuMeter, GpuState,
    nvml::{Metered, NoNvml, Visible, Window},
};
use crate::model::{Failure, GpuUse, Measurement, Metric, Outcome, metric::together};

/// Watches the GPUs of one probe, if the machine has a meter.
pub(super) struct GpuWatch {
    meter: Option<Result<&'static GpuMeter, &'static NoNvml>>,
    begin: Instant,
    metered: Option<Metered>,
    /// The request of [`Self::live`] whose answer is pending: its time span, and the channel of the answer.
    asked: Option<(Window, Receiver<Result<Metered, String>>)>,
    looks: Vec<Look>,
}

/// The combined readings of all GPUs over some seconds.
#[derive(Debug)]
struct Look {
    window: Window,
    told: BTreeMap<Metric, f64>,
}

impl Look {
    fn of(window: Window, gpus: &[GpuUse]) -> Self {
        let number = |metric: Metric| {
            let all = together(gpus, metric)?;
            Some((metric, if metric == Metric::MemoryOwn { all.most } else { all.mean }))
        };
        Self { window, told: Timeline::OF_GPUS.into_iter().filter_map(number).collect() }
    }

    fn middle(&self) -> Instant {
        self.window.begin + self.window.end.saturating_duration_since(self.window.begin) / 2
    }
}

impl GpuWatch {
    pub(super) fn none() -> Self {
        Self { meter: None, begin: Instant::now(), metered: None, asked: None, looks: Vec::new() }
    }

    /// Watches for a probe of `root` and its descendants. `idle` is the state of the GPUs before the probe.
    pub(super) fn begin(visible: &Visible, root: u32, idle: GpuState, begin: Instant) -> Self {
        let meter = GpuMeter::shared();
        if let Ok(meter) = meter {
            meter.begin(visible, root, idle);
        }
        Self { meter: Some(meter), begin, metered: None, asked: None, looks: Vec::new() }
    }

    /// Returns the answer to the request before, if it has arrived. Then requests the GPUs' activity between two
    /// moments, without waiting. Returns `None` and requests nothing while an answer is pending.
    pub(super) fn live(&mut self, from: Instant, to: Instant) -> Option<Vec<GpuUse>> {
        let meter = self.meter?.ok()?;
        let answer = match self.asked.as_ref().map(|(window, answer)| (*window, answer.try_recv())) {
            // The answer is still pending.
            Some((_, Err(TryRecvError::Empty))) => return None,
            Some((window, Ok(answer))) => answer.ok().map(|metered| (window, metered.gpus)),
            Some((_, Err(TryRecvError::Disconnected))) | None => None,
        };
        let window = Window { begin: from.max(self.begin), end: to };
        self.asked = meter.ask_now(window).map(|answer| (window, answer));
        let (window, gpus) = answer?;
        self.looks.push(Look::of(window, &gpus));
        Some(gpus)
    }

    /// Returns the combined readings of all GPUs whose time span is nearest to a moment and contains it.
    pub(super) fn around(&self, moment: Instant) -> Option<&BTreeMap<Metric, f64>> {
        let distance = |look: &Look| {
            let middle = look.middle();
            middle.saturating_duration_since(moment).max(moment.saturating_duration_since(middle))
        };
        let covers = |look: &&Look| (look.window.begin..=look.window.end).contains(&moment);
        self.looks.iter().filter(covers).min_by_key(|look| distance(look)).map(|look| &look.told)
    }

    pub(super) fn look(&self) {
        if let Some(Ok(meter)) = self.meter {
            meter.look();
        }
    }

    /// Adds the GPUs' activity to the measurement, or returns `Disturbed`.
    pub(super) fn measured(&mut self, mut measurement: Measurement, throughput: &Throughput) -> Outcome {
        let (begin, end) = throughput.span(self.begin);
        match self.end(Window { begin, end }) {
            None => {}
            Some(Err(reason)) => {
                let nothing = vec![format!("SM activity and all else: {reason}")];
                measurement.machine.gpus = vec![GpuUse { absent: nothing, ..GpuUse::default() }];
            }
            Some(Ok(metered)) if metered.disturbances.is_empty() => measurement.machine.gpus = metered.gpus,
            Some(Ok(metered)) => return Outcome::Disturbed(Failure::new(metered.disturbances.join("; "))),
        }
        Outcome::Measured(measurement)
    }

    /// Stops watching. Returns the disturbances of the GPUs since the probe began.
    pub(super) fn disturbances(&mut self) -> Vec<String> {
        match self.end(Window { begin: self.begin, end: Instant::now() }) {
            Some(Ok(metered)) => metered.disturbances,
            _ => Vec::new(),
        }
    }

    /// Adds the driver's errors to the outcome if the probe failed.
    pub(super) fn explained(&mut self, outcome: Outcome) -> Outcome {
        let metered = self.end(Window { begin: self.begin, end: Instant::now() });
        let xids = metered.and_then(Result::ok).map(|metered| metered.xids).filter(|xids| !xids.is_empty());
        classify::explained(outcome, |_| xids.map(|xids| format!("the driver reported {}", xids.join(", "))))
    }

    /// Stops watching, and returns the use in a time span. Later calls return the same, whatever their time span.
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
