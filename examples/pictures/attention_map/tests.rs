//! Pictures of attention: every token is on both axes, labels never overlap, for any length and script, and the
//! alignment is that of the translation.

use super::heatmap::{Page, Panel, cut, isolated, width};
use super::{Options, run};
use clap::Parser;
use std::collections::BTreeMap;
use std::path::Path;

fn page(queries: &[&str], keys: &[&str], panels: usize) -> Page {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let panel = |i| {
        let row = |q| (0..keys.len()).map(|k| ((q + k + i) % 7) as f32 / 6.0).collect();
        Panel { title: format!("head {i}"), maps: vec![(0..queries.len()).map(row).collect()] }
    };
    Page {
        title: "A page".to_owned(),
        queries: words(queries),
        keys: words(keys),
        padding: 0,
        overlaid: Vec::new(),
        panels: (0..panels).map(panel).collect(),
    }
}

/// The width and height of the SVG.
fn size(svg: &str) -> [f32; 2] {
    ["width", "height"].map(|name| numbers(svg, "<svg", name).first().copied().expect("a size"))
}

/// Every `attribute="number"` of elements that contain `marker`.
fn numbers(svg: &str, marker: &str, attribute: &str) -> Vec<f32> {
    let attribute = format!(" {attribute}=\"");
    svg.lines()
        .filter(|line| line.contains(marker))
        .filter_map(|line| line.split(&attribute).nth(1)?.split('"').next()?.parse().ok())
        .collect()
}

#[test]
fn long_sentences_stay_inside_the_page_and_apart() {
    let words: Vec<String> = (0..60).map(|i| format!("mot{i}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let page = page(&words, &words, 9);
    let svg = page.svg();
    let [wide, high] = size(&svg);
    for (x, w) in numbers(&svg, "<rect x", "x").iter().zip(numbers(&svg, "<rect x", "width")) {
        assert!(*x >= 0.0 && x + w <= wide, "{x} + {w} on {wide}");
    }
    for (y, h) in numbers(&svg, "<rect x", "y").iter().zip(numbers(&svg, "<rect x", "height")) {
        assert!(*y >= 0.0 && y + h <= high, "{y} + {h} on {high}");
    }
    // Every query and every key of every panel has its label, and the line spacing is larger than the line height.
    assert_eq!(svg.matches(">mot7<").count(), 2 * 9);
    let (rows, sizes) =
        (numbers(&svg, "\"end\"", "y"), numbers(&svg, "text-anchor=\"end\"", "font-size"));
    for (pair, size) in rows[..60].windows(2).zip(sizes) {
        assert!(pair[1] - pair[0] > size, "{pair:?} of {size}");
    }
}

#[test]
fn any_script_makes_a_picture() {
    let words = [
        "שלום",
        "مرحبا بالعالم",
        "中文句子",
        "日本語",
        "한국어",
        "e\u{301}te\u{301}",
        "<&\">",
        "",
        "\u{7}x",
    ];
    let empty = page(&[], &[], 0);
    let page = page(&words, &words[..5], 5);
    let svg = page.svg();
    assert!(svg.contains("&lt;&amp;&quot;&gt;") && !svg.contains('\u{7}'));
    let png = page.png().expect("a picture");
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    let terminal = page.terminal(&page.panels[0]);
    assert_eq!(terminal.lines().count(), 2 + words.len());
    let widths: Vec<usize> = terminal.lines().skip(1).map(width).collect();
    assert!(widths.iter().all(|w| *w == widths[0]), "{widths:?}");
    // A page without panels is a valid picture too.
    assert!(empty.png().is_ok());
}

#[test]
fn labels_are_cut_by_what_a_reader_sees() {
    assert_eq!((width("abc"), width("中文"), width("e\u{301}"), width("")), (3, 4, 1, 0));
    assert_eq!(cut("abcdef", 6), "abcdef");
    assert_eq!(cut("abcdefg", 6), "abcde…");
    assert_eq!(cut("中文句子", 6), "中文…");
    assert_eq!(isolated("abc"), "abc");
    assert_eq!(isolated("שלום"), "\u{2068}שלום\u{2069}");
}

#[test]
fn a_translation_is_drawn_and_aligned() {
    let out = std::env::temp_dir().join(format!("attention-map-{}", std::process::id()));
    let folder = out.to_str().expect("a path").to_owned();
    let run = |arguments: &[&str]| {
        let options = Options::try_parse_from(arguments).map_err(|error| error.to_string())?;
        super::run(&options).map_err(|error| error.to_string())
    };
    let text = run(&["--out", &folder, "les petites filles sont heureuses"]).expect("a drawing");
    assert!(text.contains("-> the small girls are happy\n"), "{text}");
    for (english, french) in
        [("the", "les"), ("small", "petites"), ("girls", "filles"), ("happy", "heureuses")]
    {
        let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{english} ")));
        assert!(line.expect(english).ends_with(&format!(" {french}")), "{text}");
    }
    // Six input tokens, six output tokens: labels of both sides in each panel; there is one panel per layer and head.
    for (page, panels) in [("encoder", 3 * 4), ("decoder", 2 * 4), ("cross", 2 * 4)] {
        let svg = std::fs::read_to_string(out.join(page).with_extension("svg")).expect("an SVG");
        assert_eq!(svg.matches("<text").count(), 7 + panels * (1 + 6 + 6), "{page}");
        let png = std::fs::read(out.join(page).with_extension("png")).expect("a PNG");
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    }
    std::fs::remove_dir_all(&out).expect("removed");
    for (arguments, error) in [
        (&["--layer", "2", "bonjour"][..], "less than 2, the layers of the decoder, found 2"),
        (&["--heads", "4", "bonjour"], "less than 4, the heads of the decoder, found 4"),
        (&["--fly"], "unexpected argument '--fly' found"),
        (&[], "required arguments were not provided:\n  <SENTENCE>..."),
        (&["--model", "no/such/folder", "1"], "no such directory"),
        (&["xyzzy"], "does not know"),
        (&["--layer"], "a value is required for '--layer <N>'"),
    ] {
        let arguments = [&["--out", &folder], arguments].concat();
        let found = run(&arguments).expect_err(error);
        assert!(found.contains(error), "{found}");
        let _ = std::fs::remove_dir_all(&out);
    }
}

/// Runs the example in a fresh folder; returns its text, and the SVG of each page by its name.
fn draw(name: &str, arguments: &[&str]) -> (String, BTreeMap<String, String>) {
    let out = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    let folder = out.to_str().expect("a path").to_owned();
    let arguments = [&["--out", &folder], arguments].concat();
    let options = Options::try_parse_from(arguments).expect("options");
    let text = run(&options).expect("a drawing");
    let mut pages = BTreeMap::new();
    for entry in std::fs::read_dir(&out).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "svg") {
            let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
            pages.insert(stem, std::fs::read_to_string(&path).expect("an SVG"));
            assert!(path.with_extension("png").is_file());
        }
    }
    std::fs::remove_dir_all(&out).expect("removed");
    (text, pages)
}

fn golden(folder: &str) -> String {
    format!("{}/../../tests/golden/{folder}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_batch_has_empty_columns_for_its_padding() {
    let (text, pages) = draw("batch", &["elle dort", "les petites filles sont heureuses"]);
    assert!(text.contains("-> the small girls are happy\n"), "{text}");
    let names: Vec<&str> = pages.keys().map(String::as_str).collect();
    assert_eq!(names, ["cross-1", "cross-2", "decoder-1", "decoder-2", "encoder-1", "encoder-2"]);
    // `elle dort </s>` has three columns of padding in a batch of six, in each of twelve panels.
    let short = &pages["encoder-1"];
    assert_eq!(short.matches(">&lt;pad&gt;</text>").count(), 3 * 12);
    assert!(!pages["encoder-2"].contains("&lt;pad&gt;") && !pages["encoder-2"].contains("#eee"));
    let gray = |attribute| numbers(short, "#eee", attribute);
    let (left, width) = (gray("x"), gray("width"));
    assert_eq!(left.len(), 12);
    // No cell of the first panel is inside its gray columns.
    let cells = numbers(short, "<rect x", "x").into_iter().zip(numbers(short, "<rect x", "y"));
    let first_row_of_panels = gray("y")[0];
    let inside = |x: f32| x >= left[0] && x < left[0] + width[0];
    let drawn = cells.filter(|&(x, y)| inside(x) && y >= first_row_of_panels);
    let lower = gray("y");
    // The gray rectangles of the panels in this column of the page, and nothing else.
    assert_eq!(drawn.count(), (0..12).filter(|&i| left[i] == left[0] && lower[i] > 0.0).count());
}

#[test]
fn an_encoder_alone_has_one_page() {
    let bert = golden("families/bert");
    let (text, pages) = draw("bert", &["--model", &bert, "5 6 7 8", "9 3"]);
    assert_eq!(pages.keys().collect::<Vec<_>>(), ["encoder-1", "encoder-2"]);
    assert!(text.contains("self-attention of layer") && !text.contains("->"), "{text}");
    let out = std::env::temp_dir().join(format!("bert-layer-{}", std::process::id()));
    let arguments = ["--out", out.to_str().expect("a path"), "--model", &bert, "--layer", "9", "5"];
    let error = run(&Options::try_parse_from(arguments).expect("options"));
    assert!(error.expect_err("no such layer").to_string().contains("in layer 9"));
    let _ = std::fs::remove_dir_all(&out);
}

#[test]
fn heads_are_overlaid_one_panel_for_each_layer() {
    let sentence = "les petites filles";
    let all = draw("all-heads", &["--heads", "all", sentence]).1;
    let two = draw("two-heads", &["--heads", "0,2", sentence]).1;
    let one = draw("one-head", &["--heads", "2", sentence]).1;
    for (pages, heads) in [(&all, 4), (&two, 2), (&one, 1)] {
        let cross = &pages["cross"];
        assert_eq!(cross.matches(">head ").count(), heads);
        assert_eq!(cross.matches(">layer ").count(), 2);
    }
    assert!(two["cross"].contains(">head 2<") && !two["cross"].contains(">head 1<"));
    let options = |heads| Options::try_parse_from(["--heads", heads, sentence]).map(|_| ());
    for wrong in ["", "x", "1,", "-1"] {
        assert!(options(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_map_of_many_tokens_has_few_labels_and_one_path_for_each_color() {
    let ids: Vec<String> = (0..120).map(|i| (i * i % 5).to_string()).collect();
    let model = format!("{}/../../models/walkthrough", env!("CARGO_MANIFEST_DIR"));
    let (text, pages) = draw("large", &["--model", &model, &ids.join(" ")]);
    // No alignment in the terminal.
    assert!(!text.contains("<-"), "{text}");
    let encoder = &pages["encoder"];
    assert!(encoder.matches("darkest from 0.").count() == 3);
    assert!(encoder.matches("<path").count() <= 3 * 16 && encoder.len() < 1_000_000);
    let [wide, high] = size(encoder);
    assert!(wide <= 3.0 * 1000.0 && high <= 1100.0, "{wide} {high}");
    let rows = numbers(encoder, "\"end\"", "y");
    assert!(rows.len() > 3 * 40 && rows[..40].windows(2).all(|pair| pair[1] - pair[0] > 10.0));
}

#[test]
fn the_picture_of_the_readme_is_what_the_example_draws() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    let out = std::env::temp_dir().join(format!("readme-map-{}", std::process::id()));
    let folder = out.to_str().expect("a path").to_owned();
    let arguments = ["--out", &folder, "la vieille maison blanche est belle"];
    run(&Options::try_parse_from(arguments).expect("options")).expect("a drawing");
    let read = |path: &Path| std::fs::read_to_string(path).expect("an SVG");
    let (drawn, kept) = (read(&out.join("cross.svg")), read(&root.join("docs/attention.svg")));
    // Compare words and positions only; a color may differ in one bit between instruction sets.
    let words = |svg: &str| -> Vec<String> {
        svg.lines().filter(|line| line.starts_with("<text")).map(str::to_owned).collect()
    };
    assert_eq!(words(&drawn), words(&kept));
    std::fs::remove_dir_all(&out).expect("removed");
}
