//! Parses and evaluates conditions and derived values: expressions over parameter names.
//!
//! The language is Jinja expressions, as `MiniJinja` parses them: `batch_size * workers <= 8192`, `precision in ["bf16",
//! "fp16"]`, `4096 // seq_len if packed else 1`. `/` divides exactly, `//` rounds down. The functions are [`FUNCTIONS`].

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Value;

/// The functions that an expression may call; a parameter cannot have one of these names.
pub const FUNCTIONS: &[&str] = &["abs", "ceil", "floor", "int", "log2", "max", "min", "round"];

/// Words with a meaning in the language; a parameter cannot have one of these names.
pub(super) const KEYWORDS: &[&str] =
    &["and", "else", "false", "False", "if", "in", "is", "none", "None", "not", "or", "true", "True"];

static LANGUAGE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut language = Environment::empty();
    language.set_undefined_behavior(UndefinedBehavior::Strict);
    language.set_debug(true);
    language.add_function("abs", |number: f64| whole(number.abs()));
    language.add_function("ceil", |number: f64| whole(number.ceil()));
    language.add_function("floor", |number: f64| whole(number.floor()));
    language.add_function("int", |number: f64| whole(number.trunc()));
    language.add_function("log2", |number: f64| whole(number.log2()));
    language.add_function("round", |number: f64| whole(number.round()));
    language.add_function("max", |a: f64, b: f64| whole(a.max(b)));
    language.add_function("min", |a: f64, b: f64| whole(a.min(b)));
    language
});

/// Returns a whole number as an integer, so that `1024 / 32` is `32` on a command line and not `32.0`.
fn whole(number: f64) -> minijinja::Value {
    match as_integer(number) {
        Some(integer) => integer.into(),
        None => number.into(),
    }
}

fn as_integer(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53: beyond it a float no longer names one integer
    // The cast is exact for whole numbers within 2^53.
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

/// A compiled expression over parameter names.
#[derive(Clone)]
pub struct Expression {
    text: String,
    compiled: Arc<minijinja::Expression<'static, 'static>>,
    names: BTreeSet<String>,
}

/// The error for an expression that cannot be read or evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ExpressionError {
    /// What is wrong.
    pub message: String,
    /// The byte range in the expression's text that the error is about, if known.
    pub range: Option<Range<usize>>,
}

impl From<minijinja::Error> for ExpressionError {
    fn from(error: minijinja::Error) -> Self {
        let kind = error.kind().to_string();
        let message = match error.detail() {
            Some(detail) if matches!(error.kind(), ErrorKind::SyntaxError | ErrorKind::InvalidOperation) => {
                detail.to_owned()
            }
            Some(detail) => format!("{kind}: {detail}"),
            None => kind,
        };
        Self { message, range: error.range() }
    }
}

/// Finds the places of a name in an expression, outside quoted strings.
fn places<'t>(text: &'t str, name: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).map(|(start, _)| start..start + name.len()).filter(move |range| {
        let is_whole = !text[..range.start].ends_with(part_of_name) && !text[range.end..].starts_with(part_of_name);
        is_whole && !ends_in_quotes(&text[..range.start])
    })
}

fn ends_in_quotes(text: &str) -> bool {
    let (mut open, mut escaped) = (None, false);
    for sign in text.chars() {
        match open {
            Some(_) if escaped => escaped = false,
            Some(_) if sign == '\\' => escaped = true,
            Some(quote) if sign == quote => open = None,
            None if matches!(sign, '\'' | '"') => open = Some(sign),
            _ => {}
        }
    }
    open.is_some()
}

/// Rejects an expression that names a function without ever calling it. The language would compare the function itself.
fn check_calls(text: &str, names: &BTreeSet<String>) -> Result<(), ExpressionError> {
    for name in names.iter().filter(|name| FUNCTIONS.contains(&name.as_str())) {
        let is_called = |range: Range<usize>| text[range.end..].trim_start().starts_with('(');
        if !places(text, name).any(is_called) {
            let message = format!("`{name}` is a function and is not called here");
            return Err(ExpressionError { message, range: places(text, name).next() });
        }
    }
    Ok(())
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// The text is not an expression of the language.
    pub fn parse(text: impl Into<String>) -> Result<Self, ExpressionError> {
        let text = text.into();
        if text.trim().is_empty() {
            return Err(ExpressionError { message: "the expression is empty".to_owned(), range: None });
        }
        let compiled = LANGUAGE.compile_expression_owned(text.clone())?;
        let mut names: BTreeSet<String> = compiled.undeclared_variables(false).into_iter().collect();
        check_calls(&text, &names)?;
        names.retain(|name| !FUNCTIONS.contains(&name.as_str()));
        Ok(Self { text, compiled: Arc::new(compiled), names })
    }

    /// Returns the expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the names that it depends on.
    pub fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// Returns the byte range of a name's first use in the text.
    pub fn find(&self, name: &str) -> Option<Range<usize>> {
        places(&self.text, name).next()
    }

    /// Returns the value of the expression.
    ///
    /// A whole number becomes an integer, even if the computation used floats.
    ///
    /// # Errors
    /// A name has no value, or an operation does not suit its operands (division by zero, a string plus a number). Or
    /// the result is neither a boolean, a finite number nor a string.
    pub fn value<'v>(&self, lookup: impl Fn(&str) -> Option<&'v Value>) -> Result<Value, ExpressionError> {
        self.scalar(&self.evaluate(lookup)?)
    }

    /// Returns true if the condition holds.
    ///
    /// # Errors
    /// As for [`value`](Self::value), and if the result is neither true nor false.
    pub fn holds<'v>(&self, lookup: impl Fn(&str) -> Option<&'v Value>) -> Result<bool, ExpressionError> {
        let result = self.evaluate(lookup)?;
        bool::try_from(result.clone()).map_err(|_| ExpressionError {
            message: format!("a condition must be true or false, and this is {result}"),
            range: None,
        })
    }

    fn evaluate<'v>(&self, lookup: impl Fn(&str) -> Option<&'v Value>) -> Result<minijinja::Value, ExpressionError> {
        let bound = minijinja::Value::from_pairs(
            self.names.iter().filter_map(|name| Some((name.as_str(), to_jinja(lookup(name)?)))),
        );
        Ok(self.compiled.eval(bound)?)
    }

    fn scalar(&self, result: &minijinja::Value) -> Result<Value, ExpressionError> {
        use minijinja::value::ValueKind;
        let not_usable = || ExpressionError {
            message: format!("`{}` gives {result}, which is no boolean, number or text", self.text),
            range: None,
        };
        match result.kind() {
            ValueKind::Bool => Ok(Value::Bool(result.is_true())),
            ValueKind::String => Ok(Value::Text(result.to_string())),
            ValueKind::Number => {
                if let Ok(integer) = i64::try_from(result.clone()) {
                    return Ok(Value::Int(integer));
                }
                let number = f64::try_from(result.clone()).map_err(|_| not_usable())?;
                if !number.is_finite() {
                    return Err(not_usable());
                }
                Ok(as_integer(number).map_or(Value::Float(number), Value::Int))
            }
            _ => Err(not_usable()),
        }
    }
}

fn to_jinja(value: &Value) -> minijinja::Value {
    match value {
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::Float(value) => (*value).into(),
        Value::Text(value) => value.as_str().into(),
    }
}

impl Serialize for Expression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({:?})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<Value, ExpressionError> {
        let batch = Value::from(32);
        let precision = Value::from("bf16");
        Expression::parse(text)?.value(|name| match name {
            "batch_size" => Some(&batch),
            "precision" => Some(&precision),
            _ => None,
        })
    }

    #[test]
    fn whole_quotients_are_integers_and_conditions_read_like_python() {
        for (text, expected) in [
            ("1024 / batch_size", Value::Int(32)),
            ("1000 / batch_size", Value::Float(31.25)),
            ("1000 // batch_size", Value::Int(31)),
            ("max(1, ceil(1000 / batch_size))", Value::Int(32)),
            ("precision in ['bf16', 'fp16'] and batch_size % 8 == 0", Value::Bool(true)),
            ("'a' if batch_size > 64 else 'b'", Value::from("b")),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn names_leave_functions_out_and_can_be_found() {
        let expression = Expression::parse("max(batch, batch_size) > 1").unwrap();
        assert_eq!(expression.names().iter().collect::<Vec<_>>(), ["batch", "batch_size"]);
        assert_eq!(expression.find("batch_size"), Some(11..21));
        assert_eq!(expression.find("batch"), Some(4..9));
        let expression = Expression::parse(r#"mode == 'it\'s x' and "x" != x"#).unwrap();
        assert_eq!(expression.find("x"), Some(29..30));
    }

    #[test]
    fn a_function_must_be_called_and_a_syntax_error_knows_its_place() {
        assert!(Expression::parse("max (1, 2) > abs(-1)").is_ok());
        for (text, range) in [("batch_size > max", 13..16), ("batch_size >= * 2", 14..15)] {
            assert_eq!(Expression::parse(text).unwrap_err().range, Some(range), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_evaluated_is_an_error() {
        for text in ["1 / 0", "unknown + 1", "precision + 1", "[1, 2]", "batch_size >", "", "1 +* 2", "none"] {
            assert!(value(text).is_err(), "{text}");
        }
        assert!(Expression::parse("1").unwrap().holds(|_| None).is_err());
    }
}
