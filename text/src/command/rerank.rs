//! `rerank`: scores how well each text answers a query with a cross-encoder, and sorts texts by score.

use crate::arguments::Rerank;
use crate::encoder_batches;
use crate::inputs::Inputs;
use crate::{Failure, Streams, progress, show};
use serde_json::json;
use simdformer::Model;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Side;
use simdformer::task_heads::Classifier;
use simdformer_text::{Encoded, Tokenizer};
use std::io::Write;

/// Texts that are read and run as one block.
const BLOCK: usize = 512;

/// Processes all texts; returns the exit code.
pub(crate) fn run(arguments: &Rerank, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    let directory = &arguments.model.directory.model;
    let tokenizer = Tokenizer::from_dir(encoder_batches::folder(directory)?)?;
    // Check before gigabytes are read: does the model encode pairs, and does it compute a score?
    tokenizer.encode_pair("", "")?;
    let checkpoint = Checkpoint::open(directory)?;
    let Some(head) = Classifier::read(&checkpoint)? else {
        return Err("expected a model with a classifier, as cross-encoders have, found none".into());
    };
    if head.labels() != 1 {
        let found = head.labels();
        return Err(format!("expected a classifier of one score to sort by, found {found}").into());
    }
    let model = arguments.model.load(&checkpoint, &arguments.reports, streams)?;
    if arguments.reports.summary {
        show::loaded(&tokenizer, &checkpoint, &model, streams.notes)?;
        writeln!(streams.notes, "classifier: one score a pair")?;
    }
    drop(checkpoint);
    let positions = model.config().max_positions(Side::Encoder);
    let most = tokenizer.max_tokens().into_iter().chain(positions).min();
    let tokenizer = tokenizer.with_max_tokens(most);
    let runner = Runner { arguments, tokenizer: &tokenizer, model: &model, head: &head };
    arguments.model.in_pool(|| runner.run(streams))
}

struct Runner<'r> {
    arguments: &'r Rerank,
    tokenizer: &'r Tokenizer,
    model: &'r Model,
    head: &'r Classifier,
}

impl Runner<'_> {
    fn run(&self, streams: &mut Streams<'_>) -> Result<u8, Failure> {
        let Streams { input, out, notes, .. } = streams;
        let Rerank { model: arguments, texts, query, reports } = self.arguments;
        let (slots, truncate) = (texts.slots, texts.truncate);
        let mut inputs = Inputs::new(texts, texts.whole(false), *input)?;
        // The index of each text with its score, or with the reason why it has none.
        let mut scores: Vec<(usize, f32)> = Vec::new();
        let mut failed: Vec<(usize, String)> = Vec::new();
        let mut before = 0;
        let progress = progress::counter("texts", reports.quiet);
        loop {
            let texts = inputs.take(BLOCK)?;
            if texts.is_empty() {
                break;
            }
            let mut encoded: Vec<(usize, Encoded)> = Vec::new();
            for (number, text) in (before..).zip(&texts) {
                let one = self.tokenizer.encode_pair(query, text)?;
                let (tokens, name) = (one.tokens, number + 1);
                if let Some(error) = encoder_batches::rejected(&one, self.model, truncate) {
                    progress.suspend(|| writeln!(notes, "simdformer: text {name}: {error}"))?;
                    failed.push((number, error));
                    continue;
                }
                if one.truncated {
                    let cut = format!("text {name} and the query have {tokens} tokens");
                    progress.suspend(|| writeln!(notes, "simdformer: {cut} and were cut"))?;
                }
                encoded.push((number, one));
            }
            let run: Vec<&Encoded> = encoded.iter().map(|(_, one)| one).collect();
            encoder_batches::run(self.model, arguments, slots, &run, &mut |at, hidden| {
                let score = self.head.scores(hidden)?.first().copied().unwrap_or(f32::NAN);
                scores.push((encoded[at].0, score));
                progress.inc(1);
                Ok(())
            })?;
            before += texts.len();
        }
        progress.finish_and_clear();
        // Texts of equal score keep their order; NaN is the lowest score.
        let rank = |score: f32| if score.is_nan() { f32::NEG_INFINITY } else { score };
        scores.sort_by(|(_, a), (_, b)| rank(*b).total_cmp(&rank(*a)));
        for (index, score) in scores {
            // The shortest decimal representation that restores the same bits.
            let score = serde_json::to_string(&score)?;
            writeln!(out, "{{\"index\":{index},\"score\":{score}}}")?;
        }
        for (index, error) in &failed {
            writeln!(out, "{}", json!({"index": index, "score": null, "error": error}))?;
        }
        if !failed.is_empty() {
            let failed = failed.len();
            writeln!(notes, "simdformer: {failed} of {before} texts were not run")?;
        }
        Ok(u8::from(!failed.is_empty()))
    }
}
