//! The options of `translate` and `summarize`, of documents and of tables.

use crate::arguments::{
    CacheArguments, ModelArguments, ReportArguments, TextArguments, UsageError, at_least_one,
};
use crate::search_arguments::{HEADING as SEARCH, SearchArguments};
use clap::{Args, ValueHint};
use regex::Regex;
use simdformer_text::documents::archives::ArchiveFormat;
use simdformer_text::documents::{Format, tables};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct TextToText {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    #[command(flatten)]
    pub(crate) texts: TextArguments,
    /// The language of the texts; `simdformer languages` lists the codes. translate --from auto detects it, paragraph by
    /// paragraph; a paragraph in the language of the output is copied
    #[arg(long, value_name = "CODE", help_heading = "Texts")]
    pub(crate) from: Option<String>,
    /// The language of the output
    #[arg(long, value_name = "CODE", help_heading = "Texts")]
    pub(crate) to: Option<String>,
    /// What the model reads before every sentence: the task of a T5 model, such as "translate English to German: ". Without
    /// it, the prefix that config.json has for --from and --to, or for summaries; "" for none
    #[arg(long, value_name = "TEXT", help_heading = "Texts")]
    pub(crate) prefix: Option<String>,
    #[command(flatten)]
    pub(crate) search: SearchArguments,
    /// The number of outputs of each text: at most the beams, or any number of samples (1)
    #[arg(long, value_name = "N", help_heading = SEARCH, value_parser = at_least_one)]
    pub(crate) num_return_sequences: Option<usize>,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
    /// Explain each step of the search, one text at a time
    ///
    /// For each step: the token that the decoder reads, the N most probable next tokens (5), which tokens each rule
    /// removes or changes, and what is chosen. In beam search also the candidates, and which of them go on, end or are
    /// dropped. With --json the steps are a field of the object.
    #[arg(long, value_name = "N", help_heading = "Output", conflicts_with = "stream")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "5")]
    #[arg(value_parser = at_least_one)]
    pub(crate) explain: Option<usize>,
    /// Write each token when it is chosen, one text at a time; not for beam search
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    pub(crate) stream: bool,
    /// Write a JSON object for each text: text, score, tokens, finish, truncated, or error
    ///
    /// With --num-return-sequences also the sequences, with --explain the steps, and the words that the model does not know,
    /// if there are any. Of documents, an object for each sentence:
    /// source, text, the mean and the lowest log-probability of its tokens and that of each, the aligned words, and how
    /// often it was translated again.
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reports: ReportArguments,
}

#[derive(Debug, Args)]
pub(crate) struct Translate {
    #[command(flatten)]
    pub(crate) common: TextToText,
    /// Translate the output of the model again, with the model of this directory or file: --model reads French and writes
    /// English, the pivot, and DIR reads English and writes Spanish. --from is the language of the first, --to of the second
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath, help_heading = "Texts")]
    #[arg(conflicts_with_all = ["lines", "whole", "stream", "explain", "column", "json", "num_return_sequences", "glossary"])]
    pub(crate) pivot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) documents: DocumentArguments,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
}

impl Translate {
    /// Whether each text is one sentence, as in the first versions of the command.
    pub(crate) fn sentences(&self) -> bool {
        let common = &self.common;
        common.texts.lines || common.texts.whole || common.stream || common.explain.is_some()
    }

    /// The format of the table, if the texts are a column of one.
    pub(crate) fn table(&self) -> Result<Option<tables::Format>, UsageError> {
        let (texts, options) = (&self.common.texts, &self.tables);
        let by_name = || texts.files.first().and_then(|path| tables::Format::from_path(path));
        let wrong = |reason: &str| Err(UsageError(reason.to_owned()));
        let format = match (self.documents.format, &options.column) {
            (FormatChoice::Table(_), None) => {
                return wrong("--format csv, tsv or jsonl: --column says where the texts are");
            }
            (_, None) => return Ok(None),
            (FormatChoice::Table(format), Some(_)) => Some(format),
            (FormatChoice::Auto, Some(_)) => by_name(),
            (FormatChoice::Document(_) | FormatChoice::Archive(_), Some(_)) => None,
        };
        match (format, options.delimiter) {
            (None, _) => wrong("--column: expected --format csv, tsv or jsonl"),
            (Some(tables::Format::Csv { .. }), Some(delimiter)) => {
                Ok(Some(tables::Format::Csv { delimiter }))
            }
            (Some(_), Some(_)) => wrong("--delimiter is for --format csv"),
            (format, None) => Ok(format),
        }
    }
}

/// `--format`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum FormatChoice {
    #[default]
    Auto,
    Document(Format),
    Archive(ArchiveFormat),
    Table(tables::Format),
}

impl FormatChoice {
    fn parse(name: &str) -> Result<Self, String> {
        let document = Format::ALL.into_iter().find(|format| format.name() == name);
        let archive = ArchiveFormat::ALL.into_iter().find(|format| format.name() == name);
        match (name, document, archive) {
            ("auto", ..) => Ok(Self::Auto),
            ("csv", ..) => Ok(Self::Table(tables::Format::Csv { delimiter: b',' })),
            ("tsv", ..) => Ok(Self::Table(tables::Format::Tsv)),
            ("jsonl", ..) => Ok(Self::Table(tables::Format::JsonLines)),
            (_, Some(format), _) => Ok(Self::Document(format)),
            (_, _, Some(format)) => Ok(Self::Archive(format)),
            _ => {
                let names = Format::ALL.map(Format::name).join(", ");
                let archives = ArchiveFormat::ALL.map(ArchiveFormat::name).join(", ");
                Err(format!("expected auto, {names}, {archives}, csv, tsv, jsonl"))
            }
        }
    }

    /// Whether the format of documents is given.
    pub(crate) fn is_document(self) -> bool {
        matches!(self, Self::Document(_) | Self::Archive(_))
    }

    /// The format of a document in a file, or of a text.
    pub(crate) fn resolve_for(self, path: Option<&Path>) -> DocumentFormat {
        let by_name = || {
            let archive = path.and_then(ArchiveFormat::from_path).map(DocumentFormat::Archive);
            archive.or_else(|| path.and_then(Format::from_path).map(DocumentFormat::Text))
        };
        match self {
            Self::Document(format) => DocumentFormat::Text(format),
            Self::Archive(format) => DocumentFormat::Archive(format),
            Self::Auto | Self::Table(_) => by_name().unwrap_or(DocumentFormat::Text(Format::Plain)),
        }
    }
}

/// The format of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DocumentFormat {
    Text(Format),
    Archive(ArchiveFormat),
}

/// The options of documents.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Documents")]
pub(crate) struct DocumentArguments {
    /// The format: text, markdown, html, srt, vtt, po, json, tmx or xliff; docx, pptx, xlsx, odt, odp, ods or epub, which need --file and
    /// --output; csv, tsv or jsonl with --column; auto goes by the name of the file, and else is text
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = FormatChoice::parse)]
    pub(crate) format: FormatChoice,
    /// Write to FILE, or for several files to DIR, under their names; a file appears when it is complete
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Keep what REGEX matches unchanged, as placeholders and addresses are kept; may be repeated
    #[arg(long, value_name = "REGEX")]
    pub(crate) keep: Vec<Regex>,
    /// Leave attributes of html that people read (alt, title, placeholder, ...), and titles and alternative texts of markdown
    #[arg(long)]
    pub(crate) no_attributes: bool,
    /// Require translations of terms: lines of a term, a tab and its translation
    #[arg(long, value_name = "FILE")]
    pub(crate) glossary: Option<PathBuf>,
    /// Read a sentence in capitals in small letters if the model knows these better, and put its translation into capitals
    /// (true)
    #[arg(long, value_name = "BOOL")]
    pub(crate) capitals: Option<bool>,
}

/// The options of tables.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Tables")]
pub(crate) struct TableArguments {
    /// Translate a column of a table: its name in the header, or else its number from 1; in jsonl a key
    ///
    /// Every other byte of the table stays as it is. Equal texts are computed once. A row that cannot be run is reported,
    /// and its cell is empty.
    #[arg(long, value_name = "NAME")]
    #[arg(conflicts_with_all = ["texts", "whole", "num_return_sequences", "explain", "stream", "json"])]
    pub(crate) column: Option<String>,
    /// The column of the output; an existing one is replaced, another name is appended
    ///
    /// Without this option, a column translation is appended.
    #[arg(long, value_name = "NAME", requires = "column")]
    pub(crate) to_column: Option<String>,
    /// The first row of csv or tsv has texts, not names
    #[arg(long, requires = "column")]
    pub(crate) no_header: bool,
    /// The character between the cells of csv; without this option a comma
    #[arg(long, value_name = "CHARACTER", requires = "column", value_parser = delimiter)]
    pub(crate) delimiter: Option<u8>,
    /// Continue the run of --output that was killed or had no more space; without one, begin
    ///
    /// The file has the bytes of a run that was not interrupted. The command line, the model and the input must be the
    /// same; threads, sessions, slots and the instruction set may be others.
    #[arg(long, requires = "column")]
    pub(crate) resume: bool,
}

/// The character between cells.
fn delimiter(text: &str) -> Result<u8, String> {
    let tab = ["\\t", "tab"].contains(&text).then_some("\t");
    match tab.unwrap_or(text).as_bytes() {
        &[byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(byte),
        _ => Err("expected one ASCII character, no quote and no line break".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::definition;

    #[test]
    fn the_help_names_every_format() {
        let command = definition();
        let translate = command.find_subcommand("translate");
        let format = translate.and_then(|one| {
            one.get_arguments().find(|argument| argument.get_long() == Some("format"))
        });
        let help = format.and_then(|format| format.get_help()).map(ToString::to_string);
        let help = help.unwrap_or_default();
        let names = Format::ALL.map(Format::name);
        for name in names.into_iter().chain(ArchiveFormat::ALL.map(ArchiveFormat::name)) {
            assert!(help.contains(name), "{name}: {help}");
        }
    }
}
