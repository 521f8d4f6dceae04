//! Document 002: notes on position embeddings, the three masks, and the decoder's attention.

use crate::Failure;
use crate::compute::{attend, position_table, random, softmax_error, softmax_rows};
use crate::page::{Computed, Page, Printed};
use crate::tensor::Tensor;
use serde_json::Value;
use simdformer::config::{Activation, Config, NormPlacement};
use simdformer::kernels::softmax::FullyMasked;

const POSITIONS: usize = 5;
const MODEL_DIM: usize = 8;

/// What the notes write over a masked score.
const FILL: f32 = -1e9;

pub(crate) fn page() -> Result<Page, Failure> {
    let printed: Value = serde_json::from_str(include_str!("data/decoder.json"))?;
    let read = |name: &str| Tensor::read(&printed[name]);
    let lengths = |name: &str| -> Result<Vec<usize>, Failure> {
        Ok(read(name)?.data.iter().map(|&n| n as usize).collect())
    };
    let (source, target) = (lengths("source_lengths")?, lengths("target_lengths")?);
    let mut page = Page::new(
        "Document 002: positions, masks and the decoder",
        "A batch of two pairs: source lengths 2 and 4, target lengths 4 and 3, embeddings of 8 numbers. The notes build\n\
         matrices of booleans from the lengths. simdformer's kernels read the lengths themselves and a causal flag.",
    );
    page.say("In the notes' masks 1 and True mean opposite things: 1 marks a valid pair, True a pair to be masked.");

    padding_and_embedding(&mut page, &source, &target);
    positions(&mut page)?;

    page.section(
        "Step 4",
        "The encoder's self-attention mask",
        "A pair is valid if both tokens are.",
    );
    let encoder = mask(&source, &source, false);
    compare_masks(
        &mut page,
        "True where masked",
        &read("encoder_masked")?,
        &inverted(&encoder),
        "lengths",
    );
    masked_softmax(
        &mut page,
        &read("scores")?,
        &read("masked_scores")?,
        &read("probabilities")?,
        &encoder,
    )?;

    page.section(
        "Step 5",
        "The mask of cross-attention (the notes call it intra-attention)",
        "Queries are target tokens, keys are source tokens.",
    );
    let cross = mask(&target, &source, false);
    compare_masks(&mut page, "1 where valid", &read("cross_valid")?, &cross, "lengths");
    compare_masks(
        &mut page,
        "True where masked",
        &read("cross_masked")?,
        &inverted(&cross),
        "lengths",
    );

    page.section(
        "Step 6",
        "The decoder's self-attention mask",
        "A lower triangle: position i sees 0 to i. Training then sees what decoding sees. The notes shift the decoder's\n\
         input to the left; in the paper and in simdformer the input is the output shifted right by the start token.",
    );
    let decoder = mask(&target, &target, true);
    compare_masks(
        &mut page,
        "1 where valid",
        &read("decoder_valid")?,
        &decoder,
        "lengths and the causal flag",
    );
    compare_masks(
        &mut page,
        "True where masked",
        &read("decoder_masked")?,
        &inverted(&decoder),
        "lengths and the causal flag",
    );
    decoder_probabilities(&mut page, &read("decoder_probabilities")?, &decoder)?;

    scaled_dot_product(&mut page)?;
    defaults(&mut page);
    conventions(&mut page)?;
    Ok(page)
}

fn padding_and_embedding(page: &mut Page, source: &[usize], target: &[usize]) {
    page.section("Step 1", "Sentences of ids, padded with 0 to the longest", "");
    let pad = |lengths: &[usize]| {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        Tensor::from_fn(lengths.len(), longest, |i, j| f32::from(u8::from(j < lengths[i])))
    };
    page.show("source, 1 where there is a token", &pad(source), 0);
    page.show("target, 1 where there is a token", &pad(target), 0);
    page.not_recomputable(
        "the ids themselves",
        "torch.randint draws them and the notes do not print them",
    );

    page.section("Step 2", "Word embedding: a row of a table for each id", "");
    let table = Tensor::from_fn(9, MODEL_DIM, |i, j| (i * MODEL_DIM + j) as f32);
    let ids = [3, 0, 8];
    let rows: Vec<f32> = ids.iter().flat_map(|&id| table.row(id)).copied().collect();
    page.property(
        "the embedding of an id is its row of the table [9, 8]",
        rows[..MODEL_DIM] == *table.row(3) && rows[MODEL_DIM..2 * MODEL_DIM] == *table.row(0),
        "the table of the notes is random and not printed",
    );
}

fn positions(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "Step 3",
        "Position embedding: sine in even columns, cosine in odd ones",
        "PE[pos, 2i] = sin(pos / 10000^(2i/d)), PE[pos, 2i+1] = cos(pos / 10000^(2i/d)), for 5 positions and d = 8. A\n\
         handwritten formula in the notes has 2(i+1) in the exponent of the cosine; their code and the paper have 2i.",
    );
    let table = position_table(POSITIONS, MODEL_DIM)?;
    let formula = Tensor::from_fn(POSITIONS, MODEL_DIM, |pos, column| {
        let exponent = (column / 2 * 2) as f64 / MODEL_DIM as f64;
        let angle = pos as f64 / 10_000f64.powf(exponent);
        if column % 2 == 0 { angle.sin() as f32 } else { angle.cos() as f32 }
    });
    page.compare(
        "the table of 5 positions (document: its formula in f64)",
        Printed::exact(&formula, 4),
        &table.clone().into(),
        "position::encode(Interleaved)",
    );

    page.section(
        "Proof",
        "A shift of the position is a rotation: PE(t + phi) = M(phi, k) PE(t)",
        "M(phi, k) = [cos(w phi), sin(w phi); -sin(w phi), cos(w phi)] with w = 1 / 10000^(2k/d). M does not depend on t.",
    );
    let long = position_table(2000, MODEL_DIM)?;
    let mut worst: f64 = 0.0;
    for phi in [1usize, 2, 3, 4, 100, 1000] {
        for t in [0usize, 1, 2, 17, 999] {
            for k in 0..MODEL_DIM / 2 {
                let angle = phi as f64 / 10_000f64.powf(2.0 * k as f64 / MODEL_DIM as f64);
                let (sin, cos) = angle.sin_cos();
                let at = |row: usize| {
                    (f64::from(long.get(row, 2 * k)), f64::from(long.get(row, 2 * k + 1)))
                };
                let ((s, c), (s2, c2)) = (at(t), at(t + phi));
                worst =
                    worst.max((cos * s + sin * c - s2).abs()).max((cos * c - sin * s - c2).abs());
            }
        }
    }
    page.property(
        "rotated rows are the rows of later positions, for 6 shifts, 5 positions and 4 frequencies",
        worst < 1e-6,
        format!(
            "largest difference {worst:.1e}; position 1999 needs no table of 2,000 trained rows"
        ),
    );
    Ok(())
}

/// `[sentences, queries, keys]`: 1 where query and key are tokens, and with `causal` the key is not later.
pub(crate) fn mask(queries: &[usize], keys: &[usize], causal: bool) -> Tensor {
    let longest = |lengths: &[usize]| lengths.iter().copied().max().unwrap_or(0);
    let (rows, columns) = (longest(queries), longest(keys));
    let mut data = Vec::new();
    for (&query_len, &key_len) in queries.iter().zip(keys) {
        for i in 0..rows {
            let valid = |j: usize| i < query_len && j < key_len && (!causal || j <= i);
            data.extend((0..columns).map(|j| f32::from(u8::from(valid(j)))));
        }
    }
    Tensor::new(&[queries.len(), rows, columns], data)
}

fn inverted(mask: &Tensor) -> Tensor {
    mask.map(|m| 1.0 - m)
}

fn compare_masks(page: &mut Page, name: &str, printed: &Tensor, ours: &Tensor, by: &str) {
    for sentence in 0..printed.shape[0] {
        page.compare(
            &format!("{name}, sentence {}", sentence + 1),
            Printed::exact(&printed.at(sentence), 0),
            &ours.at(sentence).into(),
            by,
        );
    }
}

/// How many keys a query may see. The masks of this page are prefixes of the keys.
fn visible(mask: &Tensor) -> Vec<usize> {
    (0..mask.rows()).map(|i| mask.row(i).iter().filter(|&&m| m != 0.0).count()).collect()
}

fn masked_softmax(
    page: &mut Page,
    scores: &Tensor,
    masked: &Tensor,
    probabilities: &Tensor,
    mask: &Tensor,
) -> Result<(), Failure> {
    page.say(
        "\nThe scores are random and printed: first with 4 digits after the point, then with 5 significant digits and -1e9\n\
         over the masked ones. Ours start from the second form. A query that sees nothing is uniform under -1e9; simdformer\n\
         does this with FullyMasked::Uniform and gives zeros by default. The loss ignores such rows.",
    );
    for sentence in 0..2 {
        let name = |what: &str| format!("{what}, sentence {}", sentence + 1);
        let (scores, masked, mask) = (scores.at(sentence), masked.at(sentence), mask.at(sentence));
        // Five significant digits: the first form is the second one, rounded.
        let first = Tensor::from_fn(4, 4, |i, j| {
            if mask.get(i, j) == 0.0 { scores.get(i, j) } else { masked.get(i, j) }
        });
        let five_digits =
            first.data.iter().map(|&x| 0.5e-4 * f64::from(x.abs().max(0.1)) + 1e-6).collect();
        page.compare(
            &name("scores (masked ones are printed once)"),
            Printed::rounded(&scores, 4),
            &Computed { numbers: first, error: five_digits },
            "the printed masked scores",
        );
        let filled =
            Tensor::from_fn(
                4,
                4,
                |i, j| if mask.get(i, j) == 0.0 { FILL } else { masked.get(i, j) },
            );
        page.compare(
            &name("scores with -1e9 over masked ones"),
            Printed::exact(&masked, 5),
            &filled.into(),
            "the mask",
        );
        let ours = softmax_rows(&masked, Some(&visible(&mask)), FullyMasked::Uniform)?;
        page.compare(
            &name("probabilities"),
            Printed::rounded(&probabilities.at(sentence), 4),
            &softmax_error(ours, 0.5e-4 * 3.0),
            "softmax() with lengths",
        );
    }
    Ok(())
}

fn decoder_probabilities(
    page: &mut Page,
    probabilities: &Tensor,
    mask: &Tensor,
) -> Result<(), Failure> {
    page.say(
        "\nThe scores of the decoder are random and not printed. The logarithms of the printed probabilities are the scores\n\
         up to a constant of each row: their softmax under our mask must give the printed numbers again.",
    );
    for sentence in 0..2 {
        let (printed, mask) = (probabilities.at(sentence), mask.at(sentence));
        // A masked score can be anything: NaN shows that it is not read.
        let scores = Tensor::from_fn(4, 4, |i, j| {
            if mask.get(i, j) == 0.0 { f32::NAN } else { printed.get(i, j).ln() }
        });
        let ours = softmax_rows(&scores, Some(&visible(&mask)), FullyMasked::Uniform)?;
        // The printed numbers of a row add up to 1 within 4 roundings.
        page.compare(
            &format!("probabilities, sentence {}", sentence + 1),
            Printed::rounded(&printed, 4),
            &softmax_error(ours, 1e-4),
            "softmax() with lengths",
        );
    }
    Ok(())
}

fn scaled_dot_product(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "Step 7",
        "scaled_dot_product_attention(Q, K, V, mask)",
        "softmax(Q K^T / sqrt(d), masked) V. The notes divide by sqrt(model_dim); the paper and PyTorch divide by the square\n\
         root of the head's width, which is the same number for one head only.",
    );
    let (heads, tokens, d) = (2, 4, 4);
    let mut seed = 20;
    let mut noise = || -> Tensor {
        let data = (0..heads * tokens * d).map(|_| random(&mut seed)).collect();
        Tensor::new(&[heads, tokens, d], data)
    };
    let (q, k, v) = (noise(), noise(), noise());
    let mask = mask(&[4], &[4], true).at(0);
    let scale = 1.0 / (d as f32).sqrt();
    let ours = attend(&q, &k, &v, &mask, scale, FullyMasked::Zeros)?;
    let worst = ours.from_reference;
    page.property(
        "the flash attention kernel gives what the readable reference of the same function gives in f64, on random numbers",
        worst < 1e-6,
        format!("2 heads, 4 tokens, causal: largest difference {worst:.1e}, by attention() and reference::attention()"),
    );
    Ok(())
}

fn defaults(page: &mut Page) {
    page.section(
        "torch",
        "The arguments of nn.Transformer",
        "Its defaults are those of the paper's base model.",
    );
    let config = Config::base(10);
    let decoder = config.decoder;
    let ours = format!(
        "d_model={}, nhead={}, num_encoder_layers={}, num_decoder_layers={}, dim_feedforward={}, activation={}, \
         norm_first={}",
        config.d_model,
        config.encoder.heads,
        config.encoder.layers,
        decoder.as_ref().map_or(0, |decoder| decoder.layers),
        config.encoder.ffn_dim,
        if config.activation == Activation::Relu { "relu" } else { "other" },
        if config.norm == NormPlacement::Pre { "True" } else { "False" },
    );
    page.compare_text(
        "defaults",
        "d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048, activation=relu, \
         norm_first=False",
        &ours,
        "Config::base()",
    );
    page.compare_text(
        "layer_norm_eps=1e-5",
        "1e-5",
        &format!("{:e}", config.layer_norm_eps),
        "Config::base().layer_norm_eps",
    );
}

fn conventions(page: &mut Page) -> Result<(), Failure> {
    page.section(
        "Masks",
        "Three ways to mask a score",
        "Additive: 0 where valid, minus infinity where not (PyTorch's attn_mask; simdformer's Bias). Fill: -1e9 over masked\n\
         scores. The notes also name a multiplicative mask with 1 and minus infinity: it turns a positive score into minus\n\
         infinity and a negative one into plus infinity, so it is no mask for scores of both signs.",
    );
    let scores = Tensor::new(&[1, 3], vec![0.5, -1.0, 2.0]);
    let additive = Tensor::new(&[1, 3], vec![0.5, -1.0, f32::NEG_INFINITY]);
    let fill = Tensor::new(&[1, 3], vec![0.5, -1.0, FILL]);
    let by_length = softmax_rows(&scores, Some(&[2]), FullyMasked::Zeros)?;
    let by_addition = softmax_rows(&additive, None, FullyMasked::Zeros)?;
    let by_fill = softmax_rows(&fill, None, FullyMasked::Zeros)?;
    page.property(
        "lengths, an additive mask and a fill of -1e9 give the same bits",
        by_length == by_addition && by_length == by_fill,
        format!("{:?}", by_length.data),
    );
    Ok(())
}
