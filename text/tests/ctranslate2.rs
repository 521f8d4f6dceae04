//! Directories of CTranslate2 translate as the checkpoints that they were made of, with the tokenizers that their users
//! have: two SentencePiece files, one, and vocabularies as JSON or text; also after packing.

use serde_json::{Value, json};
use simdformer::checkpoint::Checkpoint;
use simdformer::{Model, WeightDtypes};
use simdformer_testing::ctranslate2::{Directory, Stored};
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::packed::{self, PackOptions};
use simdformer_text::{Family, Tokenizer, translator::Translator};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const TEXTS: [&str; 3] =
    ["je suis étudiant", "où est la gare ?", "elle a acheté une voiture rouge ."];

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fr-en")
}

/// The demo model in `folder`, with its vocabulary under `names`.
fn convert(folder: &Path, stored: Stored, names: &[&'static str]) {
    converted(stored, names).write(folder);
    // The converter copies it if it is asked to.
    fs::copy(demo().join("generation_config.json"), folder.join("generation_config.json")).unwrap();
}

fn converted(stored: Stored, names: &[&'static str]) -> Directory {
    let checkpoint = Checkpoint::open(demo()).unwrap();
    let mut directory = Directory::from_checkpoint(&checkpoint, stored);
    let text = fs::read_to_string(demo().join("vocab.json")).unwrap();
    let ids: BTreeMap<String, usize> = serde_json::from_str(&text).unwrap();
    let mut tokens: Vec<String> =
        (0..checkpoint.config().target_vocab).map(|id| format!("t{id}")).collect();
    for (token, id) in ids {
        tokens[id] = token;
    }
    directory.vocabularies = names.iter().map(|&name| (name, tokens.clone())).collect();
    let config = directory.config.as_mut().unwrap();
    for (key, token) in
        [("eos_token", "</s>"), ("unk_token", "<unk>"), ("decoder_start_token", "<pad>")]
    {
        config[key] = token.into();
    }
    directory
}

fn copy(folder: &Path, from: &str, to: &str) {
    fs::copy(demo().join(from), folder.join(to)).unwrap();
}

fn set(folder: &Path, key: &str, value: Value) {
    let file = folder.join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    config[key] = value;
    fs::write(file, config.to_string()).unwrap();
}

fn translations(folder: &Path) -> Vec<String> {
    let translator = Translator::open(folder).unwrap();
    TEXTS.iter().map(|text| translator.translate(text).unwrap()).collect()
}

/// Every tokenizer gives the ids and the texts of the checkpoint.
#[test]
fn directories_translate_with_the_tokenizers_of_their_users() {
    let expected = translations(&demo());
    let source = Tokenizer::from_dir(demo()).unwrap();
    let place = TemporaryFolder::new("ctranslate2-tokenizers");
    for (vocabularies, text) in [
        (&["shared_vocabulary"][..], false),
        (&["shared_vocabulary"], true),
        (&["source_vocabulary", "target_vocabulary"], true),
    ] {
        for one in [false, true] {
            let folder = place.0.join(format!("{}{text}{one}", vocabularies.len()));
            convert(&folder, Stored::F32, vocabularies);
            if text {
                for name in vocabularies {
                    let list = folder.join(format!("{name}.json"));
                    let tokens: Vec<String> =
                        serde_json::from_str(&fs::read_to_string(&list).unwrap()).unwrap();
                    fs::write(folder.join(format!("{name}.txt")), tokens.join("\n") + "\n")
                        .unwrap();
                    fs::remove_file(list).unwrap();
                }
            }
            if one {
                copy(&folder, "source.spm", "sentencepiece.model");
                set(&folder, "add_source_eos", json!(true));
            } else {
                copy(&folder, "source.spm", "source.spm");
                copy(&folder, "target.spm", "target.spm");
            }
            let tokenizer = Tokenizer::from_dir(&folder).unwrap();
            let family = if one { Family::OpenNmt } else { Family::Marian };
            assert_eq!(tokenizer.family(), family);
            for text in TEXTS {
                let direction = Default::default();
                let ids = |of: &Tokenizer| of.encode(text, &direction).unwrap().ids;
                assert_eq!(ids(&tokenizer), ids(&source), "{text}");
            }
            assert_eq!(translations(&folder), expected, "{vocabularies:?} {text} {one}");
        }
    }
}

/// Before version 6, `model.bin` says which tokens are added to a source. The translator adds them, also after packing.
#[test]
fn early_versions_add_their_tokens_to_the_source() {
    let expected = translations(&demo());
    let place = TemporaryFolder::new("ctranslate2-early");
    let (folder, packed) = (place.0.join("directory"), place.0.join("packed"));
    let mut directory = converted(Stored::F32, &["shared_vocabulary"]);
    (directory.model.version, directory.config) = (5, None);
    // The first token of a target is that of the begin.
    let begin = b"<pad>";
    directory.model.push("bos_token", 1, &[begin.len()], begin.to_vec());
    directory.model.flag("with_source_eos", 1);
    directory.write(&folder);
    copy(&folder, "generation_config.json", "generation_config.json");
    copy(&folder, "source.spm", "sentencepiece.model");
    let translator = Translator::open(&folder).unwrap();
    let ids = translator.tokenizer().encode(TEXTS[0], &Default::default()).unwrap().ids;
    let source = Tokenizer::from_dir(demo()).unwrap();
    assert_eq!(ids, source.encode(TEXTS[0], &Default::default()).unwrap().ids);
    assert_eq!(translations(&folder), expected);
    packed::pack(&folder, &packed, &PackOptions::default()).unwrap();
    assert_eq!(translations(&packed), expected);
}

/// Packed weights of such a directory have its results, and the tokenizer finds its settings.
#[test]
fn a_packed_directory_is_the_same_model() {
    let place = TemporaryFolder::new("ctranslate2-packed");
    let (folder, packed) = (place.0.join("directory"), place.0.join("packed"));
    convert(&folder, Stored::Int8, &["shared_vocabulary"]);
    copy(&folder, "source.spm", "sentencepiece.model");
    set(&folder, "add_source_eos", json!(true));
    let options = PackOptions { dtypes: WeightDtypes::as_stored(), ..PackOptions::default() };
    let written = packed::pack(&folder, &packed, &options).unwrap();
    assert_eq!(written.fingerprint, Model::open(&folder).unwrap().fingerprint());
    assert_eq!(written.fingerprint, Model::open(&packed).unwrap().fingerprint());
    assert!(!packed.join("model.bin").exists());
    assert_eq!(translations(&packed), translations(&folder));
}

/// A directory without settings of a tokenizer: its files and its tokens tell the family. With a vocabulary alone only
/// tokens are known, and a text is an error that says so.
#[test]
fn files_and_tokens_tell_the_family() {
    let place = TemporaryFolder::new("ctranslate2-families");
    for (token, file, family) in [
        ("eng_Latn", "sentencepiece.bpe.model", Family::Nllb),
        ("__en__", "sentencepiece.bpe.model", Family::M2m100),
        ("<mask_1>", "spiece.model", Family::Pegasus),
        ("<extra_id_0>", "spiece.model", Family::T5),
        ("other", "sentencepiece.model", Family::OpenNmt),
    ] {
        let folder = place.0.join(token.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("model.bin"), "").unwrap();
        let tokens = ["<unk>", "</s>", token];
        fs::write(folder.join("shared_vocabulary.json"), json!(tokens).to_string()).unwrap();
        let alone = Tokenizer::from_dir(&folder).unwrap();
        assert_eq!(alone.family(), Family::OpenNmt);
        assert_eq!(alone.token(2).as_deref(), Some(token));
        let error = alone.encode("text", &Default::default()).unwrap_err().to_string();
        assert!(error.contains("SentencePiece file or tokenizer.json"), "{error}");
        copy(&folder, "source.spm", file);
        assert_eq!(Tokenizer::from_dir(&folder).unwrap().family(), family, "{token}");
    }
}
