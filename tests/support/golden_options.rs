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

/// The options of one golden case. Panics if it does not know a name.
pub(crate) fn options(given: &Map<String, Value>, start: u32, eos: &[u32]) -> SearchOptions {
    let mut options = SearchOptions { start, eos: eos.to_vec(), ..SearchOptions::default() };
    let mut sample = SampleOptions::default();
    let mut beam = BeamOptions { beams: 1, ..BeamOptions::default() };
    let mut sampled = false;
    for (name, value) in given {
        let number = value.as_f64();
        let count = value.as_u64().map(|n| n as usize);
        match name.as_str() {
            "num_beams" => beam.beams = count.unwrap(),
            "length_penalty" => beam.length_penalty = number.unwrap(),
            "early_stopping" => {
                beam.early_stopping = match value.as_bool() {
                    Some(true) => EarlyStopping::WhenFull,
                    Some(false) => EarlyStopping::Heuristic,
                    None => EarlyStopping::Never,
                }
            }
            "num_return_sequences" => options.num_return_sequences = count.unwrap(),
            "max_new_tokens" => options.max_new_tokens = count,
            "eos_token_id" => options.eos = ids(value),
            "allowed" => {}
            "repetition_penalty" => options.repetition_penalty = number.unwrap(),
            "no_repeat_ngram_size" => options.no_repeat_ngram = count,
            "bad_words_ids" => {
                options.bad_words = value.as_array().unwrap().iter().map(ids).collect()
            }
            "sequence_bias" => {
                let entry = |e: &Value| (ids(&e[0]), e[1].as_f64().unwrap() as f32);
                options.sequence_bias = value.as_array().unwrap().iter().map(entry).collect();
            }
            "min_length" => options.min_length = count.unwrap(),
            "min_new_tokens" => options.min_new_tokens = count.unwrap(),
            "forced_bos_token_id" => options.forced_bos = Some(ids(value)[0]),
            "forced_eos_token_id" => options.forced_eos = ids(value),
            "suppress_tokens" => options.suppress = ids(value),
            "begin_suppress_tokens" => options.begin_suppress = ids(value),
            "exponential_decay_length_penalty" => {
                options.exponential_decay =
                    Some((ids(&value[0])[0] as usize, value[1].as_f64().unwrap()));
            }
            "renormalize_logits" => options.renormalize = value.as_bool().unwrap(),
            filter => {
                sampled = true;
                match filter {
                    "temperature" => sample.temperature = number.unwrap(),
                    "seed" => sample.seed = value.as_u64().expect("a seed"),
                    "top_h" => sample.top_h = number,
                    "top_k" => sample.top_k = count,
                    "top_p" => sample.top_p = number,
                    "min_p" => sample.min_p = number,
                    "typical_p" => sample.typical = number,
                    "epsilon_cutoff" => sample.epsilon = number,
                    "eta_cutoff" => sample.eta = number,
                    unknown => panic!("option {unknown}"),
                }
            }
        }
    }
    let sample = sampled.then_some(sample);
    options.strategy = match sample {
        sample if beam.beams > 1 => Strategy::Beam(BeamOptions { sample, ..beam }),
        Some(sample) => Strategy::Sample(sample),
        None => Strategy::Greedy,
    };
    options
}
