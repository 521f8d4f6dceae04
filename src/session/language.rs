//! The language of what was heard.

use super::error::SessionError;
use super::handles::SourceId;
use super::session::{Session, check_tokens};
use super::step::StepRow;

impl Session<'_> {
    /// The likeliest of `languages`, ids of the target, after the decoder start `start`: the language that a model which
    /// transcribes hears, for the [prefix](crate::config::Transcription::prefix) of what is to be generated. Of equals
    /// the lowest id.
    ///
    /// That is one step of the decoder. It takes a free row slot of `sentence` and gives it back; the sentence stays as
    /// it is. Allocates nothing.
    ///
    /// # Errors
    /// As [`Session::start`] and [`Session::step`]; [no languages](SessionError::NoLanguages), or one outside the
    /// [vocabulary](SessionError::Token).
    ///
    /// ```
    /// use simdformer::{Limits, Model, SourceId, Session};
    ///
    /// // Any model will do: it is asked which of three tokens it would begin with.
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits::new(1, 16, 16))?;
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let start = model.config().tokens.decoder_start.unwrap_or(0);
    /// let language = session.detect_language(sentence[0], start, &[554, 9, 14])?;
    /// assert!([554, 9, 14].contains(&language));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn detect_language(
        &mut self,
        sentence: SourceId,
        start: u32,
        languages: &[u32],
    ) -> Result<u32, SessionError> {
        let (&first, others) = languages.split_first().ok_or(SessionError::NoLanguages)?;
        check_tokens(languages, self.model.config().target_vocab)?;
        let row = self.start(sentence)?;
        let best = self.step(&[StepRow { row, token: start }]).map(|logits| {
            let score = |id: u32| logits[id as usize];
            others.iter().fold(first, |best, &id| {
                let better = score(id) > score(best) || score(id) == score(best) && id < best;
                if better { id } else { best }
            })
        });
        self.release(row)?;
        best
    }
}
