//! Document 004: a walkthrough of a small model that prints every tensor: d_model 6, 3 heads, two pairs of sentences.

use crate::Failure;
use crate::compute::{attend, normalized, not_linear, product, rounded_product, softmax_error};
use crate::page::{Page, Printed};
use crate::tensor::Tensor;
use serde_json::Value;
use simdformer::kernels::softmax::FullyMasked;
use simdformer::kernels::topk::argmax;
use simdformer::kernels::{Isa, Matrix, Parallelism};

const DECIMALS: usize = 4;
/// Half of the last printed digit.
const ROUNDING: f64 = 0.5e-4;
const HEADS: usize = 3;
const HEAD_DIM: usize = 2;
const D_MODEL: usize = HEADS * HEAD_DIM;
/// The document printed its tensors in training mode: dropout with this probability is in them.
const DROPOUT: f32 = 0.1;

/// The document's numbers.
struct Data(Value);

impl Data {
    fn tensor(&self, name: &str) -> Result<Tensor, Failure> {
        Tensor::read(&self.0[name]).map_err(|error| format!("{name}: {error}").into())
    }

    fn words(&self, name: &str) -> Vec<Vec<String>> {
        let list = |value: &Value| -> Vec<String> {
            let words = value.as_array().into_iter().flatten();
            words.filter_map(|word| word.as_str().map(str::to_owned)).collect()
        };
        match &self.0[name] {
            Value::Array(rows) if rows.first().is_some_and(Value::is_array) => {
                rows.iter().map(list).collect()
            }
            other => vec![list(other)],
        }
    }
}

pub(crate) fn page() -> Result<Page, Failure> {
    let data = Data(serde_json::from_str(include_str!("data/walkthrough.json"))?);
    let mut page = Page::new(
        "Document 004: every tensor of a small model",
        "The model has d_model 6, 3 heads of 2 columns, one layer in each stack, and norms before each block (pre-norm). Its\n\
         weights are random and not printed. What follows from printed tensors is computed from them: scores, weights,\n\
         contexts, probabilities, words. The rest are linear maps of printed tensors: the page checks that such a map exists,\n\
         by projecting the printed result on the printed input (10 rows, at most 7 unknowns for each column).",
    );
    page.say(
        "Allowed differences: half of the last printed digit, and what the rounding of the printed inputs can change.\n\
         Known contradictions: the document's LayerNorm divides by n - 1 where the paper and simdformer divide by n; the\n\
         paper's norms come after each block.",
    );
    batch(&mut page, &data)?;

    page.section("2-1", "Source embedding plus positions", "");
    page.not_recomputable("src_embed [2, 3, 6]", "the embedding table is random and not printed");
    page.show(
        "src_embed, printed: 2 sentences of 3 tokens",
        &data.tensor("source_embedding")?.reshaped(&[6, 6]),
        DECIMALS,
    );

    page.section("2-2", "The encoder's self-attention", "");
    attention(&mut page, &data, "encoder_self_attention", None)?;
    let encoder = merged(&data, "encoder_self_attention")?;
    residual(
        &mut page,
        "Merge, take a linear map and add to the src_embed",
        &encoder,
        &data.tensor("source_embedding")?,
        &data.tensor("encoder_residual")?,
    );

    page.section("2-3", "X = X + FF(X), then the norm of the stack", "");
    feed_forward(&mut page, &data.tensor("encoder_feed_forward")?)?;

    page.section("3-1", "Target embedding plus positions", "");
    page.not_recomputable("tgt_embed [2, 5, 6]", "the embedding table is random and not printed");
    let target = data.tensor("target_embedding")?;
    page.property(
        "both sentences begin with <s>: their first rows are equal",
        target.at(0).row(0) == target.at(1).row(0),
        format!("{:?}", target.at(0).row(0)),
    );

    page.section("3-2", "The encoder's output (memory)", "");
    page.compare(
        "memory is the output of 2-3",
        Printed::exact(&data.tensor("memory")?.reshaped(&[6, D_MODEL]), DECIMALS),
        &data.tensor("encoder_feed_forward")?.into(),
        "section 2-3",
    );

    page.section("3-3", "The decoder's masked self-attention", "");
    attention(&mut page, &data, "decoder_self_attention", Some(&target))?;
    let own = merged(&data, "decoder_self_attention")?;
    let own_residual = data.tensor("decoder_residual")?;
    residual(
        &mut page,
        "Merge, take a linear map and add to the tgt_embed",
        &own,
        &target,
        &own_residual,
    );

    page.section(
        "3-4",
        "Cross-attention: queries from the decoder, keys and values from memory",
        "",
    );
    attention(&mut page, &data, "cross_attention", Some(&own_residual))?;
    let cross = merged(&data, "cross_attention")?;
    residual(
        &mut page,
        "Merge, take a linear map and add to the tgt_embed_attn",
        &cross,
        &own_residual,
        &data.tensor("cross_residual")?,
    );

    page.section("3-5", "X = X + FF(X), then the norm of the stack", "");
    feed_forward(&mut page, &data.tensor("decoder_feed_forward")?)?;
    page.compare(
        "out is the output of 3-5",
        Printed::exact(&data.tensor("output")?.reshaped(&[10, D_MODEL]), DECIMALS),
        &data.tensor("decoder_feed_forward")?.into(),
        "section 3-5",
    );

    prediction(&mut page, &data)?;
    Ok(page)
}

fn ids(words: &[Vec<String>], vocabulary: &[String]) -> Tensor {
    let rows = words.len();
    let id = |word: &String| {
        vocabulary.iter().position(|known| known == word).unwrap_or(usize::MAX) as f32
    };
    let data: Vec<f32> = words.iter().flatten().map(id).collect();
    let columns = data.len() / rows;
    Tensor::new(&[rows, columns], data)
}

fn batch(page: &mut Page, data: &Data) -> Result<(), Failure> {
    let (source, target) =
        (&data.words("source_vocabulary")[0], &data.words("target_vocabulary")[0]);
    page.section("0", "Vocabulary", "");
    page.say(format!("source: {}\ntarget: {}", source.join(" "), target.join(" ")));

    page.section(
        "1-1",
        "and 1-2: the batch as text and as numbers",
        "An id is the index of the word.",
    );
    for (name, text, numbers, vocabulary) in [
        ("source batch", "source_text", "source_ids", source),
        ("target batch", "target_text", "target_ids", target),
    ] {
        let words = data.words(text);
        for sentence in &words {
            page.say(format!("  {}", sentence.join(" ")));
        }
        let ours = ids(&words, vocabulary);
        page.compare(
            name,
            Printed::exact(&data.tensor(numbers)?, 0),
            &ours.into(),
            "the vocabulary",
        );
    }
    // Teacher forcing: the decoder reads the target, and the true output is the target one step later.
    let (fed, wanted) = (data.words("target_text"), data.words("true_output"));
    let shifted = |i: usize| wanted[i][..3] == fed[i][1..4];
    page.property(
        "the true output is the target batch, one token earlier",
        shifted(0) && shifted(1),
        format!("{} / {}", wanted[0].join(" "), wanted[1].join(" ")),
    );

    page.section(
        "1-3",
        "Masks from ids",
        "The source's <blank> is hidden; the target's <blank> is hidden, and each position sees itself and earlier ones.",
    );
    let blank = |vocabulary: &[String]| {
        vocabulary.iter().position(|w| w == "<blank>").unwrap_or(usize::MAX) as f32
    };
    let source_ids = data.tensor("source_ids")?;
    let source_mask = source_ids.map(|id| f32::from(u8::from(id != blank(source))));
    page.compare(
        "source mask",
        Printed::exact(&data.tensor("source_mask")?.reshaped(&[2, 3]), 0),
        &source_mask.into(),
        "ids that are not <blank>",
    );
    let target_ids = data.tensor("target_ids")?;
    for sentence in 0..2 {
        let row = target_ids.row(sentence);
        let mask =
            Tensor::from_fn(5, 5, |i, j| f32::from(u8::from(j <= i && row[j] != blank(target))));
        page.compare(
            &format!("target mask, sentence {}", sentence + 1),
            Printed::exact(&data.tensor("target_mask")?.at(sentence), 0),
            &mask.into(),
            "causal, and ids that are not <blank>",
        );
    }
    Ok(())
}

/// One kind of attention of both sentences: scores, weights and context of each head from the printed query, key, value
/// and mask. `input` is the printed tensor whose norm the query is made of, if it has enough rows to say something.
fn attention(
    page: &mut Page,
    data: &Data,
    name: &str,
    input: Option<&Tensor>,
) -> Result<(), Failure> {
    let block = Data(data.0[name].clone());
    let scale = 1.0 / (HEAD_DIM as f32).sqrt();
    let query = block.tensor("query")?;
    match input {
        Some(input) => linear_of_norm(page, "Q", input, &query)?,
        None => page.not_recomputable(
            "Q, K and V from src_embed",
            "the weights are not printed, and 6 rows are as many as a column of weights has unknowns: any numbers fit",
        ),
    }
    // In self-attention of the decoder, key and value are maps of the same input.
    if name == "decoder_self_attention" {
        for (letter, part) in [("K", "key"), ("V", "value")] {
            linear_of_norm(page, letter, input.unwrap_or(&query), &block.tensor(part)?)?;
        }
    } else if name == "cross_attention" {
        page.not_recomputable(
            "K and V from memory",
            "the weights are not printed, and 6 rows are as many as a column of weights has unknowns: any numbers fit",
        );
    }
    page.say(
        "\nFor each sentence and head: Q K^T / sqrt(2) (the document's heading omits the scale), its softmax under the mask,\n\
         and the context. The context was printed with dropout 0.1 on the weights: weights that were kept are divided by 0.9.",
    );
    for sentence in 0..2 {
        let part = |what: &str| -> Result<Tensor, Failure> { Ok(block.tensor(what)?.at(sentence)) };
        let (q, k, v) = (part("query")?, part("key")?, part("value")?);
        let (scores, weights, context) = (part("scores")?, part("weights")?, part("context")?);
        let keep = part("dropout_keep")?;
        // One row of the mask serves all queries.
        let mask = part("mask")?.at(0);
        let (queries, keys) = (q.shape[1], k.shape[1]);
        let mask = Tensor::from_fn(queries, keys, |i, j| mask.get(i.min(mask.rows() - 1), j));
        // The mask of 1-3: of the target in the decoder's self-attention, else of the source.
        let of = if name == "decoder_self_attention" { "target_mask" } else { "source_mask" };
        let again = data.tensor(of)?.at(sentence);
        let again = Tensor::from_fn(queries, keys, |i, j| again.get(i.min(again.rows() - 1), j));
        page.compare(
            &format!("mask, sentence {}", sentence + 1),
            Printed::exact(&mask, 0),
            &again.into(),
            "section 1-3",
        );
        let ours = attend(&q, &k, &v, &mask, scale, FullyMasked::Zeros)?;
        page.property(
            &format!("the kernel's weights and contexts are those of the readable reference, sentence {}", sentence + 1),
            ours.from_reference < 1e-6,
            format!("largest difference {:.1e}, by attention() and reference::attention()", ours.from_reference),
        );
        for head in 0..HEADS {
            let title =
                |what: &str| format!("{what}, sentence {}, head {}", sentence + 1, head + 1);
            let computed =
                rounded_product(&q.at(head), &k.at(head).transposed(), scale, [ROUNDING; 2])?;
            let score_error = computed.error.iter().copied().fold(0.0, f64::max);
            page.compare(
                &title("Q K^T"),
                Printed::rounded(&scores.at(head), DECIMALS),
                &computed,
                "gemm_unpacked(Q, K^T), scale 1/sqrt(2)",
            );
            let ours_weights = ours.weights.at(head);
            page.compare(
                &title("softmax(Q K^T) with masking"),
                Printed::rounded(&weights.at(head), DECIMALS),
                &softmax_error(ours_weights.clone(), score_error),
                "attention()",
            );
            // What dropout left of our weights, times V.
            let kept = Tensor::from_fn(queries, keys, |i, j| {
                ours_weights.get(i, j) * keep.at(head).get(i, j) / (1.0 - DROPOUT)
            });
            let weight_error = 2.0 * score_error / f64::from(1.0 - DROPOUT);
            page.compare(
                &title("softmax(Q K^T) V"),
                Printed::rounded(&context.at(head), DECIMALS),
                &rounded_product(&kept, &v.at(head), 1.0, [weight_error, ROUNDING])?,
                "gemm_unpacked(weights, V)",
            );
        }
    }
    Ok(())
}

/// Rows as f64.
fn rows(x: &Tensor) -> Vec<Vec<f64>> {
    (0..x.rows()).map(|i| x.row(i).iter().map(|&x| f64::from(x)).collect()).collect()
}

/// `[sentences, heads, tokens, d]` as `[sentences * tokens, heads * d]`.
fn joined(x: &Tensor) -> Tensor {
    let sentences = x.shape[0];
    let tokens = x.shape[2];
    let data = (0..sentences).flat_map(|s| x.at(s).heads_swapped().data).collect();
    Tensor::new(&[sentences * tokens, D_MODEL], data)
}

/// The printed contexts of all heads, side by side.
fn merged(data: &Data, name: &str) -> Result<Tensor, Failure> {
    Ok(joined(&Data(data.0[name].clone()).tensor("context")?))
}

/// Checks that the columns of `made`, split into heads, are linear maps of the normalized rows of `input`, and that they
/// are none of the rows themselves.
fn linear_of_norm(
    page: &mut Page,
    letter: &str,
    input: &Tensor,
    made: &Tensor,
) -> Result<(), Failure> {
    let made = joined(made);
    let input = input.reshaped(&[made.rows(), D_MODEL]);
    let norm = rows(&normalized(&input)?);
    let column =
        |c: usize| (0..made.rows()).map(|i| f64::from(made.get(i, c))).collect::<Vec<f64>>();
    let rest = |x: &[Vec<f64>]| (0..D_MODEL).map(|c| not_linear(x, &column(c))).fold(0.0, f64::max);
    let (with, without) = (rest(&norm), rest(&rows(&input)));
    page.property(
        &format!("{letter} is a linear map of LayerNorm of the input (pre-norm)"),
        // The rounding of 4 digits, in both.
        with < 3e-4 && without > 100.0 * with,
        format!(
            "after projection {with:.1e} is left; without LayerNorm {without:.1e}; by layer_norm()"
        ),
    );
    Ok(())
}

/// Checks `after = before + dropout(linear(context))`. Columns that dropout removed are equal before and after; of the
/// others, the difference must be a linear map of the context.
fn residual(page: &mut Page, name: &str, context: &Tensor, before: &Tensor, after: &Tensor) {
    let count = context.rows();
    let (before, after) = (before.reshaped(&[count, D_MODEL]), after.reshaped(&[count, D_MODEL]));
    page.show(&format!("{name}, printed"), &after, DECIMALS);
    let (mut worst, mut checked, mut dropped): (f64, usize, usize) = (0.0, 0, 0);
    for c in 0..D_MODEL {
        let kept: Vec<usize> =
            (0..count).filter(|&i| before.get(i, c) != after.get(i, c)).collect();
        dropped += count - kept.len();
        // 6 weights and a bias: with 7 rows any numbers fit.
        if kept.len() > D_MODEL + 1 {
            let x: Vec<Vec<f64>> = kept.iter().map(|&i| rows(context)[i].clone()).collect();
            let y: Vec<f64> = kept
                .iter()
                .map(|&i| f64::from(after.get(i, c)) - f64::from(before.get(i, c)))
                .collect();
            worst = worst.max(not_linear(&x, &y));
            checked += 1;
        }
    }
    if checked == 0 {
        page.not_recomputable(
            name,
            "the weights of W_O are not printed, and 6 rows are fewer than the 7 unknowns of a column: any numbers fit",
        );
        return;
    }
    page.property(
        name,
        worst < 3e-4,
        format!(
            "{dropped} of {} elements were dropped and are equal before and after; of the others, {checked} columns have\n    \
             more rows than unknowns: after projection {worst:.1e} is left",
            count * D_MODEL
        ),
    );
}

/// The feed-forward block cannot be recomputed. The norm after it can be checked: the document's divides by `n - 1`.
fn feed_forward(page: &mut Page, printed: &Tensor) -> Result<(), Failure> {
    let count = printed.data.len() / D_MODEL;
    let printed = printed.reshaped(&[count, D_MODEL]);
    page.not_recomputable("X + FF(X)", "neither weights nor the hidden layer are printed");
    // A normalized row is its own normalized row, up to the divisor: sqrt((n - 1) / n) of ours.
    let ours = normalized(&printed)?;
    let factor = ((D_MODEL - 1) as f32 / D_MODEL as f32).sqrt();
    let numbers = ours.map(|x| x * factor);
    let error = numbers.data.iter().map(|x| ROUNDING * (2.0 + f64::from(x.abs())) + 1e-6).collect();
    page.compare(
        "the norm of the printed rows, times sqrt(5/6) for the divisor n - 1, is the printed rows",
        Printed::rounded(&printed, DECIMALS),
        &crate::page::Computed { numbers, error },
        "layer_norm()",
    );
    Ok(())
}

fn prediction(page: &mut Page, data: &Data) -> Result<(), Failure> {
    page.section("4-1", "Probabilities: linear map and softmax over 9 words", "");
    let printed = data.tensor("probabilities")?.reshaped(&[10, 9]);
    let output = rows(&data.tensor("output")?.reshaped(&[10, D_MODEL]));
    page.show("printed probabilities, a row for each token", &printed, DECIMALS);
    // The logarithm of a ratio of two probabilities is a linear map of the output.
    let mut worst: f64 = 0.0;
    for word in 1..9 {
        let ratio =
            |i: usize| f64::from(printed.get(i, word)).ln() - f64::from(printed.get(i, 0)).ln();
        let y: Vec<f64> = (0..10).map(ratio).collect();
        worst = worst.max(not_linear(&output, &y));
    }
    page.property(
        "the logits are a linear map of out",
        // The smallest probability, 0.0103, is off by half a percent.
        worst < 1e-2,
        format!("after projection of the logarithms {worst:.1e} is left; the rounding of 0.0103 alone is 4.9e-3"),
    );
    let sums = product(&printed, &Tensor::new(&[9, 1], vec![1.0; 9]), 1.0)?;
    let worst = sums.data.iter().map(|sum| (sum - 1.0).abs()).fold(0.0, f32::max);
    page.property(
        "each row adds up to 1",
        f64::from(worst) < 9.0 * ROUNDING,
        format!("largest deviation {worst:.1e}"),
    );

    page.section("4-2", "The best word of each row", "");
    let mut best = vec![0u32; 10];
    argmax(Isa::best(), Matrix::new(&printed.data, 10, 9)?, &mut best, Parallelism::Serial)?;
    let ours = Tensor::new(&[2, 5], best.iter().map(|&id| id as f32).collect());
    page.compare(
        "argmax",
        Printed::exact(&data.tensor("argmax")?, 0),
        &ours.into(),
        "topk::argmax()",
    );
    let vocabulary = &data.words("target_vocabulary")[0];
    let predicted = data.words("predicted");
    for (sentence, best) in best.chunks(5).enumerate() {
        let words: Vec<&str> = best.iter().map(|&id| vocabulary[id as usize].as_str()).collect();
        page.compare_text(
            &format!("predicted sentence {}", sentence + 1),
            &predicted[sentence].join(" "),
            &words.join(" "),
            "the vocabulary",
        );
    }

    page.section("4-3", "Beside the true output", "The model is not trained: no word is right.");
    let wanted = data.words("true_output");
    let right =
        predicted.iter().flatten().zip(wanted.iter().flatten()).filter(|(p, w)| p == w).count();
    for (predicted, wanted) in predicted.iter().zip(&wanted) {
        page.say(format!("  predicted {:<40} true {}", predicted.join(" "), wanted.join(" ")));
    }
    page.say(format!(
        "\n{right} of 10 words are right. `cargo run --release --example navigate` follows a model of this size that was \
         trained\non these sentences."
    ));
    Ok(())
}
