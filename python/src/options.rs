//! The options of a call, from the dictionary that the Python dataclass gives.

use crate::errors::Failure;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use serde_json::Value;
use simdformer::config::Config;
use simdformer::search::{SearchOptions, Setting, Settings, Strategy};
use simdformer::{Dtype, Engine, EngineBuilder, Model};
use simdformer_speech::{Compression, TranscribeOptions, Windows};
use simdformer_text::translator::TranslateOptions;
use std::sync::Arc;

/// The changes of a search, in the order of the table of settings; what is absent is as the checkpoint says.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchChanges {
    given: Vec<(&'static Setting, Value)>,
    num_return: Option<usize>,
    forced_eos: Option<bool>,
}

/// The keywords: the settings that have a name, with what they do and what is expected, in the words of Python.
pub(crate) fn keywords() -> impl Iterator<Item = (&'static str, &'static str, String)> {
    Setting::all().filter_map(|setting| Some((setting.name?, setting.help, expected(setting))))
}

fn expected(setting: &Setting) -> String {
    setting.expected().replace("true", "True").replace("false", "False")
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
pub(crate) const BOOLEAN: &str = "True or False";
pub(crate) const TEXT: &str = "a string";

/// The JSON of a Python value; `None` for a type that no option has.
fn json(value: &Bound<'_, PyAny>) -> Option<Value> {
    if value.is_instance_of::<PyBool>() {
        return value.extract::<bool>().ok().map(Value::from);
    }
    let whole = value.extract::<u64>().ok().map(Value::from);
    let number = || value.extract::<f64>().ok().map(Value::from);
    whole.or_else(number).or_else(|| value.extract::<String>().ok().map(Value::from))
}

/// The value of a setting, if it is given.
fn given(options: &Bound<'_, PyDict>, setting: &'static Setting) -> PyResult<Option<Value>> {
    let Some(name) = setting.name else { return Ok(None) };
    let Some(found) = options.get_item(name)?.filter(|value| !value.is_none()) else {
        return Ok(None);
    };
    let mut settings = Settings::default();
    let value = json(&found).unwrap_or_default();
    let has_type = setting.set_value(&mut settings, &value).is_ok();
    // A number that is not finite is `null` in JSON.
    if has_type && !value.is_null() && setting.check(&settings).is_ok() {
        return Ok(Some(value));
    }
    let expected = expected(setting);
    let is_number = value.is_null() && found.extract::<f64>().is_ok();
    let is_choice = value.is_string() && setting.field == "early_stopping";
    let class = match has_type || is_number || is_choice {
        true => "OptionError",
        false => "OptionTypeError",
    };
    let found = found.repr()?.to_string();
    let failure = Failure::new(class, format!("{name}: expected {expected}, found {found}"));
    Err(failure.with("option", name).with("expected", expected).with("found", found).into())
}

impl SearchChanges {
    /// Reads the items that concern the search.
    pub(crate) fn from_dict(options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let settings = Setting::all().filter_map(|setting| {
            given(options, setting).map(|value| Some((setting, value?))).transpose()
        });
        Ok(Self {
            given: settings.collect::<PyResult<_>>()?,
            num_return: item(options, "num_return", WHOLE)?,
            forced_eos: item(options, "forced_eos", BOOLEAN)?,
        })
    }

    /// These changes, and where they have none, those of `earlier`.
    pub(crate) fn or(self, earlier: &Self) -> Self {
        let given = earlier.given.iter().cloned().chain(self.given).collect();
        let num_return = self.num_return.or(earlier.num_return);
        Self { given, num_return, forced_eos: self.forced_eos.or(earlier.forced_eos) }
    }

    /// The search of the checkpoint with these changes.
    ///
    /// # Errors
    /// An option has no effect with the strategy of the search.
    pub(crate) fn apply(&self, config: &Config) -> Result<SearchOptions, Failure> {
        let mut config = config.clone();
        let settings = &mut config.settings;
        for (setting, value) in &self.given {
            let name = setting.name.unwrap_or_default();
            let read = setting.set_value(settings, value);
            read.map_err(|(expected, found)| Failure::option(name, expected, found.to_string()))?;
        }
        // A seed of 0 is the default.
        let given = self.given.iter().filter(|(setting, seed)| setting.key.is_some() || *seed != 0);
        let given: Vec<&Setting> = given.map(|(setting, _)| *setting).collect();
        if let Some(&Setting { name: Some(name), needs: Some(needed), .. }) =
            settings.without_effect(&given)
        {
            let needed = if needed == "beams" { "more than one beam" } else { "sample=True" };
            return Err(without_effect(name, needed));
        }
        let mut search = config.search_options();
        match self.forced_eos {
            Some(true) => search.forced_eos.clone_from(&search.eos),
            Some(false) => search.forced_eos.clear(),
            None => (),
        }
        search.num_return_sequences = self.num_return.unwrap_or(1);
        search.scores = false;
        Ok(search)
    }

    /// Takes the seed out, which the attempts at a window of a recording have, not their first search.
    fn take_seed(&mut self) -> Option<u64> {
        let at = self.given.iter().position(|(setting, _)| setting.field == "seed")?;
        self.given.remove(at).1.as_u64()
    }
}

fn without_effect(option: &str, needed: &str) -> Failure {
    let message = format!("{option} has no effect without {needed}");
    Failure::new("OptionError", message).with("option", option).with("expected", needed)
}

/// How the sessions of a translator are planned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planning {
    pub(crate) slots: usize,
    pub(crate) cache: Option<Dtype>,
}

impl Planning {
    fn from_dict(options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let slots = item(options, "slots", WHOLE)?.unwrap_or(32);
        if slots == 0 {
            return Err(Failure::option("slots", "at least 1", 0usize).into());
        }
        Ok(Self { slots, cache: cache(options)? })
    }

    /// An engine of `model` that plans so.
    pub(crate) fn engine(self, model: &Arc<Model>) -> EngineBuilder {
        Engine::builder(Arc::clone(model)).slots(self.slots).cache(self.cache)
    }
}

/// The options of a translator, how it is planned, and the changes of its search.
pub(crate) fn translator(
    options: &Bound<'_, PyDict>,
    config: &Config,
) -> PyResult<(TranslateOptions, Planning, SearchChanges)> {
    let changes = SearchChanges::from_dict(options)?;
    let mut translate = TranslateOptions::new(config);
    translate.search = changes.apply(config)?;
    translate.source = item(options, "source_lang", TEXT)?;
    translate.target = item(options, "target_lang", TEXT)?;
    let planning = Planning::from_dict(options)?;
    translate.truncate = item(options, "truncate", BOOLEAN)?.unwrap_or(false);
    translate.prefix = item(options, "prefix", TEXT)?;
    translate.attributes = item(options, "attributes", BOOLEAN)?.unwrap_or(translate.attributes);
    translate.capitals = item(options, "capitals", BOOLEAN)?.unwrap_or(translate.capitals);
    if translate.source.as_deref() == Some("auto") {
        (translate.source, translate.detect) = (None, true);
    }
    Ok((translate, planning, changes))
}

/// The dtype of the KV cache.
pub(crate) fn cache(options: &Bound<'_, PyDict>) -> PyResult<Option<Dtype>> {
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
    let mut changes = SearchChanges::from_dict(options)?;
    let seed = changes.take_seed();
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
    if found.detect_each_window && found.language.is_some() {
        return Err(without_effect("detect_each_window", "language=None").into());
    }
    if item(options, "vad", BOOLEAN)? == Some(false) {
        found.vad = None;
    }
    let condition = item(options, "condition_on_previous_text", BOOLEAN)?;
    if condition == Some(true) && found.windows == Windows::Batched {
        return Err(without_effect("condition_on_previous_text", "batched=False").into());
    }
    found.condition_on_previous_text = condition.unwrap_or(found.condition_on_previous_text);
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
    Ok(found)
}
