use core::fmt;
use core::ops::Range;
use std::io;

use super::unsupported_formats::{self, UnsupportedFormat};
use crate::config::{ConfigError, Side};
use crate::network::TensorId;

/// Why a checkpoint could not be opened or a tensor not be read.
///
/// `file` is the path, or `"memory"` for a checkpoint that was given as bytes or tensors. Shapes are rows first. Names
/// out of a file are shortened where they are longer than a person reads.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The directory does not exist.
    DirectoryMissing {
        /// As given.
        path: String,
    },
    /// The path is there and is not a directory.
    NotADirectory {
        /// As given.
        path: String,
    },
    /// A file that a checkpoint must have is not there.
    FileMissing {
        /// The file.
        file: String,
        /// What was found instead, or what to do.
        hint: &'static str,
    },
    /// Weights of another program, or a download that went wrong, where weights in safetensors are expected.
    ForeignWeights {
        /// The file.
        file: String,
        /// What it is, by its name or its first bytes.
        found: UnsupportedFormat,
        /// How it begins, if that is text that says something.
        says: String,
    },
    /// The only weights are those that transformers calls a variant.
    OnlyVariant {
        /// The file.
        file: String,
        /// `fp16` of `model.fp16.safetensors`.
        variant: String,
    },
    /// Parts of a sharded checkpoint, and no index that says which tensor is where.
    ShardsWithoutIndex {
        /// The index that is missing.
        file: String,
        /// The parts that are there.
        shards: Vec<String>,
    },
    /// Several files of weights, none of which is `model.safetensors`.
    SeveralWeights {
        /// The directory.
        path: String,
        /// The files.
        files: Vec<String>,
    },
    /// Something that is not a regular file stands in a file's place.
    NotAFile {
        /// Its path.
        file: String,
    },
    /// The operating system refused, or the file became shorter while it was read.
    Unreadable {
        /// The file.
        file: String,
        /// What the system says.
        error: io::Error,
    },
    /// A JSON file is not UTF-8.
    NotUtf8 {
        /// The file.
        file: String,
        /// Bytes before the first wrong one.
        valid_up_to: usize,
    },
    /// A JSON file is larger than any real one.
    JsonTooLarge {
        /// The file.
        file: String,
        /// The largest accepted, in bytes.
        limit: u64,
    },
    /// `config.json` or `generation_config.json` is wrong.
    Config {
        /// The file.
        file: String,
        /// How.
        error: ConfigError,
    },
    /// `model.safetensors.index.json` is not what it must be.
    Index {
        /// The file.
        file: String,
        /// How.
        message: String,
    },
    /// The index names a file outside the directory.
    ShardOutsideDirectory {
        /// The index.
        file: String,
        /// The name it gives.
        shard: String,
    },
    /// Files that the index names are not there.
    ShardsMissing {
        /// The index.
        file: String,
        /// All that are missing.
        shards: Vec<String>,
    },
    /// The index places one tensor twice.
    PlacedTwice {
        /// The index.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// The index promises a tensor that the shard does not have.
    ShardLacksTensor {
        /// The shard.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// Fewer than the eight bytes that hold the length of the header.
    TooShort {
        /// The file.
        file: String,
        /// Its length in bytes.
        bytes: u64,
    },
    /// The header claims to be larger than any real one.
    HeaderTooLarge {
        /// The file.
        file: String,
        /// What it claims, in bytes.
        bytes: u64,
        /// The largest accepted, in bytes.
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
        /// Bytes of the header before the first wrong one.
        valid_up_to: usize,
    },
    /// The header is not JSON, or not that of a safetensors file.
    Header {
        /// The file.
        file: String,
        /// What the parser says.
        message: String,
    },
    /// One name stands for two tensors.
    DuplicateTensor {
        /// The file.
        file: String,
        /// The name.
        tensor: String,
    },
    /// A header or an index of more tensors than any real one.
    TooManyTensors {
        /// The file.
        file: String,
        /// The most that are accepted.
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
        /// One after the last byte, counted likewise.
        end: usize,
    },
    /// A tensor reaches beyond the end of the file.
    BeyondEnd {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// One after its last byte, counted from the end of the header.
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
    /// The bytes of a tensor are not as many as its shape and type need.
    SizeMismatch {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Bytes that shape and type need.
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
        /// One after the last.
        end: u64,
    },
    /// A tensor that the model needs is not there.
    MissingTensor {
        /// What for.
        role: TensorId,
        /// Names that would have done. None if checkpoints of the family have no such tensor.
        tried: Vec<String>,
        /// A tied matrix would have done too, but [`Config::ties`](crate::config::Config::ties) says that it is not tied.
        untied: bool,
        /// Names that are there and look similar, the nearest first.
        nearest: Vec<String>,
    },
    /// No tensor of that name.
    NoSuchTensor {
        /// The name asked for.
        tensor: String,
        /// Names that are there and look similar, the nearest first.
        nearest: Vec<String>,
    },
    /// A tensor has another shape than the configuration says.
    WrongShape {
        /// The tensor.
        tensor: String,
        /// What the configuration says.
        expected: Vec<usize>,
        /// What the file has.
        found: Vec<usize>,
    },
    /// A tensor is not made of `F32`, `F16` or `BF16`.
    WrongDtype {
        /// The tensor.
        tensor: String,
        /// Its type as safetensors spells it.
        found: String,
    },
    /// The file has layers that the configuration does not.
    ExtraLayer {
        /// In which stack.
        side: Side,
        /// Layers according to the configuration.
        layers: usize,
        /// A tensor of a later layer.
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
        /// Counted from the first element of the whole tensor, row after row.
        index: usize,
        /// The value.
        found: f32,
    },
    /// Rows that the tensor does not have.
    RowsOutside {
        /// The tensor.
        tensor: String,
        /// The rows asked for.
        rows: Range<usize>,
        /// The rows there are.
        available: usize,
    },
    /// The system does not give the memory for a tensor or for the header of a file.
    OutOfMemory {
        /// The tensor, or the file.
        what: String,
        /// Bytes asked for.
        bytes: usize,
    },
    /// The destination is not as long as the view.
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

/// Names that may be many.
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
            Self::OnlyVariant { file, variant } => write!(
                f,
                "{file}: the variant \"{variant}\", and there is no model.safetensors; rename it, or save what \
                 from_pretrained(..., variant=\"{variant}\") loads"
            ),
            Self::ShardsWithoutIndex { file, shards } => {
                write!(
                    f,
                    "{file}: no such file; without it nobody knows what is in {}",
                    Many(shards)
                )
            }
            Self::SeveralWeights { path, files } => {
                write!(f, "{path}: expected model.safetensors or one other, found {}", Many(files))
            }
            Self::NotAFile { file } => write!(f, "{file}: not a regular file"),
            Self::Unreadable { file, error } => write!(f, "{file}: cannot be read: {error}"),
            Self::NotUtf8 { file, valid_up_to } => {
                write!(f, "{file}: not UTF-8 from byte {valid_up_to} on")
            }
            Self::JsonTooLarge { file, limit } => {
                write!(f, "{file}: larger than {limit} bytes, which no real one is")
            }
            Self::Config { file, error } => write!(f, "{file}: {error}"),
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
    /// What lies behind the cause, which the message has already said.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Unreadable { error, .. } => error.source(),
            Self::Config { error, .. } => error.source(),
            _ => None,
        }
    }
}
