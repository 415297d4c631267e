//! From `search.warm_start` to the earlier studies that it names.

use std::path::Path;

use super::error::{SourceFile, SpecError};
use super::file::SearchTable;
use crate::objective::Objective;
use crate::space::Space;
use crate::strategy::{EarlierStudy, LEARNING};

/// Reads the studies, and tries whether the search can learn from them.
pub(super) fn read(
    source: &SourceFile,
    table: &SearchTable,
    strategy: &str,
    space: &Space,
    objective: &Objective,
) -> Result<Vec<EarlierStudy>, SpecError> {
    let places = table.warm_start.as_deref().unwrap_or_default();
    if let Some(place) = places.first()
        && !LEARNING.contains(&strategy)
    {
        let message = format!("`{strategy}` does not learn from earlier studies");
        let hint = format!("take `warm_start` out, or choose the strategy {}", LEARNING.join(" or "));
        return Err(source.error(place.span.clone(), message, hint));
    }
    if let Some(place) = places.get(EarlierStudy::MOST) {
        let message = format!("a search learns from at most {} earlier studies", EarlierStudy::MOST);
        return Err(source.error(place.span.clone(), message, "keep those that are most alike"));
    }
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let studies = places.iter().map(|place| {
        let study = EarlierStudy::read(&folder.join(&place.value))
            .and_then(|study| study.seen_from(space, objective).map(|_| study));
        study.map_err(|error| source.error(place.span.clone(), super::error::with_causes(&error), error.hint()))
    });
    studies.collect()
}
