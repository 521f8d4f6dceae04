//! Many clients at the same time, of which some send what is wrong and some leave: each answer is the one that its request has
//! alone, memory does not grow, the thread that decodes allocates nothing, and nothing is left of those that leave.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[allow(dead_code, reason = "the other program uses more of it")]
mod client;

use client::{config, connect, exchange, french, metric, post_to, request, wait_until_idle};
use serde_json::{Value, json};
use simdformer::Threads;
use simdformer::kernels::Executor;
use simdformer_serve::{Models, Server};
use simdformer_testing::counting;
use simdformer_testing::effort::cases;
use simdformer_testing::random_model::Random;
use simdformer_text::translator::Translator;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

const CLIENTS: usize = 32;
/// Fewer than there are clients, or than leave: slots that are not given back would be missed soon.
const SLOTS: usize = 8;
const TEXTS: usize = 40;
/// Requests before memory is measured first.
const WARM_UP: usize = 100;

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

/// Runs each kernel on the thread that calls it, and notes how often the thread that decodes has allocated so far.
#[derive(Default)]
struct Watched {
    calls: AtomicU64,
    allocations: AtomicU64,
}

impl Executor for Watched {
    /// With one, kernels would not call it.
    fn threads(&self) -> usize {
        2
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(task);
        if std::thread::current().name() == Some("simdformer-translator") {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.allocations.store(counting::allocations_here(), Ordering::Relaxed);
        }
    }
}

impl Watched {
    /// Waits until nothing is decoded, and returns the calls and the allocations until then.
    fn at_rest(&self) -> (u64, u64) {
        let now = || [&self.calls, &self.allocations].map(|count| count.load(Ordering::Relaxed));
        let mut before = now();
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(100));
            if before == now() {
                return before.into();
            }
            before = now();
        }
        panic!("without a request, the model still runs after 10 s")
    }
}

/// The clients' knowledge: where the server is, and the translation of each text alone.
struct Asking {
    address: SocketAddr,
    texts: Vec<String>,
    alone: HashMap<String, String>,
}

impl Asking {
    /// Sends request `number`, and holds the answer to the one that it has alone.
    fn ask(&self, number: usize) {
        let address = self.address;
        let mut random = Random(number as u64);
        let text = &self.texts[number % TEXTS];
        let body = json!({"q": text, "source": "fr", "target": "en"});
        let sent = |path: &str| {
            let mut client = connect(address);
            let bytes = request("POST", path, "application/json", body.to_string().as_bytes());
            client.write_all(&bytes).unwrap();
            client
        };
        // The first ones ask for every text, so that later ones need no larger plan.
        let kind = if number < TEXTS { usize::MAX } else { random.below(16) };
        match kind {
            // Leaves before the answer, or in it.
            0 | 1 => {
                let client = sent("/translate");
                std::thread::sleep(Duration::from_millis(random.below(20) as u64));
                drop(client);
            }
            2 => {
                let mut client = sent("/translate/stream");
                client.read_exact(&mut [0; 12]).unwrap();
            }
            // Garbage.
            3 => {
                let mut client = connect(address);
                client.write_all(b"POST /translate HTTP/1.1\r\n\r\n\0\xff").unwrap();
            }
            4 => {
                let wrong = json!({"q": text, "source": "xx"});
                assert_eq!(post_to(address, "/translate", &wrong).status, 400);
            }
            5 => {
                assert_eq!(post_to(address, "/v1/embeddings", &json!({"input": text})).status, 404)
            }
            // Too long.
            6 => {
                let head = "POST /translate HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 3000000\r\n\r\n";
                assert_eq!(exchange(address, head.as_bytes()).unwrap().status, 413);
            }
            7 => {
                let found = post_to(address, "/translate/stream", &body).body;
                let last = found.trim_end().rsplit("\ndata: ").next().unwrap();
                let last: Value = serde_json::from_str(last).unwrap();
                assert_eq!(last["translatedText"], json!(self.alone[text]), "{text}: {found}");
            }
            _ => {
                let found = post_to(address, "/translate", &body);
                assert_eq!(found.status, 200, "{found:?}");
                assert_eq!(found.json()["translatedText"], json!(self.alone[text]), "{text}");
            }
        }
    }

    /// Sends these requests from all clients.
    fn ask_all(&self, numbers: Range<usize>) {
        let next = AtomicUsize::new(numbers.start);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= numbers.end {
                            break;
                        }
                        self.ask(number);
                    }
                });
            }
        });
    }
}

#[test]
fn many_clients_get_their_answers_and_leave_nothing_behind() {
    let requests = cases(400, 1000);
    let mut random = Random(7);
    let texts: Vec<String> = (0..TEXTS).map(|_| text(&mut random)).collect();
    let translator = Translator::open(french()).unwrap();
    let alone = texts.iter().map(|text| (text.clone(), translator.translate(text).unwrap()));
    let alone = alone.collect();
    drop(translator);
    let watched = Arc::new(Watched::default());
    let threads = Threads::Shared(Arc::<Watched>::clone(&watched));
    let translator =
        Translator::builder(french()).engine(|engine| engine.slots(SLOTS).threads(threads));
    let mut models = Models::default();
    models.translator = Some(translator.open().unwrap());
    let server = Server::start(models, config()).unwrap();
    let asking = Asking { address: server.address(), texts, alone };

    asking.ask_all(0..WARM_UP);
    wait_until_idle(&server);
    let (calls, allocations) = watched.at_rest();
    let bytes = counting::bytes();
    asking.ask_all(WARM_UP..requests);
    wait_until_idle(&server);
    let (calls_after, allocations_after) = watched.at_rest();
    let bytes_after = counting::bytes();

    let decoded = calls_after - calls;
    let told = format!(
        "{decoded} calls of kernels, {allocations} and {allocations_after} allocations of the thread that decodes, {bytes} and \
         {bytes_after} bytes"
    );
    assert!(decoded > requests as u64, "{told}");
    assert_eq!(allocations_after, allocations, "{told}");
    // The bytes that are allocated: those that are resident depend on how deep the stacks of the threads were, too.
    assert!(bytes_after as f64 <= 1.01 * bytes as f64, "{told}");
    assert!(metric(&server, "simdformer_abandoned_total") > 0.0);
    assert_eq!(metric(&server, "simdformer_refused_total"), 0.0);
    server.stop();
}
