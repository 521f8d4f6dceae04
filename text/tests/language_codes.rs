//! The codes of languages in the models that have many.

use crate::directories::full;
use simdformer_text::Tokenizer;
use simdformer_text::documents::sentences::model_language;

/// The codes of a model, whose files are those of a golden directory and others.
fn codes(name: &str, others: &[(&str, &str)]) -> Vec<String> {
    let place = full(name);
    for (file, text) in others {
        place.write(file, text);
    }
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    tokenizer.languages().unwrap().iter().map(|language| language.code().to_owned()).collect()
}

fn find<'l>(code: &str, languages: &'l [String]) -> Option<&'l str> {
    model_language(code, languages.iter().map(String::as_str))
}

/// A language of one model is found in the others by its own code.
#[test]
fn every_language_is_found_in_every_model_that_has_it() {
    let nllb = codes("nllb", &[]);
    let mbart = [
        ("tokenizer_config.json", r#"{"tokenizer_class": "MBartTokenizer"}"#),
        ("config.json", r#"{"model_type": "mbart"}"#),
    ];
    let wmt21 = r#"{"tokenizer_class": "M2M100Tokenizer", "language_codes": "wmt21"}"#;
    for (list, languages, missing) in [
        (codes("m2m100", &[]), 100, &["br", "fy"][..]),
        (codes("mbart50", &mbart), 25, &[]),
        (codes("mbart50", &[]), 52, &[]),
        (codes("m2m100", &[("tokenizer_config.json", wmt21)]), 8, &[]),
    ] {
        assert_eq!(list.len(), languages);
        for code in &list {
            assert_eq!(find(code, &list), Some(code.as_str()));
            let found = find(code, &nllb);
            assert_eq!(found.is_none(), missing.contains(&code.as_str()), "{code}: {found:?}");
            let back = found.and_then(|found| find(found, &list));
            assert!(found.is_none() || back == Some(code), "{code}: {found:?} {back:?}");
        }
    }
    for (code, language) in [
        ("ar", "arb_Arab"),
        ("zh", "zho_Hans"),
        ("fa", "pes_Arab"),
        ("no", "nob_Latn"),
        ("nn", "nno_Latn"),
        ("sr", "srp_Cyrl"),
        ("ms", "zsm_Latn"),
        ("aeb", "aeb_Arab"),
        ("mni", "mni_Beng"),
    ] {
        assert_eq!(find(code, &nllb), Some(language));
    }
}
