//! Converts each SVG to a PNG in the same directory, for example the loss curve of training.
//!
//! ```sh
//! cargo run --release -p simdformer-pictures --example picture -- target/train/fr-en/loss.svg
//! ```

use resvg::{tiny_skia, usvg};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Pixels for each unit of the drawing.
const ZOOM: f32 = 2.0;
/// The maximum side of a picture, in pixels.
const LARGEST: f32 = 16_000.0;

fn main() -> ExitCode {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        eprintln!("picture: expected at least one SVG");
        return ExitCode::from(2);
    }
    for file in files {
        match draw(&file) {
            Ok(written) => println!("{}", written.display()),
            Err(error) => {
                eprintln!("picture: {}: {error}", file.display());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Renders `file` to a PNG with the same name; returns its path.
pub(crate) fn draw(file: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let svg = std::fs::read_to_string(file)?;
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_system_fonts();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    let options = usvg::Options { fontdb: Arc::new(fonts), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(&svg, &options)?;
    let size = tree.size();
    let zoom = ZOOM.min(LARGEST / size.width().max(size.height()));
    let (wide, high) = ((size.width() * zoom) as u32, (size.height() * zoom) as u32);
    let mut pixels = tiny_skia::Pixmap::new(wide.max(1), high.max(1))
        .ok_or("the picture does not fit the address space")?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(zoom, zoom), &mut pixels.as_mut());
    let out = file.with_extension("png");
    simdformer::atomic_file::write(&out, pixels.encode_png()?)?;
    Ok(out)
}
