//! `/translate`, `/languages` and `/detect`: what clients of LibreTranslate get.

use crate::client::{
    config, exchange, french, get, metric, post, posted, request, translating, wait_until_idle,
};
use serde_json::json;
use simdformer_serve::{Models, Server};
use simdformer_testing::published::nllb;
use simdformer_text::documents::Format;
use simdformer_text::translator::Translator;

const TEXT: &str = "Je suis étudiant. Il fait froid !\n\nLa maison blanche.";

#[test]
fn texts_and_documents_have_the_translations_they_have_alone() {
    let server = translating(config());
    let translator = Translator::open(french()).unwrap();
    let expected = translator.translate(TEXT).unwrap();
    let found =
        posted(&server, "/translate", &json!({"q": TEXT, "source": "fr", "target": "en"}), 200);
    assert_eq!(found, json!({"translatedText": expected}));
    // A list, codes of other standards, and a language that is detected.
    let list =
        json!({"q": [TEXT, "", "1234", "je suis étudiant"], "source": "auto", "target": "eng"});
    let found = posted(&server, "/translate", &list, 200);
    assert_eq!(found["translatedText"], json!([expected, "", "1234", "i am a student"]));
    assert_eq!(found["detectedLanguage"][0]["language"], "fr");
    assert_eq!(found["detectedLanguage"][2], json!({"language": "und", "confidence": 0.0}));
    let page = "<p>Je suis <b>étudiant</b>.</p><script>je suis</script>";
    let expected = translator.translate_document(page, Format::Html).unwrap();
    let body = json!({"q": page, "source": "fr", "target": "en", "format": "html"});
    assert_eq!(posted(&server, "/translate", &body, 200)["translatedText"], json!(expected));
    // A form.
    let form = b"q=je+suis+%C3%A9tudiant&q=il+fait+froid&source=fr&target=en&format=text";
    let bytes =
        request("POST", "/translate", "application/x-www-form-urlencoded; charset=utf-8", form);
    let found = exchange(server.address(), &bytes).unwrap();
    assert_eq!(found.json()["translatedText"], json!(["i am a student", "it is cold"]));
    wait_until_idle(&server);
    assert!(metric(&server, "simdformer_sentences_total") >= 8.0);
    assert!(metric(&server, "simdformer_target_tokens_total") >= 30.0);
}

#[test]
fn alternatives_are_those_of_a_beam_search() {
    use simdformer::search::{BeamOptions, Strategy};
    let server = translating(config());
    let beams = Translator::builder(french()).options(|options| {
        options.search.strategy =
            Strategy::Beam(BeamOptions { beams: 3, ..BeamOptions::default() });
        options.search.num_return_sequences = 3;
    });
    let expected = beams.open().unwrap().translate_texts(&["la maison blanche."]).unwrap();
    let one = &expected[0].sentences[0].translation;
    assert_eq!(one.alternatives.len(), 2);
    let others: Vec<&str> = one.alternatives.iter().map(|other| &other.text[..]).collect();
    let body =
        json!({"q": "la maison blanche.", "source": "fr", "target": "en", "alternatives": 2});
    let found = posted(&server, "/translate", &body, 200);
    assert_eq!(found, json!({"translatedText": expected[0].text(), "alternatives": others}));
    // Of several sentences, with what stands between them.
    let body = json!({"q": ["la maison.\n\nil fait froid."], "target": "en", "alternatives": 1});
    let found = posted(&server, "/translate", &body, 200);
    let other = found["alternatives"][0][0].as_str().unwrap();
    assert!(other.contains("\n\n") && other != found["translatedText"][0], "{found}");
}

#[test]
fn what_cannot_be_translated_is_an_error() {
    let server = translating(config());
    let long = "maison ".repeat(400);
    for (body, status, part) in [
        (json!({"source": "fr", "target": "en"}), 400, "q: expected a string"),
        (json!({"q": 3}), 400, "q: expected a string, or a list of 1 to 1024 strings, found 3"),
        (json!({"q": []}), 400, "found a list of 0 items"),
        (json!({"q": ["a", null]}), 400, "q[1]: expected a string, found nothing"),
        (json!({"q": "a", "source": "de"}), 400, "source: expected fr, found \"de\""),
        (json!({"q": "a", "target": "fr"}), 400, "target: expected en, found \"fr\""),
        (json!({"q": "a", "source": 7}), 400, "source: expected a string, found 7"),
        (json!({"q": "a", "format": "pdf"}), 400, "format: expected text or html"),
        (json!({"q": "a", "alternatives": 99}), 400, "alternatives: expected a whole number"),
        (
            json!({"q": "a", "format": "html", "alternatives": 1}),
            400,
            "alternatives: expected none",
        ),
        (json!({"q": "a", "alignment": true}), 400, "alignment: expected none, which"),
        (
            json!({"q": "a", "sorce": "de"}),
            400,
            "body: expected fields of /openapi.json, found \"sorce\"",
        ),
        (json!(["a"]), 400, "body: expected a JSON object, found: invalid type: sequence"),
    ] {
        let found = posted(&server, "/translate", &body, status);
        assert!(found["error"].as_str().unwrap().contains(part), "{body}: {found}");
    }
    // A sentence that is too long for the model is translated in parts, as a translator does it.
    let expected = Translator::open(french()).unwrap().translate(&long).unwrap();
    let found = posted(&server, "/translate", &json!({"q": long, "target": "en"}), 200);
    assert_eq!(found["translatedText"], json!(expected));
    // Other routes have no model.
    for (path, body, text) in [
        ("/v1/embeddings", json!({"input": "a"}), "/error/message"),
        ("/rerank", json!({"query": "a", "texts": ["b"]}), "/error"),
        ("/v2/rerank", json!({"query": "a", "documents": ["b"]}), "/message"),
    ] {
        let found = posted(&server, path, &body, 404);
        let found = found.pointer(text).unwrap().as_str().unwrap();
        assert!(found.starts_with("expected a server with a model that "), "{path}: {found}");
    }
}

/// Words that the model does not know, and translations that reach the maximum length, of texts and of pages.
#[test]
fn what_is_to_be_known_of_a_translation_is_in_the_answer() {
    let server = translating(config());
    let unknown =
        "\"je suis etudiant\": the model does not know \"etudiant\" (near it: \"étudiant\"";
    let begins = |notes: &serde_json::Value, expected: &str| {
        assert!(notes.as_str().unwrap().starts_with(expected), "{notes}");
    };
    let found = posted(&server, "/translate", &json!({"q": "je suis etudiant"}), 200);
    begins(&found["notes"][0], unknown);
    let list = json!({"q": ["il fait froid", "je suis etudiant"], "source": null, "target": "en"});
    let found = posted(&server, "/translate", &list, 200);
    assert_eq!(found["notes"][0], json!([]));
    begins(&found["notes"][1][0], unknown);
    let page = json!({"q": "<p>il fait froid</p><p>je suis etudiant</p>", "format": "html"});
    let before = metric(&server, "simdformer_sentences_total");
    let found = posted(&server, "/translate", &page, 200);
    begins(&found["notes"][0], unknown);
    assert_eq!(metric(&server, "simdformer_sentences_total") - before, 2.0);
    let found = posted(&server, "/translate", &json!({"q": "il fait froid"}), 200);
    assert_eq!(found, json!({"translatedText": "it is cold"}));
    let mut models = Models::default();
    let short = Translator::builder(french()).options(|options| {
        options.search.max_new_tokens = Some(2);
        options.search.forced_eos.clear();
    });
    models.translator = Some(short.open().unwrap());
    let server = Server::start(models, config()).unwrap();
    for (q, format) in [("il fait froid", "text"), ("<p>il fait froid</p>", "html")] {
        let found = posted(&server, "/translate", &json!({"q": q, "format": format}), 200);
        assert_eq!(
            found["notes"],
            json!(["\"il fait froid\": the maximum length was reached"]),
            "{found}"
        );
    }
}

#[test]
fn languages_are_listed_and_detected() {
    let server = translating(config());
    assert_eq!(
        get(&server, "/languages").json(),
        json!([{"code": "fr", "name": "fr", "targets": ["en"]}, {"code": "en", "name": "en", "targets": []}])
    );
    let text = "Où est-ce qu'elle habite depuis son retour ?";
    let found = posted(&server, "/detect", &json!({"q": text}), 200);
    assert_eq!(found[0]["language"], "fr");
    let found = posted(&server, "/detect", &json!({"q": [text, "12"]}), 200);
    assert_eq!((&found[0][0]["language"], &found[1][0]["language"]), (&json!("fr"), &json!("und")));
    assert_eq!(post(&server, "/detect", &json!({})).status, 400);
}

/// A model of many languages, with random weights.
#[test]
fn each_request_has_its_own_direction() {
    let place = nllb();
    let translator = Translator::open(&place.0);
    let mut expected = Vec::new();
    let directions = [("en", "fr"), ("fra_Latn", "deu_Latn"), ("de", "en")];
    for (source, target) in
        [("eng_Latn", "fra_Latn"), ("fra_Latn", "deu_Latn"), ("deu_Latn", "eng_Latn")]
    {
        let builder = Translator::builder(&place.0).options(|options| {
            options.source = Some(source.to_owned());
            options.target = Some(target.to_owned());
        });
        expected.push(builder.open().unwrap().translate("the old house.").unwrap());
    }
    let mut models = Models::default();
    models.translator = Some(
        translator
            .or_else(|_| {
                let builder = Translator::builder(&place.0);
                builder.options(|options| options.target = Some("fra_Latn".to_owned())).open()
            })
            .unwrap(),
    );
    let server = Server::start(models, config()).unwrap();
    for ((source, target), expected) in
        directions.iter().zip(&expected).chain(directions.iter().zip(&expected))
    {
        let body = json!({"q": "the old house.", "source": source, "target": target});
        let found = posted(&server, "/translate", &body, 200);
        assert_eq!(found["translatedText"], json!(expected), "{source} to {target}");
    }
    let found =
        posted(&server, "/translate", &json!({"q": "a", "source": "xx", "target": "fr"}), 400);
    assert_eq!(found["error"], "source: expected a language of /languages, found \"xx\"");
    let languages = get(&server, "/languages").json();
    let codes: Vec<&str> =
        languages.as_array().unwrap().iter().map(|one| one["code"].as_str().unwrap()).collect();
    assert!(codes.contains(&"fr") && codes.contains(&"zho_Hans"), "{codes:?}");
    // Detected, and copied if it is in the language of the target.
    let text = "Où est-ce qu'elle habite depuis son retour ?";
    let found =
        posted(&server, "/translate", &json!({"q": text, "source": "auto", "target": "fr"}), 200);
    assert_eq!(
        (&found["translatedText"], &found["detectedLanguage"]["language"]),
        (&json!(text), &json!("fr"))
    );
    assert_eq!(get(&server, "/ready").status, 200);
}
