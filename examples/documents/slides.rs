//! Document 001: slides that derive self-attention from vectors to matrices, with small integers.

use crate::Failure;
use crate::compute::{Lengths, attend, position_table, product, random, softmax_rows};
use crate::page::{Page, Printed};
use crate::tensor::Tensor;
use serde_json::Value;
use simdformer::kernels::softmax::FullyMasked;

/// The slides print a token as a column; simdformer stores it as a row. `[tokens, d]` from the printed columns.
fn columns(data: &Value, name: &str) -> Result<Tensor, Failure> {
    Ok(Tensor::of(data, name)?.transposed())
}

pub(crate) fn page(data: &Value) -> Result<Page, Failure> {
    let mut page = Page::new(
        "Document 001: attention with vectors and matrices",
        "Convention. The slides write a token as a column: Q = Wq X, A = K^T Q, Y = V A'. simdformer writes it as a row, as\n\
         the paper does: Q = X Wq^T, scores = Q K^T, context = weights V. Each is the other one transposed: A is the\n\
         transpose of the scores, and the softmax runs over the columns of A, which are our rows.",
    );

    page.section("1", "The recurrent network that attention replaces", "");
    page.not_recomputable(
        "a<t> = g(Waa a<t-1> + Wax x<t> + ba)",
        "the slides print no numbers; recurrent networks are out of scope (docs/documents.md)",
    );

    page.section(
        "2",
        "Query, key and value as matrices: Q = Wq X",
        "Four tokens of 3 numbers; Wq has 2 rows.",
    );
    let x = columns(data, "x")?;
    let w_q = Tensor::of(data, "w_q")?;
    let expected = columns(data, "q")?;
    page.show("X, a token in a row", &x, 0);
    page.show("Wq", &w_q, 0);
    page.shown(
        "the second number of each token",
        &Tensor::new(&[1, 4], x.transposed().row(1).to_vec()),
        0,
        40,
        "both rows of Wq have a 0 there, so nothing follows from it",
    );
    let query = product(&x, &w_q.transposed(), 1.0)?;
    page.compare(
        "Q, one query in a row (the slides print one in a column)",
        Printed::exact(&expected, 0),
        &query.clone().into(),
        "gemm_unpacked(X, Wq^T)",
    );
    let mut one_by_one = Vec::new();
    for token in 0..4 {
        let x = Tensor::new(&[1, 3], x.row(token).to_vec());
        one_by_one.extend(product(&x, &w_q.transposed(), 1.0)?.data);
    }
    page.property(
        "q^i = Wq x^i, one vector at a time, gives the same bits as the matrix product",
        one_by_one.iter().zip(&query.data).all(|(a, b)| a.to_bits() == b.to_bits()),
        format!("4 products of one row: {one_by_one:?}"),
    );

    page.section(
        "3",
        "Scores: alpha_ij = q^i . k^j, as a matrix A = K^T Q",
        "The slides print the shapes 4 x 4 = (4 x 2)(2 x 4) and no numbers. Here the keys are the queries of section 2.",
    );
    let scores = product(&query, &query.transposed(), 1.0)?;
    page.show("scores = Q K^T, row i is query i", &scores, 0);
    let dots = Tensor::from_fn(4, 4, |i, j| {
        query.row(i).iter().zip(query.row(j)).map(|(a, b)| a * b).sum()
    });
    page.property(
        "each score is the dot product of its query and its key",
        scores == dots,
        "16 of 16 are equal",
    );

    page.section(
        "4",
        "Softmax: alpha'_12 = e^alpha_12 / (e^alpha_11 + e^alpha_12 + e^alpha_13 + e^alpha_14)",
        "",
    );
    let weights = softmax_rows(&scores, None, FullyMasked::Zeros)?;
    page.show("A' transposed, row i belongs to query i", &weights, 4);
    let formula = |i: usize, j: usize| -> f64 {
        let sum: f64 = scores.row(i).iter().map(|&s| f64::from(s).exp()).sum();
        f64::from(scores.get(i, j)).exp() / sum
    };
    let error = (0..16)
        .map(|at| (f64::from(weights.get(at / 4, at % 4)) - formula(at / 4, at % 4)).abs())
        .fold(0.0, f64::max);
    page.property(
        "every weight is what the formula gives in f64",
        error < 1e-6,
        format!("largest difference {error:.1e}"),
    );

    page.section(
        "5",
        "Output: Y = V A', y^2 = 0.1 v^1 + 0.2 v^2 + 0.3 v^3 + 0.4 v^4",
        "The slides choose A' by hand: its columns add up to 0.1, 1, 0.3 and 0.4, so no softmax makes them.",
    );
    let value = columns(data, "v")?;
    // Row i: the weights of output i.
    let weights = columns(data, "weights")?;
    let expected = columns(data, "y")?;
    page.show("V, a value in a row", &value, 0);
    page.show("A' transposed, the weights of an output in a row", &weights, 1);
    let output = product(&weights, &value, 1.0)?;
    page.compare(
        "y1 y2 y3 y4, one output in a row (the slides print one in a column)",
        Printed::exact(&expected, 1),
        &output.clone().into(),
        "gemm_unpacked(weights, V)",
    );
    let mut same = true;
    for outputs in [&[1][..], &[1, 2], &[1, 2, 3]] {
        let chosen = |x: &Tensor| {
            let rows = outputs.iter().flat_map(|&i| x.row(i)).copied().collect();
            Tensor::new(&[outputs.len(), x.columns()], rows)
        };
        same &= product(&chosen(&weights), &value, 1.0)? == chosen(&output);
    }
    page.property(
        "the slides build Y up: y2 alone, y2 y3, and y2 y3 y4 are rows of the whole, bit by bit",
        same,
        "three products of 1, 2 and 3 rows of weights",
    );
    let term = |j: usize| {
        let (w, v) = (weights.get(1, j), value.row(j));
        format!("{w} [{} {}]", v[0], v[1])
    };
    let terms: Vec<String> = (0..4).map(term).collect();
    page.say(format!(
        "  y2 = {} = [{} {}]",
        terms.join(" + "),
        expected.get(1, 0),
        expected.get(1, 1)
    ));

    page.section(
        "6",
        "A map of 800 x 800",
        "The slides show the softmax of a map of 800 x 800 as a picture. `documents --pictures DIR` draws ours.",
    );
    let tokens = 800;
    let x = position_table(tokens, 64)?;
    let map = attend(
        &x.reshaped(&[1, tokens, 64]),
        &x.reshaped(&[1, tokens, 64]),
        &x.reshaped(&[1, tokens, 64]),
        &Lengths::of(tokens, tokens),
        1.0,
    )?;
    let sums = map.weights.data.chunks(tokens).map(|row| (row.iter().sum::<f32>() - 1.0).abs());
    let worst = sums.fold(0.0, f32::max);
    page.property(
        "softmax(A) of 800 position vectors: every row adds up to 1",
        worst < 1e-5,
        format!("640,000 weights, largest deviation of a sum {worst:.1e}, by attention()"),
    );

    page.section(
        "7",
        "Positions: without them the order of the words is lost",
        "A sentence of 5 random vectors goes through self-attention, then the same vectors in another order.",
    );
    let [without, with] = [false, true].map(order_matters);
    let (without, with) = (without?, with?);
    page.property(
        "without positions the outputs are those of before, in the new order",
        without < 1e-6,
        format!("largest difference {without:.1e}: attention cannot tell the two sentences apart"),
    );
    page.property(
        "with positions they are not",
        with > 1e-2,
        format!("largest difference {with:.2}"),
    );

    page.section(
        "8",
        "The four steps",
        "(1) Q = Wq X, K = Wk X, V = Wv X   gemm\n(2) A = K^T Q                      attention(), the scores of a tile\n\
         (3) A' = softmax(A)                attention(), online softmax\n(4) Y = V A'                       attention(), the running sum",
    );
    Ok(page)
}

/// Self-attention of 5 tokens and of the same tokens permuted: the largest difference between the output of a token in
/// the one and in the other.
fn order_matters(positions: bool) -> Result<f32, Failure> {
    let (tokens, d) = (5, 16);
    let order = [3, 0, 4, 1, 2];
    let mut seed = 7;
    let words = Tensor::from_fn(tokens, d, |_, _| 0.0).map(|_| 0.0);
    let words = Tensor::new(&words.shape, words.data.iter().map(|_| random(&mut seed)).collect());
    let table = position_table(tokens, d)?;
    let run = |word_of: &dyn Fn(usize) -> usize| -> Result<Tensor, Failure> {
        let x = Tensor::from_fn(tokens, d, |i, j| {
            words.get(word_of(i), j) + if positions { table.get(i, j) } else { 0.0 }
        });
        let x = x.reshaped(&[1, tokens, d]);
        Ok(attend(&x, &x, &x, &Lengths::of(tokens, tokens), 0.25)?.context.at(0))
    };
    let (first, second) = (run(&|i| i)?, run(&|i| order[i])?);
    let differences = (0..tokens * d)
        .map(|at| (second.get(at / d, at % d) - first.get(order[at / d], at % d)).abs());
    Ok(differences.fold(0.0, f32::max))
}
