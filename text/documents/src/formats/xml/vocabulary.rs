//! What the elements of an XML format stand for: a format is a table.

/// What an element stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Text in its runs is a paragraph.
    Paragraph,
    /// Text directly in it is a paragraph.
    BareParagraph,
    /// Text with the same properties.
    Run,
    /// The properties of a run.
    Properties,
    /// The text of a run; without a run, a text of its own.
    Text,
    /// It is around words: a link, a span.
    Wrap,
    /// It is around words together with the next [`Self::WrapContent`] in it.
    WrapHead,
    WrapContent,
    /// A tab or the end of a line: what is before it and after it are two texts.
    Break,
    /// So many spaces; more than one are a [`Self::Break`], and one is as any other.
    Spaces,
    /// A character that has an element of its own.
    Character(char),
    /// A field: the model sees its text, which stays.
    Field,
    /// The begin, the middle or the end of a field of several runs.
    FieldMark,
    /// What such a field shows.
    Instruction,
    /// One of two marks around a part of the text, such as a bookmark: they stay in their order.
    Mark,
    /// Something without text, which stays, such as an image. Paragraphs in it are texts of their own. Unknown elements in a
    /// paragraph are this; those that have text themselves are a [`Self::Field`].
    Object,
    /// The begin or the end of a wrap whose ends are elements of their own, as in pairs for translators.
    PairBegin,
    PairEnd,
    /// It is left out of a paragraph that changes: a mark of the spelling checker.
    Dropped,
    /// Nothing in it is text.
    Skipped,
    /// What is read out in place of a picture: as an attribute of HTML it is text if the caller wants it.
    Description,
}

/// The elements of a namespace.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// Its names; the standards have a transitional and a strict one. Without a name it is any.
    pub(super) uris: &'static [&'static str],
    pub(super) elements: &'static [(&'static str, Role)],
}

/// What the elements of a format stand for. Paragraphs are found wherever they are.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(super) namespaces: &'static [Namespace],
    /// White space in bare paragraphs is one space; otherwise each line is a text.
    pub(super) collapse: bool,
    /// White space at the ends of a text stays only with `xml:space="preserve"`.
    pub(super) space_attribute: bool,
    /// A line end in the text of a run is one.
    pub(super) lines: bool,
    /// Attributes and elements of the properties of a run that say nothing about how it looks, by local name.
    pub(super) ignored: &'static [&'static str],
    /// Wraps with this attribute have a style of this document, by name.
    pub(super) styles: bool,
    /// Attributes that are read out in place of a picture or a table, of elements by local name.
    pub(super) attributes: &'static [(&'static str, &'static [&'static str])],
}

impl Vocabulary {
    /// Whether its paragraphs are cells of a workbook.
    pub(crate) fn has_cells(&self) -> bool {
        self.lines
    }
}

/// Of pictures and shapes, and of tables.
const DESCRIPTIONS: &[(&str, &[&str])] = &[
    ("docPr", &["title", "descr"]),
    ("cNvPr", &["title", "descr"]),
    ("tblCaption", &["val"]),
    ("tblDescription", &["val"]),
];

use Role::{
    BareParagraph, Break, Character, Description, Dropped, Field, FieldMark, Instruction, Mark,
    Object, PairBegin, PairEnd, Paragraph, Properties, Run, Skipped, Spaces, Text, Wrap,
    WrapContent, WrapHead,
};

const WORD: Namespace = Namespace {
    uris: &[
        "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "http://purl.oclc.org/ooxml/wordprocessingml/main",
    ],
    elements: &[
        ("p", Paragraph),
        ("r", Run),
        ("rPr", Properties),
        ("t", Text),
        ("tab", Break),
        ("ptab", Break),
        ("br", Break),
        ("cr", Break),
        ("noBreakHyphen", Character('\u{2011}')),
        ("softHyphen", Dropped),
        ("proofErr", Dropped),
        ("lastRenderedPageBreak", Dropped),
        ("hyperlink", Wrap),
        ("ins", Wrap),
        ("moveTo", Wrap),
        ("bdo", Wrap),
        ("dir", Wrap),
        ("smartTag", Wrap),
        ("customXml", Wrap),
        ("sdt", WrapHead),
        ("sdtContent", WrapContent),
        ("fldSimple", Field),
        ("fldChar", FieldMark),
        ("instrText", Instruction),
        ("bookmarkStart", Mark),
        ("bookmarkEnd", Mark),
        ("commentRangeStart", Mark),
        ("commentRangeEnd", Mark),
        ("moveFromRangeStart", Mark),
        ("moveFromRangeEnd", Mark),
        ("moveToRangeStart", Mark),
        ("moveToRangeEnd", Mark),
        ("permStart", Mark),
        ("permEnd", Mark),
        ("del", Skipped),
        ("moveFrom", Skipped),
        ("delText", Skipped),
        ("delInstrText", Skipped),
        ("ruby", Object),
    ],
};

/// Text documents of Office: the document, headers, footers, notes, comments.
pub(crate) const WORD_PROCESSING: Vocabulary = Vocabulary {
    // A document may have diagrams with text of their own.
    namespaces: &[WORD, DRAWING],
    collapse: false,
    space_attribute: true,
    lines: false,
    ignored: &["lang", "noProof", "rsidR", "rsidRPr", "rsidDel"],
    styles: false,
    attributes: DESCRIPTIONS,
};

const DRAWING: Namespace = Namespace {
    uris: &[
        "http://schemas.openxmlformats.org/drawingml/2006/main",
        "http://purl.oclc.org/ooxml/drawingml/main",
    ],
    elements: &[
        ("p", Paragraph),
        ("r", Run),
        ("rPr", Properties),
        ("t", Text),
        ("br", Break),
        ("fld", Field),
    ],
};

/// Slides, notes, charts and diagrams of Office, and the comments of slides.
pub(crate) const PRESENTATION: Vocabulary = Vocabulary {
    namespaces: &[
        DRAWING,
        Namespace {
            uris: &[
                "http://schemas.openxmlformats.org/presentationml/2006/main",
                "http://purl.oclc.org/ooxml/presentationml/main",
            ],
            elements: &[("text", BareParagraph)],
        },
        Namespace {
            uris: &[
                "http://schemas.openxmlformats.org/drawingml/2006/chart",
                "http://purl.oclc.org/ooxml/drawingml/chart",
            ],
            // The names of categories and series, as they were when the chart was saved.
            elements: &[("v", BareParagraph), ("numCache", Skipped), ("numLit", Skipped)],
        },
    ],
    collapse: false,
    space_attribute: false,
    lines: false,
    ignored: &["lang", "altLang", "dirty", "err", "smtClean", "smtId"],
    styles: false,
    attributes: DESCRIPTIONS,
};

/// The strings and comments of a workbook.
pub(crate) const SPREADSHEET: Vocabulary = Vocabulary {
    namespaces: &[
        Namespace {
            uris: &[
                "http://schemas.openxmlformats.org/spreadsheetml/2006/main",
                "http://purl.oclc.org/ooxml/spreadsheetml/main",
            ],
            elements: &[
                ("si", Paragraph),
                ("is", Paragraph),
                ("text", Paragraph),
                ("r", Run),
                ("rPr", Properties),
                ("t", Text),
                ("rPh", Skipped),
            ],
        },
        Namespace {
            uris: &["http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments"],
            elements: &[("text", BareParagraph)],
        },
        DRAWING,
    ],
    collapse: false,
    space_attribute: true,
    lines: true,
    ignored: &[],
    styles: false,
    attributes: &[],
};

/// Texts, tables and slides of OpenDocument.
pub(crate) const OPEN_DOCUMENT: Vocabulary = Vocabulary {
    namespaces: &[
        Namespace {
            uris: &["urn:oasis:names:tc:opendocument:xmlns:text:1.0"],
            elements: &[
                ("p", BareParagraph),
                ("h", BareParagraph),
                ("span", Wrap),
                ("a", Wrap),
                ("meta", Wrap),
                ("text-input", Wrap),
                ("s", Spaces),
                ("tab", Break),
                ("line-break", Break),
                ("soft-page-break", Dropped),
                ("bookmark-start", Mark),
                ("bookmark-end", Mark),
                ("reference-mark-start", Mark),
                ("reference-mark-end", Mark),
                ("alphabetical-index-mark-start", Mark),
                ("alphabetical-index-mark-end", Mark),
                ("user-index-mark-start", Mark),
                ("user-index-mark-end", Mark),
                ("toc-mark-start", Mark),
                ("toc-mark-end", Mark),
                ("change", Mark),
                ("change-start", Mark),
                ("change-end", Mark),
                ("note", Object),
                ("ruby", Object),
                ("tracked-changes", Skipped),
            ],
        },
        Namespace {
            uris: &["urn:oasis:names:tc:opendocument:xmlns:office:1.0"],
            elements: &[
                ("annotation", Object),
                ("annotation-end", Mark),
                ("scripts", Skipped),
                ("forms", Skipped),
            ],
        },
        Namespace {
            uris: &["urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"],
            elements: &[("a", Object)],
        },
        Namespace {
            uris: &["urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0"],
            elements: &[("content-control", Wrap)],
        },
        Namespace {
            uris: &["urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"],
            elements: &[("title", Description), ("desc", Description)],
        },
    ],
    collapse: true,
    space_attribute: false,
    lines: false,
    ignored: &["rsid", "paragraph-rsid"],
    styles: true,
    attributes: &[],
};

/// The contents of a book, for readers of EPUB 2.
pub(crate) const BOOK_CONTENTS: Vocabulary = Vocabulary {
    namespaces: &[Namespace {
        uris: &["http://www.daisy.org/z3986/2005/ncx/"],
        elements: &[("text", BareParagraph)],
    }],
    collapse: true,
    space_attribute: false,
    lines: false,
    ignored: &[],
    styles: false,
    attributes: &[],
};

/// What is in the texts of TMX and XLIFF.
pub(super) const PAIRS: Vocabulary = Vocabulary {
    namespaces: &[Namespace {
        uris: &[],
        elements: &[
            ("g", Wrap),
            ("pc", Wrap),
            ("hi", Wrap),
            ("mrk", Wrap),
            ("bpt", PairBegin),
            ("bx", PairBegin),
            ("sc", PairBegin),
            ("ept", PairEnd),
            ("ex", PairEnd),
            ("ec", PairEnd),
            ("x", Object),
            ("ph", Object),
            ("it", Object),
            ("ut", Object),
            ("cp", Object),
            ("sm", Mark),
            ("em", Mark),
        ],
    }],
    collapse: true,
    space_attribute: false,
    lines: false,
    ignored: &[],
    styles: false,
    attributes: &[],
};
