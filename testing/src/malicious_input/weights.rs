//! Malicious weights: headers, indexes and shards, and files of other programs.

use super::*;

/// A valid file with a changed header. The data after it do not change.
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

pub(super) fn headers(directories: &mut Vec<MaliciousDirectory>) {
    let mut add = |name: &str, bytes: Vec<u8>, words: &[&str]| {
        let words = [&["model."], words].concat();
        directories.push(MaliciousDirectory::new(
            format!("header: {name}"),
            vec![config(), (WEIGHTS, bytes)],
            &words,
        ));
    };
    let one = |info: &str| file(&format!("{{\"x\": {info}}}"), 8);
    let length = |length: u64| [&length.to_le_bytes()[..], &[b' '; 64]].concat();
    add("a length of 2^63", length(1 << 63), &["found 9223372036854775808 bytes"]);
    add("a length of 2^63 - 8", length((1 << 63) - 8), &["found 9223372036854775800 bytes"]);
    add(
        "a hundred megabytes claimed",
        length(99_999_999),
        &["the header: expected 99999999 bytes"],
    );
    add(
        "an offset of 2^63",
        one(
            r#"{"dtype": "F32", "shape": [1], "data_offsets": [9223372036854775807, 9223372036854775808]}"#,
        ),
        &["found byte 9223372036854775808: truncated?"],
    );
    add(
        "offsets that wrap",
        one(r#"{"dtype": "F32", "shape": [2], "data_offsets": [18446744073709551612, 4]}"#),
        &["expected an end after its begin"],
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
            // The same number of bytes as before, so that only the dtype is wrong.
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
        &["which belong to no tensor"],
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
        &["x: expected to stand once in the header, found it twice"],
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
        &[
            "model.decoder.layers.18446744073709551615.fc1.weight: expected a tensor of the 2 decoder layers",
        ],
    );
    add(
        "half a character",
        file("{\"\\ud800\": 1}", 0),
        &["the header: expected a table of tensors"],
    );
    add(
        "metadata without bottom",
        file(&format!("{{\"__metadata__\": {}0{}}}", "[".repeat(10_000), "]".repeat(10_000)), 0),
        &["the tensor of encoder.embedding"],
    );
    add(
        "metadata twice",
        file(r#"{"__metadata__": {}, "__metadata__": {}}"#, 0),
        &["__metadata__: expected to stand once in the header, found it twice"],
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
        &["expected at most 32768 tensors"],
    );
    add("four thousand names like the missing one", file(&format!("{{{}\"__metadata__\": {{}}}}", (0..4000).map(|i| format!("\"model.encoder.embed_tokens.weigh{i:04}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}},")).collect::<String>()), 0), &["the tensor of encoder.embedding.weight"]);
    let mut hole = MaliciousDirectory::new(
        "header: fifty megabytes of nothing",
        vec![config(), (WEIGHTS, 50_000_000u64.to_le_bytes().to_vec())],
        &["the header: expected a table of tensors"],
    );
    hole.sparse = Some((WEIGHTS, 50_000_008));
    directories.push(hole);
}

pub(super) fn indexes(directories: &mut Vec<MaliciousDirectory>) {
    let map = |entries: &[(&str, &str)]| {
        let entries: Vec<String> =
            entries.iter().map(|(tensor, file)| format!("\"{tensor}\": \"{file}\"")).collect();
        text(format!("{{\"weight_map\": {{{}}}}}", entries.join(", ")))
    };
    let mut add = |name: &str, bytes: Vec<u8>, more: Vec<(&str, Vec<u8>)>, words: &[&str]| {
        let files = [vec![config(), (INDEX, bytes)], more].concat();
        directories.push(MaliciousDirectory::new(format!("index: {name}"), files, words));
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
    add("nine megabytes", vec![b' '; 9 << 20], none(), &[INDEX, "expected at most 8388608 bytes"]);
    add(
        "seventy thousand tensors",
        text(format!(
            "{{\"weight_map\": {{{}\"x\": \"y\"}}}}",
            (0..70_000).map(|i| format!("\"{i}\":\"y\",")).collect::<String>()
        )),
        none(),
        &["expected at most 32768 tensors"],
    );
    add(
        "a tensor twice",
        map(&[("a", "one.safetensors"), ("a", "two.safetensors")]),
        none(),
        &["a: expected to be placed once, found to be placed twice"],
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
            &["expected plain file names", INDEX],
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
        &["one.safetensors: expected a regular file"],
    );
    add(
        "a shard of nothing",
        one(),
        vec![("one.safetensors", Vec::new())],
        &["one.safetensors: expected 8 bytes of length, with which a safetensors file begins"],
    );
    add(
        "a shard that is a pointer",
        one(),
        vec![(
            "one.safetensors",
            text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n"),
        )],
        &[
            "one.safetensors: expected a checkpoint in safetensors, found a Git-LFS pointer",
            "git lfs pull",
        ],
    );
    add(
        "a shard that is a page",
        one(),
        vec![("one.safetensors", text("<!DOCTYPE html>\n<html></html>"))],
        &["one.safetensors: expected a checkpoint in safetensors, found a web page"],
    );
    add(
        "a shard of other tensors",
        one(),
        vec![("one.safetensors", file("{}", 0))],
        &["a: expected a tensor, which the index places here, found none"],
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
        &["the tensor of encoder.embedding.weight"],
    );
    add(
        "a pointer",
        text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n"),
        none(),
        &[INDEX, "a Git-LFS pointer"],
    );
    add("a page", text("<html><body>404</body></html>"), none(), &[INDEX, "a web page"]);
}

/// Another file in the directory.
const WEIGHTS_X: &str = "notes.txt";

pub(super) fn others(directories: &mut Vec<MaliciousDirectory>) {
    let mut add = |name: &str, files: Vec<(&str, Vec<u8>)>, words: &[&str]| {
        directories.push(MaliciousDirectory::new(format!("instead: {name}"), files, words));
    };
    let x = || text("x");
    let python = "save_pretrained(";
    // What is wrong with these depends on the cargo feature `torch`: `malicious_torch_files.rs` has its errors.
    add("pickled", vec![config(), ("pytorch_model.bin", x())], &["pytorch_model.bin: "]);
    add(
        "pickled in parts",
        vec![
            config(),
            ("pytorch_model.bin.index.json", x()),
            ("pytorch_model-00001-of-00002.bin", x()),
        ],
        &["pytorch_model"],
    );
    add(
        "pickled by Lightning",
        vec![config(), ("last.ckpt", x())],
        &[
            "last.ckpt: expected a checkpoint in safetensors, found pickled Python objects",
            "run code",
            python,
        ],
    );
    add(
        "pickled without a configuration",
        vec![("model.pt", x())],
        &["model.pt: expected a checkpoint in safetensors, found pickled Python objects"],
    );
    add(
        "tch",
        vec![config(), ("rust_model.ot", x())],
        &["rust_model.ot: expected a checkpoint in safetensors, found weights as tch saves them"],
    );
    add(
        "TensorFlow",
        vec![config(), ("tf_model.h5", x())],
        &["tf_model.h5: expected a checkpoint in safetensors, found weights of TensorFlow"],
    );
    add(
        "Flax",
        vec![config(), ("flax_model.msgpack", x())],
        &["flax_model.msgpack: expected a checkpoint in safetensors, found weights of Flax"],
    );
    add(
        "GGUF",
        vec![config(), ("model-q4.gguf", x())],
        &["model-q4.gguf: expected a checkpoint in safetensors, found GGUF"],
    );
    add(
        "ONNX",
        vec![config(), ("model.onnx", x())],
        &["model.onnx: expected a checkpoint in safetensors, found an ONNX graph"],
    );
    add(
        "CTranslate2",
        vec![
            ("config.json", text("{\"add_source_bos\": false}")),
            ("model.bin", x()),
            ("shared_vocabulary.json", x()),
        ],
        &[
            "model.bin: expected 4 bytes of the version of the format at byte 0, found 1: truncated?",
        ],
    );
    add(
        "CTranslate2 of old",
        vec![("model.bin", x())],
        &[
            "model.bin: expected 4 bytes of the version of the format at byte 0, found 1: truncated?",
        ],
    );
    add(
        "Marian's arrays",
        vec![("model.npz", x()), ("decoder.yml", x())],
        &["model.npz: expected a checkpoint in safetensors, found arrays of Marian"],
    );
    add(
        "Marian's bytes",
        vec![("model.enfr.intgemm.alphas.bin", x())],
        &[
            "intgemm.alphas.bin: expected a checkpoint in safetensors, found a binary model of Marian",
        ],
    );
    add(
        "an adapter",
        vec![("adapter_config.json", text("{}")), ("adapter_model.safetensors", x())],
        &[
            "adapter_config.json: expected a checkpoint in safetensors, found an adapter",
            "merge_and_unload",
        ],
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
        &[
            "model.fp16.safetensors: expected model.safetensors, found the variant \"fp16\"",
            "variant=\"fp16\"",
        ],
    );
    add(
        "shards alone",
        vec![
            config(),
            ("model-00001-of-00002.safetensors", x()),
            ("model-00002-of-00002.safetensors", x()),
        ],
        &["found no such file", "model-00001-of-00002.safetensors, model-00002"],
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
        &[
            "model.safetensors: expected a checkpoint in safetensors, found a Git-LFS pointer",
            "git lfs pull",
        ],
    );
    add(
        "a page",
        saved(b"\n  <!doctype HTML><title>Sign in</title>"),
        &["model.safetensors: expected a checkpoint in safetensors, found a web page"],
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
        &["model.safetensors: expected a checkpoint in safetensors, found pickled Python objects"],
    );
    add(
        "a pickle of old",
        saved(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."),
        &["model.safetensors: expected a checkpoint in safetensors, found pickled Python objects"],
    );
    add(
        "GGUF by another name",
        saved(b"GGUF\x03\0\0\0\x01\0\0\0"),
        &["model.safetensors: expected a checkpoint in safetensors, found GGUF"],
    );
    add(
        "HDF5 by another name",
        saved(b"\x89HDF\r\n\x1a\n\0\0\0\0"),
        &["model.safetensors: expected a checkpoint in safetensors, found weights of TensorFlow"],
    );
    add(
        "a configuration that is a page",
        vec![(CONFIG, text("<html>login</html>"))],
        &["config.json: expected a checkpoint in safetensors, found a web page"],
    );
    add(
        "a configuration that is a pointer",
        vec![(CONFIG, text("version https://git-lfs.github.com/spec/v1\n"))],
        &["config.json: expected a checkpoint in safetensors, found a Git-LFS pointer"],
    );
    add(
        "a configuration that is XML",
        vec![(CONFIG, text("<?xml version=\"1.0\"?><Error/>"))],
        &["config.json: expected a checkpoint in safetensors, found a message"],
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
        &["element ", "expected a finite number, found NaN"],
    );
    add(
        "one weight without end",
        poisoned(2, f32::INFINITY),
        &["expected a finite number, found inf"],
    );
}
