//! Document 000: a chapter on self-attention, its scale, and multi-head attention.

use crate::Failure;
use crate::compute::{
    Attended, Lengths, attend, least_norm, normal, normalized, position_table, product, random,
    softmax_rows,
};
use crate::page::{Page, Printed};
use crate::tensor::Tensor;
use serde_json::Value;
use simdformer::config::{Config, Dimensions, Side};
use simdformer::kernels::softmax::FullyMasked;
use simdformer::trace::{Block, Probe, Stage, View};
use simdformer::{Limits, Model, Session, SourceId};

const D_MODEL: usize = 512;
const HEADS: usize = 8;

pub(crate) fn page(data: &Value) -> Result<Page, Failure> {
    let mut page = Page::new(
        "Document 000: self-attention and multi-head attention",
        "The chapter draws its tensors and prints few numbers: its embeddings are random and unpublished. What can be\n\
         computed without them is compared; of the rest the properties that the chapter states are checked, on random\n\
         vectors of the same shapes.",
    );
    similarity(&mut page, data)?;
    weighted_mean(&mut page, data)?;
    projections(&mut page)?;
    scale(&mut page)?;
    padded_batch(&mut page, data)?;
    multi_head(&mut page, data)?;
    Ok(page)
}

/// Pseudo-random numbers in -1..1.
fn noise(rows: usize, columns: usize, seed: u64) -> Tensor {
    let mut seed = seed;
    let data = (0..rows * columns).map(|_| random(&mut seed)).collect();
    Tensor::new(&[rows, columns], data)
}

/// The largest difference between a product by the kernel and one in f64.
fn product_error(a: &Tensor, b: &Tensor, c: &Tensor) -> f64 {
    let mut worst: f64 = 0.0;
    for i in 0..a.rows() {
        for j in 0..b.columns() {
            let exact: f64 =
                (0..a.columns()).map(|k| f64::from(a.get(i, k)) * f64::from(b.get(k, j))).sum();
            worst = worst.max((exact - f64::from(c.get(i, j))).abs());
        }
    }
    worst
}

fn similarity(page: &mut Page, data: &Value) -> Result<(), Failure> {
    page.section(
        "3.1.1",
        "Attention without projections: softmax(X X^T / sqrt(d)) X",
        "X is [4, 512]: four characters. X X^T holds the dot product of each pair.",
    );
    let x = noise(4, D_MODEL, 1);
    let scores = product(&x, &x.transposed(), 1.0)?;
    page.show("X X^T of four random characters", &scores, 2);
    let error = product_error(&x, &x.transposed(), &scores);
    page.property(
        "X [4, 512] times X^T [512, 4] is [4, 4], symmetric, as in f64",
        scores == scores.transposed() && error < 1e-3,
        format!("equal to its transpose bit by bit; largest difference from f64 {error:.1e}"),
    );
    let sentence = x.reshaped(&[1, 4, D_MODEL]);
    let everything = Lengths::of(4, 4);
    let scale = 1.0 / (D_MODEL as f32).sqrt();
    let attended = attend(&sentence, &sentence, &sentence, &everything, scale)?;
    page.show("softmax(X X^T / sqrt(512))", &attended.weights.at(0), 4);
    let own = (0..4).all(|i| {
        (0..4).all(|j| i == j || attended.weights.data[i * 4 + j] < attended.weights.data[i * 5])
    });
    page.property(
        "softmax(X X^T / sqrt(512)) X is [4, 512], as the equation in f64 gives it, and each character sees itself most",
        attended.context.shape == [1, 4, D_MODEL] && attended.from_reference < 1e-5 && own,
        format!("largest difference {:.1e}, by attention() and reference::attention()", attended.from_reference),
    );

    page.section(
        "3.1.2",
        "The dot product as an angle (figures 3-4 to 3-6)",
        "The chapter: the smaller the angle, the larger the product; at 90 degrees it is 0.",
    );
    let dots = dots_of_angles()?;
    page.show("unit vectors at 0, 30, 60 and 90 degrees", &dots, 4);
    page.property(
        "the product falls as the angle grows, and is 0 at 90 degrees",
        dots.data.windows(2).all(|pair| pair[0] > pair[1]) && dots.data[3].abs() < 1e-6,
        format!("{:?}", dots.data),
    );
    page.shown(
        "figure 3-6: the scores of the first character",
        &Tensor::of(data, "figure_scores")?.reshaped(&[1, 4]),
        0,
        34,
        "the embeddings are not printed; the numbers are an illustration",
    );
    Ok(())
}

/// The angles of figure 3-5, in degrees.
pub(crate) const ANGLES: [f32; 4] = [0.0, 30.0, 60.0, 90.0];

/// The dot products `[1, 4]` of a unit vector and those at [`ANGLES`] to it.
pub(crate) fn dots_of_angles() -> Result<Tensor, Failure> {
    let one = Tensor::new(&[1, 2], vec![1.0, 0.0]);
    let others = Tensor::from_fn(4, 2, |i, j| {
        let (sin, cos) = ANGLES[i].to_radians().sin_cos();
        if j == 0 { cos } else { sin }
    });
    product(&one, &others.transposed(), 1.0)
}

fn weighted_mean(page: &mut Page, data: &Value) -> Result<(), Failure> {
    page.section(
        "3.1.3",
        "Softmax: 0.75, 0.15, 0.07 and 0.03 (figure 3-7)",
        "The weights of the first character. A softmax of the scores 9, 6, 3, 1 of figure 3-6 gives other numbers, and no\n\
         scale reconciles them: the steps 9 to 6 and 6 to 3 are equal, but ln(0.75 / 0.15) = 1.61 and ln(0.15 / 0.07) = 0.76.",
    );
    let scores = Tensor::of(data, "figure_scores")?.reshaped(&[1, 4]);
    let weights = softmax_rows(&scores, None, FullyMasked::Zeros)?;
    page.show("softmax of 9, 6, 3, 1, by softmax()", &weights, 4);
    let printed = Tensor::of(data, "figure_weights")?.reshaped(&[1, 4]);
    page.shown(
        "the printed weights",
        &printed,
        2,
        138,
        "no scores and no scale give these weights by a softmax of 9, 6, 3 and 1",
    );
    let sum = product(&printed, &Tensor::new(&[4, 1], vec![1.0; 4]), 1.0)?;
    page.compare(
        "the printed weights add up to 1",
        Printed::by_hand(&Tensor::new(&[1, 1], vec![1.0]), 2),
        &sum.into(),
        "gemm_unpacked(weights, ones)",
    );
    let falling = |x: &Tensor| x.data.windows(2).all(|pair| pair[0] > pair[1]);
    page.property(
        "scores, their softmax and the printed weights fall in the same order",
        falling(&scores) && falling(&weights) && falling(&printed),
        "the first character sees itself most and the last one least",
    );

    page.section(
        "3.1.4",
        "The weighted mean (figures 3-8 and 3-9, equation 3-2)",
        "Output j of the first character is 0.75 x1j + 0.15 x2j + 0.07 x3j + 0.03 x4j, for j = 1 to 512.",
    );
    let printed = Tensor::of(data, "figure_weights")?.reshaped(&[1, 4]);
    let x = noise(4, D_MODEL, 2);
    let mean = product(&printed, &x, 1.0)?;
    let error = (0..D_MODEL)
        .map(|j| {
            let exact: f64 = [0.75, 0.15, 0.07, 0.03]
                .iter()
                .enumerate()
                .map(|(i, weight)| weight * f64::from(x.get(i, j)))
                .sum();
            (exact - f64::from(mean.get(0, j))).abs()
        })
        .fold(0.0, f64::max);
    page.say(format!(
        "  j = 1: 0.75 x {:.4} + 0.15 x {:.4} + 0.07 x {:.4} + 0.03 x {:.4} = {:.4}",
        x.get(0, 0),
        x.get(1, 0),
        x.get(2, 0),
        x.get(3, 0),
        mean.get(0, 0)
    ));
    page.property(
        "equation 3-2 for 512 dimensions of random characters",
        error < 1e-6,
        format!("largest difference from the equation in f64 {error:.1e}"),
    );
    Ok(())
}

fn projections(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "3.2",
        "Query, key and value: Q = X W_Q, K = X W_K, V = X W_V (equation 3-3)",
        "X is [4, 512], each W is [512, 512]; Q K^T is [4, 4] and softmax(Q K^T) V is [4, 512].",
    );
    let x = noise(4, D_MODEL, 3);
    let mut made = Vec::new();
    for seed in 4..7 {
        let w = noise(D_MODEL, D_MODEL, seed);
        let y = product(&x, &w, 1.0)?;
        made.push((product_error(&x, &w, &y), y));
    }
    let worst = made.iter().map(|(error, _)| *error).fold(0.0, f64::max);
    page.property(
        "three products of [4, 512] and [512, 512], as in f64",
        worst < 1e-3,
        format!("shapes {:?}; largest difference from f64 {worst:.1e}", made[0].1.shape),
    );
    let [q, k, v] = [0, 1, 2].map(|i| made[i].1.reshaped(&[1, 4, D_MODEL]));
    let lengths = Lengths { tokens: [4, 3], ..Lengths::of(4, 4) };
    let attended = attend(&q, &k, &v, &lengths, 1.0 / (D_MODEL as f32).sqrt())?;
    page.show(
        "weights of four characters, the last of which is padding",
        &attended.weights.at(0),
        4,
    );
    page.property(
        "the weight of a padding key is 0, and the weights of each query add up to 1",
        (0..4).all(|i| {
            let row = &attended.weights.data[i * 4..][..4];
            row[3] == 0.0 && (row.iter().sum::<f32>() - 1.0).abs() < 1e-6
        }),
        "by attention(); weights [4, 4], context [4, 512]",
    );
    Ok(())
}

fn scale(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "3.3",
        "Why scores are divided by sqrt(d_k) (figures 3-15 to 3-18)",
        "20,000 scores of a normal distribution with deviation 100, and the same divided by 100. The chapter's random\n\
         numbers are not published; ours have the same distribution. `documents --pictures DIR` draws both figures.",
    );
    let large = normal(20_000, 100.0);
    let small: Vec<f32> = large.iter().map(|x| x / 100.0).collect();
    let range = |x: &[f32]| x.iter().fold((0.0f32, 0.0f32), |(a, b), &x| (a.min(x), b.max(x)));
    let (low, high) = range(&large);
    page.property(
        "figure 3-15: the scores lie between about -400 and 400",
        (-500.0..-300.0).contains(&low) && (300.0..500.0).contains(&high),
        format!("from {low:.0} to {high:.0}"),
    );
    let weights =
        |x: &[f32]| softmax_rows(&Tensor::new(&[1, x.len()], x.to_vec()), None, FullyMasked::Zeros);
    let (hard, soft) = (weights(&large)?, weights(&small)?);
    let largest = |w: &Tensor| w.data.iter().copied().fold(0.0, f32::max);
    let zeros = hard.data.iter().filter(|&&w| w < 1e-6).count();
    page.property(
        "figure 3-16: softmax of large scores is one weight near 1, all others are 0",
        largest(&hard) > 0.9 && zeros >= 19_990,
        format!(
            "largest weight {:.4}; {zeros} of 20,000 weights are below 0.000001",
            largest(&hard)
        ),
    );
    page.property(
        "figure 3-18: after the division the largest weight is about 0.002 or less, and no weight is 0",
        (0.0005..0.004).contains(&largest(&soft)) && soft.data.iter().all(|&w| w > 0.0),
        format!("largest weight {:.4}", largest(&soft)),
    );
    let config = Config::base(10);
    page.compare_text(
        "equation 3-5: d_k = 512 / 8",
        "64",
        &(config.d_model / config.encoder.heads).to_string(),
        "Config::base(): d_model / encoder.heads",
    );
    Ok(())
}

/// What the document prints.
pub(crate) fn printed() -> Result<Value, Failure> {
    Ok(serde_json::from_str(include_str!("data/attention.json"))?)
}

/// The batch of section 3.4: two sentences, 0 is padding.
type Ids = [[usize; 5]; 2];

fn ids(data: &Value) -> Result<Ids, Failure> {
    let printed = Tensor::of(data, "ids")?;
    if printed.shape != [2, 5] || printed.data.iter().any(|&id| id >= 10.0) {
        return Err(format!("ids: expected [2, 5] numbers below 10, found {printed:?}").into());
    }
    Ok([0, 1].map(|i| std::array::from_fn(|j| printed.get(i, j) as usize)))
}

/// A sentence of the batch as random embeddings plus positions, `[5, 512]`.
fn embedded(sentence: &[usize; 5]) -> Result<Tensor, Failure> {
    let table = noise(10, D_MODEL, 8).map(|x| x * 1.7);
    let positions = position_table(5, D_MODEL)?;
    Ok(Tensor::from_fn(5, D_MODEL, |i, j| table.get(sentence[i], j) + positions.get(i, j)))
}

/// Each of the five queries sees the ids before the padding.
fn lengths(sentence: &[usize; 5]) -> Result<Lengths, Failure> {
    let length = sentence.iter().rposition(|&id| id != 0).map_or(0, |last| last + 1);
    if sentence[..length].contains(&0) {
        return Err(format!("ids: expected padding at the end alone, found {sentence:?}").into());
    }
    Ok(Lengths { tokens: [5, length], ..Lengths::of(5, 5) })
}

/// Weights `[8, 5, 5]` of multi-head self-attention of both sentences of the batch, with random projections.
pub(crate) fn padded_heads(data: &Value) -> Result<Vec<Tensor>, Failure> {
    let width = D_MODEL / HEADS;
    let [wq, wk] = [14, 15].map(|seed| noise(D_MODEL, D_MODEL, seed).map(|x| x / 16.0));
    let mut out = Vec::new();
    for sentence in &ids(data)? {
        let x = embedded(sentence)?;
        let split = |y: Tensor| y.reshaped(&[5, HEADS, width]).heads_swapped();
        let (q, k) = (split(product(&x, &wq, 1.0)?), split(product(&x, &wk, 1.0)?));
        out.push(attend(&q, &k, &k, &lengths(sentence)?, 0.125)?.weights);
    }
    Ok(out)
}

/// Section 3.4: attention of a sentence of the batch to itself, with one head and without projections.
fn single_head(sentence: &[usize; 5]) -> Result<Attended, Failure> {
    let x = embedded(sentence)?.reshaped(&[1, 5, D_MODEL]);
    // The chapter divides by sqrt(64) although its single head has 512 columns.
    attend(&x, &x, &x, &lengths(sentence)?, 1.0 / 8.0)
}

/// Figure 3-19: the weights of the first sentence, `[5, 5]`.
pub(crate) fn padded_map(data: &Value) -> Result<Tensor, Failure> {
    Ok(single_head(&ids(data)?[0])?.weights.at(0))
}

fn padded_batch(page: &mut Page, data: &Value) -> Result<(), Failure> {
    page.section(
        "3.4",
        "A padded batch: [[5, 2, 1, 0, 0], [1, 3, 1, 4, 0]]",
        "Id 0 is padding. The mask of [2, 5, 5] comes from the ids; simdformer takes the lengths 3 and 4 instead. The\n\
         recognized text drops the result of `masked_fill`, but the printed result is masked.",
    );
    let printed = Tensor::of(data, "ids")?;
    page.printed_twice("the ids of 3.4 and of 3.6.1", &printed, &Tensor::of(data, "ids_of_heads")?);
    let ids = ids(data)?;
    let masked = ids.iter().flat_map(|sentence| [sentence; 5]).flatten();
    let padding = Tensor::new(&[2, 5, 5], masked.map(|&id| f32::from(u8::from(id == 0))).collect());
    page.show("padding mask of sentence 1, 1 is padding", &padding.at(0), 0);
    page.show("padding mask of sentence 2", &padding.at(1), 0);

    for (number, sentence) in ids.iter().enumerate() {
        let attended = single_head(sentence)?;
        page.show(&format!("weights of sentence {}", number + 1), &attended.weights.at(0), 4);
        let length = sentence.iter().filter(|&&id| id != 0).count();
        page.property(
            &format!("figure 3-19: the columns of padding are empty, sentence {}", number + 1),
            attended.weights.data.iter().enumerate().all(|(at, &w)| (w == 0.0) || at % 5 < length)
                && attended.context.shape == [1, 5, D_MODEL],
            format!("{} columns are exactly 0; the result is [5, 512]", 5 - length),
        );
    }
    printed_result(page, &Tensor::of(data, "result")?)
}

/// Row `i` of a matrix in f64.
fn row(x: &Tensor, i: usize) -> Vec<f64> {
    x.row(i).iter().map(|&x| f64::from(x)).collect()
}

/// `y` is `base + sum of c[k] directions[k]` with the best `c`. Returns `c` and the length of what is left.
fn fit(y: &[f64], base: &[f64], directions: &[Vec<f64>]) -> (Vec<f64>, f64) {
    let y: Vec<f64> = y.iter().zip(base).map(|(y, b)| y - b).collect();
    let columns: Vec<Vec<f64>> =
        (0..y.len()).map(|c| directions.iter().map(|d| d[c]).collect()).collect();
    let c = least_norm(&columns, &y);
    let left = columns.iter().zip(&y).map(|(x, y)| {
        let found: f64 = x.iter().zip(&c).map(|(x, c)| x * c).sum();
        (found - y) * (found - y)
    });
    (c.clone(), left.sum::<f64>().sqrt())
}

/// The 60 printed numbers of 3.4: the first and the last three columns of each row.
fn printed_result(page: &mut Page, result: &Tensor) -> Result<(), Failure> {
    // Half of the last printed digit in each of 6 columns.
    let rounding = |weight: f64| 0.5e-4 * weight * 6f64.sqrt();
    for sentence in 0..2 {
        page.show(
            &format!(
                "the printed result of sentence {}, columns 1 to 3 and 510 to 512",
                sentence + 1
            ),
            &result.at(sentence),
            4,
        );
    }
    page.say(
        "\nWeights add up to 1 and padding has none, so the row of a padding token is a mixture of the rows of the words. Of\n\
         6 columns at most 3 are needed to find the weights of the mixture; the others check it.",
    );
    for (sentence, padding, words) in [(0, 3, 3), (0, 4, 3), (1, 4, 4)] {
        let rows = result.at(sentence);
        let base = row(&rows, words - 1);
        let directions: Vec<Vec<f64>> = (0..words - 1)
            .map(|k| row(&rows, k).iter().zip(&base).map(|(x, b)| x - b).collect())
            .collect();
        let (mut weights, left) = fit(&row(&rows, padding), &base, &directions);
        weights.push(1.0 - weights.iter().sum::<f64>());
        let allowed = rounding(1.0 + weights.iter().map(|w| w.abs()).sum::<f64>());
        let texts: Vec<String> =
            weights.iter().enumerate().map(|(k, w)| format!("{w:.4} row {}", k + 1)).collect();
        page.property(
            &format!(
                "sentence {}, row {} (padding) mixes the rows of the words: the mask acts",
                sentence + 1,
                padding + 1
            ),
            left <= allowed,
            format!("{}; left {left:.1e}, allowed {allowed:.1e}", texts.join(" + ")),
        );
    }
    page.say(
        "\nThe word 1 stands at the positions 0 and 2 of sentence 2, and at the position 2 of sentence 1. Rows of one word\n\
         differ by a multiple of PE(2) - PE(0): the printed numbers confirm the formula of positions.",
    );
    let table = position_table(3, D_MODEL)?;
    let columns = [0, 1, 2, D_MODEL - 3, D_MODEL - 2, D_MODEL - 1];
    let shift: Vec<f64> =
        columns.iter().map(|&c| f64::from(table.get(2, c)) - f64::from(table.get(0, c))).collect();
    page.show(
        "PE(2) - PE(0) in the printed columns",
        &Tensor::new(&[1, 6], shift.iter().map(|&x| x as f32).collect()),
        4,
    );
    let rows = [row(&result.at(1), 0), row(&result.at(1), 2), row(&result.at(0), 2)];
    for (first, second, name) in [
        (0, 1, "sentence 2: row 3 - row 1"),
        (1, 2, "row 3 of sentence 1 - row 3 of sentence 2"),
        (0, 2, "row 3 of sentence 1 - row 1 of sentence 2"),
    ] {
        let (c, left) = fit(&rows[second], &rows[first], std::slice::from_ref(&shift));
        let ratios: Vec<String> = (0..3)
            .map(|k| format!("{:.4}", (rows[second][k] - rows[first][k]) / shift[k]))
            .collect();
        let allowed = rounding(2.0);
        page.property(
            &format!("{name} = {:.4} (PE(2) - PE(0))", c[0]),
            left <= allowed,
            format!("ratios {}; left {left:.1e}, allowed {allowed:.1e}", ratios.join(" ")),
        );
    }
    let others = [result.at(0).row(0), result.at(0).row(1), result.at(1).row(1)].concat();
    page.shown(
        "rows 1 and 2 of sentence 1 and row 2 of sentence 2",
        &Tensor::new(&[3, 6], others),
        4,
        949_930,
        "the embeddings are not printed, and other rows have at most 0.05 of these",
    );
    Ok(())
}

fn multi_head(page: &mut Page, data: &Value) -> Result<(), Failure> {
    page.section(
        "3.5",
        "Eight heads: head_i = Attention(Q W_Qi, K W_Ki, V W_Vi) (equations 3-4 to 3-14)",
        "Each W_i is [512, 64]; the eight contexts [4, 64] beside each other are [4, 512], times W_O [512, 512].",
    );
    let x = noise(4, D_MODEL, 9);
    let width = D_MODEL / HEADS;
    let [wq, wk, wv, wo] =
        [10, 11, 12, 13].map(|seed| noise(D_MODEL, D_MODEL, seed).map(|x| x / 16.0));
    // [tokens, heads * d] to [heads, tokens, d].
    let split = |y: &Tensor| y.reshaped(&[4, HEADS, width]).heads_swapped();
    let [q, k, v] = [product(&x, &wq, 1.0)?, product(&x, &wk, 1.0)?, product(&x, &wv, 1.0)?];
    let everything = Lengths::of(4, 4);
    let all = attend(&split(&q), &split(&k), &split(&v), &everything, 0.125)?;
    let mut alone = Vec::new();
    let mut same = true;
    for head in 0..HEADS {
        let part = |w: &Tensor| Tensor::from_fn(D_MODEL, width, |i, j| w.get(i, head * width + j));
        let mut one = Vec::new();
        for w in [&wq, &wk, &wv] {
            one.push(product(&x, &part(w), 1.0)?.reshaped(&[1, 4, width]));
        }
        let attended = attend(&one[0], &one[1], &one[2], &everything, 0.125)?;
        same &= attended.context.data == all.context.at(head).data;
        alone.push(attended.context);
    }
    page.property(
        "equations 3-15 to 3-17: one product with the concatenated matrices is eight products, bit by bit",
        same,
        "8 heads computed alone and together: all 2,048 numbers of the contexts are equal",
    );
    let z = all.context.heads_swapped().reshaped(&[4, D_MODEL]);
    let output = product(&z, &wo, 1.0)?;
    let error = product_error(&z, &wo, &output);
    page.property(
        "concatenation [4, 512] times W_O [512, 512] is [4, 512], as in f64",
        output.shape == [4, D_MODEL] && error < 1e-3,
        format!("largest difference from f64 {error:.1e}"),
    );

    page.section(
        "3.6",
        "The code of multi-head attention, with residual and LayerNorm",
        "Output: LayerNorm(W_O concat + X). The printed result is [2, 5, 512], of which 6 columns are shown.",
    );
    let sum = Tensor::from_fn(4, D_MODEL, |i, j| output.get(i, j) + x.get(i, j));
    let norm = normalized(&sum)?;
    let moments = |i: usize| {
        let row = norm.row(i);
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / D_MODEL as f64;
        let square = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / D_MODEL as f64;
        (mean.abs(), (square - 1.0).abs())
    };
    let worst =
        (0..4).map(moments).fold((0.0, 0.0), |a: (f64, f64), b| (a.0.max(b.0), a.1.max(b.1)));
    page.property(
        "each row of the result has mean 0 and mean square 1",
        worst.0 < 1e-5 && worst.1 < 1e-4,
        format!(
            "largest mean {:.1e}, largest deviation of the square {:.1e}, by norm()",
            worst.0, worst.1
        ),
    );
    let printed = Tensor::of(data, "result_of_heads")?;
    page.shown(
        "the printed result of multi-head attention, columns 1 to 3 and 510 to 512 of 2 sentences",
        &printed.reshaped(&[10, 6]),
        4,
        7_921_884,
        "embeddings and weights are random and not printed",
    );
    shapes(page, data)?;
    page.section(
        "3.6.2",
        "Maps of 8 heads (figures 3-25 and 3-26)",
        "`documents --pictures DIR` draws the maps of all heads for both sentences of section 3.4.",
    );
    let weights = padded_heads(data)?;
    let empty = |sentence: usize, keys: usize| {
        weights[sentence].data.iter().enumerate().all(|(at, &w)| (at % 5 < keys) == (w > 0.0))
    };
    page.property(
        "in all 8 heads two columns of the first map and one of the second are empty, and no other weight is 0",
        empty(0, 3) && empty(1, 4),
        "16 maps of [5, 5], by attention()",
    );
    Ok(())
}

/// The shapes of the tensors of an encoder's self-attention in a session.
#[derive(Default)]
struct Shapes(Vec<(Stage, [usize; 2])>);

impl Probe for Shapes {
    fn wants(&self, stage: Stage) -> bool {
        use Stage::{Context, Input, Norm, Query, Weights};
        matches!(stage, Input | Query | Weights | Context | Norm)
    }

    fn look(&mut self, view: &View<'_>) {
        if view.place.side == Side::Encoder && view.place.block != Some(Block::FeedForward) {
            self.0.push((view.stage, [view.rows, view.columns]));
        }
    }
}

impl Shapes {
    /// Those of the batch in a model with one layer. A session computes no padding: it reads the ids 0 as words.
    fn of(ids: &Ids) -> Result<Self, Failure> {
        let config = Config::transformer(Dimensions {
            d_model: D_MODEL,
            heads: HEADS,
            layers: 1,
            ffn_dim: 8,
            vocabulary: 10,
        });
        let mut seed = 14;
        let model = Model::from_fn(config, |_, _, out| {
            out.fill_with(|| random(&mut seed) / 16.0);
            Ok(())
        })?;
        let mut session = Session::new(&model, Limits::new(ids.len(), 5, 1))?;
        let mut scratch = vec![0.0; session.plan().trace_floats()];
        let sentences = ids.map(|sentence| sentence.map(|id| id as u32));
        let sources: Vec<&[u32]> = sentences.iter().map(|sentence| &sentence[..]).collect();
        let mut shapes = Self::default();
        let mut slots = vec![SourceId::default(); ids.len()];
        session.traced(&mut shapes, &mut scratch)?.encode(&sources, &mut slots)?;
        Ok(shapes)
    }

    /// How many tensors of a stage there were, and their shape.
    fn stage(&self, stage: Stage) -> Result<(usize, [usize; 2]), Failure> {
        let mut found = self.0.iter().filter(|(of, _)| *of == stage).map(|(_, shape)| *shape);
        let first = found.next().ok_or_else(|| format!("{stage}: no tensor"))?;
        if !found.clone().all(|shape| shape == first) {
            return Err(format!("{stage}: shapes differ: {:?}", self.0).into());
        }
        Ok((1 + found.count(), first))
    }
}

/// Section 3.6.1: the shapes that the class goes through, beside those of a session.
fn shapes(page: &mut Page, data: &Value) -> Result<(), Failure> {
    let traced = Shapes::of(&ids(data)?)?;
    let all = |stage: Stage| -> Result<Vec<usize>, Failure> {
        let (sentences, [rows, columns]) = traced.stage(stage)?;
        Ok(vec![sentences, rows, columns])
    };
    let (sentences, [rows, columns]) = traced.stage(Stage::Query)?;
    let (maps, [queries, keys]) = traced.stage(Stage::Weights)?;
    let heads = maps / sentences;
    let split = vec![sentences, heads, rows, columns / heads];
    let maps = vec![sentences, heads, queries, keys];
    page.say(
        "\nA session gives a probe the tensors of each sentence, and the map of each head. The queries of all heads are beside\n\
         each other in a row: a view cuts it into heads.",
    );
    let printed = |name: &str| -> Result<Vec<usize>, Failure> {
        let shape = Tensor::of(&data["shapes"], name)?;
        Ok(shape.data.iter().map(|&x| x as usize).collect())
    };
    for (what, name, ours) in [
        ("X", "input", all(Stage::Input)?),
        ("Q, K, V of all heads", "split", split.clone()),
        ("the weights of all heads", "maps", maps.clone()),
        ("the contexts beside each other", "joined", all(Stage::Context)?),
        ("the output after LayerNorm", "output", all(Stage::Norm)?),
    ] {
        page.compare_text(
            &format!("shape of {what}"),
            &format!("{:?}", printed(name)?),
            &format!("{ours:?}"),
            "a session and its probe",
        );
    }
    let views = [
        ("mask", vec![sentences, queries, keys]),
        ("mask_of_heads", vec![sentences, 1, queries, keys]),
        ("contexts", split),
        ("contexts_swapped", vec![sentences, rows, heads, columns / heads]),
    ];
    let mut same = true;
    for (name, ours) in &views {
        same &= printed(name)? == *ours;
    }
    page.property(
        "the mask of a sentence serves all its heads, and contexts are swapped before they are joined: the shapes of the views",
        same,
        views.map(|(name, shape)| format!("{} {shape:?}", name.replace('_', " "))).join(", "),
    );
    Ok(())
}
