//! From source sentences to the encoder's memory, and to the keys and values that cross-attention
//! keeps of it.
//!
//! The tokens of all sentences go through the stack together, laid end to end. Requests are checked
//! in full before anything runs: one that is refused has changed nothing.

use super::error::{SessionError, SourceError};
use super::session::{Session, beyond};
use super::slots::Sentence;
use crate::config::Side;
use crate::memory::{Caches, cut, words_mut};
use crate::model::pass::{SourcePass, Tokens, Workspace};
use crate::model::tap::{NoTap, Tap};

/// Sources that one call of the encoder takes.
pub(crate) const SOURCES_PER_CALL: usize = 64;

impl Session<'_> {
    /// Encodes `sources`, each the ids of one sentence with its end token, and keeps what
    /// cross-attention needs of them in free slots, which are written to `sentences`, `[sources]`, in
    /// order.
    ///
    /// # Errors
    /// An empty or too long source or an id outside the vocabulary, with the source's number
    /// ([`SessionError::Source`]); more [tokens](SessionError::BeyondPlan) than planned for one call, or
    /// more sources than [slots are free](SessionError::NoFreeSentence); [`sentences` of another
    /// length](SessionError::Sentences). Then nothing has changed.
    ///
    /// ```
    /// use simdformer::{Limits, Model, Sentence, Session};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits::new(3, 16, 16))?;
    /// let mut sentences = [Sentence::default(); 2];
    /// session.encode(&[&[6, 11, 0], &[8, 0]], &mut sentences)?;
    /// assert_eq!(session.free_sentences(), 1);
    /// session.release_sentence(sentences[0])?;
    /// assert_eq!(session.free_sentences(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encode(
        &mut self,
        sources: &[&[u32]],
        sentences: &mut [Sentence],
    ) -> Result<(), SessionError> {
        self.encode_with(sources, sentences, &mut NoTap)
    }

    pub(crate) fn encode_with<T: Tap>(
        &mut self,
        sources: &[&[u32]],
        sentences: &mut [Sentence],
        tap: &mut T,
    ) -> Result<(), SessionError> {
        self.plan.check_decodes()?;
        let limits = self.plan.limits;
        if sentences.len() != sources.len() {
            return Err(SessionError::Sentences {
                expected: sources.len(),
                found: sentences.len(),
            });
        }
        for (index, source) in sources.iter().enumerate() {
            self.plan.check_tokens(index, source)?;
        }
        let tokens = sources.iter().map(|source| source.len()).sum();
        beyond("batch_tokens", limits.batch_tokens, tokens)?;
        let free = self.free_sentences();
        if sources.len() > free {
            return Err(SessionError::NoFreeSentence {
                expected_at_most: free,
                found: sources.len(),
            });
        }
        let mut start = 0;
        for chunk in sources.chunks(SOURCES_PER_CALL) {
            self.encode_chunk(chunk, &mut sentences[start..start + chunk.len()], tap)?;
            start += chunk.len();
        }
        Ok(())
    }

    /// Encodes at most SOURCES_PER_CALL sources into the lowest free slots.
    fn encode_chunk<T: Tap>(
        &mut self,
        sources: &[&[u32]],
        sentences: &mut [Sentence],
        tap: &mut T,
    ) -> Result<(), SessionError> {
        let mut slots = [0u32; SOURCES_PER_CALL];
        let slots = &mut slots[..sources.len()];
        let free = self.words(&self.plan.sentence_len).iter().enumerate();
        let free = free.filter(|(_, len)| **len == 0).map(|(slot, _)| slot as u32);
        for (slot, free) in slots.iter_mut().zip(free) {
            *slot = free;
        }
        self.run_encoder(sources, &[], Some(slots), tap)?;
        for ((&slot, source), sentence) in slots.iter().zip(sources).zip(sentences) {
            *sentence = self.take_sentence(slot, source.len());
        }
        Ok(())
    }

    /// `[tokens, d_model]`, row-major: the encoder's output of `sources` laid end to end, without keeping
    /// anything: sentence embeddings, or a look at the memory.
    ///
    /// # Errors
    /// [`SessionError::Source`] as in [`Session::encode`]; more sources or tokens than
    /// [planned](SessionError::BeyondPlan). No slot needs to be free.
    ///
    /// ```
    /// use simdformer::{Limits, Model, Session};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let d_model = model.config().d_model;
    /// let mut session = Session::new(&model, Limits::new(2, 16, 16))?;
    /// // Rows 0 to 2 are of the first source, 3 and 4 of the second.
    /// let memory = session.memory(&[&[6, 11, 0], &[8, 0]])?;
    /// assert_eq!(memory.len(), (3 + 2) * d_model);
    /// // An embedding of the first: the mean of its rows.
    /// let mut mean = vec![0.0; d_model];
    /// for row in memory[..3 * d_model].chunks(d_model) {
    ///     mean.iter_mut().zip(row).for_each(|(mean, x)| *mean += x / 3.0);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn memory(&mut self, sources: &[&[u32]]) -> Result<&[f32], SessionError> {
        self.memory_with(sources, &[], &mut NoTap)
    }

    /// As [`Session::memory`], of tokens that each have a type: 0 and 1 for the two texts of a pair, in models that were
    /// trained so (BERT). `types` are as long as `sources`, source by source. Without types all are 0.
    ///
    /// # Errors
    /// As [`Session::memory`]; types for more or fewer sources or tokens than there are, and a type that the model does
    /// not have.
    pub fn memory_of_types(
        &mut self,
        sources: &[&[u32]],
        types: &[&[u32]],
    ) -> Result<&[f32], SessionError> {
        self.check_types(sources, types)?;
        self.memory_with(sources, types, &mut NoTap)
    }

    fn check_types(&self, sources: &[&[u32]], types: &[&[u32]]) -> Result<(), SessionError> {
        let (expected, found) = (sources.len(), types.len());
        if expected != found {
            return Err(SessionError::TokenTypes { expected, found });
        }
        let known = self.model.config().token_types.max(1);
        for (index, (source, types)) in sources.iter().zip(types).enumerate() {
            let (expected, found) = (source.len(), types.len());
            let unknown = types.iter().position(|&kind| kind as usize >= known);
            let error = if expected != found {
                SourceError::TokenTypes { expected, found }
            } else if let Some(at) = unknown {
                SourceError::TokenType { index: at, types: known, found: types[at] }
            } else {
                continue;
            };
            return Err(SessionError::Source { index, error });
        }
        Ok(())
    }

    pub(crate) fn memory_with<T: Tap>(
        &mut self,
        sources: &[&[u32]],
        types: &[&[u32]],
        tap: &mut T,
    ) -> Result<&[f32], SessionError> {
        let limits = self.plan.limits;
        for (index, source) in sources.iter().enumerate() {
            self.plan.check_tokens(index, source)?;
        }
        beyond("sentences", limits.sentences, sources.len())?;
        let tokens: usize = sources.iter().map(|source| source.len()).sum();
        beyond("batch_tokens", limits.batch_tokens, tokens)?;
        self.run_encoder(sources, types, None, tap)?;
        let start = self.plan.x.start;
        Ok(&self.buffer.floats()[start..start + tokens * self.model.config().d_model])
    }

    /// Runs the encoder over checked sources, of type 0 where there are no `types`, and, with `slots`, keeps their keys
    /// and values.
    fn run_encoder<T: Tap>(
        &mut self,
        sources: &[&[u32]],
        types: &[&[u32]],
        slots: Option<&[u32]>,
        tap: &mut T,
    ) -> Result<(), SessionError> {
        let (model, plan) = (&*self.model, &self.plan);
        let d = model.config().d_model;
        let count: usize = sources.iter().map(|source| source.len()).sum();
        let [
            positions,
            relative,
            x,
            h,
            context,
            qkv,
            hidden,
            scratch,
            own,
            cross,
            tokens,
            at,
            lengths,
        ] = cut(
            &mut self.buffer,
            [
                &plan.source_positions,
                &plan.source_relative.range,
                &plan.x,
                &plan.h,
                &plan.context,
                &plan.qkv,
                &plan.hidden,
                &plan.scratch,
                &plan.own_cache,
                &plan.cross_cache,
                &plan.pass_tokens,
                &plan.pass_positions,
                // No source is empty: there are no more of them than tokens.
                &plan.pass_slots,
            ],
        )?;
        let (tokens, at) = (&mut words_mut(tokens)[..count], &mut words_mut(at)[..count]);
        let lengths = &mut words_mut(lengths)[..sources.len()];
        for (len, source) in lengths.iter_mut().zip(sources) {
            *len = source.len() as u32;
        }
        let mut start = 0;
        for (index, source) in sources.iter().enumerate() {
            let range = start..start + source.len();
            tokens[range.clone()].copy_from_slice(source);
            let types = types.get(index).copied().unwrap_or(&[]);
            let of_token = types.iter().copied().chain(core::iter::repeat(0));
            for ((position, at), kind) in at[range].iter_mut().enumerate().zip(of_token) {
                // Each type has rows of its own for all positions.
                *at = kind * plan.limits.source_tokens as u32 + position as u32;
            }
            start += source.len();
        }
        let mut caches = Caches { shape: plan.caches, own, cross };
        let tokens = Tokens { ids: tokens, positions: at, position_table: positions };
        let pass =
            SourcePass { tokens, lengths, slots, relative: plan.source_relative.of(relative) };
        let mut work = Workspace {
            x: &mut x[..count * d],
            h: &mut h[..count * d],
            context: &mut context[..count * model.config().attention_dim(Side::Encoder)],
            qkv,
            hidden,
            scratch,
        };
        self.threads.run(|parallelism| {
            let run = model.run(parallelism);
            model.encoder().run(&run, &pass, &mut work, tap)?;
            match model.decoder() {
                Some(decoder) => decoder.keep_memory(&run, &pass, &mut caches, &mut work, tap),
                None => Ok(()),
            }
        })?;
        Ok(())
    }
}
