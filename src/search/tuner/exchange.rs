//! Finds out beside the first measured probe what the exchange between ranks costs, so that parameters which are about nothing
//! else stay closed where they could gain next to nothing.

use super::begun::Begun;
use super::order::Order;
use super::search::{OnEvent, Search};
use crate::diagnosis::{self, Differential, Evidence, Ran};
use crate::model::{Event, Exchange, Measurement, Outcome, Purpose};
use crate::probe::{Experiment, Mode};

impl Search<'_, '_> {
    /// Returns the probe without communication that a measured one is to be compared with; `None` if nothing depends on that, or it
    /// is known.
    pub(super) fn without_exchange(&self, begun: &Begun, measurement: &Measurement) -> Option<Order> {
        let evidence = Evidence::of(measurement, self.around.clone());
        let can_be_had = evidence.why_not_without_communication().is_none();
        let experiment = Some(Experiment::new(Mode::NoCommunication));
        can_be_had.then(|| Order { experiment, ..begun.order.clone() })
    }

    /// Returns the measurement with what the exchange between ranks costs, and says it.
    pub(super) fn with_exchange(
        &self,
        measurement: Measurement,
        without: Option<Outcome>,
        on_event: OnEvent<'_>,
    ) -> Measurement {
        let mut evidence = Evidence::of(&measurement, self.around.clone());
        let failure = match &without {
            Some(Outcome::Measured(_)) | None => None,
            Some(Outcome::OutOfMemory { memory, .. }) => Some(format!("without it the {memory} memory is not enough")),
            Some(other) => Some(other.failure().map_or_else(|| other.name().to_owned(), |known| known.reason.clone())),
        };
        if let Some(Outcome::Measured(run)) = without {
            evidence.runs.push((Differential::NoCommunication, Ran::Measured(Box::new(run))));
        }
        let exchange: Exchange = diagnosis::exchange(&evidence, failure.as_deref(), self.exchanging);
        on_event(Event::Remark { text: &exchange.words });
        Measurement { exchange: Some(exchange), ..measurement }
    }

    /// Whether what there is to know of the exchange between ranks is to be kept with this probe.
    pub(super) fn is_exchange_unknown(&self, purpose: Purpose) -> bool {
        let is_whole = matches!(purpose, Purpose::Baseline | Purpose::Search);
        let is_asked = self.begun().any(|other| other.waits_for_exchange.is_some());
        !self.exchanging.is_empty() && self.history.exchange().is_none() && is_whole && !is_asked
    }
}
