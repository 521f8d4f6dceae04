//! OPUS-MT on our ops compared with candle-transformers' own model, and batches compared with single
//! sentences.

use candle_core::{DType, Device, Error, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::marian::{Config, MTModel};
use serde_json::Value;
use simdformer_candle::Threads;
use simdformer_candle::marian::{EncoderOutput, Marian};
use simdformer_candle_support::checkpoint::{opus, seeded};
use simdformer_candle_support::{Random, bits, close};
use simdformer_kernels::Isa;
use std::path::PathBuf;

/// OPUS-MT with two layers of a width that is a multiple of no vector length.
fn small() -> Config {
    Config {
        d_model: 60,
        encoder_layers: 2,
        decoder_layers: 2,
        encoder_attention_heads: 4,
        decoder_attention_heads: 4,
        encoder_ffn_dim: 100,
        decoder_ffn_dim: 90,
        activation_function: candle_nn::Activation::Relu,
        ..opus()
    }
}

fn ids(rows: &[&[u32]]) -> Result<Tensor> {
    let columns = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let flat = rows
        .iter()
        .flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(4000, columns - row.len())));
    Tensor::from_iter(flat, &Device::Cpu)?.reshape((rows.len(), columns))
}

fn sentences(lengths: &[usize], vocabulary: usize) -> Vec<Vec<u32>> {
    let mut random = Random::new(61);
    let sentence =
        |&length: &usize| (0..length).map(|_| random.from(1, vocabulary) as u32).collect();
    lengths.iter().map(sentence).collect()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/fr-en")
}

fn fr_en() -> Result<(Config, Vec<u8>)> {
    let config = std::fs::read_to_string(folder().join("config.json"))?;
    let config = serde_json::from_str(&config).map_err(Error::wrap)?;
    Ok((config, std::fs::read(folder().join("model.safetensors"))?))
}

/// Source ids and the tokens of Hugging Face's transformers.
fn held_out() -> Result<Vec<(Vec<u32>, Vec<u32>)>> {
    let lines = std::fs::read_to_string(folder().join("held_out.jsonl"))?;
    let row = |line: &str| -> serde_json::Result<_> {
        let row: Value = serde_json::from_str(line)?;
        let ids = |name: &str| serde_json::from_value(row[name].clone());
        Ok((ids("source_ids")?, ids("greedy_ids")?))
    };
    lines.lines().map(|line| row(line).map_err(Error::wrap)).collect()
}

/// One sentence by both models: the encoder output, and the logits after each token of a target.
fn same_as_candle(
    ours: &Marian,
    theirs: &mut MTModel,
    source: &[u32],
    target: &[u32],
) -> Result<()> {
    let (source_ids, target_ids) = (ids(&[source])?, ids(&[target])?);
    theirs.reset_kv_cache();
    let states = theirs.encoder().forward(&source_ids, 0)?;
    let logits = theirs.decode(&target_ids, &states, 0)?;
    let encoded = ours.encode(&source_ids, &[source.len()])?;
    close(encoded.states(), &states, "the encoder")?;
    let mut cache = ours.kv_cache(1, target.len())?;
    close(&ours.decode(&target_ids, &encoded, &mut cache)?, &logits, "the logits")
}

#[test]
fn a_random_checkpoint_of_the_shape_of_opus_mt_matches_candle() -> Result<()> {
    for config in [opus(), small()] {
        let mut theirs = MTModel::new(&config, seeded(None))?;
        for isa in Isa::available() {
            let ours = Marian::load(isa, &config, seeded(None))?;
            let sources = sentences(&[1, 7, 13], 3999);
            for source in &sources {
                same_as_candle(&ours, &mut theirs, source, &[4000, 5, 9, 11, 13])?;
            }
        }
    }
    Ok(())
}

#[test]
fn the_trained_checkpoint_matches_candle() -> Result<()> {
    let (config, bytes) = fr_en()?;
    let vb = || VarBuilder::from_buffered_safetensors(bytes.clone(), DType::F32, &Device::Cpu);
    let mut theirs = MTModel::new(&config, vb()?)?;
    let ours = Marian::load(simdformer_candle_support::isa(), &config, vb()?)?;
    for (source, target) in held_out()?.iter().take(20) {
        let begun = [&[config.decoder_start_token_id], &target[..target.len() - 1]].concat();
        same_as_candle(&ours, &mut theirs, source, &begun)?;
    }
    Ok(())
}

#[test]
fn batches_translate_as_transformers_does() -> Result<()> {
    let (config, bytes) = fr_en()?;
    let vb = VarBuilder::from_buffered_safetensors(bytes, DType::F32, &Device::Cpu)?;
    let model = Marian::load(simdformer_candle_support::isa(), &config, vb)?;
    let held_out = held_out()?;
    assert!(held_out.len() >= 50, "{} sentences", held_out.len());
    for batch in held_out.chunks(16) {
        let sources: Vec<&[u32]> = batch.iter().map(|(source, _)| &source[..]).collect();
        let found = model.translate(&sources, 40)?;
        for ((source, expected), found) in batch.iter().zip(&found) {
            assert_eq!(found, expected, "{source:?}");
        }
    }
    assert_eq!(model.translate(&[], 40)?.len(), 0);
    assert_eq!(model.translate(&[&held_out[0].0], 0)?, [[0u32; 0]]);
    let cut = model.translate(&[&held_out[0].0], 3)?;
    assert_eq!(cut[0], held_out[0].1[..3]);
    Ok(())
}

/// Logits after the targets, decoded at once.
fn logits(model: &Marian, encoded: &EncoderOutput, targets: &[&[u32]]) -> Result<Tensor> {
    let mut cache = model.kv_cache(targets.len(), targets[0].len())?;
    model.decode(&ids(targets)?, encoded, &mut cache)
}

#[test]
fn each_row_of_a_padded_batch_has_the_bits_that_it_has_alone() -> Result<()> {
    let lengths = [1, 7, 64, 20];
    for config in [small(), opus()] {
        for isa in Isa::available() {
            if isa.name() == "scalar" && config.d_model == 512 {
                continue; // It has the same layers and is slow.
            }
            let model = Marian::load(isa, &config, seeded(None))?;
            let sources = sentences(&lengths, 3999);
            let rows: Vec<&[u32]> = sources.iter().map(|row| &row[..]).collect();
            let encoded = model.encode(&ids(&rows)?, &lengths)?;
            let targets: [&[u32]; 4] = [&[4000, 1, 2], &[4000, 3, 4], &[4000, 5, 6], &[4000, 7, 8]];
            let all = logits(&model, &encoded, &targets)?;
            for (row, &length) in lengths.iter().enumerate() {
                let alone = model.encode(&ids(&rows[row..=row])?, &[length])?;
                let states = encoded.states().narrow(0, row, 1)?.narrow(1, 0, length)?;
                assert_eq!(bits(&states)?, bits(alone.states())?, "row {row}");
                let alone = logits(&model, &alone, &targets[row..=row])?;
                assert_eq!(bits(&all.narrow(0, row, 1)?)?, bits(&alone)?, "row {row}");
            }
        }
    }
    Ok(())
}

#[test]
fn padding_of_nan_changes_no_bit() -> Result<()> {
    const PAD: u32 = 3000;
    let lengths = [3, 9];
    let sources = sentences(&lengths, 2999);
    for isa in Isa::available() {
        let sound = Marian::load(isa, &small(), seeded(None))?;
        let broken = Marian::load(isa, &small(), seeded(Some(PAD as usize)))?;
        let mut rows = sources.clone();
        rows[0].resize(9, PAD);
        let rows: Vec<&[u32]> = rows.iter().map(|row| &row[..]).collect();
        let [sound_encoded, broken_encoded] =
            [&sound, &broken].map(|model| model.encode(&ids(&rows)?, &lengths));
        let targets: [&[u32]; 2] = [&[4000, 1, 2], &[4000, 3, 4]];
        let expected = logits(&sound, &sound_encoded?, &targets)?;
        let found = logits(&broken, &broken_encoded?, &targets)?;
        // The embedding is also the output matrix.
        let columns = |logits: &Tensor| -> Result<_> {
            let (before, after) = (PAD as usize, 4000 - PAD as usize);
            Ok((bits(&logits.narrow(2, 0, before)?)?, bits(&logits.narrow(2, before + 1, after)?)?))
        };
        assert_eq!(columns(&found)?, columns(&expected)?);
        assert!(found.narrow(2, PAD as usize, 1)?.flatten_all()?.to_vec1::<f32>()?[0].is_nan());
    }
    Ok(())
}

#[test]
fn single_tokens_have_the_bits_of_all_tokens_at_once() -> Result<()> {
    let lengths = [5, 2];
    let sources = sentences(&lengths, 3999);
    let rows: Vec<&[u32]> = sources.iter().map(|row| &row[..]).collect();
    let targets: [&[u32]; 2] = [&[4000, 1, 2, 3, 4, 5, 6], &[4000, 8, 9, 10, 11, 12, 13]];
    for isa in Isa::available() {
        let model = Marian::load(isa, &small(), seeded(None))?;
        let encoded = model.encode(&ids(&rows)?, &lengths)?;
        let expected = logits(&model, &encoded, &targets)?;
        let mut cache = model.kv_cache(2, 10)?;
        for (first, count) in [(0, 1), (1, 1), (2, 3), (5, 2)] {
            assert_eq!(cache.len(), first);
            let part = targets.map(|target| &target[first..first + count]);
            let found = model.decode(&ids(&part)?, &encoded, &mut cache)?;
            assert_eq!(bits(&found)?, bits(&expected.narrow(1, first, count)?)?, "token {first}");
        }
    }
    Ok(())
}

#[test]
fn threads_change_no_bit() -> Result<()> {
    let lengths = [30, 11, 3];
    let sources = sentences(&lengths, 3999);
    let rows: Vec<&[u32]> = sources.iter().map(|row| &row[..]).collect();
    let targets: [&[u32]; 3] = [&[4000, 1], &[4000, 2], &[4000, 3]];
    let run = |threads: Threads| {
        let model =
            Marian::load_for(simdformer_candle_support::isa(), threads, &opus(), seeded(None))?;
        bits(&logits(&model, &model.encode(&ids(&rows)?, &lengths)?, &targets)?)
    };
    let expected = run(Threads::Serial)?;
    assert_eq!(Device::Cpu.with_context(|| run(Threads::Rayon))?, expected, "candle's pool");
    for threads in [1, 2, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        assert_eq!(pool.install(|| run(Threads::Rayon))?, expected, "a pool of {threads}");
    }
    Ok(())
}

#[test]
fn unsupported_calls_are_errors() -> Result<()> {
    let isa = simdformer_candle_support::isa();
    let text = |config: Config| match Marian::load(isa, &config, seeded(None)) {
        Ok(_) => panic!("loaded"),
        // A backtrace may follow.
        Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
    };
    assert_eq!(
        text(Config { share_encoder_decoder_embeddings: false, ..small() }),
        "share_encoder_decoder_embeddings: false is not computed here; expected one embedding; the \
         crate simdformer runs the others"
    );
    assert_eq!(
        text(Config { encoder_attention_heads: 7, ..small() }),
        "a width of 60 with 7 heads is not computed here; expected heads that divide it"
    );
    assert!(text(Config { decoder_attention_heads: 0, ..small() }).contains("with 0 heads"));
    let model = Marian::load(isa, &small(), seeded(None))?;
    let source = ids(&[&[1, 2, 3]])?;
    assert!(model.encode(&source, &[4]).is_err(), "a length beyond the tokens");
    assert!(model.encode(&source, &[3, 3]).is_err(), "two lengths for one sentence");
    assert!(model.encode(&ids(&[&[9999]])?, &[1]).is_err(), "an id outside the vocabulary");
    assert!(model.encode(&ids(&[&[1; 513]])?, &[513]).is_err(), "more tokens than positions");
    let encoded = model.encode(&source, &[3])?;
    let mut cache = model.kv_cache(1, 2)?;
    assert!(model.decode(&source, &encoded, &mut cache).is_err(), "three tokens in space for two");
    assert!(cache.is_empty());
    assert!(model.decode(&ids(&[&[1], &[2]])?, &encoded, &mut cache).is_err(), "another batch");
    assert!(model.translate(&[&[1, 2, 9999]], 5).is_err(), "an id outside the vocabulary");
    Ok(())
}
