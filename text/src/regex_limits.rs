//! How large a regular expression of a `tokenizer.json` becomes.
//!
//! A counted repetition is compiled as so many copies: `" {4294967295,}"` is 15 bytes in the file and takes what the
//! compiler is allowed, tens of megabytes, before it is refused. So it is looked at first.

use serde_json::Value;

/// Bytes of a pattern: the longest published ones list the letters of Unicode in about 3,000.
const LONGEST: usize = 8 << 10;

/// Copies of a part of a pattern. Published tokenizers have `{1,3}` and `{2,}`.
const MOST: u64 = 100;

/// Refuses patterns that are longer than any tokenizer's or repeat a part more often, wherever they are.
pub(crate) fn check(value: &Value) -> Result<(), String> {
    match value {
        Value::Array(several) => several.iter().try_for_each(check),
        Value::Object(keys) => keys.iter().try_for_each(|(key, value)| match value {
            Value::String(pattern) if key == "Regex" && pattern.len() > LONGEST => Err(format!(
                "expected a pattern of at most {LONGEST} bytes, found one of {}",
                pattern.len()
            )),
            Value::String(pattern) if key == "Regex" && copies(pattern) > MOST => Err(format!(
                "expected a pattern that repeats nothing more than {MOST} times, found {pattern:?}"
            )),
            value => check(value),
        }),
        _ => Ok(()),
    }
}

/// The product of all counts: at least how often the innermost part of nested repetitions is copied.
fn copies(pattern: &str) -> u64 {
    let mut product = 1u64;
    for braced in pattern.split('{').skip(1) {
        let Some((inside, _)) = braced.split_once('}') else { continue };
        let count = |text: &str| -> Option<u64> {
            let text = text.trim();
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // What does not fit is more than any limit.
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
