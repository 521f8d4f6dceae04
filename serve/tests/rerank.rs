//! `/rerank`: what clients of TEI and Cohere get.

use crate::client::{config, get, of_encoder, posted};
use serde_json::json;
use simdformer_serve::{Models, Server};
use simdformer_testing::published::encoder;
use simdformer_text::embedder::{RerankOptions, Reranker};

#[test]
fn scores_are_those_of_the_reranker_best_first() {
    let place = encoder("bert_cross");
    let server = of_encoder(&place, config(), true);
    let reranker = Reranker::open(&place.0).unwrap();
    let (query, texts) = ("who lives here?", ["people", "a car", "the old house", "people"]);
    let scores = reranker.score(query, &texts).unwrap();
    let mut order: Vec<usize> = (0..texts.len()).collect();
    let score = |i: usize| scores[i].result.clone().unwrap();
    order.sort_by(|&a, &b| score(a).best_first(&score(b)));
    let body = json!({"query": query, "texts": texts, "return_text": true});
    let found = posted(&server, "/rerank", &body, 200);
    let expected: Vec<_> = order
        .iter()
        .map(|&i| json!({"index": i, "score": score(i).value, "text": texts[i]}))
        .collect();
    assert_eq!(found, json!(expected));
    let body = json!({"query": query, "texts": texts, "raw_scores": true});
    let found = posted(&server, "/rerank", &body, 200);
    assert_eq!(found[0], json!({"index": order[0], "score": score(order[0]).raw}));
    for (path, documents) in [
        ("/v2/rerank", json!(texts)),
        ("/v1/rerank", json!(texts.map(|text| json!({"text": text})))),
    ] {
        let body = json!({"model": "x", "query": query, "documents": documents, "top_n": 2});
        let found = posted(&server, path, &body, 200);
        let expected: Vec<_> = order[..2]
            .iter()
            .map(|&i| json!({"index": i, "relevance_score": score(i).value}))
            .collect();
        assert_eq!(found["results"], json!(expected), "{path}");
    }
    assert_eq!(get(&server, "/ready").status, 200);
}

#[test]
fn wrong_requests_are_errors_of_each_dialect() {
    let place = encoder("bert_cross");
    let server = of_encoder(&place, config(), true);
    let long = "house ".repeat(3000);
    for (body, part) in [
        (json!({"texts": ["a"]}), "query: expected a string, found nothing"),
        (json!({"query": "a"}), "texts: expected a list of strings, found nothing"),
        (json!({"query": "a", "texts": "b"}), "texts: expected a list of strings, found \"b\""),
        (json!({"query": "a", "texts": ["b", 1]}), "texts[1]: expected a string, found 1"),
        (json!({"query": "a", "texts": ["b", long]}), "text 1: "),
        (
            json!({"query": "a", "texts": ["b"], "raw_scores": 2}),
            "raw_scores: expected true or false",
        ),
        (
            json!({"query": "a", "texts": ["b"], "truncation_direction": "left"}),
            "expected fields of /openapi.json, found \"truncation_direction\"",
        ),
    ] {
        let found = posted(&server, "/rerank", &body, 400);
        assert!(found["error"].as_str().unwrap().contains(part), "{body}: {found}");
        assert_eq!(found["error_type"], "Validation");
    }
    for (body, part) in [
        (json!({"query": "a", "documents": [{"title": "b"}]}), "strings, or objects with a text"),
        (
            json!({"query": "a", "documents": ["b"], "top_n": 0}),
            "top_n: expected a whole number from 1 up",
        ),
        (
            json!({"query": "a", "documents": ["b"], "max_tokens_per_doc": 8}),
            "expected fields of /openapi.json, found \"max_tokens_per_doc\"",
        ),
    ] {
        let found = posted(&server, "/v2/rerank", &body, 400);
        assert!(found["message"].as_str().unwrap().contains(part), "{body}: {found}");
    }
}

/// A text that is cut says so; for TEI it is an error unless the client agrees.
#[test]
fn a_cut_text_is_told() {
    let place = encoder("bert_cross");
    let cuts =
        Reranker::builder(&place.0).options(|options: &mut RerankOptions| options.truncate = true);
    let mut models = Models::default();
    models.reranker = Some(cuts.open().unwrap());
    let server = Server::start(models, config()).unwrap();
    let texts = json!(["b", "house ".repeat(3000)]);
    let mut body = json!({"query": "a", "texts": texts});
    let found = posted(&server, "/rerank", &body, 400);
    assert!(found["error"].as_str().unwrap().starts_with("text 1: expected one that"), "{found}");
    body["truncate"] = true.into();
    let mut found = posted(&server, "/rerank", &body, 200);
    found.as_array_mut().unwrap().sort_by_key(|one| one["index"].as_u64());
    assert_eq!((&found[0]["truncated"], &found[1]["truncated"]), (&json!(null), &json!(true)));
    let body = json!({"query": "a", "documents": texts});
    let mut found = posted(&server, "/v2/rerank", &body, 200);
    let results = found["results"].as_array_mut().unwrap();
    results.sort_by_key(|one| one["index"].as_u64());
    assert_eq!((&results[0]["truncated"], &results[1]["truncated"]), (&json!(null), &json!(true)));
}
