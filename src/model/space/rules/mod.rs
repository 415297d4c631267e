//! Finds the configs that the rules of a space allow: lists, counts and draws them with bounded work.
//!
//! Parameters that no condition, derived value or rule connects are independent, so each group of connected parameters is
//! handled alone. Bounded backtracking lists a group. A group that is too large to list is not counted, and its configs are
//! drawn by rejection: random settings, until the rules allow them.

mod ahead;
mod groups;
mod listing;
#[cfg(test)]
mod tests;

pub(super) use ahead::Ahead;
pub(super) use groups::Groups;
