//! Reads the parts of a tokenizer from the files of its family: which file defines the ids, and which tokens are
//! special.

pub(crate) mod backend;
pub(crate) mod pieces;

use crate::directory::Directory;
use crate::directory::family::Family;
use crate::error::Error;
use crate::languages::{Language, lists};
use crate::moses::{self, CODES, Words};
use crate::special_tokens::Special;
use backend::Engine;
use pieces::{Pieces, Side, read_model};
use std::collections::{HashMap, HashSet};

/// The content of a family's files.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) family: Family,
    pub(crate) engine: Engine,
    pub(crate) languages: Vec<Language>,
    /// The special tokens before and after every text.
    pub(crate) begin: Option<u32>,
    pub(crate) end: Option<u32>,
    /// The first token of the decoder.
    pub(crate) start: Option<u32>,
    /// The first token of every target after it.
    pub(crate) forced: Option<u32>,
    /// Whisper's prompt: transcribe, translate, no timestamps.
    pub(crate) tasks: [Option<u32>; 3],
}

impl Parts {
    fn new(family: Family, engine: Engine) -> Self {
        let (begin, end, start, forced) = (None, None, None, None);
        Self { family, engine, languages: Vec::new(), begin, end, start, forced, tasks: [None; 3] }
    }
}

/// Special tokens by name; the settings of a directory may change the names.
fn named(directory: &Directory, names: &[(&str, &str)]) -> Result<Vec<String>, Error> {
    names.iter().map(|(key, default)| directory.tokenizer.token(key, default)).collect()
}

/// Appends the added tokens of a directory to those of the family, except for texts that are already present.
fn add(specials: &mut Vec<Special>, added: Vec<(u32, String, bool)>) {
    let mut texts: HashSet<String> = specials.iter().map(|special| special.text.clone()).collect();
    for (id, text, left) in added {
        if texts.insert(text.clone()) {
            specials.push(Special { text, id, left, control: false });
        }
    }
}

/// OPUS-MT: pieces of `source.spm` and `target.spm`, ids of `vocab.json`.
pub(crate) fn marian(directory: &Directory) -> Result<Parts, Error> {
    let files = ["source.spm", "target.spm", "vocab.json"];
    if !files[..2].iter().all(|file| directory.has(file)) || !directory.has_vocabulary() {
        return Err(directory.missing(&["source.spm, target.spm and vocab.json"]));
    }
    let models = vec![read_model(directory, files[0])?, read_model(directory, files[1])?];
    let vocabulary = directory.vocabulary(files[2])?;
    let names = [("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")];
    let names = named(directory, &names)?;
    let id = |name: &str| vocabulary.get(name).copied();
    let Some(unknown) = id(&names[1]) else {
        return Err(directory.wrong(files[2], format!("{:?} in it", names[1]), "none"));
    };
    let mut specials: Vec<Special> = names
        .iter()
        .filter_map(|name| {
            Some(Special { id: id(name)?, text: name.clone(), left: false, control: true })
        })
        .collect();
    add(&mut specials, directory.tokenizer.added()?);
    let end = id(&names[0]);
    let start = id(&names[2]);
    let is_code = |text: &&String| text.starts_with(">>") && text.ends_with("<<") && text.len() > 4;
    let codes = vocabulary.keys().filter(is_code);
    let languages =
        codes.map(|text| Language::new(&text[2..text.len() - 2], vocabulary[text])).collect();
    let separate = directory.tokenizer.flag("separate_vocabs", false)?
        || !directory.has(files[2]) && directory.separates_vocabularies();
    let (of_target, target_unknown) = if separate {
        let of_target = directory.vocabulary("target_vocab.json")?;
        let unknown = of_target.get(&names[1]).copied().unwrap_or(unknown);
        (of_target, unknown)
    } else {
        (vocabulary.clone(), unknown)
    };
    let source = Side::of_vocabulary(0, &models[0], vocabulary, unknown);
    let target = Side::of_vocabulary(1, &models[1], of_target, target_unknown);
    let pieces = Pieces::new(models, source, Some(target), separate, specials, true);
    let mut parts = Parts::new(Family::Marian, Engine::Pieces(Box::new(pieces)));
    (parts.end, parts.start, parts.languages) = (end, start, languages);
    Ok(parts)
}

/// M2M100: pieces of a SentencePiece file, ids of `vocab.json`, languages after them.
pub(crate) fn m2m100(directory: &Directory) -> Result<Parts, Error> {
    const FILES: [&str; 2] = ["sentencepiece.bpe.model", "vocab.json"];
    if !directory.has(FILES[0]) || !directory.has_vocabulary() {
        return Err(directory.missing(&["sentencepiece.bpe.model and vocab.json"]));
    }
    let model = read_model(directory, FILES[0])?;
    let vocabulary = directory.vocabulary(FILES[1])?;
    let codes = match directory.tokenizer.text("language_codes")? {
        None | Some("m2m100") => lists::M2M100,
        Some("wmt21") => lists::WMT21,
        Some(found) => {
            let expected = "\"m2m100\" or \"wmt21\"";
            return Err(directory.tokenizer.wrong("language_codes", expected, &found.into()));
        }
    };
    let names = named(
        directory,
        &[
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("pad_token", "<pad>"),
            ("unk_token", "<unk>"),
        ],
    )?;
    let id = |name: &str| vocabulary.get(name).copied();
    let Some(unknown) = id(&names[3]) else {
        return Err(directory.wrong(FILES[1], format!("{:?} in it", names[3]), "none"));
    };
    let end = id(&names[1]);
    let mut specials: Vec<Special> = names
        .iter()
        .filter_map(|name| {
            Some(Special { id: id(name)?, text: name.clone(), left: false, control: true })
        })
        .collect();
    // The vocabulary of CTranslate2 has the languages, too, and tokens that fill it up.
    let first = vocabulary.len() as u32;
    let languages: Vec<Language> = (first..)
        .zip(codes.split_whitespace())
        .map(|(next, code)| Language::new(code, id(&format!("__{code}__")).unwrap_or(next)))
        .collect();
    specials.extend(languages.iter().map(|language| Special {
        text: format!("__{}__", language.code()),
        id: language.id(),
        left: false,
        control: true,
    }));
    let side = Side::of_vocabulary(0, &model, vocabulary, unknown);
    let pieces = Pieces::new(vec![model], side, None, false, specials, false);
    let mut parts = Parts::new(Family::M2m100, Engine::Pieces(Box::new(pieces)));
    (parts.end, parts.languages) = (end, languages);
    Ok(parts)
}

/// The setting of the token that begins every target.
const TARGET_PREFIX: &str = "target_prefix";

/// OpenNMT and Argos, in a directory of CTranslate2: pieces of a SentencePiece file, or of words of Moses if the directory
/// names its languages, and ids of its vocabularies. Without such a file there are only tokens and ids.
pub(crate) fn opennmt(directory: &Directory) -> Result<Parts, Error> {
    let file = directory.sentencepiece();
    let models: Vec<_> =
        file.map(|file| read_model(directory, file)).transpose()?.into_iter().collect();
    const VOCABULARY: &str = "vocab.json";
    let vocabulary = directory.vocabulary(VOCABULARY)?;
    let config = &directory.config;
    let [begin, end, unknown] =
        [("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>")]
            .map(|(key, default)| config.token(key, default));
    let (begin, end, unknown) = (begin?, end?, unknown?);
    let id = |name: &str| vocabulary.get(name).copied();
    // CTranslate2 appends the unknown token to a vocabulary that has none.
    let unknown_id = id(&unknown).unwrap_or(vocabulary.len() as u32);
    let names = [&begin, &end, &unknown];
    let mut specials = Vec::new();
    for text in names {
        let id = if *text == unknown { Some(unknown_id) } else { id(text) };
        let special = |id| Special { text: text.clone(), id, left: false, control: true };
        specials.extend(id.map(special));
    }
    let of_source =
        |key, token: &str| Ok::<_, Error>(if config.flag(key, false)? { id(token) } else { None });
    let before = of_source("add_source_bos", &begin)?;
    let after = of_source("add_source_eos", &end)?;
    let separate = directory.separates_vocabularies();
    let of_target =
        if separate { directory.vocabulary("target_vocab.json")? } else { vocabulary.clone() };
    let target_unknown = of_target.get(&unknown).copied().unwrap_or(of_target.len() as u32);
    // A token that begins every target and is no part of its text.
    let forced = match directory.tokenizer.text(TARGET_PREFIX)? {
        None => None,
        Some(text) => match of_target.get(text) {
            None => {
                let expected = "a token of the target vocabulary";
                return Err(directory.tokenizer.wrong(TARGET_PREFIX, expected, &text.into()));
            }
            Some(&id) => {
                let text = text.to_owned();
                specials.push(Special { text, id, left: false, control: true });
                Some(id)
            }
        },
    };
    let codes = [directory.tokenizer.text("src_lang")?, directory.tokenizer.text("tgt_lang")?];
    if let ([Some(from), Some(to)], []) = (codes, &models[..])
        && directory.has(CODES)
    {
        let side = |code: &str, ids, unknown| moses::Side { code: code.to_owned(), ids, unknown };
        let sides = [side(from, vocabulary, unknown_id), side(to, of_target, target_unknown)];
        let words = Words::from_directory(directory, sides, specials)?;
        let mut parts = Parts::new(Family::OpenNmt, Engine::Moses(Box::new(words)));
        (parts.begin, parts.end, parts.forced) = (before, after, forced);
        return Ok(parts);
    }
    let side = |vocabulary, unknown| match models.first() {
        Some(model) => Side::of_vocabulary(0, model, vocabulary, unknown),
        None => Side::of_vocabulary_alone(vocabulary, unknown),
    };
    let (target, source) = (side(of_target, target_unknown), side(vocabulary, unknown_id));
    let pieces = Pieces::new(models, source, Some(target), separate, specials, false);
    let mut parts = Parts::new(Family::OpenNmt, Engine::Pieces(Box::new(pieces)));
    (parts.begin, parts.end, parts.forced) = (before, after, forced);
    Ok(parts)
}

/// NLLB, mBART and XLM-R: `<s> <pad> </s> <unk>` come first, the pieces' ids are shifted by one, and languages and
/// `<mask>` come last.
pub(crate) fn fairseq(directory: &Directory, family: Family) -> Result<Parts, Error> {
    let model = read_model(directory, "sentencepiece.bpe.model")?;
    let names = named(
        directory,
        &[
            ("bos_token", "<s>"),
            ("pad_token", "<pad>"),
            ("eos_token", "</s>"),
            ("unk_token", "<unk>"),
        ],
    )?;
    let unknown = 3;
    let ids = (0..model.len() as u32).map(|piece| match model.piece(piece) {
        Some("<s>") => 0,
        Some("</s>") => 2,
        _ if piece == model.unknown() => unknown,
        _ => piece + 1,
    });
    let side = Side::of_ids(ids.collect(), unknown);
    let codes = match family {
        Family::Nllb => lists::NLLB,
        Family::Mbart25 => lists::MBART_25,
        Family::Mbart50 => lists::MBART_50,
        _ => "",
    };
    let added = directory.tokenizer.added()?;
    let first = model.len() as u32 + 1;
    // Use the ids of the directory if it defines them.
    let mut numbers = HashMap::with_capacity(added.len());
    for (id, text, _) in &added {
        numbers.entry(text.clone()).or_insert(*id);
    }
    let of = |text: &str, id| numbers.get(text).copied().unwrap_or(id);
    let languages: Vec<Language> = (first..)
        .zip(codes.split_whitespace())
        .map(|(id, code)| Language::new(code, of(code, id)))
        .collect();
    let mut specials: Vec<Special> = (0..)
        .zip(names)
        .map(|(id, text)| Special { text, id, left: false, control: true })
        .collect();
    let mask = directory.tokenizer.token("mask_token", "<mask>")?;
    let last = first + languages.len() as u32;
    specials.push(Special { id: of(&mask, last), text: mask, left: true, control: false });
    specials.extend(languages.iter().map(|l| Special {
        text: l.code().to_owned(),
        id: l.id(),
        left: false,
        control: true,
    }));
    add(&mut specials, added);
    let pieces = Pieces::new(vec![model], side, None, false, specials, false);
    let mut parts = Parts::new(family, Engine::Pieces(Box::new(pieces)));
    parts.languages = languages;
    parts.begin = (family == Family::XlmRoberta).then_some(0);
    parts.end = Some(2);
    Ok(parts)
}

/// T5: the pieces' own ids, then sentinels in descending order.
pub(crate) fn t5(directory: &Directory) -> Result<Parts, Error> {
    const MOST_SENTINELS: u32 = 10_000;
    let model = read_model(directory, "spiece.model")?;
    let names =
        named(directory, &[("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")])?;
    let size = model.len() as u32;
    let sentinels = directory.tokenizer.number("extra_ids", MOST_SENTINELS)?.unwrap_or(100);
    let mut specials = Vec::new();
    for text in &names {
        if let Some(id) = model.id(text) {
            specials.push(Special { text: text.clone(), id, left: false, control: true });
        }
    }
    let end = model.id(&names[0]);
    let start = model.id(&names[2]);
    for k in 0..sentinels {
        let text = format!("<extra_id_{k}>");
        let id = model.id(&text).unwrap_or(size + sentinels - 1 - k);
        specials.push(Special { text, id, left: false, control: false });
    }
    let ids = (0..size).collect();
    let languages = (0..size)
        .filter_map(|id| {
            let code = model.piece(id)?.strip_prefix("<2")?.strip_suffix('>')?;
            let letters = |c: char| c.is_ascii_alphabetic() || c == '_';
            (code.len() > 1 && code.chars().all(letters)).then(|| Language::new(code, id))
        })
        .collect();
    let side = Side::of_ids(ids, model.unknown());
    let pieces = Pieces::new(vec![model], side, None, false, specials, false);
    let mut parts = Parts::new(Family::T5, Engine::Pieces(Box::new(pieces)));
    (parts.end, parts.start, parts.languages) = (end, start, languages);
    Ok(parts)
}

/// PEGASUS: `<pad>` and `</s>`, then 103 tokens of its pre-training, then the other pieces.
pub(crate) fn pegasus(directory: &Directory) -> Result<Parts, Error> {
    const MOST_BEFORE: u32 = 10_000;
    let model = read_model(directory, "spiece.model")?;
    let names = named(
        directory,
        &[
            ("pad_token", "<pad>"),
            ("eos_token", "</s>"),
            ("mask_token_sent", "<mask_1>"),
            ("mask_token", "<mask_2>"),
        ],
    )?;
    let offset = directory.tokenizer.number("offset", MOST_BEFORE)?.unwrap_or(103);
    let mut specials: Vec<Special> = (0..)
        .zip(names)
        // The masks follow `<pad>` and `</s>`.
        .map(|(id, text)| Special { text, id, left: false, control: id < 2 })
        .collect();
    let trained = (2..offset).map(|k| (k + 2, format!("<unk_{k}>")));
    specials.extend(trained.map(|(id, text)| Special { text, id, left: false, control: false }));
    let number = |piece| if piece < 2 { piece } else { piece + offset };
    let unknown = number(model.unknown());
    let text = directory.tokenizer.token("unk_token", "<unk>")?;
    specials.push(Special { text, id: unknown, left: false, control: true });
    let ids = (0..model.len() as u32).map(number).collect();
    let side = Side::of_ids(ids, unknown);
    let pieces = Pieces::new(vec![model], side, None, false, specials, false);
    let mut parts = Parts::new(Family::Pegasus, Engine::Pieces(Box::new(pieces)));
    (parts.end, parts.start) = (Some(1), Some(0));
    Ok(parts)
}

/// CamemBERT: four ids of fairseq before the pieces, of which only `<s>` and `</s>` are used.
pub(crate) fn camembert(directory: &Directory) -> Result<Parts, Error> {
    const BEFORE: [&str; 5] = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"];
    const MOVED: u32 = 4;
    const UNKNOWN: u32 = 3;
    let model = read_model(directory, "sentencepiece.bpe.model")?;
    let names = named(directory, &[("bos_token", "<s>"), ("eos_token", "</s>")])?;
    let number = |piece| if piece == model.unknown() { UNKNOWN } else { piece + MOVED };
    let [begin, end] = [0, 1].map(|at: usize| model.id(&names[at]).map(number));
    let mut specials: Vec<Special> = (0..)
        .zip(BEFORE)
        .map(|(id, text)| Special { text: text.to_owned(), id, left: false, control: true })
        .collect();
    let about = names.into_iter().zip([begin, end]);
    specials.extend(
        about.filter_map(|(text, id)| Some(Special { text, id: id?, left: false, control: true })),
    );
    let mask = directory.tokenizer.token("mask_token", "<mask>")?;
    specials.push(Special {
        text: mask,
        id: model.len() as u32 + MOVED,
        left: true,
        control: false,
    });
    let side = Side::of_ids((0..model.len() as u32).map(number).collect(), UNKNOWN);
    let pieces = Pieces::new(vec![model], side, None, false, specials, false);
    let mut parts = Parts::new(Family::Camembert, Engine::Pieces(Box::new(pieces)));
    (parts.begin, parts.end) = (begin, end);
    Ok(parts)
}

#[cfg(not(feature = "json"))]
pub(crate) fn json(directory: &Directory, family: Family) -> Result<Parts, Error> {
    Err(directory.missing(&[match family {
        Family::T5 | Family::Pegasus => "spiece.model",
        Family::Nllb
        | Family::Mbart25
        | Family::Mbart50
        | Family::XlmRoberta
        | Family::Camembert => "sentencepiece.bpe.model",
        _ => "the feature `json`",
    }]))
}

#[cfg(feature = "json")]
pub(crate) fn json(directory: &Directory, family: Family) -> Result<Parts, Error> {
    let json = crate::json::Json::from_directory(directory, family)?;
    let id = |text: &str| json.id(text);
    let end = id(&directory.tokenizer.token("eos_token", "</s>")?);
    let start = match family {
        Family::Whisper => id("<|startoftranscript|>"),
        Family::T5 | Family::Pegasus => id(&directory.tokenizer.token("pad_token", "<pad>")?),
        _ => None,
    };
    let tasks = match family {
        Family::Whisper => ["<|transcribe|>", "<|translate|>", "<|notimestamps|>"].map(id),
        _ => [None; 3],
    };
    let languages = json.languages(family);
    let engine = Engine::Json(Box::new(json));
    Ok(Parts { languages, end, start, tasks, ..Parts::new(family, engine) })
}
