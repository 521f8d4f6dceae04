//! `/v1/embeddings`: what clients of OpenAI get.

use crate::client::{config, get, of_encoder, posted, wait_until_idle};
use serde_json::{Value, json};
use simdformer_serve::{Models, Server};
use simdformer_testing::published::encoder;
use simdformer_text::Direction;
use simdformer_text::embedder::{EmbedOptions, Embedder};

fn floats(vector: &Value) -> Vec<f32> {
    vector.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

/// What Python's `base64` and `numpy.frombuffer` make of it.
fn decoded(text: &str) -> Vec<f32> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    for four in text.as_bytes().chunks(4) {
        let digit = |i: usize| DIGITS.find(char::from(four[i])).unwrap_or(0) as u32;
        let bits = digit(0) << 18 | digit(1) << 12 | digit(2) << 6 | digit(3);
        let padding = four.iter().filter(|&&byte| byte == b'=').count();
        bytes.extend(&bits.to_be_bytes()[1..4 - padding]);
    }
    let float = |four: &[u8]| f32::from_le_bytes(four.try_into().unwrap());
    bytes.chunks(4).map(float).collect()
}

#[test]
fn vectors_are_those_of_the_embedder_in_every_form() {
    let place = encoder("bert");
    let server = of_encoder(&place, config(), false);
    let embedder = Embedder::open(&place.0).unwrap();
    let texts = ["the house", "", "a river by the old house"];
    let alone = |text| embedder.embed(&[text]).unwrap().remove(0);
    let expected: Vec<Vec<f32>> = texts.iter().map(|text| alone(text).result.unwrap()).collect();
    let tokens: usize = texts.iter().map(|text| alone(text).tokens).sum();
    let found = posted(&server, "/v1/embeddings", &json!({"input": texts, "model": "x"}), 200);
    assert_eq!((&found["object"], &found["model"]), (&json!("list"), &json!("simdformer")));
    assert_eq!(found["usage"], json!({"prompt_tokens": tokens, "total_tokens": tokens}));
    for (i, expected) in expected.iter().enumerate() {
        let one = &found["data"][i];
        assert_eq!((&one["index"], &one["object"]), (&json!(i), &json!("embedding")));
        // The same bits, not only close numbers.
        assert_eq!(&floats(&one["embedding"]), expected);
    }
    let body = json!({"input": texts[2], "encoding_format": "base64"});
    let found = posted(&server, "/v1/embeddings", &body, 200);
    assert_eq!(decoded(found["data"][0]["embedding"].as_str().unwrap()), expected[2]);
    let dims = 5;
    let options = |options: &mut EmbedOptions| options.dims = Some(dims);
    let short = Embedder::builder(&place.0).options(options).open().unwrap();
    let expected_short = short.embed(&texts[2..]).unwrap().remove(0).result.unwrap();
    let body = json!({"input": texts[2], "dimensions": dims});
    let found = posted(&server, "/v1/embeddings", &body, 200);
    assert_eq!(floats(&found["data"][0]["embedding"]), expected_short);
    // Ids, one list and several.
    let encode =
        |text| embedder.setup().tokenizer().encode(text, &Direction::default()).unwrap().ids;
    let ids: Vec<Vec<u32>> = texts.iter().map(|text| encode(text)).collect();
    for input in [json!(ids), json!([ids[0], texts[1], ids[2]])] {
        let found = posted(&server, "/v1/embeddings", &json!({"input": input}), 200);
        for (i, expected) in expected.iter().enumerate() {
            assert_eq!(&floats(&found["data"][i]["embedding"]), expected);
        }
    }
    let found = posted(&server, "/v1/embeddings", &json!({"input": ids[2]}), 200);
    assert_eq!(floats(&found["data"][0]["embedding"]), expected[2]);
    assert_eq!(get(&server, "/v1/models").json()["data"][0]["id"], "simdformer");
    assert_eq!(get(&server, "/ready").status, 200);
}

#[test]
fn a_list_may_exceed_the_limits_of_other_routes() {
    let place = encoder("bert");
    let mut limits = config();
    // Far less than the list has.
    (limits.items, limits.queue_tokens) = (8, 100);
    let server = of_encoder(&place, limits, false);
    let texts: Vec<String> = (0..700).map(|i| format!("the house {i}")).collect();
    let found = posted(&server, "/v1/embeddings", &json!({"input": texts}), 200);
    assert_eq!(found["data"].as_array().unwrap().len(), 700);
    let embedder = Embedder::open(&place.0).unwrap();
    for i in [0, 31, 32, 333, 699] {
        let expected = embedder.embed(&texts[i..=i]).unwrap().remove(0).result.unwrap();
        assert_eq!(floats(&found["data"][i]["embedding"]), expected, "{i}");
    }
    wait_until_idle(&server);
}

/// More than the answer may have is refused before it is computed, and floats have their shortest digits.
#[test]
fn answers_have_bounded_length() {
    let place = encoder("bert");
    let embedder = Embedder::open(&place.0).unwrap();
    let width = embedder.setup().width();
    let mut limits = config();
    limits.embedding_numbers = 3 * width + width - 1;
    let server = of_encoder(&place, limits, false);
    let answer = crate::client::post(&server, "/v1/embeddings", &json!({"input": vec!["a"; 4]}));
    let expected = format!("input: expected at most 3 items of {width} numbers, found 4");
    assert_eq!((answer.status, &answer.json()["error"]["message"]), (400, &json!(expected)));
    let answer = crate::client::post(&server, "/v1/embeddings", &json!({"input": vec!["a"; 3]}));
    assert_eq!(answer.status, 200);
    let vector = embedder.embed(&["a"]).unwrap().remove(0).result.unwrap();
    let texts = answer.body.split("\"embedding\":[").nth(1).unwrap().split(']').next().unwrap();
    for (text, number) in texts.split(',').zip(&vector) {
        assert_eq!(text.parse::<f32>().unwrap(), *number);
        let digits = |text: &str| {
            let text = text.split('e').next().unwrap();
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            digits.trim_matches('0').len()
        };
        assert_eq!(digits(text), digits(&number.to_string()), "{text}");
    }
}

#[test]
fn wrong_inputs_are_errors_of_openai() {
    let place = encoder("bert");
    let server = of_encoder(&place, config(), false);
    for (body, part) in [
        (json!({}), "input: expected a string"),
        (json!({"input": []}), "found a list of 0 items"),
        (json!({"input": {"a": 1}}), "found an object"),
        (json!({"input": ["a", 3]}), "found 3"),
        (json!({"input": [1, "a"]}), "found \"a\""),
        (json!({"input": [1, -1]}), "found -1"),
        (json!({"input": [1, 99_999_999]}), "99999999"),
        (json!({"input": "a", "encoding_format": "int8"}), "expected float or base64"),
        (json!({"input": "a", "dimensions": 0}), "dimensions: expected a whole number from 1 to"),
        (json!({"input": "a", "dimensions": 99_999}), "dimensions: expected a whole number"),
        (json!({"input": [[]]}), "input[0]: there are no tokens in it"),
        (json!({"input": "a", "truncate": false}), "fields of /openapi.json, found \"truncate\""),
    ] {
        let answer = crate::client::post(&server, "/v1/embeddings", &body);
        let found = answer.json();
        let text = found["error"]["message"].as_str().unwrap();
        assert!(answer.status == 400 && text.contains(part), "{body}: {answer:?}");
        assert_eq!(found["error"]["type"], "invalid_request_error");
    }
    posted(&server, "/v1/embeddings", &json!({"input": "a"}), 200);
}

/// Of a text that is longer than the directory declares only a part is read, and its vector says so.
#[test]
fn a_cut_text_is_told() {
    let place = encoder("bert");
    let cuts = Embedder::builder(&place.0)
        .options(|options: &mut EmbedOptions| options.max_tokens = Some(5));
    let mut models = Models::default();
    models.embedder = Some(cuts.open().unwrap());
    let server = Server::start(models, config()).unwrap();
    let texts = ["a", "a river by the old house"];
    for form in ["float", "base64"] {
        let body = json!({"input": texts, "encoding_format": form, "user": "x"});
        let found = posted(&server, "/v1/embeddings", &body, 200);
        let told = |i: usize| &found["data"][i]["truncated"];
        assert_eq!((told(0), told(1)), (&json!(null), &json!(true)));
    }
}
