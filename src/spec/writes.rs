//! Reads what should happen to a probe's writes: `writes` and `scratch_size` in `[step]`.

use super::error::{SourceFile, SpecError};
use super::file::StepTable;
use crate::model::{Headroom, Value, quantity};
use crate::probe::{Writes, WritesWish};

pub(super) fn build(source: &SourceFile, table: &StepTable) -> Result<WritesWish, SpecError> {
    let writes = table.writes.as_ref().map(|writes| writes.value);
    if writes == Some(Writes::Guard) && table.adapter.is_none() {
        let span = table.writes.as_ref().map_or(0..0, |writes| writes.span.clone());
        let message = "`writes = \"guard\"` needs an adapter: the guards are in its hook";
        return Err(source.error(span, message, "write adapter = \"torch\", or leave `writes` out"));
    }
    let Some(size) = &table.scratch_size else { return Ok(WritesWish { writes, ..WritesWish::default() }) };
    let error = |message: String| {
        source.error(
            size.span.clone(),
            message,
            "write a share of the free disk such as 0.5, or a size such as \"20GiB\"",
        )
    };
    if writes == Some(Writes::Allow) {
        return Err(error("`scratch_size` says nothing where `writes = \"allow\"`: nothing is scratch".to_owned()));
    }
    let size = match (&size.value, size.value.as_f64()) {
        (_, Some(share)) if share > 0.0 && share <= 1.0 => Headroom::Fraction(share),
        (_, Some(share)) => {
            return Err(error(format!("{share} is no share of the disk: it must be above 0 and at most 1")));
        }
        (Value::Text(text), None) => match quantity::parse_bytes(text) {
            Ok(bytes) if bytes > 0 => Headroom::Bytes(bytes),
            _ => return Err(error(format!("`{text}` is no size and no share"))),
        },
        (other, None) => return Err(error(format!("a {} is no size", other.kind()))),
    };
    Ok(WritesWish { writes, scratch_size: Some(size), ..WritesWish::default() })
}
