//! The options of a search, by the names of `generation_config.json`.

use crate::errors::enter;
use crate::model::sf_model;
use crate::pointers::{close_box, lists, out, reference, reference_mut, text, write_whole};
use core::ffi::c_char;
use serde_json::{Value, json};
use simdformer::Error;
use simdformer::config::Config;
use simdformer::search::{SearchOptions, Setting};

/// How targets are searched: greedily, with beams or by sampling, with the rules of transformers. Any threads may read
/// options at the same time, but not while a function sets them.
pub struct sf_options {
    /// The settings and the special tokens are those of the options.
    config: Config,
    /// Whether greedy search computes scores.
    scores: bool,
    /// What the settings make.
    pub(crate) search: SearchOptions,
}

impl sf_options {
    pub(crate) fn new(config: &Config) -> Self {
        let search = config.search_options();
        Self { config: config.clone(), scores: search.scores, search }
    }

    fn update(&mut self) {
        self.search = SearchOptions { scores: self.scores, ..self.config.search_options() };
    }

    /// Sets an option, or changes nothing.
    fn set(&mut self, name: &str, value: &Value) -> Result<(), Error> {
        let before = (self.config.clone(), self.scores);
        let done = self.assign_option(name, value);
        if done.is_err() {
            (self.config, self.scores) = before;
        }
        self.update();
        done
    }

    fn assign_option(&mut self, name: &str, value: &Value) -> Result<(), Error> {
        let vocabulary = self.config.target_vocab;
        let tokens = &mut self.config.tokens;
        let wrong = |expected: &'static str| invalid(name, expected.into(), value.to_string());
        match Special::named(name) {
            Some(Special::End) => tokens.eos = ids(value).ok_or_else(|| wrong(IDS))?,
            Some(Special::ForcedEnd) => tokens.forced_eos = ids(value).ok_or_else(|| wrong(IDS))?,
            Some(Special::Start) => {
                tokens.decoder_start = token_id(value).ok_or_else(|| wrong(ID))?
            }
            Some(Special::ForcedStart) => {
                tokens.forced_bos = token_id(value).ok_or_else(|| wrong(ID))?
            }
            Some(Special::Scores) => {
                self.scores = value.as_bool().ok_or_else(|| wrong("true or false"))?;
                return Ok(());
            }
            None => {
                let setting = setting(name)?;
                let settings = &mut self.config.settings;
                let read = setting.set_value(settings, value);
                read.map_err(|(expected, found)| {
                    invalid(name, expected.to_owned(), found.to_string())
                })?;
                setting.check(settings)?;
                if name == "bad_words_ids" {
                    // The list of the checkpoint is in two parts, and this one is whole.
                    tokens.banned.clear();
                }
            }
        }
        let outside =
            all_ids(value).find(|&id| Special::named(name).is_some() && id >= vocabulary as u64);
        match outside {
            Some(id) => {
                let expected = format!("ids below {vocabulary}, the vocabulary");
                Err(invalid(name, expected, id.to_string()))
            }
            None => Ok(()),
        }
    }

    /// The value of an option, as [`Self::set`] takes it.
    fn value(&self, name: &str) -> Result<Value, Error> {
        let tokens = &self.config.tokens;
        Ok(match Special::named(name) {
            Some(Special::End) => json!(tokens.eos),
            Some(Special::ForcedEnd) => json!(tokens.forced_eos),
            Some(Special::Start) => json!(tokens.decoder_start),
            Some(Special::ForcedStart) => json!(tokens.forced_bos),
            Some(Special::Scores) => json!(self.scores),
            None if name == "bad_words_ids" => json!(self.search.bad_words),
            None => setting(name)?.value(&self.config.settings),
        })
    }
}

/// Options that are no settings: those that the special tokens of a model give.
#[derive(Clone, Copy)]
enum Special {
    End,
    Start,
    ForcedStart,
    ForcedEnd,
    Scores,
}

impl Special {
    const ALL: [(&'static str, Self); 5] = [
        ("eos_token_id", Self::End),
        ("decoder_start_token_id", Self::Start),
        ("forced_bos_token_id", Self::ForcedStart),
        ("forced_eos_token_id", Self::ForcedEnd),
        ("output_scores", Self::Scores),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.0 == name).map(|known| known.1)
    }
}

const ID: &str = "a token id or null";
const IDS: &str = "a token id, a list of them or null";

fn token_id(value: &Value) -> Option<Option<u32>> {
    match value {
        Value::Null => Some(None),
        value => value.as_u64().and_then(|id| u32::try_from(id).ok()).map(Some),
    }
}

fn ids(value: &Value) -> Option<Vec<u32>> {
    match value {
        Value::Array(list) => list.iter().map(|id| token_id(id).flatten()).collect(),
        value => Some(token_id(value)?.into_iter().collect()),
    }
}

fn all_ids(value: &Value) -> Box<dyn Iterator<Item = u64> + '_> {
    match value {
        Value::Array(list) => Box::new(list.iter().filter_map(Value::as_u64)),
        value => Box::new(value.as_u64().into_iter()),
    }
}

fn invalid(name: &str, expected: String, found: String) -> Error {
    let (operand, expected, found) = (name.to_owned().into(), expected.into(), found.into());
    Error::InvalidOption { index: None, operand, expected, found }
}

/// The name of a setting: its key in `generation_config.json`, or for the seed, which has none, its own.
fn name_of(setting: &Setting) -> &'static str {
    setting.key.unwrap_or(setting.field)
}

fn setting(name: &str) -> Result<&'static Setting, Error> {
    let found = Setting::all().find(|setting| name_of(setting) == name);
    found.ok_or_else(|| {
        let names = Setting::all().map(name_of).chain(Special::ALL.map(|known| known.0));
        let distance = |known: &&str| strsim::damerau_levenshtein(name, known);
        let nearest = names.min_by_key(distance).unwrap_or_default();
        invalid(
            name,
            format!("a name of generation_config.json, for example {nearest}"),
            "another name".to_owned(),
        )
    })
}

/// Makes the options of the checkpoint: those of its `generation_config.json`. `sf_options_close` frees them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_options_new(
    model: *const sf_model,
    options: *mut *mut sf_options,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let (model, place) = unsafe { (reference("model", model)?, out("options", options)?) };
        place.write(Box::into_raw(Box::new(sf_options::new(model.model.config()))));
        Ok(())
    })
}

/// Sets the option of this name in `generation_config.json`, for example "num_beams", "do_sample", "max_new_tokens" or
/// "bad_words_ids", to a value in JSON, for example "4", "true" or "[[5, 6]]"; "null" switches a rule off. Further names are
/// "seed" (of samples), "output_scores" (false makes greedy search faster), and "eos_token_id", "decoder_start_token_id",
/// "forced_bos_token_id" and "forced_eos_token_id". With more than one beam, the search has beams; else "do_sample" samples.
/// An error changes nothing.
///
/// Errors: `SF_ERROR_INVALID_OPTION` for an unknown name (the text has the most similar one), a value of another type or
/// outside the range. Options that contradict each other, or are beyond a limit, are errors of the call that uses them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_options_set(
    options: *mut sf_options,
    name: *const c_char,
    json: *const c_char,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let (options, name, json) = unsafe {
            (reference_mut("options", options)?, text("name", name)?, text("json", json)?)
        };
        let value = serde_json::from_str(json).map_err(|error| {
            invalid(name, "a value in JSON".to_owned(), format!("{json:?}: {error}"))
        })?;
        Ok(options.set(name, &value)?)
    })
}

/// As `sf_options_set`, with a number: 4.0 is also the integer 4.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_options_set_number(
    options: *mut sf_options,
    name: *const c_char,
    number: f64,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let (options, name) = unsafe { (reference_mut("options", options)?, text("name", name)?) };
        // Beyond 2^53 not every integer is a double.
        let value = match number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number)
        {
            true => json!(number as u64),
            false if number.is_finite() => json!(number),
            false => {
                let expected = "a finite number".to_owned();
                return Err(invalid(name, expected, number.to_string()).into());
            }
        };
        Ok(options.set(name, &value)?)
    })
}

/// As `sf_options_set`, with `count` lists of token ids: list `i` is `ids[offsets[i]]` to `ids[offsets[i + 1] - 1]`. Options
/// with one list ("suppress_tokens", "eos_token_id") take the ids of all lists.
///
/// Errors: as `sf_options_set`; offsets that decrease.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_options_set_ids(
    options: *mut sf_options,
    name: *const c_char,
    ids: *const u32,
    offsets: *const usize,
    count: usize,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let (options, name, lists) = unsafe {
            (reference_mut("options", options)?, text("name", name)?, lists(ids, offsets, count)?)
        };
        let lists: Vec<&[u32]> = lists.collect();
        // An option with one list refuses a list of lists.
        let nested = options.set(name, &json!(lists));
        Ok(nested.or_else(|error| options.set(name, &json!(lists.concat())).map_err(|_| error))?)
    })
}

/// Copies the value of an option, in JSON, into `buffer` of `len` bytes, as `sf_last_error` does. Writes the length of the
/// whole text to `*text_len`, which may be null.
///
/// Errors: `SF_ERROR_INVALID_OPTION` for an unknown name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_options_get(
    options: *const sf_options,
    name: *const c_char,
    buffer: *mut c_char,
    len: usize,
    text_len: *mut usize,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        unsafe {
            let value = reference("options", options)?.value(text("name", name)?)?;
            write_whole(&value.to_string(), buffer, len, text_len)
        }
    })
}

/// Frees the options and sets the pointer to null. A null pointer is closed already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_options_close(options: *mut *mut sf_options) -> i32 {
    // SAFETY: the contract of the interface.
    enter(|| unsafe { close_box("options", options) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use simdformer::config::Dimensions;

    fn options() -> sf_options {
        let small = Dimensions { d_model: 16, heads: 2, layers: 1, ffn_dim: 32, vocabulary: 50 };
        sf_options::new(&Config::transformer(small))
    }

    fn names() -> impl Iterator<Item = &'static str> {
        Setting::all().map(name_of).chain(Special::ALL.map(|known| known.0))
    }

    /// Every option can be set to its own value, which changes nothing, and refuses an object.
    #[test]
    fn values_are_read_as_they_are_written() {
        let mut options = options();
        let before = options.search.clone();
        let mut count = 0;
        for name in names() {
            let value = options.value(name).expect(name);
            options.set(name, &value).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(options.search, before, "{name}");
            let refused = options.set(name, &json!({ "a": 1 })).expect_err(name);
            assert!(refused.to_string().starts_with(&format!("{name}: expected")), "{refused}");
            assert_eq!(options.search, before, "{name}");
            count += 1;
        }
        assert!(count > 30, "{count} options");
    }

    /// A name with one letter missing is unknown, and its error has the name.
    #[test]
    fn errors_have_the_most_similar_name() {
        let mut options = options();
        for name in names().filter(|name| name.len() > 5) {
            for missing in 1..name.len() {
                let wrong = [&name[..missing], &name[missing + 1..]].concat();
                let error = options.set(&wrong, &json!(1)).expect_err(&wrong).to_string();
                // Two names may differ in this letter alone.
                let near = |known: &&str| strsim::damerau_levenshtein(&wrong, known) == 1;
                let named = names().filter(near).any(|known| error.contains(known));
                assert!(named, "{wrong}: {error}");
            }
        }
    }

    #[test]
    fn special_tokens_and_lists_replace_those_of_the_checkpoint() {
        let mut options = options();
        for (name, value) in [
            ("eos_token_id", json!([3, 4])),
            ("decoder_start_token_id", json!(7)),
            ("forced_bos_token_id", json!(8)),
            ("forced_eos_token_id", json!(3)),
            ("output_scores", json!(false)),
            ("bad_words_ids", json!([[5], [6, 7]])),
            ("num_beams", json!(4)),
        ] {
            options.set(name, &value).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let search = &options.search;
        assert_eq!((&search.eos[..], search.start), (&[3, 4][..], 7));
        assert_eq!((search.forced_bos, &search.forced_eos[..]), (Some(8), &[3][..]));
        assert_eq!((search.scores, &search.bad_words[..]), (false, &[vec![5], vec![6, 7]][..]));
        assert_eq!(search.sequences(), 4);
        options.set("forced_bos_token_id", &Value::Null).expect("none");
        assert_eq!(options.search.forced_bos, None);
    }
}
