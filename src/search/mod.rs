//! The loop of a search: what to probe next, when to stop, which config is best, and the files that keep it all.
//!
//! Start with [`tuner`]; [`strategy`] proposes configs, [`study`] judges them, [`journal`] keeps them.

pub mod budget;
pub mod environment;
pub mod journal;
pub mod kept;
pub mod numerics;
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
pub use study::{Alternatives, Best, Confirmed, OnFront, Part, Ranked, Study, Verdict};
pub use tuner::{TuneError, Tuner};
