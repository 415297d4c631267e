//! Finds out what a training job waits for, how sure that is, what a cure is worth, and what helps.
//!
//! [`Evidence`] has what an observed probe, [differential probes](Differential) and the machine report. Each [`Cause`]
//! of the table has a signature that checks the evidence. Causes that are found are ranked by what they are worth.
//! [`of`] does that for a single measurement, and [`Session`] runs the probes. `docs/diagnosis.md` has the method and
//! the table.

mod account;
mod cache;
mod cause;
mod causes;
mod evidence;
mod exposed;
mod lines;
mod openings;
mod plan;
mod reach;
#[cfg(test)]
pub(crate) mod sample;
mod scaling;
mod search;
mod session;
mod starvation;
mod verdict;

pub use account::{Account, BRANCHES, Branch, BranchRow, Leaf};
pub use cause::{Basis, Cause, Clue, Cure, Found, Kind, Scope, Threshold, Worth};
pub use causes::{cause, causes};
pub use evidence::{Around, DIFFERENTIALS, Differential, DifferentialRow, Evidence, Gain, Ran};
pub use exposed::{Exposed, exchange, is_about_exchange};
pub use lines::{Line, Place, Seat, host_lines, lines, lines_of};
pub use openings::{Openable, Opening, PARAMETERS, openable};
pub use plan::{Allowed, Next, experiment, next};
pub use reach::out_of_reach;
pub use search::{evidence_of, first_parameters, of_config, opens};
pub use session::{Examined, Note, Session, SessionError};
pub use verdict::{Diagnosed, SURE, Verdict, diagnose};

use crate::model::Measurement;

/// Returns the diagnosis of a single measurement, without differential probes.
pub fn of(measurement: &Measurement, around: Around) -> Verdict {
    diagnose(&Evidence::of(measurement, around))
}
