//! The special tokens around a text and at the start of the decoder, by family and language, and the
//! errors.

use simdformer_testing::directories::full;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_tokenize::{Direction, Encoded, Error, Family, Tokenizer};

fn open(name: &str) -> (TemporaryFolder, Tokenizer) {
    let place = full(name);
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    (place, tokenizer)
}

fn encode(tokenizer: &Tokenizer, text: &str, source: &str, target: &str) -> Result<Encoded, Error> {
    let direction = Direction {
        source: (!source.is_empty()).then_some(source),
        target: (!target.is_empty()).then_some(target),
    };
    tokenizer.encode(text, &direction)
}

fn id(tokenizer: &Tokenizer, code: &str) -> u32 {
    let languages = tokenizer.languages().unwrap();
    languages.iter().find(|language| language.code() == code).unwrap().id()
}

#[test]
fn nllb_starts_with_the_source_language_and_forces_the_target_language() {
    let (_place, tokenizer) = open("nllb");
    assert_eq!(tokenizer.family(), Family::Nllb);
    assert_eq!(tokenizer.languages().unwrap().len(), 202);
    let encoded = encode(&tokenizer, "the fox", "deu_Latn", "zho_Hans").unwrap();
    assert_eq!(encoded.ids[0], id(&tokenizer, "deu_Latn"));
    assert_eq!(encoded.ids.last(), Some(&2));
    assert_eq!(encoded.prefix, [2]);
    assert_eq!(encoded.forced_bos, Some(id(&tokenizer, "zho_Hans")));
    assert!(!encoded.truncated && !encoded.blank);
    assert_eq!(encoded.tokens, encoded.ids.len());
    // The order of the first checkpoints.
    let (_place, legacy) = open("nllb_legacy");
    let old = encode(&legacy, "the fox", "deu_Latn", "zho_Hans").unwrap();
    assert_eq!(old.ids[old.ids.len() - 2..], [2, id(&legacy, "deu_Latn")]);
    assert_eq!(old.ids[..old.ids.len() - 2], encoded.ids[1..encoded.ids.len() - 1]);
}

#[test]
fn m2m100_and_mbart_50_do_the_same() {
    for (name, source, target) in [("m2m100", "de", "zu"), ("mbart50", "de_DE", "zh_CN")] {
        let (_place, tokenizer) = open(name);
        let encoded = encode(&tokenizer, "the fox", source, target).unwrap();
        assert_eq!(encoded.ids[0], id(&tokenizer, source), "{name}");
        assert_eq!(encoded.ids.last(), Some(&2), "{name}");
        assert_eq!(encoded.prefix, [2], "{name}");
        assert_eq!(encoded.forced_bos, Some(id(&tokenizer, target)), "{name}");
    }
}

#[test]
fn mbart_25_ends_with_the_source_and_its_decoder_begins_with_the_target() {
    let place = full("mbart50");
    place.write("tokenizer_config.json", r#"{"tokenizer_class": "MBartTokenizer"}"#);
    place.write("config.json", r#"{"model_type": "mbart"}"#);
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    assert_eq!(tokenizer.family(), Family::Mbart25);
    assert_eq!(tokenizer.languages().unwrap().len(), 25);
    let encoded = encode(&tokenizer, "the fox", "en_XX", "ro_RO").unwrap();
    assert_eq!(encoded.ids[encoded.ids.len() - 2..], [2, id(&tokenizer, "en_XX")]);
    assert_eq!((encoded.prefix, encoded.forced_bos), (vec![id(&tokenizer, "ro_RO")], None));
}

#[test]
fn marian_begins_with_the_target() {
    let (_place, tokenizer) = open("marian");
    let codes: Vec<&str> = tokenizer.languages().unwrap().iter().map(|l| l.code()).collect();
    assert_eq!(codes, ["deu", "fra", "por"]);
    let encoded = encode(&tokenizer, "the fox", "", "fra").unwrap();
    assert_eq!(encoded, encode(&tokenizer, ">>fra<< the fox", "", "").unwrap());
    assert_eq!(encoded.ids[0], id(&tokenizer, "fra"));
    assert_eq!(encoded.ids.last(), Some(&0));
    assert_eq!(encoded.forced_bos, None);
    assert_eq!(encoded.prefix.len(), 1);
}

#[cfg(feature = "json")]
#[test]
fn whisper_is_prompted() {
    let (_place, tokenizer) = open("whisper");
    let codes: Vec<&str> = tokenizer.languages().unwrap().iter().map(|l| l.code()).collect();
    assert_eq!(codes, ["de", "en", "fr", "yue"]);
    let prompt = |source, target| encode(&tokenizer, "", source, target).unwrap().prefix;
    let plain = prompt("", "");
    assert_eq!(plain.len(), 2, "{plain:?}");
    let transcribe = prompt("fr", "");
    assert_eq!(transcribe.len(), 4);
    assert_eq!((transcribe[0], transcribe[3]), (plain[0], plain[1]));
    assert_eq!(transcribe[1], id(&tokenizer, "fr"));
    assert_eq!(prompt("fr", "fr"), transcribe);
    assert_ne!(prompt("fr", "en")[2], transcribe[2]);
}

#[test]
fn an_unknown_language_is_an_error_with_the_nearest() {
    for (name, code, nearest) in [
        ("nllb", "fra", "fra_Latn"),
        ("nllb", "fra-latn", "fra_Latn"),
        ("nllb", "zho", "zho_Hans"),
        ("mbart50", "en", "en_XX"),
        ("m2m100", "EN", "en"),
        ("marian", "fr", "fra"),
    ] {
        let (_place, tokenizer) = open(name);
        let error = encode(&tokenizer, "x", "", code).unwrap_err();
        let Error::Language { found: Some(said), nearest: found, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(&**said, code);
        assert_eq!(found[0], nearest, "{name} {code}: {found:?}");
        assert!(error.to_string().contains(nearest), "{error}");
    }
}

#[test]
fn a_missing_or_unsupported_language_is_an_error() {
    let place = full("nllb");
    place.write(
        "tokenizer_config.json",
        r#"{"tokenizer_class": "NllbTokenizer", "src_lang": "eng_Latn"}"#,
    );
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    let error = encode(&tokenizer, "x", "", "").unwrap_err();
    let text = "target language: expected one of the model's 202 languages, found none; some of them: ace_Arab, ";
    assert!(error.to_string().starts_with(text), "{error}");
    assert!(encode(&tokenizer, "x", "", "fra_Latn").is_ok());
    let (_place, tokenizer) = open("t5");
    let error = encode(&tokenizer, "x", "", "fr").unwrap_err();
    assert!(matches!(&error, Error::Language { nearest, .. } if nearest.is_empty()), "{error}");
    // A model of one direction states it. Pieces `>>xx<<` of a vocabulary do not all belong to one
    // direction.
    let (_place, tokenizer) = open("marian_separate");
    assert!(encode(&tokenizer, "x", "en", "ROMANCE").is_ok());
    for (source, target) in [("fr", ""), ("en", "fr")] {
        let error = encode(&tokenizer, "x", source, target).unwrap_err();
        assert!(matches!(error, Error::Language { .. }), "{error}");
    }
    let (_place, tokenizer) = open("marian");
    assert!(encode(&tokenizer, "x", "en", "por").is_ok());
    assert!(encode(&tokenizer, "x", "de", "por").is_err());
}

#[test]
fn blank_texts_are_errors() {
    for name in ["marian", "nllb", "t5"] {
        let (_place, tokenizer) = open(name);
        for text in ["", " ", " \t\n ", "\u{200b}", "\u{3000}"] {
            assert!(encode(&tokenizer, text, "", "").unwrap().blank, "{name} {text:?}");
        }
        assert!(!encode(&tokenizer, ".", "", "").unwrap().blank);
    }
}

#[test]
fn texts_that_are_too_long_are_errors() {
    let (_place, tokenizer) = open("nllb");
    let text = "brown ".repeat(2000);
    let encoded = encode(&tokenizer, &text, "", "").unwrap();
    assert!(encoded.truncated);
    assert_eq!((encoded.ids.len(), encoded.ids.last()), (1024, Some(&2)));
    let tokenizer = tokenizer.with_max_tokens(None);
    let whole = encode(&tokenizer, &text, "", "").unwrap();
    assert!(!whole.truncated);
    assert_eq!(whole.ids.len(), encoded.tokens);
    assert_eq!(whole.ids[..1023], encoded.ids[..1023]);
}

#[cfg(feature = "json")]
#[test]
fn a_truncated_text_keeps_its_last_token_with_tokenizer_json() {
    let (_place, tokenizer) = open("bert");
    let encoded = encode(&tokenizer, &"fox ".repeat(2000), "", "").unwrap();
    let short = encode(&tokenizer, "fox", "", "").unwrap();
    assert!(encoded.truncated && encoded.tokens == 2000 * (short.tokens - 2) + 2);
    assert_eq!(encoded.ids.len(), 512);
    assert_eq!(encoded.ids.last(), short.ids.last());
}

#[test]
fn madlad_lists_the_languages_of_its_pieces() {
    // A piece `<2xx>` is a language; here one piece gets such a name.
    let place = full("t5");
    let mut model = simdformer_testing::directories::model("unigram_symbols", "nmt_nfkc");
    let at = model.windows(6).position(|bytes| bytes == b"<user>").unwrap();
    model[at..at + 6].copy_from_slice(b"<2deu>");
    place.write("spiece.model", &model);
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    let codes: Vec<&str> = tokenizer.languages().unwrap().iter().map(|l| l.code()).collect();
    assert_eq!(codes, ["deu"]);
    let encoded = encode(&tokenizer, "the fox", "", "deu").unwrap();
    assert_eq!(encoded.ids[0], id(&tokenizer, "deu"));
}

#[test]
fn a_directory_that_cannot_be_read_names_what_is_missing() {
    let place = TemporaryFolder::new("empty");
    let message = |place: &TemporaryFolder| Tokenizer::from_dir(&place.0).unwrap_err().to_string();
    assert!(message(&place).ends_with("expected config.json with model_type or tokenizer_config.json with tokenizer_class, found none"), "{}", message(&place));
    for (config, end) in [
        (
            r#"{"model_type": "marian"}"#,
            "expected source.spm, target.spm and vocab.json, found none",
        ),
        (r#"{"model_type": "led"}"#, "found \"led\""),
        (r#"{"model_type": "bert"}"#, "found \"BertJapaneseTokenizer\""),
        (r#"{"model_type": 3}"#, "config.json: model_type: expected a text, found 3"),
        ("[]", "config.json: expected a JSON object, found []"),
        (
            "{",
            "config.json: expected JSON, found an error: EOF while parsing an object at line 1 column 1",
        ),
    ] {
        place.write("config.json", config);
        let class =
            if config.contains("bert") { "BertJapaneseTokenizer" } else { "TokenizersBackend" };
        place.write("tokenizer_config.json", format!(r#"{{"tokenizer_class": "{class}"}}"#));
        assert!(message(&place).ends_with(end), "{}", message(&place));
    }
    // If the feature is off, the error is another one.
    place.write("config.json", r#"{"model_type": "t5"}"#);
    assert!(message(&place).contains("spiece.model"), "{}", message(&place));
}
