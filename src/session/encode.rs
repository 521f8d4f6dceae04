//! Encodes sources: runs the encoder and writes the cross-attention keys and values of its output.
//!
//! The tokens of all sources of a call are concatenated and run in one pass. The whole request is checked before
//! anything runs, so a rejected request changes nothing.

use super::memory_plan::{Plan, SessionBuffers};
use super::session::{Session, check_limit};
use super::threads::Threads;
use crate::cancel::Cancel;
use crate::config::Side;
use crate::error::{Error, ErrorValue};
use crate::input_features::{Features, expected_features};
use crate::kv::{Caches, SourceId};
use crate::model::Model;
use crate::model::forward::{LayerObserver, NoObserver};
use crate::model::pass_input::{SourcePass, Tokens, Workspace};
use core::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Largest number of sources in one pass of the encoder.
pub(crate) const SOURCES_PER_CALL: usize = 64;

/// The sources of one call: all token ids, or all features.
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

    /// Number of positions of each source.
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

    /// Checks every source before anything runs.
    fn check(self, plan: &Plan) -> Result<(), Error> {
        (0..self.len()).try_for_each(|index| match self {
            Self::Tokens(sources) => plan.check_tokens(index, sources[index]),
            Self::Features(sources) => plan.check_features(index, &sources[index]),
        })
    }
}

impl Plan {
    /// Checks the token ids of the source of index `index`.
    pub(crate) fn check_tokens(&self, index: usize, tokens: &[u32]) -> Result<(), Error> {
        let (most, found) = (self.limits.source_tokens, tokens.len());
        let outside = tokens.iter().position(|&id| id as usize >= self.source_vocabulary);
        let error = if let Some(bins) = self.bins {
            expected_features(bins)
        } else if tokens.is_empty() {
            Error::invalid_input("", "at least one token", "none")
        } else if found > most {
            return check_limit("source_tokens", most, found)
                .map_err(|error| error.with_index(index));
        } else if let Some(at) = outside {
            Error::token("token", Some(at), self.source_vocabulary, tokens[at])
        } else {
            return Ok(());
        };
        Err(error.with_index(index))
    }

    /// Checks the features of the source of index `index`.
    pub(crate) fn check_features(
        &self,
        index: usize,
        features: &Features<'_>,
    ) -> Result<(), Error> {
        let checked = features.check(self.bins, self.limits.source_tokens);
        checked.map_err(|error| error.with_index(index))
    }
}

impl Session<'_> {
    /// Encodes `sources`, each the token ids of one sentence with its end token, and stores the keys and values for
    /// cross-attention in free slots. Writes the handles to `sentences`, `[sources]`, in order.
    ///
    /// # Errors
    /// An empty or too long source or an id outside the vocabulary, with the index of the source
    /// ([`Error::index`]); more [tokens](Error::BeyondLimit) than planned for one call; more sources than
    /// [free slots](Error::BeyondLimit); [`sentences` of another length](Error::InvalidInput). An error
    /// changes nothing.
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
    pub fn encode(&mut self, sources: &[&[u32]], sentences: &mut [SourceId]) -> Result<(), Error> {
        self.encode_inputs(Inputs::Tokens(sources), sentences)
    }

    /// As [`Session::encode`], for a model whose encoder reads features instead of token ids.
    ///
    /// # Errors
    /// As [`Session::encode`]. A source is rejected, with its [index](Error::index), if its frames have another size, its last
    /// frame is incomplete, it has no frame or more than planned, a number is not finite, or the encoder reads ids.
    ///
    /// ```
    /// use simdformer::config::{Config, Dimensions, TiedWeights};
    /// use simdformer::{Features, Limits, Model, SourceId, Session};
    ///
    /// // An encoder of features, with zero weights.
    /// let small = Dimensions { d_model: 16, heads: 2, layers: 1, ffn_dim: 24, vocabulary: 30 };
    /// let config = Config {
    ///     bins: Some(5),
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
    /// let hypothesis = session.start(sentence[0])?;
    /// # let _ = hypothesis;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encode_features(
        &mut self,
        sources: &[Features<'_>],
        sentences: &mut [SourceId],
    ) -> Result<(), Error> {
        self.encode_inputs(Inputs::Features(sources), sentences)
    }

    /// [`Session::encode`] of either kind of source.
    pub(crate) fn encode_inputs(
        &mut self,
        sources: Inputs<'_>,
        sentences: &mut [SourceId],
    ) -> Result<(), Error> {
        self.plan.check_decodes()?;
        let limits = self.plan.limits;
        if sentences.len() != sources.len() {
            let text = &"{} places for the slots of all sources";
            let expected = ErrorValue::new(text, [sources.len(), 0]);
            return Err(Error::invalid_input("sentences", expected, sentences.len()));
        }
        sources.check(&self.plan)?;
        let tokens = sources.positions().sum();
        check_limit("batch_tokens", limits.batch_tokens, tokens)?;
        let free = self.free_sentences();
        if sources.len() > free {
            let most = ErrorValue::new(&"at most {}, the free sentence slots", [free, 0]);
            return Err(Error::beyond_limit("sentences", most, sources.len()));
        }
        let mut start = 0;
        while start < sources.len() {
            let end = sources.len().min(start + SOURCES_PER_CALL);
            let chunk = self.encode_chunk(sources.part(start..end), &mut sentences[start..end]);
            if chunk.is_err() {
                // Only a cancellation: everything else was checked above.
                for sentence in &sentences[..start] {
                    self.release_sentence_slot(sentence.slot())?;
                }
                return chunk;
            }
            start = end;
        }
        Ok(())
    }

    /// Encodes at most [`SOURCES_PER_CALL`] sources into the lowest free slots.
    fn encode_chunk(
        &mut self,
        sources: Inputs<'_>,
        sentences: &mut [SourceId],
    ) -> Result<(), Error> {
        let mut slots = [0u32; SOURCES_PER_CALL];
        let slots = &mut slots[..sources.len()];
        let free = self.source_lens().iter().enumerate();
        let free = free.filter(|(_, len)| **len == 0).map(|(slot, _)| slot as u32);
        for (slot, free) in slots.iter_mut().zip(free) {
            *slot = free;
        }
        self.run_encoder(sources, &[], Some(slots))?;
        for ((&slot, len), sentence) in slots.iter().zip(sources.positions()).zip(sentences) {
            *sentence = self.take_sentence(slot, len)?;
        }
        Ok(())
    }

    /// `[tokens, d_model]`, row-major: the encoder output of the concatenated `sources`, for example for sentence
    /// embeddings. Stores nothing in the session.
    ///
    /// # Errors
    /// A refused source, as in [`Session::encode`]; more sources or tokens than
    /// [planned](Error::BeyondLimit). No slot needs to be free.
    ///
    /// ```
    /// use simdformer::{Limits, Model, Session};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let d_model = model.config().d_model;
    /// let mut session = Session::new(&model, Limits::new(2, 16, 16))?;
    /// // Rows 0 to 2 belong to the first source, rows 3 and 4 to the second.
    /// let memory = session.encoder_output(&[&[6, 11, 0], &[8, 0]])?;
    /// assert_eq!(memory.len(), (3 + 2) * d_model);
    /// // An embedding of the first source: the mean of its rows.
    /// let mut mean = vec![0.0; d_model];
    /// for row in memory[..3 * d_model].chunks(d_model) {
    ///     mean.iter_mut().zip(row).for_each(|(mean, x)| *mean += x / 3.0);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encoder_output(&mut self, sources: &[&[u32]]) -> Result<&[f32], Error> {
        self.encoder_output_with(Inputs::Tokens(sources), &[])
    }

    /// As [`Session::encoder_output`], for a model whose encoder reads features: `[positions, d_model]`, with
    /// [`Features::positions`] rows for each source.
    ///
    /// # Errors
    /// As [`Session::encoder_output`] and [`Session::encode_features`].
    pub fn encoder_output_of_features(
        &mut self,
        sources: &[Features<'_>],
    ) -> Result<&[f32], Error> {
        self.encoder_output_with(Inputs::Features(sources), &[])
    }

    /// As [`Session::encoder_output`], with a type for each token: 0 and 1 for the two texts of a pair, in models that
    /// were trained with types (BERT). `types` has the same lengths as `sources`. Without types, all are 0.
    ///
    /// # Errors
    /// As [`Session::encoder_output`]; the number of types differs from the number of sources or tokens, or the model
    /// lacks a type.
    pub fn encoder_output_of_types(
        &mut self,
        sources: &[&[u32]],
        types: &[&[u32]],
    ) -> Result<&[f32], Error> {
        self.check_types(sources, types)?;
        self.encoder_output_with(Inputs::Tokens(sources), types)
    }

    fn check_types(&self, sources: &[&[u32]], types: &[&[u32]]) -> Result<(), Error> {
        let (expected, found) = (sources.len(), types.len());
        if expected != found {
            let expected =
                ErrorValue::new(&"types for the tokens of all {} sources", [expected, 0]);
            return Err(Error::invalid_input("types", expected, found));
        }
        let known = self.model.config().token_types.max(1);
        for (index, (source, types)) in sources.iter().zip(types).enumerate() {
            let (expected, found) = (source.len(), types.len());
            let unknown = types.iter().position(|&kind| kind as usize >= known);
            let error = if expected != found {
                let expected = ErrorValue::new(&"a type for each of {} tokens", [expected, 0]);
                Error::invalid_input("types", expected, found)
            } else if let Some(at) = unknown {
                let text = &"one of {} types of the model (counted from 0) for token {}";
                let expected = ErrorValue::new(text, [known, at]);
                Error::invalid_input("types", expected, types[at] as usize)
            } else {
                continue;
            };
            return Err(error.with_index(index));
        }
        Ok(())
    }

    fn encoder_output_with(
        &mut self,
        sources: Inputs<'_>,
        types: &[&[u32]],
    ) -> Result<&[f32], Error> {
        let limits = self.plan.limits;
        sources.check(&self.plan)?;
        check_limit("sentences", limits.sentences, sources.len())?;
        let tokens: usize = sources.positions().sum();
        check_limit("batch_tokens", limits.batch_tokens, tokens)?;
        self.run_encoder(sources, types, None)?;
        Ok(&self.plan.buffers.x.slice_of(self.buffer.floats())[..tokens * self.plan.d_model])
    }

    /// Runs the encoder over checked sources. Tokens have type 0 if `types` is empty. With `slots`, stores the keys and
    /// values for cross-attention.
    fn run_encoder(
        &mut self,
        sources: Inputs<'_>,
        types: &[&[u32]],
        slots: Option<&[u32]>,
    ) -> Result<(), Error> {
        let Self { model, plan, buffer, threads, cancel, probe, .. } = self;
        let d = plan.d_model;
        let count: usize = sources.positions().sum();
        let SessionBuffers {
            tokens,
            positions,
            // No source is empty, so there are at most as many sources as tokens.
            slots: lengths,
            x,
            h,
            context,
            qkv,
            hidden,
            attention_scratch: scratch,
            frames,
            rounded,
            source_positions,
            source_relative,
            own_cache,
            cross_cache,
            ..
        } = plan.buffers.split(buffer.floats_mut())?;
        let (tokens, at) = (&mut tokens[..count], &mut positions[..count]);
        let lengths = &mut lengths[..sources.len()];
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
                // Each type has its own rows for all positions.
                *at = kind * plan.limits.source_tokens as u32 + position as u32;
            }
            start += len;
        }
        let (ids, features): (&[u32], &[Features<'_>]) = match sources {
            Inputs::Tokens(_) => (tokens, &[]),
            Inputs::Features(features) => (&[], features),
        };
        let pass = SourcePass {
            tokens: Tokens { ids, positions: at, position_table: source_positions },
            features,
            lengths,
            slots,
            relative: plan.source_relative.with_tables(source_relative),
        };
        let caches = Caches { shape: plan.caches, own: own_cache, cross: cross_cache };
        let work = Workspace {
            x: &mut x[..count * d],
            h: &mut h[..count * d],
            context: &mut context[..count * model.config().attention_dim(Side::Encoder)],
            qkv,
            hidden,
            scratch,
            frames,
            rounded,
        };
        match probe.as_mut().map(Mutex::get_mut) {
            None => run_pass((model, threads, cancel), &pass, caches, work, &mut NoObserver)?,
            Some(probe) => {
                let observer = probe.unwrap_or_else(PoisonError::into_inner);
                run_pass((model, threads, cancel), &pass, caches, work, observer)?;
            }
        }
        Ok(())
    }
}

/// Runs the encoder, and writes the cross-attention keys and values of its output.
fn run_pass<T: LayerObserver>(
    (model, threads, cancel): (&Model, &Threads<'_>, &Option<Cancel>),
    pass: &SourcePass<'_>,
    mut caches: Caches<'_>,
    mut work: Workspace<'_>,
    observer: &mut T,
) -> Result<(), Error> {
    threads.with_parallelism(|parallelism| {
        let run = model.exec_context(parallelism);
        let context = (&run, cancel.as_ref());
        model.encoder().run_inference(context, pass, &mut work, observer)?;
        match model.decoder() {
            Some(decoder) => decoder.store_source(context, pass, &mut caches, &mut work, observer),
            None => Ok(()),
        }
    })
}
