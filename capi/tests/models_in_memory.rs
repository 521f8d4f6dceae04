//! Models from bytes and from tensors of the caller: the targets are those of the same model from its directory.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicU64, Ordering};
use safetensors::SafeTensors;
use simdformer_capi::*;
use std::ffi::CString;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fr-en");

/// The tokens of one source by an engine of `model`, which is closed.
fn translate(mut model: *mut sf_model) -> Vec<u32> {
    let ids = [6, 11, 0];
    // SAFETY: zeros are the defaults of both structs; all pointers are to values of this function.
    unsafe {
        let mut engine = null_mut();
        assert_eq!(sf_engine_new(model, null(), &raw mut engine), SF_OK);
        assert_eq!(sf_model_close(&raw mut model), SF_OK);
        let mut source: sf_source = core::mem::zeroed();
        source.struct_size = size_of::<sf_source>();
        (source.tokens, source.tokens_len) = (ids.as_ptr(), ids.len());
        let (mut results, mut result) = (null_mut(), core::mem::zeroed::<sf_result>());
        result.struct_size = size_of::<sf_result>();
        assert_eq!(
            sf_engine_generate(engine, &raw const source, 1, null(), &raw mut results),
            SF_OK
        );
        assert_eq!(sf_results_get(results, 0, &raw mut result), SF_OK);
        assert_eq!((result.error, result.hypotheses_len), (SF_OK, 1));
        let best = &*result.hypotheses;
        let tokens = core::slice::from_raw_parts(best.tokens, best.tokens_len).to_vec();
        assert_eq!(sf_results_close(&raw mut results), SF_OK);
        assert_eq!(sf_engine_close(&raw mut engine), SF_OK);
        tokens
    }
}

fn last_error() -> String {
    let mut text = [0_u8; 512];
    // SAFETY: the buffer has this length.
    let len = unsafe { sf_last_error(text.as_mut_ptr().cast(), text.len()) };
    String::from_utf8_lossy(&text[..len]).into_owned()
}

unsafe extern "C" fn count(user: *mut c_void, done: u64, total: u64) -> i32 {
    // SAFETY: the caller passes a pointer to this type.
    let calls = unsafe { &*user.cast::<AtomicU64>() };
    let called = calls.fetch_add(1, Ordering::Relaxed);
    // A load that begins with this number is ended half-way.
    (called >= 1 << 32 && done * 2 > total).into()
}

#[test]
fn bytes_and_tensors_give_the_targets_of_the_directory() {
    let read = |name: &str| std::fs::read(format!("{MODEL}/{name}")).unwrap();
    // Marian's settings of a search are in the second file.
    let (config, weights) = (read("config.json"), read("model.safetensors"));
    let directory = CString::new(MODEL).unwrap();
    let (json, json_len) = (config.as_ptr().cast::<c_char>(), config.len());
    let (calls, mut model) = (AtomicU64::new(0), null_mut());
    // SAFETY: zeros are the defaults; all pointers are to values of this function, with their lengths.
    unsafe {
        let mut load: sf_load = core::mem::zeroed();
        load.struct_size = size_of::<sf_load>();
        load.isa = SF_ISA_SCALAR;
        load.on_progress = Some(count);
        load.user = (&raw const calls).cast_mut().cast();
        assert_eq!(sf_model_open(directory.as_ptr(), &raw const load, &raw mut model), SF_OK);
        assert!(calls.load(Ordering::Relaxed) > 10);
        let mut dims: sf_dims = core::mem::zeroed();
        dims.struct_size = size_of::<sf_dims>();
        assert_eq!(sf_model_dims(model, &raw mut dims), SF_OK);
        assert_eq!(CStr::from_ptr(sf_isa_name(dims.isa)), c"scalar");
        let expected = translate(model);
        assert!(expected.len() > 1);

        let bytes = weights.as_ptr().cast();
        let code =
            sf_model_from_memory(json, json_len, bytes, weights.len(), null(), &raw mut model);
        assert_eq!(code, SF_OK, "{}", last_error());
        assert_eq!(translate(model), expected);

        let tensors = SafeTensors::deserialize(&weights).unwrap();
        let names: Vec<CString> =
            tensors.names().into_iter().map(|name| CString::new(name).unwrap()).collect();
        let views: Vec<_> =
            names.iter().map(|name| tensors.tensor(name.to_str().unwrap()).unwrap()).collect();
        let list: Vec<sf_tensor> = names
            .iter()
            .zip(&views)
            .map(|(name, view)| sf_tensor {
                struct_size: size_of::<sf_tensor>(),
                name: name.as_ptr(),
                dtype: c"f32".as_ptr(),
                shape: view.shape().as_ptr(),
                dimensions: view.shape().len(),
                data: view.data().as_ptr().cast(),
                bytes: view.data().len(),
            })
            .collect();
        let open = |list: &[sf_tensor], load, model: &mut *mut sf_model| {
            sf_model_from_tensors(json, json_len, list.as_ptr(), list.len(), load, model)
        };
        assert_eq!(open(&list, null(), &mut model), SF_OK, "{}", last_error());
        assert_eq!(translate(model), expected);

        // One is missing; then the callback ends the call.
        assert_eq!(open(&list[1..], null(), &mut model), SF_ERROR_CORRUPT);
        assert!(model.is_null() && last_error().contains("expected"), "{}", last_error());
        calls.store(1 << 32, Ordering::Relaxed);
        assert_eq!(open(&list, &raw const load, &mut model), SF_ERROR_CANCELLED);
        assert!(model.is_null());
    }
}
