//! Architectures of transformers that are known but not supported, and the reasons.

const SPARSE: &str = "its attention is local, sparse or global, which this crate does not compute";
const EXPERTS: &str =
    "its feed-forward blocks are mixtures of experts, which this crate does not compute";
const STREAMS: &str = "its decoder predicts several tokens at a time in streams of their own";
const ROTARY: &str = "its positions are rotary or ALiBi, which this crate does not compute";
const DISENTANGLED: &str = "its attention is disentangled into content and position";
const DECODER: &str = "it has no encoder; this crate runs encoder-decoders and encoders";
const FOREIGN: &str = "it joins two other models, each with a configuration of its own";
const SOUND: &str = "its encoder reads sound or pictures, and not token ids";

/// Why `model_type` is not supported, if it is known.
pub(super) fn reason(model_type: &str) -> Option<&'static str> {
    const REFUSED: [(&[&str], &str); 10] = [
        (&["pegasus_x", "bigbird_pegasus", "led", "longt5", "longformer", "big_bird"], SPARSE),
        (&["switch_transformers", "nllb-moe"], EXPERTS),
        (&["prophetnet", "xlm-prophetnet"], STREAMS),
        (
            &["t5gemma", "t5gemma2"],
            "its positions are rotary and its decoder merges two attentions",
        ),
        (&["modernbert", "nomic_bert", "new", "jina_bert", "gte"], ROTARY),
        (&["deberta", "deberta-v2"], DISENTANGLED),
        (&["albert"], "its layers share their weights"),
        (&["electra"], "its embeddings may have another width than its layers"),
        (&["encoder-decoder"], FOREIGN),
        (&["vision-encoder-decoder", "speech-encoder-decoder", "speech_to_text"], SOUND),
    ];
    const DECODERS: &str = "gpt2 gpt_neo gpt_neox gptj gpt_oss opt bloom falcon llama llama4 mistral mixtral qwen2 qwen3 \
        qwen2_moe qwen3_moe gemma gemma2 gemma3 gemma3_text phi phi3 mamba xglm";
    if DECODERS.split(' ').any(|known| known == model_type) {
        return Some(DECODER);
    }
    let found = REFUSED.iter().find(|(names, _)| names.contains(&model_type));
    found.map(|&(_, reason)| reason)
}
