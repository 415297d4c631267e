//! Diagnoses a training job: its bottleneck, the confidence in the bottleneck, the gain from removing it, and the
//! remedies.
//!
//! [`Evidence`] holds the observed probe, the [differential probes](Differential) and facts about the machine. Each
//! [`Cause`] of the table has a signature that checks the evidence. The causes found are ranked by worth (the possible
//! speedup) and confidence. [`diagnose`] judges the evidence; [`Session`] runs the probes. `docs/diagnosis.md`
//! describes the method, `docs/causes.md` lists the causes.

mod account;
mod cause;
mod causes;
mod evidence;
mod exposed;
mod lines;
mod openings;
mod plan;
#[cfg(test)]
pub(crate) mod sample;
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
pub use search::{evidence_of, opens, out_of_reach};
pub use session::{Examined, Note, Session, SessionError};
pub use verdict::{Diagnosed, SURE, Verdict, diagnose};
