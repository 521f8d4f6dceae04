//! Document 003: slides on the whole Transformer, its training and its decoding strategies.

use crate::Failure;
use crate::compute::{Lengths, attend, normalized, position_table, product, random, softmax_rows};
use crate::decoding;
use crate::page::{Computed, Page, Printed};
use crate::tensor::{Tensor, words};
use serde_json::Value;
use simdformer::checkpoint::TensorId;
use simdformer::config::{Config, Dimensions};
use simdformer::kernels::softmax::FullyMasked;

pub(crate) fn page(data: &Value) -> Result<Page, Failure> {
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
    self_attention(&mut page, data)?;
    padding(&mut page, data)?;
    add_and_norm(&mut page)?;
    training(&mut page, data)?;
    decoding::decoding(&mut page, data)?;
    decoding::filters(&mut page, data)?;
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
        &format!("T for i = {chosen:?}"),
        Printed::formula(&expected, 2),
        &Computed { numbers: measured, error },
        "position::encode(Interleaved), by its sine and cosine at position 1",
    );
    Ok(())
}

fn self_attention(page: &mut Page, data: &Value) -> Result<(), Failure> {
    page.section(
        "Self-attention",
        "Six steps: Q, K, V; Q K^T; divide by sqrt(d_k); softmax; times V; sum",
        "A figure uses the inputs 1 0 1 0, 0 2 0 2 and 1 1 1 1; its weights are not in the document.",
    );
    page.not_recomputable(
        "the figure's keys, values and outputs",
        "the weights W_Q, W_K and W_V are not in the document",
    );
    let x = Tensor::of(data, "inputs")?;
    page.show("X, the inputs of the figure", &x, 0);
    let mut seed = 30;
    let mut weight = || Tensor::new(&[4, 3], (0..12).map(|_| random(&mut seed)).collect());
    let (wq, wk, wv) = (weight(), weight(), weight());
    page.say("\nStep 1: Q = X W_Q, K = X W_K, V = X W_V, with random W [4, 3]");
    let mut made = Vec::new();
    for (letter, w) in [("Q", &wq), ("K", &wk), ("V", &wv)] {
        page.show(&format!("W_{letter}"), w, 4);
        let y = product(&x, w, 1.0)?;
        page.show(letter, &y, 4);
        made.push(y);
    }
    let [q, k, v] = [0, 1, 2].map(|i| &made[i]);
    // Input 3 is input 1 and half of input 2.
    let third = |y: &Tensor| -> f32 {
        let difference = |j: usize| (y.get(2, j) - y.get(0, j) - 0.5 * y.get(1, j)).abs();
        (0..y.columns()).map(difference).fold(0.0, f32::max)
    };
    let worst = made.iter().map(third).fold(third(&x), f32::max);
    page.property(
        "input 3 = input 1 + input 2 / 2, so q3 = q1 + q2 / 2, and the same of k and v",
        worst < 1e-6,
        format!("largest difference {worst:.1e}"),
    );
    page.say("Step 2: the scores Q K^T");
    let scores = product(q, &k.transposed(), 1.0)?;
    page.show("Q K^T", &scores, 4);
    let scale = 1.0 / 3f32.sqrt();
    page.say("Step 3: divided by sqrt(3)");
    page.show("Q K^T / sqrt(3)", &scores.map(|x| x * scale), 4);
    page.say("Step 4: softmax");
    let weights = softmax_rows(&scores.map(|x| x * scale), None, FullyMasked::Zeros)?;
    page.show("weights", &weights, 4);
    page.say("Step 5: each value times its weight, for the first input");
    page.show("weighted values", &Tensor::from_fn(3, 3, |j, c| weights.get(0, j) * v.get(j, c)), 4);
    page.say("Step 6: their sum, for each input");
    let z = product(&weights, v, 1.0)?;
    let one = |x: &Tensor| x.reshaped(&[1, 3, 3]);
    let ours = attend(&one(q), &one(k), &one(v), &Lengths::of(3, 3), scale)?;
    page.show("Z", &ours.context.at(0), 4);
    let apart = |a: &Tensor, b: &Tensor| {
        a.data.iter().zip(&b.data).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    };
    let steps = apart(&z, &ours.context.at(0)).max(apart(&weights, &ours.weights.at(0)));
    page.property(
        "the six steps, one kernel each, give the weights and the context of attention()",
        steps < 1e-6,
        format!("largest difference {steps:.1e}; X [3, 4], W [4, 3], Z [3, 3]"),
    );
    page.property(
        "and so do the six steps in f64",
        ours.from_reference < 1e-6,
        format!("largest difference {:.1e}, by reference::attention()", ours.from_reference),
    );
    Ok(())
}

fn padding(page: &mut Page, data: &Value) -> Result<(), Failure> {
    page.section(
        "Padding",
        "Four titles of 2, 5, 3 and 5 words, padded to 5",
        "1 marks padding, and becomes minus infinity.",
    );
    let titles = words(data, "titles").concat();
    let lengths: Vec<usize> = titles.iter().map(|title| title.split(' ').count()).collect();
    page.shown_words("the titles", &titles, 360_403, "any words would do; their numbers follow");
    let printed = Tensor::of(data, "lengths")?;
    let printed: Vec<String> = printed.data.iter().map(f32::to_string).collect();
    page.compare_text(
        "words",
        &printed.join(" "),
        &lengths.iter().map(usize::to_string).collect::<Vec<_>>().join(" "),
        "split(' ')",
    );
    let printed = Tensor::of(data, "padding_mask")?;
    let mut ours = Vec::new();
    for &length in &lengths {
        // Titles longer than 5 words do not fit; the row of the lengths says so.
        let lengths = Lengths { tokens: [1, length.min(5)], ..Lengths::of(1, 5) };
        ours.extend(lengths.mask()?.map(|sees| 1.0 - sees).data);
    }
    page.compare(
        "padding mask",
        Printed::exact(&printed, 0),
        &Tensor::new(&[4, 5], ours).into(),
        "attention(), lengths",
    );
    let minus = Tensor::of(data, "added")?;
    page.show("what is added to scores, printed", &minus, 0);
    let expected =
        Tensor::from_fn(4, 5, |i, j| if j < lengths[i] { 1.0 / lengths[i] as f32 } else { 0.0 });
    let by_length =
        softmax_rows(&Tensor::from_fn(4, 5, |_, _| 0.0), Some(&lengths), FullyMasked::Zeros)?;
    // Scores of 0, to which the printed numbers are added.
    let by_minus = softmax_rows(&minus, None, FullyMasked::Zeros)?;
    page.property(
        "e^0 = 1 and e^-inf = 0: scores of 0 share the weight among the words, and padding gets exactly 0",
        by_length == expected && by_minus == expected,
        format!("first title {:?}, by lengths and by the printed numbers", by_length.row(0)),
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
        "LayerNorm of 1 2 3 6: mean 3, variance 3.5, -2/1.8708 -1/1.8708 0 3/1.8708",
        Printed::by_hand(&expected, 4),
        &normalized(&x)?.into(),
        "norm()",
    );
    page.say("A whole model, block by block: `cargo run --release --example navigate`.");
    Ok(())
}

fn training(page: &mut Page, data: &Value) -> Result<(), Failure> {
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
    let vocabulary = words(data, "words").concat();
    let wanted: Vec<String> =
        words(data, "wanted").concat().into_iter().chain(["<eos>".to_owned()]).collect();
    page.shown_words(
        "the vocabulary",
        &vocabulary,
        34_853,
        "any words would do; their indices follow",
    );
    let indices = Tensor::of(data, "indices")?;
    page.show(&format!("WORD {}, INDEX", vocabulary.join(" ")), &indices.reshaped(&[1, 6]), 0);
    page.property(
        "the index of a word is its place",
        indices.data.iter().enumerate().all(|(place, &index)| index == place as f32),
        format!("{} words", vocabulary.len()),
    );
    page.shown_words("the sentence", &wanted, 18_910, "any sentence of these words would do");
    let id = |word: &String| vocabulary.iter().position(|known| known == word);
    let ids: Option<Vec<usize>> = wanted.iter().map(id).collect();
    let ids = ids.ok_or_else(|| format!("{wanted:?}: a word is not in the vocabulary"))?;
    let targets = Tensor::from_fn(ids.len(), 6, |i, j| f32::from(u8::from(ids[i] == j)));
    page.show(&format!("target rows: {}", wanted.join(", ")), &targets, 0);
    page.say("`cargo run --release --example navigate -- --training` trains on these words.");
    page.not_recomputable("trained model outputs", "the figure prints no numbers");
    Ok(())
}
