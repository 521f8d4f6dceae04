//! A page that follows one document: its sections in order, and for each number what the document prints, what simdformer
//! computes, and whether the two agree.

use crate::tensor::{Tensor, number, side_by_side};
use std::fmt::{Display, Write};

/// What was found about a row of a page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The document's numbers come out.
    Same,
    /// A property that must hold of the document's numbers, or of ours, holds.
    Holds,
    /// The numbers differ, or the property does not hold.
    Differs(String),
    /// The document does not print what it takes to compute the numbers.
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
    section: String,
}

/// The numbers that a document prints, and how precisely.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printed<'t> {
    pub(crate) numbers: &'t Tensor,
    /// Digits after the point.
    pub(crate) decimals: usize,
    /// Whether the document's numbers are exact and not rounded, as in an example of small integers.
    pub(crate) exact: bool,
}

impl<'t> Printed<'t> {
    /// Numbers that the document rounds to `decimals` digits.
    pub(crate) fn rounded(numbers: &'t Tensor, decimals: usize) -> Self {
        Self { numbers, decimals, exact: false }
    }

    /// Exact numbers, printed with `decimals` digits.
    pub(crate) fn exact(numbers: &'t Tensor, decimals: usize) -> Self {
        Self { numbers, decimals, exact: true }
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

    /// The document's numbers beside ours. They are the same if no element differs by more than the document's last
    /// printed digit and the rounding of its inputs explain. `by` names the function that computed ours.
    pub(crate) fn compare(&mut self, name: &str, printed: Printed<'_>, ours: &Computed, by: &str) {
        let expected = printed.numbers;
        let _ = write!(self.text, "\n  {name} {:?}, by {by}\n", expected.shape);
        if expected.data.len() != ours.numbers.data.len() {
            let found =
                format!("expected shape {:?}, found {:?}", expected.shape, ours.numbers.shape);
            return self.row(name, Outcome::Differs(found));
        }
        let _ = write!(
            self.text,
            "{}",
            side_by_side(&["document", "simdformer"], &[expected, &ours.numbers], printed.decimals)
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
                    "element {i}: the document prints {}, simdformer computes {o}; {difference:.2e} apart, allowed \
                     {allowed:.2e}",
                    number(e, printed.decimals)
                ));
            }
        }
        let outcome = wrong.map_or(Outcome::Same, Outcome::Differs);
        let _ = writeln!(
            self.text,
            "    largest difference {:.1e}, allowed there {:.1e}",
            largest.0, largest.1
        );
        self.row(name, outcome);
    }

    /// Words or whole numbers of the document beside ours.
    pub(crate) fn compare_text(&mut self, name: &str, document: &str, ours: &str, by: &str) {
        let _ = writeln!(
            self.text,
            "\n  {name}, by {by}\n    document    {document}\n    simdformer  {ours}"
        );
        let outcome = if document == ours {
            Outcome::Same
        } else {
            Outcome::Differs(format!("the document prints {document}, simdformer gives {ours}"))
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
            Outcome::Same => "same".to_owned(),
            Outcome::Holds => "holds".to_owned(),
            Outcome::Differs(how) => format!("DIFFERS: {how}"),
            Outcome::NotRecomputable(why) => why.clone(),
        };
        let _ = writeln!(self.text, "    -> {verdict}");
        self.rows.push(Row { section: self.section.clone(), name: name.to_owned(), outcome });
    }
}
