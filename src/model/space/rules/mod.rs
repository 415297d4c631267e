//! Reasons about rules: sees dead ends ahead, counts and draws configs, and proves that there are none.
//!
//! Each expression becomes a [term]. As parameters get values, the term is simplified, and its bounds decide as early
//! as they can. Beginnings of configs after which the same rules are left are treated as one, so a sum is handled as a
//! walk over its partial sums and a product over its factors (a decision diagram: Andersen, Hadzic, Hooker and
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
