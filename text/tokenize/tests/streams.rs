//! The rule of streams: the parts that `push` and `finish` return, joined, are the decoded text of all ids.

use crate::golden::{lines, random_ids};
use simdformer_testing::directories::full;
use simdformer_testing::effort::cases;
use simdformer_tokenize::{Direction, Tokenizer};

#[cfg(feature = "json")]
const DIRECTORIES: [&str; 8] =
    ["marian", "m2m100", "nllb", "t5", "t5_json", "bert", "roberta", "whisper"];
#[cfg(not(feature = "json"))]
const DIRECTORIES: [&str; 4] = ["marian", "m2m100", "nllb", "t5"];

/// At every split: the text of the first ids is what is certain of them, so it is a prefix of their decoded
/// text; and the text of the first and of the other ids, joined, is the whole text.
fn check_splits(tokenizer: &Tokenizer, ids: &[u32]) {
    let whole = tokenizer.decode(ids);
    let mut stream = tokenizer.stream();
    let mut said = String::new();
    for split in 0..=ids.len() {
        assert!(whole.starts_with(&said), "{ids:?}: {said:?} is not the beginning of {whole:?}");
        let alone = tokenizer.decode(&ids[..split]);
        assert!(alone.starts_with(&said), "{ids:?} at {split}: {said:?} of {alone:?}");
        // A copy that ends here returns the text of all of its ids.
        let mut ended = stream.clone();
        assert_eq!(said.clone() + ended.finish(), alone, "{ids:?} at {split}");
        if let Some(&id) = ids.get(split) {
            let part = stream.push(id).map(str::to_owned);
            assert_ne!(part.as_deref(), Some(""), "nothing is None");
            said.extend(part);
        }
    }
    said.push_str(stream.finish());
    assert_eq!(said, whole, "{ids:?}");
    // After `finish` the stream starts anew.
    ids.iter().for_each(|&id| {
        stream.push(id);
    });
    let mut fresh = tokenizer.stream();
    ids.iter().for_each(|&id| {
        fresh.push(id);
    });
    assert_eq!(stream.finish(), fresh.finish());
}

#[test]
fn joined_parts_are_the_whole_text_at_every_split() {
    let lines = lines();
    for name in DIRECTORIES {
        let place = full(name);
        let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
        for line in lines.iter().filter(|line| line.len() < 400).step_by(cases(4, 1)) {
            check_splits(&tokenizer, &tokenizer.encode(line, &Direction::default()).unwrap().ids);
        }
        for number in 0..cases(100, 500) {
            check_splits(&tokenizer, &random_ids(number, 1500));
        }
    }
}

/// Bytes of one character in several tokens are held back until the character is complete.
#[test]
fn no_partial_characters() {
    let place = full("t5");
    let model = simdformer_testing::directories::model("bpe_nfkc_bytes", "nmt_nfkc");
    place.write("spiece.model", &model);
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    let ids = tokenizer.encode("a🙂b字", &Direction::default()).unwrap().ids;
    let mut stream = tokenizer.stream();
    let parts: Vec<String> =
        ids.iter().filter_map(|&id| stream.push(id).map(str::to_owned)).collect();
    assert!(parts.iter().all(|part| !part.contains('\u{fffd}')), "{parts:?}");
    assert!(parts.contains(&"🙂".to_owned()), "{parts:?}");
    assert_eq!(parts.concat() + stream.finish(), tokenizer.decode(&ids));
    check_splits(&tokenizer, &ids);
    for number in 0..cases(400, 2000) {
        // Most of the first ids are bytes.
        check_splits(&tokenizer, &random_ids(number, 270));
    }
}

/// Ids outside of the vocabulary, which padded models may produce, have no text.
#[test]
fn ids_outside_have_no_text() {
    for name in DIRECTORIES {
        let place = full(name);
        let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
        let ids = tokenizer.encode("The quick brown fox.", &Direction::default()).unwrap().ids;
        let mut among = Vec::new();
        for &id in &ids {
            among.extend([u32::MAX, id, 1 << 20, 1 << 31]);
        }
        assert_eq!(tokenizer.decode(&among), tokenizer.decode(&ids), "{name}");
        check_splits(&tokenizer, &among);
    }
}

/// The cost of an id does not depend on the number of earlier ids. A stream that decoded all of them again
/// for each id would handle 20,000 times the bytes that are allowed here.
#[test]
fn a_stream_does_not_decode_earlier_ids_again() {
    let place = full("nllb");
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    let ids =
        tokenizer.encode(&"brown fox jumps ".repeat(7000), &Direction::default()).unwrap().ids;
    let tokenizer = tokenizer.with_max_tokens(None);
    let ids =
        [ids, tokenizer.encode(&"lazy dog ".repeat(9000), &Direction::default()).unwrap().ids]
            .concat();
    assert!(ids.len() > 20_000);
    let mut stream = tokenizer.stream();
    let longest = ids.iter().filter_map(|&id| stream.push(id).map(str::len)).max();
    assert!(longest < Some(20), "{longest:?}");
}
