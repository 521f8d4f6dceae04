//! Guarantee 5 on every machine: each golden model has one digest of all its results. The digest is the
//! same on every instruction set of this machine and of other machines.
//!
//! The digests are in `tests/golden/bits.txt`, with the `BITS_VERSION` that they belong to. After a change that is meant
//! to change bits, raise `BITS_VERSION` and run this test with `SIMDFORMER_WRITE_BITS=1`, which writes the file again.
//! New lines need no other version.

use crate::digest::Digest;
use crate::effort::all_cases_on;
use crate::random_model::{Dims, Random};
use rayon::prelude::*;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::{BeamOptions, Hooks, SampleOptions, SearchOptions, Strategy};
use simdformer::task_heads::Classifier;
use simdformer::{
    BITS_VERSION, Dtype, Event, Features, Limits, LoadOptions, Model, Session, Source, SourceId,
    StepRow,
};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const F32: Dtype = Dtype::F32;
const F16: Dtype = Dtype::F16;

/// If this variable is set, the test writes the digests before it compares them.
const WRITE: &str = "SIMDFORMER_WRITE_BITS";

/// Lengths of the sentences, around the lengths of vectors and half vectors. A model with fewer positions
/// gets shorter ones.
const LENGTHS: [usize; 5] = [1, 17, 5, 20, 8];

/// What a model reads.
enum Sources {
    Ids(Vec<Vec<u32>>),
    /// Frames, and the number of values in a frame.
    Features(Vec<Vec<f32>>, usize),
}

impl Sources {
    fn new(model: &Model, lengths: &[usize]) -> Self {
        let mut random = Random(41);
        let config = model.config();
        let most = config.encoder.max_positions.unwrap_or(usize::MAX);
        let lengths = lengths.iter().map(|&len| len.min(most));
        let Some(bins) = config.bins else {
            return Self::Ids(lengths.map(|len| random.ids(len, config.source_vocab)).collect());
        };
        let frames = lengths.map(|len| (0..2 * len * bins).map(|_| random.symmetric()).collect());
        Self::Features(frames.collect(), bins)
    }

    fn features(&self) -> Vec<Features<'_>> {
        match self {
            Self::Ids(_) => Vec::new(),
            Self::Features(all, bins) => all.iter().map(|x| Features::new(x, *bins)).collect(),
        }
    }

    fn positions(&self) -> Vec<usize> {
        match self {
            Self::Ids(ids) => ids.iter().map(Vec::len).collect(),
            Self::Features(..) => self.features().iter().map(Features::positions).collect(),
        }
    }

    fn requests(&self) -> Vec<Source<'_>> {
        match self {
            Self::Ids(ids) => ids.iter().map(|ids| Source::new(ids)).collect(),
            Self::Features(..) => self.features().into_iter().map(Source::of_features).collect(),
        }
    }
}

fn borrowed(ids: &[Vec<u32>]) -> Vec<&[u32]> {
    ids.iter().map(Vec::as_slice).collect()
}

/// Digests the encoder output, with token types if the model has them, and the scores of a classifier.
fn encoders(session: &mut Session<'_>, sources: &Sources, head: Option<&Classifier>) -> Digest {
    let mut digest = Digest::default();
    let (types, width) = (session.model().config().token_types, session.model().config().d_model);
    let memory = match sources {
        Sources::Ids(ids) if types > 0 => {
            let of_types: Vec<Vec<u32>> =
                ids.iter().map(|ids| ids.iter().map(|id| id % types as u32).collect()).collect();
            session.encoder_output_of_types(&borrowed(ids), &borrowed(&of_types))
        }
        Sources::Ids(ids) => session.encoder_output(&borrowed(ids)),
        Sources::Features(..) => session.encoder_output_of_features(&sources.features()),
    };
    let mut memory = memory.expect("a memory");
    assert!(memory.iter().all(|x| x.is_finite()));
    digest.floats(memory);
    for len in sources.positions() {
        let of_one;
        (of_one, memory) = memory.split_at(len * width);
        if let Some(head) = head {
            digest.floats(&head.scores(of_one).expect("scores"));
        }
    }
    digest
}

/// Digests the logits of some tokens of every sentence, stepped and prefilled.
fn logits(session: &mut Session<'_>, sources: &Sources, digest: &mut Digest) {
    let (count, vocabulary) = (sources.positions().len(), session.model().config().target_vocab);
    let mut sentences = vec![SourceId::default(); count];
    let encoded = match sources {
        Sources::Ids(ids) => session.encode(&borrowed(ids), &mut sentences),
        Sources::Features(..) => session.encode_features(&sources.features(), &mut sentences),
    };
    encoded.expect("encoded");
    let mut random = Random(43);
    let rows: Vec<_> = sentences.iter().map(|&s| session.start(s).expect("a row")).collect();
    for _ in 0..4 {
        let token = |_| random.below(vocabulary) as u32;
        let tokens: Vec<u32> = (0..count).map(token).collect();
        let steps: Vec<StepRow> =
            rows.iter().zip(tokens).map(|(&row, token)| StepRow::new(row, token)).collect();
        digest.floats(session.step(&steps).expect("stepped"));
    }
    for row in rows {
        session.release(row).expect("released");
    }
    let row = session.start(sentences[1]).expect("a row");
    let tokens = random.ids(session.plan().limits().target_tokens, vocabulary);
    let mut each = |_: usize, logits: &[f32]| digest.floats(logits);
    session.prefill(row, &tokens, Some(&mut each)).expect("filled");
    session.clear();
}

/// Digests the tokens and scores of a search.
fn search(
    session: &mut Session<'_>,
    sources: &Sources,
    options: &SearchOptions,
    digest: &mut Digest,
) {
    let requests: Vec<Source<'_>> =
        (0..).zip(sources.requests()).map(|(stream, source)| Source { stream, ..source }).collect();
    let mut answers = vec![Vec::new(); requests.len()];
    session
        .generate(&requests, options, &mut Hooks::default(), &mut |event| {
            if let Event::Done(done) = event {
                let hypotheses = done.hypotheses().map(|h| (h.tokens.to_vec(), h.score));
                answers[done.source] = hypotheses.collect();
            }
        })
        .expect("generated");
    for hypotheses in answers {
        for (tokens, score) in hypotheses {
            digest.word(tokens.len() as u64);
            tokens.into_iter().for_each(|token| digest.word(token.into()));
            digest.floats(&[score]);
        }
    }
}

/// The digest of everything that a model computes with a KV cache in `cache`.
fn digest(model: &Model, lengths: &[usize], head: Option<&Classifier>, cache: Dtype) -> u64 {
    let sources = Sources::new(model, lengths);
    let positions = sources.positions();
    let longest = positions.iter().copied().max().expect("a source");
    let count = positions.len();
    let Some(decoder) = &model.config().decoder else {
        let mut session = Session::new(model, Limits::encoder(count, longest)).expect("a session");
        return encoders(&mut session, &sources, head).0;
    };
    let most = longest.min(decoder.max_positions.unwrap_or(70)).min(70);
    let limits = Limits { beams: 4, cache: Some(cache), ..Limits::new(count, longest, most) };
    let mut session = Session::new(model, limits).expect("a session");
    let mut digest = encoders(&mut session, &sources, head);
    logits(&mut session, &sources, &mut digest);
    let plain = SearchOptions {
        max_new_tokens: Some(9),
        max_length: None,
        min_length: 0,
        // Some of the models have no default search options.
        start: model.config().tokens.decoder_start.unwrap_or(0),
        ..model.config().search_options()
    };
    let beams = BeamOptions { length_penalty: 1.3, ..BeamOptions::default() };
    let sample = SampleOptions {
        seed: 7,
        temperature: 1.7,
        top_k: Some(20),
        top_p: Some(0.95),
        ..SampleOptions::default()
    };
    for (strategy, scores, num_return_sequences) in [
        (Strategy::Greedy, true, 1),
        (Strategy::Greedy, false, 1),
        (Strategy::Beam(beams), true, 3),
        (Strategy::Sample(sample), true, 1),
    ] {
        let options = SearchOptions { strategy, scores, num_return_sequences, ..plain.clone() };
        search(&mut session, &sources, &options, &mut digest);
    }
    digest.0
}

/// Every directory of the repository that has a model.
fn directories() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let parents = [
        "models",
        "tests/golden",
        "tests/golden/families",
        "tests/golden/gradients",
        "tests/golden/search",
    ];
    let mut found: Vec<_> = parents
        .into_iter()
        .flat_map(|parent| {
            let entries = std::fs::read_dir(root.join(parent)).expect(parent);
            entries.map(move |entry| {
                let name = entry.expect("an entry").file_name().into_string().expect("a name");
                format!("{parent}/{name}")
            })
        })
        .map(|name| (name.clone(), root.join(name)))
        .filter(|(_, path)| path.join("model.safetensors").exists())
        .collect();
    found.sort();
    found
}

/// Models that are wider than the goldens, with sentences longer than a block of the kernels.
fn wide() -> [(&'static str, Dims, &'static [usize]); 3] {
    let wide =
        |family| Dims { d_model: 132, ffn: [150, 261], layers: [1, 1], ..Dims::small(family) };
    [
        ("marian", Dims { vocabulary: 397, ..wide(Family::Marian) }, &[40, 1, 67]),
        ("m2m_100", wide(Family::M2M100), &[64, 33]),
        ("t5", Dims { d_model: 72, ..wide(Family::T5) }, &[300, 129]),
    ]
}

/// The digest of line `index`, which must be the same on each instruction set. A set that does not run all
/// cases computes every seventh line. A model has up to six lines, so each dtype table is computed on each
/// set.
fn one(index: usize, name: &str, number: impl Fn(Isa) -> u64) -> u64 {
    let mut first = None;
    for (isa, offset) in Isa::available().zip(0..) {
        if !all_cases_on(isa) && !(index + offset).is_multiple_of(7) {
            continue;
        }
        let found = number(isa);
        let first = *first.get_or_insert(found);
        assert_eq!(format!("{found:016x}"), format!("{first:016x}"), "{name} on {isa}");
    }
    first.expect("an instruction set")
}

/// Dtype tables in which each model is loaded; `stored` is the dtype of its file.
const FORMS: [&str; 3] = ["stored", "int8", "int8x16,output=int8"];

fn load(checkpoint: &Checkpoint<'_>, isa: Isa, forms: &str) -> Model {
    let forms = forms.parse().expect("forms");
    Model::load(checkpoint, LoadOptions { dtypes: forms, ..isa.into() }).expect("a model")
}

/// A model with one dtype table: the name of the line, and a function that computes the digest on an
/// instruction set.
type Line<'a> = (String, Box<dyn Fn(Isa) -> u64 + Send + Sync + 'a>);

/// The lines of a model of the repository.
fn lines_of<'a>(name: &str, path: &'a Path) -> Vec<Line<'a>> {
    let decodes = Checkpoint::open(path).expect("a checkpoint").config().decoder.is_some();
    let line = |what: String, forms: &'static str, cache| -> Line<'a> {
        let number = move |isa| {
            let checkpoint = Checkpoint::open(path).expect("a checkpoint");
            let head = Classifier::from_checkpoint(&checkpoint).expect("a head or none");
            digest(&load(&checkpoint, isa, forms), &LENGTHS, head.as_ref(), cache)
        };
        (what, Box::new(number))
    };
    // An encoder-only model has no output matrix, so the last table is left out.
    let all = if decodes { &FORMS[..] } else { &FORMS[..2] };
    let lines = all.iter().map(|forms| line(format!("{name} {forms}"), forms, F32));
    let halves = decodes.then(|| line(format!("{name} int8, keys and values in f16"), "int8", F16));
    lines.chain(halves).collect()
}

/// The lines of a model with random weights.
fn lines_of_random<'a>(
    name: &str,
    checkpoint: &'a Checkpoint<'a>,
    lengths: &'static [usize],
) -> Vec<Line<'a>> {
    let line = |what: String, forms: &'static str, cache| -> Line<'a> {
        (what, Box::new(move |isa| digest(&load(checkpoint, isa, forms), lengths, None, cache)))
    };
    let lines = FORMS.into_iter().chain(["bf16", "f16"]);
    let lines = lines.map(|forms| line(format!("random {name} {forms}"), forms, F32));
    let halves = line(format!("random {name} stored, keys and values in f16"), "stored", F16);
    lines.chain([halves]).collect()
}

#[test]
fn every_model_has_the_same_bits_on_every_machine() {
    let (directories, wide) = (directories(), wide());
    let random = wide.map(|(_, dims, _)| Dims { positions: 400, ..dims }.checkpoint(47));
    let lines = directories.iter().flat_map(|(name, path)| lines_of(name, path));
    let random = wide
        .iter()
        .zip(&random)
        .flat_map(|(&(name, _, lengths), checkpoint)| lines_of_random(name, checkpoint, lengths));
    // In parallel, because under emulation nothing else runs at the same time.
    let lines: Vec<_> = lines.chain(random).collect();
    let numbers: Vec<_> = lines
        .par_iter()
        .enumerate()
        .map(|(index, (what, number))| one(index, what, number))
        .collect();
    let mut found = String::new();
    for ((what, _), number) in lines.iter().zip(numbers) {
        writeln!(found, "{number:016x} {what}").expect("a string takes all");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bits.txt");
    let mut expected = std::fs::read_to_string(&file).expect("tests/golden/bits.txt");
    if std::env::var_os(WRITE).is_some() {
        expected = rewritten(&expected, &found, BITS_VERSION).unwrap_or_else(|why| panic!("{why}"));
        std::fs::write(&file, &expected).expect("written");
    }
    let expected = lines_of_version(&expected, BITS_VERSION).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(found.lines().count(), expected.lines().count(), "models:\n{found}");
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(
            found, expected,
            "if that was meant, raise BITS_VERSION in src/model/fingerprint.rs and run again with {WRITE}=1"
        );
    }
}

/// The first line of the file: the version of the bits, and the digest of the other lines.
fn head(version: u32, lines: &str) -> String {
    let mut digest = Digest::default();
    lines.bytes().for_each(|byte| digest.word(byte.into()));
    format!("version {version} {:016x}\n", digest.0)
}

/// The lines of a file of digests. An error if they belong to another version, or were edited.
fn lines_of_version(file: &str, version: u32) -> Result<&str, String> {
    let (first, lines) = file.split_once('\n').unwrap_or((file, ""));
    let expected = head(version, lines);
    match first == expected.trim_end() {
        true => Ok(lines),
        false => Err(format!(
            "tests/golden/bits.txt must begin with {:?}, found {first:?}: its lines belong to another BITS_VERSION or \
             were edited; run again with {WRITE}=1",
            expected.trim_end()
        )),
    }
}

/// The new content of the file. An error if a line of `old` has another digest and the same version.
fn rewritten(old: &str, found: &str, version: u32) -> Result<String, String> {
    let (first, lines) = old.split_once('\n').unwrap_or((old, ""));
    let same_version = first.starts_with(&format!("version {version} "));
    let digests: HashMap<&str, &str> =
        lines.lines().filter_map(|line| line.split_once(' ').map(|(x, what)| (what, x))).collect();
    let changed = |line: &&str| {
        let (digest, what) = line.split_once(' ').unwrap_or((line, ""));
        digests.get(what).is_some_and(|&old| old != digest)
    };
    match found.lines().find(changed) {
        Some(line) if same_version => Err(format!(
            "bits changed, first in {line:?}: BITS_VERSION in src/model/fingerprint.rs must be above {version}"
        )),
        _ => Ok(head(version, found) + found),
    }
}

/// A digest cannot change without a new version, by this test or by an editor. New lines can be added.
#[test]
fn changed_bits_need_a_new_version() {
    let lines = "00000000000000aa first\n00000000000000bb second model\n";
    let file = rewritten("", lines, 1).expect("the first version");
    assert_eq!(lines_of_version(&file, 1), Ok(lines));
    let more = format!("00000000000000cc new\n{lines}");
    let longer = rewritten(&file, &more, 1).expect("a new line");
    assert_eq!(lines_of_version(&longer, 1), Ok(&*more));
    let changed = lines.replace("bb", "bc");
    let error = rewritten(&file, &changed, 1).expect_err("the same version");
    assert!(error.contains("second model") && error.contains("above 1"), "{error}");
    let next = rewritten(&file, &changed, 2).expect("the next version");
    assert_eq!(lines_of_version(&next, 2), Ok(&*changed));
    assert!(lines_of_version(&next, 1).is_err());
    assert!(lines_of_version(&file.replace("bb", "bc"), 1).is_err(), "an edited line");
}
