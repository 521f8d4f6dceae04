//! Text while ids come.

use crate::decoding::{State, Trim};
use crate::engine::Engine;

/// The text of ids as they come, without flicker: what was given is never taken back.
///
/// The pieces that [`push`](Self::push) returns and the one of [`finish`](Self::finish), one after the other,
/// are [`Tokenizer::decode`](crate::Tokenizer::decode) of all ids. Held back are bytes that are not a character yet, and spaces that may
/// be the end. An id costs what its own text costs, however many came before.
///
/// Of a greedy search or a sample every token is certain when it comes; of a beam search stream nothing
/// before it is done, or what all its beams have in common.
///
/// ```
/// use simdformer_text::{Direction, Tokenizer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/doc");
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
    /// Drops the spaces at both ends.
    trims: bool,
    state: State,
    trim: Trim,
    /// What came of the last id, before spaces at the ends are dropped.
    part: String,
    /// What was returned last.
    said: String,
}

impl<'t> DecodeStream<'t> {
    pub(crate) fn new(engine: &'t Engine, trims: bool) -> Self {
        Self {
            engine,
            trims,
            state: State::default(),
            trim: Trim::default(),
            part: String::new(),
            said: String::new(),
        }
    }

    /// What is certain now that `id` has come and was not before; `None` for nothing. Special tokens and
    /// ids outside the vocabulary have no text.
    pub fn push(&mut self, id: u32) -> Option<&str> {
        self.part.clear();
        self.engine.decode(id, &mut self.state, &mut self.part);
        self.say()
    }

    /// What was held back. The stream begins anew.
    pub fn finish(&mut self) -> &str {
        self.part.clear();
        self.engine.finish(&mut self.state, &mut self.part);
        let _ = self.say();
        (self.state, self.trim) = Default::default();
        &self.said
    }

    fn say(&mut self) -> Option<&str> {
        self.said.clear();
        if self.trims {
            self.trim.push(&self.part, &mut self.said);
        } else {
            self.said.push_str(&self.part);
        }
        (!self.said.is_empty()).then_some(self.said.as_str())
    }
}
