//! Files of `torch.save` that are wrong in one way each, by name, and texts that the error must contain.

use crate::random_model::Dims;
use crate::torch_file::{Archive, Legacy, Pickler, StateDict, Tensor};
use simdformer::config::Family;

mod containers;
mod pickles;

use containers::{archives, streams};
use pickles::{calls, machine};

/// A file, and texts that its error must contain.
#[derive(Debug)]
pub(crate) struct MaliciousFile {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) words: Vec<&'static str>,
}

struct Files(Vec<MaliciousFile>);

type Words = &'static [&'static str];

/// The model of the valid files.
pub(crate) fn dims() -> Dims {
    Dims { d_model: 12, ffn: [5, 7], vocabulary: 11, ..Dims::small(Family::Marian) }
}

fn valid() -> StateDict {
    StateDict::of_safetensors(&dims().bytes(1))
}

impl Files {
    fn add(&mut self, name: String, bytes: Vec<u8>, words: Words) {
        self.0.push(MaliciousFile { name, bytes, words: words.to_vec() });
    }

    /// A pickle in place of the right one, in both formats. `body` follows the version of the protocol.
    fn pickle(&mut self, name: &str, body: impl AsRef<[u8]>, words: Words) {
        let pickle = [b"\x80\x02", body.as_ref()].concat();
        let state_dict = valid();
        let zip = state_dict.archive(pickle.clone()).bytes();
        self.add(format!("zip: {name}"), zip, words);
        let legacy = Legacy { pickle, ..state_dict.legacy_head() };
        self.add(format!("legacy: {name}"), legacy.bytes(), words);
    }

    /// A changed state dict, in both formats.
    fn state_dict(&mut self, name: &str, change: impl FnOnce(&mut StateDict), words: Words) {
        let mut state_dict = valid();
        change(&mut state_dict);
        self.add(format!("zip: {name}"), state_dict.zip(), words);
        self.add(format!("legacy: {name}"), state_dict.legacy(), words);
    }

    /// One changed tensor, in both formats.
    fn tensor(&mut self, name: &str, change: impl FnOnce(&mut Tensor), words: Words) {
        self.state_dict(name, |state_dict| change(matrix(state_dict)), words);
    }

    fn archive(&mut self, name: &str, change: impl FnOnce(&mut Archive), words: Words) {
        let state_dict = valid();
        let mut archive = state_dict.archive(state_dict.pickle(false));
        change(&mut archive);
        self.add(format!("archive: {name}"), archive.bytes(), words);
    }

    fn legacy(&mut self, name: &str, change: impl FnOnce(&mut Legacy), words: Words) {
        let mut legacy = valid().legacy_head();
        change(&mut legacy);
        self.add(format!("stream: {name}"), legacy.bytes(), words);
    }
}

/// A matrix that the model needs.
fn matrix(state_dict: &mut StateDict) -> &mut Tensor {
    let named = |tensor: &&mut Tensor| tensor.name.ends_with("fc1.weight");
    state_dict.tensors.iter_mut().find(named).expect("a matrix")
}

/// A string of a pickle.
fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn tensors(files: &mut Files) {
    files.tensor("strides beyond the storage", |t| t.strides[0] *= 2, &["ends beyond the"]);
    files.tensor("huge strides", |t| t.strides[0] = i64::MAX, &["ends beyond the"]);
    files.tensor("an offset beyond the storage", |t| t.offset = 1, &["ends beyond the"]);
    files.tensor("a huge offset", |t| t.offset = i64::MAX, &["ends beyond the"]);
    files.tensor("a negative offset", |t| t.offset = -4, &["found -4"]);
    files.tensor("a negative stride", |t| t.strides[1] = -1, &["found -1"]);
    files.tensor("a negative size", |t| t.shape[0] = -3, &["found -3"]);
    files.tensor(
        "more elements than the storage",
        |t| (t.shape[0], t.strides[0]) = (1 << 40, 0),
        &["repeats elements"],
    );
    files.tensor("an overflow", |t| t.shape = vec![1 << 40, 1 << 40], &["overflows"]);
    files.tensor(
        "an overflow behind a zero",
        |t| (t.shape, t.strides) = (vec![0, i64::MAX, 4], vec![1, 1, 1]),
        &["overflows"],
    );
    files.tensor(
        "too few strides",
        |t| {
            t.strides.pop();
        },
        &["found 1 and 2"],
    );
    files.tensor(
        "too many dimensions",
        |t| (t.shape, t.strides) = (vec![1; 40], vec![1; 40]),
        &["found 40"],
    );
    files.tensor("another shape", |t| t.shape[0] -= 1, &["expected shape"]);
    files.tensor("another name", |t| t.name.push('x'), &["the tensor of "]);
    files.tensor("no name", |t| t.name.clear(), &["the tensor of "]);
    files.state_dict(
        "the same name twice",
        |s| s.tensors[1].name = s.tensors[0].name.clone(),
        &["found it twice"],
    );
    files.state_dict("no tensors", |s| s.tensors.clear(), &[]);
    files.state_dict(
        "a layer too many",
        |s| {
            let mut more = s.tensors[0].clone();
            more.name = "model.decoder.layers.2.fc1.weight".to_owned();
            s.tensors.push(more);
        },
        &["2 decoder layers"],
    );
    files.state_dict(
        "many names of one tensor",
        |s| {
            let tensor = s.tensors[0].clone();
            let names = (0..30_000).map(|i| Tensor { name: format!("{i:x}"), ..tensor.clone() });
            s.tensors = names.collect();
        },
        &["the values take more than"],
    );
    let storage = |s: &mut StateDict| matrix(s).storage;
    files.state_dict(
        "a storage that is too short",
        |s| {
            let i = storage(s);
            s.storages[i].bytes.truncate(64);
        },
        &[],
    );
    files.state_dict(
        "a storage that is too long",
        |s| {
            let i = storage(s);
            s.storages[i].bytes.push(0);
        },
        &[],
    );
    files.state_dict(
        "another length",
        |s| {
            let i = storage(s);
            s.storages[i].len += 1;
        },
        &[],
    );
    files.state_dict(
        "a huge length",
        |s| {
            let i = storage(s);
            s.storages[i].len = i64::MAX;
        },
        &[],
    );
    files.state_dict(
        "a negative length",
        |s| {
            let i = storage(s);
            s.storages[i].len = -1;
        },
        &["found -1"],
    );
    files.state_dict(
        "a wider class",
        |s| {
            let i = storage(s);
            s.storages[i].class = "DoubleStorage";
        },
        &[],
    );
    files.state_dict(
        "a narrower class",
        |s| {
            let i = storage(s);
            s.storages[i].class = "HalfStorage";
        },
        &[],
    );
    files.state_dict(
        "another class of the same size",
        |s| {
            let i = storage(s);
            s.storages[i].class = "IntStorage";
        },
        &["found I32"],
    );
    files.state_dict(
        "an unknown class",
        |s| {
            let i = storage(s);
            s.storages[i].class = "QInt8Storage";
        },
        &["torch.QInt8Storage"],
    );
    files.state_dict(
        "bytes without a dtype",
        |s| {
            let i = storage(s);
            s.storages[i].class = "UntypedStorage";
        },
        &["expected a dtype"],
    );
    files.state_dict(
        "a weight that is none",
        |s| {
            let i = storage(s);
            s.storages[i].bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        },
        &["expected a finite number, found NaN"],
    );
    files.state_dict(
        "a double",
        |s| {
            let tensor = matrix(s);
            let (index, count) = (tensor.storage, tensor.shape.iter().product::<i64>());
            let storage = &mut s.storages[index];
            (storage.class, storage.len, storage.bytes) =
                ("DoubleStorage", count, vec![0; 8 * count as usize]);
        },
        &["found F64"],
    );
    let mut nested = Pickler::default();
    nested.raw(b"}").put().raw(b"(").text("state_dict").raw(b"}").put().text("epoch").int(3);
    files.pickle(
        "a dictionary inside",
        [&nested.bytes[2..], b"u."].concat(),
        &["\"state_dict\", found a dict; save only"],
    );
    for (name, value, words) in [
        ("a number", &b"K\x01"[..], &["expected a tensor for \"a\", found an int"][..]),
        ("a bool", b"\x88", &["found a bool"]),
        ("a float", b"G\0\0\0\0\0\0\0\0", &["found a float"]),
        ("a class", b"ctorch\nFloatStorage\n", &["found a class or a function"]),
        ("a list", b"]", &["found a list"]),
    ] {
        files.pickle(
            &format!("{name} as a tensor"),
            joined(&[b"}", &text("a"), value, b"s."]),
            words,
        );
    }
    files.pickle("a number as a name", b"}K\x01K\x02s.", &["the name of a tensor, found an int"]);
    files.pickle("a name of bytes", b"}U\x02\xff\xfeNs.", &["in UTF-8"]);
}

/// The valid files, cut at every kind of place.
fn truncated(files: &mut Files) {
    let state_dict = valid();
    for (format, bytes) in [("archive", state_dict.zip()), ("stream", state_dict.legacy())] {
        let len = bytes.len();
        let places = [3, 5, 8, 15, 16, 29, 31, 60, 100, 500, 2000, len / 4, len / 2, len - len / 8];
        let near_end = [4000, 1500, 200, 99, 77, 23, 22, 21, 5, 4, 3, 2, 1].map(|back| len - back);
        for end in places.into_iter().chain(near_end) {
            files.add(format!("{format}: {end} of {len} bytes"), bytes[..end].to_vec(), &[]);
        }
    }
}

/// All files. Their names differ.
pub(crate) fn all() -> Vec<MaliciousFile> {
    let mut files = Files(Vec::new());
    calls(&mut files);
    machine(&mut files);
    tensors(&mut files);
    archives(&mut files);
    streams(&mut files);
    truncated(&mut files);
    files.0
}
