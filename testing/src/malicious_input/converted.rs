//! Malicious directories of CTranslate2: counts, lengths and shapes that lie, settings and vocabularies.

use super::{MaliciousDirectory, text};
use crate::ctranslate2::{Directory, Stored};
use crate::random_model::Dims;
use simdformer::config::Family;

const MODEL: &str = "model.bin";
const VOCABULARY: &str = "shared_vocabulary.json";

pub(super) fn converted(directories: &mut Vec<MaliciousDirectory>) {
    let checkpoint = Dims::small(Family::Bart).checkpoint(5);
    let good = Directory::from_checkpoint(&checkpoint, Stored::Int8);
    let bytes = good.model.bytes();
    let settings = good.config.as_ref().map_or(String::new(), ToString::to_string);
    let tokens = serde_json::json!(good.vocabularies[0].1).to_string();
    let files = |model: Vec<u8>| {
        vec![(MODEL, model), ("config.json", text(&*settings)), (VOCABULARY, text(&*tokens))]
    };
    let mut add = |name: &str, files: Vec<(&str, Vec<u8>)>, words: &[&str]| {
        directories.push(MaliciousDirectory::new(format!("converted: {name}"), files, words));
    };
    // The number of variables follows the version, the specification and its revision.
    let count = 4 + 2 + good.model.specification.len() + 1 + 4;
    let with = |at: usize, new: &[u8]| {
        let mut changed = bytes.clone();
        changed[at..at + new.len()].copy_from_slice(new);
        changed
    };
    let most = u32::MAX.to_le_bytes();
    add("version of billions", files(with(0, &most)), &[MODEL, "version 4, 5 or 6"]);
    add("billions of variables", files(with(count, &most)), &["at most 32768 tensors"]);
    add("more variables", files(with(count, &30_000u32.to_le_bytes())), &[MODEL, "expected"]);
    add("no variables", files(with(count, &[0; 4])), &[MODEL, "tensors, as in every real one"]);
    let name = count + 4;
    add("name of 64 kB", files(with(name, &[255; 2])), &["a text of 1 to 512 bytes", "65535"]);
    add("name without end", files(with(name, &[3, 0])), &["a zero byte at the end"]);
    add("nothing", files(Vec::new()), &[MODEL, "4 bytes of the version", "found 0"]);
    add("half", files(bytes[..bytes.len() / 2].to_vec()), &[MODEL, "truncated"]);
    add("more at the end", files([&bytes[..], &[7; 9]].concat()), &["9 more bytes"]);
    let long = || {
        let mut directory = good.clone();
        directory.model.variables[0].shape = vec![u32::MAX; 8];
        directory.model.bytes()
    };
    add("dimensions that overflow", files(long()), &["the bytes of"]);
    let mut many = good.clone();
    many.model.aliases.extend((0..40_000).map(|i| (format!("alias{i}"), "x".to_owned())));
    add("40,000 aliases", files(many.model.bytes()), &["at most 32768 tensors"]);
    let mut layers = good.clone();
    let first = "encoder/layer_0/ffn/linear_0/weight".to_owned();
    let aliases =
        (2..20_000).map(|i| (format!("encoder/layer_{i}/ffn/linear_0/weight"), first.clone()));
    layers.model.aliases.extend(aliases);
    add("20,000 layers that are one", files(layers.model.bytes()), &[MODEL, "expected"]);
    let vocabulary = |tokens: String| {
        vec![(MODEL, bytes.clone()), ("config.json", text(&*settings)), (VOCABULARY, text(tokens))]
    };
    add(
        "vocabulary that is an object",
        vocabulary("{}".to_owned()),
        &[VOCABULARY, "a list of tokens"],
    );
    add(
        "vocabulary of numbers",
        vocabulary("[1, 2]".to_owned()),
        &[VOCABULARY, "a list of tokens"],
    );
    add(
        "vocabulary without end",
        vocabulary("[".repeat(100_000)),
        &[VOCABULARY, "a list of tokens"],
    );
    let far = format!("[\"t0\",{}\"t2\"]", "\"x\",".repeat(500_000));
    add("token beyond the vocabulary", vocabulary(far), &["an id below the target vocabulary"]);
    // Most of the file is a hole.
    let mut hole = good.clone();
    hole.model.variables[0].shape = vec![1_000_000_000];
    let mut sparse = hole.model.bytes();
    let length = name + 2 + hole.model.variables[0].name.len() + 1 + 1 + 4 + 1;
    sparse[length - 1] = 0;
    sparse[length..length + 4].copy_from_slice(&4_000_000_000u32.to_le_bytes());
    directories.push(MaliciousDirectory {
        sparse: Some((MODEL, 4_100_000_000)),
        ..MaliciousDirectory::new("converted: a hole", files(sparse), &[MODEL, "expected"])
    });
}
