//! Document 003: slides on the whole Transformer, its training and its decoding strategies.

use crate::Failure;
use crate::compute::{
    attend, normalized, position_table, product, random, softmax_error, softmax_rows,
};
use crate::page::{Computed, Page, Printed};
use crate::tensor::Tensor;
use simdformer::checkpoint::TensorId;
use simdformer::config::{Config, Dimensions};
use simdformer::kernels::softmax::FullyMasked;
use simdformer::search::{
    BeamOptions, Context, Hooks, LogitsProcessor, RepetitionPenalty, Request, SampleOptions,
    Search, SearchLimits, SearchOptions, Strategy, Temperature, TopK, TopP, scratch_words, words,
};

pub(crate) fn page() -> Result<Page, Failure> {
    let mut page = Page::new(
        "Document 003: the whole Transformer",
        "Architecture, the encoder step by step, the decoder, training on six words, and decoding strategies on a table of\n\
         probabilities. The slides animate most steps and print few numbers.",
    );
    page.section(
        "Why",
        "Sequence to sequence by recurrent networks, with and without attention",
        "",
    );
    page.not_recomputable(
        "hidden states of the animation",
        "no numbers are printed; recurrent networks are out of scope (docs/documents.md)",
    );
    architecture(&mut page)?;
    positions(&mut page)?;
    self_attention(&mut page)?;
    padding(&mut page)?;
    add_and_norm(&mut page)?;
    training(&mut page)?;
    decoding(&mut page)?;
    filters(&mut page)?;
    Ok(page)
}

fn architecture(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "Architecture",
        "N blocks in each stack; two sublayers in an encoder block, three in a decoder block",
        "Each sublayer is followed by Add & Norm. Here: the tensors of a model with one block in each stack.",
    );
    let config = Config::transformer(Dimensions {
        d_model: 64,
        heads: 4,
        layers: 1,
        ffn_dim: 256,
        vocabulary: 1000,
    });
    for tensor in TensorId::all(&config) {
        page.say(format!(
            "  {:<46} {:?}",
            tensor.to_string(),
            tensor.shape(&config).unwrap_or_default()
        ));
    }
    let norms = |stack: &str| {
        let names: Vec<String> = TensorId::all(&config).map(|t| t.to_string()).collect();
        names
            .iter()
            .filter(|n| n.starts_with(&format!("{stack}.layers.0.")) && n.ends_with("norm.weight"))
            .count()
    };
    page.compare_text(
        "sublayers with Add & Norm",
        "encoder 2, decoder 3",
        &format!("encoder {}, decoder {}", norms("encoder"), norms("decoder")),
        "TensorId::all()",
    );
    Ok(())
}

fn positions(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "Positions",
        "Wavelengths: T = 2 pi 10000^(2i/d_model)",
        "From 2 pi in the first pair of columns to almost 20,000 pi in the last one. `documents --pictures DIR` draws the\n\
         table as a heatmap and some of its columns as curves.",
    );
    let d = 512;
    let table = position_table(2, d)?;
    let chosen = [0, 1, 64, 128, 192, 255];
    let tau = std::f64::consts::TAU;
    let formula: Vec<f64> =
        chosen.iter().map(|&i| tau * 10_000f64.powf(2.0 * i as f64 / d as f64)).collect();
    // Position 1 has the angle 1 / 10000^(2i/d): its sine and cosine give the wavelength.
    let measured = chosen.iter().map(|&i| {
        let (sin, cos) = (f64::from(table.get(1, 2 * i)), f64::from(table.get(1, 2 * i + 1)));
        (tau / sin.atan2(cos)) as f32
    });
    let measured = Tensor::new(&[1, chosen.len()], measured.collect());
    let expected = Tensor::new(&[1, chosen.len()], formula.iter().map(|&t| t as f32).collect());
    // An f32 sine has 24 bits.
    let error = formula.iter().map(|t| t * 1e-6).collect();
    page.compare(
        &format!("T for i = {chosen:?} (document: its formula)"),
        Printed::exact(&expected, 2),
        &Computed { numbers: measured, error },
        "position::encode(Interleaved), by its sine and cosine at position 1",
    );
    Ok(())
}

fn self_attention(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "Self-attention",
        "Six steps: Q, K, V; Q K^T; divide by sqrt(d_k); softmax; times V; sum",
        "A figure uses the inputs 1 0 1 0, 0 2 0 2 and 1 1 1 1; its weights are not in the document.",
    );
    page.not_recomputable(
        "the figure's keys, values and outputs",
        "the weights W_Q, W_K and W_V are not in the document",
    );
    let x = Tensor::new(&[3, 4], vec![1.0, 0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 2.0, 1.0, 1.0, 1.0, 1.0]);
    let mut seed = 30;
    let mut weight = || Tensor::new(&[4, 3], (0..12).map(|_| random(&mut seed)).collect());
    let (wq, wk, wv) = (weight(), weight(), weight());
    let mut made = Vec::new();
    for w in [&wq, &wk, &wv] {
        made.push(product(&x, w, 1.0)?.reshaped(&[1, 3, 3]));
    }
    let mask = Tensor::from_fn(3, 3, |_, _| 1.0);
    let scale = 1.0 / 3f32.sqrt();
    let ours = attend(&made[0], &made[1], &made[2], &mask, scale, FullyMasked::Zeros)?;
    page.show("weights for the figure's inputs and our random W", &ours.weights.at(0), 4);
    let worst = ours.from_reference;
    page.property(
        "the six steps in f64 give the kernel's weights and context, X [3, 4], W [4, 3], Z [3, 3]",
        worst < 1e-6,
        format!("largest difference {worst:.1e}, by attention() and reference::attention()"),
    );
    Ok(())
}

fn padding(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "Padding",
        "Four titles of 2, 5, 3 and 5 words, padded to 5",
        "1 marks padding, and becomes minus infinity.",
    );
    let titles = [
        "Thinking Machines",
        "A Tale of Two Cities",
        "Science and Art",
        "the Art of Motorcycle Maintenance",
    ];
    let lengths: Vec<usize> = titles.iter().map(|title| title.split(' ').count()).collect();
    page.compare_text(
        "words",
        "2 5 3 5",
        &lengths.iter().map(usize::to_string).collect::<Vec<_>>().join(" "),
        "split(' ')",
    );
    let printed = Tensor::new(
        &[4, 5],
        vec![0., 0., 1., 1., 1., 0., 0., 0., 0., 0., 0., 0., 0., 1., 1., 0., 0., 0., 0., 0.],
    );
    let ours = Tensor::from_fn(4, 5, |i, j| f32::from(u8::from(j >= lengths[i])));
    page.compare("padding mask", Printed::exact(&printed, 0), &ours.into(), "lengths");
    let minus = printed.map(|m| if m == 0.0 { 0.0 } else { f32::NEG_INFINITY });
    let ours = Tensor::from_fn(4, 5, |i, j| if j >= lengths[i] { f32::NEG_INFINITY } else { 0.0 });
    page.compare("what is added to scores", Printed::exact(&minus, 0), &ours.into(), "lengths");
    let expected =
        Tensor::from_fn(4, 5, |i, j| if j < lengths[i] { 1.0 / lengths[i] as f32 } else { 0.0 });
    let by_length =
        softmax_rows(&Tensor::from_fn(4, 5, |_, _| 0.0), Some(&lengths), FullyMasked::Zeros)?;
    let by_minus = softmax_rows(&minus, None, FullyMasked::Zeros)?;
    page.property(
        "e^0 = 1 and e^-inf = 0: scores of 0 share the weight among the words, and padding gets exactly 0",
        by_length == expected && by_minus == expected,
        format!("first title {:?}, by lengths and by minus infinity", by_length.row(0)),
    );
    Ok(())
}

fn add_and_norm(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "Encoder",
        "The encoder in eight lines: X = X + attention, LayerNorm; X = X + Linear(ReLU(Linear(X))), LayerNorm",
        "The slide writes the feed-forward block before the line that adds its result; the order of the paper is meant.",
    );
    let x = Tensor::new(&[1, 4], vec![1.0, 2.0, 3.0, 6.0]);
    let expected = {
        let (mean, square) = (3.0f64, 14.0f64 / 4.0);
        Tensor::from_fn(1, 4, |_, j| ((f64::from(x.get(0, j)) - mean) / square.sqrt()) as f32)
    };
    page.compare(
        "LayerNorm of 1 2 3 6 (document: its formula, mean 3, variance 3.5)",
        Printed::exact(&expected, 4),
        &normalized(&x)?.into(),
        "layer_norm()",
    );
    page.say("A whole model, block by block: `cargo run --release --example navigate`.");
    Ok(())
}

const WORDS: [&str; 6] = ["a", "am", "I", "thanks", "student", "<eos>"];

fn training(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "Linear and softmax",
        "The index of the largest cell is the word: 5 is \"am\" in the figure",
        "",
    );
    page.not_recomputable(
        "log_probs and logits of the figure",
        "they are drawn as colours, without numbers",
    );

    page.section(
        "Training",
        "Six words; \"je suis etudiant\" must become \"i am a student <eos>\"",
        "Targets are one-hot rows. The figure of the trained model's outputs shows bars without numbers.",
    );
    let wanted = ["I", "am", "a", "student", "<eos>"];
    let id = |word: &str| WORDS.iter().position(|w| *w == word);
    let ids: Vec<usize> = wanted.iter().filter_map(|word| id(word)).collect();
    page.compare_text(
        "word and index",
        "a 0, am 1, I 2, thanks 3, student 4, <eos> 5",
        &{
            let pairs: Vec<String> =
                WORDS.iter().enumerate().map(|(i, w)| format!("{w} {i}")).collect();
            pairs.join(", ")
        },
        "the vocabulary",
    );
    let targets = Tensor::from_fn(ids.len(), 6, |i, j| f32::from(u8::from(ids[i] == j)));
    page.show("target rows: I, am, a, student, <eos>", &targets, 0);
    page.property(
        "each target row has one 1, at the index of its word",
        ids == [2, 1, 0, 4, 5],
        format!(
            "{ids:?}; `cargo run --release --example navigate -- --training` trains on these words"
        ),
    );
    page.not_recomputable("trained model outputs", "the figure prints no numbers");
    Ok(())
}

/// Probabilities of A, B, C and <eos> at four steps, as the slide prints them: a row for each step.
fn table() -> Tensor {
    Tensor::new(
        &[4, 4],
        vec![0.5, 0.2, 0.2, 0.1, 0.1, 0.4, 0.3, 0.2, 0.2, 0.2, 0.4, 0.2, 0.0, 0.2, 0.2, 0.6],
    )
}

const LETTERS: [&str; 4] = ["A", "B", "C", "<eos>"];

/// The hypotheses of a search over the table, best first, and their scores.
fn search(strategy: Strategy, sequences: usize) -> Result<Vec<(String, f32)>, Failure> {
    let table = table();
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
        eos: vec![3],
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
    let text = |tokens: &[u32]| -> String {
        tokens.iter().map(|&t| LETTERS[t as usize]).collect::<Vec<_>>().join(" ")
    };
    Ok(search.hypotheses(sentence).map(|h| (text(h.tokens), h.score)).collect())
}

fn decoding(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "Decoding",
        "Greedy and beam search on a table of A, B, C and <eos> at four steps",
        "The table gives the same probabilities after every history. Of the sequences of four tokens greedy search then finds\n\
         the most probable one. Shorter sequences multiply fewer probabilities: <eos> alone has 0.1. Scores divided by the\n\
         length, the default of beam search, compare sequences of different lengths.",
    );
    page.show("the table, a row for each step: A B C <eos>", &table(), 1);
    let greedy = search(Strategy::Greedy, 1)?;
    page.compare_text(
        "greedy: the largest of each step",
        "A B C <eos>",
        &greedy[0].0,
        "Search, Strategy::Greedy",
    );
    let expected = Tensor::new(&[1, 1], vec![0.5 * 0.4 * 0.4 * 0.6]);
    let probability = Tensor::new(&[1, 1], vec![greedy[0].1.exp()]);
    page.compare(
        "its probability 0.5 x 0.4 x 0.4 x 0.6",
        Printed::exact(&expected, 4),
        &softmax_error(probability, 1e-6),
        "Search, the exponential of the score",
    );
    let found = search(Strategy::Beam(BeamOptions { beams: 2, ..BeamOptions::default() }), 2)?;
    for (text, score) in &found {
        page.say(format!("  beam search, 2 beams: {text:<12} score {score:.4}"));
    }
    let all = every_sequence();
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
    let counts = frequencies(SampleOptions::default(), 10_000)?;
    page.show("frequencies of A B C <eos>", &counts, 4);
    let worst = (0..4).map(|j| (counts.get(0, j) - table().get(0, j)).abs()).fold(0.0, f32::max);
    page.property(
        "the frequencies are those of the table within three standard deviations",
        worst < 3.0 * (0.25f32 / 10_000.0).sqrt(),
        format!("largest difference {worst:.4}, three standard deviations of 0.5 are 0.015"),
    );
    Ok(())
}

/// All sequences that end with `<eos>` or have four tokens: text, probability, and the logarithm of the probability
/// divided by the length, best first.
fn every_sequence() -> Vec<(String, f64, f64)> {
    let table = table();
    let (mut ended, mut open) = (Vec::new(), vec![(Vec::new(), 1.0f64)]);
    for step in 0..4 {
        let longer: Vec<(Vec<usize>, f64)> = open
            .iter()
            .flat_map(|(tokens, p)| {
                let table = &table;
                (0..4).map(move |token| {
                    let tokens: Vec<usize> = tokens.iter().copied().chain([token]).collect();
                    (tokens, p * f64::from(table.get(step, token)))
                })
            })
            .collect();
        let (done, rest): (Vec<_>, Vec<_>) =
            longer.into_iter().partition(|(tokens, _)| step == 3 || tokens.last() == Some(&3));
        ended.extend(done);
        open = rest;
    }
    let mut all: Vec<(String, f64, f64)> = ended
        .into_iter()
        .map(|(tokens, p)| {
            let words: Vec<&str> = tokens.iter().map(|&token| LETTERS[token]).collect();
            (words.join(" "), p, p.ln() / tokens.len() as f64)
        })
        .collect();
    all.sort_by(|a, b| b.2.total_cmp(&a.2));
    all
}

/// How often each token of the first step of the table is sampled.
fn frequencies(sample: SampleOptions, count: usize) -> Result<Tensor, Failure> {
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
        eos: vec![3],
        max_new_tokens: Some(1),
        ..SearchOptions::default()
    };
    let mut memory = vec![0; words(&limits)?];
    let mut search = Search::new(&options, &limits, &mut memory)?;
    let row: Vec<f32> = table().row(0).iter().map(|p| p.ln()).collect();
    let mut counts = vec![0.0f32; 4];
    for stream in 0..count as u64 {
        let sentence = search.admit(&Request { stream, ..Request::default() })?;
        search.advance(&mut row.clone(), &mut Hooks::default(), None)?;
        let token = search.hypotheses(sentence).next().and_then(|h| h.tokens.first().copied());
        counts[token.ok_or("a sample without a token")? as usize] += 1.0 / count as f32;
        search.release(sentence)?;
    }
    Ok(Tensor::new(&[1, 4], counts))
}

/// A processor applied to scores, with a history.
fn processed(
    processor: &mut dyn LogitsProcessor,
    scores: &Tensor,
    history: &[u32],
) -> Result<Tensor, Failure> {
    let mut out = scores.clone();
    let mut scratch = vec![0; scratch_words(scores.columns(), 5)];
    let context = Context { history, ..context() };
    processor.process(&context, &mut out.data, &mut scratch)?;
    Ok(out)
}

fn context() -> Context<'static> {
    Context { history: &[], source: &[], prompt_len: 1, sentence: 0, max_length: 5 }
}

fn filters(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "Temperature",
        "P = exp(u / t) / sum exp(u / t), t in [0, 1)",
        "t = 0 divides by 0: simdformer refuses it, and greedy search is its limit. Above 1 is allowed and flattens.",
    );
    let logits = table().map(f32::ln).at(0).reshaped(&[1, 4]);
    for t in [1.0, 0.5, 0.1] {
        let formula = {
            let powers: Vec<f64> =
                table().row(0).iter().map(|&p| f64::from(p).powf(1.0 / t)).collect();
            let sum: f64 = powers.iter().sum();
            Tensor::new(&[1, 4], powers.iter().map(|p| (p / sum) as f32).collect())
        };
        let scores = processed(&mut Temperature { temperature: t as f32 }, &logits, &[])?;
        let ours = softmax_rows(&scores, None, FullyMasked::Zeros)?;
        page.compare(
            &format!("A B C <eos> at t = {t} (document: its formula)"),
            Printed::exact(&formula, 4),
            &softmax_error(ours, 1e-5),
            "Temperature, softmax()",
        );
    }

    page.section(
        "Top-k and top-p",
        "Sort, keep the k best or the smallest set of mass p, draw from the rest",
        "",
    );
    let kept = |scores: &Tensor| -> String {
        let left = LETTERS.iter().zip(&scores.data).filter(|(_, s)| s.is_finite());
        left.map(|(l, _)| *l).collect::<Vec<_>>().join(" ")
    };
    let second = Tensor::new(&[1, 4], table().row(1).iter().map(|p| p.ln()).collect());
    page.compare_text(
        "top-k with k = 2 at step 2 (0.1 0.4 0.3 0.2)",
        "B C",
        &kept(&processed(&mut TopK { k: 2, keep: 1 }, &second, &[])?),
        "TopK",
    );
    page.compare_text(
        "top-p with p = 0.7 at step 2: 0.4 + 0.3",
        "B C",
        &kept(&processed(&mut TopP { p: 0.699, keep: 1 }, &second, &[])?),
        "TopP",
    );
    page.compare_text(
        "mixed: top-k 3, then top-p 0.5",
        "B C",
        &kept(&processed(
            &mut TopP { p: 0.5, keep: 1 },
            &processed(&mut TopK { k: 3, keep: 1 }, &second, &[])?,
            &[],
        )?),
        "TopK, TopP",
    );

    page.section(
        "CTRL",
        "p_i = exp(x_i / (T I(i in g))) / sum, I = theta for tokens already generated",
        "For positive scores this is a division by theta. A negative score divided by theta > 1 would grow: transformers and\n\
         simdformer multiply it instead, so a penalty never rewards.",
    );
    let scores = Tensor::new(&[1, 4], vec![2.0, 1.0, 0.5, -1.0]);
    let theta = 1.2f64;
    let formula = Tensor::new(&[1, 4], vec![(2.0 / theta) as f32, 1.0, (0.5 / theta) as f32, -1.0]);
    let ours = processed(&mut RepetitionPenalty { penalty: theta as f32 }, &scores, &[0, 2])?;
    page.compare(
        "scores 2 1 0.5 -1, of which the first and third were generated, theta = 1.2 (document: its formula)",
        Printed::exact(&formula, 4),
        &ours.into(),
        "RepetitionPenalty",
    );
    Ok(())
}
