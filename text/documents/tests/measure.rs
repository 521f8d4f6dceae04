//! F1 of sentence boundaries, by language: of this crate's rules and of UAX #29 alone.

use simdformer_documents::sentences::SentenceSplitter;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::iter::Sum;
use std::ops::Add;
use std::path::{Path, PathBuf};
use unicode_segmentation::UnicodeSegmentation as _;

/// Boundaries between two sentences of a paragraph.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    right: usize,
    wrong: usize,
    missed: usize,
}

impl Counts {
    fn of(known: &BTreeSet<usize>, found: &BTreeSet<usize>) -> Self {
        let right = known.intersection(found).count();
        Self { right, wrong: found.len() - right, missed: known.len() - right }
    }

    pub fn f1(self) -> f64 {
        let all = 2 * self.right + self.wrong + self.missed;
        if all == 0 { 1.0 } else { 2.0 * self.right as f64 / all as f64 }
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            right: self.right + other.right,
            wrong: self.wrong + other.wrong,
            missed: self.missed + other.missed,
        }
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(iterator: I) -> Self {
        iterator.fold(Self::default(), Add::add)
    }
}

/// A language: the odd paragraphs, the first among them, and the even ones.
pub struct Measured {
    pub language: String,
    pub sentences: usize,
    pub odd: Counts,
    pub even: Counts,
    pub uax_odd: Counts,
    pub uax_even: Counts,
    /// Paragraphs with a wrong boundary, split by the rules.
    pub mistakes: Vec<Vec<String>>,
}

/// A file of sentences.
pub struct File {
    pub language: String,
    pub text: String,
}

/// The sentences of this repository.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sentences")
}

/// The files `XX.txt` of a folder, by language.
pub fn files(folder: &Path) -> io::Result<Vec<File>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let language = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            all.push(File { language, text: std::fs::read_to_string(path)? });
        }
    }
    all.sort_by(|a, b| a.language.cmp(&b.language));
    Ok(all)
}

/// The sentences of each paragraph.
pub fn paragraphs(text: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let all = lines.split(|line| line.is_empty()).filter(|lines| !lines.is_empty());
    all.map(<[&str]>::to_vec).collect()
}

/// A paragraph, and where its sentences begin but the first.
pub fn join(language: &str, sentences: &[&str]) -> (String, BTreeSet<usize>) {
    let space = if ["zh", "ja"].contains(&language) { "" } else { " " };
    let mut text = String::new();
    let mut starts = BTreeSet::new();
    for sentence in sentences {
        if !text.is_empty() {
            text.push_str(space);
            starts.insert(text.len());
        }
        text.push_str(sentence);
    }
    (text, starts)
}

/// The languages of a folder.
pub fn measure(folder: &Path) -> io::Result<Vec<Measured>> {
    Ok(files(folder)?.iter().map(one).collect())
}

fn one(file: &File) -> Measured {
    let splitter = SentenceSplitter::new(Some(&file.language));
    let mut measured = Measured {
        language: file.language.clone(),
        sentences: 0,
        odd: Counts::default(),
        even: Counts::default(),
        uax_odd: Counts::default(),
        uax_even: Counts::default(),
        mistakes: Vec::new(),
    };
    for (number, sentences) in paragraphs(&file.text).iter().enumerate() {
        let (text, known) = join(&file.language, sentences);
        let ranges = splitter.split(&text);
        let found = ranges.iter().skip(1).map(|range| range.start).collect();
        let uax = text.split_sentence_bound_indices().skip(1).map(|(at, _)| at).collect();
        let (own, uax) = (Counts::of(&known, &found), Counts::of(&known, &uax));
        if own.wrong + own.missed > 0 {
            let parts = ranges.into_iter().map(|range| text[range].to_owned());
            measured.mistakes.push(parts.collect());
        }
        measured.sentences += sentences.len();
        if number % 2 == 0 {
            measured.odd = measured.odd + own;
            measured.uax_odd = measured.uax_odd + uax;
        } else {
            measured.even = measured.even + own;
            measured.uax_even = measured.uax_even + uax;
        }
    }
    measured
}

/// The table of the languages.
pub fn table(all: &[Measured]) -> String {
    let mut text = String::from(
        "| language | sentences | F1 | F1 of the even paragraphs | UAX #29 | UAX #29, even |\n|---|---|---|---|---|---|\n",
    );
    let mut row = |name: &str, sentences: usize, counts: [Counts; 4]| {
        let [all, even, uax, uax_even] = counts.map(Counts::f1);
        let _ = writeln!(
            text,
            "| {name} | {sentences} | {all:.3} | {even:.3} | {uax:.3} | {uax_even:.3} |"
        );
    };
    let counts =
        |one: &Measured| [one.odd + one.even, one.even, one.uax_odd + one.uax_even, one.uax_even];
    for one in all {
        row(&one.language, one.sentences, counts(one));
    }
    let sum = |at: usize| all.iter().map(|one| counts(one)[at]).sum::<Counts>();
    let sentences = all.iter().map(|one| one.sentences).sum();
    row("all", sentences, [sum(0), sum(1), sum(2), sum(3)]);
    text
}
