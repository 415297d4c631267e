//! What rules leave: dead ends seen ahead, configs counted and drawn, and shown to be none where there are none.
//!
//! Each expression becomes a [term]; as parameters get values, what is left of it is simplified and its bounds decide
//! as soon as they can. Beginnings after which the same is left are looked at once, so that a sum is a walk over its
//! partial sums and an equation of products one over its factors (a decision diagram: Andersen, Hadzic, Hooker and
//! Tiedemann, "A constraint store based on multivalued decision diagrams", CP 2007).

mod bounds;
mod compile;
mod course;
mod diagram;
mod hash;
mod normal;
mod outlook;
mod sample;
mod syntax;
mod term;
#[cfg(test)]
mod tests;

pub(super) use outlook::{Amount, Outlook, Tracks};
