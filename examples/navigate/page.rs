//! Sections of a walkthrough, and three styles to print them.

use std::fmt::Write;

/// If a tensor has more rows or columns, its middle is omitted.
const MOST_ROWS: usize = 12;
pub(crate) const MOST_COLUMNS: usize = 10;

/// One step of the walkthrough.
pub(crate) struct Section {
    /// The name for `--stage`.
    pub(crate) stage: String,
    pub(crate) title: String,
    /// The formula, and the file that computes it.
    pub(crate) note: String,
    pub(crate) lines: Vec<String>,
}

/// How to show sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Colour,
    Markdown,
}

impl Section {
    pub(crate) fn new(stage: &str, title: &str, note: &str) -> Self {
        let [stage, title, note] = [stage, title, note].map(str::to_owned);
        Self { stage, title, note, lines: Vec::new() }
    }

    pub(crate) fn line(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    pub(crate) fn show(&self, style: Style) -> String {
        let Self { title, note, lines, .. } = self;
        let body = lines.iter().fold(String::new(), |all, line| all + line.trim_end() + "\n");
        match style {
            Style::Plain => format!("== {title}\n   {note}\n\n{body}\n"),
            Style::Colour => {
                let body: String = body.lines().map(color_line).collect();
                format!("\x1b[1;36m== {title}\x1b[0m\n   \x1b[2m{note}\x1b[0m\n\n{body}\n")
            }
            Style::Markdown => format!("## {title}\n\n{note}\n\n```text\n{body}```\n\n"),
        }
    }
}

/// Highlights headings, which are lines that do not begin with a space.
fn color_line(line: &str) -> String {
    if line.starts_with(' ') || line.is_empty() {
        format!("{line}\n")
    } else {
        format!("\x1b[33m{line}\x1b[0m\n")
    }
}

/// A matrix with a name before each row and, if given, above each column; 4 decimals. The middle of a long matrix is
/// omitted.
pub(crate) fn matrix(names: &[&str], columns: Option<&[&str]>, rows: &[Vec<f32>]) -> Vec<String> {
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut lines = Vec::new();
    if let Some(columns) = columns {
        let mut line = format!("    {:width$}", "");
        for at in shown(columns.len(), MOST_COLUMNS) {
            let word = at.map_or("..", |at| columns[at]);
            let cell = if at.is_some() { 9 } else { 4 };
            let word: String = word.chars().take(cell - 1).collect();
            let _ = write!(line, "{word:>cell$}");
        }
        lines.push(line);
    }
    for at in shown(rows.len(), MOST_ROWS) {
        let Some(at) = at else {
            lines.push(format!("    {:width$}  ..", ""));
            continue;
        };
        let mut line = format!("    {:width$}", names.get(at).unwrap_or(&""));
        for column in shown(rows[at].len(), MOST_COLUMNS) {
            match column {
                // Avoids printing -0.0000.
                Some(column) => {
                    let _ = write!(line, "{:>9}", four(rows[at][column]));
                }
                None => line.push_str("  .."),
            }
        }
        lines.push(line);
    }
    lines
}

/// Four decimals, without a sign on zero.
pub(crate) fn four(x: f32) -> String {
    let text = format!("{x:.4}");
    if text == "-0.0000" { "0.0000".to_owned() } else { text }
}

/// The indices to print; `None` marks the omitted middle.
fn shown(len: usize, most: usize) -> Vec<Option<usize>> {
    if len <= most {
        return (0..len).map(Some).collect();
    }
    let half = most / 2 - 1;
    (0..half).map(Some).chain([None]).chain((len - half..len).map(Some)).collect()
}

/// Blocks of lines side by side, separated by two spaces.
pub(crate) fn beside(blocks: &[Vec<String>]) -> Vec<String> {
    let height = blocks.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = blocks
        .iter()
        .map(|block| block.iter().map(|line| line.chars().count()).max().unwrap_or(0))
        .collect();
    (0..height)
        .map(|i| {
            let mut line = String::from(" ");
            for (block, width) in blocks.iter().zip(&widths) {
                let cell = block.get(i).map_or("", String::as_str);
                let _ = write!(line, "  {cell:width$}");
            }
            line
        })
        .collect()
}
