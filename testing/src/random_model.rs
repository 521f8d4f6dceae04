//! Checkpoints with random weights, made in memory, of any size and every family.

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::{Config, Family};

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n.max(1) as u64) as usize
    }

    /// Uniform in [-1, 1).
    pub fn symmetric(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// `len` ids below `vocabulary`.
    pub fn ids(&mut self, len: usize, vocabulary: usize) -> Vec<u32> {
        (0..len).map(|_| self.below(vocabulary) as u32).collect()
    }
}

/// The families of which a random model can be made.
pub fn families() -> impl Iterator<Item = Family> {
    Family::ALL.into_iter()
}

/// The families that decode from token ids.
#[allow(dead_code, reason = "not every test decodes")]
pub fn decoding() -> impl Iterator<Item = Family> {
    families().filter(|&family| {
        let config = Dims::small(family).config();
        config.decoder.is_some() && config.bins.is_none()
    })
}

/// The dimensions of a random model.
#[derive(Clone, Copy, Debug)]
pub struct Dims {
    pub family: Family,
    pub d_model: usize,
    /// Encoder and decoder.
    pub layers: [usize; 2],
    pub heads: [usize; 2],
    pub ffn: [usize; 2],
    pub vocabulary: usize,
    /// The longest source or target, if the family limits it.
    pub positions: usize,
    /// The norm placement of an `nn.Transformer`. The other families have their own.
    pub norm_first: bool,
}

impl Dims {
    /// A small model of `family`. Its sizes are multiples of no vector length.
    pub fn small(family: Family) -> Self {
        Self {
            family,
            d_model: 42,
            layers: [2, 2],
            heads: [3, 3],
            ffn: [53, 59],
            vocabulary: 131,
            positions: 256,
            norm_first: false,
        }
    }

    pub fn json(&self) -> String {
        let Self { d_model, layers, heads, ffn, vocabulary, positions, norm_first, .. } = *self;
        let model_type = self.family.model_type();
        match self.family {
            Family::Bert
            | Family::Roberta
            | Family::XlmRoberta
            | Family::Camembert
            | Family::MpNet => {
                return format!(
                    r#"{{"model_type": "{model_type}", "hidden_size": {d_model}, "num_hidden_layers": {},
                    "num_attention_heads": {}, "intermediate_size": {}, "vocab_size": {vocabulary},
                    "max_position_embeddings": {}, "type_vocab_size": 2, "pad_token_id": 1}}"#,
                    layers[0],
                    heads[0],
                    ffn[0],
                    positions + 2,
                );
            }
            Family::DistilBert => {
                return format!(
                    r#"{{"model_type": "{model_type}", "dim": {d_model}, "n_layers": {}, "n_heads": {},
                    "hidden_dim": {}, "vocab_size": {vocabulary}, "max_position_embeddings": {positions}}}"#,
                    layers[0], heads[0], ffn[0],
                );
            }
            Family::T5 | Family::Mt5 | Family::Umt5 => {
                return format!(
                    r#"{{"model_type": "{model_type}", "d_model": {d_model}, "num_layers": {},
                    "num_decoder_layers": {}, "num_heads": {}, "d_kv": {}, "d_ff": {},
                    "vocab_size": {vocabulary}, "pad_token_id": 1, "eos_token_id": 0,
                    "decoder_start_token_id": 2}}"#,
                    layers[0],
                    layers[1],
                    heads[0],
                    d_model / heads[0] + 1,
                    ffn[0],
                );
            }
            _ => (),
        }
        if self.family == Family::NnTransformer {
            return format!(
                r#"{{"model_type": "{model_type}", "d_model": {d_model}, "nhead": {},
                "num_encoder_layers": {}, "num_decoder_layers": {}, "dim_feedforward": {},
                "src_vocab_size": {vocabulary}, "tgt_vocab_size": {vocabulary},
                "norm_first": {norm_first}, "activation": "gelu", "pad_token_id": 0,
                "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}}"#,
                heads[0], layers[0], layers[1], ffn[0],
            );
        }
        format!(
            r#"{{"model_type": "{model_type}", "d_model": {d_model}, "hidden_size": {d_model},
            "src_vocab_size": {vocabulary}, "tgt_vocab_size": {vocabulary}, "encoder_layers": {},
            "decoder_layers": {}, "encoder_attention_heads": {}, "decoder_attention_heads": {},
            "encoder_ffn_dim": {}, "decoder_ffn_dim": {}, "vocab_size": {vocabulary},
            "max_position_embeddings": {positions}, "max_source_positions": {positions},
            "max_target_positions": {positions}, "num_mel_bins": 7, "scale_embedding": true,
            "activation_function": "swish", "pad_token_id": 1, "eos_token_id": 0,
            "bos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": null}}"#,
            layers[0], layers[1], heads[0], heads[1], ffn[0], ffn[1],
        )
    }

    pub fn config(&self) -> Config {
        Config::from_hugging_face(&self.json()).expect("a configuration")
    }

    /// Names and shapes, as `save_pretrained` or `state_dict` of the family writes them.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let mut list = Vec::new();
        match self.family {
            Family::NnTransformer => self.torch(&mut list),
            Family::Marian | Family::Bart | Family::MBart | Family::M2M100 => self.hub(&mut list),
            _ => self.by_tensor_id(&mut list),
        }
        list
    }

    /// The first name of each tensor that is not tied. Goldens check that the names are right.
    fn by_tensor_id(&self, list: &mut Vec<(String, Vec<usize>)>) {
        let config = self.config();
        for role in TensorId::all(&config) {
            let tied = match role {
                TensorId::TargetEmbedding => config.ties.source_target,
                TensorId::Output => config.ties.target_output,
                _ => false,
            };
            if let (false, Some(name)) = (tied, role.names(&config).into_iter().next()) {
                list.push((name, role.shape(&config).expect("a shape")));
            }
        }
    }

    fn hub(&self, list: &mut Vec<(String, Vec<usize>)>) {
        let (d, v) = (self.d_model, self.vocabulary);
        let pair = |list: &mut Vec<_>, name: String, outputs: usize, inputs: Option<usize>| {
            let weight = inputs.map_or(vec![outputs], |inputs| vec![outputs, inputs]);
            list.push((format!("{name}.weight"), weight));
            list.push((format!("{name}.bias"), vec![outputs]));
        };
        let (bart, mbart, m2m) = (
            self.family == Family::Bart,
            self.family == Family::MBart,
            self.family == Family::M2M100,
        );
        list.push(("model.shared.weight".into(), vec![v, d]));
        if !m2m {
            list.push(("final_logits_bias".into(), vec![1, v]));
        }
        for (index, side) in ["encoder", "decoder"].into_iter().enumerate() {
            for layer in 0..self.layers[index] {
                let stem = format!("model.{side}.layers.{layer}");
                let kinds: &[&str] =
                    if index == 0 { &["self_attn"] } else { &["self_attn", "encoder_attn"] };
                for kind in kinds {
                    for projection in ["q_proj", "k_proj", "v_proj", "out_proj"] {
                        pair(list, format!("{stem}.{kind}.{projection}"), d, Some(d));
                    }
                    pair(list, format!("{stem}.{kind}_layer_norm"), d, None);
                }
                pair(list, format!("{stem}.fc1"), self.ffn[index], Some(d));
                pair(list, format!("{stem}.fc2"), d, Some(self.ffn[index]));
                pair(list, format!("{stem}.final_layer_norm"), d, None);
            }
            if bart || mbart {
                let table = vec![self.positions + 2, d];
                list.push((format!("model.{side}.embed_positions.weight"), table));
                pair(list, format!("model.{side}.layernorm_embedding"), d, None);
            }
            if mbart || m2m {
                pair(list, format!("model.{side}.layer_norm"), d, None);
            }
        }
    }

    fn torch(&self, list: &mut Vec<(String, Vec<usize>)>) {
        let (d, v) = (self.d_model, self.vocabulary);
        let mut push = |name: String, shape: &[usize]| list.push((name, shape.to_vec()));
        push("src_embed.weight".into(), &[v, d]);
        push("tgt_embed.weight".into(), &[v, d]);
        push("generator.weight".into(), &[v, d]);
        push("generator.bias".into(), &[v]);
        for (index, side) in ["encoder", "decoder"].into_iter().enumerate() {
            for layer in 0..self.layers[index] {
                let stem = format!("{side}.layers.{layer}");
                let kinds: &[&str] =
                    if index == 0 { &["self_attn"] } else { &["self_attn", "multihead_attn"] };
                for kind in kinds {
                    push(format!("{stem}.{kind}.in_proj_weight"), &[3 * d, d]);
                    push(format!("{stem}.{kind}.in_proj_bias"), &[3 * d]);
                    push(format!("{stem}.{kind}.out_proj.weight"), &[d, d]);
                    push(format!("{stem}.{kind}.out_proj.bias"), &[d]);
                }
                for norm in 1..=kinds.len() + 1 {
                    push(format!("{stem}.norm{norm}.weight"), &[d]);
                    push(format!("{stem}.norm{norm}.bias"), &[d]);
                }
                push(format!("{stem}.linear1.weight"), &[self.ffn[0], d]);
                push(format!("{stem}.linear1.bias"), &[self.ffn[0]]);
                push(format!("{stem}.linear2.weight"), &[d, self.ffn[0]]);
                push(format!("{stem}.linear2.bias"), &[d]);
            }
            push(format!("{side}.norm.weight"), &[d]);
            push(format!("{side}.norm.bias"), &[d]);
        }
    }

    /// The bytes of `model.safetensors`.
    pub fn bytes(&self, seed: u64) -> Vec<u8> {
        let mut random = Random(seed);
        let data: Vec<(String, Vec<usize>, Vec<u8>)> = self
            .tensors()
            .into_iter()
            .map(|(name, shape)| {
                let len = shape.iter().product();
                // Norms stay near the identity and matrices keep the variance, so that
                // different tokens stay different in every layer.
                let (center, spread) = match shape[..] {
                    [_] if name.to_lowercase().contains("norm") && name.ends_with("weight") => {
                        (1.0, 0.2)
                    }
                    [_] | [1, _] => (0.0, 0.2),
                    _ if name.contains("relative") => (0.0, 1.0),
                    _ if name.contains("embed") || name.contains("shared") => (0.0, 0.5),
                    _ => (0.0, 2.0 / (shape[1..].iter().product::<usize>() as f32).sqrt()),
                };
                let number = |_| (center + spread * random.symmetric()).to_le_bytes();
                (name, shape, (0..len).flat_map(number).collect())
            })
            .collect();
        let views = data.iter().map(|(name, shape, bytes)| {
            (name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor"))
        });
        safetensors::serialize(views, None).expect("a safetensors file")
    }

    /// A checkpoint with random weights.
    pub fn checkpoint(&self, seed: u64) -> Checkpoint<'static> {
        Checkpoint::from_bytes(self.config(), self.bytes(seed)).expect("a checkpoint")
    }

    /// Writes `config.json` and `model.safetensors` to `directory`.
    pub fn write(&self, seed: u64, directory: &std::path::Path) {
        std::fs::create_dir_all(directory).expect("a directory");
        std::fs::write(directory.join("config.json"), self.json()).expect("config.json");
        std::fs::write(directory.join("model.safetensors"), self.bytes(seed)).expect("weights");
    }
}
