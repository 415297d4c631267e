//! Reads the earlier studies that `search.warm_start` names. They are read only when they are used.

use std::path::{Path, PathBuf};

use super::error::{SourceFile, SpecError};
use super::file::SearchTable;
use super::located::Located;
use crate::model::{Objective, Space};
use crate::search::{EarlierError, EarlierStudy, strategy::LEARNING};

/// Returns the places of the studies, for a search that can learn from any.
pub(super) fn places(
    source: &SourceFile,
    table: &SearchTable,
    strategy: &str,
    objective: &Objective,
) -> Result<Vec<Located<PathBuf>>, SpecError> {
    let places = table.warm_start.as_deref().unwrap_or_default();
    if let Some(place) = places.first()
        && !LEARNING.contains(&strategy)
    {
        let message = format!("`{strategy}` does not learn from earlier studies");
        let hint = format!("take `warm_start` out, or choose the strategy {}", LEARNING.join(" or "));
        return Err(source.error(place.span.clone(), message, hint));
    }
    if let Some(place) = places.first().filter(|_| objective.is_pareto()) {
        return Err(refused(source, place, &EarlierError::Front));
    }
    if let Some(place) = places.get(EarlierStudy::MOST) {
        let message = format!("a search learns from at most {} earlier studies", EarlierStudy::MOST);
        return Err(source.error(place.span.clone(), message, "keep the studies of the most similar jobs"));
    }
    Ok(places.to_vec())
}

/// Reads the studies, and checks that the search with the folder `own` can learn from them.
pub(super) fn read(
    source: &SourceFile,
    places: &[Located<PathBuf>],
    (space, objective): (&Space, &Objective),
    own: &Path,
) -> Result<Vec<EarlierStudy>, SpecError> {
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let studies = places.iter().map(|place| {
        let study = EarlierStudy::read_for(&folder.join(&place.value), own)
            .and_then(|study| study.seen_from(space, objective).map(|_| study));
        study.map_err(|error| refused(source, place, &error))
    });
    studies.collect()
}

fn refused(source: &SourceFile, place: &Located<PathBuf>, error: &EarlierError) -> SpecError {
    source.error(place.span.clone(), super::error::with_causes(error), error.hint())
}
