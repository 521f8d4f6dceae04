//! Writes the files of `torch.save`: the zip format and the legacy stream. Every part can be replaced, so that a file can be
//! wrong in any way. `tests/golden/torch_files.py` compares the files with those of PyTorch.

use std::collections::HashMap;
use std::sync::OnceLock;

/// A tensor of a state dict: a view of a storage.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    /// Index of the storage.
    pub storage: usize,
    pub offset: i64,
    pub shape: Vec<i64>,
    pub strides: Vec<i64>,
    /// Wrapped by `torch.nn.Parameter`.
    pub parameter: bool,
}

/// A storage.
#[derive(Clone, Debug)]
pub struct Storage {
    /// `FloatStorage` and so on.
    pub class: &'static str,
    pub key: String,
    /// Elements as the pickle states them.
    pub len: i64,
    pub bytes: Vec<u8>,
}

/// A state dict that is written.
#[derive(Clone, Debug, Default)]
pub struct StateDict {
    pub storages: Vec<Storage>,
    pub tensors: Vec<Tensor>,
}

/// Class of the storages and bytes of an element.
pub fn class(dtype: &str) -> (&'static str, usize) {
    match dtype {
        "F32" => ("FloatStorage", 4),
        "F16" => ("HalfStorage", 2),
        "BF16" => ("BFloat16Storage", 2),
        "F64" => ("DoubleStorage", 8),
        "I64" => ("LongStorage", 8),
        "I32" => ("IntStorage", 4),
        "U8" => ("ByteStorage", 1),
        "BOOL" => ("BoolStorage", 1),
        other => panic!("no storage of {other}"),
    }
}

/// The strides of side-by-side elements.
pub fn contiguous(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1);
    }
    strides
}

impl StateDict {
    /// A storage of its own. Returns its index.
    pub fn storage(&mut self, dtype: &str, bytes: Vec<u8>) -> usize {
        let (class, size) = class(dtype);
        let (key, len) = (self.storages.len().to_string(), (bytes.len() / size) as i64);
        self.storages.push(Storage { class, key, len, bytes });
        self.storages.len() - 1
    }

    /// A tensor that is a whole storage.
    pub fn whole(&mut self, name: &str, dtype: &str, shape: &[usize], bytes: Vec<u8>) {
        let storage = self.storage(dtype, bytes);
        let shape: Vec<i64> = shape.iter().map(|&len| len as i64).collect();
        let (strides, name) = (contiguous(&shape), name.to_owned());
        self.tensors.push(Tensor { name, storage, offset: 0, shape, strides, parameter: false });
    }

    /// The tensors of a safetensors file, each in a storage of its own.
    pub fn of_safetensors(bytes: &[u8]) -> Self {
        let file = safetensors::SafeTensors::deserialize(bytes).expect("a safetensors file");
        let mut state_dict = Self::default();
        for (name, tensor) in file.tensors() {
            let dtype = tensor.dtype().to_string();
            state_dict.whole(&name, &dtype, tensor.shape(), tensor.data().to_vec());
        }
        state_dict
    }

    /// The pickle of the dictionary.
    pub fn pickle(&self, legacy: bool) -> Vec<u8> {
        let mut p = Pickler::default();
        p.global("collections", "OrderedDict");
        p.raw(b")R").put().raw(b"(");
        for tensor in &self.tensors {
            let storage = &self.storages[tensor.storage];
            p.text(&tensor.name);
            if tensor.parameter {
                p.global("torch._utils", "_rebuild_parameter").raw(b"(");
            }
            p.global("torch._utils", "_rebuild_tensor_v2").raw(b"((");
            p.text("storage").global("torch", storage.class).text(&storage.key);
            p.text("cpu").int(storage.len);
            if legacy {
                p.raw(b"N");
            }
            p.raw(b"t").put().raw(b"Q").int(tensor.offset);
            p.sizes(&tensor.shape).sizes(&tensor.strides).raw(b"\x89");
            p.global("collections", "OrderedDict").raw(b")R").put().raw(b"t").put();
            p.raw(b"R").put();
            if tensor.parameter {
                p.raw(b"\x88").global("collections", "OrderedDict").raw(b")R").put();
                p.raw(b"t").put().raw(b"R").put();
            }
        }
        p.raw(b"u}").put().text("_metadata");
        p.global("collections", "OrderedDict").raw(b")R").put().raw(b"(");
        p.text("").raw(b"}").put().text("version").int(1).raw(b"susb.");
        p.bytes
    }

    /// The entries of a zip archive with this pickle.
    pub fn archive(&self, pickle: Vec<u8>) -> Archive {
        let mut entries = vec![
            Entry::new("archive/data.pkl", pickle),
            Entry::new("archive/byteorder", b"little".to_vec()),
        ];
        for storage in &self.storages {
            let name = format!("archive/data/{}", storage.key);
            entries.push(Entry::new(&name, storage.bytes.clone()));
        }
        entries.push(Entry::new("archive/version", b"3\n".to_vec()));
        Archive { entries, ..Archive::default() }
    }

    pub fn zip(&self) -> Vec<u8> {
        self.archive(self.pickle(false)).bytes()
    }

    /// The parts of a legacy file before the storages.
    pub fn legacy_head(&self) -> Legacy {
        let mut system = Pickler::default();
        system.raw(b"}").put().raw(b"(").text("protocol_version").int(1001);
        system.text("little_endian").raw(b"\x88").text("type_sizes").raw(b"}").put().raw(b"(");
        system.text("short").int(2).text("int").int(4).text("long").int(4).raw(b"uu.");
        let mut keys: Vec<&str> = self.storages.iter().map(|storage| &*storage.key).collect();
        keys.sort_unstable();
        let mut list = Pickler::default();
        list.raw(b"]").put().raw(b"(");
        for key in &keys {
            list.text(key);
        }
        list.raw(b"e.");
        Legacy {
            magic: b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.".to_vec(),
            version: b"\x80\x02M\xe9\x03.".to_vec(),
            system: system.bytes,
            pickle: self.pickle(true),
            keys: list.bytes,
            storages: keys
                .iter()
                .map(|key| {
                    let of = |storage: &&Storage| storage.key == *key;
                    let storage = self.storages.iter().find(of).expect("there");
                    (storage.len, storage.bytes.clone())
                })
                .collect(),
        }
    }

    pub fn legacy(&self) -> Vec<u8> {
        self.legacy_head().bytes()
    }
}

/// The parts of a legacy file.
#[derive(Clone, Debug)]
pub struct Legacy {
    pub magic: Vec<u8>,
    pub version: Vec<u8>,
    pub system: Vec<u8>,
    pub pickle: Vec<u8>,
    pub keys: Vec<u8>,
    pub storages: Vec<(i64, Vec<u8>)>,
}

impl Legacy {
    pub fn bytes(&self) -> Vec<u8> {
        let pickles = [&self.magic, &self.version, &self.system, &self.pickle, &self.keys];
        let mut bytes: Vec<u8> = pickles.into_iter().flatten().copied().collect();
        for (len, storage) in &self.storages {
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(storage);
        }
        bytes
    }
}

/// Writes the instructions of a pickle.
#[derive(Clone, Debug)]
pub struct Pickler {
    pub bytes: Vec<u8>,
    memo: u32,
    globals: HashMap<(String, String), u32>,
}

impl Default for Pickler {
    fn default() -> Self {
        Self { bytes: b"\x80\x02".to_vec(), memo: 0, globals: HashMap::new() }
    }
}

impl Pickler {
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub fn put(&mut self) -> &mut Self {
        match u8::try_from(self.memo) {
            Ok(index) => self.bytes.extend([b'q', index]),
            Err(_) => {
                self.bytes.push(b'r');
                self.bytes.extend(self.memo.to_le_bytes());
            }
        }
        self.memo += 1;
        self
    }

    pub fn text(&mut self, text: &str) -> &mut Self {
        self.bytes.push(b'X');
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
        self.put()
    }

    pub fn global(&mut self, module: &str, name: &str) -> &mut Self {
        let key = (module.to_owned(), name.to_owned());
        if let Some(&index) = self.globals.get(&key) {
            match u8::try_from(index) {
                Ok(index) => self.bytes.extend([b'h', index]),
                Err(_) => {
                    self.bytes.push(b'j');
                    self.bytes.extend(index.to_le_bytes());
                }
            }
            return self;
        }
        self.globals.insert(key, self.memo);
        self.raw(format!("c{module}\n{name}\n").as_bytes()).put()
    }

    pub fn int(&mut self, number: i64) -> &mut Self {
        if let Ok(small) = u8::try_from(number) {
            self.bytes.extend([b'K', small]);
        } else if let Ok(short) = u16::try_from(number) {
            self.bytes.push(b'M');
            self.bytes.extend(short.to_le_bytes());
        } else if let Ok(word) = i32::try_from(number) {
            self.bytes.push(b'J');
            self.bytes.extend(word.to_le_bytes());
        } else {
            self.bytes.extend(b"\x8a\x08");
            self.bytes.extend(number.to_le_bytes());
        }
        self
    }

    pub fn sizes(&mut self, sizes: &[i64]) -> &mut Self {
        if sizes.len() > 3 {
            self.raw(b"(");
        }
        for &size in sizes {
            self.int(size);
        }
        match sizes.len() {
            0 => return self.raw(b")"),
            1 => self.raw(b"\x85"),
            2 => self.raw(b"\x86"),
            3 => self.raw(b"\x87"),
            _ => self.raw(b"t"),
        };
        self.put()
    }
}

/// An entry of a zip archive. `None` is what is right.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: Vec<u8>,
    pub bytes: Vec<u8>,
    pub method: u16,
    pub flags: u16,
    pub crc: Option<u32>,
    /// Compressed and uncompressed, in the directory.
    pub sizes: [Option<u32>; 2],
    /// Where the directory says that the entry begins.
    pub begin: Option<u32>,
    /// In the directory.
    pub extra: Vec<u8>,
}

impl Entry {
    pub fn new(name: &str, bytes: Vec<u8>) -> Self {
        let name = name.as_bytes().to_vec();
        // Names are UTF-8, and sizes follow the entry, as PyTorch writes it.
        let flags = 0x0808;
        Self {
            name,
            bytes,
            method: 0,
            flags,
            crc: None,
            sizes: [None; 2],
            begin: None,
            extra: Vec::new(),
        }
    }
}

/// A zip archive. `None` is what is right.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    pub entries: Vec<Entry>,
    pub prefix: Vec<u8>,
    /// Entries that the end of the directory states.
    pub count: Option<u16>,
    /// Where it states that the directory begins.
    pub directory: Option<u32>,
    /// Its length.
    pub directory_len: Option<u32>,
    /// What the 64-bit end of the directory states: entries, length and begin of the directory.
    pub end64: Option<[u64; 3]>,
    pub comment: Vec<u8>,
}

/// CRC-32 of zip archives.
pub fn crc32(bytes: &[u8]) -> u32 {
    static TABLE: OnceLock<Vec<u32>> = OnceLock::new();
    let shifted = |c: u32| if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 };
    let table = TABLE.get_or_init(|| (0..256).map(|i| (0..8).fold(i, |c, _| shifted(c))).collect());
    let step = |crc: u32, &byte: &u8| table[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    !bytes.iter().fold(!0, step)
}

impl Archive {
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = self.prefix.clone();
        let mut directory = Vec::new();
        for entry in &self.entries {
            let begin = file.len() as u32;
            let crc = entry.crc.unwrap_or_else(|| crc32(&entry.bytes));
            let size = entry.bytes.len() as u32;
            let name = entry.name.len() as u16;
            file.extend(b"PK\x03\x04\0\0");
            file.extend(entry.flags.to_le_bytes());
            file.extend(entry.method.to_le_bytes());
            // Time, and checksum and sizes, which follow the entry.
            file.extend([0; 4 + 12]);
            file.extend(name.to_le_bytes());
            // Entries begin at multiples of 64 bytes, by an extra field.
            let padding = 64 - (file.len() + 2 + entry.name.len() + 4) % 64;
            file.extend((padding as u16 + 4).to_le_bytes());
            file.extend(&entry.name);
            file.extend(b"FB");
            file.extend((padding as u16).to_le_bytes());
            file.resize(file.len() + padding, b'Z');
            file.extend(&entry.bytes);
            file.extend(b"PK\x07\x08");
            [crc, size, size].iter().for_each(|word| file.extend(word.to_le_bytes()));
            directory.extend(b"PK\x01\x02\0\0\0\0");
            directory.extend(entry.flags.to_le_bytes());
            directory.extend(entry.method.to_le_bytes());
            directory.extend([0; 4]);
            directory.extend(crc.to_le_bytes());
            let [compressed, whole] = entry.sizes;
            directory.extend(compressed.unwrap_or(size).to_le_bytes());
            directory.extend(whole.unwrap_or(size).to_le_bytes());
            directory.extend(name.to_le_bytes());
            directory.extend((entry.extra.len() as u16).to_le_bytes());
            directory.extend([0; 2 + 2 + 2 + 4]);
            directory.extend(entry.begin.unwrap_or(begin).to_le_bytes());
            directory.extend(&entry.name);
            directory.extend(&entry.extra);
        }
        let begin = file.len() as u64;
        let (count, len) = (self.entries.len() as u64, directory.len() as u64);
        file.extend(&directory);
        // PyTorch writes the 64-bit record always. Readers use it if a field below is full.
        let end = file.len() as u64;
        let [count64, len64, begin64] = self.end64.unwrap_or([count, len, begin]);
        file.extend(b"PK\x06\x06");
        file.extend(44u64.to_le_bytes());
        file.extend([0x1e, 3, 0x2d, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        [count64, count64, len64, begin64].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(b"PK\x06\x07\0\0\0\0");
        file.extend(end.to_le_bytes());
        file.extend(1u32.to_le_bytes());
        file.extend(b"PK\x05\x06\0\0\0\0");
        let count = self.count.unwrap_or(count as u16);
        [count, count].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(self.directory_len.unwrap_or(len as u32).to_le_bytes());
        file.extend(self.directory.unwrap_or(begin as u32).to_le_bytes());
        file.extend((self.comment.len() as u16).to_le_bytes());
        file.extend(&self.comment);
        file
    }
}
