//! Holds `docs/documents.md` and `docs/documents.tsv` against the pages: each section that a row names must exist, each
//! section of a page must be named, and the counts of a page must be those of the table.

use crate::Counts;
use crate::page::Page;

const PAGE: &str = include_str!("../../docs/documents.md");
const ROWS: &str = include_str!("../../docs/documents.tsv");

/// The sections of the document `name` that the rows name.
fn named(name: &str) -> Vec<&'static str> {
    let command = format!("`documents {name}` ");
    let mut sections = Vec::new();
    // Only the tables: the text names pages, too.
    for row in PAGE.lines().filter(|line| line.starts_with("| ")).chain(ROWS.lines()) {
        for (at, found) in row.match_indices(&command) {
            let rest = &row[at + found.len()..];
            let end = rest.find([';', ')', '|']).unwrap_or(rest.len());
            sections.extend(rest[..end].trim().split(", "));
        }
    }
    sections
}

/// The row of a page in the table of counts.
fn counts(name: &str, page: &Page) -> String {
    let Counts { same: [same, formula, by_hand], holds, shown, not_recomputable, .. } =
        Counts::of(page);
    format!(
        "| `{name}` | {} | {} | {same} | {formula} | {by_hand} | {holds} | {shown} | {not_recomputable} |",
        page.recomputed, page.marked
    )
}

/// What does not agree between the tables and the page of `name`.
pub(crate) fn check(name: &str, page: &Page) -> Vec<String> {
    let named = named(name);
    let missing = named.iter().filter(|section| !page.sections.iter().any(|s| s == *section));
    let unnamed = page.sections.iter().filter(|section| !named.contains(&section.as_str()));
    let counts = counts(name, page);
    let uncounted = (!PAGE.lines().any(|line| line == counts))
        .then(|| format!("docs/documents.md has other counts of {name}, expected {counts}"));
    missing
        .map(|section| {
            format!("docs/documents.md names section {section:?} of {name}, which has none")
        })
        .chain(unnamed.map(|section| {
            format!("docs/documents.md does not name section {section:?} of {name}")
        }))
        .chain(uncounted)
        .collect()
}
