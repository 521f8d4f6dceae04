//! Small models under the names that the pages of the repository use, for `.ci/page-commands`.

use simdformer_testing::directories::{Temporary, full};
use simdformer_testing::published::{SEVERAL, whisper};
use simdformer_testing::published::{copy, encoder};
use simdformer_testing::published::{nllb, random};
use std::path::Path;

/// An encoder whose vectors have 512 numbers, with named prompts.
fn wide_encoder() -> Temporary {
    let place = full("bert");
    random(
        &place,
        r#"{"model_type": "bert", "hidden_size": 512, "num_hidden_layers": 1, "num_attention_heads": 8,
        "intermediate_size": 512, "vocab_size": 2295, "max_position_embeddings": 64, "type_vocab_size": 2}"#,
    );
    place.write(
        "config_sentence_transformers.json",
        r#"{"prompts": {"query": "query: ", "passage": "passage: "}}"#,
    );
    place
}

#[test]
#[ignore = "writes the models of .ci/page-commands to the folder SIMDFORMER_PAGE_MODELS"]
fn models_of_the_pages() {
    let folder = std::env::var("SIMDFORMER_PAGE_MODELS").expect("SIMDFORMER_PAGE_MODELS");
    for (name, model) in [
        ("nllb-200-distilled-600M", nllb()),
        ("all-MiniLM-L6-v2", encoder("bert")),
        ("ms-marco-MiniLM-L6-v2", encoder("bert_cross")),
        ("mxbai-embed-large-v1", wide_encoder()),
        ("whisper-base", whisper(SEVERAL)),
    ] {
        copy(&model.0, &Path::new(&folder).join(name));
    }
}
