//! Decodes a stream of ids.

use crate::incremental_decoder::{State, Trim};
use crate::vocabulary::backend::Engine;

/// Decodes ids as they arrive. Text that was returned is never changed later.
///
/// The concatenated results of [`push`](Self::push) and [`finish`](Self::finish) equal
/// [`Tokenizer::decode`](crate::Tokenizer::decode) of all ids. Two things are held back: bytes that do not form a
/// character yet, and spaces that may be at the end. The cost of an id depends on its own text, not on the number of
/// ids before it.
///
/// In greedy search and sampling, every token is final when it is chosen. In beam search, stream only after the
/// search is done, or stream the common prefix of all beams.
///
/// ```
/// use simdformer_tokenize::{Direction, Tokenizer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/doc");
/// let tokenizer = Tokenizer::from_dir(directory)?;
/// let ids = tokenizer.encode("you need attention", &Direction::default())?.ids;
/// let mut stream = tokenizer.stream();
/// let mut text = String::new();
/// for &id in &ids {
///     text.extend(stream.push(id));
/// }
/// text.push_str(stream.finish());
/// assert_eq!(text, tokenizer.decode(&ids));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct DecodeStream<'t> {
    engine: &'t Engine,
    /// Whether spaces at both ends are dropped.
    trims: bool,
    state: State,
    trim: Trim,
    /// The text of the last id, before spaces at the ends are dropped.
    part: String,
    /// The text that was returned last.
    emitted: String,
}

impl<'t> DecodeStream<'t> {
    pub(crate) fn new(engine: &'t Engine, trims: bool) -> Self {
        Self {
            engine,
            trims,
            state: State::default(),
            trim: Trim::default(),
            part: String::new(),
            emitted: String::new(),
        }
    }

    /// Returns the text that `id` completes; `None` if there is none. Special tokens and ids outside the vocabulary
    /// have no text.
    pub fn push(&mut self, id: u32) -> Option<&str> {
        self.part.clear();
        self.engine.decode(id, &mut self.state, &mut self.part);
        self.say()
    }

    /// Returns the text that was held back, and resets the stream.
    pub fn finish(&mut self) -> &str {
        self.part.clear();
        self.engine.finish(&mut self.state, &mut self.part);
        let _ = self.say();
        (self.state, self.trim) = Default::default();
        &self.emitted
    }

    /// Whether bytes are held back that do not form a character yet.
    pub(crate) fn holds_bytes(&self) -> bool {
        #[cfg(feature = "json")]
        if !self.state.bytes.is_empty() {
            return true;
        }
        self.state.spm.holds_bytes()
    }

    fn say(&mut self) -> Option<&str> {
        self.emitted.clear();
        if self.trims {
            self.trim.push(&self.part, &mut self.emitted);
        } else {
            self.emitted.push_str(&self.part);
        }
        (!self.emitted.is_empty()).then_some(self.emitted.as_str())
    }
}
