//! Values of a spec with a meaning of their own, such as a share, a duration or a size. Each is checked while it is read.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};

use super::error::suggestion;
use super::located::{Located, schema_of};
use crate::model::quantity::{QuantityError, parse_bytes, parse_duration};
use crate::model::{self, Direction, Value};
use crate::probe::RateUnit;
use crate::probe::adapter::{self, ADAPTERS};
use crate::probe::worker::{LAUNCHERS, Launcher as Kind};
use crate::search::STRATEGIES;

/// The kind of a value: its notation in a spec, its meaning, and its check.
pub(super) trait Check {
    type Written: DeserializeOwned + JsonSchema;
    type Meaning: fmt::Debug;

    fn check(written: Self::Written) -> Result<Self::Meaning, Wrong>;
}

/// A value of a kind, after its check.
#[derive(Debug)]
pub(super) struct Valid<C: Check>(pub(super) C::Meaning);

schema_of!(Valid<C> => C::Written, C: Check);

impl<C: Check<Meaning: Copy>> Valid<C> {
    /// Returns the value, or else the default.
    pub(super) fn or(given: Option<&Self>, usual: C::Meaning) -> C::Meaning {
        given.map_or(usual, |given| given.0)
    }
}

impl<'de, C: Check> Deserialize<'de> for Valid<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Located { value, span } = Located::<C::Written>::deserialize(deserializer)?;
        C::check(value).map(Self).map_err(|wrong| D::Error::custom(wrong.text(&span)))
    }
}

/// A mistake in a value: a message and a hint. An empty hint stands for the example of the key. `{key}` at the start of the
/// message, and in the hint, stands for the key's name.
pub(super) struct Wrong {
    message: String,
    hint: String,
}

impl Wrong {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }

    /// Encodes the mistake as one string, because an error of serde has no other fields.
    fn text(&self, span: &Range<usize>) -> String {
        let Self { message, hint } = self;
        format!("{MARK}{}{MARK}{}{MARK}{message}{MARK}{hint}", span.start, span.end)
    }

    /// Decodes the place, the message and the hint from the string of [`text`](Self::text).
    pub(super) fn parts(text: &str) -> Option<(Range<usize>, &str, &str)> {
        let (start, rest) = text.strip_prefix(MARK)?.split_once(MARK)?;
        let (end, rest) = rest.split_once(MARK)?;
        let (message, hint) = rest.rsplit_once(MARK)?;
        Some((start.parse().ok()?..end.parse().ok()?, message, hint))
    }
}

/// Separates the parts of a [`Wrong`]: a control character that no message has.
const MARK: char = '\u{1}';

/// Splits the message about a quantity: the part about its format becomes the hint.
impl From<QuantityError> for Wrong {
    fn from(error: QuantityError) -> Self {
        let text = error.to_string();
        let (message, hint) = text.split_once("; ").unwrap_or((&text, ""));
        Self::new(message, hint)
    }
}

/// Declares kinds of values: the type of the notation, the type of the meaning, and the check.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident: $written:ty => $meaning:ty, |$value:ident| $check:expr;)*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Debug)]
            pub(super) struct $kind;

            impl Check for $kind {
                type Written = $written;
                type Meaning = $meaning;

                fn check($value: $written) -> Result<$meaning, Wrong> {
                    $check
                }
            }
        )*
    };
}

kinds! {
    Share: f64 => f64, |share| {
        let is_share = share > 0.0 && share < 1.0;
        valid(is_share, share, || Wrong::new(format!("{{key}} is a share between 0 and 1, and this is {share}"), ""))
    };
    Gain: f64 => f64, |gain| {
        let is_gain = (0.0..=1.0).contains(&gain);
        valid(is_gain, gain, || Wrong::new(format!("{{key}} must be from 0 to 1, and this is {gain}"), ""))
    };
    Price: f64 => f64, |price| {
        let message = || format!("{{key}} must be a number larger than 0, and this is {price}");
        valid(price > 0.0 && price.is_finite(), price, || Wrong::new(message(), ""))
    };
    Probes: u32 => u32, |probes| within(1..=1_000_000, probes, "");
    Rounds: u32 => u32, |rounds| within(0..=100_000, rounds, "leave it out, and `time` is the limit");
    AtLeastOne: u32 => u32, |count| {
        let wrong = || Wrong::new("{key} must be at least 1", "write {key} = 1, or leave it out");
        valid(count > 0, count, wrong)
    };
    /// A duration that may be 0.
    Pause: String => Duration, |text| {
        let time = parse_duration(&text)?;
        let wrong = || Wrong::new("this is longer than a year", "write it like `60s`, `20m` or `12h`");
        valid(time <= LONGEST, time, wrong)
    };
    /// A duration that is not 0.
    Time: String => Duration, |text| {
        let time = Pause::check(text)?;
        valid(!time.is_zero(), time, || Wrong::new("this time is zero", "write it like `60s` or `20m`"))
    };
    Size: String => u64, |text| Ok(parse_bytes(&text)?);
    Headroom: Value => model::Headroom, |amount| {
        let hint = "write a share such as 0.1, or a size such as \"2GiB\"";
        let not_share = |share| format!("{share} is no share of memory: it must be from 0 to below 1");
        let is_share = |share| (0.0..1.0).contains(&share);
        headroom(&amount, is_share, not_share, "amount of memory").map_err(|message| Wrong::new(message, hint))
    };
    ScratchSize: Value => model::Headroom, |amount| {
        let hint = "write a share of the free disk such as 0.5, or a size such as \"20GiB\"";
        let not_share = |share| format!("{share} is no share of the disk: it must be above 0 and at most 1");
        let size = headroom(&amount, |share| share > 0.0 && share <= 1.0, not_share, "size");
        let size = size.and_then(|size| match size {
            model::Headroom::Bytes(0) => Err(format!("`{amount}` is no size and no share")),
            size => Ok(size),
        });
        size.map_err(|message| Wrong::new(message, hint))
    };
    /// A number of slots; `None` for "auto".
    Slots: Value => Option<u32>, |slots| match &slots {
        Value::Text(text) if text == "auto" => Ok(None),
        Value::Int(count @ 1..=MOST_SLOTS) => Ok(u32::try_from(*count).ok()),
        other => {
            let message = format!("{{key}} is \"auto\" or a number from 1 to {MOST_SLOTS}, and this is {other}");
            Err(Wrong::new(message, ""))
        }
    };
    Host: String => String, |host| {
        let is_host = !host.is_empty() && !host.starts_with('-') && !host.contains(char::is_whitespace);
        let message = format!("`{host}` is no name of a machine");
        valid(is_host, host, || Wrong::new(message, "write it as for `ssh`: gpu1, user@gpu1 or ssh://gpu1:2222"))
    };
    Listen: String => String, |at| {
        let parts = at.rsplit_once(':');
        let is_address = parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        let message = format!("`{at}` is no address to listen on");
        valid(is_address, at, || Wrong::new(message, "write listen = \"10.0.0.5:7331\": HOST:PORT"))
    };
    Ray: String => String, |at| {
        let message = format!("`{at}` is not the address of a Ray head");
        let wrong = || Wrong::new(message, "write ray = \"http://head:8265\": its jobs API");
        valid(at.starts_with("http://"), at, wrong)
    };
    Strategy: String => &'static str, |name| {
        let found = STRATEGIES.iter().find(|entry| entry.name == name).map(|entry| entry.name);
        found.ok_or_else(|| unknown("strategy", &name, STRATEGIES.iter().map(|entry| entry.name)))
    };
    Adapter: String => &'static adapter::Adapter, |name| {
        let unknown = || unknown("adapter", &name, ADAPTERS.iter().map(|adapter| adapter.name));
        adapter::adapter(&name).ok_or_else(unknown)
    };
    /// The name of a launcher; `None` for probes on this machine.
    Launcher: String => Option<&'static Kind>, |name| {
        const LOCAL: &str = "local";
        let found = LAUNCHERS.iter().find(|launcher| launcher.name == name);
        let names = LAUNCHERS.iter().map(|launcher| launcher.name).chain([LOCAL]);
        if name == LOCAL { Ok(None) } else { found.map(Some).ok_or_else(|| unknown("launcher", &name, names)) }
    };
    RunLength: String => model::RunLength, |text| {
        let hint = "for example \"90 epochs\", \"100000 steps\" or \"1e9 samples\"";
        model::RunLength::parse(&text).map_err(|error| Wrong::new(error.to_string(), hint))
    };
    Constraint: String => model::Constraint, |text| {
        let hint = "for example \"peak_memory < 70GiB\" or \"loss <= 2.5\"";
        model::Constraint::parse(&text).map_err(|error| Wrong::new(error.to_string(), hint))
    };
    Unit: String => RateUnit, |text| {
        let hint = "write it like `samples/s`, `steps/s` or `ms/step`";
        RateUnit::parse(&text).map_err(|_| Wrong::new(format!("`{text}` is no unit of a rate"), hint))
    };
}

/// The longest duration: a longer one is a mistake, and sums of durations could overflow.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
/// The most slots: a round number, far above the slots of any machine.
const MOST_SLOTS: i64 = 1024;

fn valid<T>(is_valid: bool, value: T, wrong: impl FnOnce() -> Wrong) -> Result<T, Wrong> {
    if is_valid { Ok(value) } else { Err(wrong()) }
}

/// Checks a count. Larger counts are mistakes, and sums of them could overflow; the bounds are round numbers.
fn within(bounds: RangeInclusive<u32>, count: u32, hint: &str) -> Result<u32, Wrong> {
    let (least, most) = (bounds.start(), bounds.end());
    let message = || format!("{{key}} must be from {least} to {most}, and this is {count}");
    valid(bounds.contains(&count), count, || Wrong::new(message(), hint))
}

/// Reads a share or a size; the error is a message.
fn headroom(
    amount: &Value,
    is_share: impl Fn(f64) -> bool,
    not_share: impl Fn(f64) -> String,
    what: &str,
) -> Result<model::Headroom, String> {
    match (amount, amount.as_f64()) {
        (_, Some(share)) if is_share(share) => Ok(model::Headroom::Fraction(share)),
        (_, Some(share)) => Err(not_share(share)),
        (Value::Text(text), None) => {
            parse_bytes(text).map(model::Headroom::Bytes).map_err(|_| format!("`{text}` is no size and no share"))
        }
        (other, None) => Err(format!("a {} is no {what}", other.kind())),
    }
}

fn unknown<'k>(what: &str, name: &str, known: impl Iterator<Item = &'k str>) -> Wrong {
    Wrong::new(format!("there is no {what} `{name}`"), suggestion(name, known))
}

/// A metric of `pareto`: its name, or a table with its direction.
#[derive(Debug)]
pub(super) struct Aim {
    pub(super) metric: String,
    pub(super) direction: Option<Direction>,
}

/// A metric whose direction is stated.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { metric = \"loss\", direction = \"minimize\" }")]
struct AimTable {
    /// The metric's name.
    metric: String,
    /// Which is better: `maximize` or `minimize`. Required if gputune does not know the metric.
    #[serde(default)]
    direction: Option<Direction>,
}

/// A weight of `weights`: the number, or a table with the direction of the metric.
#[derive(Debug)]
pub(super) struct Weight {
    pub(super) weight: Located<f64>,
    pub(super) direction: Option<Direction>,
}

/// A weight of a metric whose direction is stated.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { weight = 0.5, direction = \"minimize\" }")]
struct WeightTable {
    /// How much the metric counts, relative to the other weights.
    weight: Located<f64>,
    /// Which is better: `maximize` or `minimize`. Required if gputune does not know the metric.
    #[serde(default)]
    direction: Option<Direction>,
}

/// Lets the value of one key stand for a whole table. States what is expected, the schema of the value, and a description.
macro_rules! value_or_table {
    ($(
        $kind:ident, $table:ident { $key:ident }: $expected:literal, $schema:tt, $description:literal,
        { $($visit:ident($type:ty) => |$value:ident| $made:expr;)+ }
    )+) => {
        $(
            impl<'de> Deserialize<'de> for $kind {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    struct Either;

                    impl<'de> de::Visitor<'de> for Either {
                        type Value = $kind;

                        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                            f.write_str($expected)
                        }

                        $(
                            fn $visit<E: de::Error>(self, $value: $type) -> Result<$kind, E> {
                                Ok($kind { $key: $made, direction: None })
                            }
                        )+

                        fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<$kind, A::Error> {
                            let $table { $key, direction } = $table::deserialize(MapAccessDeserializer::new(map))?;
                            Ok($kind { $key, direction })
                        }
                    }

                    deserializer.deserialize_any(Either)
                }
            }

            impl JsonSchema for $kind {
                fn schema_name() -> Cow<'static, str> {
                    stringify!($kind).into()
                }

                fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                    let table = generator.subschema_for::<$table>();
                    json_schema!({ "description": $description, "anyOf": [$schema, table] })
                }
            }
        )+
    };
}

value_or_table! {
    Aim, AimTable { metric }: "the name of a metric, or a table", { "type": "string" },
    "A metric by its name, or with its direction.",
    { visit_str(&str) => |metric| metric.to_owned(); }

    Weight, WeightTable { weight }: "a number, or a table", { "type": "number", "exclusiveMinimum": 0 },
    "How much a metric counts: a number, or a table that also has its direction.",
    { visit_i64(i64) => |weight| bare(weight as f64); visit_f64(f64) => |weight| bare(weight); }
}

/// A bare number has the place of its entry.
fn bare(weight: f64) -> Located<f64> {
    Located { value: weight, span: 0..0 }
}
