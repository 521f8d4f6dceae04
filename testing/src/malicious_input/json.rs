//! Malicious JSON: configurations of every family, generation settings, modules of sentence-transformers.

use super::*;

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

/// The same wrong values in the configuration of every family.
pub(super) fn families_json(directories: &mut Vec<MaliciousDirectory>) {
    for family in families() {
        let good = Dims::small(family).json();
        let [width, layers, heads, ffn, vocab] = keys(family);
        let kind = family.model_type();
        let mut add = |what: &str, text: String, words: &[&str]| {
            let words = [&["config.json: "], words].concat();
            let file = vec![(CONFIG, text.into_bytes())];
            directories.push(MaliciousDirectory::new(format!("{kind}: {what}"), file, &words));
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
            &["layers: expected at most 4096"],
        );
        add("heads and a half", with(heads, "2.5"), &[heads, "found 2.5"]);
        add("a negative hidden layer", with(ffn, "-1"), &[ffn, "found -1"]);
        add("a vocabulary of null", with(vocab, "null"), &[vocab, "found null"]);
        add("no number at all", with(width, "NaN"), &["expected JSON"]);
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
                "expected a multiple"
            }],
        );
        add(
            "an end outside",
            with("eos_token_id", "4294967295"),
            &["eos_token_id: expected an id below"],
        );
    }
    // The heads of T5 have a width of their own, so any number is valid there and only the weights are
    // missing.
    directories
        .retain(|directory| !directory.words.iter().any(|words| words.starts_with("model.safe")));
}

/// Wrong configurations that are made for every family.
pub(super) fn configurations(directories: &mut Vec<MaliciousDirectory>) {
    let mut add = |name: &str, bytes: Vec<u8>, words: &[&str]| {
        directories.push(MaliciousDirectory::new(name, vec![(CONFIG, bytes)], words));
    };
    let bart = |more: &str| text(format!("{{\"model_type\": \"bart\", {more}}}"));
    let long = "x".repeat(1 << 20);
    add(
        "a list of two million zeros",
        bart(&format!("\"a\": [{}0]", "0,".repeat(1_000_000))),
        &["expected at most 65536 values"],
    );
    add(
        "a hundred thousand objects",
        bart(&format!("\"a\": [{}{{}}]", "{\"\":0},".repeat(100_000))),
        &["expected at most 65536 values"],
    );
    add(
        "a hundred thousand keys",
        text(format!(
            "{{{}\"b\": 0}}",
            (0..100_000).map(|i| format!("\"{i}\":0,")).collect::<String>()
        )),
        &["expected at most 65536 values"],
    );
    add("three megabytes", vec![b' '; 3 << 20], &["expected at most 2097152 bytes"]);
    add(
        "a type of a megabyte",
        text(format!("{{\"model_type\": \"{long}\"}}")),
        &["xxx...", "model_type: expected one of marian"],
    );
    add(
        "an activation of a megabyte",
        bart(&format!("\"activation_function\": \"{long}\"")),
        &["found \"xxx", "..."],
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
    add("half a character", bart("\"\\ud800\": 1"), &["expected JSON"]);
    add(
        "a type that turns the line around",
        text("{\"model_type\": \"\u{1b}[2J\\u001b]0;x\"}"),
        &["expected JSON"],
    );
    add(
        "a type that clears the screen",
        text("{\"model_type\": \"\\u001b[2J\"}"),
        &["\\u{1b}[2J", "model_type: expected one of marian"],
    );
    add(
        "UTF-16",
        "{}".encode_utf16().flat_map(|unit| (unit | 0xff00).to_le_bytes()).collect(),
        &["expected UTF-8, found other bytes from byte 1 on"],
    );
    add("comments", bart("/* wide */ \"d_model\": 8"), &["expected JSON"]);
    add("a comma too many", bart("\"d_model\": 8,"), &["trailing comma"]);
    add("single quotes", text("{'model_type': 'bart'}"), &["key must be a string"]);
    for (method, key, value) in [
        ("gptq", "quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}"),
        ("fp8", "compression_config", "{\"quantization_method\": \"fp8\"}"),
        ("of an unnamed scheme", "quantization", "{\"group_size\": 64}"),
    ] {
        add(
            &format!("quantized: {method}"),
            bart(&format!("\"{key}\": {value}")),
            &[key, method, "found quantized ones"],
        );
    }
    add(
        "no architecture",
        text("{\"add_source_bos\": false}"),
        &["model_type: expected a value, found none: the key is missing"],
    );
    add(
        "an architecture of pictures",
        text("{\"model_type\": \"vit\"}"),
        &["expected one of marian, bart"],
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

pub(super) fn generation(directories: &mut Vec<MaliciousDirectory>) {
    let mut add = |name: &str, bytes: Vec<u8>, words: &[&str]| {
        let words = [&["generation_config.json: "], words].concat();
        let files = vec![config(), ("generation_config.json", bytes)];
        directories.push(MaliciousDirectory::new(format!("generation: {name}"), files, &words));
    };
    add("null", text("null"), &["found null"]);
    add("nothing", Vec::new(), &["EOF"]);
    add(
        "beams of 2^64",
        text(r#"{"num_beams": 18446744073709551616}"#),
        &["num_beams", "1.8446744073709552e+19"],
    );
    add("no beams", text(r#"{"num_beams": 0}"#), &["num_beams: expected at least 1"]);
    add("no groups", text(r#"{"num_beam_groups": 0}"#), &["num_beam_groups: expected at least 1"]);
    add("negative top-k", text(r#"{"top_k": -1}"#), &["top_k", "found -1"]);
    add("a temperature that is none", text(r#"{"temperature": NaN}"#), &["expected JSON"]);
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
        &["expected at most 65536 values"],
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
        &["begin_suppress_tokens: expected an id below", "131"],
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
        &["forced_eos_token_id: expected an id below", "500"],
    );
    add("the same key twice", text(r#"{"top_k": 1, "top_k": 2}"#), &["top_k", "twice"]);
    add(
        "a pointer",
        text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
        &["Git-LFS pointer"],
    );
}

pub(super) fn modules(directories: &mut Vec<MaliciousDirectory>) {
    const MEAN: &str = r#"{"pooling_mode": "mean"}"#;
    let module = |kind: &str, path: &str| {
        format!(r#"{{"path": "{path}", "type": "sentence_transformers.models.{kind}"}}"#)
    };
    let both = format!("[{}, {}]", module("Pooling", "1_Pooling"), module("Dense", "2_Dense"));
    let mut add = |name: &str, files: Vec<(&str, Vec<u8>)>, words: &[&str]| {
        let mut directory = MaliciousDirectory::new(format!("modules: {name}"), files, words);
        directory.reader = Reader::SentenceHead;
        directories.push(directory);
    };
    let list = |text: String| vec![("modules.json", text.into_bytes())];
    add(
        "a number",
        list("3".into()),
        &[
            "modules.json: expected a list of modules, found something else: invalid type: integer `3`",
        ],
    );
    add(
        "lists in place of objects",
        list(r#"[["1_Pooling", "sentence_transformers.models.Pooling"]]"#.into()),
        &[
            "modules.json: expected a list of modules, found something else: invalid type: sequence, expected an object",
        ],
    );
    add("without types", list(r#"[{"path": "1_Pooling"}]"#.into()), &["missing field `type`"]);
    add(
        "a type that is a number",
        list(r#"[{"path": "", "type": 7}]"#.into()),
        &["invalid type: integer `7`"],
    );
    add(
        "code of others",
        list(r#"[{"path": "", "type": "os.system"}]"#.into()),
        &["expected one of Transformer, Pooling, Dense, Normalize, found \"os.system\""],
    );
    add(
        "a type of many letters",
        list(format!(r#"[{{"path": "", "type": "{}"}}]"#, "y".repeat(1 << 15))),
        &["found \"yyy", "..."],
    );
    add(
        "two megabytes",
        list(" ".repeat(2 << 20)),
        &["modules.json: expected at most 65536 bytes"],
    );
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
            &["expected paths inside of the directory"],
        );
    }
    let with = |pooling: &str| {
        vec![
            ("modules.json", text(format!("[{}]", module("Pooling", "1_Pooling")))),
            ("1_Pooling/config.json", text(pooling)),
        ]
    };
    add(
        "a pooling that is a number",
        with(r#"{"pooling_mode": 3}"#),
        &["1_Pooling", "pooling_mode: expected the name of a pooling or a list of names, found 3"],
    );
    add(
        "a pooling of numbers",
        with(r#"{"pooling_mode": ["cls", 3]}"#),
        &["1_Pooling", "a list of names, found [\"cls\",3]"],
    );
    add(
        "a width in both spellings",
        with(r#"{"word_embedding_dimension": 3, "embedding_dimension": 3}"#),
        &["word_embedding_dimension: expected one spelling of this key, found also"],
    );
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
        &["pooling_mode_cls_token: expected true or false, found \"yes\""],
    );
    add(
        "a negative width",
        with(r#"{"word_embedding_dimension": -3}"#),
        &["word_embedding_dimension: expected an integer of 0 or more, found -3"],
    );
    add(
        "a width of 2^63",
        with(r#"{"word_embedding_dimension": 9223372036854775808}"#),
        &["found one that reads vectors of 9223372036854775808"],
    );
    add(
        "a pooling that is a page",
        with("<html></html>"),
        &["config.json: expected a checkpoint in safetensors, found a web page"],
    );
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
        &["found \"builtins.eval\""],
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
        &["expected shape [0, 0], found [3]", "found [3]"],
    );
    add(
        "a map of other widths",
        dense(plain, tensor("[2, 4]", 32)),
        &[
            "expected a module for vectors of 3 numbers, which it is given, found one that reads vectors of 4",
        ],
    );
    let mut nan = tensor("[1, 3]", 12);
    let end = nan.len();
    nan[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    add(
        "a map that is no number",
        dense(plain, nan),
        &["linear.weight, element 2: expected a finite number, found NaN"],
    );
}
