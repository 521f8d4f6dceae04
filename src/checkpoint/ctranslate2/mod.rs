//! Directories of CTranslate2: `model.bin`, its `config.json`, and vocabularies.
//!
//! The variables become tensors of [`Family::Plain`](crate::config::Family::Plain): query, key and value are thirds of one
//! variable, and key and value of cross-attention halves. The architecture follows from the settings in the file and from
//! shapes. A variable that nothing here reads, and that would change the results, is an error.
//!
//! int8 matrices have an f32 for each row, 127 divided by the largest magnitude. CTranslate2 multiplies by its reciprocal.
//! Such a row, quantized again by the kernels, has the same integers.

mod architecture;
mod files;
mod model_file;
mod tensors;
mod vocabulary;

use super::byte_source::{ReadAt, Source};
use super::directory::{MAX_CONFIG, Tensors, has_tensors};
use crate::config::ctranslate2::{CTranslate2Settings, END_OF_TEXT, is_transcription_token};
use crate::config::{Config, Fields, MODEL_TYPE};
use crate::error::Error;
use crate::printable_text::quoted;
use architecture::{Specification, read_architecture, starts_from_zeros};
use files::Files;
use model_file::{ModelFile, is_model_file};
use std::io;
use std::path::Path;
use tensors::read_tensors;
use vocabulary::token_ids;

/// The file of the weights, that of its settings, and that of generation settings, which a converter may copy.
const WEIGHTS: &str = "model.bin";
const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";

/// Maximum characters of a token in an error.
const MAX_SHOWN: usize = 80;

/// A directory of CTranslate2.
pub(super) struct Opened {
    pub(super) config: Config,
    pub(super) source: Source<'static>,
    pub(super) tensors: Tensors,
}

/// Whether `directory` is one of CTranslate2: it has a `model.bin`, and no weights under the names of other libraries. If
/// its `config.json`, whose text is `config`, names a family, `model.bin` must also begin like one of CTranslate2: early
/// versions had no `config.json`, and publishers put that of transformers there.
pub(super) fn is_directory(directory: &Path, config: Option<&str>) -> Result<bool, Error> {
    let file = directory.join(WEIGHTS);
    if !file.is_file() || has_tensors(directory) || directory.join("pytorch_model.bin").exists() {
        return Ok(false);
    }
    let has_family =
        |text| Fields::parse(text).is_ok_and(|fields| fields.get(MODEL_TYPE).is_some());
    if !config.is_some_and(has_family) {
        return Ok(true);
    }
    let source = Source::open(&file)?;
    let mut begin = [0; 64];
    let begin = &mut begin[..source.len().min(64) as usize];
    source.read_at(0, begin)?;
    Ok(is_model_file(begin))
}

/// Opens a directory of CTranslate2 whose `config.json` has been read.
pub(super) fn open(directory: &Path, config: Option<&str>) -> Result<Opened, Error> {
    open_files(&Files::Folder(directory), Source::open(&directory.join(WEIGHTS))?, config)
}

/// As [`open`], for files that `read` reads; the bytes of the weights are `model`.
pub(super) fn open_elsewhere(
    place: &str,
    model: Box<dyn ReadAt>,
    read: &dyn Fn(&str) -> io::Result<Option<Vec<u8>>>,
) -> Result<Opened, Error> {
    let files = Files::Read(place, read);
    let config = files.json(CONFIG, MAX_CONFIG)?;
    open_files(&files, Source::other(files.name(WEIGHTS), model), config.as_deref())
}

fn open_files(
    files: &Files<'_>,
    source: Source<'static>,
    config: Option<&str>,
) -> Result<Opened, Error> {
    let mut file = ModelFile::open(source)?;
    let specification = Specification::from_file(&file)?;
    let mut settings = match config {
        Some(text) => CTranslate2Settings::from_json(text)
            .map_err(|error| error.in_file(&files.name(CONFIG)))?,
        None => CTranslate2Settings::default(),
    };
    if file.version < 6 && specification == Specification::Transformer {
        read_older_settings(&mut file, &mut settings)?;
    }
    let mut config = read_architecture(&mut file, specification, &settings)?;
    let tensors = read_tensors(&mut file, &config)?;
    set_tokens(files, &mut file, specification, &settings, &mut config)?;
    config.validate().map_err(|error| error.in_file(file.name()))?;
    Ok(Opened { config, source: file.source, tensors })
}

/// The settings that versions before 6 have in `model.bin`.
fn read_older_settings(
    file: &mut ModelFile,
    settings: &mut CTranslate2Settings,
) -> Result<(), Error> {
    file.text("unk_token")?;
    if let Some(token) = file.text("bos_token")? {
        settings.bos = token;
    }
    if let Some(token) = file.text("eos_token")? {
        settings.eos = token;
    }
    settings.add_source =
        [file.flag("with_source_bos", false)?, file.flag("with_source_eos", false)?];
    let of_caller = file.flag("user_decoder_start_tokens", false)?;
    let start = match file.flag("with_target_bos", true)? {
        true => &settings.bos,
        false => &settings.eos,
    };
    settings.decoder_start = (!of_caller).then(|| start.clone());
    Ok(())
}

/// Sets the tokens of `config`, from the vocabulary, and the generation settings beside it.
fn set_tokens(
    files: &Files<'_>,
    file: &mut ModelFile,
    specification: Specification,
    settings: &CTranslate2Settings,
    config: &mut Config,
) -> Result<(), Error> {
    let named = |_: u32, token: &str| settings.names_token(token);
    match specification {
        Specification::Transformer => {
            let stems = ["shared_vocabulary", "target_vocabulary"];
            config.tokens = settings.special_tokens(&token_ids(files, &stems, &named)?);
            if settings.add_source != [false; 2] {
                let stems = ["shared_vocabulary", "source_vocabulary"];
                let of_source = token_ids(files, &stems, &named)?;
                settings
                    .set_source_tokens(&of_source, &mut config.tokens)
                    .map_err(|error| error.in_file(&files.name(CONFIG)))?;
            }
        }
        Specification::Encoder => {
            let ids = token_ids(files, &["vocabulary"], &named)?;
            config.tokens = settings.special_tokens(&ids);
            config.tokens.decoder_start = None;
        }
        Specification::Whisper => {
            let keep = |_: u32, token: &str| is_transcription_token(token);
            let ids = token_ids(files, &["vocabulary"], &keep)?;
            settings.set_transcription(&ids, config);
        }
    }
    let zeros = starts_from_zeros(file)?.then_some(config.target_vocab as u32 - 1);
    if let Some(start) = zeros {
        (config.tokens.pad, config.tokens.decoder_start) = (Some(start), Some(start));
    }
    if let Some(text) = files.json(GENERATION, MAX_CONFIG)? {
        let set = config.set_generation_config(&text);
        set.map_err(|error| error.in_file(&files.name(GENERATION)))?;
    }
    if specification != Specification::Encoder && config.tokens.eos.is_empty() {
        // Without it every text would have the maximum length.
        let end = if specification == Specification::Whisper { END_OF_TEXT } else { &settings.eos };
        let expected = format!("{}, the end of every text", quoted(end, MAX_SHOWN));
        let error = Error::corrupt("the vocabulary of the target", expected, "none");
        return Err(error.in_file(&files.name(CONFIG)));
    }
    if let Some(start) = zeros {
        // The row of zeros is no token of the vocabulary.
        config.tokens.banned.push(start);
        config.tokens.banned.sort_unstable();
        config.tokens.banned.dedup();
    }
    Ok(())
}
