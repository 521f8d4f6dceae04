//! Structs that are read from a JSON object, without the procedural macros of serde.
//!
//! `serde_derive` and its dependencies take longer to compile than most other dependencies, and the library reads only
//! seven small structs. [`object!`] declares such a struct and implements `Deserialize` for it. As with serde's derive,
//! unknown keys are skipped; a repeated key, or a missing key without a default, is an error. Unlike serde's derive, a
//! list instead of the object is an error.

use std::fmt;

use serde_core::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_core::{Deserialize, de::IgnoredAny};

/// Reads one key of an object: returns the equal key of the list `0`, or `None` for any other key.
pub(crate) struct Key(pub(crate) &'static [&'static str]);

impl Visitor<'_> for Key {
    type Value = Option<&'static str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, found: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().copied().find(|&key| key == found))
    }
}

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

/// Reads the value of `key` into `slot`. A `slot` that is not empty means a repeated key and is an error.
pub(crate) fn fill<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    slot: &mut Option<T>,
    key: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    if slot.is_some() {
        return Err(A::Error::duplicate_field(key));
    }
    *slot = Some(map.next_value()?);
    Ok(())
}

/// Reads and drops the value of an unknown key.
pub(crate) fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(|_| ())
}

/// Declares a struct and its keys: `field: Type = "key"`. `= "key" | "alias"` adds a second name of the key, and
/// `= "key" or Vec::new()` sets the value of a missing key.
macro_rules! object {
    ($(#[$about:meta])* struct $name:ident {
        $($field:ident: $type:ty = $key:literal $(| $alias:literal)? $(or $absent:expr)?,)+
    }) => {
        $(#[$about])*
        struct $name {
            $($field: $type,)+
        }

        impl<'de> serde_core::Deserialize<'de> for $name {
            fn deserialize<D: serde_core::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;
                impl<'de> serde_core::de::Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: serde_core::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<$name, A::Error> {
                        const KEYS: &[&str] = &[$($key, $($alias,)?)+];
                        $(let mut $field: Option<$type> = None;)+
                        while let Some(key) = map.next_key_seed($crate::json_object::Key(KEYS))? {
                            match key {
                                $(Some($key $(| $alias)?) => {
                                    $crate::json_object::fill(&mut $field, $key, &mut map)?;
                                })+
                                _ => $crate::json_object::skip(&mut map)?,
                            }
                        }
                        Ok($name { $($field: object!(@value $field, $key $(, $absent)?),)+ })
                    }
                }
                deserializer.deserialize_map(Fields)
            }
        }
    };
    (@value $slot:ident, $key:literal) => {
        $slot.ok_or_else(|| <A::Error as serde_core::de::Error>::missing_field($key))?
    };
    (@value $slot:ident, $key:literal, $absent:expr) => {
        $slot.unwrap_or($absent)
    };
}

pub(crate) use object;

#[cfg(test)]
mod tests {
    object! {
        struct Example {
            name: String = "name",
            width: Option<usize> = "width" | "size" or None,
            parts: Vec<usize> = "parts" or Vec::new(),
        }
    }

    fn read(text: &str) -> Result<(String, Option<usize>, Vec<usize>), String> {
        let read = serde_json::from_str::<Example>(text);
        read.map(|Example { name, width, parts }| (name, width, parts)).map_err(|e| e.to_string())
    }

    #[test]
    fn keys_are_read_in_any_order_and_others_are_skipped() {
        let all = r#"{"parts": [1, 2], "other": {"name": [0]}, "size": 3, "n\u0061me": "x"}"#;
        assert_eq!(read(all), Ok(("x".to_owned(), Some(3), vec![1, 2])));
        assert_eq!(read(r#"{"name": "x", "width": null}"#), Ok(("x".to_owned(), None, vec![])));
    }

    #[test]
    fn errors_have_the_text_of_serde() {
        for (text, words) in [
            (r#"{"name": "x", "name": "x"}"#, "duplicate field `name` at line 1 column 20"),
            (r#"{"name": "x", "width": 1, "size": 1}"#, "duplicate field `width`"),
            (r#"{"width": null, "width": 1}"#, "duplicate field `width`"),
            (r#"{"width": 1}"#, "missing field `name` at line 1 column 12"),
            (r#"{"name": null}"#, "invalid type: null, expected a string"),
            (r#"{"name": "x", "parts": null}"#, "invalid type: null, expected a sequence"),
            (r#"["x", 1, []]"#, "invalid type: sequence, expected an object"),
            ("7", "invalid type: integer `7`, expected an object"),
            (r#"{"name": "x""#, "EOF while parsing an object"),
            (r#"{"name": "x", "other": }"#, "expected value"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.starts_with(words), "{text}: {error}");
        }
    }
}
