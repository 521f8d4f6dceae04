//! Directories with packed weights: the results of the checkpoint, in the command and in the library, in several
//! processes at once, and while the file is replaced.

use crate::command::{err, out, run};
use crate::directories::Temporary;
use crate::encoders::embed;
use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::{Error, Limits, LoadOptions, Model, Session, WeightDtypes};
use simdformer_testing::published::french;
use simdformer_testing::published::{encoder, expected};
use simdformer_text::packed::{self, PackOptions};
use std::fs;
use std::path::Path;

const SENTENCES: &str =
    "Je suis étudiant\nOù est-ce qu'elle habite ?\nla vieille maison blanche est belle\n";

fn int8() -> PackOptions {
    PackOptions { dtypes: "int8".parse().unwrap(), ..PackOptions::default() }
}

fn path(place: &Temporary, name: &str) -> String {
    place.0.join(name).to_str().unwrap().to_owned()
}

fn translate(model: &str, more: &[&str]) -> (String, String) {
    let output = run(&[&["translate", "--lines", "--model", model], more].concat(), SENTENCES);
    (out(&output).to_owned(), err(&output).to_owned())
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

#[test]
fn the_command_packs_a_model_and_runs_it_in_several_processes() {
    let (place, target) = (french(), Temporary::new("packed"));
    let (model, packed) = (path(&place, ""), path(&target, "int8"));
    let sets: Vec<&str> = Isa::available().map(Isa::name).collect();
    let sets = sets.join(",");
    let pack = ["pack", "--model", &model, &packed, "--weights", "int8", "--isa", &sets];
    let output = run(&pack, "");
    assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
    let lines: Vec<&str> = out(&output).lines().collect();
    assert_eq!(lines.len(), Isa::available().count() + 1, "{lines:?}");
    assert!(
        lines[0].contains("model.scalar.packed: ") && lines[0].ends_with(" bytes"),
        "{lines:?}"
    );
    // `show` of the packed model and of the checkpoint in the same dtypes.
    let shown = run(&["show", "--model", &packed], "");
    assert_eq!(out(&shown).lines().last(), lines.last().copied(), "{}", err(&shown));
    assert!(lines.last().unwrap().starts_with("fingerprint: "));
    for name in ["config.json", "generation_config.json", "source.spm", "vocab.json"] {
        assert_eq!(
            fs::read(target.0.join("int8").join(name)).unwrap(),
            fs::read(place.0.join(name)).unwrap(),
            "{name}"
        );
    }
    assert!(!target.0.join("int8/model.safetensors").exists());
    let expected = translate(&model, &["--weights", "int8"]);
    assert!(expected.0.starts_with("i am a student\n"), "{}", expected.1);
    std::thread::scope(|scope| {
        for threads in ["1", "2"] {
            scope.spawn(|| assert_eq!(translate(&packed, &["--threads", threads]), expected));
        }
    });
    for isa in Isa::available() {
        assert_eq!(translate(&packed, &["--isa", isa.name()]), expected, "{isa}");
    }
    // The dtypes are those of the files.
    assert_eq!(translate(&packed, &["--weights", "int8"]), expected);
    let (text, error) = translate(&packed, &["--weights", "f32"]);
    assert_eq!(text, "");
    assert!(
        error.ends_with(
            ": expected weights packed in the dtypes \"f32\", found \"int8\": pack the checkpoint again\n"
        ),
        "{error}"
    );
}

/// An encoder of sentence-transformers with a folder for each module, and a classifier.
#[test]
fn heads_and_modules_are_packed_too() {
    let target = Temporary::new("packed-heads");
    let place = encoder("bert");
    let packed = Temporary(target.0.join("bert"));
    packed::pack(&place.0, &packed.0, &PackOptions::default()).unwrap();
    let rows = expected("bert");
    let texts: String =
        rows.iter().map(|row| format!("{}\n", row["text"].as_str().unwrap())).collect();
    let [of_packed, original] = [&packed, &place].map(|place| embed(place, &[], &texts));
    assert_eq!(out(&of_packed), out(&original), "{}", err(&of_packed));
    assert!(out(&original).lines().count() > 3);

    // A transformer in a folder of its own.
    let inside = place.0.join("0_Transformer");
    fs::create_dir(&inside).unwrap();
    for entry in fs::read_dir(&place.0).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && !path.ends_with("modules.json") {
            fs::rename(&path, inside.join(path.file_name().unwrap())).unwrap();
        }
    }
    let modules = fs::read_to_string(place.0.join("modules.json")).unwrap();
    place.write("modules.json", modules.replacen(r#""path": """#, r#""path": "0_Transformer""#, 1));
    let packed = Temporary(target.0.join("folder"));
    packed::pack(&place.0, &packed.0, &PackOptions::default()).unwrap();
    assert!(packed.0.join("0_Transformer/config.json").exists());
    let found = embed(&packed, &[], &texts);
    assert_eq!(out(&found), out(&original), "{}", err(&found));

    let place = encoder("bert_cross");
    let packed = Temporary(target.0.join("cross"));
    packed::pack(&place.0, &packed.0, &PackOptions::default()).unwrap();
    assert!(packed.0.join("heads.safetensors").exists());
    let [of_packed, original] = [&packed, &place].map(|place| {
        let arguments = ["rerank", "--query", "a question", "--truncate", "--model"];
        run(&[&arguments[..], &[place.0.to_str().unwrap()]].concat(), "an answer\nanother one\n")
    });
    assert_eq!(out(&of_packed), out(&original), "{}", err(&of_packed));
    assert_eq!(out(&original).lines().count(), 2, "{}", err(&original));
}

/// A file that is replaced by another one, or deleted, does not change a model that has mapped it.
#[test]
fn a_replaced_file_does_not_change_a_mapped_model() {
    let (place, target) = (french(), Temporary::new("packed-replaced"));
    let packed = path(&target, "out");
    let written = packed::pack(&place.0, &packed, &int8()).unwrap();
    let model = packed::open(&packed, LoadOptions::default()).unwrap();
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
    let changed = packed::open(&packed, LoadOptions::default()).unwrap();
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
    let (place, target) = (french(), Temporary::new("packed-errors"));
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
    let output = run(&["pack", "--model", path(&place, "").as_str(), &packed], "");
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));

    // A file that is shorter, empty, damaged or of another program.
    let file = weights(&packed);
    let good = fs::read(&file).unwrap();
    let refused = |what: &str, bytes: &[u8], verify_packed: bool| {
        fs::write(&file, bytes).unwrap();
        let options = LoadOptions { verify_packed, ..LoadOptions::default() };
        match packed::open(&packed, options) {
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
    assert!(packed::open(&packed, LoadOptions::default()).is_ok(), "verified without the option");
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
    let (place, target) = (french(), Temporary::new("packed-fingerprints"));
    for dtypes in ["stored", "bf16", "int8x16"] {
        let packed = path(&target, dtypes);
        let dtypes: WeightDtypes = dtypes.parse().unwrap();
        packed::pack(&place.0, &packed, &PackOptions { dtypes: dtypes.clone(), isas: Vec::new() })
            .unwrap();
        let loaded = Model::open_with(&place.0, dtypes).unwrap();
        let mapped = packed::open(&packed, LoadOptions::default()).unwrap();
        assert_eq!(mapped.fingerprint(), loaded.fingerprint());
        assert_eq!(hidden(&mapped), hidden(&loaded));
    }
}
