//! Document 000: a chapter on self-attention, its scale, and multi-head attention.

use crate::Failure;
use crate::compute::{attend, normal, normalized, position_table, product, random, softmax_rows};
use crate::page::{Page, Printed};
use crate::tensor::Tensor;
use simdformer::config::Config;
use simdformer::kernels::softmax::FullyMasked;

const D_MODEL: usize = 512;
const HEADS: usize = 8;

pub(crate) fn page() -> Result<Page, Failure> {
    let mut page = Page::new(
        "Document 000: self-attention and multi-head attention",
        "The chapter draws its tensors and prints few numbers: its embeddings are random and unpublished. What can be\n\
         computed without them is compared; of the rest the properties that the chapter states are checked, on random\n\
         vectors of the same shapes.",
    );
    similarity(&mut page)?;
    weighted_mean(&mut page)?;
    projections(&mut page)?;
    scale(&mut page)?;
    padded_batch(&mut page)?;
    multi_head(&mut page)?;
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

fn similarity(page: &mut Page) -> Result<(), Failure> {
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

    page.section(
        "3.1.2",
        "The dot product as an angle (figures 3-4 to 3-6)",
        "The chapter: the smaller the angle, the larger the product; at 90 degrees it is 0.",
    );
    let angles = [0.0f32, 30.0, 60.0, 90.0];
    let one = Tensor::new(&[1, 2], vec![1.0, 0.0]);
    let others = Tensor::from_fn(4, 2, |i, j| {
        let angle = angles[i].to_radians();
        if j == 0 { angle.cos() } else { angle.sin() }
    });
    let dots = product(&one, &others.transposed(), 1.0)?;
    page.show("unit vectors at 0, 30, 60 and 90 degrees", &dots, 4);
    page.property(
        "the product falls as the angle grows, and is 0 at 90 degrees",
        dots.data.windows(2).all(|pair| pair[0] > pair[1]) && dots.data[3].abs() < 1e-6,
        format!("{:?}", dots.data),
    );
    page.not_recomputable(
        "figure 3-6: scores 9, 6, 3 and 1 of the first character",
        "the embeddings are not printed; the numbers are an illustration",
    );
    Ok(())
}

fn weighted_mean(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "3.1.3",
        "Softmax: 0.75, 0.15, 0.07 and 0.03 (figure 3-7)",
        "The weights of the first character. A softmax of the scores 9, 6, 3, 1 of figure 3-6 gives other numbers, and no\n\
         scale reconciles them: the steps 9 to 6 and 6 to 3 are equal, but ln(0.75 / 0.15) = 1.61 and ln(0.15 / 0.07) = 0.76.",
    );
    let scores = Tensor::new(&[1, 4], vec![9.0, 6.0, 3.0, 1.0]);
    let weights = softmax_rows(&scores, None, FullyMasked::Zeros)?;
    page.show("softmax of 9, 6, 3, 1, by softmax()", &weights, 4);
    let printed = Tensor::new(&[1, 4], vec![0.75, 0.15, 0.07, 0.03]);
    let sum = product(&printed, &Tensor::new(&[4, 1], vec![1.0; 4]), 1.0)?;
    page.compare(
        "the printed weights add up to 1",
        Printed::exact(&Tensor::new(&[1, 1], vec![1.0]), 2),
        &sum.into(),
        "gemm_unpacked(weights, ones)",
    );
    let logarithms = printed.map(f32::ln);
    let again = softmax_rows(&logarithms, None, FullyMasked::Zeros)?;
    page.compare(
        "softmax of the logarithms of the printed weights",
        Printed::exact(&printed, 2),
        &again.into(),
        "softmax()",
    );

    page.section(
        "3.1.4",
        "The weighted mean (figures 3-8 and 3-9, equation 3-2)",
        "Output j of the first character is 0.75 x1j + 0.15 x2j + 0.07 x3j + 0.03 x4j, for j = 1 to 512.",
    );
    let unit = Tensor::from_fn(4, 4, |i, j| f32::from(u8::from(i == j)));
    page.compare(
        "with unit vectors as characters the mean is the weights themselves",
        Printed::exact(&printed, 2),
        &product(&printed, &unit, 1.0)?.into(),
        "gemm_unpacked(weights, X)",
    );
    let x = noise(4, D_MODEL, 2);
    let mean = product(&printed, &x, 1.0)?;
    let error = (0..D_MODEL)
        .map(|j| {
            let exact = 0.75 * f64::from(x.get(0, j))
                + 0.15 * f64::from(x.get(1, j))
                + 0.07 * f64::from(x.get(2, j))
                + 0.03 * f64::from(x.get(3, j));
            (exact - f64::from(mean.get(0, j))).abs()
        })
        .fold(0.0, f64::max);
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
    let mask = Tensor::from_fn(4, 4, |_, j| f32::from(u8::from(j < 3)));
    let attended = attend(&q, &k, &v, &mask, 1.0 / (D_MODEL as f32).sqrt(), FullyMasked::Zeros)?;
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

/// The batch of section 3.4, 0 is padding.
const IDS: [[usize; 5]; 2] = [[5, 2, 1, 0, 0], [1, 3, 1, 4, 0]];

/// A sentence of the batch as random embeddings plus positions, `[5, 512]`.
fn embedded(sentence: &[usize; 5]) -> Result<Tensor, Failure> {
    let table = noise(10, D_MODEL, 8).map(|x| x * 1.7);
    let positions = position_table(5, D_MODEL)?;
    Ok(Tensor::from_fn(5, D_MODEL, |i, j| table.get(sentence[i], j) + positions.get(i, j)))
}

/// Weights `[8, 5, 5]` of multi-head self-attention of both sentences of the batch, with random projections.
pub(crate) fn padded_heads() -> Result<Vec<Tensor>, Failure> {
    let width = D_MODEL / HEADS;
    let [wq, wk] = [14, 15].map(|seed| noise(D_MODEL, D_MODEL, seed).map(|x| x / 16.0));
    let mut out = Vec::new();
    for sentence in &IDS {
        let x = embedded(sentence)?;
        let split = |y: Tensor| y.reshaped(&[5, HEADS, width]).heads_swapped();
        let (q, k) = (split(product(&x, &wq, 1.0)?), split(product(&x, &wk, 1.0)?));
        let mask = Tensor::from_fn(5, 5, |_, j| f32::from(u8::from(sentence[j] != 0)));
        out.push(attend(&q, &k, &k, &mask, 0.125, FullyMasked::Zeros)?.weights);
    }
    Ok(out)
}

fn padded_batch(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "3.4",
        "A padded batch: [[5, 2, 1, 0, 0], [1, 3, 1, 4, 0]]",
        "Id 0 is padding. The mask of [2, 5, 5] comes from the ids; simdformer takes the lengths 3 and 4 instead. The\n\
         recognized text drops the result of `masked_fill`, but the printed result is masked.",
    );
    let mut data = Vec::new();
    for sentence in &IDS {
        for _ in 0..5 {
            data.extend(sentence.iter().map(|&id| f32::from(u8::from(id == 0))));
        }
    }
    let padding = Tensor::new(&[2, 5, 5], data);
    page.show("padding mask of sentence 1, 1 is padding", &padding.at(0), 0);
    page.show("padding mask of sentence 2", &padding.at(1), 0);

    for (number, sentence) in IDS.iter().enumerate() {
        let x = embedded(sentence)?.reshaped(&[1, 5, D_MODEL]);
        let mask = padding.at(number).map(|p| 1.0 - p);
        // The chapter divides by sqrt(64) although its single head has 512 columns.
        let attended = attend(&x, &x, &x, &mask, 1.0 / 8.0, FullyMasked::Zeros)?;
        page.show(&format!("weights of sentence {}", number + 1), &attended.weights.at(0), 4);
        let length = sentence.iter().filter(|&&id| id != 0).count();
        page.property(
            &format!("figure 3-19: the columns of padding are empty, sentence {}", number + 1),
            attended.weights.data.iter().enumerate().all(|(at, &w)| (w == 0.0) || at % 5 < length)
                && attended.context.shape == [1, 5, D_MODEL],
            format!("{} columns are exactly 0; the result is [5, 512]", 5 - length),
        );
    }
    // Columns 1 to 3 and the last 3 of the printed rows 2 to 5 of sentence 1.
    let printed = Tensor::new(
        &[2, 6],
        vec![
            0.6696, 0.3658, 2.0497, -0.1866, 0.7938, 0.1699, //
            1.8404, -0.1952, 0.9078, 0.0304, 1.6829, -0.0272,
        ],
    );
    let padding_rows = Tensor::new(
        &[2, 6],
        vec![
            1.7838, -0.1680, 0.9630, 0.0200, 1.6399, -0.0177, //
            1.8168, -0.1839, 0.9308, 0.0261, 1.6650, -0.0233,
        ],
    );
    let mixture = Tensor::new(&[2, 2], vec![0.0483, 0.9517, 0.0202, 0.9798]);
    let mixed = product(&mixture, &printed, 1.0)?;
    let error = mixed.data.iter().zip(&padding_rows.data).map(|(a, b)| (a - b).abs());
    let largest = error.fold(0.0, f32::max);
    page.property(
        "the printed rows of padding, 4 and 5 of sentence 1, mix rows 2 and 3: the mask acts",
        largest < 3e-4,
        format!("0.0483 and 0.9517, 0.0202 and 0.9798; largest difference {largest:.5}"),
    );
    page.not_recomputable(
        "the printed result, 10 rows of which 6 columns are shown",
        "the embedding table is random and not printed",
    );
    Ok(())
}

fn multi_head(page: &mut Page) -> Result<(), Failure> {
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
    let everything = Tensor::from_fn(4, 4, |_, _| 1.0);
    let all = attend(&split(&q), &split(&k), &split(&v), &everything, 0.125, FullyMasked::Zeros)?;
    let mut alone = Vec::new();
    let mut same = true;
    for head in 0..HEADS {
        let part = |w: &Tensor| Tensor::from_fn(D_MODEL, width, |i, j| w.get(i, head * width + j));
        let mut one = Vec::new();
        for w in [&wq, &wk, &wv] {
            one.push(product(&x, &part(w), 1.0)?.reshaped(&[1, 4, width]));
        }
        let attended = attend(&one[0], &one[1], &one[2], &everything, 0.125, FullyMasked::Zeros)?;
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
            "largest mean {:.1e}, largest deviation of the square {:.1e}, by layer_norm()",
            worst.0, worst.1
        ),
    );
    page.not_recomputable(
        "the printed result of multi-head attention",
        "embeddings and weights are random and not printed",
    );
    page.section(
        "3.6.2",
        "Maps of 8 heads (figures 3-25 and 3-26)",
        "`documents --pictures DIR` draws the maps of all heads for both sentences of section 3.4.",
    );
    let weights = padded_heads()?;
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
