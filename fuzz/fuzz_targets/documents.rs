//! Arbitrary text as a document of each format. What is not translated must come back byte for byte.

#![no_main]

use libfuzzer_sys::fuzz_target;
use simdformer_text::document::{Document, Format};

fuzz_target!(|text: &str| {
    for format in Format::ALL {
        let Ok(document) = Document::parse(text, format) else { continue };
        let same =
            document.render(document.segments()).expect("as many segments as the document has");
        assert_eq!(same, text, "{format}");
        let mut changed = document.segments().to_vec();
        for segment in &mut changed {
            segment.text = segment.text.replace('e', "f");
        }
        let written = document.render(&changed).expect("marks in the text");
        if let Ok(again) = Document::parse(&written, format) {
            let same =
                again.render(again.segments()).expect("as many segments as the document has");
            assert_eq!(same, written, "{format}");
        }
    }
});
