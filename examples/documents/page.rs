//! A page that follows one document: its sections in order, and for each number what the document prints, what simdformer
//! computes, and whether the two agree.

use crate::tensor::{Tensor, number, side_by_side, side_by_side_marked};
use std::fmt::{Display, Write};

/// Whose numbers ours stand beside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Origin {
    /// The document prints them.
    Document,
    /// A formula of the document in f64; the document does not print its value.
    Formula,
    /// Small numbers worked out on paper; the document does not have them.
    ByHand,
}

impl Origin {
    fn heading(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Formula => "formula",
            Self::ByHand => "by hand",
        }
    }
}

/// What was found about a row of a page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The numbers come out.
    Same(Origin),
    /// A property that must hold of the document's numbers, or of ours, holds.
    Holds,
    /// The numbers differ, or the property does not hold.
    Differs(String),
    /// The document prints the numbers and not what it takes to compute them: the page shows them, and the control sum
    /// of the transcription agrees.
    Shown(String),
    /// The document does not print what it takes to compute the numbers, nor the numbers.
    NotRecomputable(String),
}

/// One row: a place in the document and what was found there.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) section: String,
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
}

/// The text of a page, and its rows.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) text: String,
    pub(crate) rows: Vec<Row>,
    /// The places of all sections, in order.
    pub(crate) sections: Vec<String>,
    /// How many numbers of the document were recomputed.
    pub(crate) recomputed: usize,
    /// How many of them differ in the last printed digit.
    pub(crate) marked: usize,
    section: String,
}

/// The numbers that a document prints, and how precisely.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printed<'t> {
    pub(crate) numbers: &'t Tensor,
    /// Digits after the point.
    pub(crate) decimals: usize,
    /// Whether the numbers are exact and not rounded, as in an example of small integers.
    pub(crate) exact: bool,
    pub(crate) origin: Origin,
}

impl<'t> Printed<'t> {
    /// Numbers that the document rounds to `decimals` digits.
    pub(crate) fn rounded(numbers: &'t Tensor, decimals: usize) -> Self {
        Self { numbers, decimals, exact: false, origin: Origin::Document }
    }

    /// Exact numbers, printed with `decimals` digits.
    pub(crate) fn exact(numbers: &'t Tensor, decimals: usize) -> Self {
        Self { numbers, decimals, exact: true, origin: Origin::Document }
    }

    /// The values of a formula, which the document does not print.
    pub(crate) fn formula(numbers: &'t Tensor, decimals: usize) -> Self {
        Self { numbers, decimals, exact: true, origin: Origin::Formula }
    }

    /// Numbers worked out on paper, which the document does not print.
    pub(crate) fn by_hand(numbers: &'t Tensor, decimals: usize) -> Self {
        Self { numbers, decimals, exact: true, origin: Origin::ByHand }
    }

    /// Half of the last printed digit, or nothing.
    fn rounding(&self) -> f64 {
        if self.exact { 0.0 } else { 0.5 * 10f64.powi(-(self.decimals as i32)) }
    }
}

/// A computed tensor, and for each element how far the rounding of the document's inputs can move it.
#[derive(Clone, Debug)]
pub(crate) struct Computed {
    pub(crate) numbers: Tensor,
    pub(crate) error: Vec<f64>,
}

impl From<Tensor> for Computed {
    /// From inputs that are exact. f32 itself rounds: 16 units in the last place are allowed.
    fn from(numbers: Tensor) -> Self {
        let error =
            numbers.data.iter().map(|x| 16.0 * f64::from(x.abs().max(1.0)) * 2f64.powi(-24));
        Self { error: error.collect(), numbers }
    }
}

impl Page {
    pub(crate) fn new(title: &str, introduction: &str) -> Self {
        Self {
            text: format!("{title}\n{}\n\n{introduction}\n", "=".repeat(title.chars().count())),
            ..Self::default()
        }
    }

    /// Begins a section: the document's own number, and what it computes there.
    pub(crate) fn section(&mut self, place: &str, title: &str, what: &str) {
        self.section = place.to_owned();
        self.sections.push(place.to_owned());
        let heading = format!("{place}  {title}");
        let _ = write!(self.text, "\n{heading}\n{}\n", "-".repeat(heading.chars().count()));
        if !what.is_empty() {
            let _ = writeln!(self.text, "{what}");
        }
    }

    /// Plain text.
    pub(crate) fn say(&mut self, text: impl Display) {
        let _ = writeln!(self.text, "{text}");
    }

    /// Numbers that are shown and compared with nothing.
    pub(crate) fn show(&mut self, name: &str, numbers: &Tensor, decimals: usize) {
        let _ = write!(
            self.text,
            "\n  {name} {:?}\n{}",
            numbers.shape,
            side_by_side(&[""], &[numbers], decimals)
        );
    }

    /// Shows numbers that the document prints and from which nothing else follows. `control` is their
    /// [`control_sum`]: it says that the transcription is what it was, and nothing about the numbers.
    pub(crate) fn shown(
        &mut self,
        name: &str,
        numbers: &Tensor,
        decimals: usize,
        control: i64,
        why: &str,
    ) {
        self.show(name, numbers, decimals);
        self.control(name, control_sum(numbers, decimals), control, why);
    }

    /// [`Page::shown`] for words.
    pub(crate) fn shown_words(&mut self, name: &str, words: &[String], control: i64, why: &str) {
        let _ = writeln!(self.text, "\n  {name}\n    {}", words.join(" "));
        let letters: Vec<f32> = words.join(" ").chars().map(|c| u32::from(c) as f32).collect();
        let letters = Tensor::new(&[letters.len()], letters);
        self.control(name, control_sum(&letters, 0), control, why);
    }

    fn control(&mut self, name: &str, found: i64, expected: i64, why: &str) {
        let outcome = if found == expected {
            Outcome::Shown(why.to_owned())
        } else {
            Outcome::Differs(format!(
                "the control sum of the transcription is {found}, expected {expected}"
            ))
        };
        self.row(name, outcome);
    }

    /// Numbers that the document prints twice.
    pub(crate) fn printed_twice(&mut self, name: &str, first: &Tensor, second: &Tensor) {
        self.printed_twice_within(name, first, second, &vec![0.0; first.data.len()]);
    }

    /// Numbers that the document prints twice with different digits; `allowed` is how far apart the rounding puts them.
    pub(crate) fn printed_twice_within(
        &mut self,
        name: &str,
        first: &Tensor,
        second: &Tensor,
        allowed: &[f64],
    ) {
        let pairs = first.data.iter().zip(&second.data).zip(allowed);
        let apart = |&((&a, &b), &allowed): &((&f32, &f32), &f64)| {
            // `!(<=)`: NaN is not equal.
            !((f64::from(a) - f64::from(b)).abs() <= allowed)
        };
        let unequal = pairs.filter(apart).count();
        let all = first.data.len();
        let outcome = if unequal == 0 && second.data.len() == all {
            Outcome::Shown(format!("printed twice, {all} of {all} numbers are equal"))
        } else {
            Outcome::Differs(format!("printed twice, {unequal} of {all} numbers are not equal"))
        };
        let _ = writeln!(self.text, "\n  {name}");
        self.row(name, outcome);
    }

    /// Printed numbers beside ours. They are the same if no element differs by more than the last printed digit and the
    /// rounding of the inputs explain. A number of ours whose text differs has a `*`. `by` names the function that
    /// computed ours.
    pub(crate) fn compare(&mut self, name: &str, printed: Printed<'_>, ours: &Computed, by: &str) {
        let expected = printed.numbers;
        let heading = printed.origin.heading();
        let _ = write!(self.text, "\n  {name} {:?}, by {by}\n", expected.shape);
        if expected.data.len() != ours.numbers.data.len() {
            let found =
                format!("expected shape {:?}, found {:?}", expected.shape, ours.numbers.shape);
            return self.row(name, Outcome::Differs(found));
        }
        let text = |&x: &f32| number(x, printed.decimals);
        let marks: Vec<bool> =
            expected.data.iter().zip(&ours.numbers.data).map(|(e, o)| text(e) != text(o)).collect();
        let marked = marks.iter().filter(|&&mark| mark).count();
        if printed.origin == Origin::Document {
            self.recomputed += marks.len();
            self.marked += marked;
        }
        let _ = write!(
            self.text,
            "{}",
            side_by_side_marked(
                &[heading, "simdformer"],
                &[expected, &ours.numbers],
                printed.decimals,
                if marked > 0 { &marks } else { &[] },
            )
        );
        let mut largest = (0.0, 0.0);
        let mut wrong = None;
        for (i, (&e, &o)) in expected.data.iter().zip(&ours.numbers.data).enumerate() {
            let allowed = printed.rounding() + ours.error[i];
            // Equal infinities have no difference.
            let difference = if e == o { 0.0 } else { (f64::from(e) - f64::from(o)).abs() };
            if difference >= largest.0 {
                largest = (difference, allowed);
            }
            // `!(<=)`: NaN differs.
            if !(difference <= allowed) && wrong.is_none() {
                wrong = Some(format!(
                    "element {i}: the {heading} has {}, simdformer computes {o}; {difference:.2e} apart, allowed \
                     {allowed:.2e}",
                    number(e, printed.decimals)
                ));
            }
        }
        let outcome = wrong.map_or(Outcome::Same(printed.origin), Outcome::Differs);
        let _ = writeln!(
            self.text,
            "    largest difference {:.1e}, allowed there {:.1e}",
            largest.0, largest.1
        );
        if marked > 0 {
            let _ = writeln!(self.text, "    * {marked} differ in the last printed digit");
        }
        self.row(name, outcome);
    }

    /// Words or whole numbers of the document beside ours.
    pub(crate) fn compare_text(&mut self, name: &str, document: &str, ours: &str, by: &str) {
        self.compare_text_of(Origin::Document, name, document, ours, by);
    }

    /// [`Page::compare_text`] with what is not printed by the document.
    pub(crate) fn compare_text_of(
        &mut self,
        origin: Origin,
        name: &str,
        expected: &str,
        ours: &str,
        by: &str,
    ) {
        let heading = origin.heading();
        let _ = writeln!(
            self.text,
            "\n  {name}, by {by}\n    {heading:<10}  {expected}\n    simdformer  {ours}"
        );
        let outcome = if expected == ours {
            Outcome::Same(origin)
        } else {
            Outcome::Differs(format!("the {heading} has {expected}, simdformer gives {ours}"))
        };
        self.row(name, outcome);
    }

    /// A property that can be checked where numbers cannot be recomputed. `found` says what was measured.
    pub(crate) fn property(&mut self, name: &str, holds: bool, found: impl Display) {
        let _ = writeln!(self.text, "\n  {name}\n    {found}");
        let outcome = if holds { Outcome::Holds } else { Outcome::Differs(found.to_string()) };
        self.row(name, outcome);
    }

    /// Numbers for which the document does not print the inputs.
    pub(crate) fn not_recomputable(&mut self, name: &str, why: &str) {
        let _ = writeln!(self.text, "\n  {name}\n    not recomputable: {why}");
        self.rows.push(Row {
            section: self.section.clone(),
            name: name.to_owned(),
            outcome: Outcome::NotRecomputable(why.to_owned()),
        });
    }

    fn row(&mut self, name: &str, outcome: Outcome) {
        let verdict = match &outcome {
            Outcome::Same(Origin::Document) => "same".to_owned(),
            Outcome::Same(Origin::Formula) => "same as the formula".to_owned(),
            Outcome::Same(Origin::ByHand) => "same as by hand".to_owned(),
            Outcome::Holds => "holds".to_owned(),
            Outcome::Differs(how) => format!("DIFFERS: {how}"),
            Outcome::Shown(why) => format!("shown, not computed: {why}"),
            Outcome::NotRecomputable(why) => why.clone(),
        };
        let _ = writeln!(self.text, "    -> {verdict}");
        self.rows.push(Row { section: self.section.clone(), name: name.to_owned(), outcome });
    }
}

/// The sum of `(i + 1) x[i]`, with `x[i]` in units of the last printed digit. A change of one number changes it.
pub(crate) fn control_sum(numbers: &Tensor, decimals: usize) -> i64 {
    let unit = 10f64.powi(decimals as i32);
    let digits = numbers.data.iter().map(|&x| (f64::from(x) * unit).round() as i64);
    (1..).zip(digits).map(|(i, digits)| i * digits).sum()
}
