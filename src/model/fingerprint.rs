//! The identity of a model: one number for all that determines its results.

use super::weights::{Part, Weights};
use crate::blake2b::{BYTES, Blake2b};
use crate::config::Config;
use crate::error::Error;
use crate::memory::bytes;
use crate::printable_text::quoted;
use core::fmt;
use core::str::FromStr;

/// The version of the bits of all results. A release in which any bit of any result may differ has a larger number.
///
/// Results of one version may be stored together and compared byte for byte; those of two versions may not. It is a
/// part of [`Model::fingerprint`](crate::Model::fingerprint). `tests/golden/bits.txt` belongs to this version, and its test fails if a digest there
/// changes while this number does not.
pub const BITS_VERSION: u32 = 2;

/// Changes with the definition of a fingerprint.
const DEFINITION: &str = "simdformer fingerprint 1";

/// Number of characters of a text that an error shows.
const SHOWN: usize = 80;

/// The identity of a model, 32 bytes: see [`Model::fingerprint`](crate::Model::fingerprint). Its text is 64 hexadecimal digits in lower case.
///
/// ```
/// use simdformer::Fingerprint;
///
/// let zero = Fingerprint::from([0; 32]);
/// assert_eq!(zero.to_string(), "0".repeat(64));
/// assert_eq!("0".repeat(64).parse::<Fingerprint>()?, zero);
/// assert!("0".repeat(63).parse::<Fingerprint>().is_err());
/// # Ok::<(), simdformer::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; BYTES]);

impl Fingerprint {
    /// The bytes, in the order of the text.
    pub const fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// The fingerprint of `weights` alone, which reads all of them.
    pub(super) fn of_weights(weights: &Weights) -> Self {
        let mut hash = Blake2b::new();
        let visited = weights.each_part(&mut |part| match part {
            Part::Tensor(title) => text(&mut hash, &title),
            Part::Words(part) => words(&mut hash, part),
        });
        if let Err(error) = visited {
            // The ranges of a model are inside its memory, so this is never the identity of a valid model.
            text(&mut hash, &error.to_string());
        }
        Self(hash.finish())
    }

    /// The fingerprint of a model with this configuration, and with weights of this fingerprint.
    pub(super) fn of_model(config: &Config, weights: Self) -> Self {
        let mut hash = Blake2b::new();
        text(&mut hash, DEFINITION);
        hash.update(&BITS_VERSION.to_le_bytes());
        text(&mut hash, &config.identity());
        hash.update(&weights.0);
        Self(hash.finish())
    }
}

/// Adds a text, with its length before it.
fn text(hash: &mut Blake2b, text: &str) {
    hash.update(&(text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}

/// Adds words in little-endian order.
fn words(hash: &mut Blake2b, words: &[f32]) {
    if cfg!(target_endian = "little") {
        hash.update(bytes(words));
    } else {
        words.iter().for_each(|word| hash.update(&word.to_le_bytes()));
    }
}

impl From<[u8; BYTES]> for Fingerprint {
    fn from(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            let expected = "64 hexadecimal digits in lower case";
            Error::invalid_option("fingerprint", expected, quoted(text, SHOWN))
        };
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(wrong()),
        };
        let digits: &[u8; 2 * BYTES] = text.as_bytes().try_into().map_err(|_| wrong())?;
        let mut bytes = [0; BYTES];
        for (byte, digits) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(digits[0])? << 4 | digit(digits[1])?;
        }
        Ok(Self(bytes))
    }
}
