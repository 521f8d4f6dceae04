//! Directories that lie, by name: indexes, shards, headers, JSON of every family, modules, files of other programs.
//! Each must be refused in words that say what is wrong.

use crate::random_model::{Dims, families};
use serde_json::{Value, json};
use simdformer::Model;
use simdformer::config::Family;
use simdformer::heads::SentenceHead;
use std::fs;
use std::path::{Path, PathBuf};

/// Which door the directory is brought to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Door {
    /// Opened and loaded.
    Model,
    /// What is made of hidden states is read.
    Sentence,
}

/// A directory, and what its error must say.
#[derive(Debug)]
pub(crate) struct Attack {
    pub(crate) name: String,
    /// Names that end in a slash are folders.
    files: Vec<(String, Vec<u8>)>,
    /// A file that has this length, and holes.
    sparse: Option<(&'static str, u64)>,
    door: Door,
    words: Vec<String>,
}

impl Attack {
    fn new(name: impl Into<String>, files: Vec<(&str, Vec<u8>)>, words: &[&str]) -> Self {
        let files = files.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
        let words = words.iter().map(|&words| words.to_owned()).collect();
        Self { name: name.into(), files, sparse: None, door: Door::Model, words }
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> usize {
        let whole: usize = self.files.iter().map(|(_, bytes)| bytes.len()).sum();
        whole + self.sparse.map_or(0, |(_, len)| len as usize)
    }

    /// Writes the directory.
    pub(crate) fn prepare(&self, root: &Path) -> PathBuf {
        let folder = root.join(self.name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, bytes) in &self.files {
            let path = folder.join(name);
            if name.ends_with('/') {
                fs::create_dir_all(path).expect("a folder");
            } else {
                fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
                fs::write(path, bytes).expect("a file");
            }
        }
        if let Some((name, len)) = self.sparse {
            let file = fs::OpenOptions::new().create(true).append(true).open(folder.join(name));
            file.expect("a file").set_len(len).expect("a length");
        }
        folder
    }

    /// What is said of it; `None` if it gets through.
    pub(crate) fn run(&self, folder: &Path) -> Option<String> {
        match self.door {
            Door::Model => Model::open(folder).err().map(|error| error.to_string()),
            Door::Sentence => SentenceHead::open(folder, 3).err().map(|error| error.to_string()),
        }
    }

    /// What is wrong with what was said.
    pub(crate) fn wrong(&self, said: Option<&str>) -> Option<String> {
        let name = &self.name;
        let Some(said) = said else { return Some(format!("{name}: it got through")) };
        let missing = self.words.iter().find(|words| !said.contains(words.as_str()));
        if let Some(words) = missing {
            return Some(format!("{name}: expected {words:?} in: {said}"));
        }
        let hidden = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
        if said.len() > 1500 || said.contains(hidden) {
            return Some(format!("{name}: not for a person to read: {said:?}"));
        }
        None
    }
}

fn text(text: impl Into<String>) -> Vec<u8> {
    text.into().into_bytes()
}

fn marian() -> Dims {
    Dims::small(Family::Marian)
}

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A good `config.json` of Marian.
fn config() -> (&'static str, Vec<u8>) {
    (CONFIG, text(marian().json()))
}

/// The keys of width, layers, heads, feed-forward width and vocabulary.
fn keys(family: Family) -> [&'static str; 5] {
    match family {
        Family::Bert | Family::Roberta | Family::XlmRoberta | Family::Camembert | Family::MpNet => {
            [
                "hidden_size",
                "num_hidden_layers",
                "num_attention_heads",
                "intermediate_size",
                "vocab_size",
            ]
        }
        Family::DistilBert => ["dim", "n_layers", "n_heads", "hidden_dim", "vocab_size"],
        Family::T5 | Family::Mt5 | Family::Umt5 => {
            ["d_model", "num_layers", "num_heads", "d_ff", "vocab_size"]
        }
        Family::NnTransformer => {
            ["d_model", "num_encoder_layers", "nhead", "dim_feedforward", "src_vocab_size"]
        }
        Family::SeamlessM4t | Family::SeamlessM4tV2 => [
            "hidden_size",
            "encoder_layers",
            "encoder_attention_heads",
            "encoder_ffn_dim",
            "vocab_size",
        ],
        Family::Fsmt => [
            "d_model",
            "encoder_layers",
            "encoder_attention_heads",
            "encoder_ffn_dim",
            "src_vocab_size",
        ],
        _ => [
            "d_model",
            "encoder_layers",
            "encoder_attention_heads",
            "encoder_ffn_dim",
            "vocab_size",
        ],
    }
}

/// The same lies to the configuration of every family.
fn families_json(attacks: &mut Vec<Attack>) {
    for family in families() {
        let good = Dims::small(family).json();
        let [width, layers, heads, ffn, vocab] = keys(family);
        let kind = family.model_type();
        let mut add = |what: &str, text: String, words: &[&str]| {
            let words = [&["config.json: "], words].concat();
            let file = vec![(CONFIG, text.into_bytes())];
            attacks.push(Attack::new(format!("{kind}: {what}"), file, &words));
        };
        let with = |key: &str, value: &str| {
            let mut object: Value = serde_json::from_str(&good).expect("JSON");
            object[key] = "\u{1}".into();
            object.to_string().replace("\"\\u0001\"", value)
        };
        add("a width of words", with(width, "\"wide\""), &[width, "found \"wide\""]);
        add(
            "layers without end",
            with(layers, "9007199254740993"),
            &["layers must be at most 4096"],
        );
        add("heads and a half", with(heads, "2.5"), &[heads, "found 2.5"]);
        add("a negative hidden layer", with(ffn, "-1"), &[ffn, "found -1"]);
        add("a vocabulary of null", with(vocab, "null"), &[vocab, "found null"]);
        add("no number at all", with(width, "NaN"), &["not JSON"]);
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        add("ten thousand brackets", with("extra", &deep), &["recursion limit"]);
        let twice = good.replacen('{', "{\"model_type\": \"marian\",", 1);
        add("two types", twice, &["model_type", "twice"]);
        add(
            "heads that do not divide",
            with(heads, "11"),
            &[if matches!(family, Family::T5 | Family::Mt5 | Family::Umt5) {
                "model.safetensors: no such file"
            } else {
                "is not a multiple"
            }],
        );
        add("an end outside", with("eos_token_id", "4294967295"), &["eos_token_id must be below"]);
    }
    // Heads of T5 have a width of their own: there any number will do, and nothing but weights is missing.
    attacks.retain(|attack| !attack.words.iter().any(|words| words.starts_with("model.safe")));
}

/// Configurations that no family is spared.
fn configurations(attacks: &mut Vec<Attack>) {
    let mut add = |name: &str, bytes: Vec<u8>, words: &[&str]| {
        attacks.push(Attack::new(name, vec![(CONFIG, bytes)], words));
    };
    let bart = |more: &str| text(format!("{{\"model_type\": \"bart\", {more}}}"));
    let long = "x".repeat(1 << 20);
    add(
        "a list of two million zeros",
        bart(&format!("\"a\": [{}0]", "0,".repeat(1_000_000))),
        &["more than 65536 values"],
    );
    add(
        "a hundred thousand objects",
        bart(&format!("\"a\": [{}{{}}]", "{\"\":0},".repeat(100_000))),
        &["more than 65536 values"],
    );
    add(
        "a hundred thousand keys",
        text(format!(
            "{{{}\"b\": 0}}",
            (0..100_000).map(|i| format!("\"{i}\":0,")).collect::<String>()
        )),
        &["more than 65536 values"],
    );
    add("three megabytes", vec![b' '; 3 << 20], &["larger than 2097152 bytes"]);
    add(
        "a type of a megabyte",
        text(format!("{{\"model_type\": \"{long}\"}}")),
        &["xxx...", "is not supported"],
    );
    add(
        "an activation of a megabyte",
        bart(&format!("\"activation_function\": \"{long}\"")),
        &["activation \"xxx", "..."],
    );
    add(
        "a key of half a megabyte, twice",
        text(format!("{{\"{0}\": 1, \"{0}\": 2}}", &long[..1 << 19])),
        &["xxx...", "twice"],
    );
    add(
        "a number of a megabyte",
        bart(&format!("\"d_model\": {}", "9".repeat(1 << 20))),
        &["number out of range"],
    );
    add("an exponent without end", bart("\"d_model\": 1e99999"), &["number out of range"]);
    add("minus nothing", bart("\"d_model\": -0"), &["d_model"]);
    add("an escape that is none", bart("\"\\q\": 1"), &["invalid escape"]);
    add("half a character", bart("\"\\ud800\": 1"), &["not JSON"]);
    add(
        "a type that turns the line around",
        text("{\"model_type\": \"\u{1b}[2J\\u001b]0;x\"}"),
        &["not JSON"],
    );
    add(
        "a type that clears the screen",
        text("{\"model_type\": \"\\u001b[2J\"}"),
        &["\\u{1b}[2J", "is not supported"],
    );
    add(
        "UTF-16",
        "{}".encode_utf16().flat_map(|unit| (unit | 0xff00).to_le_bytes()).collect(),
        &["not UTF-8 from byte 1 on"],
    );
    add("comments", bart("/* wide */ \"d_model\": 8"), &["not JSON"]);
    add("a comma too many", bart("\"d_model\": 8,"), &["trailing comma"]);
    add("single quotes", text("{'model_type': 'bart'}"), &["key must be a string"]);
    for (method, key, value) in [
        ("gptq", "quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}"),
        ("fp8", "compression_config", "{\"quantization_method\": \"fp8\"}"),
        ("of an unnamed scheme", "quantization", "{\"group_size\": 64}"),
    ] {
        add(
            &format!("quantised: {method}"),
            bart(&format!("\"{key}\": {value}")),
            &[key, method, "are quantised"],
        );
    }
    add(
        "no architecture",
        text("{\"add_source_bos\": false}"),
        &["the key \"model_type\" is missing"],
    );
    add(
        "an architecture of pictures",
        text("{\"model_type\": \"vit\"}"),
        &["the supported ones are marian, bart"],
    );
    add("experts", text("{\"model_type\": \"nllb-moe\"}"), &["mixtures of experts"]);
    add(
        "a forced beginning that is a number",
        bart("\"force_bos_token_to_be_generated\": 1"),
        &["force_bos_token_to_be_generated", "true or false"],
    );
    add(
        "a scale that is text",
        bart("\"scale_embedding\": \"yes\""),
        &["scale_embedding", "found \"yes\""],
    );
}

fn generation(attacks: &mut Vec<Attack>) {
    let mut add = |name: &str, bytes: Vec<u8>, words: &[&str]| {
        let words = [&["generation_config.json: "], words].concat();
        let files = vec![config(), ("generation_config.json", bytes)];
        attacks.push(Attack::new(format!("generation: {name}"), files, &words));
    };
    add("null", text("null"), &["found null"]);
    add("nothing", Vec::new(), &["EOF"]);
    add(
        "beams of 2^64",
        text(r#"{"num_beams": 18446744073709551616}"#),
        &["num_beams", "1.8446744073709552e+19"],
    );
    add("no beams", text(r#"{"num_beams": 0}"#), &["num_beams must be at least 1"]);
    add("no groups", text(r#"{"num_beam_groups": 0}"#), &["num_beam_groups must be at least 1"]);
    add("negative top-k", text(r#"{"top_k": -1}"#), &["top_k", "found -1"]);
    add("a temperature that is none", text(r#"{"temperature": NaN}"#), &["not JSON"]);
    add(
        "a temperature beyond f32",
        text(r#"{"temperature": 1e39}"#),
        &["temperature", "range of f32"],
    );
    add("a flag that is a number", text(r#"{"do_sample": 1}"#), &["do_sample", "found 1"]);
    add(
        "early stopping of three",
        text(r#"{"early_stopping": 3}"#),
        &["early_stopping", "found 3"],
    );
    add(
        "ends without end",
        text(format!("{{\"eos_token_id\": [{}0]}}", "0,".repeat(900_000))),
        &["more than 65536 values"],
    );
    add(
        "an end that is a list of lists",
        text(r#"{"eos_token_id": [[0]]}"#),
        &["eos_token_id", "found [0]"],
    );
    add(
        "a token of 2^32",
        text(r#"{"suppress_tokens": [4294967296]}"#),
        &["suppress_tokens", "4294967296"],
    );
    add(
        "a token outside",
        text(r#"{"begin_suppress_tokens": [131]}"#),
        &["begin_suppress_tokens must be below", "131"],
    );
    add(
        "a bias that is an object",
        text(r#"{"sequence_bias": {"[1]": 2}}"#),
        &["sequence_bias", "pairs"],
    );
    add(
        "a bias of nothing",
        text(r#"{"sequence_bias": [[[], 1.0]]}"#),
        &["sequence_bias", "found []"],
    );
    add(
        "bad words that are words",
        text(r#"{"bad_words_ids": ["the"]}"#),
        &["bad_words_ids", "the"],
    );
    add(
        "bad words without bottom",
        text(format!("{{\"bad_words_ids\": {}", "[".repeat(20_000))),
        &["recursion limit"],
    );
    add(
        "a decay of three",
        text(r#"{"exponential_decay_length_penalty": [1, 2, 3]}"#),
        &["a pair of a length and a factor"],
    );
    add(
        "a forced end outside",
        text(r#"{"forced_eos_token_id": 500}"#),
        &["forced_eos_token_id must be below", "500"],
    );
    add("the same key twice", text(r#"{"top_k": 1, "top_k": 2}"#), &["top_k", "twice"]);
    add(
        "a pointer",
        text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
        &["Git-LFS pointer"],
    );
}

/// Bytes of a safetensors file.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

/// A good file whose header was changed; data follows as it was.
fn changed(change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Vec<u8> {
    let bytes = marian().bytes(1);
    let (len, rest) = bytes.split_at(8);
    let (header, data) =
        rest.split_at(u64::from_le_bytes(len.try_into().expect("8 bytes")) as usize);
    let mut header = serde_json::from_slice(header).expect("a header");
    change(&mut header);
    let mut new = file(&Value::Object(header).to_string(), 0);
    new.extend_from_slice(data);
    new
}

const FC1: &str = "model.decoder.layers.1.fc1.weight";

fn headers(attacks: &mut Vec<Attack>) {
    let mut add = |name: &str, bytes: Vec<u8>, words: &[&str]| {
        let words = [&["model."], words].concat();
        attacks.push(Attack::new(
            format!("header: {name}"),
            vec![config(), (WEIGHTS, bytes)],
            &words,
        ));
    };
    let one = |info: &str| file(&format!("{{\"x\": {info}}}"), 8);
    let length = |length: u64| [&length.to_le_bytes()[..], &[b' '; 64]].concat();
    add("a length of 2^63", length(1 << 63), &["claims 9223372036854775808 bytes"]);
    add("a length of 2^63 - 8", length((1 << 63) - 8), &["claims 9223372036854775800 bytes"]);
    add(
        "a hundred megabytes claimed",
        length(99_999_999),
        &["truncated: the header has 99999999 bytes"],
    );
    add(
        "an offset of 2^63",
        one(
            r#"{"dtype": "F32", "shape": [1], "data_offsets": [9223372036854775807, 9223372036854775808]}"#,
        ),
        &["x ends at byte 9223372036854775808"],
    );
    add(
        "offsets that wrap",
        one(r#"{"dtype": "F32", "shape": [2], "data_offsets": [18446744073709551612, 4]}"#),
        &["before it"],
    );
    add(
        "an offset that is text",
        one(r#"{"dtype": "F32", "shape": [2], "data_offsets": ["0", "8"]}"#),
        &["invalid type: string"],
    );
    add(
        "an offset of 0.5",
        one(r#"{"dtype": "F32", "shape": [2], "data_offsets": [0.5, 8]}"#),
        &["floating point `0.5`"],
    );
    add(
        "three offsets",
        one(r#"{"dtype": "F32", "shape": [2], "data_offsets": [0, 4, 8]}"#),
        &["x: "],
    );
    add(
        "a type that is a number",
        one(r#"{"dtype": 32, "shape": [2], "data_offsets": [0, 8]}"#),
        &["invalid type: integer `32`"],
    );
    add(
        "a shape that is a number",
        one(r#"{"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}"#),
        &["expected a list of at most 32 sizes"],
    );
    add(
        "a shape of 2^32 by 2^32",
        one(r#"{"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8]}"#),
        &["overflows"],
    );
    add(
        "a million dimensions",
        file(
            &format!(
                "{{\"x\": {{\"dtype\": \"F32\", \"shape\": [{}1], \"data_offsets\": [0, 4]}}}}",
                "1,".repeat(1_000_000)
            ),
            4,
        ),
        &["invalid length 33"],
    );
    add(
        "a type of a megabyte",
        changed(|header| header[FC1]["dtype"] = "Z".repeat(1 << 20).into()),
        &[FC1, "found ZZZZ", "..."],
    );
    add(
        "a type of another year",
        changed(|header| header[FC1]["dtype"] = "F7_E3M3".into()),
        &[FC1, "found F7_E3M3"],
    );
    for (dtype, words) in [
        ("F64", "would be rounded"),
        ("F8_E4M3", "scales"),
        ("I8", "scales"),
        ("BOOL", "found BOOL"),
    ] {
        let bytes = changed(|header| {
            // As many bytes as before, so that only the type is wrong.
            let size = match dtype {
                "F64" => 8,
                _ => 1,
            };
            let offsets = &header[FC1]["data_offsets"];
            let len = offsets[1].as_u64().expect("an end") - offsets[0].as_u64().expect("a begin");
            header[FC1]["shape"] = json!([len / size]);
            header[FC1]["dtype"] = dtype.into();
        });
        add(&format!("weights of {dtype}"), bytes, &[FC1, dtype, words]);
    }
    add(
        "an overlap of one byte",
        changed(|header| {
            let end = header[FC1]["data_offsets"][1].as_u64().expect("an end");
            header[FC1]["data_offsets"][1] = (end + 1).into();
        }),
        &[FC1, "found 9913"],
    );
    add(
        "a hole of four bytes",
        changed(|header| {
            let tensor = header[FC1].clone();
            let (begin, end) = (
                tensor["data_offsets"][0].as_u64().expect("a begin"),
                tensor["data_offsets"][1].as_u64().expect("an end"),
            );
            header[FC1] = json!({"dtype": "F32", "shape": [(end - begin) / 4 - 1], "data_offsets": [begin, end - 4]});
        }),
        &["after the header belong to no tensor"],
    );
    add(
        "a name in other letters",
        changed(|header| {
            let tensor = header.remove(FC1).expect("there");
            header.insert("model\u{ff0e}decoder.layers.1.fc1.weight".into(), tensor);
        }),
        &[FC1, "the nearest names are"],
    );
    add(
        "a name twice, once in escapes",
        {
            let good = marian().bytes(1);
            let len = u64::from_le_bytes(good[..8].try_into().expect("8 bytes")) as usize;
            let header = str::from_utf8(&good[8..8 + len]).expect("text").trim_end();
            let twice = header.replacen('{', r#"{"\u0078":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"#, 1);
            [&file(&twice, 0)[..], &good[8 + len..]].concat()
        },
        &["x stands twice"],
    );
    add(
        "a name that turns the line around",
        changed(|header| {
            let tensor = header.remove(FC1).expect("there");
            header.insert("model.decoder.layers.7.\u{1b}[31m\u{202e}fc1.weight".into(), tensor);
        }),
        &["layers.7.\\u{1b}[31m\\u{202e}fc1"],
    );
    add(
        "a name of a hundred thousand letters",
        changed(|header| {
            let tensor = header.remove(FC1).expect("there");
            header.insert(format!("model.decoder.layers.9.{}", "w".repeat(100_000)), tensor);
        }),
        &["layers.9.www", "..."],
    );
    add(
        "a layer of 2^64 - 1",
        changed(|header| {
            let tensor = header.remove(FC1).expect("there");
            header.insert("model.decoder.layers.18446744073709551615.fc1.weight".into(), tensor);
        }),
        &["there is model.decoder.layers.18446744073709551615"],
    );
    add("half a character", file("{\"\\ud800\": 1}", 0), &["wrong header"]);
    add(
        "metadata without bottom",
        file(&format!("{{\"__metadata__\": {}0{}}}", "[".repeat(10_000), "]".repeat(10_000)), 0),
        &["no tensor for encoder.embedding"],
    );
    add(
        "metadata twice",
        file(r#"{"__metadata__": {}, "__metadata__": {}}"#, 0),
        &["__metadata__ stands twice"],
    );
    add(
        "seventy thousand tensors",
        file(
            &format!(
                "{{{}\"x\": 0}}",
                (0..70_000)
                    .map(|i| format!(
                        "\"{i}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}},"
                    ))
                    .collect::<String>()
            ),
            0,
        ),
        &["more than 32768 tensors"],
    );
    add("four thousand names like the missing one", file(&format!("{{{}\"__metadata__\": {{}}}}", (0..4000).map(|i| format!("\"model.encoder.embed_tokens.weigh{i:04}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}},")).collect::<String>()), 0), &["no tensor for encoder.embedding.weight"]);
    let mut hole = Attack::new(
        "header: fifty megabytes of nothing",
        vec![config(), (WEIGHTS, 50_000_000u64.to_le_bytes().to_vec())],
        &["wrong header"],
    );
    hole.sparse = Some((WEIGHTS, 50_000_008));
    attacks.push(hole);
}

fn indexes(attacks: &mut Vec<Attack>) {
    let map = |entries: &[(&str, &str)]| {
        let entries: Vec<String> =
            entries.iter().map(|(tensor, file)| format!("\"{tensor}\": \"{file}\"")).collect();
        text(format!("{{\"weight_map\": {{{}}}}}", entries.join(", ")))
    };
    let mut add = |name: &str, bytes: Vec<u8>, more: Vec<(&str, Vec<u8>)>, words: &[&str]| {
        let files = [vec![config(), (INDEX, bytes)], more].concat();
        attacks.push(Attack::new(format!("index: {name}"), files, words));
    };
    let none = Vec::new;
    add(
        "a map of nothing",
        text(r#"{"weight_map": null}"#),
        none(),
        &[INDEX, "invalid type: null"],
    );
    add(
        "a map that is a list",
        text(r#"{"weight_map": ["a"]}"#),
        none(),
        &[INDEX, "expected an object of tensors and files"],
    );
    add(
        "a map of maps",
        text(r#"{"weight_map": {"a": {"b": "c"}}}"#),
        none(),
        &[INDEX, "a: invalid type: map"],
    );
    add(
        "two maps",
        text(r#"{"weight_map": {}, "weight_map": {}}"#),
        none(),
        &["duplicate field `weight_map`"],
    );
    add("cut short", text(r#"{"weight_map": {"a": "b"#), none(), &[INDEX, "EOF"]);
    add(
        "without bottom",
        text(format!("{{\"metadata\": {}", "[".repeat(100_000))),
        none(),
        &[INDEX, "EOF"],
    );
    add("nine megabytes", vec![b' '; 9 << 20], none(), &[INDEX, "larger than 8388608 bytes"]);
    add(
        "seventy thousand tensors",
        text(format!(
            "{{\"weight_map\": {{{}\"x\": \"y\"}}}}",
            (0..70_000).map(|i| format!("\"{i}\":\"y\",")).collect::<String>()
        )),
        none(),
        &["more than 32768 tensors"],
    );
    add(
        "a tensor twice",
        map(&[("a", "one.safetensors"), ("a", "two.safetensors")]),
        none(),
        &["a is placed twice"],
    );
    for (name, shard) in [
        ("up and away", "../../../etc/passwd"),
        ("up in the middle", "a/../../b.safetensors"),
        ("up in Windows", "..\\\\..\\\\secret"),
        ("from the root", "/etc/shadow"),
        ("from a drive", "C:\\\\model.safetensors"),
        ("a drive and no path", "C:model.safetensors"),
        ("a share", "\\\\\\\\host\\\\share\\\\x"),
        ("an end in the middle", "model.safetensors\\u0000.txt"),
        ("a new line", "model\\nsafetensors"),
        ("a stream of a file", "model.safetensors:hidden"),
        ("a folder", "folder/"),
        ("a name of nothing", ""),
        ("the directory", "."),
    ] {
        add(
            name,
            map(&[("a", shard)]),
            vec![(WEIGHTS_X, Vec::new())],
            &["is not a plain file name", INDEX],
        );
    }
    add(
        "three that are missing",
        map(&[("a", "one.safetensors"), ("b", "two.safetensors"), ("c", "three.safetensors")]),
        none(),
        &["one.safetensors, three.safetensors, two.safetensors"],
    );
    let many: Vec<String> = (0..1000).map(|i| format!("\"t{i}\": \"s{i}.safetensors\"")).collect();
    add(
        "a thousand that are missing",
        text(format!("{{\"weight_map\": {{{}}}}}", many.join(","))),
        none(),
        &["s0.safetensors", "and 980 more"],
    );
    let one = || map(&[("a", "one.safetensors")]);
    add(
        "a shard that is a folder",
        one(),
        vec![("one.safetensors/", Vec::new())],
        &["one.safetensors: not a regular file"],
    );
    add(
        "a shard of nothing",
        one(),
        vec![("one.safetensors", Vec::new())],
        &["one.safetensors: a safetensors file begins with 8 bytes"],
    );
    add(
        "a shard that is a pointer",
        one(),
        vec![(
            "one.safetensors",
            text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n"),
        )],
        &["one.safetensors: a Git-LFS pointer", "git lfs pull"],
    );
    add(
        "a shard that is a page",
        one(),
        vec![("one.safetensors", text("<!DOCTYPE html>\n<html></html>"))],
        &["one.safetensors: a web page"],
    );
    add(
        "a shard of other tensors",
        one(),
        vec![("one.safetensors", file("{}", 0))],
        &["the index places a here, but it is not"],
    );
    add(
        "itself",
        map(&[("a", INDEX)]),
        none(),
        &["a message and not the file itself", "weight_map"],
    );
    add(
        "a shard cut short",
        map(&[(FC1, "one.safetensors")]),
        vec![("one.safetensors", marian().bytes(1)[..5000].to_vec())],
        &["one.safetensors: ", "truncated"],
    );
    add(
        "a part of the model",
        map(&[(FC1, "one.safetensors")]),
        vec![("one.safetensors", marian().bytes(1))],
        &["no tensor for encoder.embedding.weight"],
    );
    add(
        "a pointer",
        text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n"),
        none(),
        &[INDEX, "a Git-LFS pointer"],
    );
    add("a page", text("<html><body>404</body></html>"), none(), &[INDEX, "a web page"]);
}

/// Something else in the directory.
const WEIGHTS_X: &str = "notes.txt";

fn others(attacks: &mut Vec<Attack>) {
    let mut add = |name: &str, files: Vec<(&str, Vec<u8>)>, words: &[&str]| {
        attacks.push(Attack::new(format!("instead: {name}"), files, words));
    };
    let x = || text("x");
    let python = "save_pretrained(";
    add(
        "pickled",
        vec![config(), ("pytorch_model.bin", x())],
        &["pytorch_model.bin: pickled", "run code", python],
    );
    add(
        "pickled in parts",
        vec![
            config(),
            ("pytorch_model.bin.index.json", x()),
            ("pytorch_model-00001-of-00002.bin", x()),
        ],
        &["pytorch_model-00001-of-00002.bin: pickled", python],
    );
    add("pickled by Lightning", vec![config(), ("last.ckpt", x())], &["last.ckpt: pickled"]);
    add("pickled without a configuration", vec![("model.pt", x())], &["model.pt: pickled"]);
    add(
        "tch",
        vec![config(), ("rust_model.ot", x())],
        &["rust_model.ot: weights as tch saves them"],
    );
    add(
        "TensorFlow",
        vec![config(), ("tf_model.h5", x())],
        &["tf_model.h5: weights of TensorFlow"],
    );
    add(
        "Flax",
        vec![config(), ("flax_model.msgpack", x())],
        &["flax_model.msgpack: weights of Flax"],
    );
    add("GGUF", vec![config(), ("model-q4.gguf", x())], &["model-q4.gguf: GGUF"]);
    add("ONNX", vec![config(), ("model.onnx", x())], &["model.onnx: an ONNX graph"]);
    add(
        "CTranslate2",
        vec![
            ("config.json", text("{\"add_source_bos\": false}")),
            ("model.bin", x()),
            ("shared_vocabulary.json", x()),
        ],
        &["model.bin: a model converted for CTranslate2"],
    );
    add(
        "CTranslate2 of old",
        vec![("model.bin", x())],
        &["model.bin: a model converted for CTranslate2"],
    );
    add(
        "Marian's arrays",
        vec![("model.npz", x()), ("decoder.yml", x())],
        &["model.npz: arrays of Marian"],
    );
    add(
        "Marian's bytes",
        vec![("model.enfr.intgemm.alphas.bin", x())],
        &["intgemm.alphas.bin: a binary model of Marian"],
    );
    add(
        "an adapter",
        vec![("adapter_config.json", text("{}")), ("adapter_model.safetensors", x())],
        &["adapter_config.json: an adapter", "merge_and_unload"],
    );
    add(
        "an adapter beside a model",
        vec![config(), (WEIGHTS, marian().bytes(1)), ("adapter_config.json", text("{}"))],
        &["merge_and_unload"],
    );
    add(
        "names of others",
        vec![config(), ("consolidated.safetensors", x())],
        &["consolidated.safetensors: ", "take the model.safetensors"],
    );
    add(
        "a variant",
        vec![config(), ("model.fp16.safetensors", x())],
        &["model.fp16.safetensors: the variant \"fp16\"", "variant=\"fp16\""],
    );
    add(
        "shards alone",
        vec![
            config(),
            ("model-00001-of-00002.safetensors", x()),
            ("model-00002-of-00002.safetensors", x()),
        ],
        &[
            "model.safetensors.index.json: no such file",
            "model-00001-of-00002.safetensors, model-00002",
        ],
    );
    add(
        "two to choose from",
        vec![config(), ("a.safetensors", x()), ("b.safetensors", x())],
        &["expected model.safetensors or one other, found a.safetensors, b.safetensors"],
    );
    let saved = |bytes: &[u8]| vec![config(), (WEIGHTS, bytes.to_vec())];
    add(
        "a pointer",
        saved(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1024\n"),
        &["model.safetensors: a Git-LFS pointer", "git lfs pull"],
    );
    add(
        "a page",
        saved(b"\n  <!doctype HTML><title>Sign in</title>"),
        &["model.safetensors: a web page"],
    );
    add(
        "a message in JSON",
        saved(b"{\"error\":\"Repository not found\"}"),
        &["a message and not the file itself: \"{\"error\":\"Repository not found\"}\""],
    );
    add(
        "a message in XML",
        saved(b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>"),
        &["a message and not the file itself: ", "AccessDenied"],
    );
    add("a message in words", saved(b"Entry not found"), &["\"Entry not found\""]);
    add(
        "an archive of pickles",
        saved(b"PK\x03\x04\x14\0\0\0\0\0archive/data.pkl"),
        &["model.safetensors: pickled"],
    );
    add(
        "a pickle of old",
        saved(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."),
        &["model.safetensors: pickled"],
    );
    add("GGUF by another name", saved(b"GGUF\x03\0\0\0\x01\0\0\0"), &["model.safetensors: GGUF"]);
    add(
        "HDF5 by another name",
        saved(b"\x89HDF\r\n\x1a\n\0\0\0\0"),
        &["model.safetensors: weights of TensorFlow"],
    );
    add(
        "a configuration that is a page",
        vec![(CONFIG, text("<html>login</html>"))],
        &["config.json: a web page"],
    );
    add(
        "a configuration that is a pointer",
        vec![(CONFIG, text("version https://git-lfs.github.com/spec/v1\n"))],
        &["config.json: a Git-LFS pointer"],
    );
    add(
        "a configuration that is XML",
        vec![(CONFIG, text("<?xml version=\"1.0\"?><Error/>"))],
        &["config.json: a message"],
    );
    let poisoned = |at: usize, value: f32| {
        let mut bytes = marian().bytes(1);
        let begin = bytes.len() - 4 * at;
        bytes[begin..begin + 4].copy_from_slice(&value.to_le_bytes());
        vec![config(), (WEIGHTS, bytes)]
    };
    add(
        "one weight that is none",
        poisoned(1, f32::NAN),
        &["element ", "must be finite, found NaN"],
    );
    add("one weight without end", poisoned(2, f32::INFINITY), &["must be finite, found inf"]);
}

fn modules(attacks: &mut Vec<Attack>) {
    const MEAN: &str = r#"{"pooling_mode": "mean"}"#;
    let module = |kind: &str, path: &str| {
        format!(r#"{{"path": "{path}", "type": "sentence_transformers.models.{kind}"}}"#)
    };
    let both = format!("[{}, {}]", module("Pooling", "1_Pooling"), module("Dense", "2_Dense"));
    let mut add = |name: &str, files: Vec<(&str, Vec<u8>)>, words: &[&str]| {
        let mut attack = Attack::new(format!("modules: {name}"), files, words);
        attack.door = Door::Sentence;
        attacks.push(attack);
    };
    let list = |text: String| vec![("modules.json", text.into_bytes())];
    add("a number", list("3".into()), &["modules.json: invalid type: integer `3`"]);
    add("without types", list(r#"[{"path": "1_Pooling"}]"#.into()), &["missing field `type`"]);
    add(
        "a type that is a number",
        list(r#"[{"path": "", "type": 7}]"#.into()),
        &["invalid type: integer `7`"],
    );
    add(
        "code of others",
        list(r#"[{"path": "", "type": "os.system"}]"#.into()),
        &["module \"os.system\" is not supported"],
    );
    add(
        "a type of many letters",
        list(format!(r#"[{{"path": "", "type": "{}"}}]"#, "y".repeat(1 << 15))),
        &["module \"yyy", "..."],
    );
    add("two megabytes", list(" ".repeat(2 << 20)), &["modules.json: larger than 65536 bytes"]);
    add("without bottom", list("[".repeat(50_000)), &["modules.json: "]);
    for (name, path) in [
        ("up", "../../x"),
        ("from the root", "/etc"),
        ("in Windows", "..\\\\x"),
        ("a drive", "C:x"),
    ] {
        add(
            &format!("a path {name}"),
            list(format!("[{}]", module("Pooling", path))),
            &["leads out of the directory"],
        );
    }
    let with = |pooling: &str| {
        vec![
            ("modules.json", text(format!("[{}]", module("Pooling", "1_Pooling")))),
            ("1_Pooling/config.json", text(pooling)),
        ]
    };
    add("a pooling of numbers", with(r#"{"pooling_mode": 3}"#), &["1_Pooling", "config.json: "]);
    add(
        "a pooling of everything",
        with(&format!(r#"{{"pooling_mode": ["cls"{}]}}"#, ", \"cls\"".repeat(9000))),
        &["each pooling at most once, found 9001"],
    );
    add(
        "a pooling without any",
        with(r#"{"pooling_mode_mean_tokens": false}"#),
        &["expected at least one pooling, found none"],
    );
    add(
        "a pooling by words",
        with(r#"{"pooling_mode_cls_token": "yes"}"#),
        &["invalid type: string"],
    );
    add(
        "a negative width",
        with(r#"{"word_embedding_dimension": -3}"#),
        &["invalid value: integer `-3`"],
    );
    add(
        "a width of 2^63",
        with(r#"{"word_embedding_dimension": 9223372036854775808}"#),
        &["reads vectors of 9223372036854775808 numbers"],
    );
    add("a pooling that is a page", with("<html></html>"), &["config.json: a web page"]);
    let dense = |config: &str, weights: Vec<u8>| {
        vec![
            ("modules.json", text(both.clone())),
            ("1_Pooling/config.json", text(MEAN)),
            ("2_Dense/config.json", text(config)),
            ("2_Dense/model.safetensors", weights),
        ]
    };
    let plain = r#"{"activation_function": "torch.nn.modules.linear.Identity"}"#;
    add(
        "an activation of others",
        dense(r#"{"activation_function": "builtins.eval"}"#, Vec::new()),
        &["activation \"builtins.eval\""],
    );
    add(
        "a map without weights",
        dense(plain, file("{}", 0)),
        &["expected a tensor linear.weight, found none"],
    );
    let tensor = |shape: &str, bytes: usize| {
        file(
            &format!(
                "{{\"linear.weight\": {{\"dtype\": \"F32\", \"shape\": {shape}, \"data_offsets\": [0, {bytes}]}}}}"
            ),
            bytes,
        )
    };
    add(
        "a map of one dimension",
        dense(plain, tensor("[3]", 12)),
        &["must be of shape", "found [3]"],
    );
    add(
        "a map of other widths",
        dense(plain, tensor("[2, 4]", 32)),
        &["reads vectors of 4 numbers, but is given 3"],
    );
    let mut nan = tensor("[1, 3]", 12);
    let end = nan.len();
    nan[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    add(
        "a map that is no number",
        dense(plain, nan),
        &["linear.weight: element 2 must be finite, found NaN"],
    );
}

/// All of them; their names differ.
pub(crate) fn all() -> Vec<Attack> {
    let mut attacks = Vec::new();
    families_json(&mut attacks);
    configurations(&mut attacks);
    generation(&mut attacks);
    headers(&mut attacks);
    indexes(&mut attacks);
    others(&mut attacks);
    modules(&mut attacks);
    attacks
}
