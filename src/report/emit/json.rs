//! One JSON object, names in order.

use crate::model::Settings;

pub(super) fn write(settings: &Settings) -> String {
    // Settings are names and scalars, which JSON always has a form for.
    serde_json::to_string_pretty(settings).unwrap_or_default() + "\n"
}
