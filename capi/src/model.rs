//! Models: opened from a directory, from bytes or from tensors in memory.

use crate::errors::{Failure, enter};
use crate::library::{SF_ISA_DEFAULT, constant_of, isa_of};
use crate::pointers::{
    close_box, optional_struct, optional_text, out, reference, sized_struct, slice, structs, text,
    text_of, write_struct, write_whole,
};
use core::ffi::{c_char, c_void};
use core::ops::ControlFlow;
use simdformer::checkpoint::{Checkpoint, Dtype};
use simdformer::config::{Config, Side};
use simdformer::{LoadOptions, Model, WeightDtypes};
use std::sync::Arc;

/// The weights of a model. It does not change, so any threads may use it at the same time. Sessions and engines keep what
/// they need of it after `sf_model_close`.
pub struct sf_model {
    pub(crate) model: Arc<Model>,
}

/// How a model is loaded. Null stands for the defaults, which are zeros.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_load {
    /// `sizeof(sf_load)`.
    pub struct_size: usize,
    /// How the matrices are stored: "f32", "bf16", "f16", "int8", "int8x16", with exceptions by names, as in
    /// "int8,output=int8". Null for the dtypes of the checkpoint.
    pub dtypes: *const c_char,
    /// Called after every few rows with the bytes that were read, of `total`. A result other than 0 ends the call with
    /// `SF_ERROR_CANCELLED`. May be null.
    pub on_progress: Option<unsafe extern "C" fn(user: *mut c_void, done: u64, total: u64) -> i32>,
    /// The first argument of `on_progress`.
    pub user: *mut c_void,
    /// A constant `SF_ISA`.
    pub isa: i32,
    /// 1 to use a file of packed weights in place, which opens in milliseconds and is shared by all processes. Such a file
    /// must not be changed while a process uses it.
    pub map_packed: i32,
}

/// A tensor in the caller's memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_tensor {
    /// `sizeof(sf_tensor)`.
    pub struct_size: usize,
    /// Its name in a checkpoint of the family.
    pub name: *const c_char,
    /// "f32", "bf16" or "f16".
    pub dtype: *const c_char,
    /// `[dimensions]`: rows first.
    pub shape: *const usize,
    /// Numbers in `shape`.
    pub dimensions: usize,
    /// The numbers in row-major order, little-endian, with any alignment.
    pub data: *const c_void,
    /// Bytes of `data`.
    pub bytes: usize,
}

/// The dimensions of a model. The caller sets `struct_size`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_dims {
    /// `sizeof(sf_dims)`.
    pub struct_size: usize,
    /// Numbers in a hidden state.
    pub d_model: usize,
    /// Layers of the encoder.
    pub encoder_layers: usize,
    /// Layers of the decoder; 0 for a model that only encodes.
    pub decoder_layers: usize,
    /// Source ids are below it; 0 if the encoder reads features.
    pub source_vocabulary: usize,
    /// Target ids are below it. A row of logits has as many numbers.
    pub target_vocabulary: usize,
    /// The most tokens of a source; `SIZE_MAX` without such a limit.
    pub source_positions: usize,
    /// The most tokens of a target; `SIZE_MAX` without such a limit.
    pub target_positions: usize,
    /// Numbers in a frame of features; 0 if the encoder reads ids.
    pub feature_bins: usize,
    /// Bytes of the weights in memory.
    pub bytes: usize,
    /// The first token of every target; `UINT32_MAX` if the caller must choose it.
    pub decoder_start: u32,
    /// The constant of the instruction set that the weights are packed for.
    pub isa: i32,
}

sized_struct! {
    sf_load: map_packed as i32;
    sf_tensor: bytes as usize;
    sf_dims: isa as i32;
}

/// The load options of the caller, and of Rust.
unsafe fn load_options<'l>(load: *const sf_load) -> Result<LoadOptions<'l>, Failure> {
    // SAFETY: the caller's contract.
    let Some(load) = (unsafe { optional_struct(load) })? else { return Ok(LoadOptions::default()) };
    // SAFETY: the caller's contract.
    let dtypes = match unsafe { optional_text("sf_load.dtypes", load.dtypes) }? {
        Some(dtypes) => dtypes.parse()?,
        None => WeightDtypes::as_stored(),
    };
    let isa = match load.isa {
        SF_ISA_DEFAULT => None,
        isa => Some(isa_of(isa)?),
    };
    let options =
        LoadOptions { isa, dtypes, map_packed: load.map_packed != 0, ..LoadOptions::default() };
    let Some(on_progress) = load.on_progress else { return Ok(options) };
    Ok(options.on_progress(move |loading| {
        // SAFETY: the caller's function, with its argument.
        match unsafe { on_progress(load.user, loading.done, loading.total) } {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }))
}

/// Makes the caller's model.
unsafe fn open(model: *mut *mut sf_model, load: impl FnOnce() -> Result<Model, Failure>) -> i32 {
    enter(|| {
        // SAFETY: the caller's contract.
        let place = unsafe { out("model", model) }?;
        place.write(core::ptr::null_mut());
        let model = Arc::new(load()?);
        place.write(Box::into_raw(Box::new(sf_model { model })));
        Ok(())
    })
}

/// Opens the checkpoint in `directory`: safetensors files with `config.json`, as Hugging Face stores them, or packed
/// weights. `load` may be null. `*model` is null if the call fails; `sf_model_close` frees it.
///
/// Errors: a file is missing, unsupported, damaged or unreadable; no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_model_open(
    directory: *const c_char,
    load: *const sf_load,
    model: *mut *mut sf_model,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        open(model, || {
            let directory = text("directory", directory)?;
            Ok(Model::open_with(directory, load_options(load)?)?)
        })
    }
}

/// The configuration of a model in memory.
unsafe fn config(config: *const c_char, len: usize) -> Result<Config, Failure> {
    // SAFETY: the caller's contract.
    Ok(Config::from_hugging_face(unsafe { text_of("config_json", config, len) }?)?)
}

/// Opens a model from the `config_len` bytes of a `config.json` and the `weights_len` bytes of a safetensors file. Both are
/// read during the call only.
///
/// Errors: as `sf_model_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_model_from_memory(
    config_json: *const c_char,
    config_len: usize,
    weights: *const c_void,
    weights_len: usize,
    load: *const sf_load,
    model: *mut *mut sf_model,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        open(model, || {
            let weights = slice("weights", weights.cast::<u8>(), weights_len)?;
            let checkpoint = Checkpoint::from_bytes(config(config_json, config_len)?, weights)?;
            Ok(Model::load(&checkpoint, load_options(load)?)?)
        })
    }
}

/// Opens a model from the `config_len` bytes of a `config.json` and `count` tensors, which are read during the call only.
/// Their names are those of a checkpoint of the family; tensors with other names have no effect.
///
/// Errors: as `sf_model_open`; two tensors have the same name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_model_from_tensors(
    config_json: *const c_char,
    config_len: usize,
    tensors: *const sf_tensor,
    count: usize,
    load: *const sf_load,
    model: *mut *mut sf_model,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        open(model, || {
            let mut known = std::collections::HashMap::new();
            for tensor in structs("tensors", tensors, count)? {
                let tensor = tensor?;
                let name = text("sf_tensor.name", tensor.name)?;
                let dtype = text("sf_tensor.dtype", tensor.dtype)?;
                let dtype = Dtype::from_name(dtype).ok_or_else(|| {
                    Failure::argument(
                        "sf_tensor.dtype",
                        "\"f32\", \"bf16\" or \"f16\"",
                        "another name",
                    )
                })?;
                let shape = slice("sf_tensor.shape", tensor.shape, tensor.dimensions)?;
                let data = slice("sf_tensor.data", tensor.data.cast::<u8>(), tensor.bytes)?;
                if known.insert(name, (dtype, shape.to_vec(), data)).is_some() {
                    return Err(Failure::argument("tensors", "one of each name", "two of a name"));
                }
            }
            let config = config(config_json, config_len)?;
            let checkpoint = Checkpoint::from_tensors(config, |name| known.get(name).cloned())?;
            Ok(Model::load(&checkpoint, load_options(load)?)?)
        })
    }
}

/// Writes the dimensions of a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_model_dims(model: *const sf_model, dims: *mut sf_dims) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let model = &unsafe { reference("model", model) }?.model;
        let config = model.config();
        let positions = |side| config.max_positions(side).unwrap_or(usize::MAX);
        let dims_of_model = sf_dims {
            struct_size: 0,
            d_model: config.d_model,
            encoder_layers: config.encoder.layers,
            decoder_layers: config.decoder.map_or(0, |decoder| decoder.layers),
            source_vocabulary: config.source_vocab,
            target_vocabulary: config.target_vocab,
            source_positions: positions(Side::Encoder),
            target_positions: if config.decoder.is_some() { positions(Side::Decoder) } else { 0 },
            feature_bins: config.bins.unwrap_or(0),
            bytes: model.bytes(),
            decoder_start: config.tokens.decoder_start.unwrap_or(u32::MAX),
            isa: constant_of(model.isa()),
        };
        // SAFETY: the contract of the interface.
        unsafe { write_struct(dims, dims_of_model) }
    })
}

/// Copies a description of a model into `buffer` of `len` bytes, as `sf_last_error` does: the architecture, and the bytes of
/// each part. Writes the length of the whole text to `*text_len`, which may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_model_describe(
    model: *const sf_model,
    buffer: *mut c_char,
    len: usize,
    text_len: *mut usize,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let text = unsafe { reference("model", model) }?.model.to_string();
        // SAFETY: the contract of the interface.
        unsafe { write_whole(&text, buffer, len, text_len) }
    })
}

/// Frees the model when no session and no engine uses it any more, and sets the pointer to null. A null pointer is closed
/// already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_model_close(model: *mut *mut sf_model) -> i32 {
    // SAFETY: the contract of the interface.
    enter(|| unsafe { close_box("model", model) })
}
