//! The lesson as sections of text.

use super::page::{Section, four, matrix};
use simdformer::config::Side;
use simdformer::train::Smoothing;
use simdformer_testing::lesson::{
    EOS, Lesson, Numbers, Predictions, SCHEDULE, SEED, SENTENCES, SOURCE_WORDS, STEPS,
    TARGET_WORDS, floor, shifted, wanted,
};

const PAD: &str = "<pad>";
/// The steps that are printed.
const SHOWN: [u64; 9] = [1, 2, 5, 10, 20, 50, 100, 150, STEPS];

/// All sections, in the order of the computation.
pub(crate) fn sections(lesson: &Lesson) -> Vec<Section> {
    let untrained = "Predictions of the untrained model";
    let trained = "Predictions of the trained model";
    let mut sections = vec![
        vocabularies(),
        model(lesson),
        decoder_inputs(lesson),
        targets(lesson),
        predictions("untrained", untrained, lesson, &lesson.untrained),
        losses("loss", "The loss of each position", lesson, &lesson.untrained),
        gradients(lesson),
        update(lesson),
        progress(lesson),
        predictions("trained", trained, lesson, &lesson.trained),
    ];
    let title = "The loss of each position after training";
    sections.push(losses("trained-loss", title, lesson, &lesson.trained));
    sections.push(answers(lesson));
    sections
}

fn word(id: u32) -> &'static str {
    TARGET_WORDS.get(id as usize).copied().unwrap_or("?")
}

fn names(ids: &[u32]) -> Vec<&'static str> {
    ids.iter().map(|&id| word(id)).collect()
}

/// The words in lower case, as the page prints sentences.
fn text(ids: &[u32]) -> String {
    names(ids).join(" ").to_lowercase()
}

fn vocabularies() -> Section {
    let note = "Each side has its own words. A word is an id. Its target row is one-hot: 1 in the \
                column of the word, 0 elsewhere.";
    let mut section = Section::new("vocabulary", "The vocabularies", note);
    section.line(format!("source [{} words]", SOURCE_WORDS.len()));
    for (id, word) in SOURCE_WORDS.iter().enumerate() {
        section.line(format!("    {id}  {word}"));
    }
    section.line(format!("target [{} words]", TARGET_WORDS.len()));
    let rows: Vec<Vec<f32>> =
        (0..TARGET_WORDS.len()).map(|id| wanted(Smoothing::default(), id as u32)).collect();
    section.lines.extend(matrix(&TARGET_WORDS, Some(&TARGET_WORDS), &rows));
    section
}

fn model(lesson: &Lesson) -> Section {
    let note = "The paper's architecture, small and untrained: matrices are uniform within \
                sqrt(6 / (inputs + outputs)), norms are the identity, biases are zero. \
                src/train/init.rs";
    let mut section = Section::new("model", "The model", note);
    let config = &lesson.config;
    section.line(format!("    d_model {}, seed {SEED}", config.d_model));
    for side in [Side::Encoder, Side::Decoder] {
        if let Some(stack) = config.stack(side) {
            let (layers, heads, width) = (stack.layers, stack.heads, stack.ffn_dim);
            section.line(format!(
                "    {side:?}: {layers} layer, {heads} heads of {}, feed-forward {width}",
                config.head_dim(side)
            ));
        }
    }
    section.line(format!("    {} parameters", lesson.parameters));
    section
}

fn decoder_inputs(lesson: &Lesson) -> Section {
    let note = "Teacher forcing: the decoder reads the target shifted right, and predicts at each \
                position the next word of the target. It starts with <eos>, as in fairseq, so that \
                six words are enough. src/train/packed_batch.rs";
    let mut section = Section::new("fed", "The decoder inputs: the target shifted right", note);
    for ((pair, source), target) in SENTENCES.iter().zip(&lesson.sources).zip(&lesson.targets) {
        section.line(format!("{} -> {}", pair[0], pair[1]));
        section.line(format!(
            "    source {source:?}, inputs {:?}, targets {target:?}",
            shifted(target)
        ));
        section.line(format!("    {:<10}{:<12}{}", "position", "input", "target"));
        for (position, (&fed, &label)) in shifted(target).iter().zip(target).enumerate() {
            section.line(format!("    {position:<10}{:<12}{}", word(fed), word(label)));
        }
    }
    section
}

fn targets(lesson: &Lesson) -> Section {
    let smoothing = lesson.options.smoothing;
    let note = format!(
        "One row for each position: one-hot, and smoothed with epsilon = {}: q = (1 - epsilon) \
         one-hot + epsilon / V, so that every word has a probability. \
         kernels/src/loss/smoothing.rs",
        smoothing.epsilon
    );
    let mut section = Section::new("targets", "The target distributions", &note);
    for target in &lesson.targets {
        for (kind, smoothing) in [("one-hot", Smoothing::default()), ("smoothed", smoothing)] {
            section.line(format!("{}, {kind}", text(target)));
            let rows: Vec<Vec<f32>> = target.iter().map(|&id| wanted(smoothing, id)).collect();
            section.lines.extend(matrix(&names(target), Some(&TARGET_WORDS), &rows));
        }
    }
    section
}

fn predictions(stage: &str, title: &str, lesson: &Lesson, predicted: &Predictions) -> Section {
    let note = "softmax(logits): one row for each position, after the target words before it. \
                src/session/prefill.rs, kernels/src/softmax/mod.rs";
    let mut section = Section::new(stage, title, note);
    for (target, rows) in lesson.targets.iter().zip(&predicted.probabilities) {
        section.line(text(target));
        section.lines.extend(matrix(&names(target), Some(&TARGET_WORDS), rows));
        section.line(format!("    {:<12}{:<12}{:<10}", "target", "best word", "p"));
        for (row, &label) in rows.iter().zip(target) {
            let best = (0..row.len()).fold(0, |best, j| if row[j] > row[best] { j } else { best });
            let verdict = if best == label as usize { "right" } else { "wrong" };
            let (best, p) = (word(best as u32), four(row[best]));
            section.line(format!("    {:<12}{best:<12}{p:<10}{verdict}", word(label)));
        }
    }
    section
}

fn losses(stage: &str, title: &str, lesson: &Lesson, predicted: &Predictions) -> Section {
    let note = "loss = -sum q ln p, and nll = -ln p[target], without the smoothing. The table is \
                padded, as in textbooks: a padding row has no target, and its loss is 0 whatever it \
                holds. The library computes no padding rows, because it lays sentences \
                end to end. kernels/src/loss/mod.rs";
    let mut section = Section::new(stage, title, note);
    let (mut loss, mut nll, mut counted) = (0.0, 0.0, 0u64);
    for (target, rows) in lesson.targets.iter().zip(&predicted.padded) {
        section.line(format!("{}, padded to {}", text(target), rows.len()));
        section.line(format!("    {:<10}{:<12}{:>9}{:>9}", "position", "target", "nll", "loss"));
        for (position, row) in rows.iter().enumerate() {
            let (label, masked) = match target.get(position) {
                Some(&id) => (word(id), ""),
                None => (PAD, "  masked"),
            };
            section.line(format!(
                "    {position:<10}{label:<12}{:>9}{:>9}{masked}",
                four(row.nll as f32),
                four(row.loss as f32)
            ));
            loss += row.loss;
            nll += row.nll;
            counted += u64::from(position < target.len());
        }
    }
    let totals = &predicted.totals;
    section.line("all positions");
    section.line(format!(
        "    the rows:  {counted} positions, nll {}, loss {}; the mean is the sum divided by {counted}: {}",
        four(nll as f32),
        four(loss as f32),
        four((loss / counted as f64) as f32)
    ));
    section.line(format!(
        "    Trainer:   {} positions, nll {}, loss {}; mean {}, {} of {} right",
        totals.tokens,
        four(totals.nll as f32),
        four(totals.loss as f32),
        four(totals.mean_loss() as f32),
        totals.correct,
        totals.tokens
    ));
    section
}

fn gradients(lesson: &Lesson) -> Section {
    let note = "The gradient of the mean loss: d logits = (p - q) / positions. A logit with a \
                negative gradient should grow. Masked rows are exactly 0. kernels/src/loss/mod.rs; \
                docs/walkthrough.md follows the gradient through every block";
    let mut section = Section::new("gradient", "The gradient of the logits", note);
    for (target, rows) in lesson.targets.iter().zip(&lesson.untrained.gradients) {
        section.line(format!("{}, padded to {}", text(target), rows.len()));
        let mut labels = names(target);
        labels.resize(rows.len(), PAD);
        section.lines.extend(matrix(&labels, Some(&TARGET_WORDS), rows));
    }
    section
}

fn update(lesson: &Lesson) -> Section {
    let note = "Adam: m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, and a weight changes by \
                -rate m^ / (sqrt(v^) + epsilon). In the first step this is the rate, whatever the \
                size of the gradient. kernels/src/optimizer/adam.rs";
    let mut section = Section::new("update", "One update", note);
    let (adam, update) = (&lesson.options.adam, &lesson.update);
    section.line(format!(
        "    gradient norm {:.4}, over all {} parameters; {}",
        update.norm,
        lesson.parameters,
        match lesson.options.clip_norm {
            Some(clip) if update.clipped => format!("clipped to {clip}"),
            Some(clip) => format!("below {clip}, so nothing is clipped"),
            None => "nothing is clipped".to_owned(),
        }
    ));
    section.line(format!(
        "    rate {:.4} (step 1 of a warmup to {:.4}), b1 {}, b2 {}, epsilon {:e}",
        adam.rate,
        SCHEDULE.rate(20),
        adam.beta1,
        adam.beta2,
        adam.epsilon
    ));
    for Numbers { role, word, before, gradient, after } in &lesson.numbers {
        section.line(format!("{role}, the row of {word}, its first {} values", before.len()));
        let rows = [before.clone(), gradient.clone(), after.clone()];
        section.lines.extend(matrix(&["before", "gradient", "after"], None, &rows));
    }
    let (before, after) = (lesson.untrained.totals.mean_loss(), lesson.then.mean_loss());
    section.line("the mean loss");
    section.line(format!("    before {before:.4}, after {after:.4}"));
    section
}

fn progress(lesson: &Lesson) -> Section {
    let smoothing = lesson.options.smoothing;
    let note = format!(
        "{STEPS} updates: loss and nll before each update. With smoothing the smallest possible \
         loss is the entropy of q: {:.4}. src/train/trainer.rs, kernels/src/optimizer/schedule.rs",
        floor(smoothing)
    );
    let mut section = Section::new("course", "The course of the training", &note);
    section.line(format!(
        "    {:>4}{:>9}{:>9}{:>9}{:>9}  right",
        "step", "loss", "nll", "norm", "rate"
    ));
    for record in lesson.course.iter().filter(|record| SHOWN.contains(&record.step)) {
        let totals = &record.totals;
        section.line(format!(
            "    {:>4}{:>9.4}{:>9.4}{:>9.4}{:>9.4}  {} of {}",
            record.step,
            totals.mean_loss(),
            totals.mean_nll(),
            record.norm,
            record.rate,
            totals.correct,
            totals.tokens
        ));
    }
    section
}

fn answers(lesson: &Lesson) -> Section {
    let note = "Without teacher forcing: greedy search feeds the model its own output, from <eos> to \
                <eos>. src/generate/decode_loop.rs";
    let mut section = Section::new("answer", "Greedy search", note);
    for (pair, answer) in SENTENCES.iter().zip(&lesson.answers) {
        let verdict = if text(answer) == pair[1] { "right" } else { "wrong" };
        section.line(format!("    {:<18} -> {:<22} {verdict}", pair[0], text(answer)));
    }
    section.line(format!("    first input: {}", word(EOS)));
    section
}
