//! Document 002: notes on position embeddings, the three masks, and the decoder's attention.

use crate::Failure;
use crate::compute::{
    Lengths, attend, embedded, position_table, product, random, softmax_error, softmax_rows,
};
use crate::page::{Computed, Page, Printed};
use crate::tensor::{Tensor, words};
use serde_json::Value;
use simdformer::config::{Activation, Config, NormPlacement};
use simdformer::kernels::softmax::FullyMasked;

/// The notes' `max_position_len` and `model_dim`.
const POSITIONS: usize = 5;
const MODEL_DIM: usize = 8;

/// What the notes write over a masked score.
const FILL: f32 = -1e9;

pub(crate) fn page(printed: &Value) -> Result<Page, Failure> {
    let read = |name: &str| Tensor::of(printed, name);
    let lengths = |name: &str| -> Result<Vec<usize>, Failure> {
        let lengths = read(name)?;
        // The notes pad both batches to 4 tokens.
        let longest = lengths.data.iter().copied().fold(0.0, f32::max);
        if longest != 4.0 || lengths.data.iter().any(|&n| n < 1.0) {
            return Err(format!("{name}: expected 1 to 4, found {:?}", lengths.data).into());
        }
        Ok(lengths.data.iter().map(|&n| n as usize).collect())
    };
    let (source, target) = (lengths("source_lengths")?, lengths("target_lengths")?);
    let mut page = Page::new(
        "Document 002: positions, masks and the decoder",
        "A batch of two pairs: source lengths 2 and 4, target lengths 4 and 3, embeddings of 8 numbers. The notes build\n\
         matrices of booleans from the lengths. simdformer's kernels read the lengths themselves and a causal flag: its masks\n\
         on this page are the keys to which attention() gives a weight, for scores of 0.",
    );
    page.say("In the notes' masks 1 and True mean opposite things: 1 marks a valid pair, True a pair to be masked.");

    padding_and_embedding(&mut page, &source, &target)?;
    positions(&mut page)?;

    page.section(
        "Step 4",
        "The encoder's self-attention mask",
        "A pair is valid if both tokens are.",
    );
    let encoder = mask(&source, &source, false)?;
    compare_masks(
        &mut page,
        "True where masked",
        &read("encoder_masked")?,
        &inverted(&encoder),
        "attention(), lengths",
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
    let cross = mask(&target, &source, false)?;
    valid_vectors(&mut page, &read("source_valid")?, &read("target_valid")?, [&source, &target])?;
    compare_masks(
        &mut page,
        "1 where valid",
        &read("cross_valid")?,
        &cross,
        "attention(), lengths",
    );
    compare_masks(
        &mut page,
        "True where masked",
        &read("cross_masked")?,
        &inverted(&cross),
        "attention(), lengths",
    );

    page.section(
        "Step 6",
        "The decoder's self-attention mask",
        "A lower triangle: position i sees 0 to i. Training then sees what decoding sees. The notes shift the decoder's\n\
         input to the left; in the paper and in simdformer the input is the output shifted right by the start token.",
    );
    let decoder = mask(&target, &target, true)?;
    // Padded to `rows` and `columns`.
    let triangle = |length: usize, rows: usize, columns: usize| -> Result<Tensor, Failure> {
        let tokens = [length, length];
        Lengths { padded: [rows, columns], tokens, padding_sees: 0, causal: true }.mask()
    };
    let (first, second) = (target[0], target[1]);
    let joined = [triangle(first, 4, 4)?.data, triangle(second, 4, 4)?.data].concat();
    let joined = Tensor::new(&[8, 4], joined);
    for (name, printed, ours) in [
        ("torch.tril of the first length", "triangle_1", triangle(first, first, first)?),
        ("torch.tril of the second length", "triangle_2", triangle(second, second, second)?),
        (
            "the second one, padded with a row",
            "triangle_2_rows_padded",
            triangle(second, 4, second)?,
        ),
        (
            "both, padded with rows and columns, one below the other (before unsqueeze)",
            "triangles_concatenated",
            joined,
        ),
    ] {
        page.compare(
            name,
            Printed::exact(&read(printed)?, 0),
            &ours.into(),
            "attention(), lengths and the causal flag",
        );
    }
    page.compare_text(
        "the shape after unsqueeze",
        "[2, 4, 4]",
        &format!("{:?}", decoder.shape),
        "attention(), lengths and the causal flag",
    );
    compare_masks(
        &mut page,
        "1 where valid",
        &read("decoder_valid")?,
        &decoder,
        "attention(), lengths and the causal flag",
    );
    compare_masks(
        &mut page,
        "True where masked",
        &read("decoder_masked")?,
        &inverted(&decoder),
        "attention(), lengths and the causal flag",
    );
    decoder_probabilities(&mut page, &read("decoder_probabilities")?, &decoder)?;

    scaled_dot_product(&mut page)?;
    defaults(&mut page, printed)?;
    conventions(&mut page)?;
    Ok(page)
}

fn padding_and_embedding(
    page: &mut Page,
    source: &[usize],
    target: &[usize],
) -> Result<(), Failure> {
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

    page.section(
        "Step 2",
        "Word embedding: a row of a table for each id",
        "max_num_src_words + 1 = 9 rows of 8 numbers.",
    );
    let mut seed = 2;
    let table =
        Tensor::new(&[9, MODEL_DIM], (0..9 * MODEL_DIM).map(|_| random(&mut seed)).collect());
    let ids = [3, 0, 8];
    let ours = embedded(&table, &ids)?;
    page.show("the rows of the ids 3, 0 and 8 of a random table [9, 8], by embed()", &ours, 4);
    // One-hot rows times the table: another way to look up, by another kernel.
    let one_hot = Tensor::from_fn(3, 9, |i, j| f32::from(u8::from(ids[i] as usize == j)));
    page.property(
        "the embedding of ids is the product of their one-hot rows [3, 9] and the table [9, 8], bit by bit",
        ours == product(&one_hot, &table, 1.0)?,
        "by embed() and gemm_unpacked(); the table of the notes is random and not printed",
    );
    Ok(())
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
    // Position 1 has the angles 1 / i_mat: their sines and cosines give i_mat.
    let measured = Tensor::from_fn(1, MODEL_DIM / 2, |_, k| {
        let (sin, cos) = (f64::from(table.get(1, 2 * k)), f64::from(table.get(1, 2 * k + 1)));
        (1.0 / sin.atan2(cos)) as f32
    });
    page.compare(
        "i_mat = 10000^(2i/8), by hand 1 10 100 1000",
        Printed::by_hand(&Tensor::new(&[1, 4], vec![1.0, 10.0, 100.0, 1000.0]), 3),
        // An f32 sine has 24 bits.
        &Computed {
            error: measured.data.iter().map(|x| f64::from(*x) * 1e-6).collect(),
            numbers: measured,
        },
        "position::encode(Interleaved), by its sine and cosine at position 1",
    );
    page.compare(
        "the table of 5 positions, in f64",
        Printed::formula(&formula, 4),
        &table.clone().into(),
        "position::encode(Interleaved)",
    );

    page.section(
        "Proof",
        "A shift of the position is a rotation: PE(t + phi) = M(phi, k) PE(t)",
        "M(phi, k) = [cos(w phi), sin(w phi); -sin(w phi), cos(w phi)] with w = 1 / 10000^(2k/d). M does not depend on t.",
    );
    let long = position_table(2000, MODEL_DIM)?;
    let shift = 3;
    for k in 0..MODEL_DIM / 2 {
        let (sin, cos) = (shift as f64 / 10f64.powi(k as i32)).sin_cos();
        let [at, to] = [2, 2 + shift].map(|t| (long.get(t, 2 * k), long.get(t, 2 * k + 1)));
        let (s, c) = (f64::from(at.0), f64::from(at.1));
        page.say(format!(
            "  M(3, {k}) = [{cos:.4} {sin:.4}; {:.4} {cos:.4}], PE(2) = [{:.4} {:.4}], M PE(2) = [{:.4} {:.4}], PE(5) = [{:.4} {:.4}]",
            -sin, at.0, at.1, cos * s + sin * c, cos * c - sin * s, to.0, to.1
        ));
    }
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

/// `[sentences, queries, keys]`: 1 where attention() gives a key a weight. A padding query sees no key.
pub(crate) fn mask(queries: &[usize], keys: &[usize], causal: bool) -> Result<Tensor, Failure> {
    let longest = |lengths: &[usize]| lengths.iter().copied().max().unwrap_or(0);
    let padded = [longest(queries), longest(keys)];
    let mut data = Vec::new();
    for (&query_len, &key_len) in queries.iter().zip(keys) {
        let lengths = Lengths { padded, tokens: [query_len, key_len], padding_sees: 0, causal };
        data.extend(lengths.mask()?.data);
    }
    Ok(Tensor::new(&[queries.len(), padded[0], padded[1]], data))
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
         over the masked ones. The softmax starts from the second form. A query that sees nothing is uniform under -1e9; simdformer\n\
         does this with FullyMasked::Uniform and gives zeros by default. The loss ignores such rows.",
    );
    for sentence in 0..2 {
        let name = |what: &str| format!("{what}, sentence {}", sentence + 1);
        let (scores, masked, mask) = (scores.at(sentence), masked.at(sentence), mask.at(sentence));
        page.show(&name("scores, printed"), &scores, 4);
        page.show(&name("scores with -1e9 over masked ones, printed"), &masked, 4);
        let seen: Vec<usize> = (0..16).filter(|&at| mask.data[at] != 0.0).collect();
        let visible_of =
            |x: &Tensor| Tensor::new(&[1, seen.len()], seen.iter().map(|&at| x.data[at]).collect());
        // Half of the fifth significant digit, and half of the fourth one after the point.
        let rounding: Vec<f64> = visible_of(&masked)
            .data
            .iter()
            .map(|x| 0.5e-4 * f64::from(x.abs().max(0.1)).min(1.0) + 0.5e-4 + 1e-6)
            .collect();
        page.printed_twice_within(
            &name("the visible scores are those above, within the printed digits"),
            &visible_of(&scores),
            &visible_of(&masked),
            &rounding,
        );
        page.property(
            &name("-1e9 stands where attention() gives no weight, and nowhere else"),
            masked.data.iter().zip(&mask.data).all(|(&x, &m)| (x == FILL) == (m == 0.0)),
            format!("{} of 16 scores are masked", 16 - seen.len()),
        );
        let unseen: Vec<f32> =
            (0..16).filter(|&at| mask.data[at] == 0.0).map(|at| scores.data[at]).collect();
        if !unseen.is_empty() {
            page.shown(
                &name("the scores below the mask"),
                &Tensor::new(&[1, unseen.len()], unseen),
                4,
                146_075,
                "they are random, and the mask removes them",
            );
        }
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
        "\nThe scores of the decoder are random and not printed, so the probabilities cannot be computed again.",
    );
    for sentence in 0..2 {
        let (printed, mask) = (probabilities.at(sentence), mask.at(sentence));
        page.show(&format!("probabilities, printed, sentence {}", sentence + 1), &printed, 4);
        let seen = visible(&mask);
        let zeros = Tensor::from_fn(4, 4, |_, _| 0.0);
        let uniform = softmax_rows(&zeros, Some(&seen), FullyMasked::Uniform)?;
        let masked = |i: usize| match seen[i] {
            0 => printed.row(i) == uniform.row(i),
            _ => printed.row(i).iter().zip(mask.row(i)).all(|(&p, &m)| (p == 0.0) == (m == 0.0)),
        };
        let deviation = |i: usize| (printed.row(i).iter().sum::<f32>() - 1.0).abs();
        let worst = f64::from((0..4).map(deviation).fold(0.0, f32::max));
        // Four roundings.
        page.property(
            &format!(
                "probabilities, sentence {}: rows add up to 1, what attention() masks is 0, a row that sees nothing is uniform",
                sentence + 1
            ),
            worst <= 4.0 * 0.5e-4 + 1e-6 && (0..4).all(masked),
            format!("largest deviation of a sum {worst:.1e}"),
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
    let lengths = Lengths { causal: true, ..Lengths::of(tokens, tokens) };
    let mask = lengths.mask()?;
    let scale = 1.0 / (d as f32).sqrt();
    let ours = attend(&q, &k, &v, &lengths, scale)?;
    let [q1, k1, v1] = [&q, &k, &v].map(|x| x.at(0));
    for (name, x) in [("Q", &q1), ("K^T", &k1.transposed()), ("V", &v1)] {
        page.show(&format!("{name} of the first head, random"), x, 4);
    }
    let in_f64 = |x: &Tensor, y: &Tensor, i: usize, j: usize| -> f64 {
        (0..x.columns()).map(|k| f64::from(x.get(i, k)) * f64::from(y.get(k, j))).sum()
    };
    let formula = Tensor::from_fn(tokens, tokens, |i, j| {
        (in_f64(&q1, &k1.transposed(), i, j) * f64::from(scale)) as f32
    });
    page.compare(
        "score = Q K^T / sqrt(4)",
        Printed::formula(&formula, 4),
        &product(&q1, &k1.transposed(), scale)?.into(),
        "gemm_unpacked(Q, K^T)",
    );
    let fill = Tensor::from_fn(tokens, tokens, |i, j| {
        if mask.get(i, j) == 0.0 { FILL } else { formula.get(i, j) }
    });
    page.show("masked_score", &fill, 4);
    let formula = Tensor::from_fn(tokens, tokens, |i, j| {
        let power = |j: usize| f64::from(fill.get(i, j)).exp();
        (power(j) / (0..tokens).map(power).sum::<f64>()) as f32
    });
    page.compare(
        "prob = softmax(masked_score)",
        Printed::formula(&formula, 4),
        &ours.weights.at(0).into(),
        "attention()",
    );
    let context = Tensor::from_fn(tokens, d, |i, j| in_f64(&formula, &v1, i, j) as f32);
    page.compare(
        "context = prob V",
        Printed::formula(&context, 4),
        &ours.context.at(0).into(),
        "attention()",
    );
    let worst = ours.from_reference;
    page.property(
        "the flash attention kernel gives what the readable reference of the same function gives in f64, on random numbers",
        worst < 1e-6,
        format!("2 heads, 4 tokens, causal: largest difference {worst:.1e}, by attention() and reference::attention()"),
    );
    Ok(())
}

/// The notes' vectors of valid positions and their product, the mask of cross-attention.
fn valid_vectors(
    page: &mut Page,
    source: &Tensor,
    target: &Tensor,
    lengths: [&[usize]; 2],
) -> Result<(), Failure> {
    for (name, printed, lengths) in
        [("valid_encoder_pos", source, lengths[0]), ("valid_decoder_pos", target, lengths[1])]
    {
        let mut ours = Vec::new();
        for &length in lengths {
            ours.extend(Lengths { tokens: [1, length], ..Lengths::of(1, 4) }.mask()?.data);
        }
        let ours = Tensor::new(&[2, 4], ours);
        page.compare(
            &format!("{name} [2, 4, 1], a sentence in a row"),
            Printed::exact(printed, 0),
            &ours.into(),
            "attention(), lengths",
        );
    }
    let mut products = Vec::new();
    for sentence in 0..2 {
        let [target, source] = [target, source].map(|x| x.row(sentence).to_vec());
        products.extend(
            product(&Tensor::new(&[4, 1], target), &Tensor::new(&[1, 4], source), 1.0)?.data,
        );
    }
    let ours = mask(lengths[1], lengths[0], false)?;
    page.property(
        "bmm of [2, 4, 1] and [2, 1, 4] is the mask [2, 4, 4]",
        Tensor::new(&[2, 4, 4], products) == ours,
        "valid_decoder_pos times valid_encoder_pos transposed, by gemm_unpacked()",
    );
    Ok(())
}

fn defaults(page: &mut Page, printed: &Value) -> Result<(), Failure> {
    page.section(
        "torch",
        "The arguments of nn.Transformer",
        "14 arguments have a default. Those that a model has here have the values of the paper's base model, `Config::base`. The\n\
         others have no counterpart: dropout is a matter of training (`train --dropout`), a batch is always sentence by sentence\n\
         and without padding, other stacks are other configurations, the device is the CPU, and each matrix has its dtype.",
    );
    let config = Config::base(10);
    let layers = config.decoder.as_ref().map_or(0, |decoder| decoder.layers);
    let relu = config.activation == Activation::Relu;
    let ours = [
        ("d_model", config.d_model.to_string()),
        ("nhead", config.encoder.heads.to_string()),
        ("num_encoder_layers", config.encoder.layers.to_string()),
        ("num_decoder_layers", layers.to_string()),
        ("dim_feedforward", config.encoder.ffn_dim.to_string()),
        ("activation", if relu { "relu" } else { "other" }.to_owned()),
        ("layer_norm_eps", format!("{:e}", config.layer_norm_eps)),
        ("norm_first", if config.norm == NormPlacement::Pre { "True" } else { "False" }.to_owned()),
    ];
    let mut printed = words(printed, "defaults").concat();
    for (name, ours) in ours {
        let of_name = |text: &String| text.split('=').next() == Some(name);
        let at = printed.iter().position(of_name);
        let document = printed.remove(at.ok_or_else(|| format!("defaults: {name} is missing"))?);
        page.compare_text("default", &document, &format!("{name}={ours}"), "Config::base()");
    }
    page.shown_words(
        "arguments without a counterpart",
        &printed,
        412_109,
        "a model has no such setting",
    );
    Ok(())
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
