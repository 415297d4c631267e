//! The readings of probes under way, for proposals that do not wait for them.

use super::begun::Begun;
use super::search::Search;
use crate::model::Judgement;
use crate::probe::stats::median;
use crate::search::strategy::SoFar;

impl Search<'_, '_> {
    /// Returns the result so far of each probe under way, if the search is for throughput.
    ///
    /// First readings may come from a loader that still starts. With two workers on two cores, they showed a tenth of the final
    /// rate, to ±7%. So readings count from half of the usual probe time on.
    pub(super) fn so_far(&self) -> Vec<Option<SoFar>> {
        /// Half the width of the interval that another run falls into, as a share: runs are 1 to 7% apart.
        const BETWEEN_RUNS: f64 = 0.06;
        /// The number of last trials that show how long a probe takes. A round number.
        const LAST: usize = 16;
        let last = self.history.trials().iter().rev().take(LAST);
        let usual =
            median(&last.map(|trial| trial.elapsed.as_secs_f64()).collect::<Vec<f64>>()).unwrap_or(f64::INFINITY);
        let of_probe = |begun: &Begun| {
            let is_trained_as_it_will_be = begun.waits_for_exchange.is_none();
            let counts = is_trained_as_it_will_be
                && !begun.purpose.is_repeated()
                && begun.began.elapsed().as_secs_f64() >= usual / 2.0
                && self.objective.is_largest_throughput();
            let measurement = self.so_far.get(&begun.order.number).filter(|_| counts)?;
            let Judgement::Feasible(score) = self.objective.judge(measurement) else { return None };
            let half_width = measurement.throughput?.relative_half_width()?;
            Some(SoFar { score, half_width: half_width.hypot(BETWEEN_RUNS) })
        };
        self.begun().map(of_probe).collect()
    }
}
