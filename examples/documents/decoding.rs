//! Document 003, the second half: decoding strategies on a table of probabilities.

use crate::Failure;
use crate::compute::{softmax_error, softmax_rows};
use crate::page::{Origin, Page, Printed};
use crate::tensor::{self, Tensor};
use serde_json::Value;
use simdformer::kernels::softmax::FullyMasked;
use simdformer::search::{
    BeamOptions, Hooks, Observation, Request, SampleOptions, Search, SearchLimits, SearchOptions,
    Strategy, words,
};

/// The slide's table: the probabilities of four words at four steps, a row for each step. The slide has a column for
/// each.
struct Table {
    probabilities: Tensor,
    words: Vec<String>,
    /// The index of `<eos>`.
    end: u32,
}

impl Table {
    fn read(data: &Value) -> Result<Self, Failure> {
        let probabilities = Tensor::of(data, "table")?.transposed();
        let words = tensor::words(data, "table_words").concat();
        if probabilities.shape != [4, 4] || words.len() != 4 {
            return Err(
                format!("expected 4 steps of 4 words, found {probabilities:?} {words:?}").into()
            );
        }
        let end = words.iter().position(|word| word == "<eos>").ok_or("table_words: no <eos>")?;
        Ok(Self { probabilities, words, end: end as u32 })
    }

    /// The probabilities of a step.
    fn row(&self, step: usize) -> &[f32] {
        self.probabilities.row(step)
    }

    fn text(&self, tokens: impl IntoIterator<Item = usize>) -> String {
        let words: Vec<&str> = tokens.into_iter().map(|token| &*self.words[token]).collect();
        words.join(" ")
    }
}

/// The hypotheses of a search over the table, best first, and their scores.
fn search(
    table: &Table,
    strategy: Strategy,
    sequences: usize,
) -> Result<Vec<(String, f32)>, Failure> {
    let limits = SearchLimits {
        sentences: 1,
        sequences,
        max_target_length: 5,
        vocabulary: 4,
        end_tokens: 1,
        source_tokens: 0,
    };
    let options = SearchOptions {
        strategy,
        num_return_sequences: sequences,
        eos: vec![table.end],
        max_new_tokens: Some(4),
        ..SearchOptions::default()
    };
    let mut memory = vec![0; words(&limits)?];
    let mut search = Search::new(&options, &limits, &mut memory)?;
    let sentence = search.admit(&Request::default())?;
    let mut step = 0;
    while !search.rows().is_empty() {
        // The table does not depend on the words before: every hypothesis reads the same row.
        let row: Vec<f32> = table.row(step).iter().map(|p| p.ln()).collect();
        let mut logits = row.repeat(search.rows().len());
        search.advance(&mut logits, &mut Hooks::default(), None)?;
        step += 1;
    }
    let text = |tokens: &[u32]| table.text(tokens.iter().map(|&token| token as usize));
    Ok(search.hypotheses(sentence).map(|h| (text(h.tokens), h.score)).collect())
}

pub(crate) fn decoding(page: &mut Page, data: &Value) -> Result<(), Failure> {
    page.section(
        "Decoding",
        "Greedy and beam search on a table of A, B, C and <eos> at four steps",
        "The table gives the same probabilities after every history. Of the sequences of four tokens greedy search then finds\n\
         the most probable one. Shorter sequences multiply fewer probabilities: <eos> alone has 0.1. Scores divided by the\n\
         length, the default of beam search, compare sequences of different lengths.",
    );
    let table = Table::read(data)?;
    page.show(
        &format!("the table, a row for each step: {}", table.words.join(" ")),
        &table.probabilities,
        1,
    );
    page.shown_words(
        "the words of the table",
        &table.words,
        5_041,
        "any words would do; the searches below print them",
    );
    let worst =
        (0..4).map(|step| (table.row(step).iter().sum::<f32>() - 1.0).abs()).fold(0.0, f32::max);
    page.property(
        "the probabilities of each step add up to 1",
        worst < 1e-6,
        format!("largest deviation {worst:.1e}"),
    );
    let greedy = search(&table, Strategy::Greedy, 1)?;
    page.compare_text_of(
        Origin::ByHand,
        "greedy: the largest of each step",
        "A B C <eos>",
        &greedy[0].0,
        "Search, Strategy::Greedy",
    );
    let expected = Tensor::new(&[1, 1], vec![0.5 * 0.4 * 0.4 * 0.6]);
    let probability = Tensor::new(&[1, 1], vec![greedy[0].1.exp()]);
    page.compare(
        "its probability 0.5 x 0.4 x 0.4 x 0.6",
        Printed::by_hand(&expected, 4),
        &softmax_error(probability, 1e-6),
        "Search, the exponential of the score",
    );
    let found =
        search(&table, Strategy::Beam(BeamOptions { beams: 2, ..BeamOptions::default() }), 2)?;
    for (text, score) in &found {
        page.say(format!("  beam search, 2 beams: {text:<12} score {score:.4}"));
    }
    let all = every_sequence(&table);
    for (text, probability, score) in &all[..3] {
        page.say(format!(
            "  of all {} sequences: {text:<12} score {score:.4}, probability {probability:.4}",
            all.len()
        ));
    }
    page.property(
        "beam search finds the sequence with the best score of all, and greedy search does too",
        found[0].0 == all[0].0
            && (f64::from(found[0].1) - all[0].2).abs() < 1e-6
            && greedy[0].0 == all[0].0,
        format!("{}, ln(0.048) / 4 = {:.4}", found[0].0, found[0].1),
    );

    page.section(
        "Sampling",
        "Stochastic decoding: frequencies are the probabilities",
        "10,000 samples of the first step.",
    );
    drawn(page, &table, 0, SampleOptions::default(), table.row(0))
}

/// Draws the next token of a step 10,000 times: the cumulative sums that a draw is compared with, the first draws, and
/// whether the frequencies are `expected` within three standard deviations.
fn drawn(
    page: &mut Page,
    table: &Table,
    step: usize,
    sample: SampleOptions,
    expected: &[f32],
) -> Result<(), Failure> {
    let tokens = draws(table, step, sample)?;
    let mut sum = 0.0;
    let bounds: Vec<String> = table
        .words
        .iter()
        .zip(expected)
        .filter(|(_, p)| **p > 0.0)
        .map(|(letter, p)| {
            sum += p;
            format!("{letter} below {sum:.4}")
        })
        .collect();
    page.say(format!(
        "  a draw u in 0..1 chooses {}; the first draws: {}",
        bounds.join(", "),
        table.text(tokens[..12].iter().copied())
    ));
    let count = tokens.len() as f32;
    let frequency = |token: usize| tokens.iter().filter(|&&t| t == token).count() as f32 / count;
    let counts = Tensor::from_fn(1, 4, |_, j| frequency(j));
    let name = format!("frequencies of {} in 10,000 draws", table.words.join(" "));
    page.show(&name, &counts, 4);
    let worst = (0..4).map(|j| (counts.get(0, j) - expected[j]).abs()).fold(0.0, f32::max);
    let never = (0..4).all(|j| expected[j] > 0.0 || counts.get(0, j) == 0.0);
    page.property(
        "the frequencies are the probabilities within three standard deviations, and removed tokens are never drawn",
        worst < 3.0 * (0.25f32 / count).sqrt() && never,
        format!("largest difference {worst:.4}, three standard deviations of 0.5 are 0.015"),
    );
    Ok(())
}

/// All sequences that end with `<eos>` or have four tokens: text, probability, and the logarithm of the probability
/// divided by the length, best first.
fn every_sequence(table: &Table) -> Vec<(String, f64, f64)> {
    let (mut ended, mut open) = (Vec::new(), vec![(Vec::new(), 1.0f64)]);
    for step in 0..4 {
        let longer: Vec<(Vec<usize>, f64)> = open
            .iter()
            .flat_map(|(tokens, p)| {
                (0..4).map(move |token| {
                    let tokens: Vec<usize> = tokens.iter().copied().chain([token]).collect();
                    (tokens, p * f64::from(table.row(step)[token]))
                })
            })
            .collect();
        let ends = |tokens: &[usize]| tokens.last() == Some(&(table.end as usize));
        let (done, rest): (Vec<_>, Vec<_>) =
            longer.into_iter().partition(|(tokens, _)| step == 3 || ends(tokens));
        ended.extend(done);
        open = rest;
    }
    let mut all: Vec<(String, f64, f64)> = ended
        .into_iter()
        .map(|(tokens, p)| {
            let score = p.ln() / tokens.len() as f64;
            (table.text(tokens), p, score)
        })
        .collect();
    all.sort_by(|a, b| b.2.total_cmp(&a.2));
    all
}

/// The token of a step of the table in 10,000 samples.
fn draws(table: &Table, step: usize, sample: SampleOptions) -> Result<Vec<usize>, Failure> {
    let limits = SearchLimits {
        sentences: 1,
        sequences: 1,
        max_target_length: 2,
        vocabulary: 4,
        end_tokens: 1,
        source_tokens: 0,
    };
    let options = SearchOptions {
        strategy: Strategy::Sample(sample),
        eos: vec![table.end],
        max_new_tokens: Some(1),
        ..SearchOptions::default()
    };
    let mut memory = vec![0; words(&limits)?];
    let mut search = Search::new(&options, &limits, &mut memory)?;
    let row: Vec<f32> = table.row(step).iter().map(|p| p.ln()).collect();
    let mut tokens = Vec::new();
    for stream in 0..10_000 {
        let sentence = search.admit(&Request { stream, ..Request::default() })?;
        search.advance(&mut row.clone(), &mut Hooks::default(), None)?;
        let token = search.hypotheses(sentence).next().and_then(|h| h.tokens.first().copied());
        tokens.push(token.ok_or("a sample without a token")? as usize);
        search.release(sentence)?;
    }
    Ok(tokens)
}

/// What the rules of `options` leave of scores after the tokens `history`.
fn processed(options: SearchOptions, scores: &Tensor, history: &[u32]) -> Result<Tensor, Failure> {
    let (&start, prefix) = history.split_first().ok_or("no decoder start")?;
    let options = SearchOptions { start, max_new_tokens: Some(1), ..options };
    let limits = SearchLimits {
        sentences: 1,
        sequences: 1,
        max_target_length: 5,
        vocabulary: scores.columns(),
        end_tokens: 0,
        source_tokens: 0,
    };
    let mut memory = vec![0; words(&limits)?];
    let mut search = Search::new(&options, &limits, &mut memory)?;
    let sentence = search.admit(&Request { prefix, ..Request::default() })?;
    search.skip_prompt(sentence)?;
    let mut out = scores.clone();
    let mut observe = |observation: Observation<'_>| {
        if let Observation::Scores { scores, .. } = observation {
            out.data.copy_from_slice(scores);
        }
    };
    let mut hooks = Hooks { observer: Some(&mut observe), ..Hooks::default() };
    search.advance(&mut scores.data.clone(), &mut hooks, None)?;
    Ok(out)
}

/// Scores after the filters of sampling.
fn filtered(sample: SampleOptions, scores: &Tensor) -> Result<Tensor, Failure> {
    let strategy = Strategy::Sample(sample);
    processed(SearchOptions { strategy, ..SearchOptions::default() }, scores, &[0])
}

pub(crate) fn filters(page: &mut Page, data: &Value) -> Result<(), Failure> {
    page.section(
        "Temperature",
        "P = exp(u / t) / sum exp(u / t), t in [0, 1)",
        "t = 0 divides by 0: simdformer refuses it, and greedy search is its limit. Above 1 is allowed and flattens.",
    );
    let table = Table::read(data)?;
    let logits = Tensor::new(&[1, 4], table.row(0).iter().map(|p| p.ln()).collect());
    for t in [1.0, 0.5, 0.1] {
        let formula = {
            let powers: Vec<f64> =
                table.row(0).iter().map(|&p| f64::from(p).powf(1.0 / t)).collect();
            let sum: f64 = powers.iter().sum();
            Tensor::new(&[1, 4], powers.iter().map(|p| (p / sum) as f32).collect())
        };
        let scores = filtered(SampleOptions { temperature: t, ..Default::default() }, &logits)?;
        let ours = softmax_rows(&scores, None, FullyMasked::Zeros)?;
        page.compare(
            &format!("A B C <eos> at t = {t}"),
            Printed::formula(&formula, 4),
            &softmax_error(ours, 1e-5),
            "Temperature, softmax()",
        );
    }

    page.section(
        "Top-k and top-p",
        "Sort, keep the k best or the smallest set of mass p, draw from the rest",
        "At step 2, where A B C <eos> have 0.1 0.4 0.3 0.2. What is kept is divided by its sum.",
    );
    let second = Tensor::new(&[1, 4], table.row(1).iter().map(|p| p.ln()).collect());
    let two = [0.0, 0.4 / 0.7, 0.3 / 0.7, 0.0];
    let sample = SampleOptions::default();
    for (name, by, sample) in [
        (
            "top-k with k = 2: 0.4 / 0.7 and 0.3 / 0.7",
            "TopK, softmax()",
            SampleOptions { top_k: Some(2), ..sample.clone() },
        ),
        (
            "top-p with p = 0.7: 0.4 + 0.3 is enough",
            "TopP, softmax()",
            SampleOptions { top_p: Some(0.7), ..sample.clone() },
        ),
        (
            "mixed: top-k 3 gives 0.4444 0.3333 0.2222, of which top-p 0.5 keeps two",
            "TopK, TopP, softmax()",
            SampleOptions { top_k: Some(3), top_p: Some(0.5), ..sample.clone() },
        ),
    ] {
        let left = filtered(sample.clone(), &second)?;
        let ours = softmax_rows(&left, None, FullyMasked::Zeros)?;
        page.compare(
            name,
            Printed::by_hand(&Tensor::new(&[1, 4], two.to_vec()), 4),
            &softmax_error(ours.clone(), 1e-6),
            by,
        );
        drawn(page, &table, 1, sample, ours.row(0))?;
    }
    control(page)
}

/// The penalty of CTRL, for positive and for negative scores.
fn control(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "CTRL",
        "p_i = exp(x_i / (T I(i in g))) / sum, I = theta for tokens already generated",
        "For positive scores this is a division by theta. A negative score divided by theta > 1 would grow: transformers and\n\
         simdformer multiply it instead, so a penalty never rewards. Here T = 1 and theta = 1.2.",
    );
    let scores = Tensor::new(&[1, 4], vec![2.0, 1.0, 0.5, -1.0]);
    let theta = 1.2f64;
    let divided = |generated: &[u32]| -> Vec<f64> {
        let x = |i: usize| f64::from(scores.get(0, i));
        (0..4).map(|i| if generated.contains(&(i as u32)) { x(i) / theta } else { x(i) }).collect()
    };
    let distribution = |scores: &[f64]| -> Tensor {
        let sum: f64 = scores.iter().map(|x| x.exp()).sum();
        Tensor::new(&[1, 4], scores.iter().map(|x| (x.exp() / sum) as f32).collect())
    };
    let penalized = |generated: &[u32]| -> Result<[Tensor; 2], Failure> {
        let options = SearchOptions { repetition_penalty: theta, ..SearchOptions::default() };
        let ours = processed(options, &scores, generated)?;
        let p = softmax_rows(&ours, None, FullyMasked::Zeros)?;
        Ok([ours, p])
    };
    page.show("x", &scores, 1);
    let [ours, p] = penalized(&[0, 2])?;
    let formula = divided(&[0, 2]);
    let divided_scores = Tensor::new(&[1, 4], formula.iter().map(|&x| x as f32).collect());
    page.compare(
        "x / I, the first and the third were generated",
        Printed::formula(&divided_scores, 4),
        &ours.into(),
        "RepetitionPenalty",
    );
    page.compare(
        "p",
        Printed::formula(&distribution(&formula), 4),
        &softmax_error(p, 1e-6),
        "RepetitionPenalty, softmax()",
    );
    let [ours, p] = penalized(&[0, 2, 3])?;
    let formula = divided(&[0, 2, 3]);
    let plain = softmax_rows(&scores, None, FullyMasked::Zeros)?;
    let [mut by_formula, mut by_hand] = [formula.clone(), formula];
    by_formula[3] = -1.0 / theta;
    by_hand[3] = -theta;
    page.show(
        "all but the second were generated: x / I by the formula of the document",
        &Tensor::new(&[1, 4], by_formula.iter().map(|&x| x as f32).collect()),
        4,
    );
    let theirs = distribution(&by_formula);
    page.show("p by the formula of the document", &theirs, 4);
    page.compare(
        "x with the penalty of simdformer: the negative score times theta",
        Printed::by_hand(&Tensor::new(&[1, 4], by_hand.iter().map(|&x| x as f32).collect()), 4),
        &ours.into(),
        "RepetitionPenalty",
    );
    let expected = distribution(&by_hand);
    page.compare(
        "p",
        Printed::by_hand(&expected, 4),
        &softmax_error(p.clone(), 1e-6),
        "RepetitionPenalty, softmax()",
    );
    let ratio = |p: &Tensor| p.get(0, 3) / p.get(0, 1);
    page.property(
        "beside the second token, which has no penalty, the fourth one gains by the formula and loses here",
        ratio(&theirs) > ratio(&plain) && ratio(&p) < ratio(&plain),
        format!(
            "p4 / p2 is {:.4} without a penalty, {:.4} by the formula, {:.4} here",
            ratio(&plain), ratio(&theirs), ratio(&p)
        ),
    );
    Ok(())
}
