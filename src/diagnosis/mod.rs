//! What a training job waits for, how sure that is, what it is worth, and what helps.
//!
//! [`Evidence`] is what an observed probe, [differential probes](Differential) and the machine tell. Each [`Cause`] of the
//! table has a signature over it. What is found is ranked by what it is worth. [`of`] does that for a single measurement,
//! and [`Session`] runs the probes. `docs/diagnosis.md` has the method and the table.

mod cache;
mod cause;
mod causes;
mod evidence;
mod openings;
mod plan;
#[cfg(test)]
pub(crate) mod sample;
mod search;
mod session;
mod starvation;
mod verdict;

pub use cause::{Basis, Cause, Clue, Cure, Found, Kind, Scope, Threshold, Worth};
pub use causes::{cause, causes};
pub use evidence::{Around, DIFFERENTIALS, Differential, DifferentialRow, Evidence, Gain, Ran};
pub use openings::{Openable, Opening, PARAMETERS, openable};
pub use plan::{Allowed, Next, experiment, next};
pub use search::{evidence_of, first_parameters, of_config, opens};
pub use session::{Examined, Note, Session, SessionError};
pub use verdict::{Diagnosed, SURE, Verdict, diagnose};

use crate::model::Measurement;

/// The diagnosis of a single measurement: what it tells by itself, without differential probes.
pub fn of(measurement: &Measurement, around: Around) -> Verdict {
    diagnose(&Evidence::of(measurement, around))
}
