//! Detection of the spoken language.

use super::error::SessionError;
use super::handles::SourceId;
use super::session::{Session, check_tokens};
use super::step::StepRow;

impl Session<'_> {
    /// The most likely of `languages`, ids of the target vocabulary, after the decoder start `start`; the lowest id
    /// among equal scores. For a transcription model, this is the language of the audio, for the
    /// [prefix](crate::config::Transcription::prefix) of the target.
    ///
    /// Runs one step of the decoder. Uses a free row slot of `sentence` and releases it; the sentence does not change.
    /// Does not allocate.
    ///
    /// # Errors
    /// As [`Session::start`] and [`Session::step`]; [no languages](SessionError::NoLanguages), or one outside the
    /// [vocabulary](SessionError::Token).
    ///
    /// ```
    /// use simdformer::{Limits, Model, SourceId, Session};
    ///
    /// // Works with any model: this one chooses among three tokens.
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
