//! The pictures of the documents, drawn from what the kernels compute.

use crate::Failure;
use crate::attention::{ANGLES, dots_of_angles, padded_heads, padded_map, printed};
use crate::compute::{Lengths, attend, normal, position_table, product, softmax_rows};
use crate::decoder::mask;
use crate::svg::{Frame, Svg, blues, diverging};
use crate::tensor::Tensor;
use simdformer::checkpoint::TensorId;
use simdformer::config::{Config, Side};
use simdformer::kernels::softmax::FullyMasked;
use std::path::{Path, PathBuf};

pub(crate) const COLORS: [&str; 8] =
    ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2"];

/// A picture: its file, what it shows, and the function that draws it.
type Picture = (&'static str, fn() -> Result<String, Failure>);

const PICTURES: &[Picture] = &[
    ("positions", positions),
    ("wavelengths", wavelengths),
    ("rotation", rotation),
    ("masks", masks),
    ("angles", angles),
    ("softmax-scale", softmax_scale),
    ("padded-map", padded_head),
    ("padded-heads", padded),
    ("heads-overlaid", overlaid),
    ("map-800", large_map),
    ("architecture", architecture),
    #[cfg(feature = "train")]
    ("warm-up", crate::training::warm_up),
    #[cfg(feature = "train")]
    ("loss", crate::training::loss),
];

/// Writes every picture to a directory; returns the files.
pub(crate) fn draw(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    std::fs::create_dir_all(directory)?;
    let mut files = Vec::new();
    for &(name, picture) in PICTURES {
        let file = directory.join(name).with_extension("svg");
        simdformer::atomic_file::write(&file, picture()?)?;
        files.push(file);
    }
    Ok(files)
}

/// Document 003: the position table as a heatmap.
fn positions() -> Result<String, Failure> {
    let (positions, d) = (64, 128);
    let table = position_table(positions, d)?;
    let mut svg = Svg::new(
        900.0,
        560.0,
        "Positions: sine in even columns, cosine in odd ones (documents 002, 003)",
    );
    let frame = Frame { x: 70.0, y: 60.0, width: 750.0, height: 420.0 };
    svg.heatmap(frame, &table, diverging);
    let bar = Frame { x: 838.0, width: 14.0, ..frame };
    svg.color_bar(bar, &["-1", "0", "1"], |x| diverging(2.0 * x - 1.0));
    svg.axes(frame, ["column 0", "127"], ["63", "0"]);
    svg.label(24.0, 520.0, 12.0, "start", "rows are positions, columns are dimensions");
    svg.label(
        24.0,
        540.0,
        12.0,
        "start",
        "the wavelength grows from 2 pi in the first columns to almost 20,000 pi in the last ones",
    );
    Ok(svg.finish())
}

/// Document 003: columns of the position table as curves.
fn wavelengths() -> Result<String, Failure> {
    let (positions, d) = (101, 64);
    let table = position_table(positions, d)?;
    let mut svg =
        Svg::new(900.0, 520.0, "Wavelengths: T = 2 pi 10000^(2i/d), d = 64 (document 003)");
    let chosen = [0, 4, 8, 12];
    for (at, &i) in chosen.iter().enumerate() {
        let frame = Frame { x: 70.0, y: 60.0 + 112.0 * at as f32, width: 640.0, height: 80.0 };
        svg.axes(frame, ["position 0", "100"], ["-1", "1"]);
        for (column, color) in [(2 * i, COLORS[0]), (2 * i + 1, COLORS[1])] {
            let point = |p: usize| [p as f32 / 100.0, (table.get(p, column) + 1.0) / 2.0];
            svg.curve(frame, (0..positions).map(point), color);
        }
        let wavelength = std::f64::consts::TAU * 10_000f64.powf(2.0 * i as f64 / d as f64);
        svg.label(724.0, frame.y + 34.0, 12.0, "start", &format!("i = {i}"));
        svg.label(724.0, frame.y + 52.0, 12.0, "start", &format!("T = {wavelength:.1}"));
    }
    svg.label(724.0, 78.0, 11.0, "start", "blue sine, red cosine");
    Ok(svg.finish())
}

/// Document 002: a shift of the position turns each pair of columns by an angle that does not depend on the position.
fn rotation() -> Result<String, Failure> {
    let d = 8;
    let table = position_table(16, d)?;
    let shift = 3;
    let mut svg = Svg::new(
        1240.0,
        420.0,
        "A shift by 3 positions is a rotation: PE(t + 3) = M PE(t) (document 002)",
    );
    for k in 0..d / 2 {
        let center = [170.0 + 300.0 * k as f32, 210.0];
        let radius = 110.0;
        svg.circle(center, radius, "none", "#888");
        // Cosine to the right, sine up.
        let point = |t: usize| {
            [center[0] + radius * table.get(t, 2 * k + 1), center[1] - radius * table.get(t, 2 * k)]
        };
        for (at, t) in [0usize, 2, 4].into_iter().enumerate() {
            let (from, to) = (point(t), point(t + shift));
            for (end, width) in [(from, 1.0), (to, 2.5)] {
                svg.line(center, end, COLORS[at], width, 1.0);
                svg.circle(end, 4.0, COLORS[at], COLORS[at]);
            }
            // The slow pairs move too little for labels beside each other.
            if k >= 2 && at == 0 {
                svg.label(to[0] + 10.0, to[1] + 14.0, 11.0, "start", "t=0 to 7");
            }
            if k < 2 {
                svg.label(from[0] + 7.0, from[1] - 5.0, 11.0, "start", &format!("t={t}"));
                svg.label(to[0] + 7.0, to[1] - 5.0, 11.0, "start", &format!("t={}", t + shift));
            }
        }
        let angle = shift as f64 / 10_000f64.powf(2.0 * k as f64 / d as f64);
        let text = format!("columns {} and {}: turned by {:.3} rad", 2 * k, 2 * k + 1, angle);
        svg.label(center[0], 360.0, 13.0, "middle", &text);
    }
    svg.label(24.0, 400.0, 12.0, "start", "thin: the pair (cosine, sine) of position t; thick: of t + 3. The angle between them is the same for every t.");
    Ok(svg.finish())
}

/// Document 002: the three masks of its batch.
fn masks() -> Result<String, Failure> {
    let (source, target) = ([2, 4], [4, 3]);
    let mut svg = Svg::new(
        760.0,
        560.0,
        "Masks for source lengths 2, 4 and target lengths 4, 3 (document 002)",
    );
    let all = [
        ("encoder self-attention", mask(&source, &source, false)?),
        ("cross-attention", mask(&target, &source, false)?),
        ("decoder self-attention", mask(&target, &target, true)?),
    ];
    for (column, (name, mask)) in all.iter().enumerate() {
        for sentence in 0..2 {
            let frame = Frame {
                x: 60.0 + 235.0 * column as f32,
                y: 90.0 + 220.0 * sentence as f32,
                width: 160.0,
                height: 160.0,
            };
            svg.label(frame.x, frame.y - 22.0, 13.0, "start", name);
            svg.label(
                frame.x,
                frame.y - 6.0,
                11.0,
                "start",
                &format!("sentence {}, rows are queries", sentence + 1),
            );
            svg.heatmap(frame, &mask.at(sentence), |m| {
                if m == 0.0 { "#bbbbbb".into() } else { "#ffffff".into() }
            });
            for line in 1..4 {
                let at = 40.0 * line as f32;
                svg.line(
                    [frame.x + at, frame.y],
                    [frame.x + at, frame.y + 160.0],
                    "#888",
                    0.5,
                    1.0,
                );
                svg.line(
                    [frame.x, frame.y + at],
                    [frame.x + 160.0, frame.y + at],
                    "#888",
                    0.5,
                    1.0,
                );
            }
        }
    }
    svg.label(24.0, 535.0, 12.0, "start", "white: attention() gives the key a weight; grey: none. The kernel reads lengths and a causal flag, no mask.");
    Ok(svg.finish())
}

/// Document 000, figure 3-5: the dot product of two vectors as the angle between them.
fn angles() -> Result<String, Failure> {
    let dots = dots_of_angles()?;
    let mut svg = Svg::new(
        1000.0,
        330.0,
        "The dot product of unit vectors falls with the angle between them (document 000, figure 3-5)",
    );
    for (at, degrees) in ANGLES.iter().enumerate() {
        let origin = [50.0 + 240.0 * at as f32, 230.0];
        let length = 140.0;
        let (sin, cos) = degrees.to_radians().sin_cos();
        let to = |x: f32, y: f32| [origin[0] + length * x, origin[1] - length * y];
        // The product is the length of the projection on the first vector.
        svg.line(to(cos, sin), to(cos, 0.0), "#888", 1.0, 1.0);
        svg.arrow(origin, to(1.0, 0.0), COLORS[0]);
        svg.arrow(origin, to(cos, sin), COLORS[1]);
        svg.line(origin, to(dots.get(0, at), 0.0), COLORS[2], 5.0, 0.6);
        svg.label(origin[0], 260.0, 13.0, "start", &format!("{degrees} degrees"));
        // Not -0.00, which the sine of a rounded angle may give.
        let product = format!("product {:.4}", dots.get(0, at).abs());
        svg.label(origin[0], 280.0, 13.0, "start", &product);
    }
    let note = "blue and red: the vectors; green: their product, the part of the red one along the blue one; by gemm_unpacked()";
    svg.label(24.0, 315.0, 12.0, "start", note);
    Ok(svg.finish())
}

/// Document 000, figures 3-15 to 3-18: scores with deviation 100 and 1, and their softmax.
fn softmax_scale() -> Result<String, Failure> {
    let large = normal(20_000, 100.0);
    let small: Vec<f32> = large.iter().map(|x| x / 100.0).collect();
    let mut svg = Svg::new(
        920.0,
        620.0,
        "Why scores are divided: softmax of 20,000 scores (document 000, figures 3-15 to 3-18)",
    );
    for (column, (scores, limit, title)) in
        [(&large, 400.0f32, "deviation 100"), (&small, 4.0, "divided by 100")]
            .into_iter()
            .enumerate()
    {
        let x = 80.0 + 440.0 * column as f32;
        let upper = Frame { x, y: 90.0, width: 340.0, height: 190.0 };
        let bins = 20;
        let mut counts = vec![0.0f32; bins];
        for score in scores {
            let at = ((score + limit) / (2.0 * limit) * bins as f32).clamp(0.0, bins as f32 - 1.0);
            counts[at as usize] += 1.0;
        }
        let highest = counts.iter().copied().fold(0.0, f32::max);
        svg.label(x, 76.0, 13.0, "start", &format!("count of scores, {title}"));
        svg.bars(upper, &counts);
        svg.axes(upper, [&format!("-{limit}"), &format!("{limit}")], ["0", &format!("{highest}")]);

        let weights = softmax_rows(
            &Tensor::new(&[1, scores.len()], scores.clone()),
            None,
            FullyMasked::Zeros,
        )?;
        let largest = weights.data.iter().copied().fold(0.0, f32::max);
        let lower = Frame { x, y: 360.0, width: 340.0, height: 190.0 };
        svg.label(x, 346.0, 13.0, "start", "their softmax");
        // Of each 20 weights the smallest and the largest, so that a single peak is drawn.
        let points = weights.data.chunks(20).enumerate().flat_map(|(i, chunk)| {
            let x = i as f32 / 999.0;
            let low = chunk.iter().copied().fold(f32::INFINITY, f32::min);
            let high = chunk.iter().copied().fold(0.0, f32::max);
            [[x, low / largest], [x, high / largest]]
        });
        svg.curve(lower, points, COLORS[0]);
        svg.axes(lower, ["score 0", "20,000"], ["0", &format!("{largest:.4}")]);
    }
    svg.label(24.0, 600.0, 12.0, "start", "left: one weight is almost 1 and the gradient of the others is 0; right: every score has a weight");
    Ok(svg.finish())
}

/// Document 000, figure 3-19: one head of a padded batch.
fn padded_head() -> Result<String, Failure> {
    let map = padded_map(&printed()?)?;
    let mut svg = Svg::new(
        760.0,
        500.0,
        "One head of sentence [5, 2, 1, 0, 0], 0 is padding (document 000, figure 3-19)",
    );
    let frame = Frame { x: 110.0, y: 60.0, width: 360.0, height: 360.0 };
    svg.heatmap(frame, &map, blues);
    for i in 0..5 {
        let at = 72.0 * i as f32 + 36.0;
        let number = i.to_string();
        svg.label(frame.x + at, frame.y + frame.height + 14.0, 11.0, "middle", &number);
        svg.label(frame.x - 6.0, frame.y + at + 4.0, 11.0, "end", &number);
        for j in 0..5 {
            let weight = map.get(i, j);
            // Black text is not readable on dark cells; the bar says their weight.
            if weight < 0.5 {
                let text = if weight == 0.0 { "0".to_owned() } else { format!("{weight:.3}") };
                let x = frame.x + 72.0 * j as f32 + 36.0;
                svg.label(x, frame.y + at + 4.0, 11.0, "middle", &text);
            }
        }
    }
    let names = Frame {
        x: frame.x - 18.0,
        width: frame.width + 36.0,
        height: frame.height + 16.0,
        ..frame
    };
    svg.map_names(names, "len_k", "len_q");
    let bar = Frame { x: 500.0, width: 16.0, ..frame };
    svg.color_bar(bar, &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"], blues);
    let note = "keys 3 and 4 are padding: their columns are empty. The embeddings are random, as in the document.";
    svg.label(24.0, 480.0, 12.0, "start", note);
    Ok(svg.finish())
}

/// Document 000, figures 3-25 and 3-26: eight heads of a padded batch.
fn padded() -> Result<String, Failure> {
    let mut svg = Svg::new(
        1080.0,
        470.0,
        "Eight heads, batch [[5,2,1,0,0],[1,3,1,4,0]], 0 is padding (document 000, figures 3-25, 3-26)",
    );
    // The darkest color is a weight of one half.
    let color = |weight: f32| blues(weight * 2.0);
    for (sentence, weights) in padded_heads(&printed()?)?.iter().enumerate() {
        let top = 70.0 + 195.0 * sentence as f32;
        svg.label(24.0, top, 13.0, "start", &format!("sentence {}", sentence + 1));
        for head in 0..8 {
            let x = 40.0 + 122.0 * head as f32;
            let frame = Frame { x, y: top + 40.0, width: 100.0, height: 100.0 };
            svg.label(frame.x, frame.y - 8.0, 11.0, "start", &format!("head {}", head + 1));
            svg.heatmap(frame, &weights.at(head), color);
            svg.map_names(frame, "len_k", "len_q");
        }
    }
    let bar = Frame { x: 1018.0, y: 110.0, width: 14.0, height: 295.0 };
    svg.color_bar(bar, &["0", "0.25", "0.5"], blues);
    svg.label(1075.0, 98.0, 11.0, "end", "0.5 or more");
    let note = "rows are queries, columns are keys; the columns of padding are empty";
    svg.label(24.0, 455.0, 11.0, "start", note);
    Ok(svg.finish())
}

/// Document 003: what one token looks at, with one, two and all heads.
fn overlaid() -> Result<String, Failure> {
    let weights = padded_heads(&printed()?)?;
    // The second query of the second sentence.
    let (weights, query) = (&weights[1], 1);
    let words = ["1", "3", "1", "4", "pad"];
    let mut svg =
        Svg::new(900.0, 420.0, "Weights of one query with one, two and all heads (document 003)");
    for (column, (title, heads)) in
        [("one head", 1), ("two heads", 2), ("all heads", 8)].into_iter().enumerate()
    {
        let x = 60.0 + 290.0 * column as f32;
        let at = |word: usize| 110.0 + 52.0 * word as f32;
        svg.label(x, 76.0, 14.0, "start", title);
        for head in 0..heads {
            for key in 0..words.len() {
                let weight = weights.at(head).get(query, key);
                let shift = (head as f32 - heads as f32 / 2.0) * 2.0;
                if weight > 0.0 {
                    let ends = [[x + 30.0, at(query) + shift], [x + 170.0, at(key) + shift]];
                    svg.line(
                        ends[0],
                        ends[1],
                        COLORS[head],
                        1.0 + 8.0 * weight,
                        0.25 + 0.75 * weight,
                    );
                }
            }
        }
        for (i, word) in words.iter().enumerate() {
            svg.label(x + 20.0, at(i) + 4.0, 14.0, "end", word);
            svg.label(x + 180.0, at(i) + 4.0, 14.0, "start", word);
        }
    }
    for (head, color) in COLORS.iter().enumerate() {
        let x = 60.0 + 100.0 * head as f32;
        svg.line([x, 372.0], [x + 24.0, 372.0], color, 4.0, 1.0);
        svg.label(x + 30.0, 376.0, 12.0, "start", &format!("head {}", head + 1));
    }
    svg.label(24.0, 400.0, 12.0, "start", "left: queries, right: keys; a thick line is a large weight; nothing leads to padding. Random projections.");
    Ok(svg.finish())
}

/// Document 001: a map of 800 x 800 and its softmax, without a scale as on the slides.
fn large_map() -> Result<String, Failure> {
    let (tokens, d) = (800, 64);
    let rows = position_table(tokens, d)?;
    let scores = product(&rows, &rows.transposed(), 1.0)?;
    let x = rows.reshaped(&[1, tokens, d]);
    let map = attend(&x, &x, &x, &Lengths::of(tokens, tokens), 1.0)?.weights.at(0);
    let [low, _] = range(&scores);
    let [_, largest] = range(&map);
    let mut svg = Svg::new(
        1300.0,
        660.0,
        "A and A' = softmax(A) of 800 position vectors of 64 numbers, without a scale (document 001)",
    );
    let half = d as f32 / 2.0;
    let left = Frame { x: 60.0, y: 80.0, width: 500.0, height: 500.0 };
    let right = Frame { x: 700.0, ..left };
    let (name, title) = (format!("{low:.1}"), format!("{half}"));
    svg.label(left.x, 70.0, 13.0, "start", "A = X X^T, 800 x 800");
    // Few colors make a small file.
    let color = |x: f32| blues((x * 8.0).round() / 8.0);
    svg.heatmap(left, &scores, |score| color((score - low) / (half - low)));
    let bar = Frame { x: left.x + 515.0, width: 16.0, ..left };
    svg.color_bar(bar, &[&name, &title], color);
    svg.label(right.x, 70.0, 13.0, "start", "A', each row adds up to 1");
    // The square root makes small weights visible.
    svg.heatmap(right, &map, |weight| blues((weight / largest).sqrt()));
    let bar = Frame { x: right.x + 515.0, width: 16.0, ..right };
    let at = |color: f32| format!("{:.3}", color * color * largest);
    svg.color_bar(bar, &[&at(0.0), &at(0.25), &at(0.5), &at(0.75), &at(1.0)], blues);
    for frame in [left, right] {
        svg.axes(frame, ["0", "799"], ["799", "0"]);
        svg.map_names(frame, "key", "query");
    }
    let note = "left: the color is the score; right: the color is the square root of the weight, as the bar says";
    svg.label(24.0, 640.0, 12.0, "start", note);
    Ok(svg.finish())
}

fn range(x: &Tensor) -> [f32; 2] {
    x.data
        .iter()
        .fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], &x| [low.min(x), high.max(x)])
}

/// A part of a stack: its name in the network table, and its tensors with their shapes.
struct Part {
    name: String,
    /// Whether each layer has it.
    repeated: bool,
    tensors: Vec<(String, Vec<usize>)>,
}

/// The parts of a stack in the order of the network table: `TensorId::all`, layer 0 for all layers. Biases have the
/// shape of the outputs and are left out.
fn parts(config: &Config, stack: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for tensor in TensorId::all(config) {
        let path = tensor.to_string();
        // The output matrix belongs to no stack; the decoder ends with it.
        let path = if path.starts_with("output") { format!("decoder.{path}") } else { path };
        let words: Vec<&str> = path.split('.').collect();
        let (name, leaf) = match words[..] {
            [of, "layers", "0", part, leaf, "weight"] if of == stack => (part, leaf),
            [of, "layers", "0", part, "weight"] | [of, part, "weight"] if of == stack => (part, ""),
            _ => continue,
        };
        let entry = (leaf.to_owned(), tensor.shape(config).unwrap_or_default());
        match parts.last_mut() {
            Some(part) if part.name == name => part.tensors.push(entry),
            _ => parts.push(Part {
                name: name.to_owned(),
                repeated: path.contains(".layers."),
                tensors: vec![entry],
            }),
        }
    }
    parts
}

impl Part {
    fn is_norm(&self) -> bool {
        self.name.ends_with("norm")
    }

    /// The line below the name: the tensors, those of one shape together.
    fn shapes(&self) -> String {
        let mut groups: Vec<(Vec<&str>, &[usize])> = Vec::new();
        for (leaf, shape) in &self.tensors {
            match groups.iter_mut().find(|(_, known)| known == shape) {
                Some((leaves, _)) => leaves.push(leaf),
                None => groups.push((vec![leaf], shape)),
            }
        }
        let text = |(leaves, shape): &(Vec<&str>, &[usize])| {
            format!("{} {shape:?}", leaves.join(", ")).trim().to_owned()
        };
        groups.iter().map(text).collect::<Vec<_>>().join("; ")
    }
}

/// Document 003, figure 1: the architecture of the base model, from the table of its tensors.
fn architecture() -> Result<String, Failure> {
    const STEP: f32 = 66.0;
    const WIDTH: f32 = 340.0;
    // Of a box; the residual lines are beside it.
    const BOX: f32 = 310.0;
    let config = Config::base(37_000);
    let mut svg = Svg::new(
        820.0,
        710.0,
        "The base model, from the table of its tensors, TensorId::all (document 003)",
    );
    let bottom = 590.0;
    let mut places = Vec::new();
    for (x, side, stack) in [(40.0, Side::Encoder, "encoder"), (440.0, Side::Decoder, "decoder")] {
        let settings = config.stack(side).ok_or("a stack")?;
        let parts = parts(&config, stack);
        let title = format!("{stack}: {} layers of {} heads", settings.layers, settings.heads);
        svg.label(x + WIDTH / 2.0, 662.0, 14.0, "middle", &title);
        // One layer.
        let top = parts.iter().rposition(|part| part.repeated).ok_or("a layer")?;
        let first = parts.iter().position(|part| part.repeated).ok_or("a layer")?;
        let y = bottom - STEP * top as f32 - 10.0;
        let height = STEP * (top - first) as f32 + 64.0;
        let layer = Frame { x: x - 10.0, y, width: WIDTH + 20.0, height };
        svg.rect(layer, "#f4f4f4", "#999");
        let gap = bottom - STEP * first as f32 - 7.0;
        svg.label(x + 2.0, gap, 13.0, "start", &format!("{} x", settings.layers));
        for (i, part) in parts.iter().enumerate() {
            let y = bottom - STEP * i as f32;
            let fill = match part.name.as_str() {
                _ if part.is_norm() => "#fff3c4",
                name if name.contains("attention") => "#fbd5b5",
                "feed_forward" => "#c9e4f6",
                "embedding" => "#f6d0d8",
                _ => "#d9d7f1",
            };
            svg.rect(Frame { x, y, width: BOX, height: 44.0 }, fill, "#555");
            let name = match part.name.as_str() {
                "embedding" => "embedding, plus positions".to_owned(),
                "self_attention" if side == Side::Decoder => "masked self attention".to_owned(),
                "output" => "output: linear, softmax".to_owned(),
                _ if part.is_norm() => "add & norm".to_owned(),
                name => name.replace('_', " "),
            };
            let middle = x + BOX / 2.0;
            svg.label(middle, y + 19.0, 13.0, "middle", &name);
            svg.label(middle, y + 36.0, 11.0, "middle", &part.shapes());
            if i > 0 {
                svg.arrow([middle, y + STEP], [middle, y + 44.0], "#555");
            }
            // Add: what went into the sublayer below is added to what comes out.
            if part.is_norm() && part.repeated {
                let (right, from) = (x + WIDTH - 8.0, y + STEP + 51.0);
                svg.line([middle, from], [right, from], "#555", 1.5, 1.0);
                svg.line([right, from], [right, y + 22.0], "#555", 1.5, 1.0);
                svg.arrow([right, y + 22.0], [x + BOX, y + 22.0], "#555");
            }
            places.push((stack, part.name.clone(), y + 22.0));
        }
    }
    // The encoder's output is the key and value of every cross-attention.
    let last = |wanted: &dyn Fn(&str, &str) -> bool| {
        places.iter().rfind(|(stack, name, _)| wanted(stack, name)).map(|place| place.2)
    };
    let from = last(&|stack, _| stack == "encoder").ok_or("an encoder")?;
    let to = last(&|_, name| name == "cross_attention").ok_or("a decoder")?;
    // It leaves at the top, above the layers.
    let (middle, top) = (40.0 + BOX / 2.0, from - 22.0 - 26.0);
    svg.line([middle, from - 22.0], [middle, top], "#555", 1.5, 1.0);
    svg.line([middle, top], [410.0, top], "#555", 1.5, 1.0);
    svg.line([410.0, top], [410.0, to], "#555", 1.5, 1.0);
    svg.arrow([410.0, to], [440.0, to], "#555");
    svg.label(394.0, top - 8.0, 11.0, "start", "K, V");
    svg.label(middle, top - 8.0, 11.0, "middle", "memory");
    let note =
        "Lines at the right of a sublayer are the residual connections, which its norm adds.";
    svg.label(24.0, 682.0, 12.0, "start", note);
    let note = "Shapes are [outputs, inputs]. Biases are not drawn. The three tables [37000, 512] are one matrix.";
    svg.label(24.0, 700.0, 12.0, "start", note);
    Ok(svg.finish())
}
