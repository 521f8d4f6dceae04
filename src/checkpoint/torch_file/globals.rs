//! The classes and functions that the pickle of a state dict may name. All others are refused.

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
    pub(super) fn of(module: &str, name: &str) -> Option<Self> {
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
