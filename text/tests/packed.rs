//! Directories with packed weights: the results of the checkpoint, also while the file is replaced.

use simdformer::checkpoint::Checkpoint;
use simdformer::{Error, Limits, LoadOptions, Model, Session, WeightDtypes};
use simdformer_testing::published::french;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::packed::{self, PackOptions};
use std::fs;
use std::path::Path;

fn int8() -> PackOptions {
    PackOptions { dtypes: "int8".parse().unwrap(), ..PackOptions::default() }
}

fn mapped() -> LoadOptions<'static> {
    LoadOptions { map_packed: true, ..LoadOptions::default() }
}

fn path(place: &TemporaryFolder, name: &str) -> String {
    place.0.join(name).to_str().unwrap().to_owned()
}

/// The only file of packed weights in a directory.
fn weights(directory: &str) -> std::path::PathBuf {
    let is_packed = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "packed");
    let mut files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.find(is_packed).unwrap()
}

/// The encoder output of one source, bit by bit.
fn hidden(model: &Model) -> Vec<u32> {
    let mut session = Session::new(model, Limits::new(1, 8, 8)).unwrap();
    session.encoder_output(&[&[5, 17, 200, 3, 0]]).unwrap().iter().map(|x| x.to_bits()).collect()
}

/// A file that is replaced by another one, or deleted, does not change a model that has mapped it.
#[test]
fn a_replaced_file_does_not_change_a_mapped_model() {
    let (place, target) = (french(), TemporaryFolder::new("packed-replaced"));
    let packed = path(&target, "out");
    let written = packed::pack(&place.0, &packed, &int8()).unwrap();
    let model = Model::open_with(&packed, mapped()).unwrap();
    assert!(model.is_shared());
    assert_eq!(model.fingerprint(), written.fingerprint);
    let before = hidden(&model);
    // Another model of the same size: one layer more or less would have another table.
    let mut seed = 1u32;
    let other = Model::from_fn_with(model.config().clone(), int8().dtypes, |_, _, out| {
        out.fill_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as f32 / 1e9
        });
        Ok(())
    });
    other.unwrap().save_packed(weights(&packed)).unwrap();
    assert_eq!(hidden(&model), before);
    let changed = Model::open_with(&packed, mapped()).unwrap();
    assert_ne!(changed.fingerprint(), model.fingerprint());
    assert_ne!(hidden(&changed), before);
    #[cfg(unix)]
    {
        fs::remove_file(weights(&packed)).unwrap();
        assert_eq!(hidden(&model), before);
    }
}

#[test]
fn what_cannot_be_packed_or_opened_is_an_error() {
    let (place, target) = (french(), TemporaryFolder::new("packed-errors"));
    let packed = path(&target, "out");
    packed::pack(&place.0, &packed, &int8()).unwrap();
    let text = |error: simdformer_text::Error| error.to_string();
    let again = packed::pack(&place.0, &packed, &int8()).unwrap_err();
    assert_eq!(
        text(again),
        format!("{packed}: expected no directory or an empty one, found files")
    );
    let twice = packed::pack(&packed, path(&target, "twice"), &int8()).unwrap_err();
    assert_eq!(text(twice), format!("{packed}: expected a checkpoint, found packed weights"));
    assert!(packed::pack(path(&target, "none"), path(&target, "x"), &int8()).is_err());

    // A file that is shorter, empty, damaged or of another program.
    let file = weights(&packed);
    let good = fs::read(&file).unwrap();
    let refused = |what: &str, bytes: &[u8], verify_packed: bool| {
        fs::write(&file, bytes).unwrap();
        let options = LoadOptions { verify_packed, ..mapped() };
        match Model::open_with(&packed, options) {
            Err(error) => error,
            other => panic!("{what}: {other:?}"),
        }
    };
    for len in [1, 30, 2000, good.len() / 2, good.len() - 1] {
        let error = refused("short", &good[..len], false);
        let known = matches!(error, Error::Corrupt { .. } | Error::Unsupported { .. });
        assert!(known, "{len} bytes: {error}");
    }
    refused("empty", b"", false);
    refused("foreign", b"PK\x03\x04 and more than one line\n", false);
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 4;
    let error = refused("damaged", &bad, true);
    assert!(
        matches!(&error, Error::Corrupt { operand, .. } if operand.ends_with("the checksum of the weights")),
        "{error}"
    );
    assert!(Model::open_with(&packed, mapped()).is_ok(), "verified without the option");
    // A copy is always verified.
    assert!(Model::open(&packed).is_err());
    fs::write(&file, &good).unwrap();
    assert!(!Model::open(&packed).unwrap().is_shared());
    // Without its configuration a directory is no model.
    fs::remove_file(Path::new(&packed).join("config.json")).unwrap();
    assert!(Checkpoint::open(&packed).is_err());
}

/// Packed weights know the identity that the loaded model computes, in each dtype.
#[test]
fn fingerprints_are_stored() {
    let (place, target) = (french(), TemporaryFolder::new("packed-fingerprints"));
    for dtypes in ["stored", "bf16", "int8x16"] {
        let packed = path(&target, dtypes);
        let dtypes: WeightDtypes = dtypes.parse().unwrap();
        packed::pack(&place.0, &packed, &PackOptions { dtypes: dtypes.clone(), isas: Vec::new() })
            .unwrap();
        let loaded = Model::open_with(&place.0, dtypes).unwrap();
        let mapped = Model::open_with(&packed, mapped()).unwrap();
        assert_eq!(mapped.fingerprint(), loaded.fingerprint());
        assert_eq!(hidden(&mapped), hidden(&loaded));
    }
}
