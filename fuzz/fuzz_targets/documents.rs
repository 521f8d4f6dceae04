//! Arbitrary text as a document of each format, and as sentences. What is not translated must come back byte for byte, also
//! where only the texts in the markup of paragraphs change, and the writer must give what `render` gives.

#![no_main]

use libfuzzer_sys::fuzz_target;
use simdformer_documents::marked_text::MarkedText;
use simdformer_documents::sentences::SentenceSplitter;
use simdformer_documents::{Blocks, Document, DocumentWriter, Format};

/// The document with `change` of every segment whose index it is given.
fn changed(document: &Document, change: impl Fn(usize, &str) -> String) -> Vec<MarkedText> {
    let segments = document.segments().iter().enumerate();
    let new = |(index, segment): (usize, &MarkedText)| MarkedText {
        text: change(index, &segment.text),
        marks: segment.marks.clone(),
    };
    segments.map(new).collect()
}

fuzz_target!(|text: &str| {
    for format in Format::ALL {
        let parts: String =
            Blocks::new(text.as_bytes(), format, 16).map(|part| part.expect("UTF-8")).collect();
        assert_eq!(parts, text, "{format}");
        let Ok(document) = Document::parse(text, format) else { continue };
        let same =
            document.render(document.segments()).expect("as many segments as the document has");
        assert_eq!(same, text, "{format}");
        for every in 1..=2 {
            let segments = changed(&document, |index, text| match index % every {
                0 => text.replace('e', "f"),
                _ => text.to_owned(),
            });
            let written = document.render(&segments).expect("marks in the text");
            let mut writer = DocumentWriter::new(document.clone());
            let mut steps = String::new();
            for segment in &segments {
                writer.write(segment, &mut steps).expect("marks in the text");
            }
            writer.finish(&mut steps).expect("all segments");
            assert_eq!(steps, written, "{format}");
            if let Ok(again) = Document::parse(&written, format) {
                let same =
                    again.render(again.segments()).expect("as many segments as the document has");
                assert_eq!(same, written, "{format}");
            }
        }
        // What a translation may be: other text, empty, with markup; marks that are lost.
        for new in ["", "\"'<b>&{}#\\`|*_[](", "a\nb"] {
            let segments: Vec<MarkedText> = (0..document.segments().len())
                .map(|_| MarkedText { text: new.to_owned(), marks: Vec::new() })
                .collect();
            document.render(&segments).expect("no marks");
        }
    }
    let splitter = SentenceSplitter::new(Some("en"));
    let mut end = 0;
    for sentence in splitter.split(text) {
        assert!(sentence.start >= end && !text[sentence.clone()].trim().is_empty());
        end = sentence.end;
    }
    splitter.cut(text, &mut |part| part.len() < 8);
});
