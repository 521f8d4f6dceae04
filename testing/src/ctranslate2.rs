//! Writes `model.bin` of CTranslate2, and directories of it from a checkpoint. Every part can be replaced, so that a file
//! can be wrong in any way. `tests/golden/ctranslate2_directories.py` writes some with ctranslate2 itself.

use serde_json::{Value, json};
use simdformer::checkpoint::{Checkpoint, Dtype, TensorId};
use simdformer::config::{Activation, Config, NormKind, NormPlacement, Positions, Side};
use std::fs;
use std::path::Path;

/// How the numbers of a matrix are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    F32,
    F16,
    Bf16,
    /// One scale: 1024 divided by the largest magnitude.
    Int16,
    /// A scale for each row: 127 divided by the largest magnitude.
    Int8,
}

impl Stored {
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Bf16, Self::Int16, Self::Int8];
}

/// A variable. `kind` is the number of its dtype: 0 f32, 1 int8, 2 int16, 3 int32, 4 f16, 5 bf16.
#[derive(Clone, Debug)]
pub struct Variable {
    pub name: String,
    pub kind: u8,
    pub shape: Vec<u32>,
    pub bytes: Vec<u8>,
}

/// A `model.bin`.
#[derive(Clone, Debug)]
pub struct ModelFile {
    pub version: u32,
    pub specification: String,
    pub revision: u32,
    pub variables: Vec<Variable>,
    /// An alias, and its variable.
    pub aliases: Vec<(String, String)>,
}

/// `x` as f16 or bf16, rounded to the nearest number, of two to the even one.
fn narrow(dtype: Dtype, x: f32) -> u16 {
    let largest = if dtype == Dtype::F16 { 0x7bff } else { 0x7f7f };
    // Positive numbers of both dtypes have the order of their bits.
    let (mut low, mut high) = (0u16, largest);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if dtype.widen(middle) <= x.abs() { low = middle } else { high = middle - 1 }
    }
    let above = (low + 1).min(largest);
    let (down, up) = (x.abs() - dtype.widen(low), dtype.widen(above) - x.abs());
    let nearest = if up < down || up == down && low % 2 == 1 { above } else { low };
    nearest | if x.is_sign_negative() { 0x8000 } else { 0 }
}

impl ModelFile {
    pub fn new(specification: &str, revision: u32) -> Self {
        let specification = specification.to_owned();
        Self { version: 6, specification, revision, variables: Vec::new(), aliases: Vec::new() }
    }

    pub fn push(&mut self, name: &str, kind: u8, shape: &[usize], bytes: Vec<u8>) {
        let shape = shape.iter().map(|&size| size as u32).collect();
        self.variables.push(Variable { name: name.to_owned(), kind, shape, bytes });
    }

    pub fn flag(&mut self, name: &str, value: i8) {
        self.push(name, 1, &[], value.to_le_bytes().to_vec());
    }

    pub fn count(&mut self, name: &str, value: i16) {
        self.push(name, 2, &[], value.to_le_bytes().to_vec());
    }

    pub fn number(&mut self, name: &str, value: f32) {
        self.push(name, 0, &[], value.to_le_bytes().to_vec());
    }

    /// The float variable `name`, and what its reader must return. Integers apply only to matrices that are `quantized`.
    pub fn floats(
        &mut self,
        name: &str,
        shape: &[usize],
        numbers: &[f32],
        stored: Stored,
        quantized: bool,
    ) -> Vec<f32> {
        match stored {
            Stored::F16 | Stored::Bf16 => {
                let (dtype, kind) = match stored {
                    Stored::F16 => (Dtype::F16, 4),
                    _ => (Dtype::Bf16, 5),
                };
                let halves: Vec<u16> = numbers.iter().map(|&x| narrow(dtype, x)).collect();
                let bytes = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
                self.push(name, kind, shape, bytes);
                halves.into_iter().map(|half| dtype.widen(half)).collect()
            }
            Stored::Int16 if quantized => {
                let scale = 1024.0 / largest(numbers);
                let integers: Vec<i16> =
                    numbers.iter().map(|x| (x * scale).round_ties_even() as i16).collect();
                let bytes = integers.iter().flat_map(|q| q.to_le_bytes()).collect();
                self.push(name, 2, shape, bytes);
                self.number(&format!("{name}_scale"), scale);
                integers.into_iter().map(|q| f32::from(q) * (1.0 / scale)).collect()
            }
            Stored::Int8 if quantized => {
                let row_len = shape.iter().skip(1).product::<usize>().max(1);
                let (mut bytes, mut scales, mut found) = (Vec::new(), Vec::new(), Vec::new());
                for row in numbers.chunks(row_len) {
                    let most = largest(row);
                    let scale = 127.0 / if most == 0.0 { 127.0 } else { most };
                    let integers = row.iter().map(|x| (x * scale).round_ties_even() as i8);
                    let integers: Vec<i8> = integers.collect();
                    bytes.extend(integers.iter().map(|q| q.cast_unsigned()));
                    scales.extend(scale.to_le_bytes());
                    found.extend(integers.into_iter().map(|q| f32::from(q) * (1.0 / scale)));
                }
                self.push(name, 1, shape, bytes);
                self.push(&format!("{name}_scale"), 0, &shape[..1], scales);
                found
            }
            Stored::F32 | Stored::Int16 | Stored::Int8 => {
                let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
                self.push(name, 0, shape, bytes);
                numbers.to_vec()
            }
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.version.to_le_bytes().to_vec();
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend((text.len() as u16 + 1).to_le_bytes());
            out.extend(text.bytes());
            out.push(0);
        };
        text(&mut out, &self.specification);
        out.extend(self.revision.to_le_bytes());
        out.extend((self.variables.len() as u32).to_le_bytes());
        for Variable { name, kind, shape, bytes } in &self.variables {
            text(&mut out, name);
            out.push(shape.len() as u8);
            out.extend(shape.iter().flat_map(|size| size.to_le_bytes()));
            out.push(*kind);
            out.extend((bytes.len() as u32).to_le_bytes());
            out.extend(bytes);
        }
        out.extend((self.aliases.len() as u32).to_le_bytes());
        for (alias, variable) in &self.aliases {
            text(&mut out, alias);
            text(&mut out, variable);
        }
        out
    }
}

fn largest(numbers: &[f32]) -> f32 {
    numbers.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()))
}

/// A directory of CTranslate2.
#[derive(Clone, Debug)]
pub struct Directory {
    pub model: ModelFile,
    /// `config.json`; `None` for a directory without one.
    pub config: Option<Value>,
    /// The name of a vocabulary, and its tokens.
    pub vocabularies: Vec<(&'static str, Vec<String>)>,
    /// What a reader must return for each role.
    pub expected: Vec<(TensorId, Vec<f32>)>,
}

impl Directory {
    /// Writes the files to `folder`.
    pub fn write(&self, folder: &Path) {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).expect("a folder");
        fs::write(folder.join("model.bin"), self.model.bytes()).expect("a file");
        if let Some(config) = &self.config {
            fs::write(folder.join("config.json"), config.to_string()).expect("a file");
        }
        for (name, tokens) in &self.vocabularies {
            let text = serde_json::to_string(tokens).expect("a text");
            fs::write(folder.join(format!("{name}.json")), text).expect("a file");
        }
    }

    /// A checkpoint as the converters write it, in version 6. Its table of positions, if it is a formula, is left out.
    pub fn from_checkpoint(checkpoint: &Checkpoint<'_>, stored: Stored) -> Self {
        let config = checkpoint.config();
        let (specification, revision) = match (config.bins, config.decoder) {
            (Some(_), _) => ("WhisperSpec", 3),
            (None, None) => ("TransformerEncoderSpec", 1),
            (None, Some(_)) => ("TransformerSpec", 7),
        };
        let mut writer = Writer {
            checkpoint,
            config,
            stored,
            model: ModelFile::new(specification, revision),
            expected: Vec::new(),
        };
        writer.write();
        let Writer { model, expected, .. } = writer;
        let token = |id: Option<u32>| id.map(|id| format!("t{id}"));
        let tokens = &config.tokens;
        let mut settings = json!({
            "layer_norm_epsilon": config.layer_norm_eps,
            "bos_token": token(tokens.bos).unwrap_or("none".to_owned()),
            "eos_token": token(tokens.eos.first().copied()).unwrap_or("none".to_owned()),
            "decoder_start_token": token(tokens.decoder_start),
            "unk_token": "t3", "add_source_bos": false, "add_source_eos": false,
            "multi_query_attention": false,
        });
        let mut names: Vec<String> = (0..config.target_vocab).map(|id| format!("t{id}")).collect();
        let stem = match specification {
            "TransformerSpec" => "shared_vocabulary",
            _ => "vocabulary",
        };
        if config.bins.is_some() {
            let transcription = &config.transcription;
            let mut name = |id: Option<u32>, name: &str| {
                if let Some(id) = id {
                    names[id as usize] = name.to_owned();
                }
            };
            name(tokens.eos.first().copied(), "<|endoftext|>");
            name(tokens.decoder_start, "<|startoftranscript|>");
            name(transcription.no_timestamps, "<|notimestamps|>");
            name(transcription.previous, "<|startofprev|>");
            for (task, id) in &transcription.tasks {
                name(Some(*id), &format!("<|{task}|>"));
            }
            for (language, id) in &transcription.languages {
                name(Some(*id), language);
            }
            if !transcription.languages.is_empty() {
                name(Some(0), "");
            }
            let options = &config.settings.options;
            let languages: Vec<u32> = transcription.languages.iter().map(|&(_, id)| id).collect();
            settings = json!({
                "suppress_ids": options.suppress, "suppress_ids_begin": options.begin_suppress,
                "lang_ids": languages, "alignment_heads": transcription.alignment_heads,
            });
        }
        let vocabularies = vec![(stem, names)];
        Self { model, config: Some(settings), vocabularies, expected }
    }
}

/// Collects the variables of a checkpoint.
struct Writer<'c> {
    checkpoint: &'c Checkpoint<'c>,
    config: &'c Config,
    stored: Stored,
    model: ModelFile,
    expected: Vec<(TensorId, Vec<f32>)>,
}

impl Writer<'_> {
    /// The roles whose printed form is `path`, for example `decoder.final_norm.weight`.
    fn role(&self, path: &str) -> Option<TensorId> {
        TensorId::all(self.config).find(|role| role.to_string() == path)
    }

    /// Writes the tensors at `paths`, one after the other, as the variable `name`. A missing bias is zero if another one
    /// is not.
    fn put(&mut self, name: &str, paths: &[String]) {
        let quantized = name.ends_with("/weight");
        let mut shape: Vec<usize> = Vec::new();
        let (mut numbers, mut parts) = (Vec::new(), Vec::new());
        for path in paths {
            let Some(role) = self.role(path) else {
                parts.push((None, shape.iter().product::<usize>()));
                continue;
            };
            let Ok(Some(tensor)) = self.checkpoint.optional(role) else { return };
            if shape.is_empty() {
                shape = vec![0; tensor.shape().len()];
            }
            shape[0] += tensor.shape()[0];
            shape[1..].copy_from_slice(&tensor.shape()[1..]);
            numbers.extend(tensor.to_vec().expect("readable"));
            parts.push((Some(role), tensor.len()));
        }
        if parts.iter().all(|(role, _)| role.is_none()) {
            return;
        }
        if parts.iter().any(|(role, _)| role.is_none()) {
            // Query, key and value have the same length.
            let length = parts.iter().filter(|(role, _)| role.is_some()).map(|&(_, n)| n).max();
            let length = length.unwrap_or(0);
            let mut rest = numbers.as_slice();
            let mut whole = Vec::new();
            for (role, n) in &mut parts {
                *n = length;
                match role {
                    Some(_) => {
                        whole.extend_from_slice(&rest[..length]);
                        rest = &rest[length..];
                    }
                    None => whole.extend(vec![0.0; length]),
                }
            }
            shape = vec![whole.len()];
            numbers = whole;
        }
        let found = self.model.floats(name, &shape, &numbers, self.stored, quantized);
        let mut rest = found.as_slice();
        for (role, length) in parts {
            let (own, later) = rest.split_at(length);
            self.expected.extend(role.map(|role| (role, own.to_vec())));
            rest = later;
        }
    }

    fn linear(&mut self, name: &str, paths: &[String]) {
        for kind in ["weight", "bias"] {
            let paths: Vec<String> = paths.iter().map(|path| format!("{path}.{kind}")).collect();
            self.put(&format!("{name}/{kind}"), &paths);
        }
    }

    fn norm(&mut self, name: &str, path: &str) {
        self.put(&format!("{name}/gamma"), &[format!("{path}.weight")]);
        self.put(&format!("{name}/beta"), &[format!("{path}.bias")]);
    }

    fn write(&mut self) {
        let config = self.config;
        self.stack(Side::Encoder);
        if config.bins.is_some() {
            self.linear("encoder/conv1", &["encoder.convolutions.0".to_owned()]);
            self.linear("encoder/conv2", &["encoder.convolutions.1".to_owned()]);
        } else {
            let paths = ["encoder.embedding.weight".to_owned()];
            self.put("encoder/embeddings_0/weight", &paths);
            if config.token_types > 0 {
                self.model.flag("encoder/embeddings_merge", 1);
                self.put("encoder/embeddings_1/weight", &["encoder.token_types.weight".to_owned()]);
            }
        }
        if config.decoder.is_none() {
            return;
        }
        self.stack(Side::Decoder);
        const TABLE: &str = "decoder/embeddings/weight";
        if config.ties.source_target {
            self.alias(TABLE, "encoder/embeddings_0/weight", TensorId::TargetEmbedding);
        } else {
            self.put(TABLE, &["decoder.embedding.weight".to_owned()]);
        }
        const OUTPUT: &str = "decoder/projection/weight";
        if config.ties.target_output {
            self.alias(OUTPUT, TABLE, TensorId::Output);
        } else {
            self.put(OUTPUT, &["output.weight".to_owned()]);
        }
        self.put("decoder/projection/bias", &["output.bias".to_owned()]);
        if config.logit_scale != 1.0 {
            self.model.number("decoder/scale_outputs", config.logit_scale);
        }
        self.model.count("decoder/alignment_layer", -1);
        self.model.count("decoder/alignment_heads", 1);
        self.model.flag("decoder/alibi", 0);
        self.model.flag("decoder/start_from_zero_embedding", 0);
    }

    fn alias(&mut self, alias: &str, variable: &str, role: TensorId) {
        let same = if role == TensorId::Output {
            TensorId::TargetEmbedding
        } else {
            TensorId::SourceEmbedding
        };
        let found = self.expected.iter().find(|(role, _)| *role == same);
        let numbers = found.expect("the variable").1.clone();
        self.expected.push((role, numbers));
        self.model.aliases.push((alias.to_owned(), variable.to_owned()));
    }

    fn stack(&mut self, side: Side) {
        let config = self.config;
        let (scope, stack) = (side.name(), config.stack(side).expect("a stack"));
        self.model.count(&format!("{scope}/num_heads"), stack.heads as i16);
        if config.bins.is_none() || side == Side::Decoder {
            let pre = config.norm == NormPlacement::Pre;
            self.model.flag(&format!("{scope}/pre_norm"), i8::from(pre));
            let activation = match config.activation {
                Activation::Relu => 0,
                Activation::GeluTanh => 1,
                Activation::Silu => 2,
                Activation::Gelu => 3,
                other => panic!("no number of {other:?}"),
            };
            self.model.flag(&format!("{scope}/activation"), activation);
            self.model.number(&format!("{scope}/scale_embeddings"), config.embedding_scale);
        }
        if let Positions::Learned { offset } = config.positions {
            let role = TensorId::Positions(side);
            let table = self.checkpoint.tensor(role).expect("a table");
            let rows = table.shape()[0];
            let used = table.rows(offset..rows).expect("rows");
            let numbers = used.to_vec().expect("readable");
            let name = format!("{scope}/position_encodings/encodings");
            let found = self.model.floats(&name, used.shape(), &numbers, self.stored, false);
            self.expected.push((role, found));
        }
        self.norm(&format!("{scope}/layernorm_embedding"), &format!("{scope}.embedding_norm"));
        self.norm(&format!("{scope}/layer_norm"), &format!("{scope}.final_norm"));
        for layer in 0..stack.layers {
            self.layer(side, layer);
        }
    }

    fn layer(&mut self, side: Side, layer: usize) {
        let (name, path) =
            (format!("{}/layer_{layer}", side.name()), format!("{}.layers.{layer}", side.name()));
        let projections = |kind: &str, names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("{path}.{kind}_attention.{name}")).collect()
        };
        let own = format!("{name}/self_attention");
        self.linear(&format!("{own}/linear_0"), &projections("self", &["query", "key", "value"]));
        self.linear(&format!("{own}/linear_1"), &projections("self", &["output"]));
        self.norm(&format!("{own}/layer_norm"), &format!("{path}.self_attention_norm"));
        if let Some(scale) = self.config.attention_scale {
            self.model.number(&format!("{own}/queries_scale"), scale);
        }
        if let Some(bias) = self.config.stack(side).and_then(|stack| stack.relative_bias) {
            let table = format!("{own}/relative_attention_bias");
            if bias.per_layer {
                self.put(&table, &[format!("{path}.relative_bias.weight")]);
            } else if layer == 0 {
                self.put(&table, &[format!("{}.relative_bias.weight", side.name())]);
            } else {
                let first = format!("{}/layer_0/self_attention", side.name());
                self.model.aliases.push((table, format!("{first}/relative_attention_bias")));
            }
            let distance = (bias.max_distance as i32).to_le_bytes().to_vec();
            self.model.push(&format!("{own}/relative_attention_max_distance"), 3, &[], distance);
        }
        if side == Side::Decoder {
            let cross = format!("{name}/attention");
            self.linear(&format!("{cross}/linear_0"), &projections("cross", &["query"]));
            self.linear(&format!("{cross}/linear_1"), &projections("cross", &["key", "value"]));
            self.linear(&format!("{cross}/linear_2"), &projections("cross", &["output"]));
            self.norm(&format!("{cross}/layer_norm"), &format!("{path}.cross_attention_norm"));
            if let Some(scale) = self.config.attention_scale {
                self.model.number(&format!("{cross}/queries_scale"), scale);
            }
        }
        let ffn = format!("{name}/ffn");
        let half = |half: &str| [format!("{path}.feed_forward.{half}")];
        if self.config.gated {
            self.linear(&format!("{ffn}/linear_0"), &half("gate"));
            self.linear(&format!("{ffn}/linear_0_noact"), &half("inner"));
        } else {
            self.linear(&format!("{ffn}/linear_0"), &half("inner"));
        }
        self.linear(&format!("{ffn}/linear_1"), &half("outer"));
        self.norm(&format!("{ffn}/layer_norm"), &format!("{path}.feed_forward_norm"));
        if self.config.norm_kind == (NormKind::LayerNorm { bias: false }) {
            panic!("CTranslate2 has no LayerNorm without a bias");
        }
    }
}
