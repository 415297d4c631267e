//! The terms of the domain: spaces and configs, how a probe ends and what it measured, and what "better" means. It uses
//! no files and no processes.
//!
//! Start with [`space`], then [`outcome`] and [`objective`].

pub mod arrival;
pub mod event;
pub mod fact;
mod line;
pub mod metric;
pub mod objective;
pub mod outcome;
pub mod precision;
pub mod quantity;
pub mod space;
pub mod trial;

pub use event::{DeviceReadings, Event, Progress};
pub use fact::{FACTS, Fact, Facts};
pub use line::{Line, settings_of};
pub(crate) use metric::Together;
pub use metric::{GpuUse, METRICS, Metric, Reading, Readings, Source, Unit};
pub use objective::front;
pub use objective::{
    COST, Constraint, ConstraintError, Direction, Goal, Headroom, Judgement, Objective, ObjectiveError, OnTie, Price,
};
pub use outcome::{
    Estimate, FLOPS, Failure, Measurement, Memory, Numerics, Outcome, Outliers, SAMPLES_PER_SECOND, STEPS_PER_SECOND,
};
pub use precision::{PRECISIONS, Precision, PrecisionFacts};
pub use space::{
    AS_IT_IS, Advance, Config, Count, Derived, Expression, ExpressionError, FUNCTIONS, LocateError, MemoryRole, Owner,
    Parameter, Permutation, Role, Settings, Shape, Space, SpaceBuilder, SpaceError, Value, Walk,
};
pub use trial::{History, Purpose, Trial};
