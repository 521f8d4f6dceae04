//! Documents in, translations of their structure out. [`Translator::translate_reader`] reads a text in blocks,
//! [`Translator::translate_archive`] an archive part by part.

use super::cues::{Boundaries, Runs};
use super::model_and_tokenizer::Translator;
use super::segments::Translated;
use super::texts::Load;
use super::translation::TextTranslation;
use crate::error::Error;
use simdformer_documents::archives::{Archive, ArchiveFormat};
use simdformer_documents::sentences::SentenceSplitter;
use simdformer_documents::{Blocks, Document, DocumentWriter, Format, ReadOptions};
use std::collections::VecDeque;
use std::io::{BufRead, ErrorKind, Read, Seek, Write};

/// The least bytes of a block that is read.
const BLOCK: usize = 16 << 10;

impl Translator {
    /// Translates a document. Its structure stays: what is no text of it is copied.
    ///
    /// # Errors
    /// The document is not of its format; [`Error::FailedSentence`] for the first sentence without a translation
    /// ([`translate_reader`](Self::translate_reader) copies it, and says so of its text); as
    /// [`translate_sentences`](Self::translate_sentences).
    pub fn translate_document(&self, source: &str, format: Format) -> Result<String, Error> {
        let mut out = Vec::with_capacity(source.len());
        let documents = std::iter::once(Ok(source.to_owned()));
        let (mut index, mut failed) = (0, None);
        let mut on_text = |translation: &TextTranslation| {
            if let Some((sentence, one, failure)) = translation.failure() {
                let source = one.source.clone();
                failed = Some(Error::FailedSentence { index, sentence, source, failure });
                // Ends the call.
                return Err(ErrorKind::Other.into());
            }
            index += 1;
            Ok(())
        };
        let done = self.translate_blocks(documents, format, &mut out, &mut on_text);
        if let Some(failed) = failed {
            return Err(failed);
        }
        done?;
        String::from_utf8(out)
            .map_err(|error| Error::invalid_input("document", "UTF-8", format_args!("an {error}")))
    }

    /// Translates the document that `input` reads, and writes it to `output`, part by part. Calls `on_text` with each
    /// paragraph before it is written.
    ///
    /// Plain text and subtitles are read in blocks, so that memory does not depend on their length. All other formats are
    /// read whole, and written part by part.
    ///
    /// # Errors
    /// As [`translate_document`](Self::translate_document); errors of the streams and of `on_text`; the input is not UTF-8.
    pub fn translate_reader(
        &self,
        input: impl BufRead,
        format: Format,
        output: &mut dyn Write,
        on_text: &mut dyn FnMut(&TextTranslation) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        let blocks = Blocks::new(input, format, BLOCK)
            .map(|block| block.map_err(Error::of_stream("read", "the input")));
        self.translate_blocks(blocks, format, output, on_text)
    }

    /// Translates the archive that `input` reads (a document of Office or OpenDocument, or a book), and writes it to `output`.
    /// Calls `on_text` with each paragraph before its part is written.
    ///
    /// Parts without a change and all other entries are copied as they are. Memory is that of the parts whose sentences are
    /// translated together, not of the archive.
    ///
    /// # Errors
    /// As [`Archive`]; errors of the streams and of `on_text`; as [`translate_sentences`](Self::translate_sentences).
    pub fn translate_archive(
        &self,
        input: impl Read + Seek,
        format: ArchiveFormat,
        output: &mut dyn Write,
        on_text: &mut dyn FnMut(&TextTranslation) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        let archive = Archive::open_with(input, format, self.options.attributes)?;
        let mut parts = Parts { archive, text: String::new(), output };
        self.translate_each(&mut parts, on_text)?;
        let Parts { archive, output, .. } = parts;
        archive.finish(&mut *output)?;
        output.flush().map_err(Error::of_stream("written", OUTPUT))
    }

    fn translate_blocks(
        &self,
        blocks: impl Iterator<Item = Result<String, Error>>,
        format: Format,
        output: &mut dyn Write,
        on_text: &mut dyn FnMut(&TextTranslation) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        let (attributes, target) = (self.options.attributes, self.options.target.clone());
        let options = ReadOptions { attributes, target };
        self.translate_each(&mut OfBlocks { blocks, format, options, output }, on_text)
    }

    /// Translates documents one after the other; sentences of several are translated together.
    fn translate_each(
        &self,
        source: &mut dyn Documents,
        on_text: &mut dyn FnMut(&TextTranslation) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        let written = &Error::of_stream("written", OUTPUT);
        // The first document is partly written; `next` is the first segment of the last one that is not in the window.
        let mut documents: VecDeque<DocumentWriter> = VecDeque::new();
        let (mut next, mut ended) = (0, false);
        let mut runs = Runs::default();
        loop {
            let (mut window, mut load) = (Vec::new(), Load::default());
            while !load.is_full(self.engine.slots()) {
                let document = documents.back().map(DocumentWriter::document);
                if let Some(document) = document.filter(|d| next < d.segments().len()) {
                    let splitter = SentenceSplitter::new(self.options.source.as_deref());
                    let run = next..runs.end(document, next, &splitter);
                    let (text, boundaries) = Boundaries::join(document, run.clone());
                    let prepared = self.prepare_joined(&text, boundaries)?;
                    load.add(&text.text, &prepared);
                    window.push(prepared);
                    next = run.end;
                } else if let Some(document) = source.next()? {
                    load.bytes += document.source().len();
                    documents.push_back(DocumentWriter::new(document));
                    (next, runs) = (0, Runs::default());
                } else {
                    ended = true;
                    break;
                }
            }
            let mut out = String::new();
            for Translated { text, pieces } in self.translate_prepared(&window)? {
                let pieces = if pieces.is_empty() { vec![text.target.clone()] } else { pieces };
                for piece in &pieces {
                    finish_written(&mut documents, &mut out, source)?;
                    let Some(first) = documents.front_mut() else { break };
                    first.write(piece, &mut out)?;
                }
                on_text(&text).map_err(written)?;
                source.write(&mut out)?;
            }
            // The last document may still have segments that were not in the window.
            finish_written(&mut documents, &mut out, source)?;
            if documents.is_empty() {
                next = 0;
            }
            source.write(&mut out)?;
            source.flush()?;
            if ended {
                return Ok(());
            }
        }
    }
}

/// What errors call the output.
const OUTPUT: &str = "the output";

/// Documents, and where they are written in their order.
trait Documents {
    /// The next one.
    fn next(&mut self) -> Result<Option<Document>, Error>;

    /// Writes more of the first document that is not ended, and empties `text`.
    fn write(&mut self, text: &mut String) -> Result<(), Error>;

    /// Ends it.
    fn end(&mut self) -> Result<(), Error>;

    /// What was written is to be seen.
    fn flush(&mut self) -> Result<(), Error>;
}

/// The parts of a text.
struct OfBlocks<'o, I> {
    blocks: I,
    format: Format,
    options: ReadOptions,
    output: &'o mut dyn Write,
}

impl<I: Iterator<Item = Result<String, Error>>> Documents for OfBlocks<'_, I> {
    fn next(&mut self) -> Result<Option<Document>, Error> {
        let Some(block) = self.blocks.next() else { return Ok(None) };
        Ok(Some(Document::parse_with(&block?, self.format, &self.options)?))
    }

    fn write(&mut self, text: &mut String) -> Result<(), Error> {
        let written = self.output.write_all(text.as_bytes());
        text.clear();
        written.map_err(Error::of_stream("written", OUTPUT))
    }

    fn end(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.output.flush().map_err(Error::of_stream("written", OUTPUT))
    }
}

/// The parts of an archive.
struct Parts<'o, R> {
    archive: Archive<R>,
    /// What is written of a part: it is compressed when it is whole.
    text: String,
    output: &'o mut dyn Write,
}

impl<R: Read + Seek> Documents for Parts<'_, R> {
    fn next(&mut self) -> Result<Option<Document>, Error> {
        Ok(self.archive.next_document()?)
    }

    fn write(&mut self, text: &mut String) -> Result<(), Error> {
        self.text.push_str(text);
        text.clear();
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        let text = std::mem::take(&mut self.text);
        Ok(self.archive.write_document(&text, self.output)?)
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Writes the ends of the first documents that have no segment left.
fn finish_written(
    documents: &mut VecDeque<DocumentWriter>,
    out: &mut String,
    source: &mut dyn Documents,
) -> Result<(), Error> {
    let is_written = |one: &mut DocumentWriter| one.next_segment().is_none();
    while let Some(first) = documents.pop_front_if(is_written) {
        first.finish(out)?;
        source.write(out)?;
        source.end()?;
    }
    Ok(())
}
