//! Limits on the regular expressions of a `tokenizer.json`.
//!
//! A counted repetition is compiled as that many copies. `" {4294967295,}"` has 15 bytes in the file, but the
//! compiler uses its full memory limit, tens of megabytes, before it rejects the pattern. So patterns are checked
//! before they are compiled.

use crate::error::Error;
use serde_json::Value;

/// Bytes of a pattern; the longest published ones list the letters of Unicode in about 3,000.
const LONGEST: usize = 8 << 10;

/// Copies of a part of a pattern; published tokenizers have `{1,3}` and `{2,}`.
const MOST: u64 = 100;

/// Rejects patterns, at any level of nesting, that are too long or repeat a part too often.
pub(crate) fn check(value: &Value) -> Result<(), Error> {
    match value {
        Value::Array(several) => several.iter().try_for_each(check),
        Value::Object(keys) => keys.iter().try_for_each(|(key, value)| match value {
            Value::String(pattern) if key == "Regex" && pattern.len() > LONGEST => {
                Err(Error::corrupt(
                    "",
                    format!("a pattern of at most {LONGEST} bytes"),
                    format!("one of {}", pattern.len()),
                ))
            }
            Value::String(pattern) if key == "Regex" && copies(pattern) > MOST => {
                Err(Error::corrupt(
                    "",
                    format!("a pattern that repeats nothing more than {MOST} times"),
                    format!("{pattern:?}"),
                ))
            }
            value => check(value),
        }),
        _ => Ok(()),
    }
}

/// The product of all counts: at least the number of copies of the innermost part of nested repetitions.
fn copies(pattern: &str) -> u64 {
    let mut product = 1u64;
    for braced in pattern.split('{').skip(1) {
        let Some((inside, _)) = braced.split_once('}') else { continue };
        let count = |text: &str| -> Option<u64> {
            let text = text.trim();
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // A count that overflows exceeds any limit.
            digits.then(|| text.parse().unwrap_or(u64::MAX))
        };
        let most = inside.split(',').filter_map(count).max();
        product = product.saturating_mul(most.unwrap_or(1).max(1));
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_multiply() {
        for (pattern, expected) in [
            ("", 1),
            (" {2,}", 2),
            (r"\p{L}+|\p{N}{1,3}", 3),
            ("(a{3}){4}|b{0}", 12),
            ("{,7} { 8 }{x9}", 56),
            (" {4294967295,}", 4_294_967_295),
            ("a{99999999999999999999}", u64::MAX),
            ("a{3", 1),
        ] {
            assert_eq!(copies(pattern), expected, "{pattern}");
        }
    }
}
