use core::fmt;
use core::ops::Range;
use std::io;

use super::unsupported_formats::{self, UnsupportedFormat};
use crate::config::{ConfigError, Side};
use crate::network::TensorId;

/// Why a checkpoint could not be opened or a tensor could not be read.
///
/// `file` is the path, or `"memory"` for a checkpoint from bytes or tensors. Shapes are rows first. Long names
/// from a file are shortened.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The directory does not exist.
    DirectoryMissing {
        /// The path that the caller gave.
        path: String,
    },
    /// The path exists and is not a directory.
    NotADirectory {
        /// The path that the caller gave.
        path: String,
    },
    /// A file that a checkpoint must have does not exist.
    FileMissing {
        /// The file.
        file: String,
        /// What exists instead, or how to fix it.
        hint: &'static str,
    },
    /// Weights in another format, or a failed download, instead of weights in a supported format.
    ForeignWeights {
        /// The file.
        file: String,
        /// The format, detected from its name or its first bytes.
        found: UnsupportedFormat,
        /// The first bytes, if they are readable text.
        says: String,
    },
    /// The directory has packed weights, from which no tensor is read.
    Packed {
        /// The tensor that was to be read.
        role: TensorId,
        /// The file of packed weights.
        file: String,
    },
    /// The only weights are a variant in the sense of transformers.
    OnlyVariant {
        /// The file.
        file: String,
        /// For example `fp16` of `model.fp16.safetensors`.
        variant: String,
    },
    /// Shards of a checkpoint without the index that lists their tensors.
    ShardsWithoutIndex {
        /// The missing index.
        file: String,
        /// The shards found.
        shards: Vec<String>,
    },
    /// Several files of weights, none of them named `model.safetensors`.
    SeveralWeights {
        /// The directory.
        path: String,
        /// The files.
        files: Vec<String>,
    },
    /// The path of a file is something other than a regular file.
    NotAFile {
        /// Its path.
        file: String,
    },
    /// The operating system returned an error, or the file became shorter during reading.
    Unreadable {
        /// The file.
        file: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The operating system cannot write a file of a new checkpoint, or the file is in the way.
    Unwritable {
        /// The file.
        file: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A JSON file is not UTF-8.
    NotUtf8 {
        /// The file.
        file: String,
        /// Bytes before the first invalid one.
        valid_up_to: usize,
    },
    /// A JSON file is larger than any real one.
    JsonTooLarge {
        /// The file.
        file: String,
        /// The maximum size in bytes.
        limit: u64,
    },
    /// `config.json` or `generation_config.json` is invalid.
    Config {
        /// The file.
        file: String,
        /// The error.
        error: ConfigError,
    },
    /// The `modules.json` of a sentence-transformers directory is invalid.
    Modules {
        /// The file.
        file: String,
        /// The reason.
        message: String,
    },
    /// `model.safetensors.index.json`, or that of `pytorch_model.bin`, is invalid.
    Index {
        /// The file.
        file: String,
        /// The reason.
        message: String,
    },
    /// The index names a file outside the directory.
    ShardOutsideDirectory {
        /// The index.
        file: String,
        /// The file name in the index.
        shard: String,
    },
    /// Files that the index names do not exist.
    ShardsMissing {
        /// The index.
        file: String,
        /// All missing files.
        shards: Vec<String>,
    },
    /// The index lists one tensor twice.
    PlacedTwice {
        /// The index.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// The index assigns a tensor to a shard that does not contain it.
    ShardLacksTensor {
        /// The shard.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// The file is shorter than the eight bytes of the header length.
    TooShort {
        /// The file.
        file: String,
        /// Its length in bytes.
        bytes: u64,
    },
    /// The header length exceeds that of any real header.
    HeaderTooLarge {
        /// The file.
        file: String,
        /// The header length in bytes.
        bytes: u64,
        /// The maximum in bytes.
        limit: u64,
    },
    /// The file ends inside the header.
    HeaderTruncated {
        /// The file.
        file: String,
        /// Length of the header in bytes.
        header: u64,
        /// Bytes after the length field.
        available: u64,
    },
    /// The header is not UTF-8.
    HeaderNotUtf8 {
        /// The file.
        file: String,
        /// Bytes of the header before the first invalid one.
        valid_up_to: usize,
    },
    /// The header is not JSON, or not a safetensors header.
    Header {
        /// The file.
        file: String,
        /// The message of the parser.
        message: String,
    },
    /// The cargo feature `torch`: a file of `torch.save` is invalid, or has something that a state dict does not need.
    TorchFile {
        /// The file.
        file: String,
        /// What was expected, and what was found.
        message: String,
    },
    /// Two tensors have the same name.
    DuplicateTensor {
        /// The file.
        file: String,
        /// The name.
        tensor: String,
    },
    /// A header or an index has more tensors than any real one.
    TooManyTensors {
        /// The file.
        file: String,
        /// The maximum number.
        limit: usize,
    },
    /// A tensor ends before it begins.
    OffsetsReversed {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// First byte, counted from the end of the header.
        begin: usize,
        /// End offset (exclusive), counted likewise.
        end: usize,
    },
    /// A tensor extends beyond the end of the file.
    BeyondEnd {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// End offset (exclusive), counted from the end of the header.
        end: usize,
        /// Bytes after the header.
        available: u64,
    },
    /// The product of a shape overflows.
    ShapeOverflow {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// The shape.
        shape: Vec<usize>,
    },
    /// The size of a tensor in bytes does not match its shape and dtype.
    SizeMismatch {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Bytes that shape and dtype need.
        expected: usize,
        /// Bytes between its offsets.
        found: usize,
    },
    /// Two tensors share bytes.
    Overlap {
        /// The file.
        file: String,
        /// The tensor that begins first.
        first: String,
        /// The tensor that begins inside it.
        second: String,
    },
    /// Bytes that belong to no tensor.
    Gap {
        /// The file.
        file: String,
        /// First such byte, counted from the end of the header.
        begin: u64,
        /// End offset (exclusive).
        end: u64,
    },
    /// A tensor that the model needs does not exist.
    MissingTensor {
        /// Its role.
        role: TensorId,
        /// The accepted names. Empty if checkpoints of the family have no such tensor.
        tried: Vec<String>,
        /// A tied matrix would be accepted, but [`Config::ties`](crate::config::Config::ties) says that it is not
        /// tied.
        untied: bool,
        /// Existing names that are similar, the most similar first.
        nearest: Vec<String>,
    },
    /// Two tensors have the same name without the parts that wrappers of PyTorch add: `model.x` and `module.model.x`.
    SameNames {
        /// The name without these parts.
        tensor: String,
        /// The first tensor.
        first: String,
        /// The second tensor.
        second: String,
    },
    /// The configuration says that two matrices are one, and their tensors in memory have different numbers.
    TiedTensorsDiffer {
        /// The first tensor.
        first: String,
        /// The second tensor.
        second: String,
    },
    /// There is no tensor of this name.
    NoSuchTensor {
        /// The requested name.
        tensor: String,
        /// Existing names that are similar, the most similar first.
        nearest: Vec<String>,
    },
    /// A tensor has another shape than the configuration needs.
    WrongShape {
        /// The tensor.
        tensor: String,
        /// The shape according to the configuration.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// The dtype of a tensor is not `F32`, `F16` or `BF16`.
    WrongDtype {
        /// The tensor.
        tensor: String,
        /// Its dtype in safetensors spelling.
        found: String,
    },
    /// The file has more layers than the configuration.
    ExtraLayer {
        /// The stack.
        side: Side,
        /// Layers according to the configuration.
        layers: usize,
        /// A tensor of an extra layer.
        tensor: String,
    },
    /// A model of this configuration has no such part.
    NoSuchRole {
        /// The part.
        role: TensorId,
    },
    /// A weight is NaN or infinite (in an output bias: NaN or plus infinity).
    NotFinite {
        /// The tensor.
        tensor: String,
        /// Row-major index in the whole tensor.
        index: usize,
        /// The value.
        found: f32,
    },
    /// The tensor does not have the requested rows.
    RowsOutside {
        /// The tensor.
        tensor: String,
        /// The requested rows.
        rows: Range<usize>,
        /// The number of rows.
        available: usize,
    },
    /// The system cannot allocate the memory for a tensor or for the header of a file.
    OutOfMemory {
        /// The tensor, or the file.
        what: String,
        /// Bytes requested.
        bytes: usize,
    },
    /// The length of the destination differs from that of the view.
    WrongLength {
        /// The tensor.
        tensor: String,
        /// Elements of the view.
        expected: usize,
        /// Elements of the destination.
        found: usize,
    },
}

struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.0.iter().enumerate() {
            write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// A list of names that may be long.
struct Many<'a>(&'a [String]);

impl fmt::Display for Many<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 20;
        Names(&self.0[..self.0.len().min(SHOWN)]).fmt(f)?;
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

fn nearest(f: &mut fmt::Formatter<'_>, names: &[String]) -> fmt::Result {
    if names.is_empty() { Ok(()) } else { write!(f, "; the nearest names are {}", Names(names)) }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DirectoryMissing { path } => write!(f, "{path}: no such directory"),
            Self::NotADirectory { path } => {
                write!(f, "{path}: expected a checkpoint directory, found something else")
            }
            Self::FileMissing { file, hint } => write!(f, "{file}: no such file; {hint}"),
            Self::ForeignWeights { file, found, says } => {
                write!(f, "{file}: {found}")?;
                if !says.is_empty() {
                    write!(f, ": \"{says}\"")?;
                }
                write!(f, "; {}", found.hint())?;
                match found {
                    UnsupportedFormat::Pickle => {
                        write!(f, ": {}", unsupported_formats::python(file))
                    }
                    _ => Ok(()),
                }
            }
            Self::Packed { role, file } => write!(
                f,
                "{file}: {role} is packed for the products of a model and cannot be read as a tensor; open the \
                 checkpoint that was packed"
            ),
            Self::OnlyVariant { file, variant } => write!(
                f,
                "{file}: the variant \"{variant}\", and there is no model.safetensors; rename it, or save what \
                 from_pretrained(..., variant=\"{variant}\") loads"
            ),
            Self::ShardsWithoutIndex { file, shards } => {
                write!(f, "{file}: no such file; it lists the tensors of {}", Many(shards))
            }
            Self::SeveralWeights { path, files } => {
                write!(f, "{path}: expected model.safetensors or one other, found {}", Many(files))
            }
            Self::NotAFile { file } => write!(f, "{file}: not a regular file"),
            Self::Unreadable { file, error } => write!(f, "{file}: cannot be read: {error}"),
            Self::Unwritable { file, error } => write!(f, "{file}: cannot be written: {error}"),
            Self::SameNames { tensor, first, second } => write!(
                f,
                "expected one tensor {tensor}, found {first} and {second}: wrappers of PyTorch add parts such as \
                 _orig_mod and module to names"
            ),
            Self::TiedTensorsDiffer { first, second } => write!(
                f,
                "{first} and {second} must have the same numbers, because the configuration ties them, found \
                 different ones"
            ),
            Self::NotUtf8 { file, valid_up_to } => {
                write!(f, "{file}: not UTF-8 from byte {valid_up_to} on")
            }
            Self::JsonTooLarge { file, limit } => {
                write!(f, "{file}: larger than {limit} bytes, which no real one is")
            }
            Self::Config { file, error } => write!(f, "{file}: {error}"),
            Self::Modules { file, message } => {
                write!(f, "{file}: not a list of modules: {message}")
            }
            Self::Index { file, message } => write!(f, "{file}: not an index of shards: {message}"),
            Self::ShardOutsideDirectory { file, shard } => {
                write!(f, "{file}: the shard \"{shard}\" is not a plain file name")
            }
            Self::ShardsMissing { file, shards } => {
                write!(f, "{file}: no such files as it names: {}", Many(shards))
            }
            Self::PlacedTwice { file, tensor } => {
                write!(f, "{file}: {tensor} is placed twice")
            }
            Self::ShardLacksTensor { file, tensor } => {
                write!(f, "{file}: the index places {tensor} here, but it is not")
            }
            Self::TooShort { file, bytes } => {
                write!(
                    f,
                    "{file}: a safetensors file begins with 8 bytes of length, found {bytes} bytes"
                )
            }
            Self::HeaderTooLarge { file, bytes, limit } => {
                write!(f, "{file}: the header claims {bytes} bytes, the limit is {limit}")
            }
            Self::HeaderTruncated { file, header, available } => {
                write!(
                    f,
                    "{file}: truncated: the header has {header} bytes, the file {available} after the length"
                )
            }
            Self::HeaderNotUtf8 { file, valid_up_to } => {
                write!(f, "{file}: the header is not UTF-8 from byte {valid_up_to} on")
            }
            Self::Header { file, message } => write!(f, "{file}: wrong header: {message}"),
            Self::TorchFile { file, message } => write!(f, "{file}: wrong state dict: {message}"),
            Self::DuplicateTensor { file, tensor } => {
                write!(f, "{file}: {tensor} stands twice in the header")
            }
            Self::TooManyTensors { file, limit } => {
                write!(f, "{file}: more than {limit} tensors, which no real one has")
            }
            Self::OffsetsReversed { file, tensor, begin, end } => {
                write!(f, "{file}: {tensor} begins at byte {begin} and ends at {end}, before it")
            }
            Self::BeyondEnd { file, tensor, end, available } => {
                write!(
                    f,
                    "{file}: {tensor} ends at byte {end}, but only {available} follow the header: truncated?"
                )
            }
            Self::ShapeOverflow { file, tensor, shape } => {
                write!(f, "{file}: the size of {tensor}, shape {shape:?}, overflows")
            }
            Self::SizeMismatch { file, tensor, expected, found } => {
                write!(
                    f,
                    "{file}: {tensor} needs {expected} bytes for its shape and type, found {found}"
                )
            }
            Self::Overlap { file, first, second } => {
                write!(f, "{file}: {first} and {second} share bytes")
            }
            Self::Gap { file, begin, end } => {
                write!(f, "{file}: bytes {begin} to {end} after the header belong to no tensor")
            }
            Self::MissingTensor { role, tried, .. } if tried.is_empty() => {
                write!(f, "no tensor for {role}: checkpoints of this family have none")
            }
            Self::MissingTensor { role, tried, untied, nearest: near } => {
                write!(f, "no tensor for {role}: expected {}", Names(tried))?;
                if *untied {
                    write!(f, ", which the configuration ties to no other matrix")?;
                }
                nearest(f, near)
            }
            Self::NoSuchTensor { tensor, nearest: near } => {
                write!(f, "no tensor {tensor}")?;
                nearest(f, near)
            }
            Self::WrongShape { tensor, expected, found } => {
                write!(f, "{tensor}: expected shape {expected:?}, found {found:?}")
            }
            Self::WrongDtype { tensor, found } => {
                write!(f, "{tensor}: expected F32, F16 or BF16, found {found}")?;
                if found == "F64" {
                    return f.write_str(", which would be rounded; save the model in float32");
                }
                let quantized = found.starts_with("F8") || found.starts_with("F4");
                if quantized || ["I8", "U8", "I4", "U4"].contains(&found.as_str()) {
                    return f.write_str(
                        "; quantized weights need their scales, which are not read: take the model that they were made of",
                    );
                }
                Ok(())
            }
            Self::ExtraLayer { side, layers, tensor } => {
                let s = if *layers == 1 { "" } else { "s" };
                let side = side.name();
                write!(f, "the configuration has {layers} {side} layer{s}, but there is {tensor}")
            }
            Self::NoSuchRole { role } => write!(f, "a model of this configuration has no {role}"),
            Self::NotFinite { tensor, index, found } => {
                write!(f, "{tensor}: element {index} must be finite, found {found}")
            }
            Self::RowsOutside { tensor, rows, available } => {
                write!(
                    f,
                    "{tensor}: rows {}..{} asked for, there are {available}",
                    rows.start, rows.end
                )
            }
            Self::OutOfMemory { what, bytes } => {
                write!(f, "{what}: the system does not give {bytes} bytes")
            }
            Self::WrongLength { tensor, expected, found } => {
                write!(f, "{tensor}: the destination must have {expected} elements, found {found}")
            }
        }
    }
}

impl core::error::Error for CheckpointError {
    /// The source of the cause; the message already contains the cause itself.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Unreadable { error, .. } | Self::Unwritable { error, .. } => error.source(),
            Self::Config { error, .. } => error.source(),
            _ => None,
        }
    }
}
