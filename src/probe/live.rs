//! The devices' readings over the last seconds, for the display of a running probe.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::gpu_watch::GpuWatch;
use crate::model::{DeviceReadings, Readings};

/// How often the devices are asked. Their meters read them four times a second.
const EVERY: Duration = Duration::from_secs(1);

/// The time span that the displayed readings cover: short enough to show a change, long enough for several samples.
const SPAN: Duration = Duration::from_secs(3);

/// Caches the readings until the next are due.
pub(super) struct Live {
    next: Instant,
    latest: Arc<DeviceReadings>,
}

impl Live {
    pub(super) fn new(begin: Instant) -> Self {
        Self { next: begin + EVERY, latest: Arc::default() }
    }

    /// Returns the current readings without waiting. `host` returns the host's readings between two moments.
    pub(super) fn look(
        &mut self,
        now: Instant,
        host: impl FnOnce(Instant, Instant) -> Readings,
        gpu: Option<&mut GpuWatch>,
    ) -> Arc<DeviceReadings> {
        if now >= self.next {
            self.next = now + EVERY;
            let from = now.checked_sub(SPAN).unwrap_or(now);
            let gpus = gpu.and_then(|gpu| gpu.live(from, now));
            self.latest = Arc::new(DeviceReadings {
                host: host(from, now),
                gpus: gpus.unwrap_or_else(|| self.latest.gpus.clone()),
            });
        }
        Arc::clone(&self.latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Metric, Reading, Source};

    #[test]
    fn devices_are_asked_once_a_second() {
        let begin = Instant::now();
        let mut live = Live::new(begin);
        let mut asked = 0;
        for tenths in 0..35_u32 {
            let now = begin + Duration::from_millis(100) * tenths;
            let readings = live.look(
                now,
                |from, to| {
                    asked += 1;
                    assert_eq!((from, to), (now - SPAN, now));
                    [(Metric::CpuCores, Reading { value: 2.0, source: Source::Proc })].into()
                },
                None,
            );
            assert_eq!(readings.host.is_empty(), tenths < 10);
        }
        assert_eq!(asked, 3);
    }
}
