//! [`ErrorValue`]: what an error expected or found, without an allocation.

use core::fmt;
use std::borrow::Cow;

/// What was expected or found: a text, or a number with words around it. It is made without an allocation, unless it is made
/// of a `String`.
///
/// ```
/// use simdformer::{Error, Limits, Model, Session};
///
/// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
/// let model = Model::open("models/fr-en")?;
/// let error = Session::new(&model, Limits::new(4, 32, 100_000)).unwrap_err();
/// let Error::BeyondLimit { operand, expected, found, .. } = &error else { panic!("{error}") };
/// assert_eq!((*operand, expected.number(), *found), ("target_tokens", Some(128), 100_000));
/// assert_eq!(expected.to_string(), "at most 128, which the model allows");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ErrorValue(Value);

#[derive(Clone, Debug)]
enum Value {
    Text(Cow<'static, str>),
    /// The range of a number, as in "above 0".
    Range(&'static str),
    Float(f64),
    /// A text with the numbers in the places of `{}`.
    Numbers(&'static &'static str, [usize; 2]),
}

impl ErrorValue {
    /// `text` with these numbers in the places of its `{}`: one or two.
    pub(crate) const fn new(text: &'static &'static str, numbers: [usize; 2]) -> Self {
        Self(Value::Numbers(text, numbers))
    }

    /// `number` or more.
    pub(crate) const fn at_least(number: usize) -> Self {
        Self::new(&"at least {}", [number, 0])
    }

    /// `number` or less.
    pub(crate) const fn at_most(number: usize) -> Self {
        Self::new(&"at most {}", [number, 0])
    }

    /// `number` or less, because of a limit of the plan.
    pub(crate) const fn at_most_planned(number: usize) -> Self {
        Self::new(&"at most {} in a session that was planned", [number, 0])
    }

    /// `number` or less, because the model allows no more.
    pub(crate) const fn at_most_of_model(number: usize) -> Self {
        Self::new(&"at most {}, which the model allows", [number, 0])
    }

    /// A number of this `range`, for example `"above 0"`.
    pub(crate) const fn in_range(range: &'static str) -> Self {
        Self(Value::Range(range))
    }

    /// The first number, if it is a whole one; `None` for a text without numbers.
    pub fn number(&self) -> Option<usize> {
        match self.0 {
            Value::Numbers(_, [first, _]) => Some(first),
            _ => None,
        }
    }

    /// The number, if it may have a fraction.
    pub fn float(&self) -> Option<f64> {
        match self.0 {
            Value::Float(number) => Some(number),
            _ => None,
        }
    }
}

impl fmt::Display for ErrorValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::Text(text) => f.write_str(text),
            Value::Range(range) => write!(f, "a number {range}"),
            Value::Float(number) => number.fmt(f),
            Value::Numbers(text, numbers) => {
                let mut parts = text.split("{}");
                f.write_str(parts.next().unwrap_or_default())?;
                parts.zip(numbers).try_for_each(|(part, number)| write!(f, "{number}{part}"))
            }
        }
    }
}

impl From<&'static str> for ErrorValue {
    fn from(text: &'static str) -> Self {
        Self(Value::Text(text.into()))
    }
}

impl From<String> for ErrorValue {
    fn from(text: String) -> Self {
        Self(Value::Text(text.into()))
    }
}

impl From<usize> for ErrorValue {
    fn from(number: usize) -> Self {
        Self::new(&"{}", [number, 0])
    }
}

impl From<f64> for ErrorValue {
    fn from(number: f64) -> Self {
        Self(Value::Float(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_show_their_numbers() {
        let value = |text: &'static &'static str| ErrorValue::new(text, [3, 5]).to_string();
        assert_eq!(value(&"{}"), "3");
        assert_eq!(value(&"{} floats"), "3 floats");
        assert_eq!(value(&"at most {} of {} tokens"), "at most 3 of 5 tokens");
        assert_eq!(ErrorValue::in_range("above 0").to_string(), "a number above 0");
        assert_eq!(ErrorValue::from(0.5).to_string(), "0.5");
        let numbers = [ErrorValue::from(7).number(), ErrorValue::from("7").number()];
        assert_eq!((numbers, ErrorValue::from(0.5).float()), ([Some(7), None], Some(0.5)));
    }
}
