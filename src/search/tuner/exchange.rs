//! Measures what the exchange between ranks costs, next to the first measured probe. Parameters that affect only this exchange stay
//! closed if they could gain next to nothing.

use super::begun::Begun;
use super::order::Order;
use super::search::{OnEvent, Search};
use crate::diagnosis::{self, Differential, Evidence, Ran};
use crate::model::{Event, Exchange, Measurement, Outcome, Purpose};
use crate::probe::{Experiment, Mode};

impl Search<'_, '_> {
    /// Returns the probe without communication to compare a measured probe with; `None` if the job cannot train without it.
    pub(super) fn without_exchange(&self, begun: &Begun, measurement: &Measurement) -> Option<Order> {
        let evidence = Evidence::of(measurement, self.around.clone());
        let can_be_had = evidence.why_not_without_communication().is_none();
        let experiment = Some(Experiment::new(Mode::NoCommunication));
        can_be_had.then(|| Order { experiment, ..begun.order.clone() })
    }

    /// Returns the measurement with the cost of the exchange between ranks, and reports that cost.
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

    /// Returns true if this probe must measure the cost of the exchange between ranks: it is unknown, and no other probe measures
    /// it.
    pub(super) fn is_exchange_unknown(&self, purpose: Purpose) -> bool {
        let is_whole = matches!(purpose, Purpose::Baseline | Purpose::Search);
        let is_asked = self.begun().any(|other| other.waits_for_exchange.is_some());
        !self.exchanging.is_empty() && self.history.exchange().is_none() && is_whole && !is_asked
    }
}
