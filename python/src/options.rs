//! The options of a call, from the dictionary that the Python dataclass gives.

use crate::errors::Failure;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use simdformer::Dtype;
use simdformer::config::Config;
use simdformer::search::{EarlyStopping, SampleOptions, SearchOptions, Strategy};
use simdformer_text::audio::transcriber::{Compression, TranscribeOptions, Windows};
use simdformer_text::translator::TranslateOptions;

/// The changes of a search; `None` keeps what the checkpoint says.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchChanges {
    pub(crate) beams: Option<usize>,
    pub(crate) num_return: Option<usize>,
    pub(crate) max_new_tokens: Option<usize>,
    pub(crate) seed: Option<u64>,
    min_new_tokens: Option<usize>,
    forced_eos: Option<bool>,
    sample: Option<bool>,
    length_penalty: Option<f64>,
    early_stopping: Option<EarlyStopping>,
    no_repeat_ngram_size: Option<usize>,
    repetition_penalty: Option<f64>,
    temperature: Option<f64>,
    top_h: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    min_p: Option<f64>,
}

/// The item `name` of `options`; `None` if it is absent or Python's `None`.
pub(crate) fn item<'py, T: FromPyObjectOwned<'py>>(
    options: &Bound<'py, PyDict>,
    name: &'static str,
    expected: &str,
) -> PyResult<Option<T>> {
    let Some(value) = options.get_item(name)?.filter(|value| !value.is_none()) else {
        return Ok(None);
    };
    // Python's `True` is the number 1; as a count or a factor it is a mistake.
    let mistaken = value.is_instance_of::<PyBool>() && expected != BOOLEAN;
    match value.extract() {
        Ok(value) if !mistaken => Ok(Some(value)),
        _ => Err(Failure::new(
            "OptionTypeError",
            format!("{name}: expected {expected}, found {}", value.repr()?),
        )
        .with("option", name)
        .with("expected", expected)
        .with("found", value.repr()?.to_string())
        .into()),
    }
}

pub(crate) const WHOLE: &str = "a whole number of at least 0";
const NUMBER: &str = "a number";
pub(crate) const BOOLEAN: &str = "True or False";
pub(crate) const TEXT: &str = "a string";

impl SearchChanges {
    /// Reads the items that concern the search.
    pub(crate) fn read(options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let early = options.get_item("early_stopping")?.filter(|value| !value.is_none());
        let early_stopping = match early {
            None => None,
            Some(value) => Some(match (value.extract::<bool>(), value.extract::<&str>()) {
                (Ok(true), _) => EarlyStopping::WhenFull,
                (Ok(false), _) => EarlyStopping::Heuristic,
                (_, Ok("never")) => EarlyStopping::Never,
                _ => {
                    let found = value.repr()?.to_string();
                    return Err(Failure::option(
                        "early_stopping",
                        "True, False or \"never\"",
                        found,
                    )
                    .into());
                }
            }),
        };
        Ok(Self {
            beams: item(options, "beams", WHOLE)?,
            num_return: item(options, "num_return", WHOLE)?,
            max_new_tokens: item(options, "max_new_tokens", WHOLE)?,
            seed: item(options, "seed", WHOLE)?,
            min_new_tokens: item(options, "min_new_tokens", WHOLE)?,
            forced_eos: item(options, "forced_eos", BOOLEAN)?,
            sample: item(options, "sample", BOOLEAN)?,
            length_penalty: item(options, "length_penalty", NUMBER)?,
            early_stopping,
            no_repeat_ngram_size: item(options, "no_repeat_ngram_size", WHOLE)?,
            repetition_penalty: item(options, "repetition_penalty", NUMBER)?,
            temperature: item(options, "temperature", NUMBER)?,
            top_h: item(options, "top_h", NUMBER)?,
            top_k: item(options, "top_k", WHOLE)?,
            top_p: item(options, "top_p", NUMBER)?,
            min_p: item(options, "min_p", NUMBER)?,
        })
    }

    /// These changes, and where they have none, those of `earlier`.
    pub(crate) fn or(self, earlier: &Self) -> Self {
        Self {
            beams: self.beams.or(earlier.beams),
            num_return: self.num_return.or(earlier.num_return),
            max_new_tokens: self.max_new_tokens.or(earlier.max_new_tokens),
            seed: self.seed.or(earlier.seed),
            min_new_tokens: self.min_new_tokens.or(earlier.min_new_tokens),
            forced_eos: self.forced_eos.or(earlier.forced_eos),
            sample: self.sample.or(earlier.sample),
            length_penalty: self.length_penalty.or(earlier.length_penalty),
            early_stopping: self.early_stopping.or(earlier.early_stopping),
            no_repeat_ngram_size: self.no_repeat_ngram_size.or(earlier.no_repeat_ngram_size),
            repetition_penalty: self.repetition_penalty.or(earlier.repetition_penalty),
            temperature: self.temperature.or(earlier.temperature),
            top_h: self.top_h.or(earlier.top_h),
            top_k: self.top_k.or(earlier.top_k),
            top_p: self.top_p.or(earlier.top_p),
            min_p: self.min_p.or(earlier.min_p),
        }
    }

    /// The search of the checkpoint with these changes.
    ///
    /// # Errors
    /// An option has no effect with the strategy of the search.
    pub(crate) fn apply(&self, config: &Config) -> Result<SearchOptions, Failure> {
        let mut config = config.clone();
        let generation = &mut config.generation;
        generation.num_beams = self.beams.unwrap_or(generation.num_beams);
        if generation.num_beams == 0 {
            return Err(Failure::option("beams", "at least 1", 0usize));
        }
        generation.do_sample = self.sample.unwrap_or(generation.do_sample);
        let mut search = config.search_options();
        self.change_strategy(&mut search.strategy)?;
        if self.max_new_tokens.is_some() {
            (search.max_new_tokens, search.max_length) = (self.max_new_tokens, None);
        }
        search.min_new_tokens = self.min_new_tokens.unwrap_or(search.min_new_tokens);
        match self.forced_eos {
            Some(true) => search.forced_eos.clone_from(&search.eos),
            Some(false) => search.forced_eos.clear(),
            None => (),
        }
        if let Some(size) = self.no_repeat_ngram_size {
            search.no_repeat_ngram = (size > 0).then_some(size);
        }
        search.repetition_penalty = self.repetition_penalty.unwrap_or(search.repetition_penalty);
        search.num_return_sequences = self.num_return.unwrap_or(1);
        search.scores = false;
        Ok(search)
    }

    fn change_strategy(&self, strategy: &mut Strategy) -> Result<(), Failure> {
        let of_samples = [
            ("temperature", self.temperature.is_some()),
            ("top_h", self.top_h.is_some()),
            ("top_k", self.top_k.is_some()),
            ("top_p", self.top_p.is_some()),
            ("min_p", self.min_p.is_some()),
            ("seed", self.seed.is_some_and(|seed| seed != 0)),
        ];
        let of_beams = [
            ("length_penalty", self.length_penalty.is_some()),
            ("early_stopping", self.early_stopping.is_some()),
        ];
        let change = |sample: &mut SampleOptions| {
            sample.seed = self.seed.unwrap_or(sample.seed);
            sample.temperature = self.temperature.unwrap_or(sample.temperature);
            sample.top_h = self.top_h.or(sample.top_h);
            if let Some(k) = self.top_k {
                sample.top_k = (k > 0).then_some(k);
            }
            sample.top_p = self.top_p.or(sample.top_p);
            sample.min_p = self.min_p.or(sample.min_p);
        };
        match strategy {
            Strategy::Sample(sample) => {
                no_effect(&of_beams, "more than one beam")?;
                change(sample);
            }
            Strategy::Beam(beam) => {
                match &mut beam.sample {
                    Some(sample) => change(sample),
                    None => no_effect(&of_samples, "sample=True")?,
                }
                beam.length_penalty = self.length_penalty.unwrap_or(beam.length_penalty);
                beam.early_stopping = self.early_stopping.unwrap_or(beam.early_stopping);
            }
            Strategy::Greedy => {
                no_effect(&of_samples, "sample=True")?;
                // With an explicit `beams=1`, for scripts that vary the number of beams.
                if self.beams.is_none() {
                    no_effect(&of_beams, "more than one beam")?;
                }
            }
        }
        Ok(())
    }
}

/// An error if one of `options` is given although it has no effect without `needed`.
fn no_effect(options: &[(&'static str, bool)], needed: &str) -> Result<(), Failure> {
    match options.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => {
            let message = format!("{option} has no effect without {needed}");
            Err(Failure::new("OptionError", message)
                .with("option", *option)
                .with("expected", needed))
        }
    }
}

/// The options of a translator, and the changes of its search.
pub(crate) fn translator(
    options: &Bound<'_, PyDict>,
    config: &Config,
) -> PyResult<(TranslateOptions, SearchChanges)> {
    let changes = SearchChanges::read(options)?;
    let mut translate = TranslateOptions::new(config);
    translate.search = changes.apply(config)?;
    translate.source = item(options, "source_lang", TEXT)?;
    translate.target = item(options, "target_lang", TEXT)?;
    translate.slots = item(options, "slots", WHOLE)?.unwrap_or(translate.slots);
    if translate.slots == 0 {
        return Err(Failure::option("slots", "at least 1", 0usize).into());
    }
    translate.truncate = item(options, "truncate", BOOLEAN)?.unwrap_or(false);
    translate.prefix = item(options, "prefix", TEXT)?;
    translate.attributes = item(options, "attributes", BOOLEAN)?.unwrap_or(translate.attributes);
    translate.capitals = item(options, "capitals", BOOLEAN)?.unwrap_or(translate.capitals);
    translate.cache = cache(options)?;
    if translate.source.as_deref() == Some("auto") {
        (translate.source, translate.detect) = (None, true);
    }
    Ok((translate, changes))
}

/// The dtype of the KV cache.
fn cache(options: &Bound<'_, PyDict>) -> PyResult<Option<Dtype>> {
    Ok(match item::<String>(options, "cache", TEXT)?.as_deref() {
        None => None,
        Some("f32") => Some(Dtype::F32),
        Some("f16") => Some(Dtype::F16),
        Some(found) => return Err(Failure::option("cache", "\"f32\" or \"f16\"", found).into()),
    })
}

/// The options of a transcriber. The names are those of `simdformer.TranscriberOptions`.
pub(crate) fn transcriber(
    options: &Bound<'_, PyDict>,
    config: &Config,
) -> PyResult<TranscribeOptions> {
    let mut changes = SearchChanges::read(options)?;
    // The attempts at a window are sampled, not its first search.
    let seed = changes.seed.take();
    let mut found = TranscribeOptions::new(config);
    found.search = changes.apply(config)?;
    if let Strategy::Sample(sample) = &found.search.strategy {
        found.sample = sample.clone();
        found.temperatures = vec![sample.temperature];
        found.search.strategy = Strategy::Greedy;
    }
    found.sample.seed = seed.unwrap_or(found.sample.seed);
    found.language = item(options, "language", TEXT)?;
    found.task = item(options, "task", TEXT)?;
    found.initial_prompt = item(options, "initial_prompt", TEXT)?;
    if item(options, "batched", BOOLEAN)? == Some(true) {
        found.windows = Windows::Batched;
    }
    found.slots = item(options, "slots", WHOLE)?.unwrap_or(found.slots);
    if found.slots == 0 {
        return Err(Failure::option("slots", "at least 1", 0usize).into());
    }
    found.timestamps = item(options, "timestamps", BOOLEAN)?.unwrap_or(found.timestamps);
    found.words = item(options, "words", BOOLEAN)?.unwrap_or(found.words);
    found.hotwords = item(options, "hotwords", TEXT)?;
    found.detect_each_window =
        item(options, "detect_each_window", BOOLEAN)?.unwrap_or(found.detect_each_window);
    if item(options, "vad", BOOLEAN)? == Some(false) {
        found.vad = None;
    }
    found.condition_on_previous_text = item(options, "condition_on_previous_text", BOOLEAN)?
        .unwrap_or(found.condition_on_previous_text);
    found.temperatures =
        item(options, "temperatures", "a list of numbers")?.unwrap_or(found.temperatures);
    for (name, threshold) in [
        ("no_speech_threshold", &mut found.no_speech_threshold),
        ("logprob_threshold", &mut found.logprob_threshold),
        ("compression_ratio_threshold", &mut found.compression_ratio_threshold),
    ] {
        let given = options.get_item(name)?;
        let is_off = given.is_some_and(|given| given.is_exact_instance_of::<PyBool>());
        *threshold = match is_off && item(options, name, BOOLEAN)? == Some(false) {
            true => None,
            false => item(options, name, "a number, or False")?.or(*threshold),
        };
    }
    found.compression = match item::<String>(options, "compression", TEXT)?.as_deref() {
        None | Some("text") => Compression::Text,
        Some("tokens") => Compression::Tokens,
        Some(found) => {
            return Err(Failure::option("compression", "\"text\" or \"tokens\"", found).into());
        }
    };
    found.cache = cache(options)?;
    Ok(found)
}
