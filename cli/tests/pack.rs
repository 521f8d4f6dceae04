//! `pack`, and directories with packed weights in several processes at once.

use crate::command::{err, out, run_command};
use crate::encoders::embed;
use simdformer::kernels::Isa;
use simdformer_testing::published::{encoder, expected, french};
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::packed::{self, PackOptions};
use std::fs;

const SENTENCES: &str =
    "Je suis étudiant\nOù est-ce qu'elle habite ?\nla vieille maison blanche est belle\n";

fn path(place: &TemporaryFolder, name: &str) -> String {
    place.0.join(name).to_str().unwrap().to_owned()
}

fn translate(model: &str, more: &[&str]) -> (String, String) {
    let output =
        run_command(&[&["translate", "--lines", "--model", model], more].concat(), SENTENCES);
    (out(&output).to_owned(), err(&output).to_owned())
}

#[test]
fn the_command_packs_a_model_and_runs_it_in_several_processes() {
    let (place, target) = (french(), TemporaryFolder::new("packed"));
    let (model, packed) = (path(&place, ""), path(&target, "int8"));
    let sets: Vec<&str> = Isa::available().map(Isa::name).collect();
    let sets = sets.join(",");
    let pack = ["pack", "--model", &model, &packed, "--weights", "int8", "--isa", &sets];
    let output = run_command(&pack, "");
    assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
    let lines: Vec<&str> = out(&output).lines().collect();
    assert_eq!(lines.len(), Isa::available().count() + 1, "{lines:?}");
    assert!(
        lines[0].contains("model.scalar.packed: ") && lines[0].ends_with(" bytes"),
        "{lines:?}"
    );
    // `show` of the packed model and of the checkpoint in the same dtypes.
    let shown = run_command(&["show", "--model", &packed], "");
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
    let again = run_command(&pack, "");
    assert_eq!(again.status.code(), Some(1), "{}", err(&again));
}

/// An encoder of sentence-transformers with a folder for each module, and a classifier.
#[test]
fn heads_and_modules_are_packed_too() {
    let target = TemporaryFolder::new("packed-heads");
    let place = encoder("bert");
    let packed = TemporaryFolder(target.0.join("bert"));
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
    let packed = TemporaryFolder(target.0.join("folder"));
    packed::pack(&place.0, &packed.0, &PackOptions::default()).unwrap();
    assert!(packed.0.join("0_Transformer/config.json").exists());
    let found = embed(&packed, &[], &texts);
    assert_eq!(out(&found), out(&original), "{}", err(&found));

    let place = encoder("bert_cross");
    let packed = TemporaryFolder(target.0.join("cross"));
    packed::pack(&place.0, &packed.0, &PackOptions::default()).unwrap();
    assert!(packed.0.join("heads.safetensors").exists());
    let [of_packed, original] = [&packed, &place].map(|place| {
        let arguments = ["rerank", "--query", "a question", "--truncate", "--model"];
        run_command(
            &[&arguments[..], &[place.0.to_str().unwrap()]].concat(),
            "an answer\nanother one\n",
        )
    });
    assert_eq!(out(&of_packed), out(&original), "{}", err(&of_packed));
    assert_eq!(out(&original).lines().count(), 2, "{}", err(&original));
}
