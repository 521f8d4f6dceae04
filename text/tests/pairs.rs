//! Pairs of texts as a cross-encoder reads them; texts in lower case.

use crate::directories::model;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::{Direction, Tokenizer};

/// `[CLS] a [SEP] b [SEP]` with token types; two separators without token types.
#[cfg(feature = "json")]
#[test]
fn pairs_follow_the_family() {
    let place = TemporaryFolder::new("mpnet");
    place.write("config.json", r#"{"model_type": "mpnet", "max_position_embeddings": 12}"#);
    place.write("tokenizer_config.json", r#"{"tokenizer_class": "MPNetTokenizer"}"#);
    place.write("vocab.txt", "<s>\n<pad>\n</s>\n[UNK]\n<mask>\na\nb\n");
    let pair = Tokenizer::from_dir(&place.0).unwrap().encode_pair("a a", "b").unwrap();
    assert_eq!(pair.ids, [0, 5, 5, 2, 2, 6, 2]);
    assert_eq!(pair.types, [0; 7]);
    place.write("config.json", r#"{"model_type": "bert", "max_position_embeddings": 6}"#);
    place.write("tokenizer_config.json", r#"{"tokenizer_class": "BertTokenizer"}"#);
    place.write("vocab.txt", "[CLS]\n[PAD]\n[SEP]\n[UNK]\n[MASK]\na\nb\n");
    let bert = Tokenizer::from_dir(&place.0).unwrap();
    let pair = bert.encode_pair("a a", "b").unwrap();
    assert_eq!(
        (&pair.ids[..], &pair.types[..]),
        (&[0, 5, 5, 2, 6, 2][..], &[0, 0, 0, 0, 1, 1][..])
    );
    assert_eq!((pair.truncated, pair.tokens, pair.blank), (false, 6, false));
    let pair = bert.encode_pair("a", "b b b b").unwrap();
    assert_eq!(
        (&pair.ids[..], &pair.types[..]),
        (&[0, 5, 2, 6, 6, 2][..], &[0, 0, 0, 1, 1, 1][..])
    );
    assert_eq!((pair.truncated, pair.tokens), (true, 8));
    assert!(bert.encode_pair("", " ").unwrap().blank);
}

/// XLM-R with its SentencePiece file.
#[test]
fn sentencepiece_pairs_have_two_separators() {
    let place = TemporaryFolder::new("xlmr");
    place.write("config.json", r#"{"model_type": "xlm-roberta", "max_position_embeddings": 22}"#);
    place.write("tokenizer_config.json", r#"{"tokenizer_class": "XLMRobertaTokenizer"}"#);
    place.write("sentencepiece.bpe.model", model("unigram", "nmt_nfkc"));
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    let one = |text: &str| tokenizer.encode(text, &Direction::default()).unwrap().ids;
    let pair = tokenizer.encode_pair("the house", "a river").unwrap();
    let (a, b) = (one("the house"), one("a river"));
    assert_eq!(pair.ids, [&a[..], &[2], &b[1..]].concat());
    assert_eq!((pair.ids[0], pair.types.len(), pair.truncated), (0, pair.ids.len(), false));
    assert!(pair.types.iter().all(|&kind| kind == 0));
    // Twenty tokens: the longer text is cut.
    let long = "the old house by the river ".repeat(9);
    for (first, second) in [("the house", &long[..]), (&long, "the house")] {
        let pair = tokenizer.encode_pair(first, second).unwrap();
        assert_eq!((pair.ids.len(), pair.truncated), (20, true));
        let short = &a[1..a.len() - 1];
        assert!(pair.ids.windows(short.len()).any(|part| part == short), "{:?}", pair.ids);
    }
}

/// With a SentencePiece file. Special tokens keep their spelling.
#[test]
fn sentencepiece_texts_are_lowercased() {
    let place = TemporaryFolder::new("lowercase");
    place.write("config.json", r#"{"model_type": "xlm-roberta", "max_position_embeddings": 40}"#);
    place.write("tokenizer_config.json", r#"{"tokenizer_class": "XLMRobertaTokenizer"}"#);
    place.write("sentencepiece.bpe.model", model("unigram", "nmt_nfkc"));
    let encode = |tokenizer: &Tokenizer, text: &str| {
        tokenizer.encode(text, &Direction::default()).unwrap().ids
    };
    let plain = Tokenizer::from_dir(&place.0).unwrap();
    let lower = Tokenizer::from_dir(&place.0).unwrap().with_lower_case().unwrap();
    assert_eq!(encode(&lower, "The HOUSE</s> ÉTÉ"), encode(&plain, "the house</s> été"));
    assert_ne!(encode(&plain, "The HOUSE"), encode(&plain, "the house"));
}
