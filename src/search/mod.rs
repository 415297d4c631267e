//! The loop of a search: it chooses the next config, decides when to end, finds the best config, and stores the results.
//!
//! Start with [`tuner`], the loop. A new [`strategy`] to propose configs is a file there and a row in its table. The [`study`]
//! draws conclusions from the trials, the [`journal`] stores them, and [`kept`] reads the folder of a search again.

pub mod budget;
pub mod environment;
pub mod journal;
pub mod kept;
pub mod numerics;
mod rounds;
pub mod status;
pub mod strategy;
pub mod study;
pub mod tuner;

pub use budget::{Budget, StopReason};
pub use journal::{Conditions, Fingerprint, Follower, Header, Journal, JournalError, Recovered, WarmStart};
pub use kept::{Kept, KeptError};
pub use numerics::FullPrecision;
pub use status::{BestSoFar, Ended, Running, Status, StatusFile, Watched};
pub use strategy::{Earlier, EarlierError, EarlierStudy, STRATEGIES, Strategy};
pub use study::{Ahead, Alternatives, Best, OnFront, Part, Ranked, SlotSeen, Study, Verdict, WholeRun};
pub use tuner::{Arrival, TuneError, Tuner};
