//! Packages of Argos Translate: as a file and as a folder they are the directory of CTranslate2 in them, with the search of
//! Argos; what is hostile is an error in little memory. `tests/golden/argos_packages.py` compares with Argos itself.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::search::{BeamOptions, EarlyStopping, Strategy};
use simdformer_testing::argos::{Entry, archive, entries, extract, files, metadata, zip};
use simdformer_testing::counting::{CountingAllocator, most_bytes};
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::argos::{Package, open_checkpoint, open_tokenizer};
use simdformer_text::translator::{Batcher, TranslateOptions, Translator};
use simdformer_text::{Direction, Error, Family};
use std::fs;
use std::path::{Path, PathBuf};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// What an error may allocate.
const MOST_BYTES: usize = 10 << 20;

const TEXTS: [&str; 3] =
    ["je suis étudiant", "où est la gare ?", "elle a acheté une voiture rouge . il fait froid ."];

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fr-en")
}

fn translations(translator: &Translator) -> Vec<String> {
    TEXTS.iter().map(|text| translator.translate(text).unwrap()).collect()
}

fn greedy(path: &Path) -> Translator {
    let change = |options: &mut TranslateOptions| options.search.strategy = Strategy::Greedy;
    Translator::builder(path).options(change).open().unwrap()
}

#[test]
fn packages_are_the_directory_in_them_with_the_search_of_argos() {
    let place = TemporaryFolder::new("argos");
    let files = files(&metadata());
    let folder = place.0.join("folder");
    extract(&files, &folder);
    // The directory of CTranslate2, with the tokenizer beside it.
    let model = folder.join("model");
    let directory = place.0.join("directory");
    fs::create_dir_all(&directory).unwrap();
    for entry in fs::read_dir(&model).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, directory.join(path.file_name().unwrap())).unwrap();
    }
    fs::copy(folder.join("sentencepiece.model"), directory.join("sentencepiece.model")).unwrap();
    let beams = Translator::builder(&directory)
        .options(|options| {
            let beam = BeamOptions {
                beams: 4,
                length_penalty: 0.2,
                early_stopping: EarlyStopping::WhenFull,
                ..BeamOptions::default()
            };
            options.search.strategy = Strategy::Beam(beam);
            options.search.max_length = Some(257);
            options.search.min_new_tokens = 1;
        })
        .open()
        .unwrap();
    let mut packages = vec![folder];
    for (name, deflated) in [("deflated.argosmodel", true), ("stored.argosmodel", false)] {
        let file = place.0.join(name);
        fs::write(&file, zip(&entries(&files, deflated))).unwrap();
        packages.push(file);
    }
    let fingerprint = Checkpoint::open(&directory).unwrap();
    let table = fingerprint.tensor(TensorId::SourceEmbedding).unwrap().to_vec().unwrap();
    for path in &packages {
        assert!(Package::is_package(path));
        let package = Package::open(path).unwrap();
        assert_eq!((package.source(), package.target()), ("fr", "en"));
        let found = open_checkpoint(path).unwrap();
        assert_eq!(found.tensor(TensorId::SourceEmbedding).unwrap().to_vec().unwrap(), table);
        let translator = Translator::open(path).unwrap();
        assert_eq!(translator.tokenizer().family(), Family::OpenNmt);
        assert_eq!(translations(&translator), translations(&beams));
        assert_eq!(translations(&greedy(path)), translations(&greedy(&directory)));
        assert_eq!(translator.translate(TEXTS[0]).unwrap(), "i am a student");
        let direction = translator.options().direction();
        assert_eq!(translator.tokenizer().source_language(&direction), Some("fr"));
        assert_eq!(translator.tokenizer().target_language(&direction), Some("en"));
        let batcher = Batcher::open(path).unwrap();
        let found = batcher.submit(TEXTS[0]).unwrap().wait().unwrap();
        assert_eq!(found.text, "i am a student");
        let wrong = Translator::builder(path).options(|options: &mut TranslateOptions| {
            options.source = Some("de".to_owned());
        });
        assert!(matches!(wrong.open().unwrap_err(), Error::Language { .. }));
    }
    assert!(!Package::is_package(&directory) && !Package::is_package(place.0.join("none")));
}

/// The prefix begins each target, and is no part of its text.
#[test]
fn a_target_prefix_is_forced_and_not_shown() {
    let place = TemporaryFolder::new("argos-prefix");
    let mut about = metadata();
    about["target_prefix"] = "▁she".into();
    let file = place.0.join("prefix.argosmodel");
    fs::write(&file, archive(&about)).unwrap();
    let translator = Translator::open(&file).unwrap();
    let tokenizer = translator.tokenizer();
    let encoded = tokenizer.encode(TEXTS[0], &Direction::default()).unwrap();
    let forced = tokenizer.encode_target("she").unwrap();
    assert_eq!(encoded.forced_bos, Some(forced[0]));
    let found = &translator.translate_sentences(&[TEXTS[0]]).unwrap()[0];
    assert_eq!(found.tokens.first(), forced.first());
    assert!(!found.text.contains("she") && !found.text.is_empty(), "{}", found.text);
    let plain = Translator::open(demo()).unwrap();
    assert_ne!(plain.translate(TEXTS[0]).unwrap(), found.text);
    about["target_prefix"] = "<2xx>".into();
    fs::write(&file, archive(&about)).unwrap();
    let error = Translator::open(&file).unwrap_err().to_string();
    assert!(error.contains("target_prefix") && error.contains("<2xx>"), "{error}");
}

/// Words of Moses in pieces of BPE: `▁je` of the demo model is `je`.
#[test]
fn a_package_of_bpe_codes_has_words_of_moses() {
    let place = TemporaryFolder::new("argos-bpe");
    let mut files = files(&metadata());
    files.remove("sentencepiece.model");
    let vocabulary = files.get_mut("model/shared_vocabulary.json").unwrap();
    let mut tokens: Vec<String> = serde_json::from_slice(vocabulary).unwrap();
    for token in &mut tokens {
        *token = match token.strip_prefix('▁') {
            Some("'") => "&apos;".to_owned(),
            Some(word) => word.to_owned(),
            None => format!("{token}{}", if token.starts_with('<') { "" } else { "@@" }),
        };
    }
    *vocabulary = serde_json::to_vec(&tokens).unwrap();
    // A merge for each letter of each word, and one abbreviation.
    let mut codes = "#version: 0.2\nD r\nDr .</w>\n".to_owned();
    for word in "je suis étudiant il fait froid".split(' ') {
        for (at, letter) in word.char_indices().skip(1) {
            let end = if at + letter.len_utf8() == word.len() { "</w>" } else { "" };
            codes.push_str(&format!("{} {letter}{end}\n", &word[..at]));
        }
    }
    files.insert("bpe.model".to_owned(), codes.into_bytes());
    let file = place.0.join("bpe.argosmodel");
    fs::write(&file, zip(&entries(&files, true))).unwrap();
    let translator = Translator::open(&file).unwrap();
    assert_eq!(translator.tokenizer().family(), Family::OpenNmt);
    assert_eq!(translator.translate("je suis étudiant").unwrap(), "i am a student");
    // The period belongs to its sentence, without a space.
    let found = translator.translate("il fait froid.").unwrap();
    assert!(found.ends_with('.') && !found.contains(" ."), "{found}");
    let pieces = |translator: &Translator, text: &str| {
        translator.tokenizer().encode_text(text, &Direction::default()).unwrap().ids.len()
    };
    // A list of abbreviations in the package takes the place of the project's own.
    assert_eq!(pieces(&translator, "Dr. X"), ["Dr.", "X", "</s>"].len());
    files.insert("nonbreaking_prefixes.txt".to_owned(), b"# none\nXX\n".to_vec());
    fs::write(&file, zip(&entries(&files, true))).unwrap();
    let other = Translator::open(&file).unwrap();
    assert_eq!(pieces(&other, "Dr. X"), ["D@@", "r", ".", "X", "</s>"].len());
}

/// A change of the entries, and words of the error.
type Damage<'d> = (&'d str, &'d dyn Fn(&mut Vec<Entry>), &'d [&'d str]);

/// Hostile and damaged archives: an error each, in little memory and time.
#[test]
fn hostile_archives_are_errors() {
    let place = TemporaryFolder::new("argos-hostile");
    let whole = entries(&files(&metadata()), true);
    let of = |entries: &[Entry], name: &str| {
        entries.iter().position(|entry| entry.name.ends_with(name)).unwrap()
    };
    let replace = |entries: &mut Vec<Entry>, name: &str, content: &[u8]| {
        let index = of(entries, name);
        let place = entries[index].name.clone();
        entries[index] = Entry::new(&place, content, true);
    };
    let zeros = vec![0u8; 40 << 20];
    let mut begin = b"\x06\0\0\0".to_vec();
    begin.extend(b"\x10\0TransformerSpec\0\x07\0\0\0\x01\0\0\0\x02\0a\0\x01");
    begin.extend((39u32 << 20).to_le_bytes());
    begin.push(1);
    begin.extend((39u32 << 20).to_le_bytes());
    let header = begin.len();
    begin.resize(40 << 20, 0);
    let small: Vec<u8> = begin[..header + 1000].to_vec();
    let damages: &[Damage<'_>] = &[
        (
            "a bomb in place of the weights",
            &|all| replace(all, "model.bin", &zeros),
            &["model.bin", "compress"],
        ),
        (
            "a bomb that begins like a model",
            &|all| replace(all, "model.bin", &begin),
            &["model.bin", "compress"],
        ),
        ("weights that are cut", &|all| replace(all, "model.bin", &small), &["model.bin"]),
        (
            "more than the directory says",
            &|all| {
                let index = of(all, "model.bin");
                all[index].size /= 2;
            },
            &["model.bin", "more"],
        ),
        (
            "less than the directory says",
            &|all| {
                let index = of(all, "model.bin");
                all[index].size += 1;
            },
            &["model.bin", "fewer"],
        ),
        (
            "a wrong checksum of the weights",
            &|all| {
                let index = of(all, "model.bin");
                all[index].crc ^= 1;
            },
            &["model.bin", "checksum"],
        ),
        (
            "a wrong checksum of the pieces",
            &|all| {
                let index = of(all, "sentencepiece.model");
                all[index].crc ^= 1;
            },
            &["sentencepiece.model", "checksum"],
        ),
        (
            "invalid DEFLATE",
            &|all| {
                let index = of(all, "model.bin");
                all[index].data[..4].fill(0xff);
            },
            &["model.bin"],
        ),
        (
            "a bomb of pieces",
            &|all| replace(all, "sentencepiece.model", &zeros),
            &["sentencepiece.model", "at most"],
        ),
        (
            "a bomb of a vocabulary",
            &|all| replace(all, "shared_vocabulary.json", &zeros[..8 << 20]),
            &["shared_vocabulary.json", "compress"],
        ),
        (
            "a name that leaves the archive",
            &|all| all.push(Entry::new("translate-fr_en/../../evil", b"", false)),
            &["names"],
        ),
        ("an absolute name", &|all| all.push(Entry::new("/etc/evil", b"", false)), &["names"]),
        (
            "entries that share bytes",
            &|all| {
                let mut twin = Entry::new("translate-fr_en/", b"", false);
                twin.at = Some(0);
                twin.name = "translate-fr_e2/".to_owned();
                all.push(twin);
            },
            &["header"],
        ),
        (
            "one name twice",
            &|all| {
                let again = all[of(all, "metadata.json")].clone();
                all.push(again);
            },
            &["metadata.json"],
        ),
        (
            "two packages",
            &|all| all.push(Entry::new("other/metadata.json", b"{}", false)),
            &["several"],
        ),
        (
            "no package",
            &|all| drop(all.remove(of(all, "metadata.json"))),
            &["metadata.json", "none"],
        ),
        ("no weights", &|all| drop(all.remove(of(all, "model.bin"))), &["model.bin", "none"]),
        (
            "no pieces",
            &|all| drop(all.remove(of(all, "sentencepiece.model"))),
            &["sentencepiece.model", "bpe.model", "none"],
        ),
        (
            "SentencePiece as BPE",
            &|all| {
                let index = of(all, "sentencepiece.model");
                all[index].name = "translate-fr_en/bpe.model".to_owned();
            },
            &["bpe.model", "UTF-8"],
        ),
        ("no JSON", &|all| replace(all, "metadata.json", b"{"), &["metadata.json", "JSON"]),
        ("no language", &|all| replace(all, "metadata.json", b"{}"), &["from_code", "none"]),
        (
            "no translation",
            &|all| replace(all, "metadata.json", b"{\"type\": \"sbd\", \"from_code\": \"fr\"}"),
            &["translate", "sbd"],
        ),
        (
            "another compression",
            &|all| {
                let index = of(all, "model.bin");
                all[index].method = 12;
            },
            &["model.bin", "DEFLATE"],
        ),
    ];
    let file = place.0.join("hostile.argosmodel");
    for (what, damage, words) in damages {
        let mut entries = whole.clone();
        damage(&mut entries);
        fs::write(&file, zip(&entries)).unwrap();
        let begun = std::time::Instant::now();
        let (error, bytes) = most_bytes(|| {
            // Both halves are read by every program.
            let both = || open_tokenizer(&file).and_then(|_| open_checkpoint(&file).map(|_| ()));
            both().err()
        });
        let text = error.unwrap_or_else(|| panic!("{what}: no error")).to_string();
        for word in words.iter() {
            assert!(text.contains(word), "{what}: {text}");
        }
        assert!(text.contains("hostile.argosmodel"), "{what}: {text}");
        assert!(bytes < MOST_BYTES, "{what}: {bytes} bytes");
        assert!(begun.elapsed().as_secs() < 20, "{what}");
    }
    // Cut anywhere.
    let bytes = zip(&whole);
    for length in (0..bytes.len()).step_by(bytes.len() / 50) {
        fs::write(&file, &bytes[..length]).unwrap();
        let (found, peak) = most_bytes(|| open_checkpoint(&file).err());
        assert!(found.is_some() && peak < MOST_BYTES, "{length}: {peak}");
    }
}

/// Reading a file in an archive anywhere gives its bytes: the weights of a package are read in any order.
#[test]
fn weights_are_read_in_place() {
    let place = TemporaryFolder::new("argos-in-place");
    let files = files(&metadata());
    let file = place.0.join("demo.argosmodel");
    fs::write(&file, zip(&entries(&files, true))).unwrap();
    let size = files["model/model.bin"].len();
    let (checkpoint, peak) = most_bytes(|| open_checkpoint(&file).unwrap());
    assert!(peak < size / 2, "{peak} bytes to open a package of {size}");
    extract(&files, &place.0.join("folder"));
    let folder = open_checkpoint(place.0.join("folder")).unwrap();
    let all: Vec<TensorId> = TensorId::all(folder.config()).collect();
    for id in all.iter().rev().chain(&all) {
        let read = |checkpoint: &Checkpoint<'_>| {
            checkpoint.tensor(*id).ok().map(|tensor| tensor.to_vec().unwrap())
        };
        assert_eq!(read(&checkpoint), read(&folder), "{id}");
    }
}
