//! `--explain`: what a search does with one text, step by step.
//!
//! A [`Recorder`] observes the search. It sees the scores of the model and those that each rule leaves, and compares
//! them; it computes no rule itself.

use serde::Serialize;
use simdformer::search::{Observation, Outcome, SampleOptions, SearchOptions, Strategy, Token};
use simdformer_text::{Direction, Error, Tokenizer};
use std::cmp::Ordering;

/// A token, its probability, and its score: the softmax of all scores are the probabilities. A score of the model is a
/// logit, or in beam search, if rules follow, the log-probability.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Word {
    pub(crate) token: String,
    pub(crate) probability: f64,
    pub(crate) score: f32,
}

/// A token whose score a rule changed: its probability before and after, and its score, whose softmax the probability is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Change {
    pub(crate) token: String,
    pub(crate) before: f64,
    pub(crate) after: f64,
    pub(crate) score_before: f32,
    pub(crate) score_after: f32,
}

/// What a rule did to a row of scores. Lists have the most probable tokens.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Effect {
    pub(crate) rule: String,
    /// The number of tokens that it removed, and their probability before.
    pub(crate) removed: usize,
    pub(crate) removed_probability: f64,
    pub(crate) removed_tokens: Vec<Word>,
    /// The number of remaining tokens whose score it changed.
    pub(crate) changed: usize,
    pub(crate) changed_tokens: Vec<Change>,
    /// The number of tokens that remain.
    pub(crate) left: usize,
    pub(crate) best: Vec<Word>,
}

/// A token that was chosen, and its probability after all rules.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Chosen {
    pub(crate) sample: usize,
    #[serde(flatten)]
    pub(crate) word: Word,
    /// Of a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) draw: Option<Draw>,
}

/// The draw of a token.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Draw {
    /// The number that was drawn from 0..1.
    pub(crate) number: f64,
    /// It lies between these: the sums of the probabilities of all tokens with a smaller id, without and with this token.
    pub(crate) from: f64,
    pub(crate) to: f64,
}

/// One hypothesis or sample in one step.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The token that the decoder reads in this step, and those that it has read.
    pub(crate) fed: String,
    pub(crate) after: Vec<String>,
    /// Beam search: the sum of the log-probabilities up to here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) score: Option<f32>,
    pub(crate) model: Vec<Word>,
    pub(crate) rules: Vec<Effect>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) chosen: Vec<Chosen>,
    #[serde(skip)]
    pub(crate) history: Vec<u32>,
    /// The scores after the last rule.
    #[serde(skip)]
    pub(crate) scores: Vec<f32>,
}

/// A candidate of beam search: a hypothesis of this step, counted from 1, and the token after it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Candidate {
    pub(crate) hypothesis: usize,
    pub(crate) token: String,
    pub(crate) score: f32,
    /// The hypothesis of the next step, if it continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) becomes: Option<usize>,
    /// The final score, if it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ends: Option<f32>,
    /// The number of tokens after the prompt.
    #[serde(skip)]
    pub(crate) length: usize,
    /// The tokens of the hypothesis that it would be.
    #[serde(skip)]
    pub(crate) history: Vec<u32>,
}

/// One step of the decoder.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Step {
    pub(crate) rows: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) candidates: Vec<Candidate>,
}

/// Records the steps of one text.
pub(crate) struct Recorder<'r> {
    tokenizer: &'r Tokenizer,
    options: &'r SearchOptions,
    /// The length of the lists of tokens.
    listed: usize,
    /// The random stream of the text.
    stream: u64,
    steps: Vec<Step>,
}

impl<'r> Recorder<'r> {
    pub(crate) fn new(
        tokenizer: &'r Tokenizer,
        options: &'r SearchOptions,
        listed: usize,
        stream: u64,
    ) -> Self {
        Self { tokenizer, options, listed, stream, steps: Vec::new() }
    }

    /// Begins a step. Steps in which nothing is chosen, as those that feed a prompt, have no rows.
    pub(crate) fn begin_step(&mut self) {
        if self.steps.last().is_none_or(|step| !step.rows.is_empty()) {
            self.steps.push(Step::default());
        }
    }

    pub(crate) fn observe(&mut self, observation: Observation<'_>) {
        match observation {
            Observation::Scores { context, rule: None, scores } => {
                let history = context.history;
                let (&fed, after) = history.split_last().unwrap_or((&0, &[]));
                let row = Row {
                    fed: self.word(fed),
                    after: after.iter().map(|&id| self.word(id)).collect(),
                    score: self.score(history),
                    model: self.best(&probabilities(scores), scores),
                    rules: Vec::new(),
                    chosen: Vec::new(),
                    history: history.to_vec(),
                    scores: scores.to_vec(),
                };
                self.rows().push(row);
            }
            Observation::Scores { context, rule: Some(rule), scores } => {
                let Some(row) = self.row(context.history) else { return };
                let before = std::mem::replace(&mut row.scores, scores.to_vec());
                let effect = self.effect(rule, &before, scores);
                if let Some(row) = self.row(context.history) {
                    row.rules.extend(effect);
                }
            }
            Observation::Candidate { context, token, score, outcome } => {
                let word = self.word(token);
                let Some(step) = self.steps.last_mut() else { return };
                let parent = step.rows.iter().position(|row| row.history == context.history);
                let continued = step.candidates.iter().filter(|c| c.becomes.is_some()).count();
                step.candidates.push(Candidate {
                    hypothesis: parent.map_or(0, |row| row + 1),
                    token: word,
                    score,
                    becomes: (outcome == Outcome::Continues).then_some(continued + 1),
                    ends: if let Outcome::Ends(score) = outcome { Some(score) } else { None },
                    length: context.history.len() + 1 - context.prompt_len,
                    history: [context.history, &[token]].concat(),
                });
            }
        }
    }

    /// Records a token of greedy search or of a sample. In beam search tokens are chosen with their hypothesis.
    pub(crate) fn choose(&mut self, token: Token) {
        let Some(log_probability) = token.log_probability else { return };
        let probability = f64::from(log_probability).exp();
        let name = self.word(token.id);
        let drawn = match &self.options.strategy {
            Strategy::Sample(sample) => Some(sample.draw(self.stream, token.sequence, token.index)),
            _ => None,
        };
        let id = token.id as usize;
        if let Some(row) = self.rows().last_mut() {
            let word = Word { token: name, probability, score: row.scores[id] };
            let draw = drawn.map(|number| {
                let probabilities = probabilities(&row.scores);
                // Not `sum`, which is -0 of nothing.
                let sum = |ids: usize| probabilities.iter().take(ids).fold(0.0, |a, b| a + b);
                Draw { number, from: sum(id), to: sum(id + 1) }
            });
            row.chosen.push(Chosen { sample: token.sequence as usize + 1, word, draw });
        }
    }

    pub(crate) fn finish(mut self) -> Vec<Step> {
        for step in &mut self.steps {
            step.candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
        }
        self.steps.retain(|step| !step.rows.is_empty());
        self.steps
    }

    fn rows(&mut self) -> &mut Vec<Row> {
        if self.steps.is_empty() {
            self.steps.push(Step::default());
        }
        let last = self.steps.len() - 1;
        &mut self.steps[last].rows
    }

    /// The last row with this history. Samples may have the same one; their rows come one after the other.
    fn row(&mut self, history: &[u32]) -> Option<&mut Row> {
        self.rows().iter_mut().rev().find(|row| row.history == history)
    }

    fn word(&self, id: u32) -> String {
        let token = self.tokenizer.token(id).unwrap_or_else(|| format!("<{id}>"));
        token.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
    }

    /// The score of an open hypothesis of beam search, from the candidate that it was in the last step.
    fn score(&self, history: &[u32]) -> Option<f32> {
        if !matches!(self.options.strategy, Strategy::Beam(_)) {
            return None;
        }
        let mut candidates = self.steps.iter().rev().flat_map(|step| &step.candidates);
        let found = candidates.find(|c| c.becomes.is_some() && c.history == history);
        Some(found.map_or(0.0, |candidate| candidate.score))
    }

    /// The ids for which `wanted` is true, the largest probability first.
    fn ranked(&self, probabilities: &[f64], wanted: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut ids: Vec<usize> = (0..probabilities.len()).filter(|&id| wanted(id)).collect();
        let order = |&a: &usize, &b: &usize| -> Ordering {
            probabilities[b].total_cmp(&probabilities[a]).then(a.cmp(&b))
        };
        ids.sort_unstable_by(order);
        ids.truncate(self.listed);
        ids
    }

    /// The most probable tokens of those for which `wanted` is true.
    fn words(
        &self,
        probabilities: &[f64],
        scores: &[f32],
        wanted: impl Fn(usize) -> bool,
    ) -> Vec<Word> {
        let word = |&id: &usize| Word {
            token: self.word(id as u32),
            probability: probabilities[id],
            score: scores[id],
        };
        self.ranked(probabilities, wanted).iter().map(word).collect()
    }

    fn best(&self, probabilities: &[f64], scores: &[f32]) -> Vec<Word> {
        self.words(probabilities, scores, |id| probabilities[id] > 0.0)
    }

    /// What a rule did; `None` if it changed nothing and the options do not ask for it.
    fn effect(&self, rule: &str, before: &[f32], after: &[f32]) -> Option<Effect> {
        const NO: f32 = f32::NEG_INFINITY;
        let (name, asked) = rule_name(rule, self.options);
        let removed = |id: usize| before[id] > NO && after[id] == NO;
        let changed = |id: usize| after[id] != NO && after[id] != before[id];
        let count = |what: &dyn Fn(usize) -> bool| (0..after.len()).filter(|&id| what(id)).count();
        let (removals, changes) = (count(&removed), count(&changed));
        if removals + changes == 0 && !asked {
            return None;
        }
        let (p, q) = (probabilities(before), probabilities(after));
        let change = |&id: &usize| Change {
            token: self.word(id as u32),
            before: p[id],
            after: q[id],
            score_before: before[id],
            score_after: after[id],
        };
        Some(Effect {
            rule: name,
            removed: removals,
            removed_probability: (0..p.len()).filter(|&id| removed(id)).map(|id| p[id]).sum(),
            removed_tokens: self.words(&p, before, removed),
            changed: changes,
            changed_tokens: self.ranked(&p, changed).iter().map(change).collect(),
            left: count(&|id| after[id] > NO),
            best: self.best(&q, after),
        })
    }
}

/// The softmax of scores; all 0 if every token is banned.
fn probabilities(scores: &[f32]) -> Vec<f64> {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return vec![0.0; scores.len()];
    }
    let mut powers: Vec<f64> = scores.iter().map(|&score| f64::from(score - max).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter_mut().for_each(|power| *power /= sum);
    powers
}

/// The name of a rule with its setting, and whether the options ask for it at every step.
fn rule_name(rule: &str, options: &SearchOptions) -> (String, bool) {
    let off = SampleOptions::default();
    let sample = match &options.strategy {
        Strategy::Sample(sample) => sample,
        Strategy::Beam(beam) => beam.sample.as_ref().unwrap_or(&off),
        Strategy::Greedy => &off,
    };
    let number =
        |name: &str, value: Option<f64>| (format!("{name} {}", value.unwrap_or_default()), true);
    let plain = |name: &str| (name.to_owned(), false);
    match rule {
        "SequenceBias" => plain("sequence bias"),
        "SourcePenalty" => number("source penalty", Some(options.encoder_repetition_penalty)),
        "RepetitionPenalty" => number("repetition penalty", Some(options.repetition_penalty)),
        "NoRepeatNgram" => {
            (format!("no {}-gram twice", options.no_repeat_ngram.unwrap_or(0)), true)
        }
        "NoSourceNgram" => {
            (format!("no {}-gram of source", options.encoder_no_repeat_ngram.unwrap_or(0)), true)
        }
        "BadWords" => plain("banned words"),
        "MinLength" => (format!("at least {} in all", options.min_length), false),
        "MinNewTokens" => (format!("at least {} new", options.min_new_tokens), false),
        "AllowedPrefix" => plain("allowed tokens"),
        "ForcedBos" => plain("forced first token"),
        "ForcedEos" => plain("forced end"),
        "RemoveInvalid" => plain("no NaN, no infinity"),
        "ExponentialDecay" => plain("growing end score"),
        "Suppress" => plain("suppressed tokens"),
        "BeginSuppress" => plain("suppressed at first"),
        "Temperature" => number("temperature", Some(sample.temperature)),
        "TopH" => number("top-h", sample.top_h),
        "TopK" => number("top-k", sample.top_k.map(|k| k as f64)),
        "TopP" => number("top-p", sample.top_p),
        "MinP" => number("min-p", sample.min_p),
        "Typical" => number("typical", sample.typical),
        "Epsilon" => number("epsilon", sample.epsilon),
        "Eta" => number("eta", sample.eta),
        "Renormalize" => plain("renormalized"),
        other => plain(other),
    }
}

/// What the encoder reads of a text.
pub(crate) struct Source {
    /// The part of the text that each token stands for; a special token by its name.
    pub(crate) tokens: Vec<String>,
    /// The words that have a part which no token stands for.
    pub(crate) unknown: Vec<String>,
}

impl Source {
    pub(crate) fn from_text(
        tokenizer: &Tokenizer,
        text: &str,
        direction: &Direction<'_>,
    ) -> Result<Self, Error> {
        let (encoded, spans) = tokenizer.encode_text_with_spans(text, direction)?;
        let (mut tokens, mut unknown) = (Vec::new(), Vec::new());
        for (&id, span) in encoded.ids.iter().zip(spans) {
            let part = match &text[span.clone()] {
                // `▁` alone, or a special token.
                "" => tokenizer.token(id).unwrap_or_else(|| format!("<{id}>")),
                part => part.to_owned(),
            };
            if tokenizer.is_unknown(id) && !span.is_empty() {
                let start = text[..span.start]
                    .rfind(char::is_whitespace)
                    .map_or(0, |at| at + text[at..].chars().next().map_or(0, char::len_utf8));
                // One token may stand for several words in a row.
                let rest = &text[span.end..];
                let end = rest.find(char::is_whitespace).map_or(text.len(), |at| span.end + at);
                for word in text[start..end].split_whitespace() {
                    if unknown.last().is_none_or(|last| last != word) {
                        unknown.push(word.to_owned());
                    }
                }
                tokens.push(format!("{part} (unknown)"));
            } else {
                tokens.push(part);
            }
        }
        Ok(Self { tokens, unknown })
    }
}
