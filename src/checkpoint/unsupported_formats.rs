//! Weight files of other programs, failed downloads, and hints for each.

use crate::error::Error;
use std::path::Path;

/// The format of a file found instead of weights in a supported one. [`UnsupportedFormat::hint`] says how to fix
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnsupportedFormat {
    /// `.pt`, `.pth`, `.ckpt`: pickled Python objects; without the cargo feature `torch` also `pytorch_model.bin`.
    Pickle,
    /// `rust_model.ot` of tch.
    RustTorch,
    /// `tf_model.h5`.
    TensorFlow,
    /// `flax_model.msgpack`.
    Flax,
    /// `*.gguf` of llama.cpp.
    Gguf,
    /// `*.onnx`.
    Onnx,
    /// `model.bin` of CTranslate2.
    CTranslate2,
    /// `*.npz` of Marian.
    MarianNpz,
    /// `*.bin` of Marian, or of the translation models of Firefox.
    MarianBin,
    /// An adapter, whose weights are added to those of another model: `adapter_config.json`.
    Adapter,
    /// `consolidated.safetensors`: the tensor names of the original training code.
    Consolidated,
    /// A Git-LFS pointer in place of the file.
    GitLfs,
    /// An HTML page saved under the name of the file.
    WebPage,
    /// A server message in JSON, XML or plain text, saved under the name of the file.
    Message,
}

impl UnsupportedFormat {
    /// A description, to print after the file name.
    const fn name(self) -> &'static str {
        match self {
            Self::Pickle => "pickled Python objects, which can run code when they are read",
            Self::RustTorch => "weights as tch saves them",
            Self::TensorFlow => "weights of TensorFlow",
            Self::Flax => "weights of Flax",
            Self::Gguf => "GGUF, the format of llama.cpp",
            Self::Onnx => "an ONNX graph",
            Self::CTranslate2 => "a model converted for CTranslate2",
            Self::MarianNpz => "arrays of Marian",
            Self::MarianBin => "a binary model of Marian",
            Self::Adapter => "an adapter, to be added to the weights of another model",
            Self::Consolidated => "weights under the names of those who trained them",
            Self::GitLfs => "a Git-LFS pointer and not the file itself",
            Self::WebPage => "a web page and not the file itself",
            Self::Message => "a message and not the file itself",
        }
    }

    /// The fix, as a sentence without a final period.
    const fn hint(self) -> &'static str {
        const FROM: &str = "save the model in safetensors, by transformers";
        match self {
            Self::Pickle if cfg!(feature = "torch") => {
                "only pytorch_model.bin is read, without running them; these lines of Python save the model in safetensors"
            }
            Self::Pickle => {
                "the cargo feature `torch` reads pytorch_model.bin without running them, or these lines of Python save the model in safetensors"
            }
            Self::RustTorch => {
                "take the model.safetensors or pytorch_model.bin that it was made of"
            }
            Self::TensorFlow | Self::Flax => FROM,
            Self::Gguf => "take the directory in safetensors that it was made of",
            Self::Onnx => "take the directory in safetensors that it was exported from",
            Self::CTranslate2 => "take the directory that it was converted from",
            Self::MarianNpz | Self::MarianBin => {
                "take a directory that transformers' convert_marian_to_pytorch.py wrote"
            }
            Self::Adapter => {
                "merge it into its base first: merge_and_unload() of peft, then save_pretrained()"
            }
            Self::Consolidated => "take the model.safetensors of the same model",
            Self::GitLfs => "`git lfs pull` fetches it",
            Self::WebPage => {
                "the download was refused or its address is wrong; try again, logged in"
            }
            Self::Message => "the download failed; try again",
        }
    }

    /// The error for `file` in this format. `says`: the first bytes, if they are readable text.
    pub(super) fn error(self, file: &str, says: &str) -> Error {
        let mut found = self.name().to_owned();
        if !says.is_empty() {
            found.push_str(&format!(": \"{says}\""));
        }
        found.push_str(&format!("; {}", self.hint()));
        if self == Self::Pickle {
            found.push_str(&format!(": {}", python(file)));
        }
        Error::unsupported(file, "a checkpoint in safetensors", found)
    }

    /// Detects the format from the first bytes of a file.
    pub(super) fn of_bytes(begin: &[u8]) -> Option<Self> {
        const MAGIC: [(&[u8], UnsupportedFormat); 9] = [
            (b"version https://git-lfs", UnsupportedFormat::GitLfs),
            (b"PK\x03\x04", UnsupportedFormat::Pickle),
            (b"\x80\x02", UnsupportedFormat::Pickle),
            (b"\x80\x03", UnsupportedFormat::Pickle),
            (b"\x80\x04", UnsupportedFormat::Pickle),
            (b"\x80\x05", UnsupportedFormat::Pickle),
            (b"\x89HDF", UnsupportedFormat::TensorFlow),
            (b"GGUF", UnsupportedFormat::Gguf),
            (b"\x08\x01\x12", UnsupportedFormat::Onnx),
        ];
        if let Some(&(_, found)) = MAGIC.iter().find(|(magic, _)| begin.starts_with(magic)) {
            return Some(found);
        }
        let begin = begin.strip_prefix(b"\xef\xbb\xbf").unwrap_or(begin).trim_ascii_start();
        let lower = begin[..begin.len().min(15)].to_ascii_lowercase();
        if lower.starts_with(b"<!doctype html") || lower.starts_with(b"<html") {
            return Some(Self::WebPage);
        }
        // Plain text, JSON or XML: printable ASCII and whitespace.
        let text = |byte: &u8| (b' '..=b'~').contains(byte) || byte.is_ascii_whitespace();
        (begin.len() >= 8 && begin.iter().all(text)).then_some(Self::Message)
    }

    /// Detects the format from the name of a file in place of the weights; `None` for the names that are read.
    fn of_name(name: &str) -> Option<Self> {
        const NAMES: [(&str, UnsupportedFormat); 4] = [
            ("rust_model.ot", UnsupportedFormat::RustTorch),
            ("tf_model.h5", UnsupportedFormat::TensorFlow),
            ("flax_model.msgpack", UnsupportedFormat::Flax),
            ("model.bin", UnsupportedFormat::CTranslate2),
        ];
        const ENDS: [(&str, UnsupportedFormat); 11] = [
            (".pt", UnsupportedFormat::Pickle),
            (".pth", UnsupportedFormat::Pickle),
            (".ckpt", UnsupportedFormat::Pickle),
            (".ot", UnsupportedFormat::RustTorch),
            (".h5", UnsupportedFormat::TensorFlow),
            (".msgpack", UnsupportedFormat::Flax),
            (".gguf", UnsupportedFormat::Gguf),
            (".onnx", UnsupportedFormat::Onnx),
            (".npz", UnsupportedFormat::MarianNpz),
            (".intgemm.alphas.bin", UnsupportedFormat::MarianBin),
            (".alphas.bin", UnsupportedFormat::MarianBin),
        ];
        if name.starts_with("pytorch_model") && name.ends_with(".bin") {
            let is_read = name == "pytorch_model.bin" || is_shard(name);
            return (!(cfg!(feature = "torch") && is_read)).then_some(Self::Pickle);
        }
        let whole = NAMES.iter().find(|(whole, _)| name == *whole);
        let end = || ENDS.iter().find(|(end, _)| name.ends_with(end));
        let found = whole.or_else(end).map(|&(_, found)| found);
        // Other names that Marian uses.
        found.or_else(|| name.ends_with(".bin").then_some(Self::MarianBin))
    }

    /// The first of `names`, sorted, that contains weights of another program; the most common formats come first.
    pub(super) fn among(names: &[String]) -> Option<(&str, Self)> {
        let found = names.iter().filter_map(|name| Some((name.as_str(), Self::of_name(name)?)));
        // Trainer settings also end in `.bin`.
        let found = found.filter(|(name, _)| !name.starts_with("training_args"));
        found.min_by_key(|&(_, kind)| match kind {
            Self::Pickle => 0,
            Self::MarianBin => 2,
            _ => 1,
        })
    }
}

/// Three lines of Python that save the model in a directory as safetensors, for any model class.
pub(super) fn python(file: &str) -> String {
    let directory = Path::new(file).parent().unwrap_or(Path::new(""));
    let directory = directory.display().to_string();
    let directory = if directory.is_empty() { "." } else { &directory };
    format!(
        "import transformers as t; \
         model = getattr(t, t.AutoConfig.from_pretrained({directory:?}).architectures[0]).from_pretrained({directory:?}); \
         model.save_pretrained({directory:?}, safe_serialization=True)"
    )
}

/// Names of possible safetensors files among the names of a directory.
pub(super) fn safetensors(names: &[String]) -> impl Iterator<Item = &String> {
    names.iter().filter(|name| name.ends_with(".safetensors"))
}

/// Matches names such as `model-00001-of-00003.safetensors` and `pytorch_model-00001-of-00003.bin`.
pub(super) fn is_shard(name: &str) -> bool {
    let stem = name.strip_suffix(".safetensors").or_else(|| name.strip_suffix(".bin"));
    let numbers = stem.and_then(|name| name.rsplit_once("-of-"));
    numbers.is_some_and(|(first, last)| {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits(last) && first.rsplit_once('-').is_some_and(|(_, number)| digits(number))
    })
}

/// The variant in a name, in the sense of transformers: `fp16` of `model.fp16.safetensors`.
pub(super) fn variant(name: &str) -> Option<&str> {
    let variant = name.strip_prefix("model.")?.strip_suffix(".safetensors")?;
    (!variant.is_empty()).then_some(variant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_parsed() {
        assert!(is_shard("model-00001-of-00003.safetensors"));
        assert!(
            is_shard("pytorch_model-1-of-2.safetensors") && is_shard("pytorch_model-1-of-2.bin")
        );
        assert!(!is_shard("model-of-3.safetensors") && !is_shard("model.safetensors"));
        assert_eq!(variant("model.fp16.safetensors"), Some("fp16"));
        assert_eq!((variant("model.safetensors"), variant("x.safetensors")), (None, None));
        let pickle = (!cfg!(feature = "torch")).then_some(UnsupportedFormat::Pickle);
        assert_eq!(UnsupportedFormat::of_name("pytorch_model-00001-of-2.bin"), pickle);
        let variant = UnsupportedFormat::of_name("pytorch_model.fp16.bin");
        assert_eq!(variant, Some(UnsupportedFormat::Pickle));
        assert_eq!(UnsupportedFormat::of_name("config.json"), None);
        let names = ["a.onnx", "model.pt", "training_args.bin"].map(str::to_owned);
        let expected = Some(("model.pt", UnsupportedFormat::Pickle));
        assert_eq!(UnsupportedFormat::among(&names), expected);
        assert_eq!(UnsupportedFormat::among(&names[2..]), None);
    }
}
