//! The data model of the crate: a space and its configs, the outcome and measurement of a probe, and the objective. This
//! module opens no files and starts no processes.
//!
//! Start with [`space`] (the configs to try), then [`outcome`] and `measurement` (the result of a probe) and [`objective`]
//! (the better result). A metric or a fact is a row in a table: [`metric`], [`fact`].

mod account;
pub mod arrival;
mod estimate;
pub mod event;
mod exchange;
mod exhaustion;
pub mod fact;
mod flaw;
mod growth;
mod line;
mod measurement;
pub mod metric;
pub mod objective;
pub mod outcome;
pub mod precision;
pub mod quantity;
mod run_length;
mod slot;
pub mod space;
mod spent;
pub mod trial;

pub use account::Account;
pub use estimate::Estimate;
pub use event::{DeviceReadings, Event, Progress};
pub use exchange::Exchange;
pub use fact::{FACTS, Fact, Facts};
pub use growth::{Growth, Resource};
pub use line::{Line, settings_of};
pub use measurement::{
    EpochEnd, FLOPS, InRound, MachineUse, Measurement, MemoryUse, Numerics, Outliers, SAMPLES_PER_SECOND,
    STEPS_PER_SECOND, Timing,
};
pub(crate) use metric::Together;
pub use metric::{GpuUse, METRICS, Metric, Reading, Readings, Source, Unit};
pub use objective::front;
pub use objective::{
    COST, Constraint, ConstraintError, Direction, Goal, Headroom, Judgement, Objective, ObjectiveError, OnTie, Price,
};
pub use outcome::{Failure, Memory, Outcome};
pub use precision::{PRECISIONS, Precision, PrecisionFacts};
pub use run_length::{RunLength, RunLengthError};
pub use slot::Slot;
pub use space::{
    AS_IT_IS, Advance, Config, Count, Derived, Expression, ExpressionError, FUNCTIONS, LocateError, MemoryRole, Owner,
    Parameter, Permutation, Role, Settings, Shape, Space, SpaceBuilder, SpaceError, Value, Walk,
};
pub use spent::Spent;
pub use trial::{History, Purpose, Trial, wall_time};
