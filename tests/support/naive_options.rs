//! The rules and beams that both a search and its naive reference get, and toy models by seed.

use crate::naive::{Beams, Early, Rules};
use crate::toy::Toy;
use simdformer::search::*;

pub(crate) fn toy(seed: u32) -> Toy {
    Toy {
        seed,
        vocabulary: 19 + (seed % 4) as usize,
        scale: 1.0 + (seed % 3) as f32 * 0.7,
        end: (seed % 5) as f32 * 0.5,
        nan_from: usize::MAX,
    }
}

pub(crate) const PLAIN: Beams =
    Beams { beams: 4, length_penalty: 1.0, early: Early::False, groups: 1, diversity: 0.0 };

pub(crate) fn beam(beams: Beams) -> Strategy {
    Strategy::Beam(BeamOptions {
        beams: beams.beams,
        length_penalty: beams.length_penalty,
        early_stopping: match beams.early {
            Early::True => EarlyStopping::WhenFull,
            Early::False => EarlyStopping::Heuristic,
            Early::Never => EarlyStopping::Never,
        },
        groups: beams.groups,
        diversity_penalty: f64::from(beams.diversity),
        sample: None,
    })
}

pub(crate) fn options(rules: &Rules, strategy: Strategy) -> SearchOptions {
    SearchOptions {
        strategy,
        eos: rules.eos.clone(),
        repetition_penalty: f64::from(rules.repetition_penalty),
        no_repeat_ngram: (rules.no_repeat_ngram > 0).then_some(rules.no_repeat_ngram),
        bad_words: rules.bad_words.clone(),
        min_length: rules.min_length,
        min_new_tokens: rules.min_new_tokens,
        forced_bos: rules.forced_bos,
        forced_eos: rules.forced_eos.into_iter().collect(),
        suppress: rules.suppress.clone(),
        begin_suppress: rules.begin_suppress.clone(),
        ..SearchOptions::default()
    }
}
