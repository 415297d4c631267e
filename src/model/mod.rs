//! The data model of the crate: a space and its configs, the outcome and measurement of a probe, and the objective. This
//! module opens no files and starts no processes.
//!
//! Start with [`space`] (the configs to try), then [`outcome`] and `measurement` (the result of a probe) and
//! [`objective`] (which of two results is better). A metric or a fact is a row in a table: [`metric`], [`fact`].

/// Makes conversions into the variants of an enum.
macro_rules! from {
    ($enum:ident: $($type:ty => $variant:ident),*) => {
        $(impl From<$type> for $enum {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}

/// Makes an enum from rows: the variant, its words in the output, and its meaning.
macro_rules! worded {
    ($(#[$meta:meta])* pub enum $enum:ident { $($variant:ident = $words:literal: $meaning:literal;)* }) => {
        $(#[$meta])*
        pub enum $enum {
            $(#[doc = $meaning] $variant,)*
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$variant => $words),* })
            }
        }
    };
}
pub(crate) use worded;

mod account;
pub mod arrival;
pub mod event;
pub mod fact;
mod measurement;
pub mod metric;
pub mod objective;
pub mod outcome;
pub mod precision;
pub mod quantity;
pub mod space;
pub mod trial;
mod warnings;

pub use account::{Account, Spent};
pub use event::{DeviceReadings, Event, Progress};
pub use fact::{FACTS, Fact, Facts};
pub use measurement::{
    EVALUATION, EpochEnd, Exchange, FLOPS, Growth, HANDED_OUT, InRound, MachineUse, Measurement, MemoryUse, Numerics,
    Outliers, Resource, SAMPLES_PER_SECOND, STEPS_PER_SECOND, Timing,
};
pub(crate) use metric::Together;
pub use metric::{Estimate, GpuUse, METRICS, Metric, Reading, Readings, Source, Unit};
pub use objective::{
    COST, Constraint, ConstraintError, Direction, Goal, Headroom, Judgement, Objective, ObjectiveError, OnTie, Price,
    front,
};
pub use outcome::{Failure, Memory, Outcome};
pub use precision::{PRECISIONS, Precision, PrecisionFacts};
pub use quantity::RunLength;
pub use space::{
    AS_IT_IS, Advance, Config, Count, Derived, Expression, ExpressionError, FUNCTIONS, LocateError, MemoryRole, Owner,
    Parameter, Permutation, Role, Settings, Shape, Space, SpaceBuilder, SpaceError, Value, Walk,
};
pub use trial::{History, Line, Purpose, Slot, Trial, settings_of, wall_time};
