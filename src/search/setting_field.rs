//! The field of a setting: how it is read from JSON, written, and checked.

use crate::error::{Error, ErrorValue};
use serde_json::{Value, json};

/// The valid values of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// As in "a number above 0 and finite".
    pub(super) expected: &'static str,
    holds: fn(f64) -> bool,
}

impl Range {
    /// No range, or one that needs more than the number.
    pub(super) const ANY: Self = Self { expected: "", holds: |_| true };
    pub(super) const AT_LEAST_ONE: Self = Self { expected: "of at least 1", holds: |x| x >= 1.0 };
    pub(super) const SHARE: Self =
        Self { expected: "in [0, 1]", holds: |x| (0.0..=1.0).contains(&x) };
    pub(super) const MASS: Self = Self { expected: "in (0, 1]", holds: |x| x > 0.0 && x <= 1.0 };
    pub(super) const CUTOFF: Self = Self { expected: "in (0, 1)", holds: |x| x > 0.0 && x < 1.0 };
    pub(super) const EXPONENT: Self =
        Self { expected: "in [-100, 100]", holds: |x| x.abs() <= 100.0 };
    pub(super) const FACTOR: Self =
        Self { expected: "above 0 and finite", holds: |x| x > 0.0 && x.is_finite() };
    /// A factor that is applied and inverted in f32.
    pub(super) const PENALTY: Self = Self {
        expected: "above 0 and finite",
        holds: |x| is_positive(x as f32) && is_positive((1.0 / x) as f32),
    };
    pub(super) const TEMPERATURE: Self = Self {
        expected: "above 0 (0 is greedy search) and finite",
        holds: |x| is_positive(x as f32),
    };
    pub(super) const DIFFERENCE: Self = Self {
        expected: "of at least 0 and finite",
        holds: |x| x >= 0.0 && (x as f32).is_finite(),
    };

    /// An error, with the name of the field, if its number is outside.
    pub(super) fn check(self, setting: &'static str, field: &dyn Field) -> Result<(), Error> {
        match field.number() {
            Some(found) if !(self.holds)(found) => Err(match field.expected() {
                COUNT => Error::invalid_option(setting, ErrorValue::at_least(1), 0),
                _ => Error::invalid_option(setting, ErrorValue::in_range(self.expected), found),
            }),
            _ => Ok(()),
        }
    }
}

fn is_positive(x: f32) -> bool {
    x.is_finite() && x > 0.0
}

/// The type of a field that is a setting.
pub(crate) trait Field {
    /// What [`Field::read_value`] expects.
    fn expected(&self) -> &'static str;

    /// Takes a value of JSON; `null` is the `None` of an option. Returns the part of it that has another type; the field
    /// then does not change.
    fn read_value<'v>(&mut self, value: &'v Value) -> Result<(), &'v Value>;

    /// The value in JSON, as [`Field::read_value`] takes it.
    fn write(&self) -> Value;

    /// The number that has a range.
    fn number(&self) -> Option<f64> {
        None
    }

    /// The token ids in the value.
    fn ids(&self) -> Vec<u32> {
        Vec::new()
    }
}

/// Implements [`Field`]: the words for the expected value, how it is read and written, and what else the type has.
macro_rules! field {
    (
        $type:ty, $expected:expr,
        read |$value:ident| $read:expr,
        write |$field:ident| $write:expr
        $(, number |$own:ident| $number:expr)? $(, ids |$list:ident| $ids:expr)? $(,)?
    ) => {
        impl Field for $type {
            fn expected(&self) -> &'static str {
                $expected
            }

            fn read_value<'v>(&mut self, $value: &'v Value) -> Result<(), &'v Value> {
                let read: Result<Self, &'v Value> = $read;
                *self = read?;
                Ok(())
            }

            fn write(&self) -> Value {
                let $field = self;
                $write
            }

            $(fn number(&self) -> Option<f64> {
                let $own = self;
                $number
            })?

            $(fn ids(&self) -> Vec<u32> {
                let $list = self;
                $ids
            })?
        }
    };
}

pub(super) use field;

/// Declares a struct of settings: its fields with their defaults, and their rows of the table, which are expressions of
/// [`Setting`](super::Setting). `$place` is where the struct is in [`Settings`](super::Settings), and `$needs` the setting
/// without which its fields have no effect, or empty.
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub struct $Struct:ident in |$settings:ident| $place:expr, needs $needs:literal {
            $($(#[$doc:meta])* pub $field:ident: $type:ty = $default:expr $(=> $row:expr)?;)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Struct {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for $Struct {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl SettingFields for $Struct {
            const ROWS: &'static [Setting] = &[$($(Setting {
                field: stringify!($field),
                of: |$settings| &$place.$field,
                of_mut: |$settings| &mut $place.$field,
                ..($row).needing($needs)
            },)?)*];

            fn check_ranges(&self) -> Result<(), Error> {
                $($(const { ($row).range }.check(stringify!($field), &self.$field)?;)?)*
                Ok(())
            }

            fn change_scores(&self) -> bool {
                false $($(|| const { ($row).changes_scores } && {
                    let default: $type = $default;
                    self.$field != default
                })?)*
            }
        }
    };
}
pub(super) use settings;

pub(super) const COUNT: &str = "an integer of 0 or more";
pub(super) const NUMBER: &str = "a number in the range of f32";

field!(
    bool,
    "true or false",
    read | value | value.as_bool().ok_or(value),
    write | flag | (*flag).into()
);
field!(u64, COUNT, read | value | value.as_u64().ok_or(value), write | n | (*n).into());
field!(
    usize,
    COUNT,
    read | value | count(value),
    write | n | (*n).into(),
    number | own | Some(*own as f64)
);
field!(
    Option<usize>,
    COUNT,
    read | value | or_null(value, count),
    write | n | (*n).into(),
    number | own | own.map(|n| n as f64)
);
field!(
    f64,
    NUMBER,
    read | value | number(value),
    write | x | (*x).into(),
    number | own | Some(*own)
);
field!(
    Option<f64>,
    NUMBER,
    read | value | or_null(value, number),
    write | x | (*x).into(),
    number | own | *own
);
field!(
    Vec<u32>,
    "a token id, a list of them or null",
    read | value
        | match value {
            Value::Array(list) => list.iter().map(id).collect(),
            value => id(value).map(|id| vec![id]),
        },
    write | ids | ids.clone().into(),
    ids | own | own.clone()
);
field!(
    Vec<Vec<u32>>,
    "a list of non-empty lists of token ids",
    read | value | list(value)?.iter().map(sequence).collect(),
    write | sequences | sequences.clone().into(),
    ids | own | own.concat()
);
field!(
    Vec<(Vec<u32>, f32)>,
    "a list of pairs of a list of token ids and a number",
    read | value | {
        let pair = |pair| match list(pair)? {
            [ids, bias] => Ok((sequence(ids)?, number(bias)? as f32)),
            _ => Err(pair),
        };
        list(value)?.iter().map(pair).collect()
    },
    write | biases | biases.iter().map(|(ids, bias)| json!([ids, decimal(*bias)])).collect(),
    ids | own | own.iter().flat_map(|(ids, _)| ids.iter().copied()).collect()
);
field!(
    Option<(usize, f64)>,
    "a pair of a length and a factor",
    read | value
        | match value {
            Value::Null => Ok(None),
            value => match list(value)? {
                [] => Ok(None),
                [start, factor] => Ok(Some((count(start)?, number(factor)?))),
                _ => Err(value),
            },
        },
    write | pair | pair.map(|(start, factor)| json!([start, factor])).into(),
    number | own | own.map(|(_, factor)| factor)
);

fn count(value: &Value) -> Result<usize, &Value> {
    value.as_u64().and_then(|n| usize::try_from(n).ok()).ok_or(value)
}

fn number(value: &Value) -> Result<f64, &Value> {
    value.as_f64().filter(|&x| (x as f32).is_finite()).ok_or(value)
}

fn id(value: &Value) -> Result<u32, &Value> {
    value.as_u64().and_then(|n| u32::try_from(n).ok()).ok_or(value)
}

fn list(value: &Value) -> Result<&[Value], &Value> {
    value.as_array().map(Vec::as_slice).ok_or(value)
}

fn sequence(value: &Value) -> Result<Vec<u32>, &Value> {
    match list(value)? {
        [] => Err(value),
        ids => ids.iter().map(id).collect(),
    }
}

fn or_null<'v, T>(
    value: &'v Value,
    read: impl FnOnce(&'v Value) -> Result<T, &'v Value>,
) -> Result<Option<T>, &'v Value> {
    if value.is_null() { Ok(None) } else { read(value).map(Some) }
}

/// The shortest decimal number that is read as `x`.
pub(crate) fn decimal(x: f32) -> Value {
    x.to_string().parse::<f64>().unwrap_or(f64::from(x)).into()
}
