//! Search options from the names that transformers' `GenerationConfig` gives them.

use serde_json::{Map, Value};
use simdformer::search::*;

/// An id or a list of ids.
pub(crate) fn ids(value: &Value) -> Vec<u32> {
    match value {
        Value::Array(list) => list.iter().flat_map(ids).collect(),
        one => vec![one.as_u64().expect("an id") as u32],
    }
}

/// Scores with null for minus infinity.
pub(crate) fn scores(value: &Value) -> Vec<f32> {
    let list = value.as_array().expect("scores").iter();
    list.map(|x| x.as_f64().map_or(f32::NEG_INFINITY, |x| x as f32)).collect()
}

/// The options of one golden case, by the table of settings. Panics if it does not know a name.
pub(crate) fn options(given: &Map<String, Value>, start: u32, eos: &[u32]) -> SearchOptions {
    let mut settings = Settings::default();
    let options = SearchOptions { start, eos: eos.to_vec(), ..SearchOptions::default() };
    (settings.options, settings.sample) = (options, SampleOptions::default());
    for (name, value) in given {
        match name.as_str() {
            "allowed" => {}
            "eos_token_id" => settings.options.eos = ids(value),
            "forced_bos_token_id" => settings.options.forced_bos = Some(ids(value)[0]),
            "forced_eos_token_id" => settings.options.forced_eos = ids(value),
            name => {
                let mut all = Setting::all();
                let found = all.find(|one| one.key.or(one.name) == Some(name));
                let setting = found.unwrap_or_else(|| panic!("option {name}"));
                // The cases have no do_sample.
                settings.do_sample |= setting.needs == Some("sample");
                setting.set_value(&mut settings, value).expect("an option");
            }
        }
    }
    settings.search_options()
}
