//! Files of packed weights: a save replaces a file as a whole, whatever else happens in the directory. A
//! file that is damaged, forged or of another format is an error.

use crate::random_model::{Dims, Random};
use crate::tiny_marian::Folder;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::{Error, Limits, LoadOptions, Model, Quantization, Session, WeightDtypes};
use std::fs;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64 as checksum;

/// The names in a folder, sorted.
fn names(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(&folder.0).expect("the folder");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("an entry").file_name().into_string().expect("a name")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

/// A small model. The instruction set is that of the environment variable, if it is set.
fn model(seed: u64, forms: &str) -> Model {
    let isa = Isa::from_environment().expect("a set").unwrap_or(Isa::best());
    let checkpoint = dims().checkpoint(seed);
    let options = LoadOptions { dtypes: forms.parse().expect(forms), ..isa.into() };
    Model::load(&checkpoint, options).expect("a model")
}

fn dims() -> Dims {
    Dims::small(Family::Marian)
}

/// The number at the beginning of a text.
fn bytes(text: &str) -> u64 {
    text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

fn open(path: &Path) -> Result<Model, Error> {
    Model::open_packed(dims().config(), path)
}

fn refusal(path: &Path) -> String {
    match open(path) {
        Err(error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// The length of the text before the weights.
const FIRST_LINE: usize = "simdformer packed 5 00000000 0123456789abcdef\n".len();

/// The offset of the weights in a valid file.
fn begin(file: &[u8]) -> usize {
    let length = std::str::from_utf8(&file[20..28]).expect("digits");
    FIRST_LINE + length.parse::<usize>().expect("digits")
}

/// The checksum of the format is XXH3 with 64 bits and seed 0.
#[test]
fn the_checksum_has_the_values_of_its_specification() {
    assert_eq!(checksum(b""), 0x2d06_8005_38d3_94c2);
}

/// The same file with checksums that match its contents.
fn forge(file: &mut [u8]) {
    let begin = begin(file);
    let weights = format!("{:016x}", checksum(&file[begin..]));
    let at = FIRST_LINE + "checksum ".len();
    file[at..at + 16].copy_from_slice(weights.as_bytes());
    let header = format!("{:016x}", checksum(&file[FIRST_LINE..begin]));
    file[FIRST_LINE - 17..FIRST_LINE - 1].copy_from_slice(header.as_bytes());
}

/// Two threads save two models to one path, as two processes would, while another thread reads. Each save
/// succeeds, and the file is always one of the two.
#[test]
fn saves_to_one_path_do_not_disturb_each_other() {
    let folder = Folder::new("together");
    let file = folder.0.join("packed");
    let models = [model(1, "int8"), model(2, "int8")];
    let bytes = models.each_ref().map(|model| {
        model.save_packed(&file).expect("saved");
        fs::read(&file).expect("read")
    });
    assert_ne!(bytes[0], bytes[1]);
    std::thread::scope(|scope| {
        for model in &models {
            for _ in 0..2 {
                scope.spawn(|| (0..15).for_each(|_| model.save_packed(&file).expect("saved")));
            }
        }
        scope.spawn(|| {
            for _ in 0..60 {
                assert!(bytes.contains(&fs::read(&file).expect("read")), "neither model");
                std::thread::yield_now();
            }
        });
    });
    assert_eq!(names(&folder), ["packed"]);
    open(&file).expect("a model");
}

/// A save uses a temporary name of its own, and leaves files with similar names alone.
#[test]
fn a_save_changes_no_other_file() {
    let folder = Folder::new("others");
    let (file, other) = (folder.0.join("packed"), folder.0.join("packed.part"));
    let victim = folder.0.join("victim");
    fs::write(&victim, "dear").expect("written");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&victim, &other).expect("a link");
    #[cfg(not(unix))]
    fs::write(&other, "dear").expect("written");
    model(1, "int8").save_packed(&file).expect("saved");
    assert!(fs::read(&victim).expect("read") == b"dear", "the link was followed");
    assert!(fs::read(&other).expect("read") == b"dear", "the file was written over");
    // A save that fails removes what it wrote, and nothing else.
    let taken = folder.0.join("taken");
    fs::create_dir(&taken).expect("a folder");
    fs::write(taken.join("inside"), "dear").expect("written");
    fs::write(folder.0.join("taken.part"), "dear").expect("written");
    model(1, "int8").save_packed(&taken).expect_err("a folder is there");
    assert_eq!(names(&folder), ["packed", "packed.part", "taken", "taken.part", "victim"]);
}

/// Another model, a file that is too short or too long, another instruction set, no file.
#[test]
fn files_of_other_models_are_errors() {
    let folder = Folder::new("wrong");
    let file = folder.0.join("packed");
    let model = model(8, "int8");
    model.save_packed(&file).expect("saved");
    let good = fs::read(&file).expect("read");
    let refused = |dims: Dims| match Model::open_packed(dims.config(), &file) {
        Err(error) => error,
        other => panic!("{other:?}"),
    };
    // The error shows the first line that differs.
    let error = refused(Dims { layers: [2, 1], ..dims() });
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
    assert!(error.to_string().contains("decoder.layers.1"), "{error}");
    let mut length = 0;
    while length < good.len() {
        fs::write(&file, &good[..length]).expect("written");
        let error = refused(dims());
        let known = matches!(error, Error::Corrupt { .. } | Error::Unsupported { .. });
        assert!(known, "{length} bytes: {error}");
        length += 1 + length / 3;
    }
    fs::write(&file, [&good[..], b"x"].concat()).expect("written");
    let error = refused(dims());
    assert!(
        matches!(error, Error::Corrupt { expected, found, .. } if bytes(&found) == bytes(&expected) + 1)
    );
    let text = format!("isa {}", model.isa());
    let at = good.windows(text.len()).position(|part| part == text.as_bytes()).expect("a line");
    let mut bad = good.clone();
    bad[at + 4] = b'?';
    fs::write(&file, &bad).expect("written");
    assert!(
        matches!(&refused(dims()), Error::Corrupt { operand, .. } if operand.ends_with("the checksum of the header"))
    );
    forge(&mut bad);
    fs::write(&file, &bad).expect("written");
    assert!(matches!(refused(dims()), Error::Conflict { .. }));
    for path in [std::env::temp_dir(), PathBuf::from("no such file")] {
        let error = open(&path).expect_err("refused");
        assert!(matches!(error, Error::Io { .. }), "{error}");
    }
    // A save that fails leaves no file.
    let error = model.save_packed(folder.0.join("none/packed")).expect_err("refused");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert_eq!(names(&folder), ["packed"]);
}

/// A changed bit anywhere, exchanged blocks, and an end that is missing or zero.
#[test]
fn damage_is_found() {
    let folder = Folder::new("damage");
    let file = folder.0.join("packed");
    model(1, "stored").save_packed(&file).expect("saved");
    let good = fs::read(&file).expect("read");
    let begin = begin(&good);
    let mut random = Random(5);
    let refused = |what: &str, bytes: &[u8]| {
        fs::write(&file, bytes).expect("written");
        assert!(open(&file).is_err(), "{what} was taken");
    };
    let mut bits: Vec<usize> = (0..8 * FIRST_LINE).step_by(7).collect();
    bits.extend((0..40).map(|_| 8 * FIRST_LINE + random.below(8 * (begin - FIRST_LINE))));
    bits.extend((0..80).map(|_| 8 * begin + random.below(8 * (good.len() - begin))));
    for bit in bits {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        refused(&format!("bit {bit}"), &bad);
    }
    for size in [4, 8, 64, 512, 4096] {
        let blocks = (good.len() - begin) / size;
        for _ in 0..8 {
            let places = [random.below(blocks), random.below(blocks)];
            let [a, b] = places.map(|block| begin + block * size..begin + (block + 1) * size);
            if good[a.clone()] != good[b.clone()] {
                let mut bad = good.clone();
                bad[a.clone()].copy_from_slice(&good[b.clone()]);
                bad[b].copy_from_slice(&good[a]);
                refused(&format!("blocks of {size} at {places:?}"), &bad);
            }
        }
    }
    for _ in 0..20 {
        let length = random.below(good.len());
        refused(&format!("{length} bytes"), &good[..length]);
        // As some file systems leave a file after a power failure.
        let mut bad = good.clone();
        let kept = length.max(begin).min(good.len() - 4096);
        bad[kept..].fill(0);
        refused(&format!("zeros from byte {kept} on"), &bad);
    }
    let mut bad = good.clone();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    fs::write(&file, &bad).expect("written");
    let expected = format!(
        "{}: the checksum of the weights: expected {:016x}, found {:016x}: the file is damaged",
        file.display(),
        checksum(&good[begin..]),
        checksum(&bad[begin..])
    );
    assert_eq!(refusal(&file), expected);
    fs::write(&file, &good).expect("written");
    open(&file).expect("a model");
}

/// A file of the format before checksums, and one of a later format.
#[test]
fn other_formats_are_errors() {
    let folder = Folder::new("formats");
    let file = folder.0.join("packed");
    for (begins, found) in [
        ("simdformer packed 1 00001234\nisa avx2\nforms stored\n", "1"),
        ("simdformer packed 2 00001234 0123456789abcdef\nchecksum", "2"),
        ("simdformer packed 3 00001234 0123456789abcdef\nchecksum", "3"),
        ("simdformer packed 4 00001234 0123456789abcdef\nchecksum", "4"),
        ("simdformer packed 6 something else", "6"),
        ("simdformer packed 12345678901234567890 ", "12345678901234567890"),
    ] {
        fs::write(&file, begins).expect("written");
        let expected = format!(
            "{}: expected packed weights of format 5, found format {found}: save it again from the checkpoint",
            file.display()
        );
        assert_eq!(refusal(&file), expected);
    }
}

/// The beginning of a file is escaped once.
#[test]
fn a_file_of_another_program_is_quoted_once() {
    let folder = Folder::new("foreign");
    let file = folder.0.join("packed");
    for (begins, shown) in [
        (&b"\x7fELF\x02\x01\x01\0\0"[..], r#""\u{7f}ELF\u{2}\u{1}\u{1}\0\0""#),
        (b"{\"a\": 1,\n\t\"b\\c\": \xff}", r#""{\"a\": 1,\n\t\"b\\c\": �}""#),
        ("naïve \u{202e}name".as_bytes(), r#""naïve \u{202e}name""#),
        (b"", r#""""#),
        (b"simdformer packed", r#""simdformer packed""#),
    ] {
        fs::write(&file, begins).expect("written");
        let expected = format!(
            "{}: expected a file that begins as \"simdformer packed 5 \", found {shown}",
            file.display()
        );
        assert_eq!(refusal(&file), expected);
    }
}

/// Anyone can write a file with matching checksums. Values that a checkpoint may not have are errors in
/// every dtype.
#[test]
fn weights_that_are_not_finite_are_errors() {
    let folder = Folder::new("finite");
    let file = folder.0.join("packed");
    let (nan, infinite) = (f32::NAN.to_bits(), f32::INFINITY.to_bits());
    for (forms, words) in [
        ("f32", [nan, infinite, 0xff80_0000]),
        ("f16", [0x0000_7c00, 0xfc00_0000, 0x7e01_0000]),
        ("bf16", [0x0000_7f80, 0xff80_0000, 0x7fc0_0000]),
    ] {
        model(1, forms).save_packed(&file).expect("saved");
        let good = fs::read(&file).expect("read");
        let mut same = good.clone();
        forge(&mut same);
        assert!(same == good, "the checksum of the format has another definition here");
        // The matrix of the first layer, which has the requested dtype.
        let table = std::str::from_utf8(&good[FIRST_LINE..begin(&good)]).expect("text");
        let mut offset = 0;
        let matrix = "encoder.layers.0.self_attention.output.weight ";
        for line in table.lines().skip_while(|line| !line.contains('[')) {
            if line.starts_with(matrix) {
                break;
            }
            offset +=
                line.trim().rsplit(' ').next().expect("bytes").parse::<usize>().expect("bytes");
        }
        for (index, word) in words.into_iter().enumerate() {
            let mut bad = good.clone();
            let at = begin(&good) + offset + 4 * 17 * index;
            bad[at..at + 4].copy_from_slice(&word.to_le_bytes());
            forge(&mut bad);
            fs::write(&file, &bad).expect("written");
            let said = refusal(&file);
            let expected = format!(
                "{}: a weight of {}: expected a finite number, found ",
                file.display(),
                matrix.trim()
            );
            assert!(said.starts_with(&expected), "{forms} {word:x}: {said}");
        }
        // Tables that are looked up are f32 with every dtype table.
        let mut bad = good.clone();
        let at = begin(&good) + 4 * 100;
        bad[at..at + 4].copy_from_slice(&nan.to_le_bytes());
        forge(&mut bad);
        fs::write(&file, &bad).expect("written");
        let expected = format!(
            "{}: a weight of encoder.embedding.weight: expected a finite number, found NaN",
            file.display()
        );
        assert_eq!(refusal(&file), expected);
    }
}

/// In int8, the scales. An output bias may be minus infinity, which bans a token.
#[test]
fn scales_and_banned_tokens() {
    let folder = Folder::new("scales");
    let file = folder.0.join("packed");
    let isa = Isa::from_environment().expect("a set").unwrap_or(Isa::best());
    let options = LoadOptions { dtypes: WeightDtypes::all(Quantization::W8A8), ..isa.into() };
    let banning = Model::from_fn_with(dims().config(), options, |role, _, out| {
        out.fill(0.5);
        if role == simdformer::checkpoint::TensorId::OutputBias {
            out[7] = f32::NEG_INFINITY;
        }
        Ok(())
    });
    banning.expect("a model").save_packed(&file).expect("saved");
    let good = fs::read(&file).expect("read");
    open(&file).expect("a token may be banned");
    // Another scale for all columns of a matrix: 0.5 / 127.
    let begin = begin(&good);
    let scale = (0.5f32 / 127.0).to_le_bytes();
    let at: Vec<usize> =
        (begin..good.len()).step_by(4).filter(|&at| good[at..at + 4] == scale).collect();
    assert!(at.len() > 100, "{} scales", at.len());
    for (index, found) in [(0, f32::NAN), (at.len() / 2, f32::INFINITY)] {
        let mut bad = good.clone();
        bad[at[index]..at[index] + 4].copy_from_slice(&found.to_le_bytes());
        forge(&mut bad);
        fs::write(&file, &bad).expect("written");
        let said = refusal(&file);
        assert!(said.contains(".weight: expected a finite number, found "), "{said}");
    }
    // Other int8 values are other weights, which change only the results.
    let first = at[0] - begin;
    let mut strange = good.clone();
    strange[begin + first - 1024..begin + first].fill(0xff);
    forge(&mut strange);
    fs::write(&file, &strange).expect("written");
    let strange = open(&file).expect("other weights");
    let mut session = Session::new(&strange, Limits::new(1, 3, 2)).expect("a session");
    let memory = session.encoder_output(&[&[1, 2, 3]]).expect("a memory");
    assert!(memory.iter().all(|x| x.is_finite()));
}
