//! Turns `[space]` and `[[rules]]`, with what they import, into a [`Space`].

use super::collected::Collected;
use super::error::{SourceFile, SpecError};
use super::file::{RuleTable, SpaceTable, StepTable};
use super::hardware::{self, LeftOut};
use super::located::Located;
use super::{apply, places};
use crate::machine::Hardware;
use crate::model::Space;
use crate::probe::adapter::Applied;

/// Builds the space of a spec's tables, with what its parameters are applied to, and what the hardware lacks.
pub(super) fn build(
    file: &SourceFile,
    table: &Located<SpaceTable>,
    rules: &[RuleTable],
    step: &StepTable,
    detect: &dyn Fn() -> Option<Hardware>,
) -> Result<(Space, Vec<Applied>, Vec<LeftOut>), SpecError> {
    let mut collected = Collected::default();
    collected.add(file, &table.value, rules)?;
    let applied = apply::resolve(&mut collected, step)?;
    let left_out = hardware::fit(&mut collected, &applied, step, detect)?;
    let place = |error| places::mistake(&collected, file, &table.span, &error);
    let space = collected.builder(&(0..collected.rules.len()).collect::<Vec<_>>())?.build().map_err(place)?;
    space.try_expressions().map_err(place)?;
    if space.is_empty() {
        return Err(collected.nothing_allowed(file, table, &space));
    }
    apply::check_settings(&collected, &space, &applied)?;
    Ok((space, applied, left_out))
}
