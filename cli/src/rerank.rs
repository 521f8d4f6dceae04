//! `rerank`: scores how well each text answers a query with a cross-encoder, and sorts texts by score.

use crate::arguments::Rerank;
use crate::embed::reason;
use crate::inputs::{self, Inputs};
use crate::streams::{Failure, Streams};
use crate::{progress, show};
use indicatif::ProgressBar;
use serde_json::json;
use simdformer::checkpoint::Checkpoint;
use simdformer_text::Tokenizer;
use simdformer_text::embedder::{RerankOptions, Reranker, RerankerSetup, Score, TextResult};
use std::io::Write;

/// Texts that are read and run as one block.
const BLOCK: usize = 512;

/// Processes all texts; returns the exit code.
pub(crate) fn rerank_texts(arguments: &Rerank, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    let directory = &arguments.model.directory.model;
    let tokenizer = Tokenizer::from_dir(directory)?;
    // Check before gigabytes are read: does the model encode pairs, and does it compute a score?
    tokenizer.encode_pair("", "")?;
    let checkpoint = Checkpoint::open(directory)?;
    let options = RerankOptions {
        prompt: arguments.prompt.choice(),
        raw: arguments.raw,
        truncate: arguments.texts.truncate,
    };
    let setup = RerankerSetup::from_directory(directory, tokenizer, &checkpoint, &options)?;
    let queries = match &arguments.queries {
        Some(path) => match inputs::lines(path)? {
            lines if lines.is_empty() => {
                let path = path.display();
                return Err(format!("{path}: expected at least one query, found none").into());
            }
            lines => lines,
        },
        None => arguments.query.clone(),
    };
    let model = arguments.model.load(&checkpoint, &arguments.reports, streams)?;
    if arguments.reports.summary {
        show::loaded(setup.tokenizer(), &model, streams.notes)?;
        let activation = setup.activation().name();
        writeln!(streams.notes, "classifier: one score a pair, {activation}")?;
        show::prompt(setup.prompt(), streams.notes)?;
    }
    drop(checkpoint);
    let engine = arguments.texts.engine(&arguments.model, model).build()?;
    let mut reranker = Reranker::new(engine, setup);
    let progress = progress::counter("pairs", arguments.reports.quiet);
    let counter = progress.clone();
    reranker.set_on_done(move |_| counter.inc(1));
    arguments.model.in_pool(|| texts(arguments, (&reranker, &progress), queries, streams))
}

/// A query and its results so far.
#[derive(Default)]
struct Query {
    text: String,
    /// The index of each text with its score, the best first.
    scores: Vec<(usize, Score)>,
    /// The index of each text that was not run, and why.
    failed: Vec<(usize, String)>,
}

impl Query {
    /// Adds the results of the texts from index `before` on.
    fn add(&mut self, before: usize, pairs: Vec<TextResult<Score>>, most: Option<usize>) {
        for (index, pair) in (before..).zip(pairs) {
            match pair.result {
                Ok(score) => self.scores.push((index, score)),
                Err(why) => self.failed.push((index, reason(&why))),
            }
        }
        if let Some(most) = most {
            self.sort();
            self.scores.truncate(most);
        }
    }

    /// Texts of equal score keep their order.
    fn sort(&mut self) {
        self.scores.sort_by(|(_, a), (_, b)| a.best_first(b));
    }
}

fn texts(
    arguments: &Rerank,
    (reranker, progress): (&Reranker, &ProgressBar),
    queries: Vec<String>,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let Streams { input, out, notes, .. } = streams;
    let named = queries.len() > 1 || arguments.queries.is_some();
    let mut queries: Vec<Query> =
        queries.into_iter().map(|text| Query { text, ..Query::default() }).collect();
    let mut inputs = Inputs::new(&arguments.texts, arguments.texts.whole(false), *input)?;
    let mut before = 0;
    loop {
        let texts = inputs.take(BLOCK)?;
        if texts.is_empty() {
            break;
        }
        for (number, query) in (1..).zip(&mut queries) {
            let pairs = reranker.score(&query.text, &texts)?;
            progress.suspend(|| {
                let of = if named { format!("query {number}, ") } else { String::new() };
                for (name, pair) in (before + 1..).zip(&pairs) {
                    let tokens = pair.tokens;
                    if let Err(why) = &pair.result {
                        writeln!(notes, "simdformer: {of}text {name}: {}", reason(why))?;
                    } else if pair.truncated {
                        let cut = format!("text {name} and the query have {tokens} tokens");
                        writeln!(notes, "simdformer: {of}{cut} and were cut")?;
                    }
                }
                Ok::<(), Failure>(())
            })?;
            query.add(before, pairs, arguments.top_k);
        }
        before += texts.len();
    }
    progress.finish_and_clear();
    let mut failed = 0;
    for (number, query) in queries.iter_mut().enumerate() {
        query.sort();
        let of = if named { format!("\"query\":{number},") } else { String::new() };
        for (index, score) in &query.scores {
            // The shortest decimal representation that restores the same bits.
            let score = serde_json::to_string(&score.value)?;
            writeln!(out, "{{{of}\"index\":{index},\"score\":{score}}}")?;
        }
        for (index, error) in &query.failed {
            let mut line = json!({"index": index, "score": null, "error": error});
            if named {
                line["query"] = number.into();
            }
            writeln!(out, "{line}")?;
        }
        failed += query.failed.len();
    }
    if failed > 0 {
        let (all, what) = (before * queries.len(), if named { "pairs" } else { "texts" });
        writeln!(notes, "simdformer: {failed} of {all} {what} were not run")?;
    }
    Ok(u8::from(failed > 0))
}
