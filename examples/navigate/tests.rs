//! The example `navigate` prints the same text each time, with the structure and the shapes of
//! `tests/golden/walkthrough/navigate.txt`, and its masks are the published ones.

use super::page::{self, Style};
use super::{Options, masks, run};
use clap::Parser;
use serde_json::Value;
use simdformer::kernels::FullyMasked;
use simdformer::trace::Stage;

fn navigate(arguments: &[&str], style: Style, input: &str) -> Result<String, String> {
    let options = Options::try_parse_from(arguments).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    run(options, style, &mut input.as_bytes(), &mut out).map_err(|e| e.to_string())?;
    Ok(String::from_utf8(out).expect("UTF-8"))
}

/// The text with `#` for every number of 4 decimals and with single spaces.
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
    let recorded = include_str!("../../tests/golden/walkthrough/navigate.txt");
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

/// The rows of numbers in a section, without the words before them.
fn rows(section: &str) -> Vec<Vec<f32>> {
    let numbers = |line: &str| -> Vec<f32> {
        line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect()
    };
    section.lines().map(numbers).filter(|row| row.len() == 6).collect()
}

/// Both models predict every word, and no word has an embedding of zeros: no id of one side is a pad of the other.
#[test]
fn both_layouts_have_an_embedding_for_every_word() {
    for model in ["models/walkthrough", "models/walkthrough-pre-norm"] {
        let text = navigate(&["--model", model], Style::Plain, "").expect("a walkthrough");
        assert!(text.contains("8 of 8 right"), "{model}");
        for stage in Stage::ALL {
            assert!(text.contains(&format!(": {stage}\n")), "{model} {stage}");
        }
        let embeddings = navigate(&["--model", model, "--stage", "embedding"], Style::Plain, "")
            .expect("a stage");
        let rows = rows(&embeddings);
        assert_eq!(rows.len(), 5 + 8);
        assert!(rows.iter().all(|row| row.iter().any(|&x| x != 0.0)), "{embeddings}");
        let positions = navigate(&["--model", model, "--stage", "position"], Style::Plain, "")
            .expect("a stage");
        // Sine and cosine of position 1, interleaved, with wavelength 2 pi in the first pair.
        assert!(positions.contains("0.8415   0.5403   0.0464   0.9989"), "{positions}");
    }
    let stages = |model: &str| {
        let list = ["--model", model, "--list"];
        navigate(&list, Style::Plain, "").expect("names")
    };
    // The norm comes before queries with pre-norm, and after the residual sum with post-norm.
    let order = |names: &str, stage: &str| names.lines().position(|name| name == stage);
    let pre = stages("models/walkthrough-pre-norm");
    let post = stages("models/walkthrough");
    assert!(
        order(&pre, "norm") < order(&pre, "query")
            && order(&post, "norm") > order(&post, "residual")
    );
}

#[test]
fn any_encoder_decoder_is_shown_in_words_or_ids() {
    let french = "les petites filles sont heureuses";
    let text = navigate(&["--model", "models/fr-en", "--source", french], Style::Plain, "");
    let text = text.expect("a walkthrough");
    for part in
        ["les petites filles sont heureuses </s>", "the small girls are happy </s>", "6 of 6 same"]
    {
        assert!(text.contains(part), "{part}");
    }
    let given = ["--model", "models/fr-en", "--source", "1115 0", "--target", "the girls"];
    let text = navigate(&given, Style::Plain, "").expect("a walkthrough");
    assert!(text.contains("the girls </s>") && text.contains(" of 3 right"));
    for folder in ["families/t5", "families/blenderbot", "nn_transformer_pre", "marian_odd"] {
        let folder = format!("tests/golden/{folder}");
        let two = ["--model", &folder, "--source", "5 6 7", "--source", "8 9"];
        let text = navigate(&two, Style::Plain, "").expect(&folder);
        assert!(text.contains("sentence 1 [2, ") && !text.contains("NaN"), "{folder}");
    }
    for (arguments, expected) in [
        (&["--model", "tests/golden/families/bert", "--source", "1 2"][..], "only encodes"),
        (&["--model", "tests/golden/families/whisper", "--source", "1 2"], "reads features"),
        (&["--model", "tests/golden/families/t5", "--source", "bonjour"], "token ids"),
        (&["--model", "tests/golden/families/t5"], "expected --source"),
        (&["--source", "je", "--source", "suis", "--target", "i am"], "each of 2 sources, found 1"),
        (&["--source", "je mange"], "does not know \"mange\""),
        (&["--target", "i am"], "--source"),
        (&["--model", "no/such/folder"], "no such directory"),
    ] {
        let error = navigate(arguments, Style::Plain, "").expect_err(expected);
        assert!(error.contains(expected), "{error}");
    }
}

/// Without positions the encoder output of a word does not depend on the place of the word, with positions it does.
#[test]
fn the_order_of_words_is_lost_without_positions() {
    for model in ["models/walkthrough", "models/walkthrough-pre-norm"] {
        let text =
            navigate(&["--model", model, "--order"], Style::Plain, "").expect("two sections");
        let sections: Vec<&str> = text.split("== ").skip(1).collect();
        for (section, lost) in sections.iter().zip([true, false]) {
            let differences: Vec<f32> = section
                .lines()
                .filter_map(|line| line.strip_prefix("largest difference ")?.parse().ok())
                .collect();
            assert_eq!(differences.len(), 2, "{section}");
            assert!(
                differences.iter().all(|&x| if lost { x <= 4e-6 } else { x > 0.1 }),
                "{section}"
            );
        }
        assert_eq!(sections.len(), 2);
    }
}

#[test]
fn styles_print_the_same_numbers() {
    let plain = navigate(&[], Style::Plain, "").expect("a walkthrough");
    let mut color = navigate(&[], Style::Colour, "").expect("a walkthrough");
    assert!(color.contains("\x1b["));
    for code in ["\x1b[1;36m", "\x1b[2m", "\x1b[33m", "\x1b[0m"] {
        color = color.replace(code, "");
    }
    assert_eq!(color, plain);
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
    let text = include_str!("../../tests/golden/walkthrough/masks.json");
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

#[cfg(not(feature = "train"))]
#[test]
fn without_the_feature_train_an_error_names_the_command() {
    let error = navigate(&["--training"], Style::Plain, "").expect_err("no feature");
    assert!(error.contains("--features train --example navigate -- --training"), "{error}");
}

#[cfg(feature = "train")]
mod training {
    use super::{Style, navigate};
    use simdformer::kernels::train::RowLoss;
    use simdformer_testing::lesson::{self, Predictions};

    #[test]
    fn the_page_is_reproducible_and_ends_with_the_correct_words() {
        let text = navigate(&["--training"], Style::Plain, "").expect("a walkthrough");
        assert_eq!(navigate(&["--training"], Style::Plain, "").as_ref(), Ok(&text));
        assert!(!text.contains("NaN") && !text.contains('\x1b'));
        for words in ["0 a am I thanks student <eos>", "0 je 1 suis 2 étudiant 3 merci"] {
            let mut rest = &text[..];
            for word in words.split(' ') {
                let at = rest.find(word).unwrap_or_else(|| panic!("{word} of {words}"));
                rest = &rest[at + word.len()..];
            }
        }
        // The tokens fed to the decoder are the output tokens, shifted by one.
        let fed = navigate(&["--training", "--stage", "fed"], Style::Plain, "").expect("one stage");
        let rows: Vec<Vec<&str>> = fed
            .lines()
            .map(|line| line.split_whitespace().collect())
            .filter(|row: &Vec<&str>| row.len() == 3 && row[0].parse::<usize>().is_ok())
            .collect();
        let columns = |i: usize| rows.iter().map(|row| row[i]).collect::<Vec<_>>();
        assert_eq!(columns(1), ["<eos>", "I", "am", "a", "student", "<eos>", "thanks"]);
        assert_eq!(columns(2), ["I", "am", "a", "student", "<eos>", "thanks", "<eos>"]);
        let trained =
            navigate(&["--training", "--stage", "trained"], Style::Plain, "").expect("one");
        assert_eq!((trained.matches("right\n").count(), trained.matches("wrong").count()), (7, 0));
        let answer =
            navigate(&["--training", "--stage", "answer"], Style::Plain, "").expect("one stage");
        let answer = answer.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(answer.contains("je suis étudiant -> i am a student <eos> right"), "{answer}");
        assert!(answer.contains("merci -> thanks <eos> right"), "{answer}");
        for style in ["--list", "--step"] {
            assert!(navigate(&["--training", style], Style::Plain, "q\n").is_ok());
        }
    }

    /// Compares the values of the picture with those of the trainer.
    fn check(predicted: &Predictions, lesson: &lesson::Lesson) {
        let (mut loss, mut nll, mut correct) = (0.0, 0.0, 0);
        for (sentence, target) in lesson.targets.iter().enumerate() {
            let losses = &predicted.padded[sentence];
            let gradients = &predicted.gradients[sentence];
            assert_eq!((losses.len(), gradients.len()), (5, 5));
            for (position, (row, gradient)) in losses.iter().zip(gradients).enumerate() {
                let Some(&label) = target.get(position) else {
                    assert_eq!(*row, RowLoss::default());
                    assert!(gradient.iter().all(|x| x.to_bits() == 0));
                    continue;
                };
                let p = &predicted.probabilities[sentence][position];
                let q = lesson::wanted(lesson.options.smoothing, label);
                assert!((p.iter().sum::<f32>() - 1.0).abs() <= 1e-6);
                assert!((q.iter().sum::<f32>() - 1.0).abs() <= 1e-6);
                let terms = p.iter().zip(&q).map(|(&p, &q)| -f64::from(q) * f64::from(p).ln());
                assert!((terms.sum::<f64>() - row.loss).abs() <= 1e-5 * (1.0 + row.loss));
                assert!((-f64::from(p[label as usize]).ln() - row.nll).abs() <= 1e-5);
                for ((&p, &q), &found) in p.iter().zip(&q).zip(gradient) {
                    assert!((found - (p - q) / 7.0).abs() <= 1e-6, "{found}");
                }
                loss += row.loss;
                nll += row.nll;
                correct += u64::from(row.correct);
            }
        }
        // Equal, not only close: the same kernel adds in the same order.
        let totals = &predicted.totals;
        assert_eq!((totals.tokens, totals.correct), (7, correct));
        assert_eq!(
            (totals.loss.to_bits(), totals.nll.to_bits()),
            (f64::to_bits(loss), f64::to_bits(nll))
        );
    }

    #[test]
    fn the_picture_has_the_values_of_the_trainer() {
        let lesson = lesson::learn().expect("a lesson");
        check(&lesson.untrained, &lesson);
        check(&lesson.trained, &lesson);
        for smoothing in [Default::default(), lesson.options.smoothing] {
            for word in 0..6 {
                let q = lesson::wanted(smoothing, word);
                assert!((q.iter().sum::<f32>() - 1.0).abs() <= 1e-6);
                let rest = (0..6).filter(|&i| i != word);
                assert!(rest.clone().all(|i| q[i as usize] < q[word as usize]));
                assert!(rest.clone().all(|i| (q[i as usize] == 0.0) == (smoothing.epsilon == 0.0)));
            }
        }
    }

    #[test]
    fn losses_decrease_to_the_entropy_of_the_targets() {
        let lesson = lesson::learn().expect("a lesson");
        let floor = lesson::floor(lesson.options.smoothing);
        let mean = |i: usize| lesson.course[i].totals.mean_loss();
        assert_eq!(lesson.course.len() as u64, lesson::STEPS);
        assert_eq!(lesson.course[0].totals, lesson.untrained.totals);
        assert_eq!(lesson.course[1].totals.mean_loss(), lesson.then.mean_loss());
        assert!(mean(1) < mean(0) && mean(20) < 0.8 * mean(0) && mean(99) < mean(20));
        let last = lesson.trained.totals.mean_loss();
        assert!(last >= floor - 1e-6 && last <= floor + 0.01, "{last} {floor}");
        assert_eq!(lesson.trained.totals.correct, 7);
        assert!(lesson.trained.totals.mean_nll() < 0.15);
        // The first step of Adam has the size of the learning rate and the opposite sign of the
        // gradient.
        let rate = lesson.options.adam.rate as f32;
        let mut moved = 0;
        for numbers in &lesson.numbers {
            for ((before, gradient), after) in
                numbers.before.iter().zip(&numbers.gradient).zip(&numbers.after)
            {
                let step = before - after;
                assert!((step - rate * gradient.signum()).abs() <= 1e-5 || *gradient == 0.0);
                moved += usize::from(step != 0.0);
            }
        }
        assert!(moved >= 12, "{moved} of 15");
    }
}
