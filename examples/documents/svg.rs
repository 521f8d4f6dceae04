//! Drawings as SVG text: shapes, text, heatmaps and curves.

use crate::tensor::Tensor;
use std::fmt::Write;

/// A drawing of a fixed size, white.
#[derive(Debug)]
pub(crate) struct Svg {
    text: String,
}

/// A rectangle of a drawing in which numbers are shown: its corner and its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) x: f32,
    pub(crate) y: f32,
    pub(crate) width: f32,
    pub(crate) height: f32,
}

impl Svg {
    pub(crate) fn new(width: f32, height: f32, title: &str) -> Self {
        let mut svg = Self {
            text: format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
                 {height}\" font-family=\"DejaVu Sans, sans-serif\">\n<rect width=\"100%\" height=\"100%\" \
                 fill=\"#fff\"/>\n"
            ),
        };
        svg.label(24.0, 34.0, 18.0, "start", title);
        svg
    }

    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    /// Text whose baseline starts, ends or has its middle at a point: `anchor` is `start`, `end` or `middle`.
    pub(crate) fn label(&mut self, x: f32, y: f32, size: f32, anchor: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    pub(crate) fn rect(&mut self, frame: Frame, fill: &str, stroke: &str) {
        let Frame { x, y, width, height } = frame;
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\" \
             stroke=\"{stroke}\"/>"
        );
    }

    pub(crate) fn line(
        &mut self,
        from: [f32; 2],
        to: [f32; 2],
        color: &str,
        width: f32,
        opacity: f32,
    ) {
        let _ = writeln!(
            self.text,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{color}\" stroke-width=\"{width:.2}\" \
             stroke-opacity=\"{opacity:.3}\"/>",
            from[0], from[1], to[0], to[1]
        );
    }

    /// A line with a head at its end.
    pub(crate) fn arrow(&mut self, from: [f32; 2], to: [f32; 2], color: &str) {
        self.line(from, to, color, 1.5, 1.0);
        let (dx, dy) = (to[0] - from[0], to[1] - from[1]);
        let length = dx.hypot(dy).max(1e-6);
        let (dx, dy) = (8.0 * dx / length, 8.0 * dy / length);
        let back = [to[0] - dx, to[1] - dy];
        let _ = writeln!(
            self.text,
            "<polygon points=\"{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}\" fill=\"{color}\"/>",
            to[0],
            to[1],
            back[0] - dy / 2.0,
            back[1] + dx / 2.0,
            back[0] + dy / 2.0,
            back[1] - dx / 2.0
        );
    }

    /// A bar of the colors of numbers from 0 (bottom) to 1 (top), with labels from the bottom to the top at equal
    /// distances.
    pub(crate) fn color_bar(
        &mut self,
        frame: Frame,
        labels: &[&str],
        color: impl Fn(f32) -> String,
    ) {
        let steps = 32;
        let Frame { x, y, width, height } = frame;
        let step = height / steps as f32;
        for i in 0..steps {
            let color = color((i as f32 + 0.5) / steps as f32);
            let y = y + height - step * (i + 1) as f32;
            self.rect(Frame { x, y, width, height: step }, &color, &color);
        }
        self.rect(frame, "none", "#888");
        for (i, label) in labels.iter().enumerate() {
            let at = y + height * (1.0 - i as f32 / (labels.len() - 1).max(1) as f32);
            self.line([x + width, at], [x + width + 4.0, at], "#888", 1.0, 1.0);
            self.label(x + width + 7.0, at + 4.0, 11.0, "start", label);
        }
    }

    /// The names of the axes of a map: keys below it, queries at its left from bottom to top.
    pub(crate) fn map_names(&mut self, frame: Frame, keys: &str, queries: &str) {
        let Frame { x, y, width, height } = frame;
        self.label(x + width / 2.0, y + height + 14.0, 11.0, "middle", keys);
        let (x, y) = (x - 8.0, y + height / 2.0);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"11\" text-anchor=\"middle\" transform=\"rotate(-90 {x:.1} \
             {y:.1})\">{queries}</text>"
        );
    }

    pub(crate) fn circle(&mut self, center: [f32; 2], radius: f32, fill: &str, stroke: &str) {
        let [x, y] = center;
        let _ = writeln!(
            self.text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"{fill}\" stroke=\"{stroke}\"/>"
        );
    }

    /// A curve through points of a frame, each coordinate in 0..1 from the lower left corner.
    pub(crate) fn curve(
        &mut self,
        frame: Frame,
        points: impl Iterator<Item = [f32; 2]>,
        color: &str,
    ) {
        let mut path = String::new();
        for [x, y] in points {
            let y = frame.y + frame.height * (1.0 - y);
            let _ = write!(path, "{:.1},{y:.1} ", frame.x + frame.width * x);
        }
        let _ = writeln!(
            self.text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>",
            path.trim_end()
        );
    }

    /// The axes of a frame: its border, and labels at the ends of both axes.
    pub(crate) fn axes(&mut self, frame: Frame, horizontal: [&str; 2], vertical: [&str; 2]) {
        let Frame { x, y, width, height } = frame;
        self.rect(frame, "none", "#888");
        self.label(x, y + height + 16.0, 11.0, "start", horizontal[0]);
        self.label(x + width, y + height + 16.0, 11.0, "end", horizontal[1]);
        self.label(x - 6.0, y + height, 11.0, "end", vertical[0]);
        self.label(x - 6.0, y + 10.0, 11.0, "end", vertical[1]);
    }

    /// Bars of equal width from the bottom of a frame; the highest fills it.
    pub(crate) fn bars(&mut self, frame: Frame, counts: &[f32]) {
        let highest = counts.iter().copied().fold(1.0, f32::max);
        let width = frame.width / counts.len().max(1) as f32;
        for (i, count) in counts.iter().enumerate() {
            let height = frame.height * count / highest;
            let bar = Frame {
                x: frame.x + width * i as f32,
                y: frame.y + frame.height - height,
                width,
                height,
            };
            self.rect(bar, "#5c9acb", "#fff");
        }
    }

    /// A matrix as colored cells that fill a frame. Neighbors of one color in a row are one stroke, so that a map of
    /// 800 x 800 stays small.
    pub(crate) fn heatmap(&mut self, frame: Frame, matrix: &Tensor, color: impl Fn(f32) -> String) {
        let (rows, columns) = (matrix.rows(), matrix.columns());
        let (w, h) = (frame.width / columns as f32, frame.height / rows as f32);
        let mut strokes: Vec<(String, String)> = Vec::new();
        for i in 0..rows {
            let y = frame.y + h * (i as f32 + 0.5);
            let colors: Vec<String> = matrix.row(i).iter().map(|&x| color(x)).collect();
            let mut start = 0;
            while start < columns {
                let run = colors[start..].iter().take_while(|c| **c == colors[start]).count();
                // White is the background.
                if colors[start] != "#ffffff" {
                    let at = match strokes.iter().position(|(c, _)| *c == colors[start]) {
                        Some(at) => at,
                        None => {
                            strokes.push((colors[start].clone(), String::new()));
                            strokes.len() - 1
                        }
                    };
                    let x = frame.x + w * start as f32;
                    let _ = write!(strokes[at].1, "M{x:.1} {y:.1}h{:.1}", w * run as f32);
                }
                start += run;
            }
        }
        for (color, path) in strokes {
            // A little more than a cell, so that no gaps show.
            let _ = writeln!(
                self.text,
                "<path d=\"{path}\" stroke=\"{color}\" stroke-width=\"{:.2}\"/>",
                h + 0.1
            );
        }
        self.rect(frame, "none", "#888");
    }
}

/// The color of a weight between 0 and 1 in 32 steps: white to dark blue.
pub(crate) fn blues(weight: f32) -> String {
    let step = (weight.clamp(0.0, 1.0) * 32.0).round() / 32.0;
    let mix = |from: f32, to: f32| (from + (to - from) * step) as u8;
    format!("#{:02x}{:02x}{:02x}", mix(255.0, 8.0), mix(255.0, 48.0), mix(255.0, 107.0))
}

/// The color of a number between -1 and 1 in 32 steps: blue, white, red.
pub(crate) fn diverging(x: f32) -> String {
    let step = (x.clamp(-1.0, 1.0) * 16.0).round() / 16.0;
    let fade = (255.0 * (1.0 - step.abs())) as u8;
    if step < 0.0 { format!("#{fade:02x}{fade:02x}ff") } else { format!("#ff{fade:02x}{fade:02x}") }
}
