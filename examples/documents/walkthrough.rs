//! Document 004: a walkthrough of a small model that prints every tensor: d_model 6, 3 heads, two pairs of sentences.

use crate::Failure;
use crate::compute::{
    Lengths, Unexplained, attend, least_norm, normalized, not_linear, position_table, product,
    rounded_product, softmax_error,
};
use crate::dropout::{Dropout, PROBABILITY as DROPOUT};
use crate::page::{Computed, Page, Printed};
use crate::tensor::{Tensor, number, words};
use serde_json::Value;
use simdformer::kernels::topk::argmax;
use simdformer::kernels::{Exec, Isa, Matrix};

const DECIMALS: usize = 4;
/// Half of the last printed digit.
const ROUNDING: f64 = 0.5e-4;
const HEADS: usize = 3;
const HEAD_DIM: usize = 2;
const D_MODEL: usize = HEADS * HEAD_DIM;

fn tensor(data: &Value, name: &str) -> Result<Tensor, Failure> {
    Tensor::of(data, name)
}

pub(crate) fn page(data: &Value) -> Result<Page, Failure> {
    let mut page = Page::new(
        "Document 004: every tensor of a small model",
        "The model has d_model 6, 3 heads of 2 columns, one layer in each stack, and norms before each block (pre-norm). Its\n\
         weights are random and not printed. What follows from printed tensors is computed from them: scores, weights,\n\
         contexts, probabilities, words. The rest are linear maps of printed tensors: the page checks that such a map exists,\n\
         by projecting the printed result on the printed input (10 rows, at most 7 unknowns for each column). What is left\n\
         must be explained by the rounding: its sum of squares is at most four standard deviations above the expected\n\
         one, which is the variance of a rounded number, 0.0001^2 / 12, for each row beyond the unknowns. From 32 numbers of the embedding and 32 of\n\
         the merge of the encoder nothing follows; they are shown, and a control sum says that they were not changed.",
    );
    page.say(
        "Allowed differences: half of the last printed digit, and what the rounding of the printed inputs can change. A `*`\n\
         marks numbers of ours that are printed with another last digit.\n\
         Known contradictions: the document's LayerNorm divides by n - 1 where the paper and simdformer divide by n; the\n\
         paper's norms come after each block.",
    );
    batch(&mut page, data)?;

    page.section("2-1", "Source embedding plus positions", "");
    let source = tensor(data, "source_embedding")?;
    page.shown(
        "src_embed: 2 sentences of 3 tokens",
        &source.reshaped(&[6, D_MODEL]),
        DECIMALS,
        2_830_324,
        "the embedding table is random and not printed",
    );
    let vocabulary_size = |name: &str| words(data, name)[0].len();
    embedding_range(&mut page, &source, "source", vocabulary_size("source_vocabulary"))?;

    page.section("2-2", "The encoder's self-attention", "");
    attention(&mut page, data, "encoder_self_attention", None)?;
    let encoder = merged(data, "encoder_self_attention")?;
    let residual_name = "Merge, take a linear map and add to the src_embed";
    let after = tensor(data, "encoder_residual")?;
    residual(&mut page, residual_name, &encoder, &source, &after);
    page.shown(
        "the 36 numbers of the merge",
        &after.reshaped(&[6, D_MODEL]),
        DECIMALS,
        4_670_490,
        "the weights of W_O are not printed, and 6 rows are fewer than the 7 unknowns of a column",
    );

    page.section("2-3", "X = X + FF(X), then the norm of the stack", "");
    feed_forward(&mut page, &tensor(data, "encoder_feed_forward")?)?;

    page.section("3-1", "Target embedding plus positions", "");
    let target = tensor(data, "target_embedding")?;
    page.show(
        "tgt_embed, printed: 2 sentences of 5 tokens",
        &target.reshaped(&[10, D_MODEL]),
        DECIMALS,
    );
    page.say("The embedding table is random and not printed. Q, K and V of 3-3 are linear maps of its norm.");
    embedding_range(&mut page, &target, "target", vocabulary_size("target_vocabulary"))?;
    page.property(
        "both sentences begin with <s>: their first rows are equal",
        target.at(0).row(0) == target.at(1).row(0),
        format!("{:?}", target.at(0).row(0)),
    );

    page.section("3-2", "The encoder's output (memory)", "");
    let memory = tensor(data, "memory")?;
    page.printed_twice(
        "memory is the output of 2-3",
        &memory,
        &tensor(data, "encoder_feed_forward")?,
    );

    page.section("3-3", "The decoder's masked self-attention", "");
    attention(&mut page, data, "decoder_self_attention", Some(&target))?;
    let own = merged(data, "decoder_self_attention")?;
    let own_residual = tensor(data, "decoder_residual")?;
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
    attention(&mut page, data, "cross_attention", Some(&own_residual))?;
    let cross = merged(data, "cross_attention")?;
    residual(
        &mut page,
        "Merge, take a linear map and add to the tgt_embed_attn",
        &cross,
        &own_residual,
        &tensor(data, "cross_residual")?,
    );

    page.section("3-5", "X = X + FF(X), then the norm of the stack", "");
    feed_forward(&mut page, &tensor(data, "decoder_feed_forward")?)?;
    let output = tensor(data, "output")?;
    page.printed_twice("out is the output of 3-5", &output, &tensor(data, "decoder_feed_forward")?);

    prediction(&mut page, data)?;
    Ok(page)
}

/// The ids of words, or what is not in the vocabulary.
fn ids(words: &[String], vocabulary: &[String]) -> String {
    let id = |word: &String| match vocabulary.iter().position(|known| known == word) {
        Some(id) => id.to_string(),
        None => format!("({word} is not in the vocabulary)"),
    };
    words.iter().map(id).collect::<Vec<_>>().join(" ")
}

/// Whole numbers as the page prints them.
fn row_text(row: &[f32]) -> String {
    row.iter().map(|&x| number(x, 0)).collect::<Vec<_>>().join(" ")
}

fn batch(page: &mut Page, data: &Value) -> Result<(), Failure> {
    let (source, target) =
        (&words(data, "source_vocabulary")[0], &words(data, "target_vocabulary")[0]);
    page.section("0", "Vocabulary", "");
    page.say(format!("source: {}\ntarget: {}", source.join(" "), target.join(" ")));

    page.section(
        "1-1",
        "and 1-2: the batch as text and as numbers",
        "An id is the index of the word.",
    );
    for (name, text, numbers, vocabulary) in [
        ("source", "source_text", "source_ids", source),
        ("target", "target_text", "target_ids", target),
    ] {
        let printed = tensor(data, numbers)?;
        for (i, sentence) in words(data, text).iter().enumerate() {
            page.compare_text(
                &format!("{name} batch, sentence {}: {}", i + 1, sentence.join(" ")),
                &row_text(printed.row(i)),
                &ids(sentence, vocabulary),
                "the vocabulary",
            );
        }
    }
    // Teacher forcing: the decoder reads the target, and the true output is the target one step later.
    for (i, (fed, wanted)) in
        words(data, "target_text").iter().zip(words(data, "true_output")).enumerate()
    {
        let ended = fed.iter().any(|word| word == "</s>");
        let last = if ended { "<blank>" } else { "</s>" };
        let later: Vec<&str> = fed[1..].iter().map(String::as_str).chain([last]).collect();
        page.compare_text(
            &format!(
                "true output, sentence {}: the target batch one token earlier, then the end",
                i + 1
            ),
            &wanted.join(" "),
            &later.join(" "),
            "the target batch",
        );
    }

    page.section(
        "1-3",
        "Masks from ids",
        "The source's <blank> is hidden; the target's <blank> is hidden, and each position sees itself and earlier ones.",
    );
    let masks =
        [source_lengths(data, 0, 1)?.mask()?.data, source_lengths(data, 1, 1)?.mask()?.data];
    page.compare(
        "source mask",
        Printed::exact(&tensor(data, "source_mask")?.reshaped(&[2, 3]), 0),
        &Tensor::new(&[2, 3], masks.concat()).into(),
        "attention(), lengths",
    );
    for sentence in 0..2 {
        page.compare(
            &format!("target mask, sentence {}", sentence + 1),
            Printed::exact(&tensor(data, "target_mask")?.at(sentence), 0),
            &target_lengths(data, sentence)?.mask()?.into(),
            "attention(), lengths and the causal flag",
        );
    }
    Ok(())
}

/// The number of ids, and of those before `<blank>`.
fn length(data: &Value, name: &str, sentence: usize) -> Result<[usize; 2], Failure> {
    let vocabulary = &words(data, &format!("{name}_vocabulary"))[0];
    let blank = vocabulary.iter().position(|w| w == "<blank>").ok_or("no <blank>")? as f32;
    let ids = tensor(data, &format!("{name}_ids"))?;
    let ids = ids.row(sentence);
    let length = ids.iter().rposition(|&id| id != blank).map_or(0, |last| last + 1);
    if ids[..length].contains(&blank) {
        return Err(format!("{name}_ids: expected <blank> at the end alone, found {ids:?}").into());
    }
    Ok([ids.len(), length])
}

/// Each of some queries sees the words of the source.
fn source_lengths(data: &Value, sentence: usize, queries: usize) -> Result<Lengths, Failure> {
    let [keys, key_len] = length(data, "source", sentence)?;
    Ok(Lengths { tokens: [queries, key_len], ..Lengths::of(queries, keys) })
}

/// The words of the target see themselves and earlier words, `<blank>` sees all words.
fn target_lengths(data: &Value, sentence: usize) -> Result<Lengths, Failure> {
    let [ids, length] = length(data, "target", sentence)?;
    Ok(Lengths { padded: [ids; 2], tokens: [length; 2], padding_sees: length, causal: true })
}

/// One kind of attention of both sentences: scores, weights and context of each head from the printed query, key, value
/// and mask. `input` is the printed tensor whose norm the query is made of, if it has enough rows to say something.
fn attention(
    page: &mut Page,
    data: &Value,
    name: &str,
    input: Option<&Tensor>,
) -> Result<(), Failure> {
    let block = &data[name];
    let scale = 1.0 / (HEAD_DIM as f32).sqrt();
    let query = tensor(block, "query")?;
    // In self-attention of the decoder, key and value are maps of the same input.
    let own = name == "decoder_self_attention";
    match input {
        Some(input) => {
            let (mut all, mut expected) = linear_of_norm(page, "Q", input, &query)?;
            if own {
                for (letter, part) in [("K", "key"), ("V", "value")] {
                    let (rest, rounding) =
                        linear_of_norm(page, letter, input, &tensor(block, part)?)?;
                    all.add(rest);
                    expected += rounding;
                }
                page.property(
                    "all 18 columns of Q, K and V together",
                    all.square < explained(expected, all.freedom),
                    format!(
                        "the sum of squares is {:.1e} in {} dimensions, of rounding {expected:.1e} is expected",
                        all.square, all.freedom
                    ),
                );
            }
        }
        None => page.not_recomputable(
            "Q, K and V from src_embed",
            "the weights are not printed, and 6 rows are as many as a column of weights has unknowns: any numbers fit",
        ),
    }
    if name == "cross_attention" {
        page.not_recomputable(
            "K and V from memory",
            "the weights are not printed, and 6 rows are as many as a column of weights has unknowns: any numbers fit",
        );
    }
    page.say(
        "\nFor each sentence and head: Q, K^T and their product divided by sqrt(2) (the document's heading omits the scale),\n\
         its softmax under the mask, V, and the context. The context was printed with dropout 0.1 on the weights: weights\n\
         that were kept are divided by 0.9. The document does not say which: of all subsets of the visible keys exactly one\n\
         gives the printed row. The context is that of the printed weights and the printed V.",
    );
    for sentence in 0..2 {
        let part =
            |what: &str| -> Result<Tensor, Failure> { Ok(tensor(block, what)?.at(sentence)) };
        let (q, k, v) = (part("query")?, part("key")?, part("value")?);
        // One row of the source's mask serves all queries; in the decoder's self-attention each query has its own.
        let (lengths, masks) = match name {
            "decoder_self_attention" => (target_lengths(data, sentence)?, "target_mask"),
            _ => (source_lengths(data, sentence, q.shape[1])?, "source_mask"),
        };
        page.printed_twice(
            &format!("the mask is that of 1-3, sentence {}", sentence + 1),
            &part("mask")?.at(0),
            &tensor(data, masks)?.at(sentence),
        );
        let (queries, keys) = (q.shape[1], k.shape[1]);
        let mask = lengths.mask()?;
        let ours = attend(&q, &k, &v, &lengths, scale)?;
        page.property(
            &format!("the kernel's weights and contexts are those of the readable reference, sentence {}", sentence + 1),
            ours.from_reference < 1e-6,
            format!("largest difference {:.1e}, by attention() and reference::attention()", ours.from_reference),
        );
        let unseen = (0..keys).filter(|&j| (0..queries).all(|i| mask.get(i, j) == 0.0));
        for head in 0..HEADS {
            let title =
                |what: &str| format!("{what}, sentence {}, head {}", sentence + 1, head + 1);
            let (q, k, v) = (q.at(head), k.at(head).transposed(), v.at(head));
            page.show(&title("Q"), &q, DECIMALS);
            page.show(&title("K^T"), &k, DECIMALS);
            let (a, b) = (q.get(0, 0) * k.get(0, 0), q.get(0, 1) * k.get(1, 0));
            page.say(format!(
                "    q1 . k1 = {:.4} x {:.4} + {:.4} x {:.4} = {:.4}; divided by sqrt(2): {:.4}",
                q.get(0, 0),
                k.get(0, 0),
                q.get(0, 1),
                k.get(1, 0),
                a + b,
                (a + b) * scale
            ));
            let computed = rounded_product(&q, &k, scale, [ROUNDING; 2])?;
            let score_error = computed.error.iter().copied().fold(0.0, f64::max);
            page.compare(
                &title("Q K^T"),
                Printed::rounded(&part("scores")?.at(head), DECIMALS),
                &computed,
                "gemm_unpacked(Q, K^T), scale 1/sqrt(2)",
            );
            let weights = part("weights")?.at(head);
            page.compare(
                &title("softmax(Q K^T) with masking"),
                Printed::rounded(&weights, DECIMALS),
                &softmax_error(ours.weights.at(head), score_error),
                "attention()",
            );
            page.show(&title("V"), &v, DECIMALS);
            let context = part("context")?.at(head);
            let dropout = Dropout { weights: &weights, value: &v, mask: &mask };
            let found = dropout.search(&context);
            let bit = |i: usize, j: usize| match (mask.get(i, j) != 0.0, found.kept[i][j]) {
                (false, _) => "-",
                (_, true) => "1",
                (_, false) => "0",
            };
            let line = |i: usize| (0..keys).map(|j| bit(i, j)).collect::<Vec<_>>().join(" ");
            let lines: Vec<String> = (0..queries).map(line).collect();
            page.property(
                &title("the weights that dropout kept"),
                found.solutions.iter().all(|&count| count == 1),
                format!(
                    "kept {} (1 kept, 0 dropped, - masked)\n    subsets that give the printed row: {:?}",
                    lines.join(", "), found.solutions
                ),
            );
            page.compare(
                &title("softmax(Q K^T) V"),
                Printed::rounded(&context, DECIMALS),
                &dropout.context(&found.kept)?,
                "gemm_unpacked(kept weights / 0.9, V)",
            );
        }
        let unseen: Vec<usize> = unseen.collect();
        if !own && !unseen.is_empty() {
            let rows = (0..HEADS).flat_map(|head| v.at(head).row(unseen[0]).to_vec()).collect();
            let control = if name == "cross_attention" { -53_586 } else { -21_252 };
            page.shown(
                &format!("V of <blank>, sentence {}, a row for each head", sentence + 1),
                &Tensor::new(&[HEADS, HEAD_DIM], rows),
                DECIMALS,
                control,
                "no query sees this key, so nothing follows from its value",
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
fn merged(data: &Value, name: &str) -> Result<Tensor, Failure> {
    Ok(joined(&tensor(&data[name], "context")?))
}

/// The variance of a number that was rounded to the last printed digit.
const VARIANCE: f64 = 4.0 * ROUNDING * ROUNDING / 12.0;
/// The largest sum of squares that rounding explains: four standard deviations above the expected one. A sum of `n`
/// squares of normal numbers has a deviation of `sqrt(2 / n)` of its mean; that of rounded numbers is smaller.
fn explained(expected: f64, freedom: usize) -> f64 {
    expected * (1.0 + 4.0 * (2.0 / freedom as f64).sqrt())
}

/// The longest column of weights and bias: Xavier's range for 6 inputs and 6 outputs is sqrt(6 / 12), that of the bias
/// 1 / sqrt(6); dropout divides both by 0.9.
fn longest_column() -> f64 {
    let columns = D_MODEL as f64;
    (columns * 6.0 / (2.0 * columns) + 1.0 / columns).sqrt() / f64::from(1.0 - DROPOUT)
}

/// Checks that embeddings lie in the range of their initialization. The document follows "The Annotated Transformer",
/// which fills matrices from -r to r with `r = sqrt(6 / (rows + columns))` (Xavier), multiplies embeddings by
/// `sqrt(d_model)`, adds positions, and divides what dropout keeps by 0.9.
fn embedding_range(
    page: &mut Page,
    x: &Tensor,
    name: &str,
    vocabulary: usize,
) -> Result<(), Failure> {
    let tokens = x.shape[1];
    let table = position_table(tokens, D_MODEL)?;
    let range = (6.0 / (vocabulary + D_MODEL) as f64).sqrt() * (D_MODEL as f64).sqrt();
    let kept = |at: &usize| x.data[*at] != 0.0;
    let embedding = |at: usize, positions: f64| {
        let position = f64::from(table.data[at % (tokens * D_MODEL)]);
        (f64::from(x.data[at]) * f64::from(1.0 - DROPOUT) - positions * position).abs()
    };
    let outside = |positions: f64| {
        // 0.9 of half a digit.
        let count = (0..x.data.len())
            .filter(kept)
            .filter(|&at| !(embedding(at, positions) <= range + ROUNDING));
        count.count()
    };
    let (all, with, without) = ((0..x.data.len()).filter(kept).count(), outside(1.0), outside(0.0));
    page.property(
        &format!("0.9 x minus the position is in Xavier's range, +-{range:.3} for {vocabulary} words, {name}"),
        with == 0,
        format!(
            "{} of {all} elements are inside, {} without the position; {} are exactly 0: dropped",
            all - with, all - without, x.data.len() - all
        ),
    );
    Ok(())
}

/// Checks that the columns of `made`, split into heads, are linear maps of the normalized rows of `input`, and that they
/// are none of the rows themselves.
fn linear_of_norm(
    page: &mut Page,
    letter: &str,
    input: &Tensor,
    made: &Tensor,
) -> Result<(Unexplained, f64), Failure> {
    let made = joined(made);
    let input = input.reshaped(&[made.rows(), D_MODEL]);
    let norm = rows(&normalized(&input)?);
    // The rounding of a row is divided by its deviation, too.
    let deviation = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / row.len() as f64
    };
    let divided =
        rows(&input).iter().map(|row| 1.0 / deviation(row)).sum::<f64>() / norm.len() as f64;
    let (mut with, mut without) = (Unexplained::default(), Unexplained::default());
    let mut expected = 0.0;
    for c in 0..D_MODEL {
        let column: Vec<f64> = (0..made.rows()).map(|i| f64::from(made.get(i, c))).collect();
        let rest = not_linear(&norm, &column);
        // Normalized rows add up to 0, so adding a number to all weights changes nothing: the last weight may be 0, and
        // the shortest weights have the mean 0.
        let five: Vec<Vec<f64>> =
            norm.iter().map(|row| [&row[..D_MODEL - 1], &[1.0]].concat()).collect();
        let mut weights = least_norm(&five, &column);
        weights[D_MODEL - 1] = 0.0;
        let mean = weights.iter().sum::<f64>() / D_MODEL as f64;
        let weights = weights.iter().map(|w| (w - mean) * (w - mean)).sum::<f64>();
        expected += rest.freedom as f64 * VARIANCE * (1.0 + weights * divided);
        with.add(rest);
        without.add(not_linear(&rows(&input), &column));
    }
    page.property(
        &format!("{letter} is a linear map of LayerNorm of the input (pre-norm)"),
        with.square < explained(expected, with.freedom) && without.largest > 100.0 * with.largest,
        format!(
            "after projection {:.1e} is left; without LayerNorm {:.1e}; by norm()\n    its sum of squares is {:.1e} \
             in {} dimensions, of rounding {expected:.1e} is expected",
            with.largest, without.largest, with.square, with.freedom
        ),
    );
    Ok((with, expected))
}

/// Checks `after = before + dropout(linear(context))`. Elements that dropout removed are equal before and after; of the
/// others, the difference must be a linear map of the context. If a column has no more rows than unknowns, such a map
/// exists, and must be one that the initialization can draw.
fn residual(page: &mut Page, name: &str, context: &Tensor, before: &Tensor, after: &Tensor) {
    let count = context.rows();
    let (before, after) = (before.reshaped(&[count, D_MODEL]), after.reshaped(&[count, D_MODEL]));
    page.show(&format!("{name}, printed"), &after, DECIMALS);
    let (mut rest, mut expected, mut longest): (Unexplained, f64, f64) = Default::default();
    let (mut checked, mut dropped) = (0, 0);
    for c in 0..D_MODEL {
        let kept: Vec<usize> =
            (0..count).filter(|&i| before.get(i, c) != after.get(i, c)).collect();
        dropped += count - kept.len();
        let x: Vec<Vec<f64>> = kept.iter().map(|&i| rows(context)[i].clone()).collect();
        let y: Vec<f64> = kept
            .iter()
            .map(|&i| f64::from(after.get(i, c)) - f64::from(before.get(i, c)))
            .collect();
        let with_one: Vec<Vec<f64>> =
            x.iter().map(|row| row.iter().copied().chain([1.0]).collect()).collect();
        let weights = least_norm(&with_one, &y).iter().map(|w| w * w).sum::<f64>();
        longest = longest.max(weights.sqrt());
        let column = not_linear(&x, &y);
        if column.freedom > 0 {
            expected += column.freedom as f64 * VARIANCE * (2.0 + weights);
            rest.add(column);
            checked += 1;
        }
    }
    let all = count * D_MODEL;
    let name = format!("{name}: a linear map of the context");
    let dropout =
        format!("{dropped} of {all} elements were dropped and are equal before and after");
    let most = longest_column();
    let length = format!(
        "the shortest column of weights that fits is at most {longest:.2} long, Xavier's longest {most:.2}"
    );
    if checked == 0 {
        page.property(&name, longest < most, format!("{dropout};\n    {length}"));
        return;
    }
    page.property(
        &name,
        rest.square < explained(expected, rest.freedom) && longest < most,
        format!(
            "{dropout};\n    of the others, {checked} columns have more rows than unknowns: after projection {:.1e} is left,\n    \
             its sum of squares is {:.1e} in {} dimensions, of rounding {expected:.1e} is expected;\n    {length}",
            rest.largest, rest.square, rest.freedom
        ),
    );
}

/// The feed-forward block cannot be recomputed. The norm after it can be checked: the document's divides by `n - 1`.
fn feed_forward(page: &mut Page, printed: &Tensor) -> Result<(), Failure> {
    let count = printed.data.len() / D_MODEL;
    let printed = printed.reshaped(&[count, D_MODEL]);
    page.not_recomputable("X + FF(X)", "neither weights nor the hidden layer are printed");
    // The document's norm divides by `n - 1`: its rows, normalized again by ours, are themselves times sqrt(n / (n - 1)).
    // A normalized row is its own normalized row, up to the divisor: sqrt((n - 1) / n) of ours.
    let ours = normalized(&printed)?;
    let factor = ((D_MODEL - 1) as f32 / D_MODEL as f32).sqrt();
    let numbers = ours.map(|x| x * factor);
    let error = numbers.data.iter().map(|x| ROUNDING * (2.0 + f64::from(x.abs())) + 1e-6).collect();
    page.compare(
        "the output: the norm of the rows, times sqrt(5/6) for the divisor n - 1, is the rows",
        Printed::rounded(&printed, DECIMALS),
        &Computed { numbers, error },
        "norm()",
    );
    Ok(())
}

fn prediction(page: &mut Page, data: &Value) -> Result<(), Failure> {
    page.section("4-1", "Probabilities: linear map and softmax over 9 words", "");
    let printed = tensor(data, "probabilities")?.reshaped(&[10, 9]);
    let output = rows(&tensor(data, "output")?.reshaped(&[10, D_MODEL]));
    page.show("printed probabilities, a row for each token", &printed, DECIMALS);
    // The logarithm of a ratio of two probabilities is a linear map of the output.
    let mut rest = Unexplained::default();
    let mut expected = 0.0;
    for word in 1..9 {
        let ratio =
            |i: usize| f64::from(printed.get(i, word)).ln() - f64::from(printed.get(i, 0)).ln();
        let y: Vec<f64> = (0..10).map(ratio).collect();
        let column = not_linear(&output, &y);
        // The rounding of p moves ln p by 1/p of it; that of the output is multiplied by the weights.
        let relative = |i: usize| {
            let of = |word: usize| f64::from(printed.get(i, word)).powi(-2);
            of(word) + of(0)
        };
        let mean = (0..10).map(relative).sum::<f64>() / 10.0;
        expected += column.freedom as f64 * VARIANCE * mean;
        rest.add(column);
    }
    page.property(
        "the logits are a linear map of out",
        rest.square < explained(expected, rest.freedom),
        format!(
            "after projection of the logarithms {:.1e} is left; the rounding of 0.0103 alone is 4.9e-3\n    its sum of squares \
             is {:.1e} in {} dimensions, of rounding {expected:.1e} is expected",
            rest.largest, rest.square, rest.freedom
        ),
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
    argmax(Exec::serial(Isa::best()), Matrix::new(&printed.data, 10, 9)?, &mut best)?;
    let ours = Tensor::new(&[2, 5], best.iter().map(|&id| id as f32).collect());
    page.compare(
        "argmax",
        Printed::exact(&tensor(data, "argmax")?, 0),
        &ours.into(),
        "topk::argmax()",
    );
    let vocabulary = &words(data, "target_vocabulary")[0];
    let predicted = words(data, "predicted");
    for (sentence, best) in best.chunks(5).enumerate() {
        let words: Vec<&str> = best
            .iter()
            .map(|&id| {
                vocabulary.get(id as usize).map_or("(not in the vocabulary)", String::as_str)
            })
            .collect();
        page.compare_text(
            &format!("predicted sentence {}", sentence + 1),
            &predicted[sentence].join(" "),
            &words.join(" "),
            "the vocabulary",
        );
    }

    page.section("4-3", "Beside the true output", "The model is not trained: no word is right.");
    let wanted = words(data, "true_output");
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
