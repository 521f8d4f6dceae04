//! What drafts gain: tokens per second of greedy search on Transformer-base with random weights (512 wide,
//! 8 heads, 6 + 6 layers, 2048, vocabulary 32,000), source 32, exactly 64 new tokens, with several kinds of
//! drafts.
//!
//! ```sh
//! cargo bench -p simdformer-benches --bench drafts
//! ```
//!
//! With a trained model (`peers/make_trained_base.py` makes one) the same on its own sentences, and with
//! drafts from an int8 copy of the model:
//!
//! ```sh
//! cargo bench -p simdformer-benches --bench drafts -- --model DIR --sources FILE.jsonl
//! ```
//!
//! The runs alternate, and each rate is the best of several. The output must equal that of greedy search
//! without drafts.

use simdformer_testing::random_model;

use random_model::{Dims, Random};
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::{Hooks, SearchOptions, Strategy};
use simdformer::{
    DecodeStats, DraftContext, Drafter, Event, Limits, Model, ModelDrafter, PromptLookup,
    ReferenceDrafter, Session, Source, SourceId, StepRow, WeightDtypes,
};
use std::time::Instant;

const SOURCE: usize = 32;
const TARGET: usize = 64;
const ROUNDS: usize = 7;

/// Number of sentences that are translated with a trained model.
const SENTENCES: usize = 48;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    if let (Some(model), Some(sources)) = (value("--model"), value("--sources")) {
        return trained(model, sources);
    }
    let dims = Dims {
        d_model: 512,
        layers: [6, 6],
        heads: [8, 8],
        ffn: [2048, 2048],
        vocabulary: 32_000,
        positions: 512,
        ..Dims::small(Family::Marian)
    };
    let isa = Isa::detect().expect("the set that the environment names");
    let model = Model::load(&dims.checkpoint(1), isa).expect("a random model");
    passes(&model);
    println!("\nbatch  drafts         tok/s  of plain  steps  drafted  accepted");
    for batch in [1, 4, 8] {
        decodes(&model, batch);
    }
}

/// The search of one batch.
struct Work<'m> {
    session: Session<'m>,
    options: SearchOptions,
    sources: Vec<Vec<u32>>,
}

impl Work<'_> {
    /// The tokens of each source, the seconds, and the counts of steps and drafts.
    fn decode_with(
        &mut self,
        drafter: Option<&mut dyn Drafter>,
    ) -> (Vec<Vec<u32>>, f64, DecodeStats) {
        let sources: Vec<Source<'_>> = self.sources.iter().map(|ids| Source::new(ids)).collect();
        let mut found = vec![Vec::with_capacity(TARGET); sources.len()];
        let mut on_event = |event: Event<'_>| {
            if let Event::Token { source, token } = event {
                found[source].push(token.id);
            }
        };
        let (session, hooks) = (&mut self.session, &mut Hooks::default());
        let start = Instant::now();
        let counts = match drafter {
            Some(drafter) => {
                session.generate_drafted(&sources, &self.options, hooks, drafter, &mut on_event)
            }
            None => session.generate(&sources, &self.options, hooks, &mut on_event),
        };
        let seconds = start.elapsed().as_secs_f64();
        (found, seconds, counts.expect("generated"))
    }
}

fn decodes(model: &Model, batch: usize) {
    let mut random = Random(7);
    let options = SearchOptions {
        strategy: Strategy::Greedy,
        min_new_tokens: TARGET,
        max_new_tokens: Some(TARGET),
        max_length: None,
        forced_eos: Vec::new(),
        scores: false,
        // A random model repeats one token, which would make prompt lookup too good.
        no_repeat_ngram: Some(2),
        ..model.config().search_options()
    };
    let limits = Limits { draft_tokens: 32, ..Limits::new(batch, SOURCE, TARGET + 1) };
    let mut work = Work {
        session: Session::new(model, limits).expect("a session"),
        options,
        sources: (0..batch).map(|_| random.ids(SOURCE, 31_000)).collect(),
    };
    let expected = work.decode_with(None).0;
    let known: Vec<&[u32]> = expected.iter().map(|ids| &ids[..]).collect();
    let noise: Vec<Vec<u32>> = (0..batch).map(|_| random.ids(TARGET, 31_000)).collect();
    let noise: Vec<&[u32]> = noise.iter().map(|ids| &ids[..]).collect();
    // Every eighth token is wrong.
    let close: Vec<Vec<u32>> = expected
        .iter()
        .map(|ids| ids.iter().enumerate().map(|(i, &id)| if i % 8 == 5 { 7 } else { id }).collect())
        .collect();
    let close: Vec<&[u32]> = close.iter().map(|ids| &ids[..]).collect();
    let mut nothing = |_: &DraftContext<'_>, _: &mut [u32]| 0;
    let mut drafters: [(&str, Option<&mut dyn Drafter>); 6] = [
        ("plain", None),
        ("nothing", Some(&mut nothing)),
        ("perfect", Some(&mut ReferenceDrafter(&known))),
        ("close", Some(&mut ReferenceDrafter(&close))),
        ("useless", Some(&mut ReferenceDrafter(&noise))),
        ("n-grams", Some(&mut PromptLookup { shortest: 1 })),
    ];
    let mut best = [(f64::INFINITY, DecodeStats::default()); 6];
    for _ in 0..ROUNDS {
        for ((name, drafter), best) in drafters.iter_mut().zip(&mut best) {
            let drafter = drafter.as_mut().map(|drafter| &mut **drafter as &mut dyn Drafter);
            let (found, seconds, counts) = work.decode_with(drafter);
            assert_eq!(found, expected, "{name}");
            *best = (best.0.min(seconds), counts);
        }
    }
    for ((name, _), (seconds, counts)) in drafters.iter().zip(&best) {
        let rate = (batch * TARGET) as f64 / seconds;
        let of_plain = best[0].0 / seconds;
        let DecodeStats { steps, drafted, accepted, .. } = counts;
        println!(
            "{batch:>5}  {name:<9} {rate:>10.0} {of_plain:>9.2} {steps:>6} {drafted:>8} {accepted:>9}"
        );
    }
}

/// One line of a training corpus.
#[derive(serde::Deserialize)]
struct Line {
    source_ids: Vec<u32>,
}

/// How many drafts of a trained model's int8 copy are right, and what they gain.
fn trained(folder: &str, sources: &str) {
    let text = std::fs::read_to_string(sources).expect("the sources");
    let lines = text.lines().take(SENTENCES).map(serde_json::from_str);
    let sources: Vec<Vec<u32>> =
        lines.map(|line| line.map(|Line { source_ids }| source_ids).expect("a line")).collect();
    let longest = sources.iter().map(Vec::len).max().expect("sources");
    let model =
        Model::open_with(folder, WeightDtypes::all(simdformer::Dtype::F32)).expect("the model");
    let forms: WeightDtypes = "int8,output=int8".parse().expect("forms");
    let bytes = Model::open_with(folder, forms).expect("its copy");
    let options = SearchOptions {
        strategy: Strategy::Greedy,
        max_new_tokens: Some(2 * longest),
        max_length: None,
        forced_eos: Vec::new(),
        scores: false,
        ..model.config().search_options()
    };
    println!("rows  drafts             tok/s  of plain  steps  drafted  accepted");
    for rows in [1, 2, 4] {
        let limits = Limits { draft_tokens: 32, ..Limits::new(rows, longest, 2 * longest + 1) };
        let work = |model| Work {
            session: Session::new(model, limits).expect("a session"),
            options: options.clone(),
            sources: sources.clone(),
        };
        let (mut plain, mut small) = (work(&model), work(&bytes));
        let expected = plain.decode_with(None).0;
        let tokens: usize = expected.iter().map(Vec::len).sum();
        let copies = [2, 3, 4, 6, 8].map(|most| {
            let session = Session::new(&bytes, limits).expect("a session");
            (format!("its copy, {most}"), ModelDrafter::new(session, &options, most).at_most(4))
        });
        let mut copies = copies;
        let mut best = vec![(f64::INFINITY, DecodeStats::default()); copies.len() + 3];
        for _ in 0..3 {
            let mut place = best.iter_mut();
            let mut keep = |(found, seconds, counts): (Vec<Vec<u32>>, f64, DecodeStats),
                            same: bool| {
                assert!(!same || found == expected, "drafts changed what is said");
                let best = place.next().expect("a place");
                *best = (best.0.min(seconds), counts);
            };
            keep(plain.decode_with(None), true);
            keep(small.decode_with(None), false);
            keep(plain.decode_with(Some(&mut PromptLookup { shortest: 1 })), true);
            for (_, drafter) in &mut copies {
                keep(plain.decode_with(Some(drafter)), true);
            }
        }
        let names = ["plain", "all in bytes", "n-grams"].map(str::to_owned);
        let names = names.into_iter().chain(copies.into_iter().map(|(name, _)| name));
        for (name, (seconds, counts)) in names.zip(&best) {
            let (rate, of_plain) = (tokens as f64 / seconds, best[0].0 / seconds);
            let DecodeStats { steps, drafted, accepted, .. } = counts;
            println!(
                "{rows:>4}  {name:<14} {rate:>9.0} {of_plain:>9.2} {steps:>6} {drafted:>8} {accepted:>9}"
            );
        }
    }
}

/// The time of a pass by the number of draft tokens.
fn passes(model: &Model) {
    let sizes = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32];
    let limits = Limits { draft_tokens: 32, ..Limits::new(1, SOURCE, TARGET + 1) };
    let mut session = Session::new(model, limits).expect("a session");
    let mut random = Random(3);
    let (source, draft) = (random.ids(SOURCE, 31_000), random.ids(32, 31_000));
    let mut sentence = [SourceId::default()];
    session.encode(&[&source], &mut sentence).expect("encoded");
    let row = session.start(sentence[0]).expect("a row");
    session.prefill(row, &source, None).expect("prefilled");
    let mut best = [f64::INFINITY; 11];
    for _ in 0..ROUNDS * 5 {
        for (&size, best) in sizes.iter().zip(&mut best) {
            let start = Instant::now();
            let step = StepRow::new(row, 5);
            session
                .verify_argmax(StepRow { draft: &draft[..size], ..step }, &|_, _| false)
                .expect("verified");
            *best = best.min(start.elapsed().as_secs_f64());
            session.rewind(row, SOURCE).expect("rewound");
        }
    }
    println!("draft  ms a pass  of a step");
    for (size, seconds) in sizes.iter().zip(best) {
        println!("{size:>5} {:>10.3} {:>10.2}", 1e3 * seconds, seconds / best[0]);
    }
}
