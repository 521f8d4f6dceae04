//! Selects the family of a directory, which defines the files to read and the positions of special tokens.

use crate::directory::Directory;
use crate::error::Error;

/// A family of tokenizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// OPUS-MT: `source.spm`, `target.spm`, `vocab.json`; `>>xx<<` selects the target language.
    Marian,
    /// M2M100: `__xx__` before the text.
    M2m100,
    /// NLLB: `eng_Latn` before the text, or after it in the oldest checkpoints.
    Nllb,
    /// mBART-25: `en_XX` after the text, and the target language as decoder start.
    Mbart25,
    /// mBART-50: `en_XX` before the text.
    Mbart50,
    /// T5, mT5, UMT5, FLAN-T5, MADLAD.
    T5,
    /// PEGASUS: the first 103 ids are those of its pre-training.
    Pegasus,
    /// XLM-R: `<s>` and `</s>` around the text, SentencePiece pieces.
    XlmRoberta,
    /// CamemBERT: as XLM-R, with other ids.
    Camembert,
    /// BERT, DistilBERT, MPNet, MiniLM: WordPiece.
    WordPiece,
    /// BART, RoBERTa: byte-level BPE.
    ByteLevel,
    /// Whisper: byte-level BPE, a prompt with language and task.
    Whisper,
    /// A directory of CTranslate2 with a SentencePiece file or `bpe.model`: OpenNMT, Argos. The vocabularies have the ids.
    OpenNmt,
}

/// The known families, with their `model_type`s and the prefixes of their `tokenizer_class`es.
const KNOWN: [(Family, &[&str], &[&str]); 12] = [
    (Family::Marian, &["marian"], &["MarianTokenizer"]),
    (Family::M2m100, &["m2m_100"], &["M2M100Tokenizer"]),
    (Family::Nllb, &["nllb"], &["NllbTokenizer"]),
    (Family::Mbart50, &["mbart50"], &["MBart50Tokenizer"]),
    (Family::Mbart25, &["mbart"], &["MBartTokenizer"]),
    (Family::T5, &["t5", "mt5", "umt5"], &["T5Tokenizer", "MT5Tokenizer"]),
    (Family::Pegasus, &["pegasus"], &["PegasusTokenizer"]),
    (Family::XlmRoberta, &["xlm-roberta"], &["XLMRobertaTokenizer"]),
    (Family::Camembert, &["camembert"], &["CamembertTokenizer"]),
    (
        Family::WordPiece,
        &["bert", "distilbert", "mpnet"],
        &["BertTokenizer", "DistilBertTokenizer", "MPNetTokenizer"],
    ),
    (Family::ByteLevel, &["bart", "roberta", "gpt2"], &["BartTokenizer", "RobertaTokenizer"]),
    (Family::Whisper, &["whisper"], &["WhisperTokenizer"]),
];

impl Family {
    /// The error of a `model_type` or `tokenizer_class` that is not known.
    fn unknown(found: &str) -> Error {
        let known: Vec<&str> =
            KNOWN.iter().flat_map(|(_, types, _)| types.iter().copied()).collect();
        let expected = format!("a tokenizer of {}", known.join(", "));
        Error::unsupported("", expected, format_args!("{found:?}"))
    }

    pub(crate) fn from_directory(directory: &Directory) -> Result<Self, Error> {
        let class = directory.tokenizer.text("tokenizer_class")?;
        let model_type = directory.config.text("model_type")?;
        let by_class = KNOWN.iter().find(|(_, _, classes)| {
            classes.iter().any(|begin| class.is_some_and(|class| class.starts_with(begin)))
        });
        // A class distinguishes families of one architecture: NLLB from M2M100, mBART-50 from mBART.
        if let Some((family, ..)) = by_class {
            return Ok(*family);
        }
        // An unknown class segments differently, unless it only means that the file is complete.
        let complete = ["PreTrainedTokenizer", "TokenizersBackend"];
        if let Some(found) = class.filter(|class| !complete.iter().any(|c| class.starts_with(c))) {
            return Err(Self::unknown(found));
        }
        if class.is_none()
            && let Some(family) = directory.converted_family()?
        {
            return Ok(family);
        }
        let by_type =
            KNOWN.iter().find(|(_, types, _)| model_type.is_some_and(|t| types.contains(&t)));
        match (by_type, model_type.or(class)) {
            (Some((Self::M2m100, ..)), _) if !directory.has("vocab.json") => Ok(Self::Nllb),
            (Some((family, ..)), _) => Ok(*family),
            (None, Some(found)) => Err(Self::unknown(found)),
            (None, None) if directory.has("source.spm") => Ok(Self::Marian),
            (None, None) => Err(directory.missing(&[
                "config.json with model_type",
                "tokenizer_config.json with tokenizer_class",
            ])),
        }
    }
}
