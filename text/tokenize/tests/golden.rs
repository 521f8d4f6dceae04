//! Ids and decoded text of 500 lines, and the text of 1000 lists of ids, compared with sentencepiece and
//! transformers.

use simdformer_testing::directories::{full, golden, model};
use simdformer_testing::effort;
use simdformer_tokenize::{Direction, SentencePiece, Tokenizer};
use std::fs;

/// The 500 lines.
pub fn lines() -> Vec<String> {
    let text = fs::read_to_string(golden("lines.jsonl")).unwrap();
    let lines: Vec<String> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 500);
    lines
}

/// The random numbers of `make.py`.
pub fn random_ids(number: u64, vocabulary: u64) -> Vec<u32> {
    let mut state = number + 1;
    let mut draw = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    };
    // Python evaluates the length before the elements, after it has bound the function of the elements.
    let len = 1 + draw() % 20;
    (0..len).map(|_| (draw() % vocabulary) as u32).collect()
}

fn fnv(bytes: impl IntoIterator<Item = u8>) -> String {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{hash:016x}")[4..].to_owned()
}

fn hash_ids(ids: &[u32]) -> String {
    fnv(ids.iter().flat_map(|id| id.to_le_bytes()))
}

/// The results of a reference: its vocabulary, and columns of hashes.
struct Expected {
    vocabulary: u64,
    rows: Vec<Vec<String>>,
}

fn expected(name: &str) -> Expected {
    let text = fs::read_to_string(golden(&format!("expected/{name}.txt"))).unwrap();
    let mut lines = text.lines();
    let vocabulary = lines.next().unwrap().parse().unwrap();
    let rows: Vec<Vec<String>> =
        lines.map(|line| line.split(' ').map(str::to_owned).collect()).collect();
    assert_eq!(rows.len(), 1500, "{name}");
    Expected { vocabulary, rows }
}

/// Whether a row is compared: every line, and one in five lists of ids, or every list in a full run.
fn compared(number: usize) -> bool {
    number < 500 || number.is_multiple_of(5) || effort::full()
}

/// The rows that differ from the reference in columns `at` and `at + 1`: numbers of lines, or of lists from
/// 500 on.
fn differences(
    expected: &Expected,
    at: usize,
    encode: &dyn Fn(&str) -> Vec<u32>,
    decode: &dyn Fn(&[u32]) -> String,
) -> Vec<(usize, String)> {
    let lines = lines();
    let mut differences = Vec::new();
    for (number, row) in expected.rows.iter().enumerate().filter(|row| compared(row.0)) {
        let found = match lines.get(number) {
            Some(line) => {
                let ids = encode(line);
                let text = decode(&ids);
                if hash_ids(&ids) == row[at] && fnv(text.bytes()) == row[at + 1] {
                    continue;
                }
                let what = if hash_ids(&ids) == row[at] { "text" } else { "ids" };
                format!("{what} of {line:.120?}: {:?} {text:.200?}", &ids[..ids.len().min(40)])
            }
            None => {
                let ids = random_ids((number - 500) as u64, expected.vocabulary);
                let text = decode(&ids);
                if fnv(text.bytes()) == row[at + 1] {
                    continue;
                }
                format!("text of {ids:?}: {text:?}")
            }
        };
        differences.push((number, found));
    }
    differences
}

fn same(name: &str, differences: &[(usize, String)]) {
    let shown: Vec<String> =
        differences.iter().take(5).map(|(number, what)| format!("\n  {number}: {what}")).collect();
    assert!(
        differences.is_empty(),
        "{name}: {} of 1500 differ (make.py explain {name} NUMBER):{}",
        differences.len(),
        shown.concat()
    );
}

/// Compared with the sentencepiece library, for every kind of model.
#[test]
fn sentencepiece_models_match_the_sentencepiece_library() {
    let with_rules = [
        "unigram",
        "unigram_bytes",
        "t5",
        "bpe",
        "unigram_symbols",
        "bpe_symbols",
        "suffix",
        "no_dummy",
        "bpe_nfkc_bytes",
    ];
    let names = with_rules.map(|name| (name, "nmt_nfkc")).into_iter();
    let names =
        names.chain([("unigram_cf", "nmt_nfkc_cf"), ("unigram_identity", "-"), ("bpe_bytes", "-")]);
    let mut failures = Vec::new();
    for (name, rules) in names {
        let spm = SentencePiece::from_bytes(&model(name, rules)).unwrap();
        let expected = expected(&format!("spm_{name}"));
        assert_eq!(spm.len() as u64, expected.vocabulary);
        let found =
            differences(&expected, 0, &|text| spm.encode(text).unwrap(), &|ids| spm.decode(ids));
        if let Some((number, what)) = found.first() {
            failures.push(format!("spm_{name}: {} differ, first {number}: {what}", found.len()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn family(name: &str, directory: &str, direction: Direction<'_>, target: bool) {
    let place = full(directory);
    // The references do not know how many tokens a model takes.
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap().with_max_tokens(None);
    let expected = expected(name);
    let encode = |text: &str| match target {
        true => tokenizer.encode_target(text).unwrap(),
        false => tokenizer.encode(text, &direction).unwrap().ids,
    };
    let decode = |ids: &[u32]| tokenizer.decode(ids);
    same(name, &differences(&expected, 0, &encode, &decode));
    if expected.rows[0].len() == 4 {
        // Compared with transformers: the rows that are listed with their cause differ, and no
        // others.
        let found = differences(&expected, 2, &encode, &decode);
        let found: Vec<usize> = found.into_iter().map(|(number, _)| number).collect();
        assert_eq!(found, exceptions(name), "{name}");
        assert!(found.len() < 80, "{name}: {}", found.len());
    }
}

/// The rows in which transformers differs for a SentencePiece file, each with a cause.
fn exceptions(name: &str) -> Vec<usize> {
    let text = fs::read_to_string(golden("expected/exceptions")).unwrap();
    let words = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    words
        .filter(|words| words[0] == name)
        .map(|words| {
            assert!(["spaces", "marks", "ties", "unused"].contains(&words[2]), "{words:?}");
            words[1].parse().unwrap()
        })
        .filter(|&number| compared(number))
        .collect()
}

#[test]
fn marian() {
    family("marian", "marian", Direction::default(), false);
    family("marian_target", "marian", Direction::default(), true);
    family("marian_separate", "marian_separate", Direction::default(), false);
    family("marian_separate_target", "marian_separate", Direction::default(), true);
}

#[test]
fn m2m100() {
    family("m2m100", "m2m100", Direction::default(), false);
}

#[test]
fn nllb_in_both_orders() {
    family("nllb", "nllb", Direction::default(), false);
    family("nllb_legacy", "nllb_legacy", Direction::default(), false);
}

#[test]
fn mbart50() {
    family("mbart50", "mbart50", Direction::default(), false);
}

#[test]
fn t5() {
    family("t5", "t5", Direction::default(), false);
}

#[test]
fn pegasus() {
    family("pegasus", "pegasus", Direction::default(), false);
}

#[test]
fn camembert_and_xlm_roberta() {
    family("camembert", "camembert", Direction::default(), false);
    family("xlm_roberta", "xlm_roberta", Direction::default(), false);
}

#[cfg(feature = "json")]
#[test]
fn directories_saved_by_transformers() {
    for name in [
        "pegasus_json",
        "camembert_json",
        "xlm_roberta_json",
        "bart_json",
        "nllb_json",
        "mbart50_json",
        "t5_json",
        "bert",
        "bert_json",
        "roberta",
        "roberta_json",
        "whisper",
    ] {
        family(name, name, Direction::default(), false);
    }
}
