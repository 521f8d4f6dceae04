//! From source sentences to the encoder's memory, and to the keys and values that cross-attention
//! keeps of it.
//!
//! The tokens of all sentences go through the stack together, laid end to end. Requests are checked
//! in full before anything runs: one that is refused has changed nothing.

use super::error::{SessionError, SourceError};
use super::handles::SourceId;
use super::plan::Plan;
use super::session::{Session, beyond};
use crate::config::Side;
use crate::features::Features;
use crate::memory::{Caches, cut, words_mut};
use crate::model::layer_observer::{LayerObserver, NoObserver};
use crate::model::pass::{SourcePass, Tokens, Workspace};
use core::ops::Range;

/// Sources that one call of the encoder takes.
pub(crate) const SOURCES_PER_CALL: usize = 64;

/// Sources of one call: all of ids, or all of features.
#[derive(Clone, Copy)]
pub(crate) enum Inputs<'i> {
    Tokens(&'i [&'i [u32]]),
    Features(&'i [Features<'i>]),
}

impl<'i> Inputs<'i> {
    fn len(self) -> usize {
        match self {
            Self::Tokens(sources) => sources.len(),
            Self::Features(sources) => sources.len(),
        }
    }

    fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::Tokens(sources) => Self::Tokens(&sources[range]),
            Self::Features(sources) => Self::Features(&sources[range]),
        }
    }

    /// Of each source.
    fn positions(self) -> impl Iterator<Item = usize> + use<'i> {
        (0..self.len()).map(move |index| match self {
            Self::Tokens(sources) => sources[index].len(),
            Self::Features(sources) => sources[index].positions(),
        })
    }

    fn tokens(self, index: usize) -> Option<&'i [u32]> {
        match self {
            Self::Tokens(sources) => sources.get(index).copied(),
            Self::Features(_) => None,
        }
    }

    fn check(self, plan: &Plan) -> Result<(), SessionError> {
        (0..self.len()).try_for_each(|index| match self {
            Self::Tokens(sources) => plan.check_tokens(index, sources[index]),
            Self::Features(sources) => plan.check_features(index, &sources[index]),
        })
    }
}

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
    /// use simdformer::{Limits, Model, SourceId, Session};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits::new(3, 16, 16))?;
    /// let mut sentences = [SourceId::default(); 2];
    /// session.encode(&[&[6, 11, 0], &[8, 0]], &mut sentences)?;
    /// assert_eq!(session.free_sentences(), 1);
    /// session.release_sentence(sentences[0])?;
    /// assert_eq!(session.free_sentences(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encode(
        &mut self,
        sources: &[&[u32]],
        sentences: &mut [SourceId],
    ) -> Result<(), SessionError> {
        self.encode_with(Inputs::Tokens(sources), sentences, &mut NoObserver)
    }

    /// As [`Session::encode`], of a model whose encoder reads features in place of ids.
    ///
    /// # Errors
    /// As [`Session::encode`]. A [source](SessionError::Source) that the model cannot read: frames of another size, broken
    /// ones, none at all, more than planned, a number that is not finite, features where ids are expected.
    ///
    /// ```
    /// use simdformer::config::{Config, Dimensions, ConvFrontend, TiedWeights};
    /// use simdformer::{Features, Limits, Model, SourceId, Session};
    ///
    /// // An encoder of features, of weights that are all zero.
    /// let small = Dimensions { d_model: 16, heads: 2, layers: 1, ffn_dim: 24, vocabulary: 30 };
    /// let config = Config {
    ///     stem: Some(ConvFrontend { bins: 5 }),
    ///     source_vocab: 0,
    ///     ties: TiedWeights { source_target: false, target_output: true },
    ///     ..Config::transformer(small)
    /// };
    /// let model = Model::from_fn(config, |_, _, _| Ok(()))?;
    /// // Twelve frames become six positions.
    /// let mut session = Session::new(&model, Limits::new(1, 6, 8))?;
    /// let sound = vec![0.5; 12 * 5];
    /// let mut sentence = [SourceId::default()];
    /// session.encode_features(&[Features::new(&sound, 5)], &mut sentence)?;
    /// let row = session.start(sentence[0])?;
    /// # let _ = row;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encode_features(
        &mut self,
        sources: &[Features<'_>],
        sentences: &mut [SourceId],
    ) -> Result<(), SessionError> {
        self.encode_with(Inputs::Features(sources), sentences, &mut NoObserver)
    }

    pub(crate) fn encode_with<T: LayerObserver>(
        &mut self,
        sources: Inputs<'_>,
        sentences: &mut [SourceId],
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
        sources.check(&self.plan)?;
        let tokens = sources.positions().sum();
        beyond("batch_tokens", limits.batch_tokens, tokens)?;
        let free = self.free_sentences();
        if sources.len() > free {
            return Err(SessionError::NoFreeSentence {
                expected_at_most: free,
                found: sources.len(),
            });
        }
        let mut start = 0;
        while start < sources.len() {
            let end = sources.len().min(start + SOURCES_PER_CALL);
            self.encode_chunk(sources.part(start..end), &mut sentences[start..end], tap)?;
            start = end;
        }
        Ok(())
    }

    /// Encodes at most SOURCES_PER_CALL sources into the lowest free slots.
    fn encode_chunk<T: LayerObserver>(
        &mut self,
        sources: Inputs<'_>,
        sentences: &mut [SourceId],
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
        for ((&slot, len), sentence) in slots.iter().zip(sources.positions()).zip(sentences) {
            *sentence = self.take_sentence(slot, len);
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
    /// let memory = session.encoder_output(&[&[6, 11, 0], &[8, 0]])?;
    /// assert_eq!(memory.len(), (3 + 2) * d_model);
    /// // An embedding of the first: the mean of its rows.
    /// let mut mean = vec![0.0; d_model];
    /// for row in memory[..3 * d_model].chunks(d_model) {
    ///     mean.iter_mut().zip(row).for_each(|(mean, x)| *mean += x / 3.0);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encoder_output(&mut self, sources: &[&[u32]]) -> Result<&[f32], SessionError> {
        self.memory_with(Inputs::Tokens(sources), &[], &mut NoObserver)
    }

    /// As [`Session::encoder_output`], of a model whose encoder reads features: `[positions, d_model]`, with
    /// [`Features::positions`] rows of each source.
    ///
    /// # Errors
    /// As [`Session::encoder_output`] and [`Session::encode_features`].
    pub fn encoder_output_of_features(
        &mut self,
        sources: &[Features<'_>],
    ) -> Result<&[f32], SessionError> {
        self.memory_with(Inputs::Features(sources), &[], &mut NoObserver)
    }

    /// As [`Session::encoder_output`], of tokens that each have a type: 0 and 1 for the two texts of a pair, in models that were
    /// trained so (BERT). `types` are as long as `sources`, source by source. Without types all are 0.
    ///
    /// # Errors
    /// As [`Session::encoder_output`]; types for more or fewer sources or tokens than there are, and a type that the model does
    /// not have.
    pub fn encoder_output_of_types(
        &mut self,
        sources: &[&[u32]],
        types: &[&[u32]],
    ) -> Result<&[f32], SessionError> {
        self.check_types(sources, types)?;
        self.memory_with(Inputs::Tokens(sources), types, &mut NoObserver)
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

    pub(crate) fn memory_with<T: LayerObserver>(
        &mut self,
        sources: Inputs<'_>,
        types: &[&[u32]],
        tap: &mut T,
    ) -> Result<&[f32], SessionError> {
        let limits = self.plan.limits;
        sources.check(&self.plan)?;
        beyond("sentences", limits.sentences, sources.len())?;
        let tokens: usize = sources.positions().sum();
        beyond("batch_tokens", limits.batch_tokens, tokens)?;
        self.run_encoder(sources, types, None, tap)?;
        let start = self.plan.x.start;
        Ok(&self.buffer.floats()[start..start + tokens * self.model.config().d_model])
    }

    /// Runs the encoder over checked sources, of type 0 where there are no `types`, and, with `slots`, keeps their keys
    /// and values.
    fn run_encoder<T: LayerObserver>(
        &mut self,
        sources: Inputs<'_>,
        types: &[&[u32]],
        slots: Option<&[u32]>,
        tap: &mut T,
    ) -> Result<(), SessionError> {
        let (model, plan) = (&*self.model, &self.plan);
        let d = model.config().d_model;
        let count: usize = sources.positions().sum();
        let [
            positions,
            relative,
            x,
            h,
            context,
            qkv,
            hidden,
            scratch,
            frames,
            rounded,
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
                &plan.frames,
                &plan.rounded,
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
        let mut start = 0;
        for (index, (to, len)) in lengths.iter_mut().zip(sources.positions()).enumerate() {
            *to = len as u32;
            let range = start..start + len;
            if let Some(source) = sources.tokens(index) {
                tokens[range.clone()].copy_from_slice(source);
            }
            let types = types.get(index).copied().unwrap_or(&[]);
            let of_token = types.iter().copied().chain(core::iter::repeat(0));
            for ((position, at), kind) in at[range].iter_mut().enumerate().zip(of_token) {
                // Each type has rows of its own for all positions.
                *at = kind * plan.limits.source_tokens as u32 + position as u32;
            }
            start += len;
        }
        let mut caches = Caches { shape: plan.caches, own, cross };
        let (ids, features): (&[u32], &[Features<'_>]) = match sources {
            Inputs::Tokens(_) => (tokens, &[]),
            Inputs::Features(features) => (&[], features),
        };
        let tokens = Tokens { ids, positions: at, position_table: positions };
        let relative = plan.source_relative.of(relative);
        let pass = SourcePass { tokens, features, lengths, slots, relative };
        let mut work = Workspace {
            x: &mut x[..count * d],
            h: &mut h[..count * d],
            context: &mut context[..count * model.config().attention_dim(Side::Encoder)],
            qkv,
            hidden,
            scratch,
            frames,
            rounded,
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
