//! The generation settings of a checkpoint: `generation_config.json`, and the same keys in an older
//! `config.json`.

use serde_json::{Value, json};

use super::arch::SpecialTokens;
use super::error::{ConfigError, ids_inside};
use super::json::{Fields, number, token, wrong};
use super::keys::{Keys, Setting, decimal, setting};
use super::transcription::Transcription;
use crate::search::EarlyStopping;

/// Search settings of a checkpoint, named as in transformers' `GenerationConfig`. Lengths are in tokens of the
/// target. Defaults are those of its `generate`, except the maximum length, which is 20 there and the capacity
/// of the session here.
///
/// Special and banned ids are in [`SpecialTokens`]. [`Config::search_options`](super::Config::search_options)
/// converts these settings to the options of a search, which describe each rule; it also reports the settings
/// without effect. [`Config::validate`](super::Config::validate) checks that counts are not 0 and that ids are
/// in the vocabulary. The search checks all other ranges; see
/// [`SearchOptions::validate`](crate::search::SearchOptions::validate).
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationDefaults {
    /// Maximum target length, decoder start included. `max_new_tokens` takes precedence. If both are `None`, the
    /// capacity of the session applies; without end tokens the search then returns an error, because it could not
    /// end.
    pub max_length: Option<usize>,
    /// Maximum number of tokens after the decoder start and the prefix.
    pub max_new_tokens: Option<usize>,
    /// End tokens are banned until the target, decoder start included, has this length.
    pub min_length: usize,
    /// End tokens are banned until there are this many new tokens.
    pub min_new_tokens: Option<usize>,
    /// Beams, at least 1; 1 is greedy search or sampling.
    pub num_beams: usize,
    /// Groups of diverse beam search, at least 1; 1 disables it.
    pub num_beam_groups: usize,
    /// Subtracted from a score for each beam of an earlier group that chose the same token in this step.
    pub diversity_penalty: f32,
    /// Hypotheses returned for one sentence, at least 1.
    pub num_return_sequences: usize,
    /// A hypothesis of `n` generated tokens, the end token included, scores `sum(log p) / n^length_penalty`.
    pub length_penalty: f32,
    /// When beam search stops.
    pub early_stopping: EarlyStopping,
    /// Sampling instead of greedy or beam search; beam sampling with more than one beam.
    pub do_sample: bool,
    /// Divides logits before sampling.
    pub temperature: f32,
    /// Maximum share of the entropy that the candidate tokens have; `None` disables it.
    pub top_h: Option<f32>,
    /// Samples among this many best tokens; 0 disables it.
    pub top_k: usize,
    /// Samples among the smallest set of tokens whose probabilities reach this sum; 1 disables it.
    pub top_p: f32,
    /// Samples among tokens with at least this fraction of the best token's probability; `None` disables it.
    pub min_p: Option<f32>,
    /// Mass of locally typical sampling; 1 disables it.
    pub typical_p: f32,
    /// Threshold of epsilon sampling; 0 disables it.
    pub epsilon_cutoff: f32,
    /// Threshold of eta sampling; 0 disables it.
    pub eta_cutoff: f32,
    /// Divides positive logits of repeated ids and multiplies negative ones; 1 disables it.
    pub repetition_penalty: f32,
    /// The inverse rule for ids of the source; 1 disables it. For vocabularies that both sides share.
    pub encoder_repetition_penalty: f32,
    /// No sequence of this many tokens occurs twice; 0 disables it.
    pub no_repeat_ngram_size: usize,
    /// No sequence of this many tokens of the source occurs in the target; 0 disables it. For vocabularies that
    /// both sides share.
    pub encoder_no_repeat_ngram_size: usize,
    /// Forbidden sequences of two or more tokens. Single tokens are in [`SpecialTokens::banned`].
    pub bad_words: Vec<Vec<u32>>,
    /// Biases for the last token of a sequence, added if the tokens before it end the target.
    pub sequence_bias: Vec<(Vec<u32>, f32)>,
    /// Tokens that are never generated.
    pub suppress_tokens: Vec<u32>,
    /// Tokens that are never generated first.
    pub begin_suppress_tokens: Vec<u32>,
    /// `(start, factor)`: after `start` new tokens the score of the end tokens grows exponentially.
    pub exponential_decay_length_penalty: Option<(usize, f32)>,
    /// Replaces NaN logits by 0 and infinite ones by the largest finite numbers.
    pub remove_invalid_values: bool,
    /// Normalizes the scores to log-probabilities again after the other rules.
    pub renormalize_logits: bool,
    /// The prompt of a transcription model.
    pub transcription: Transcription,
    /// Keys with a value that would change the results and that this crate does not support, in the spelling of
    /// `generation_config.json`.
    pub unsupported: Vec<String>,
}

impl Default for GenerationDefaults {
    fn default() -> Self {
        Self {
            max_length: None,
            max_new_tokens: None,
            min_length: 0,
            min_new_tokens: None,
            num_beams: 1,
            num_beam_groups: 1,
            diversity_penalty: 0.0,
            num_return_sequences: 1,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::default(),
            do_sample: false,
            temperature: 1.0,
            top_h: None,
            top_k: 50,
            top_p: 1.0,
            min_p: None,
            typical_p: 1.0,
            epsilon_cutoff: 0.0,
            eta_cutoff: 0.0,
            repetition_penalty: 1.0,
            encoder_repetition_penalty: 1.0,
            no_repeat_ngram_size: 0,
            encoder_no_repeat_ngram_size: 0,
            bad_words: Vec::new(),
            sequence_bias: Vec::new(),
            suppress_tokens: Vec::new(),
            begin_suppress_tokens: Vec::new(),
            exponential_decay_length_penalty: None,
            remove_invalid_values: false,
            renormalize_logits: false,
            transcription: Transcription::default(),
            unsupported: Vec::new(),
        }
    }
}

/// Keys that would change the generated text and that this crate does not implement, with their neutral values.
const UNSUPPORTED: [(&str, f64); 11] = [
    ("constraints", 0.0),
    ("dola_layers", 0.0),
    ("force_words_ids", 0.0),
    ("guidance_scale", 1.0),
    ("max_time", 0.0),
    ("penalty_alpha", 0.0),
    ("prompt_lookup_num_tokens", 0.0),
    ("stop_strings", 0.0),
    ("token_healing", 0.0),
    ("use_mtp", 0.0),
    ("watermarking_config", 0.0),
];

impl GenerationDefaults {
    pub(super) fn read(fields: &Fields) -> Result<Self, ConfigError> {
        let mut settings = Self::default();
        settings.keys(&mut Keys::read(fields), &Self::default())?;
        settings.bad_words = bad_words(fields)?;
        settings.bad_words.retain(|words| words.len() > 1);
        let unsupported = UNSUPPORTED
            .into_iter()
            .filter(|&(key, neutral)| fields.get(key).is_some_and(|value| changes(value, neutral)));
        settings.unsupported = unsupported.map(|(key, _)| key.to_owned()).collect();
        Ok(settings)
    }

    /// Reads or writes the settings, except [`GenerationDefaults::bad_words`]. A setting that equals `default` is not
    /// written.
    pub(super) fn keys(&mut self, keys: &mut Keys<'_>, default: &Self) -> Result<(), ConfigError> {
        macro_rules! settings {
            ($($field:ident)*) => {
                $(keys.optional(stringify!($field), &mut self.$field, &default.$field)?;)*
            };
        }
        settings! {
            max_length max_new_tokens min_length min_new_tokens num_beams num_beam_groups
            diversity_penalty num_return_sequences length_penalty early_stopping do_sample
            temperature top_h top_k top_p min_p typical_p epsilon_cutoff eta_cutoff
            repetition_penalty encoder_repetition_penalty no_repeat_ngram_size
            encoder_no_repeat_ngram_size sequence_bias suppress_tokens begin_suppress_tokens
            exponential_decay_length_penalty remove_invalid_values renormalize_logits
        }
        self.transcription.keys(keys, &default.transcription)
    }

    pub(super) fn validate(&self, vocabulary: usize) -> Result<(), ConfigError> {
        let counts = [
            ("num_beams", self.num_beams),
            ("num_beam_groups", self.num_beam_groups),
            ("num_return_sequences", self.num_return_sequences),
        ];
        if let Some((what, _)) = counts.into_iter().find(|&(_, n)| n == 0) {
            return Err(ConfigError::Zero { what });
        }
        ids_inside("suppress_tokens", &self.suppress_tokens, vocabulary)?;
        ids_inside("begin_suppress_tokens", &self.begin_suppress_tokens, vocabulary)?;
        for words in &self.bad_words {
            ids_inside("bad_words_ids", words, vocabulary)?;
        }
        for (words, _) in &self.sequence_bias {
            ids_inside("sequence_bias", words, vocabulary)?;
        }
        self.transcription.validate(vocabulary)
    }
}

/// The banned single ids: those of `bad_words_ids` except end tokens, as in Hugging Face.
pub(super) fn banned(fields: &Fields, tokens: &SpecialTokens) -> Result<Vec<u32>, ConfigError> {
    let mut banned: Vec<u32> = bad_words(fields)?
        .into_iter()
        .filter_map(|words| <[u32; 1]>::try_from(words).ok())
        .map(|[id]| id)
        .filter(|id| !tokens.eos.contains(id))
        .collect();
    banned.sort_unstable();
    banned.dedup();
    Ok(banned)
}

fn bad_words(fields: &Fields) -> Result<Vec<Vec<u32>>, ConfigError> {
    const EXPECTED: &str = "a list of non-empty lists of token ids";
    let list = fields.list("bad_words_ids", EXPECTED)?;
    list.iter().map(|words| id_list("bad_words_ids", EXPECTED, words)).collect()
}

fn id_list(
    key: &'static str,
    expected: &'static str,
    value: &Value,
) -> Result<Vec<u32>, ConfigError> {
    match value.as_array() {
        Some(ids) if !ids.is_empty() => ids.iter().map(|id| token(key, expected, id)).collect(),
        _ => Err(wrong(key, expected, value)),
    }
}

setting!(
    Vec<(Vec<u32>, f32)>,
    |list, fields, key| {
        const EXPECTED: &str = "a list of pairs of a list of token ids and a number";
        let pair = |value: &Value| match value.as_array().map(Vec::as_slice) {
            Some([ids, bias]) => Ok((id_list(key, EXPECTED, ids)?, number(key, bias)?)),
            _ => Err(wrong(key, EXPECTED, value)),
        };
        fields.list(key, EXPECTED)?.iter().map(pair).collect()
    },
    list.iter().map(|(ids, bias)| json!([ids, decimal(*bias)])).collect(),
    None
);

setting!(
    EarlyStopping,
    |stopping, fields, key| match fields.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => Ok(EarlyStopping::Heuristic),
        Some(Value::Bool(true)) => Ok(EarlyStopping::WhenFull),
        Some(Value::String(text)) if text == "never" => Ok(EarlyStopping::Never),
        Some(other) => Err(wrong(key, "true, false or \"never\"", other)),
    },
    match stopping {
        EarlyStopping::WhenFull => true.into(),
        EarlyStopping::Never => "never".into(),
        EarlyStopping::Heuristic => false.into(),
    },
    None
);

setting!(
    Option<(usize, f32)>,
    |pair, fields, key| {
        const EXPECTED: &str = "a pair of a length and a factor";
        let list = fields.list(key, EXPECTED)?;
        match list {
            [] => Ok(None),
            [start, factor] => {
                let from = start.as_u64().and_then(|n| usize::try_from(n).ok());
                Ok(Some((from.ok_or_else(|| wrong(key, EXPECTED, start))?, number(key, factor)?)))
            }
            _ => Err(wrong(key, EXPECTED, &Value::Array(list.to_vec()))),
        }
    },
    pair.map(|(start, factor)| json!([start, decimal(factor)])).into(),
    None
);

fn changes(value: &Value, neutral: f64) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(n) => n.as_f64() != Some(neutral),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) | Value::String(_) => true,
    }
}
