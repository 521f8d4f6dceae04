//! Heatmaps of attention: a page of panels as SVG or PNG, and a compact form for the terminal.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::sync::Arc;

/// The maximum width of a label in terminal columns.
const LONGEST_LABEL: usize = 16;
/// Panels side by side.
const PANELS_PER_ROW: usize = 4;
/// With more tokens, each panel has its own color scale up to its large weights, and only some tokens have labels.
pub(crate) const LARGE: usize = 100;
/// The side of a large map.
const LARGE_SIDE: f32 = 800.0;
/// The colors of overlaid heads.
const HUES: [[f32; 3]; 8] = [
    [31.0, 119.0, 180.0],
    [214.0, 39.0, 40.0],
    [44.0, 160.0, 44.0],
    [255.0, 127.0, 14.0],
    [148.0, 103.0, 189.0],
    [23.0, 190.0, 207.0],
    [140.0, 86.0, 75.0],
    [227.0, 119.0, 194.0],
];
/// The maximum number of pixels of a PNG; a larger picture is scaled down. Tests do not check pixels, so they draw
/// few.
const MOST_PIXELS: f32 = if cfg!(test) { 1e5 } else { 4e7 };
const MARGIN: f32 = 24.0;
const HEADER: f32 = 84.0;
const TITLE: f32 = 14.0;

/// The weights of a head, a row per query, or those of several heads, one over the other.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) maps: Vec<Vec<Vec<f32>>>,
}

impl Panel {
    /// The weight that only one of a hundred cells with a weight exceeds.
    fn darkest(&self) -> f32 {
        let all = self.maps.iter().flatten().flatten();
        let mut weights: Vec<f32> = all.copied().filter(|&weight| weight > 0.0).collect();
        weights.sort_by(f32::total_cmp);
        weights.get(weights.len() * 99 / 100).copied().unwrap_or(1.0)
    }
}

/// One kind of attention of a sentence.
pub(crate) struct Page {
    pub(crate) title: String,
    /// Labels of the rows: the query tokens.
    pub(crate) queries: Vec<String>,
    /// Labels of the columns: the key tokens.
    pub(crate) keys: Vec<String>,
    /// The last keys that are padding of the batch: their columns are empty.
    pub(crate) padding: usize,
    /// The heads of each panel, each with its own color; empty if a panel has one head.
    pub(crate) overlaid: Vec<usize>,
    pub(crate) panels: Vec<Panel>,
}

/// Terminal columns of a character: 2 for wide scripts, 0 for combining marks.
fn letter_width(letter: char) -> usize {
    match u32::from(letter) {
        0x300..=0x36f | 0x483..=0x489 | 0x591..=0x5bd | 0x610..=0x61a | 0x64b..=0x65f => 0,
        0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x2069 | 0xfe00..=0xfe0f => 0,
        0x900..=0x902 | 0x93c | 0x941..=0x948 | 0x94d | 0xe31 | 0xe34..=0xe3a | 0xe47..=0xe4e => 0,
        0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xac00..=0xd7a3 => 2,
        0xf900..=0xfaff | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 => 2,
        0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

pub(crate) fn width(text: &str) -> usize {
    text.chars().map(letter_width).sum()
}

/// The text without control characters, cut to `most` columns.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let clean: String = text.chars().filter(|letter| !letter.is_control()).collect();
    if width(&clean) <= most {
        return clean;
    }
    let mut out = String::new();
    for letter in clean.chars() {
        if width(&out) + letter_width(letter) + 1 > most {
            break;
        }
        out.push(letter);
    }
    out + "…"
}

/// Isolates right-to-left text, so that it does not change the direction of the rest of its line.
pub(crate) fn isolated(text: &str) -> String {
    let turns = |letter: char| matches!(u32::from(letter), 0x590..=0x8ff | 0xfb1d..=0xfdff | 0xfe70..=0xfefc | 0x10800..=0x10fff | 0x1e800..=0x1efff);
    if text.contains(turns) { format!("\u{2068}{text}\u{2069}") } else { text.to_owned() }
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

/// The color of a weight: white for 0, dark blue for 1.
fn color(weight: f32) -> String {
    const STOPS: [[f32; 3]; 5] = [
        [255.0, 255.0, 255.0],
        [182.0, 211.0, 232.0],
        [92.0, 154.0, 203.0],
        [30.0, 88.0, 154.0],
        [8.0, 30.0, 76.0],
    ];
    let at = weight.clamp(0.0, 1.0) * 4.0;
    // NaN clamps to NaN and converts to stop 0, so it needs a distinct color.
    if at.is_nan() {
        return "#ff00ff".to_owned();
    }
    let low = (at as usize).min(3);
    let mix =
        |i: usize| (STOPS[low][i] + (at - low as f32) * (STOPS[low + 1][i] - STOPS[low][i])) as u8;
    format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
}

/// The color of a cell with a weight of each overlaid head: each takes the other colors from white.
fn overlay(weights: impl Iterator<Item = f32>) -> String {
    let mut light = [255.0f32; 3];
    for (weight, hue) in weights.zip(HUES.iter().cycle()) {
        for (light, hue) in light.iter_mut().zip(hue) {
            *light *= 1.0 - weight.clamp(0.0, 1.0) * (1.0 - hue / 255.0);
        }
    }
    if light.iter().any(|light| light.is_nan()) {
        return color(f32::NAN);
    }
    let [red, green, blue] = light.map(|light| light as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Sizes of the parts of a page.
struct Layout {
    cell: f32,
    font: f32,
    left: f32,
    top: f32,
    panel: [f32; 2],
    columns: usize,
    size: [f32; 2],
    /// More than [`LARGE`] tokens.
    large: bool,
}

impl Page {
    fn labels(words: &[String]) -> Vec<String> {
        words.iter().map(|word| cut(word, LONGEST_LABEL)).collect()
    }

    fn layout(&self) -> Layout {
        let longest = self.keys.len().max(self.queries.len()).max(1);
        let large = longest > LARGE;
        let side = if large { LARGE_SIDE } else { (420.0 / longest as f32).clamp(13.0, 30.0) };
        let cell = if large { side / longest as f32 } else { side };
        let font = if large { 10.0 } else { (cell * 0.8).min(13.0) };
        let label_width = |words: &[String]| {
            let columns = Self::labels(words).iter().map(|word| width(word)).max().unwrap_or(0);
            let position = if large { 5 } else { 0 };
            (columns + position) as f32 * font * 0.66 + 10.0
        };
        let (left, top) = (label_width(&self.queries), label_width(&self.keys) + TITLE + 12.0);
        let panel = [
            (left + self.keys.len() as f32 * cell).max(150.0) + MARGIN,
            top + self.queries.len() as f32 * cell + MARGIN,
        ];
        let columns = self.panels.len().clamp(1, PANELS_PER_ROW);
        let rows = self.panels.len().div_ceil(columns);
        let size = [
            (columns as f32 * panel[0] + MARGIN).max(760.0),
            HEADER + rows as f32 * panel[1] + MARGIN,
        ];
        Layout { cell, font, left, top, panel, columns, size, large }
    }

    /// The color of a cell, with weights divided by `darkest` if that is given; `None` if it is white.
    fn fill(panel: &Panel, [i, j]: [usize; 2], darkest: Option<f32>) -> Option<String> {
        // The square root makes small weights of a large map visible; steps keep its file small.
        let scaled = |weight: f32| match darkest {
            Some(darkest) => ((weight / darkest).sqrt().min(1.0) * 16.0).round() / 16.0,
            None => weight,
        };
        let mut weights = panel.maps.iter().map(|map| scaled(map[i][j]));
        if weights.clone().all(|weight| weight < 1.0 / 512.0) {
            return None;
        }
        match panel.maps.len() {
            1 => weights.next().map(color),
            _ => Some(overlay(weights)),
        }
    }

    /// The page as SVG.
    pub(crate) fn svg(&self) -> String {
        let layout = self.layout();
        let [wide, high] = layout.size;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide:.0}\" height=\"{high:.0}\" \
             viewBox=\"0 0 {wide:.0} {high:.0}\" font-family=\"DejaVu Sans, sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        text(&mut svg, [MARGIN, 36.0], 20.0, "start", &self.title);
        let mut legend = "rows: queries, columns: keys; each row sums to 1".to_owned();
        if self.padding > 0 {
            legend.push_str("; gray: padding");
        }
        if self.overlaid.len() > 1 {
            legend.push_str("; dark: several heads");
        }
        text(&mut svg, [MARGIN, 60.0], 12.0, "start", &legend);
        if self.overlaid.is_empty() && !layout.large {
            scale(&mut svg, [wide - MARGIN - 200.0, 24.0]);
        }
        for (i, head) in self.overlaid.iter().enumerate() {
            let (x, y) = (wide - 300.0 + 70.0 * (i % 4) as f32, 12.0 + 18.0 * (i / 4) as f32);
            let mut weights = vec![0.0; i + 1];
            weights[i] = 1.0;
            let fill = overlay(weights.into_iter());
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"12.0\" height=\"12.0\" fill=\"{fill}\"/>"
            );
            text(&mut svg, [x + 16.0, y + 10.0], 11.0, "start", &format!("head {head}"));
        }
        for (i, panel) in self.panels.iter().enumerate() {
            let x = MARGIN + (i % layout.columns) as f32 * layout.panel[0];
            let y = HEADER + (i / layout.columns) as f32 * layout.panel[1];
            self.panel(&mut svg, &layout, panel, [x, y]);
        }
        svg + "</svg>\n"
    }

    fn panel(&self, svg: &mut String, layout: &Layout, panel: &Panel, [x, y]: [f32; 2]) {
        let &Layout { cell, font, left, top, large, .. } = layout;
        let [x0, y0] = [x + left, y + top].map(|at| if large { at.round() } else { at });
        let darkest = large.then(|| panel.darkest());
        let title = match darkest {
            Some(darkest) => format!("{}, darkest from {darkest:.4} on", panel.title),
            None => panel.title.clone(),
        };
        text(svg, [x0, y + TITLE], TITLE, "start", &title);
        // Labels of a large map are as far apart as lines of text, and have the position.
        let every = (1.3 * font / cell).ceil().max(1.0) as usize;
        let every = if large { every } else { 1 };
        let label = |at: usize, word: &str| match large {
            true => format!("{at} {word}"),
            false => word.to_owned(),
        };
        for (j, key) in Self::labels(&self.keys).iter().enumerate().step_by(every) {
            let (x, y) = (x0 + (j as f32 + 0.5) * cell + font * 0.35, y0 - 5.0);
            let _ = writeln!(
                svg,
                "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" font-size=\"{font:.1}\">{}</text>",
                escape(&label(j, key))
            );
        }
        for (i, query) in Self::labels(&self.queries).iter().enumerate().step_by(every) {
            let y = y0 + (i as f32 + 0.5) * cell + font * 0.35;
            text(svg, [x0 - 5.0, y], font, "end", &label(i, query));
        }
        if self.padding > 0 {
            let x = x0 + (self.keys.len() - self.padding) as f32 * cell;
            let (w, h) = (self.padding as f32 * cell, self.queries.len() as f32 * cell);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y0:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"#eee\"/>"
            );
        }
        // Neighbors of one color in a row of a large map are one stroke, and the strokes of a color one path, in units of
        // cells: one rectangle for each cell would be fifty megabytes.
        let mut paths: BTreeMap<String, String> = BTreeMap::new();
        for i in 0..self.queries.len() {
            let fills: Vec<Option<String>> =
                (0..self.keys.len()).map(|j| Self::fill(panel, [i, j], darkest)).collect();
            let mut start = 0;
            for run in fills.chunk_by(|a, b| large && a == b) {
                let (x, y) = (x0 + start as f32 * cell, y0 + i as f32 * cell);
                match &run[0] {
                    Some(fill) if large => {
                        let path = paths.entry(fill.clone()).or_default();
                        let _ = write!(path, "M{start} {i}h{}", run.len());
                    }
                    Some(fill) => {
                        let _ = writeln!(
                            svg,
                            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{cell:.1}\" height=\"{cell:.1}\" fill=\"{fill}\"/>"
                        );
                    }
                    None => {}
                }
                start += run.len();
            }
        }
        for (color, path) in paths {
            let y = y0 + cell / 2.0;
            let _ = writeln!(
                svg,
                "<path transform=\"translate({x0:.1} {y:.1}) scale({cell})\" d=\"{path}\" stroke=\"{color}\"/>"
            );
        }
        let (w, h) = (self.keys.len() as f32 * cell, self.queries.len() as f32 * cell);
        let _ = writeln!(
            svg,
            "<rect x=\"{x0:.1}\" y=\"{y0:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"none\" stroke=\"#888\"/>"
        );
    }

    /// The page as PNG: the SVG, rasterized with the system's fonts and one built-in font.
    pub(crate) fn png(&self) -> Result<Vec<u8>, Box<dyn Error>> {
        use resvg::{tiny_skia, usvg};
        let mut fonts = usvg::fontdb::Database::new();
        fonts.load_system_fonts();
        fonts.load_font_data(dejavu::sans::regular().to_vec());
        fonts.set_sans_serif_family("DejaVu Sans");
        let options = usvg::Options { fontdb: Arc::new(fonts), ..usvg::Options::default() };
        let tree = usvg::Tree::from_str(&self.svg(), &options)?;
        let size = tree.size();
        // A whole number of pixels for a cell of a map of 800 tokens.
        let most = if self.layout().large { 2.0 } else { 1.5 };
        let zoom = (MOST_PIXELS / (size.width() * size.height())).sqrt().min(most);
        let (wide, high) = ((size.width() * zoom) as u32, (size.height() * zoom) as u32);
        let mut pixels = tiny_skia::Pixmap::new(wide.max(1), high.max(1))
            .ok_or("the picture does not fit the address space")?;
        resvg::render(&tree, tiny_skia::Transform::from_scale(zoom, zoom), &mut pixels.as_mut());
        Ok(pixels.encode_png()?)
    }

    /// One panel as text: a row per query, two columns per key, with numbered keys.
    pub(crate) fn terminal(&self, panel: &Panel) -> String {
        let labels = Self::labels(&self.queries);
        let most = labels.iter().map(|label| width(label)).max().unwrap_or(0);
        // Column numbers are written vertically: the tens where they change, then the units.
        let mut out = format!("  {}\n", panel.title);
        let keys = self.keys.len();
        if keys > 10 {
            let tens = |j: usize| if j > 0 && j.is_multiple_of(10) { j / 10 % 10 } else { 10 };
            let cell = |j| if tens(j) < 10 { format!(" {}", tens(j)) } else { "  ".to_owned() };
            let _ = writeln!(out, "  {:most$}  {}", "", (0..keys).map(cell).collect::<String>());
        }
        let units: String = (0..keys).map(|j| format!(" {}", j % 10)).collect();
        let _ = writeln!(out, "  {:most$}  {units}", "");
        for (label, row) in labels.iter().zip(panel.maps.iter().flatten()) {
            let _ = write!(out, "  {}{}  ", " ".repeat(most - width(label)), isolated(label));
            out.extend(row.iter().map(|&weight| shade(weight)));
            out.push('\n');
        }
        out
    }
}

fn shade(weight: f32) -> &'static str {
    match weight {
        w if w >= 0.75 => "██",
        w if w >= 0.5 => "▓▓",
        w if w >= 0.25 => "▒▒",
        w if w >= 0.1 => "░░",
        w if w >= 0.0 => " ·",
        _ => "??",
    }
}

fn text(svg: &mut String, [x, y]: [f32; 2], size: f32, anchor: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escape(words)
    );
}

/// The color scale from 0 to 1, 200 wide.
fn scale(svg: &mut String, [x, y]: [f32; 2]) {
    for i in 0..100 {
        let (x, fill) = (x + 2.0 * i as f32, color((i as f32 + 0.5) / 100.0));
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"2.4\" height=\"14\" fill=\"{fill}\"/>"
        );
    }
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"200\" height=\"14\" fill=\"none\" stroke=\"#888\"/>"
    );
    for (at, name) in [(0.0, "0"), (0.25, "0.25"), (0.5, "0.5"), (0.75, "0.75"), (1.0, "1")] {
        text(svg, [x + 200.0 * at, y + 30.0], 11.0, "middle", name);
    }
}
