//! The steps of `--explain` as lines for a terminal.

use super::explain::{Candidate, Change, Draw, Row, Source, Step, Word};
use simdformer::search::{Finish, SearchOptions, Strategy};

/// The width of the terminal.
const COLUMNS: usize = 100;
/// The width of the names at the left.
const NAMES: usize = 24;

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
    let numbers = "after a token: its probability, and of the model its score in brackets";
    put(&mut out, (0, 1), "numbers", [numbers.to_owned()]);
    if matches!(options.strategy, Strategy::Sample(_)) {
        let draw = "a number from 0 to 1, between the sums of the probabilities of smaller ids without and with \
                    the token";
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
    let scored =
        best.iter().zip(&row.model).map(|(text, word)| format!("{text} ({:.3})", word.score));
    put(out, (indent, 2), "model", scored);
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
            if let Some(Draw { number, from, to }) = chosen.draw {
                word += &format!(", the draw {number:.4} between {from:.4} and {to:.4}");
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
