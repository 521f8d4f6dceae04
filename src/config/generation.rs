//! The generation settings of a checkpoint: `generation_config.json`, and the same keys in an older
//! `config.json`.

use serde_json::Value;

use super::Config;
use super::json::{Fields, ids_inside};
use super::keys::Keys;
use crate::error::Error;
use crate::search::Setting;

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

impl Config {
    /// Replaces all generation settings by those of `fields`.
    pub(super) fn read_settings(&mut self, fields: &Fields) -> Result<(), Error> {
        self.settings_keys(&mut Keys::for_reading(fields), &Self::base(0))?;
        let (bad_words, eos) = (&mut self.settings.options.bad_words, &self.tokens.eos);
        // Single ids are banned, except end tokens, as in Hugging Face.
        let single = bad_words.iter().filter(|words| words.len() == 1).flatten();
        let mut banned: Vec<u32> = single.copied().filter(|id| !eos.contains(id)).collect();
        banned.sort_unstable();
        banned.dedup();
        self.tokens.banned = banned;
        bad_words.retain(|words| words.len() > 1);
        let unsupported = UNSUPPORTED
            .into_iter()
            .filter(|&(key, neutral)| fields.get(key).is_some_and(|value| changes(value, neutral)));
        self.unsupported = unsupported.map(|(key, _)| key.to_owned()).collect();
        Ok(())
    }

    /// Reads or writes the generation settings. A setting that equals that of `default` is not written.
    pub(super) fn settings_keys(
        &mut self,
        keys: &mut Keys<'_>,
        default: &Self,
    ) -> Result<(), Error> {
        for setting in Setting::all() {
            keys.setting(setting, &mut self.settings, &default.settings)?;
        }
        self.transcription.keys(keys, &default.transcription)
    }

    /// Checks that counts are not 0 and that ids are in the vocabulary. The search checks all other ranges.
    pub(super) fn validate_settings(&self) -> Result<(), Error> {
        for setting in Setting::all() {
            let Some(what) = setting.key else { continue };
            if let Err(Error::InvalidOption { expected, found, .. }) = setting.check(&self.settings)
                && found.number().is_some()
            {
                return Err(Error::invalid_option(what, expected, found));
            }
            ids_inside(what, &setting.ids(&self.settings), self.target_vocab)?;
        }
        self.transcription.validate(self.target_vocab)
    }
}

fn changes(value: &Value, neutral: f64) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(n) => n.as_f64() != Some(neutral),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) | Value::String(_) => true,
    }
}
