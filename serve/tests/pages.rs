//! `docs/serve.md`: each request that it shows has the answer that it shows.

use crate::client::{config, post, translating};
use serde_json::Value;

#[test]
fn requests_of_the_page_have_its_answers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/serve.md");
    let page = std::fs::read_to_string(path).unwrap();
    let server = translating(config());
    let (mut sent, mut compared) = (0, 0);
    let blocks: Vec<&str> = page.split("\n```").collect();
    for (i, block) in blocks.iter().enumerate() {
        let Some(command) = block.strip_prefix("sh\ncurl http://127.0.0.1:8080") else { continue };
        let (path, rest) = command.split_once(" -d '").unwrap();
        let body: Value = serde_json::from_str(rest.split('\'').next().unwrap()).unwrap();
        let answer = post(&server, path, &body);
        sent += 1;
        // The block after the text that follows.
        if let Some(expected) = blocks.get(i + 2).and_then(|block| block.strip_prefix("json\n")) {
            assert_eq!(answer.body, expected, "{command}");
            compared += 1;
        } else {
            assert!(answer.status == 200 && answer.body.contains("event: done"), "{answer:?}");
        }
    }
    assert_eq!((sent, compared), (4, 3));
}
