//! Reasons about rules: detects dead ends early, counts and draws configs, and proves that a space is empty.
//!
//! Each expression becomes a [term]. As parameters get values, the term is simplified, and its bounds decide it as early as
//! possible. Partial configs that leave the same rules are merged, so a sum is handled by its partial sums and a product by
//! its factors. This is a decision diagram (Andersen, Hadzic, Hooker and Tiedemann, "A constraint store based on multivalued
//! decision diagrams", CP 2007).

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
