//! Which files of a model are needed: its configuration, its tokenizer, and its weights in one format.

use crate::hub::error::HubError;
use crate::hub::model_name::{ModelName, is_relative};
use serde_json::Value;
use simdformer::task_heads::SETTINGS_FILES;
use std::collections::BTreeSet;

/// Files that are needed if the model has them, in its directory and in the folders of its modules; also the first that
/// exists of [`SETTINGS_FILES`].
const NEEDED: [&str; 26] = [
    "config.json",
    "generation_config.json",
    // Tokenizers.
    "merges.txt",
    "sentencepiece.bpe.model",
    "source.spm",
    "spiece.model",
    "spm.model",
    "target.spm",
    "target_vocab.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    // Tokenizers of CTranslate2.
    "sentencepiece.model",
    "shared_vocabulary.json",
    "shared_vocabulary.txt",
    "source_vocabulary.json",
    "source_vocabulary.txt",
    "target_vocabulary.json",
    "target_vocabulary.txt",
    "vocabulary.json",
    "vocabulary.txt",
    // Audio features.
    "preprocessor_config.json",
    "processor_config.json",
    // sentence-transformers.
    "config_sentence_transformers.json",
    MODULES,
];
const MODULES: &str = "modules.json";

/// Weights in one file or in shards with an index, the preferred format first.
const WEIGHTS: [(&str, &str); 3] = [
    ("model.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
    // CTranslate2, which has no shards.
    ("model.bin", "model.bin.index.json"),
];
/// What weights in formats that are not read are called.
const OTHER_WEIGHTS: [&str; 10] =
    [".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".ot", ".h5", ".msgpack", ".gguf", ".npz"];
/// The most names of such files in an error.
const LISTED: usize = 6;
/// The most shards of one model.
const SHARDS: usize = 10_000;

/// Reads a JSON file of the model.
pub(crate) type ReadFile<'r> = dyn FnMut(&str) -> Result<Vec<u8>, HubError> + 'r;

/// The needed ones of `files`; the weights come last.
///
/// # Errors
/// There are no weights in a format that is read; an index or `modules.json` names a file that does not exist or is
/// outside of the directory; `read` failed.
pub(crate) fn select(
    name: &ModelName,
    files: &BTreeSet<String>,
    read: &mut ReadFile<'_>,
) -> Result<Vec<String>, HubError> {
    let wrong = |reason: String| HubError::Files { name: name.to_string(), reason };
    let mut folders = vec![String::new()];
    if files.contains(MODULES) {
        let modules: Result<Vec<Value>, _> = serde_json::from_slice(&read(MODULES)?);
        let modules =
            modules.map_err(|error| wrong(format!("{MODULES}: expected a list: {error}")))?;
        for module in &modules {
            match module["path"].as_str() {
                None | Some("") => (),
                Some(path) if is_relative(path) => folders.push(format!("{path}/")),
                Some(path) => {
                    let reason = format!("{MODULES} names {path:?}, which is outside of the model");
                    return Err(wrong(reason));
                }
            }
        }
    }
    let (mut selected, mut weights) = (Vec::new(), Vec::new());
    for folder in &folders {
        let names = NEEDED.iter().map(|needed| format!("{folder}{needed}"));
        selected.extend(names.filter(|path| files.contains(path)));
        let mut settings = SETTINGS_FILES.iter().map(|name| format!("{folder}{name}"));
        selected.extend(settings.find(|path| files.contains(path)));
        weights.extend(weights_of(folder, files, read, &wrong)?);
    }
    if weights.is_empty() {
        let is_other = |file: &&String| OTHER_WEIGHTS.iter().any(|end| file.ends_with(end));
        let found: Vec<&str> =
            files.iter().filter(is_other).take(LISTED).map(|file| &file[..]).collect();
        let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
        return Err(wrong(format!(
            "expected weights in model.safetensors, pytorch_model.bin or model.bin, found {found}; a pull request may have them: \
             {}@refs/pr/NUMBER",
            name.repository()
        )));
    }
    selected.extend(weights);
    let mut seen = BTreeSet::new();
    selected.retain(|path| seen.insert(path.clone()));
    Ok(selected)
}

/// The files of the weights in a folder; none if it has none.
fn weights_of(
    folder: &str,
    files: &BTreeSet<String>,
    read: &mut ReadFile<'_>,
    wrong: &dyn Fn(String) -> HubError,
) -> Result<Vec<String>, HubError> {
    for (single, index) in WEIGHTS {
        let path = format!("{folder}{single}");
        if files.contains(&path) {
            return Ok(vec![path]);
        }
        let path = format!("{folder}{index}");
        if files.contains(&path) {
            let mut all = vec![path.clone()];
            all.extend(shards(folder, &path, files, &read(&path)?, wrong)?);
            return Ok(all);
        }
        // The only safetensors file of a directory is read whatever its name.
        if single.ends_with(".safetensors")
            && let Some(only) = only_safetensors(folder, files)
        {
            return Ok(vec![only.to_owned()]);
        }
    }
    Ok(Vec::new())
}

/// The files that an index names.
fn shards(
    folder: &str,
    index: &str,
    files: &BTreeSet<String>,
    bytes: &[u8],
    wrong: &dyn Fn(String) -> HubError,
) -> Result<BTreeSet<String>, HubError> {
    let parsed: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let Some(tensors) = parsed["weight_map"].as_object() else {
        return Err(wrong(format!("{index}: expected a weight_map")));
    };
    let mut all = BTreeSet::new();
    for shard in tensors.values() {
        let name = shard.as_str().unwrap_or_default();
        let path = format!("{folder}{name}");
        if !is_relative(name) || name.contains('/') {
            return Err(wrong(format!("{index} names {shard}, which is outside of the model")));
        }
        if !files.contains(&path) {
            return Err(wrong(format!("{index} names {path}, which the model does not have")));
        }
        all.insert(path);
        if all.len() > SHARDS {
            return Err(wrong(format!("{index}: expected at most {SHARDS} shards, found more")));
        }
    }
    Ok(all)
}

/// The only safetensors file of a folder, if it is neither a shard nor an adapter nor in another precision.
fn only_safetensors<'f>(folder: &str, files: &'f BTreeSet<String>) -> Option<&'f str> {
    let inside = files.iter().filter_map(|file| file.strip_prefix(folder));
    let mut found = inside.filter(|name| !name.contains('/') && name.ends_with(".safetensors"));
    let only = found.next().filter(|_| found.next().is_none())?;
    let usable = !only.starts_with("model.")
        && !only.starts_with("consolidated")
        && !only.starts_with("adapter")
        && !only.contains("-of-");
    let path = format!("{folder}{only}");
    files.get(&path).filter(|_| usable).map(|path| &path[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(files: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let name: ModelName = "a/b".parse()?;
        let names = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        let mut read = |path: &str| {
            let found = files.iter().find(|(known, _)| *known == path);
            Ok(found.map(|(_, text)| text.as_bytes().to_vec()).unwrap_or_default())
        };
        select(&name, &names, &mut read).map_err(|error| error.to_string())
    }

    #[test]
    fn one_format_of_the_weights_is_selected_and_no_file_of_other_libraries() {
        let index =
            r#"{"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}"#;
        let old = r#"{"weight_map": {"a": "pytorch_model-1-of-1.bin"}}"#;
        for (files, expected) in [
            (
                &[
                    ("config.json", ""),
                    ("flax_model.msgpack", ""),
                    ("model.safetensors", ""),
                    ("onnx/model.onnx", ""),
                    ("pytorch_model.bin", ""),
                    ("README.md", ""),
                    ("source.spm", ""),
                    ("tf_model.h5", ""),
                ][..],
                &["config.json", "source.spm", "model.safetensors"][..],
            ),
            (&[("pytorch_model.bin", ""), ("rust_model.ot", "")], &["pytorch_model.bin"]),
            (
                &[
                    ("model-1-of-2.safetensors", ""),
                    ("model-2-of-2.safetensors", ""),
                    ("model.safetensors.index.json", index),
                    ("pytorch_model.bin", ""),
                ],
                &[
                    "model.safetensors.index.json",
                    "model-1-of-2.safetensors",
                    "model-2-of-2.safetensors",
                ],
            ),
            (
                &[("pytorch_model-1-of-1.bin", ""), ("pytorch_model.bin.index.json", old)],
                &["pytorch_model.bin.index.json", "pytorch_model-1-of-1.bin"],
            ),
            (&[("nllb.safetensors", ""), ("pytorch_model.bin", "")], &["nllb.safetensors"]),
            (&[("model.fp16.safetensors", ""), ("pytorch_model.bin", "")], &["pytorch_model.bin"]),
            (
                &[("adapter_model.safetensors", ""), ("pytorch_model.bin", "")],
                &["pytorch_model.bin"],
            ),
        ] {
            let expected: Vec<String> = expected.iter().map(|path| (*path).to_owned()).collect();
            assert_eq!(selected(files), Ok(expected), "{files:?}");
        }
    }

    #[test]
    fn folders_of_modules_are_selected() {
        let modules = r#"[{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Dense"}]"#;
        let files = [
            ("1_Pooling/config.json", ""),
            ("2_Dense/config.json", ""),
            ("2_Dense/model.safetensors", ""),
            ("2_Dense/pytorch_model.bin", ""),
            ("3_Other/config.json", ""),
            ("config.json", ""),
            ("model.safetensors", ""),
            ("modules.json", modules),
            // Names of older versions; only the first is read.
            ("sentence_roberta_config.json", ""),
            ("sentence_xlnet_config.json", ""),
        ];
        let expected = [
            "config.json",
            "modules.json",
            "sentence_roberta_config.json",
            "1_Pooling/config.json",
            "2_Dense/config.json",
            "model.safetensors",
            "2_Dense/model.safetensors",
        ];
        assert_eq!(selected(&files), Ok(expected.map(str::to_owned).to_vec()));
    }

    #[test]
    fn models_that_cannot_be_read_are_errors_that_say_why() {
        let index = |shard: &str| format!(r#"{{"weight_map": {{"a": {shard:?}}}}}"#);
        let module = |path: &str| format!(r#"[{{"path": {path:?}}}]"#);
        for (file, text, part) in [
            (
                "tf_model.h5",
                String::new(),
                "found tf_model.h5; a pull request may have them: a/b@refs/pr/",
            ),
            ("README.md", String::new(), "or model.bin, found none"),
            ("model.safetensors.index.json", String::new(), "expected a weight_map"),
            ("model.safetensors.index.json", index("../x"), "names \"../x\", which is outside"),
            ("model.safetensors.index.json", index("/etc/passwd"), "which is outside of the model"),
            ("model.safetensors.index.json", index("x/y"), "which is outside of the model"),
            ("model.safetensors.index.json", index("x"), "names x, which the model does not have"),
            ("modules.json", "{".to_owned(), "modules.json: expected a list: "),
            ("modules.json", "{}".to_owned(), "modules.json: expected a list: "),
            ("modules.json", module("../.."), "names \"../..\", which is outside of the model"),
            ("modules.json", module("/etc"), "names \"/etc\", which is outside of the model"),
        ] {
            let found = selected(&[(file, &text)]).err();
            assert!(found.as_ref().is_some_and(|error| error.contains(part)), "{file}: {found:?}");
        }
    }
}
