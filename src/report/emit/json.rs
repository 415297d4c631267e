//! One JSON object, with names in order.

use crate::model::Settings;

pub(super) fn write(settings: &Settings) -> String {
    // Settings are names and scalars, which can always be serialised.
    serde_json::to_string_pretty(settings).unwrap_or_default() + "\n"
}
