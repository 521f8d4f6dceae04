//! Many clients at the same time: each answer is the one that its request has alone.

use crate::client::{config, connect, french, post_to, request, translating, wait_until_idle};
use serde_json::json;
use simdformer_testing::effort::cases;
use simdformer_testing::random_model::Random;
use simdformer_text::translator::Translator;
use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SENTENCES: [&str; 8] = [
    "je suis étudiant",
    "il fait froid.",
    "la maison blanche",
    "quel mois",
    "IL FAIT FROID !",
    "la maison ▾ blanche",
    "1234",
    "elle habite dans la vieille maison près de la rivière.",
];

/// A text of one to five sentences.
fn text(random: &mut Random) -> String {
    let sentences = (0..1 + random.below(5)).map(|_| SENTENCES[random.below(SENTENCES.len())]);
    sentences.collect::<Vec<_>>().join(". ")
}

/// What is asked, and the answer if it has one.
fn ask(
    address: SocketAddr,
    random: &mut Random,
    alone: &HashMap<String, String>,
    texts: &[String],
) {
    let text = &texts[random.below(texts.len())];
    let body = json!({"q": text, "source": "fr", "target": "en"});
    match random.below(10) {
        // Leaves before the answer.
        0 => {
            let mut client = connect(address);
            let bytes =
                request("POST", "/translate", "application/json", body.to_string().as_bytes());
            client.write_all(&bytes).unwrap();
            std::thread::sleep(Duration::from_millis(random.below(20) as u64));
        }
        1 => assert_eq!(
            post_to(address, "/translate", &json!({"q": text, "source": "xx"})).status,
            400
        ),
        2 => {
            let mut client = connect(address);
            client.write_all(b"POST /translate HTTP/1.1\r\n\r\n\0\xff").unwrap();
        }
        // Too long for the body, with another route in between.
        3 => assert_eq!(post_to(address, "/v1/embeddings", &body).status, 404),
        4 => {
            let found = post_to(address, "/translate/stream", &body).body;
            let last = found.trim_end().rsplit("\ndata: ").next().unwrap();
            let last: serde_json::Value = serde_json::from_str(last).unwrap();
            assert_eq!(last["translatedText"], json!(alone[text]), "{text}: {found}");
        }
        _ => {
            let found = post_to(address, "/translate", &body);
            assert_eq!(found.status, 200, "{found:?}");
            assert_eq!(found.json()["translatedText"], json!(alone[text]), "{text}");
        }
    }
}

#[test]
fn answers_are_those_of_requests_alone() {
    let (clients, requests) = (16, cases(200, 1000));
    let mut random = Random(7);
    let texts: Vec<String> = (0..40).map(|_| text(&mut random)).collect();
    let translator = Translator::open(french()).unwrap();
    let alone: HashMap<String, String> =
        texts.iter().map(|text| (text.clone(), translator.translate(text).unwrap())).collect();
    let server = translating(config());
    let address = server.address();
    let left = AtomicUsize::new(requests);
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (left, alone, texts) = (&left, &alone, &texts);
            scope.spawn(move || {
                let mut random = Random(100 + client);
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                    .is_ok()
                {
                    ask(address, &mut random, alone, texts);
                }
            });
        }
    });
    wait_until_idle(&server);
    server.stop();
}
