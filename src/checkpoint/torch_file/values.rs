//! The values of a pickle, in tables of limited size, and the classes and functions that it may name. All others are refused.
//!
//! A value is a number or an index of a table, so a value that contains itself is harmless, and nothing here follows
//! values recursively.

use core::ops::Range;

/// Bytes that the tables of a small file may take. A tensor of a real state dict takes about 600.
const SMALL: u64 = 2 << 20;

/// The same for files of any size: 100,000 tensors.
const LARGE: u64 = 64 << 20;

/// What a tensor takes after the pickle has been read, in addition to its name and its shape.
const ENTRY: usize = 256;

/// What a storage takes, with the place of its bytes.
const STORAGE: usize = 128;

/// A range of a table, or of the bytes of the pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    pub(super) fn new(range: Range<usize>) -> Option<Self> {
        let (start, len) = (u32::try_from(range.start).ok()?, u32::try_from(range.len()).ok()?);
        Some(Self { start, len })
    }

    pub(super) fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }
}

/// A value of a pickle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits, by its bytes.
    LongInt(Span),
    Float,
    Text(Span),
    Tuple(Span),
    List(u32),
    Dict(u32),
    Global(Global),
    Storage(u32),
    Tensor(u32),
}

impl Value {
    /// The name of the type in Python.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a bool",
            Self::Int(_) | Self::LongInt(_) => "an int",
            Self::Float => "a float",
            Self::Text(_) => "a str",
            Self::Tuple(_) => "a tuple",
            Self::List(_) => "a list",
            Self::Dict(_) => "a dict",
            Self::Global(_) => "a class or a function",
            Self::Storage(_) => "a storage",
            Self::Tensor(_) => "a tensor",
        }
    }

    /// A size, a stride or an offset.
    pub(super) fn size(self) -> Option<usize> {
        match self {
            Self::Int(size) => usize::try_from(size).ok(),
            _ => None,
        }
    }
}

/// A storage: the numbers of one or several tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TorchStorage {
    /// `None` for a storage of bytes whose tensors have their own dtypes.
    pub(super) of: Option<StorageType>,
    pub(super) key: Span,
    /// Elements of the whole storage.
    pub(super) len: u64,
    /// The elements that the tensor may use.
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// A tensor: a view of a storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tensor {
    pub(super) storage: u32,
    pub(super) of: StorageType,
    /// Elements of the storage before the first of the tensor.
    pub(super) offset: u64,
    /// Sizes and strides, in the table of tuples.
    pub(super) shape: Span,
    pub(super) strides: Span,
}

/// The tables.
#[derive(Debug)]
pub(super) struct Values {
    tuples: Vec<Value>,
    lists: Vec<Vec<Value>>,
    dicts: Vec<Vec<(Value, Value)>>,
    storages: Vec<TorchStorage>,
    tensors: Vec<Tensor>,
    limit: usize,
    used: usize,
}

impl Values {
    /// Empty tables for a file with `data` bytes in addition to its pickle.
    pub(super) fn new(data: u64) -> Self {
        let limit = (SMALL + data / 4).min(LARGE) as usize;
        Self {
            tuples: Vec::new(),
            lists: Vec::new(),
            dicts: Vec::new(),
            storages: Vec::new(),
            tensors: Vec::new(),
            limit,
            used: 0,
        }
    }

    /// Counts `count` elements of type `T`.
    pub(super) fn charge<T>(&mut self, count: usize) -> Result<(), String> {
        self.used = self.used.saturating_add(count.saturating_mul(size_of::<T>()));
        if self.used > self.limit {
            let limit = self.limit;
            return Err(format!(
                "the values take more than {limit} bytes, which those of no real file of this size do"
            ));
        }
        Ok(())
    }

    /// Counts the entries of `count` tensors.
    pub(super) fn charge_entries(&mut self, count: usize) -> Result<(), String> {
        self.charge::<[u8; ENTRY]>(count)
    }

    pub(super) fn tuple(&mut self, items: &[Value]) -> Result<Value, String> {
        self.charge::<Value>(items.len())?;
        let start = self.tuples.len();
        self.tuples.extend_from_slice(items);
        let span = Span::new(start..self.tuples.len());
        span.map(Value::Tuple).ok_or_else(|| "too many tuples".to_owned())
    }

    pub(super) fn items(&self, tuple: Span) -> &[Value] {
        self.tuples.get(tuple.range()).unwrap_or(&[])
    }

    /// The sizes of a tuple of integers that are not negative.
    pub(super) fn sizes(&self, tuple: Span) -> Vec<usize> {
        self.items(tuple).iter().filter_map(|item| item.size()).collect()
    }

    pub(super) fn new_list(&mut self) -> Result<Value, String> {
        self.charge::<Vec<Value>>(1)?;
        self.lists.push(Vec::new());
        Ok(Value::List(self.lists.len() as u32 - 1))
    }

    pub(super) fn list(&self, list: u32) -> &[Value] {
        self.lists.get(list as usize).map_or(&[], Vec::as_slice)
    }

    pub(super) fn append(&mut self, list: u32, items: &[Value]) -> Result<(), String> {
        self.charge::<Value>(items.len())?;
        if let Some(list) = self.lists.get_mut(list as usize) {
            list.extend_from_slice(items);
        }
        Ok(())
    }

    pub(super) fn new_dict(&mut self) -> Result<Value, String> {
        self.charge::<Vec<(Value, Value)>>(1)?;
        self.dicts.push(Vec::new());
        Ok(Value::Dict(self.dicts.len() as u32 - 1))
    }

    /// The keys and values in the order in which they were set. Keys may repeat.
    pub(super) fn dict(&self, dict: u32) -> &[(Value, Value)] {
        self.dicts.get(dict as usize).map_or(&[], Vec::as_slice)
    }

    pub(super) fn insert(&mut self, dict: u32, items: &[[Value; 2]]) -> Result<(), String> {
        self.charge::<(Value, Value)>(items.len())?;
        if let Some(dict) = self.dicts.get_mut(dict as usize) {
            dict.extend(items.iter().map(|&[key, value]| (key, value)));
        }
        Ok(())
    }

    pub(super) fn new_storage(&mut self, storage: TorchStorage) -> Result<Value, String> {
        // A state dict names one storage for each tensor, often the one before.
        if self.storages.last() == Some(&storage) {
            return Ok(Value::Storage(self.storages.len() as u32 - 1));
        }
        self.charge::<[u8; STORAGE]>(1)?;
        self.storages.push(storage);
        Ok(Value::Storage(self.storages.len() as u32 - 1))
    }

    pub(super) fn storage(&self, storage: u32) -> Option<&TorchStorage> {
        self.storages.get(storage as usize)
    }

    pub(super) fn storages(&self) -> &[TorchStorage] {
        &self.storages
    }

    pub(super) fn new_tensor(&mut self, tensor: Tensor) -> Result<Value, String> {
        self.charge::<Tensor>(1)?;
        self.tensors.push(tensor);
        Ok(Value::Tensor(self.tensors.len() as u32 - 1))
    }

    pub(super) fn tensor(&self, tensor: u32) -> Option<&Tensor> {
        self.tensors.get(tensor as usize)
    }
}

/// Class of the storages in the module `torch` (empty if there is none), name in the module `torch`, name in safetensors
/// files, bytes of an element.
const TYPES: [(&str, &str, &str, usize); 16] = [
    ("FloatStorage", "float32", "F32", 4),
    ("HalfStorage", "float16", "F16", 2),
    ("BFloat16Storage", "bfloat16", "BF16", 2),
    ("DoubleStorage", "float64", "F64", 8),
    ("LongStorage", "int64", "I64", 8),
    ("IntStorage", "int32", "I32", 4),
    ("ShortStorage", "int16", "I16", 2),
    ("CharStorage", "int8", "I8", 1),
    ("ByteStorage", "uint8", "U8", 1),
    ("BoolStorage", "bool", "BOOL", 1),
    ("ComplexFloatStorage", "complex64", "C64", 8),
    ("", "uint16", "U16", 2),
    ("", "uint32", "U32", 4),
    ("", "uint64", "U64", 8),
    ("", "float8_e4m3fn", "F8_E4M3", 1),
    ("", "float8_e5m2", "F8_E5M2", 1),
];

/// A dtype of PyTorch: an index of [`TYPES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StorageType(u8);

impl StorageType {
    /// Its name in safetensors files.
    pub(super) fn stored(self) -> &'static str {
        TYPES[usize::from(self.0)].2
    }

    /// Bytes of an element.
    pub(super) fn size(self) -> usize {
        TYPES[usize::from(self.0)].3
    }
}

/// A class or a function that a state dict names. `constructors.rs` does what PyTorch's would do;
/// nothing is imported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Global {
    /// `collections.OrderedDict`.
    OrderedDict,
    /// `torch.Size`.
    Size,
    /// `torch._utils._rebuild_tensor`, of PyTorch before 0.4.
    RebuildTensor,
    /// `torch._utils._rebuild_tensor_v2`.
    RebuildTensorV2,
    /// `torch._utils._rebuild_tensor_v3`: with a dtype of its own.
    RebuildTensorV3,
    /// `torch._utils._rebuild_parameter`.
    RebuildParameter,
    /// `torch.FloatStorage` and so on; `None` is `torch.storage.UntypedStorage`.
    Storage(Option<StorageType>),
    /// `torch.float32` and so on.
    Dtype(StorageType),
}

impl Global {
    pub(super) fn named(module: &str, name: &str) -> Option<Self> {
        match (module, name) {
            ("collections", "OrderedDict") => Some(Self::OrderedDict),
            ("torch", "Size") => Some(Self::Size),
            ("torch._utils", "_rebuild_tensor") => Some(Self::RebuildTensor),
            ("torch._utils", "_rebuild_tensor_v2") => Some(Self::RebuildTensorV2),
            ("torch._utils", "_rebuild_tensor_v3") => Some(Self::RebuildTensorV3),
            ("torch._utils", "_rebuild_parameter") => Some(Self::RebuildParameter),
            ("torch" | "torch.storage", "UntypedStorage") => Some(Self::Storage(None)),
            ("torch", name) if !name.is_empty() => (0u8..).zip(TYPES).find_map(|(index, of)| {
                let found = StorageType(index);
                let storage = (of.0 == name).then_some(Self::Storage(Some(found)));
                storage.or_else(|| (of.1 == name).then_some(Self::Dtype(found)))
            }),
            _ => None,
        }
    }
}
