//! The walkthrough says the same thing twice, in the structure and shapes of
//! `tests/golden/walkthrough/navigate.txt`, and its masks are the published ones.

#[allow(dead_code, reason = "tests call what `main` calls")]
#[path = "../examples/navigate.rs"]
mod example;

use example::masks;
use example::page::{self, Style};
use serde_json::Value;
use simdformer::kernels::FullyMasked;
use simdformer::trace::Stage;

fn navigate(arguments: &[&str], style: Style, input: &str) -> Result<String, String> {
    let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
    let mut out = Vec::new();
    example::run(&arguments, style, &mut input.as_bytes(), &mut out).map_err(|e| e.to_string())?;
    Ok(String::from_utf8(out).expect("UTF-8"))
}

/// The text with `#` for every number of 4 decimals, and single spaces.
fn structure(text: &str) -> String {
    let number = |word: &str| {
        let decimals = word.rsplit_once('.').map_or("", |(_, decimals)| decimals);
        decimals.len() == 4 && word.parse::<f32>().is_ok()
    };
    let line = |line: &str| -> String {
        let words = line.split_whitespace().map(|word| if number(word) { "#" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn prints_the_same_text_twice_in_the_recorded_structure() {
    let text = navigate(&[], Style::Plain, "").expect("a walkthrough");
    assert_eq!(navigate(&[], Style::Plain, "").as_ref(), Ok(&text));
    let recorded = include_str!("golden/walkthrough/navigate.txt");
    for (i, (found, expected)) in structure(&text).lines().zip(recorded.lines()).enumerate() {
        assert_eq!(found.trim_end(), expected.trim_end(), "line {}", i + 1);
    }
    assert_eq!(structure(&text).trim_end(), recorded.trim_end());
    assert!(text.contains("8 of 8 right"));
    for stage in Stage::ALL {
        assert!(text.contains(&format!(": {stage}\n")), "{stage}");
    }
    assert!(!text.contains("NaN") && !text.contains('\x1b'));
}

#[test]
fn styles_say_the_same() {
    let plain = navigate(&[], Style::Plain, "").expect("a walkthrough");
    let mut colour = navigate(&[], Style::Colour, "").expect("a walkthrough");
    assert!(colour.contains("\x1b["));
    for code in ["\x1b[1;36m", "\x1b[2m", "\x1b[33m", "\x1b[0m"] {
        colour = colour.replace(code, "");
    }
    assert_eq!(colour, plain);
    let file = std::env::temp_dir().join(format!("navigate-{}.md", std::process::id()));
    let path = file.to_str().expect("a path");
    assert_eq!(navigate(&["--markdown", path], Style::Plain, "").as_deref(), Ok(""));
    let page = std::fs::read_to_string(&file).expect("the page");
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(page.matches("```").count() % 2, 0);
    for title in plain.lines().filter_map(|line| line.strip_prefix("== ")) {
        assert!(page.contains(&format!("## {title}\n")), "{title}");
    }
}

#[test]
fn stages_can_be_chosen_and_stepped_through() {
    let weights = navigate(&["--stage", "weights"], Style::Plain, "").expect("weights");
    assert_eq!(weights.matches("== ").count(), 3);
    let error = navigate(&["--stage", "soul"], Style::Plain, "").expect_err("no such stage");
    assert!(error.contains("weights") && error.contains("`soul`"), "{error}");
    assert!(navigate(&["--fly"], Style::Plain, "").is_err());
    assert!(navigate(&["--stage"], Style::Plain, "").is_err());
    let two = navigate(&["--step"], Style::Plain, "\nq\n").expect("two stages");
    assert_eq!(two.matches("== ").count(), 2);
    let all = navigate(&["--step"], Style::Plain, &"\n".repeat(100)).expect("all stages");
    let plain = navigate(&[], Style::Plain, "").expect("all stages");
    assert_eq!(all.matches("== ").count(), plain.matches("== ").count());
}

fn booleans(value: &Value) -> Vec<bool> {
    match value {
        Value::Array(all) => all.iter().flat_map(booleans).collect(),
        other => vec![other.as_bool().expect("a boolean")],
    }
}

fn numbers(value: &Value) -> Vec<f32> {
    match value {
        Value::Array(all) => all.iter().flat_map(numbers).collect(),
        other => vec![other.as_f64().expect("a number") as f32],
    }
}

#[test]
fn masks_and_filled_weights_are_the_published_ones() {
    let text = include_str!("golden/walkthrough/masks.json");
    let published: Value = serde_json::from_str(text).expect("JSON");
    for (sentence, (source, target)) in [(2, 4), (4, 3)].into_iter().enumerate() {
        let three = masks::three(source, 4, target, 4);
        for (mask, name) in three.iter().zip(["encoder_self", "decoder_self", "cross"]) {
            let name = match name {
                "cross" => "cross_attention_masked".to_owned(),
                other => format!("{other}_attention_masked"),
            };
            let drawn: Vec<bool> = mask.draw()[1..]
                .iter()
                .flat_map(|line| {
                    line.split_whitespace().map(|cell| cell == ".").collect::<Vec<_>>()
                })
                .collect();
            assert_eq!(drawn, booleans(&published[&name][sentence]), "{name} of {sentence}");
        }
        let worked = &published["worked_softmax"];
        let scores = numbers(&worked["scores"][sentence]);
        let filled = three[0].weights(&scores, FullyMasked::Uniform).expect("weights");
        for (found, expected) in filled.iter().zip(numbers(&worked["weights"][sentence])) {
            assert!((found - expected).abs() <= 2e-4, "{found} {expected}");
        }
        let zeros = three[0].weights(&scores, FullyMasked::Zeros).expect("weights");
        for (i, &seen) in three[0].visible.iter().enumerate() {
            let row = &zeros[i * 4..][..4];
            assert!(row[seen..].iter().all(|w| w.to_bits() == 0), "nothing leaks");
            assert!(seen == 0 || row == &filled[i * 4..][..4]);
        }
    }
}

#[test]
fn the_middle_of_a_long_tensor_is_left_out() {
    let rows: Vec<Vec<f32>> =
        (0..40).map(|i| (0..40).map(|j| (i * 40 + j) as f32).collect()).collect();
    let names: Vec<String> = (0..40).map(|i| format!("word{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let lines = page::matrix(&names, Some(&names), &rows);
    assert_eq!(lines.len(), 1 + 5 + 1 + 5);
    assert!(lines[1].starts_with("    word0 ") && lines[11].contains("1599.0000"));
    assert!(lines.iter().all(|line| line.contains("..")));
    assert!(lines.iter().all(|line| line.chars().count() <= 100));
    assert_eq!(page::four(-0.00001), "0.0000");
}
