//! `--explain`: what a search does with one text, step by step, as lines for a terminal or as JSON.
//!
//! A [`Recorder`] observes the search. It sees the scores of the model and those that each rule leaves, and compares
//! them; it computes no rule itself.

use serde::Serialize;
use simdformer::search::{
    Finish, Observation, Outcome, SampleOptions, SearchOptions, Strategy, Token,
};
use simdformer_text::{Direction, TextError, Tokenizer};
use std::cmp::Ordering;

/// The width of the terminal.
const COLUMNS: usize = 100;
/// The width of the names at the left.
const NAMES: usize = 24;

/// A token and its probability.
#[derive(Clone, Debug, Serialize)]
struct Word {
    token: String,
    probability: f64,
}

/// A token whose score a rule changed: its probability before and after, and its score, whose softmax the probability is.
#[derive(Clone, Debug, Serialize)]
struct Change {
    token: String,
    before: f64,
    after: f64,
    score_before: f32,
    score_after: f32,
}

/// What a rule did to a row of scores. Lists have the most probable tokens.
#[derive(Clone, Debug, Serialize)]
struct Effect {
    rule: String,
    /// The number of tokens that it removed, and their probability before.
    removed: usize,
    removed_probability: f64,
    removed_tokens: Vec<Word>,
    /// The number of remaining tokens whose score it changed.
    changed: usize,
    changed_tokens: Vec<Change>,
    /// The number of tokens that remain.
    left: usize,
    best: Vec<Word>,
}

/// A token that was chosen, and its probability after all rules.
#[derive(Clone, Debug, Serialize)]
struct Chosen {
    sample: usize,
    #[serde(flatten)]
    word: Word,
    /// Of a sample: the sums of the probabilities of all tokens with a smaller id, without and with this token. The
    /// number that was drawn from 0..1 lies between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    draw: Option<[f64; 2]>,
}

/// One hypothesis or sample in one step.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// The token that the decoder reads in this step, and those that it has read.
    fed: String,
    after: Vec<String>,
    /// Beam search: the sum of the log-probabilities up to here.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f32>,
    model: Vec<Word>,
    rules: Vec<Effect>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chosen: Vec<Chosen>,
    #[serde(skip)]
    history: Vec<u32>,
    /// The scores after the last rule.
    #[serde(skip)]
    scores: Vec<f32>,
}

/// A candidate of beam search: a hypothesis of this step, counted from 1, and the token after it.
#[derive(Clone, Debug, Serialize)]
struct Candidate {
    hypothesis: usize,
    token: String,
    score: f32,
    /// The hypothesis of the next step, if it continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    becomes: Option<usize>,
    /// The final score, if it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: Option<f32>,
    /// The number of tokens after the prompt.
    #[serde(skip)]
    length: usize,
    /// The tokens of the hypothesis that it would be.
    #[serde(skip)]
    history: Vec<u32>,
}

/// One step of the decoder.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Step {
    rows: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    candidates: Vec<Candidate>,
}

/// Records the steps of one text.
pub(crate) struct Recorder<'r> {
    tokenizer: &'r Tokenizer,
    options: &'r SearchOptions,
    /// The length of the lists of tokens.
    listed: usize,
    steps: Vec<Step>,
}

impl<'r> Recorder<'r> {
    pub(crate) fn new(tokenizer: &'r Tokenizer, options: &'r SearchOptions, listed: usize) -> Self {
        Self { tokenizer, options, listed, steps: Vec::new() }
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
                    model: self.best(&probabilities(scores)),
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
        let word = Word { token: self.word(token.id), probability };
        let drawn = matches!(self.options.strategy, Strategy::Sample(_));
        if let Some(row) = self.rows().last_mut() {
            let draw = drawn.then(|| {
                let probabilities = probabilities(&row.scores);
                // Not `sum`, which is -0 of nothing.
                let sum = |ids: usize| probabilities.iter().take(ids).fold(0.0, |a, b| a + b);
                [sum(token.id as usize), sum(token.id as usize + 1)]
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

    fn words(&self, ids: &[usize], probabilities: &[f64]) -> Vec<Word> {
        let word =
            |&id: &usize| Word { token: self.word(id as u32), probability: probabilities[id] };
        ids.iter().map(word).collect()
    }

    fn best(&self, probabilities: &[f64]) -> Vec<Word> {
        self.words(&self.ranked(probabilities, |id| probabilities[id] > 0.0), probabilities)
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
            removed_tokens: self.words(&self.ranked(&p, removed), &p),
            changed: changes,
            changed_tokens: self.ranked(&p, changed).iter().map(change).collect(),
            left: count(&|id| after[id] > NO),
            best: self.best(&q),
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

/// One line that says what the strategy of `options` does.
fn describe(options: &SearchOptions) -> String {
    match &options.strategy {
        Strategy::Greedy => "greedy, the most probable token of each step".to_owned(),
        Strategy::Sample(sample) => {
            format!("each token is drawn with its probability, seed {}", sample.seed)
        }
        Strategy::Beam(beam) => match &beam.sample {
            None => format!("beams, the {} best hypotheses of each step", beam.beams),
            Some(sample) => {
                let beams = beam.beams;
                format!("{beams} beams, whose continuations are drawn, seed {}", sample.seed)
            }
        },
    }
}

fn probability(p: f64) -> String {
    match p {
        0.0 => "0".to_owned(),
        p if p < 0.0005 => format!("{p:.0e}"),
        p => format!("{p:.3}"),
    }
}

fn listed(words: &[Word]) -> impl Iterator<Item = String> {
    words.iter().map(|word| format!("{} {}", word.token, probability(word.probability)))
}

fn tokens(count: usize) -> String {
    if count == 1 { "1 token".to_owned() } else { format!("{count} tokens") }
}

/// Appends a name and what belongs to it, `gap` columns apart, in lines of [`COLUMNS`].
fn put(
    out: &mut String,
    (indent, gap): (usize, usize),
    name: &str,
    items: impl IntoIterator<Item = String>,
) {
    let start = indent + NAMES;
    let mut line = format!("{}{name:<NAMES$}", " ".repeat(indent));
    let mut empty = true;
    for item in items {
        if !empty && line.chars().count() + gap + item.chars().count() > COLUMNS {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(start);
            empty = true;
        }
        if !empty {
            line.push_str(&" ".repeat(gap));
        }
        line.push_str(&item);
        empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

/// What the encoder reads of a text.
pub(crate) struct Source {
    /// The part of the text that each token stands for; a special token by its name.
    tokens: Vec<String>,
    /// The words that have a part which no token stands for.
    unknown: Vec<String>,
}

impl Source {
    pub(crate) fn read(
        tokenizer: &Tokenizer,
        text: &str,
        direction: &Direction<'_>,
    ) -> Result<Self, TextError> {
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

/// The lines before the steps.
pub(crate) fn heading(text: &str, source: &Source, options: &SearchOptions) -> String {
    let mut out = String::new();
    put(&mut out, (0, 1), "text", text.split_whitespace().map(str::to_owned));
    let reads = format!("reads {}, once:", tokens(source.tokens.len()));
    put(&mut out, (0, 2), "encoder", [reads].into_iter().chain(source.tokens.iter().cloned()));
    if !source.unknown.is_empty() {
        let what = "the model does not know:".to_owned();
        put(&mut out, (0, 2), "unknown", [what].into_iter().chain(source.unknown.iter().cloned()));
    }
    put(&mut out, (0, 1), "search", [describe(options)]);
    put(&mut out, (0, 1), "numbers", ["after a token: its probability".to_owned()]);
    if matches!(options.strategy, Strategy::Sample(_)) {
        let draw =
            "between the sums of the probabilities of smaller ids without and with the token";
        put(&mut out, (0, 1), "draw", draw.split(' ').map(str::to_owned));
    }
    put(&mut out, (0, 1), "score", [score_rule(options)]);
    out
}

/// What the score of a result is.
fn score_rule(options: &SearchOptions) -> String {
    const SUM: &str = "sum of the log-probabilities of its tokens";
    match &options.strategy {
        Strategy::Beam(beam) if beam.length_penalty == 1.0 => {
            format!("{SUM}, divided by their number (a mean)")
        }
        Strategy::Beam(beam) => format!("{SUM}, divided by their number^{}", beam.length_penalty),
        _ => SUM.to_owned(),
    }
}

/// The lines of all steps.
pub(crate) fn lines(steps: &[Step], options: &SearchOptions) -> String {
    let mut out = String::new();
    for (number, step) in (1..).zip(steps) {
        out.push('\n');
        let beams = !step.candidates.is_empty();
        let alone = step.rows.len() == 1 && !beams;
        if !alone {
            out.push_str(&format!("step {number}\n"));
        }
        for (i, row) in (1..).zip(&step.rows) {
            let sample = row.chosen.first().map_or(i, |chosen| chosen.sample);
            let name = match (alone, row.score) {
                (true, _) => format!("step {number}"),
                (_, Some(score)) => format!("  hypothesis {i}, {score:.3}"),
                _ => format!("  sample {sample}"),
            };
            let fed = match row.after.is_empty() {
                true => vec![format!("the decoder reads {}", row.fed)],
                false => vec![format!("the decoder reads {},", row.fed), "after".to_owned()],
            };
            put(&mut out, (0, 1), &name, fed.into_iter().chain(row.after.iter().cloned()));
            row_lines(&mut out, if alone { 2 } else { 4 }, row);
        }
        if beams {
            candidate_lines(&mut out, &step.candidates, number < steps.len(), options);
        }
    }
    out
}

/// What is said of a translation that may lack its end.
pub(crate) const UNFINISHED: &str = "the translation reached the maximum length";

/// Why a text ended, in a word.
pub(crate) fn finish_name(finish: Finish) -> &'static str {
    match finish {
        Finish::End => "end",
        Finish::Length => "length",
        Finish::Stopped => "stopped",
        Finish::Exhausted => "exhausted",
        Finish::NotFinite => "not finite",
    }
}

/// The line of a result, after all steps.
pub(crate) fn result(text: &str, score: f32, finish: &str) -> String {
    let mut out = String::new();
    let words = text.split_whitespace().map(str::to_owned);
    let why = format!("(score {score:.3}, {finish})");
    put(&mut out, (0, 1), "result", words.chain([why]));
    out
}

fn row_lines(out: &mut String, indent: usize, row: &Row) {
    let mut best: Vec<String> = listed(&row.model).collect();
    put(out, (indent, 2), "model", best.iter().cloned());
    for rule in &row.rules {
        if rule.removed + rule.changed == 0 {
            put(out, (indent, 2), &rule.rule, ["changes nothing".to_owned()]);
            continue;
        }
        let mut name = &*rule.rule;
        if rule.removed > 0 {
            let all = tokens(rule.removed + rule.left);
            let mass = probability(rule.removed_probability);
            let what = format!("removes {} of {all}, {mass} of the probability:", rule.removed);
            let more = rule.removed > rule.removed_tokens.len();
            let more = more.then(|| "...".to_owned());
            let items = [what].into_iter().chain(listed(&rule.removed_tokens)).chain(more);
            put(out, (indent, 2), std::mem::take(&mut name), items);
        }
        if rule.changed == rule.left && rule.left > 1 {
            let change =
                |c: &Change| format!("{} {:.3} to {:.3}", c.token, c.score_before, c.score_after);
            let what = ["changes every score:".to_owned()];
            let items = what.into_iter().chain(rule.changed_tokens.iter().map(change));
            put(out, (indent, 2), name, items);
        } else if rule.changed > 0 {
            let change = |c: &Change| {
                let [before, after] = [c.before, c.after].map(probability);
                let scores = format!("score {:.3} to {:.3}", c.score_before, c.score_after);
                format!("{} {before} to {after} ({scores})", c.token)
            };
            let what = format!("changes {}:", tokens(rule.changed));
            let items = [what].into_iter().chain(rule.changed_tokens.iter().map(change));
            put(out, (indent, 2), name, items);
        }
        let now: Vec<String> = listed(&rule.best).collect();
        if now != best {
            put(out, (indent, 2), "", now.iter().cloned());
        }
        best = now;
    }
    if !row.chosen.is_empty() {
        let one = row.chosen.len() == 1;
        let chosen = row.chosen.iter().map(|chosen| {
            let mut word =
                format!("{} {}", chosen.word.token, probability(chosen.word.probability));
            if let Some([from, to]) = chosen.draw {
                word += &format!(", the draw between {from:.4} and {to:.4}");
            }
            if one { word } else { format!("sample {}: {word}", chosen.sample) }
        });
        put(out, (indent, 2), "chosen", chosen);
    }
}

/// `continues` says whether there is a next step.
fn candidate_lines(
    out: &mut String,
    candidates: &[Candidate],
    continues: bool,
    options: &SearchOptions,
) {
    let power = match &options.strategy {
        Strategy::Beam(beam) => beam.length_penalty,
        _ => 1.0,
    };
    out.push_str(
        "  candidates: the hypothesis, its next token, and the sum of the log-probabilities after all rules\n",
    );
    for (rank, candidate) in (1..).zip(candidates) {
        let name = format!("{rank:>2}. {} + {}", candidate.hypothesis, candidate.token);
        let fate = match (candidate.becomes, candidate.ends) {
            (Some(next), _) if continues => format!("is hypothesis {next} of the next step"),
            (Some(_), _) => "is not continued, because the search ends".to_owned(),
            (_, Some(score)) if power == 1.0 => {
                format!(
                    "ends with the score {score:.3}, divided by its length {}",
                    candidate.length
                )
            }
            (_, Some(score)) => {
                let length = candidate.length;
                format!("ends with the score {score:.3}, divided by its length {length}^{power}")
            }
            _ => "is dropped".to_owned(),
        };
        put(out, (4, 2), &name, [format!("{:>8.3}  {fate}", candidate.score)]);
    }
}
