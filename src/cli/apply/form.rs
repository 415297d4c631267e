//! Converts a setting to the format of the file's present value, such as `bf16` to `bf16-mixed`, or says why it cannot.

use gputune::model::{Precision, Value};

use super::Change;

/// The present value in a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Old {
    /// No value, or a null such as `~`.
    Null,
    /// A boolean, a number or a string.
    Scalar(Value),
    /// A value that no setting can have, such as a date.
    Other,
}

/// The names that a program or library uses for precisions.
struct Family {
    about: &'static str,
    /// The names that gputune writes.
    names: &'static [(Precision, &'static str)],
    /// Further names that the program accepts, and that gputune only reads.
    also: &'static [(Precision, &'static str)],
}

use Precision::{Bf16, Fp8, Fp16, Fp32, Tf32};

/// <https://lightning.ai/docs/pytorch/stable/common/precision_intermediate.html>; [`BITS`] has the older names.
const LIGHTNING: Family = Family {
    about: "Lightning's names",
    names: &[(Fp32, "32-true"), (Bf16, "bf16-mixed"), (Fp16, "16-mixed"), (Fp8, "transformer-engine")],
    also: &[(Bf16, "bf16-true"), (Fp16, "16-true")],
};
/// <https://huggingface.co/docs/accelerate/package_reference/accelerator>, `mixed_precision`.
const ACCELERATE: Family = Family {
    about: "Accelerate's names",
    names: &[(Fp32, "no"), (Bf16, "bf16"), (Fp16, "fp16"), (Fp8, "fp8")],
    also: &[],
};
/// <https://docs.pytorch.org/docs/stable/tensor_attributes.html>
const TORCH: Family = Family {
    about: "torch's types",
    names: &[(Fp32, "torch.float32"), (Bf16, "torch.bfloat16"), (Fp16, "torch.float16")],
    also: &[(Fp32, "torch.float"), (Fp16, "torch.half")],
};
/// <https://keras.io/api/mixed_precision/policy/>
const KERAS: Family = Family {
    about: "Keras's names",
    names: &[(Fp32, "float32"), (Bf16, "mixed_bfloat16"), (Fp16, "mixed_float16")],
    also: &[],
};
/// The names of types in NumPy, JAX and Transformers' `torch_dtype`.
const TYPES: Family = Family {
    about: "the names of types",
    names: &[(Fp32, "float32"), (Bf16, "bfloat16"), (Fp16, "float16")],
    also: &[(Fp32, "float"), (Fp16, "half")],
};
const SHORT: Family = Family {
    about: "the short names",
    names: &[(Fp32, "fp32"), (Tf32, "tf32"), (Bf16, "bf16"), (Fp16, "fp16"), (Fp8, "fp8")],
    also: &[],
};
const SHORTEST: Family =
    Family { about: "the short names", names: &[(Fp32, "f32"), (Bf16, "bf16"), (Fp16, "f16"), (Fp8, "f8")], also: &[] };
/// The names in Lightning before 2.0, and in scripts that give a number of bits.
const BITS: Family =
    Family { about: "numbers of bits", names: &[(Fp32, "32"), (Bf16, "bf16"), (Fp16, "16")], also: &[] };

const FAMILIES: &[&Family] = &[&LIGHTNING, &ACCELERATE, &TORCH, &TYPES, &SHORT, &SHORTEST, &BITS];

impl Family {
    fn name(&self, precision: Precision) -> Option<&'static str> {
        self.names.iter().find(|(known, _)| *known == precision).map(|(_, name)| *name)
    }

    /// Returns the precision that a string names in this family.
    fn read(&self, text: &str) -> Option<Precision> {
        let mut all = self.names.iter().chain(self.also);
        all.find(|(_, name)| text.eq_ignore_ascii_case(name)).map(|(precision, _)| *precision)
    }

    /// Returns true if a string is a name in `also`, which may say more: `16-true` also sets the type of the weights.
    fn is_second(&self, text: &str) -> bool {
        self.also.iter().any(|(_, name)| text.eq_ignore_ascii_case(name))
    }
}

/// Words for true and false in files (YAML 1.1, <https://yaml.org/type/bool.html>).
const ANSWERS: &[(&str, &str)] = &[("true", "false"), ("yes", "no"), ("on", "off"), ("1", "0"), ("y", "n")];

/// Returns the value to write for a change, in the format of the present value, or says why it has no such format.
pub(super) fn in_form(change: &Change, old: &Old, path: &[String]) -> Result<Value, String> {
    let key = Key::of(path);
    if let Old::Scalar(Value::Text(text)) = old
        && (text.contains("${") || text.contains("{{"))
    {
        return Err("it refers to another setting".to_owned());
    }
    if let Some(precision) = precision_of(change, old, &key) {
        return in_precision(precision, change, old, &key);
    }
    match (&change.value, old) {
        (_, Old::Other) => Err("it is no number, text, true or false".to_owned()),
        (value, Old::Null) => Ok(value.clone()),
        (Value::Bool(is_on), Old::Scalar(old)) => in_answer(*is_on, old),
        (value @ (Value::Int(_) | Value::Float(_)), Old::Scalar(old)) => in_number(value, old),
        (Value::Text(text), Old::Scalar(old)) => in_text(text, old, change, &key),
    }
}

/// The last two keys of a path, in lower case and with underscores.
struct Key {
    last: String,
    /// The key of the table that has the last key.
    table: String,
}

impl Key {
    fn of(path: &[String]) -> Self {
        let plain = |at: Option<&String>| at.map(|key| key.to_ascii_lowercase().replace('-', "_")).unwrap_or_default();
        let (last, above) = (path.len().checked_sub(1), path.len().checked_sub(2));
        Self { last: plain(last.and_then(|at| path.get(at))), table: plain(above.and_then(|at| path.get(at))) }
    }

    /// Returns true if the key is the `precision` of Lightning's `Trainer` or `Fabric`.
    fn is_lightning(&self) -> bool {
        self.last == "precision" && ["trainer", "fabric"].contains(&self.table.as_str())
    }

    /// Returns true if the key is a usual name for a precision.
    fn is_precision(&self) -> bool {
        const NAMES: &[&str] = &["precision", "mixed_precision", "dtype", "torch_dtype", "amp_dtype", "autocast_dtype"];
        NAMES.contains(&self.last.as_str()) || self.switch().is_some()
    }

    /// Returns the precision that the key switches on and off: `bf16`, `use_fp16`, or DeepSpeed's `bf16.enabled`.
    fn switch(&self) -> Option<Precision> {
        let name = if self.last == "enabled" { &self.table } else { &self.last };
        let name = name.strip_prefix("use_").unwrap_or(name);
        ["bf16", "fp16", "tf32", "fp8"].contains(&name).then(|| Precision::named(name)).flatten()
    }
}

/// Returns the precision that a change sets. Its value must name a precision, and so must all searched settings or the
/// present value, unless the key is a usual name for a precision.
fn precision_of(change: &Change, old: &Old, key: &Key) -> Option<Precision> {
    let named = |value: &Value| value.as_text().and_then(|it| Precision::named(it).or_else(|| LIGHTNING.read(it)));
    let precision = named(&change.value)?;
    let is_all = !change.among.is_empty() && change.among.iter().all(|value| named(value).is_some());
    let is_old = matches!(old, Old::Scalar(Value::Text(text)) if FAMILIES.iter().any(|it| it.read(text).is_some()));
    (is_all || key.is_precision() || is_old).then_some(precision)
}

fn in_precision(precision: Precision, change: &Change, old: &Old, key: &Key) -> Result<Value, String> {
    let name = precision.name();
    match old {
        Old::Null if key.is_lightning() => named(&LIGHTNING, precision),
        Old::Null if key.last == "mixed_precision" => named(&ACCELERATE, precision),
        Old::Null | Old::Other => Err(format!("nothing there says how it writes {name}")),
        Old::Scalar(Value::Bool(_)) => match (key.switch(), precision) {
            (Some(own), precision) if own == precision => Ok(Value::Bool(true)),
            (_, Precision::Fp32) => Ok(Value::Bool(false)),
            _ => Err(format!("true and false do not say {name} there")),
        },
        Old::Scalar(Value::Int(16 | 32)) => match precision {
            Precision::Fp32 => Ok(Value::Int(32)),
            Precision::Fp16 => Ok(Value::Int(16)),
            Precision::Bf16 if key.is_lightning() => Ok(Value::from("bf16")),
            _ => Err(format!("16 and 32 do not say {name}")),
        },
        Old::Scalar(Value::Int(_) | Value::Float(_)) => Err(format!("a number does not say {name} there")),
        Old::Scalar(Value::Text(text)) => in_words(precision, change, text, key),
    }
}

/// Returns the precision's name in the family that the present string belongs to.
fn in_words(precision: Precision, change: &Change, old: &str, key: &Key) -> Result<Value, String> {
    let is_keras = key.last.contains("policy") || old.to_ascii_lowercase().starts_with("mixed_");
    let families: Vec<&Family> = match () {
        () if key.is_lightning() => vec![&LIGHTNING, &BITS],
        () if is_keras => vec![&KERAS],
        () if key.last == "mixed_precision" && ACCELERATE.read(old).is_some() => vec![&ACCELERATE],
        // If the present string is one of the searched settings, the settings already are the file's own names.
        () if change.among.contains(&Value::from(old)) => return Ok(change.value.clone()),
        () => FAMILIES.to_vec(),
    };
    let families: Vec<&&Family> = families.iter().filter(|family| family.read(old).is_some()).collect();
    let known = families.first().ok_or_else(|| "it is no name of a precision that is known".to_owned())?;
    let is_own = |text: &str| families.iter().any(|family| family.read(text).is_some());
    match &change.value {
        Value::Text(text) if families.len() == 1 && is_own(text) => return Ok(in_case(text, old)),
        _ if families.iter().all(|family| family.read(old) == Some(precision)) => return Ok(Value::from(old)),
        _ => {}
    }
    if known.is_second(old) && known.about == LIGHTNING.about && precision != Precision::Fp32 {
        return Err(format!(
            "it is more than a precision, and {} could be more than one of its kind",
            precision.name()
        ));
    }
    let mut names: Vec<&str> = families.iter().filter_map(|family| family.name(precision)).collect();
    names.dedup();
    // Lightning accepts its present names even if the file uses older names.
    if key.is_lightning() {
        names.truncate(1);
    }
    match names.as_slice() {
        [name] => Ok(in_case(name, old)),
        [] => Err(none_among(known, precision)),
        several => Err(format!("it could be {}", several.join(" or "))),
    }
}

fn named(family: &Family, precision: Precision) -> Result<Value, String> {
    family.name(precision).map(Value::from).ok_or_else(|| none_among(family, precision))
}

fn none_among(family: &Family, precision: Precision) -> String {
    format!("there is no {} among {}", precision.name(), family.about)
}

/// Returns a string with the capitals of the present string: all letters (`BF16`), or the first letter (`True`).
fn in_case(text: &str, old: &str) -> Value {
    let is_capital = old.chars().any(char::is_alphabetic) && !old.chars().any(char::is_lowercase);
    let first = |text: &str| text.chars().next().is_some_and(char::is_uppercase);
    let rest_is_small = old.chars().skip(1).all(|c| !c.is_uppercase());
    let mut letters = text.chars();
    Value::Text(match () {
        () if is_capital && old.len() > 1 => text.to_uppercase(),
        () if first(old) && rest_is_small => {
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        }
        () => text.to_owned(),
    })
}

/// Returns true or false in the words of the file.
fn in_answer(is_on: bool, old: &Value) -> Result<Value, String> {
    match old {
        Value::Bool(_) => Ok(Value::Bool(is_on)),
        Value::Int(0 | 1) => Ok(Value::Int(is_on.into())),
        Value::Text(text) => {
            let pair = ANSWERS.iter().find(|(yes, no)| text.eq_ignore_ascii_case(yes) || text.eq_ignore_ascii_case(no));
            let (yes, no) = pair.ok_or_else(|| format!("a text such as `{text}` says more than yes or no"))?;
            Ok(in_case(if is_on { yes } else { no }, text))
        }
        Value::Int(_) | Value::Float(_) => Err("a number says more than yes or no".to_owned()),
    }
}

/// Returns a number in the way the file writes numbers.
fn in_number(value: &Value, old: &Value) -> Result<Value, String> {
    match (value, old) {
        (Value::Int(_), Value::Float(_)) => Ok(value.as_f64().map_or_else(|| value.clone(), Value::Float)),
        #[expect(clippy::cast_possible_truncation, reason = "it is whole, and small enough to be exact")]
        (Value::Float(number), Value::Int(_)) if number.fract() == 0.0 && number.abs() < 2f64.powi(53) => {
            Ok(Value::Int(*number as i64))
        }
        (_, Value::Int(_) | Value::Float(_)) => Ok(value.clone()),
        (_, Value::Text(text)) if Value::parse(text).as_f64().is_some() => Ok(Value::Text(value.to_string())),
        // `auto` is DeepSpeed's word for a number that the Trainer fills in.
        (_, Value::Text(text)) if text == "auto" => Ok(value.clone()),
        (_, Value::Text(_) | Value::Bool(_)) => Err("it is no number".to_owned()),
    }
}

/// Returns a string in the way the file writes strings.
fn in_text(text: &str, old: &Value, change: &Change, key: &Key) -> Result<Value, String> {
    match old {
        Value::Int(_) | Value::Float(_) => match Value::parse(text) {
            number @ (Value::Int(_) | Value::Float(_)) => in_number(&number, old),
            _ => Err("it is a number".to_owned()),
        },
        Value::Bool(_) => match text {
            _ if !(key.last.contains("compile") || change.name.contains("compile")) => {
                Err("it is true or false".to_owned())
            }
            "off" => Ok(Value::Bool(false)),
            "default" => Ok(Value::Bool(true)),
            _ => Err("true and false do not say which mode".to_owned()),
        },
        Value::Text(old) => {
            let texts = || change.among.iter().filter_map(Value::as_text);
            if change.among.is_empty() || texts().any(|known| known == old) {
                return Ok(Value::from(text));
            }
            if texts().any(|known| known.eq_ignore_ascii_case(old)) {
                return Ok(in_case(text, old));
            }
            if texts().any(|known| known.replace('-', "_") == *old) {
                return Ok(Value::Text(text.replace('-', "_")));
            }
            let known: Vec<String> = texts().take(6).map(|text| format!("`{text}`")).collect();
            Err(format!("it is none of the settings that were searched ({})", known.join(", ")))
        }
    }
}

/// Returns true if a string is one of Lightning's precision names, which begin with digits but are strings.
pub(super) fn is_precision_word(text: &str) -> bool {
    LIGHTNING.names.iter().chain(LIGHTNING.also).any(|(_, name)| *name == text)
}

/// Returns true if a word means true or false in YAML 1.1.
pub(super) fn is_answer(word: &str) -> bool {
    word.parse::<u8>().is_err()
        && ANSWERS.iter().any(|(yes, no)| word.eq_ignore_ascii_case(yes) || word.eq_ignore_ascii_case(no))
}
