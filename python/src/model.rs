//! A model without a search: its architecture, tensors and identity. The class behind `simdformer.Model`.

use crate::errors::Failure;
use crate::loaded::{self, Loaded};
use pyo3::prelude::*;
use simdformer::config::Side;
use std::path::PathBuf;
use std::sync::Arc;

/// The native half of `simdformer.Model`.
#[pyclass(frozen, module = "simdformer._simdformer")]
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) loaded: Arc<Loaded>,
}

/// Name, shape, storage and bytes of a tensor.
type Tensor = (String, Vec<usize>, String, usize);

#[pymethods]
impl Model {
    #[new]
    #[pyo3(signature = (path, *, isa, dtype))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        isa: Option<&str>,
        dtype: Option<&str>,
    ) -> PyResult<Self> {
        Ok(Self { loaded: loaded::open(py, &path, isa, dtype)? })
    }

    #[getter]
    fn isa(&self) -> &'static str {
        self.loaded.model.isa().name()
    }

    #[getter]
    fn bytes(&self) -> usize {
        self.loaded.model.bytes()
    }

    fn fingerprint(&self, py: Python<'_>) -> PyResult<String> {
        Ok(py.detach(|| self.loaded.fingerprint())?)
    }

    /// What the checkpoint has that the model does not use, or uses otherwise.
    fn notes(&self) -> Vec<String> {
        self.loaded.model.notes().iter().map(ToString::to_string).collect()
    }

    fn summary(&self) -> String {
        self.loaded.model.to_string()
    }

    /// Each tensor of the network, in the order of use.
    fn tensors(&self) -> Vec<Tensor> {
        let parameters = self.loaded.model.parameters();
        parameters
            .map(|one| {
                let (name, storage) = (one.role().to_string(), one.storage().to_string());
                (name, one.shape().to_vec(), storage, one.bytes())
            })
            .collect()
    }

    /// The sizes of the architecture.
    fn sizes(&self) -> Vec<(&'static str, Option<usize>)> {
        let config = self.loaded.model.config();
        let decoder = config.decoder;
        vec![
            ("d_model", Some(config.d_model)),
            ("encoder_layers", Some(config.encoder.layers)),
            ("encoder_heads", Some(config.encoder.heads)),
            ("decoder_layers", decoder.map(|decoder| decoder.layers)),
            ("decoder_heads", decoder.map(|decoder| decoder.heads)),
            ("source_vocabulary", Some(config.source_vocab)),
            ("target_vocabulary", Some(config.target_vocab)),
            ("source_positions", config.max_positions(Side::Encoder)),
            ("target_positions", config.max_positions(Side::Decoder)),
            ("decoder_start", config.tokens.decoder_start.map(|id| id as usize)),
        ]
    }

    /// The end tokens.
    fn end_tokens(&self) -> Vec<u32> {
        self.loaded.model.config().tokens.eos.clone()
    }

    /// The source ids of a text with the default languages, and the part of the text that each stands for.
    fn encode(&self, text: &str) -> PyResult<(Vec<u32>, Vec<String>)> {
        let direction = simdformer_text::Direction::default();
        let tokenizer = self.loaded.tokenizer()?;
        let (encoded, spans) =
            tokenizer.encode_text_with_spans(text, &direction).map_err(Failure::from)?;
        loaded::check_length(&self.loaded, &encoded, false, None)?;
        let parts = spans.into_iter().map(|span| text.get(span).unwrap_or_default().to_owned());
        Ok((encoded.ids, parts.collect()))
    }

    /// The text of target ids.
    fn decode(&self, ids: Vec<u32>) -> PyResult<String> {
        Ok(self.loaded.tokenizer()?.decode(&ids))
    }
}
