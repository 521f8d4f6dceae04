//! Changes one number, id or word of what a document prints, and looks whether its page notices.
//!
//! By day a sample of the changes, with `SIMDFORMER_TESTS=full` all of them.

use crate::compute::random;
use crate::page::Outcome;
use crate::{DOCUMENTS, Document};
use serde_json::Value;

/// What kind of thing a change changes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A number with digits after the point, changed by 0.001 or more.
    Number,
    /// An id, a length, a mask: a whole number.
    Whole,
    Word,
}

/// How a page notices a change.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Noticed {
    /// A number that is computed from others differs, a property does not hold, or the page is an error.
    Computed,
    /// Only the control sum of the transcription differs.
    Control,
    No,
}

/// A place in the data and what to put there.
struct Change {
    kind: Kind,
    pointer: String,
    value: Value,
}

/// The JSON pointers of all numbers and words below `value`.
fn leaves(value: &Value, pointer: &str, out: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                leaves(item, &format!("{pointer}/{i}"), out);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                leaves(field, &format!("{pointer}/{name}"), out);
            }
        }
        _ => out.push(pointer.to_owned()),
    }
}

/// The pointer of the tensor or list that holds a leaf.
fn list(pointer: &str) -> &str {
    pointer.trim_end_matches(|c: char| c.is_ascii_digit() || c == '/')
}

/// All changes of a document's data.
fn changes(data: &Value) -> Vec<Change> {
    let mut pointers = Vec::new();
    leaves(data, "", &mut pointers);
    let words: Vec<&str> =
        pointers.iter().filter_map(|pointer| data.pointer(pointer)?.as_str()).collect();
    let mut all = Vec::new();
    let mut seed = 49;
    for pointer in &pointers {
        let found = data.pointer(pointer).expect("a leaf");
        let mut add = |kind, value| all.push(Change { kind, pointer: pointer.clone(), value });
        if let Some(word) = found.as_str() {
            let at = ((random(&mut seed) + 1.0) / 2.0 * words.len() as f32) as usize;
            let other = words.iter().cycle().skip(at).find(|other| **other != word);
            for other in other.copied().into_iter().chain(["other"]) {
                add(Kind::Word, other.into());
            }
            continue;
        }
        let mut others = pointers.iter().filter(|other| list(other) == list(pointer));
        if others.all(|other| data.pointer(other).is_some_and(Value::is_i64)) {
            let x = found.as_i64().expect("a whole number");
            let mut others = pointers.iter().filter(|other| list(other) == list(pointer));
            let binary = others
                .all(|other| matches!(data.pointer(other).and_then(Value::as_i64), Some(0 | 1)));
            if binary {
                add(Kind::Whole, (1 - x).into());
            } else {
                add(Kind::Whole, (x + 1).into());
                add(Kind::Whole, (x - 1).into());
            }
            continue;
        }
        let x = found.as_f64().expect("a number");
        // -1e9 has no thousandths in f32.
        let unit = if x.abs() > 1000.0 { x.abs() } else { 1.0 };
        // From 0.001 to 1, most of them small.
        let more = 0.001 * 1000f64.powf(f64::from((random(&mut seed) + 1.0) / 2.0));
        let sign = if random(&mut seed) < 0.0 { -1.0 } else { 1.0 };
        for change in [0.001, -0.001, more * sign] {
            add(Kind::Number, (x + change * unit).into());
        }
    }
    all
}

fn notice(document: &Document, data: &Value) -> Noticed {
    let Ok(page) = (document.page)(data) else { return Noticed::Computed };
    let mut noticed = Noticed::No;
    for row in &page.rows {
        if let Outcome::Differs(how) = &row.outcome {
            if !how.starts_with("the control sum") {
                return Noticed::Computed;
            }
            noticed = Noticed::Control;
        }
    }
    noticed
}

/// Tries every `stride`th change; all if `SIMDFORMER_TESTS=full`.
fn check(name: &str, stride: usize) {
    let full = std::env::var_os("SIMDFORMER_TESTS").is_some_and(|value| value == "full");
    let document = DOCUMENTS.iter().find(|d| d.name == name).expect("a document");
    let data = document.data().expect("data");
    assert_eq!(notice(document, &data), Noticed::No);
    let (mut tried, mut computed, mut control) = ([0usize; 3], [0usize; 3], [0usize; 3]);
    let mut missed = Vec::new();
    for change in changes(&data).iter().step_by(if full { 1 } else { stride }) {
        let mut changed = data.clone();
        *changed.pointer_mut(&change.pointer).expect("a leaf") = change.value.clone();
        let kind = change.kind as usize;
        tried[kind] += 1;
        match notice(document, &changed) {
            Noticed::Computed => computed[kind] += 1,
            Noticed::Control => control[kind] += 1,
            Noticed::No => {
                missed.push((change.kind, format!("{} = {}", change.pointer, change.value)))
            }
        }
    }
    for (kind, what) in ["numbers", "ids and masks", "words"].iter().enumerate() {
        let [tried, computed, control] = [tried, computed, control].map(|counts| counts[kind]);
        println!(
            "{name}: of {tried} changed {what} {computed} are noticed by a computation, {control} by a control sum only"
        );
    }
    let numbers = missed.iter().filter(|(kind, _)| *kind == Kind::Number).count();
    assert_eq!(numbers, missed.len(), "{missed:?}");
    let noticed = (tried[0] - numbers) as f64 / tried[0].max(1) as f64;
    println!("{name}: {missed:?}");
    assert!(tried[0] == 0 || noticed >= 0.97, "{noticed:.4} of {} numbers: {missed:?}", tried[0]);
}

#[test]
fn a_changed_chapter_is_noticed() {
    check("attention", 97);
}

#[test]
fn changed_slides_are_noticed() {
    check("slides", 43);
}

#[test]
fn changed_notes_are_noticed() {
    check("decoder", 23);
}

#[test]
fn a_changed_architecture_is_noticed() {
    check("transformer", 47);
}

#[test]
fn a_changed_walkthrough_is_noticed() {
    check("walkthrough", 149);
}
