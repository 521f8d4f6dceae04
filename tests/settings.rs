//! The table of search settings: what each row reads, writes and refuses, and the pages that are made from it.

use crate::effort::cases;
use crate::random_model::{Dims, Random};
use serde_json::{Value, json};
use simdformer::Error;
use simdformer::config::{Config, Family, Settings};
use simdformer::search::{SearchLimits, SearchOptions, Setting};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

/// Set, the test of the page writes it instead of comparing it.
const WRITE: &str = "SIMDFORMER_WRITE_SETTINGS";

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(path).expect(file)
}

/// The rows of the table in `docs/models.md`.
fn table() -> String {
    let code = |text: Option<&str>| text.map_or(String::new(), |text| format!("`{text}`"));
    let mut table = "| option | key of `generation_config.json` | default | range | rule |\n|---|---|---|---|---|\n".to_owned();
    for setting in Setting::all() {
        let (name, key, rule) = (code(setting.name), code(setting.key), code(setting.processor));
        let (default, range) = (setting.default_text(), setting.range_text());
        writeln!(table, "| {name} | {key} | {default} | {range} | {rule} |").expect("a string");
    }
    table
}

#[test]
fn the_page_has_the_table_of_settings() {
    let page = read("docs/models.md");
    let table = table();
    let head = table.lines().next().expect("a line");
    let (before, rest) = page.split_once(head).expect("the head of the table");
    let (_, after) = rest.split_once("\n\n").expect("an end of the table");
    let expected = format!("{before}{table}\n{after}");
    if std::env::var_os(WRITE).is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/models.md");
        std::fs::write(file, &expected).expect("written");
    } else {
        assert!(page == expected, "run again with {WRITE}=1, expected:\n{table}");
    }
}

#[test]
fn names_and_rules_are_those_of_the_search() {
    let (mut names, mut keys, mut fields) = (HashSet::new(), HashSet::new(), HashSet::new());
    let order = read("src/search/processor_order.rs");
    for setting in Setting::all() {
        let field = setting.field;
        assert!(fields.insert(field), "{field} twice");
        assert!(setting.key.is_none_or(|key| keys.insert(key)), "{field}: its key twice");
        assert!(setting.name.is_none_or(|name| names.insert(name)), "{field}: its name twice");
        assert_eq!(setting.name.is_some(), !setting.help.is_empty(), "{field}: its help");
        if let Some(rule) = setting.processor {
            assert!(order.contains(&format!("\"{rule}\",")), "{field}: {rule}");
        }
    }
    assert!(fields.len() > 25, "{} settings", fields.len());
    for needed in Setting::all().filter_map(|setting| setting.needs) {
        assert!(Setting::named(needed).is_some_and(|setting| setting.needs.is_none()), "{needed}");
    }
}

/// Values of every type of JSON that some setting takes.
fn values(random: &mut Random) -> Vec<Value> {
    // Of at most 15 digits, which the reader of JSON rounds correctly.
    let mut number =
        |most: f32| (f64::from(random.symmetric()) * f64::from(most) * 1e9).round() / 1e9;
    vec![
        true.into(),
        false.into(),
        0.into(),
        1.into(),
        7.into(),
        u64::MAX.into(),
        (-1).into(),
        number(1.0).into(),
        number(1.0).abs().into(),
        number(120.0).into(),
        0.7.into(),
        1.0.into(),
        1e300.into(),
        "never".into(),
        "true".into(),
        json!([]),
        json!([5]),
        json!([5, 1.5]),
        json!([5, 1.5, 2]),
        json!([[5], [6, 7]]),
        json!([[]]),
        json!([[[5], 1.5], [[6, 7], -2.25]]),
        json!([[5, 1.5]]),
        json!([-5]),
        json!({"5": 1.5}),
    ]
}

/// A row takes a value and gives it back, or refuses it by its type and changes nothing.
#[test]
fn every_setting_reads_what_it_writes() {
    let mut random = Random(3);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..cases(4, 200) {
        for setting in Setting::all() {
            for value in values(&mut random) {
                let (field, mut settings) = (setting.field, Settings::default());
                match setting.set_value(&mut settings, &value) {
                    Ok(()) => {
                        let written = setting.value(&settings);
                        let same = |a: &Value, b: &Value| match (a.as_f64(), b.as_f64()) {
                            (Some(a), Some(b)) => a == b,
                            // A single id is a list of one, an empty pair is none.
                            _ => a == b || *b == json!([a]) || (b.is_null() && *a == json!([])),
                        };
                        assert!(same(&value, &written), "{field}: {value} became {written}");
                        let mut again = Settings::default();
                        setting.set_value(&mut again, &written).expect("its own value");
                        assert_eq!(again, settings, "{field}: {value}");
                        taken += 1;
                    }
                    Err((expected, found)) => {
                        assert!(!expected.is_empty(), "{field}");
                        assert!(value.to_string().contains(&found.to_string()), "{field}: {found}");
                        assert_eq!(settings, Settings::default(), "{field}: {value}");
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(taken > 700 && refused > 1500, "{taken} taken, {refused} refused");
}

/// The check of a row is that of the whole options, with the same error.
#[test]
fn every_range_is_checked_alone_and_with_the_options() {
    let limits = SearchLimits {
        sentences: 1,
        sequences: 8,
        max_target_length: 1 << 20,
        vocabulary: 1000,
        end_tokens: 1,
        source_tokens: 8,
    };
    let (mut random, mut refused) = (Random(4), 0);
    for setting in Setting::all().filter(|setting| !setting.range_text().is_empty()) {
        let mut found = HashSet::new();
        for value in [values(&mut random), values(&mut random), values(&mut random)].concat() {
            let mut settings = Settings::default();
            settings.options.eos = vec![2];
            settings.do_sample = setting.needs == Some("sample");
            settings.beam.beams = if setting.needs == Some("beams") { 4 } else { 1 };
            if setting.set_value(&mut settings, &value).is_err() {
                continue;
            }
            let checked = setting.check(&settings);
            let whole = settings.search_options().validate(&limits);
            match checked {
                // What needs more than the number: at most the vocabulary, groups that divide the beams.
                Ok(()) => assert!(
                    !matches!(&whole, Err(Error::InvalidOption { operand, expected, .. })
                        if *operand == setting.field && !expected.to_string().contains(" most ")
                            && !expected.to_string().contains("groups")),
                    "{}: {value}: {whole:?}",
                    setting.field
                ),
                // No beams are greedy search.
                Err(_) if setting.field == "beams" => {}
                Err(_) => assert_eq!(whole, checked, "{}: {value}", setting.field),
            }
            refused += usize::from(checked.is_err());
            found.insert(checked.is_ok());
        }
        assert!(found.contains(&true), "{}", setting.field);
    }
    assert!(refused > 60, "{refused} refused");
}

/// Random settings of a file are read, written and read again, in double precision, whatever the strategy is.
#[test]
fn every_setting_of_a_file_is_kept() {
    let mut random = Random(5);
    let plain = Dims::small(Family::Marian).config();
    let mut files = 0;
    for _ in 0..cases(300, 20_000) {
        let mut config = Config { settings: Settings::default(), ..plain.clone() };
        let mut expected = Settings::default();
        let mut file = serde_json::Map::new();
        for setting in Setting::all().filter(|setting| setting.key.is_some()) {
            let values = values(&mut random);
            let value = &values[(random.symmetric().abs() * values.len() as f32) as usize];
            let Some(key) = setting.key else { continue };
            let mut alone = Settings::default();
            if setting.set_value(&mut alone, value).is_err() || setting.check(&alone).is_err() {
                continue;
            }
            // Single ids, which are banned, are kept apart.
            if key == "bad_words_ids" {
                continue;
            }
            setting.set_value(&mut expected, value).expect("read before");
            file.insert(key.to_owned(), value.clone());
        }
        let file = Value::Object(file).to_string();
        config.set_generation_config(&file).unwrap_or_else(|error| panic!("{error}: {file}"));
        assert_eq!(config.settings, expected, "{file}");
        let text = config.to_json().unwrap_or_else(|error| panic!("{error}: {file}"));
        let again = Config::from_hugging_face(&text).expect("written");
        assert_eq!(again.settings, expected, "{text}");
        files += 1;
    }
    assert!(files >= 300);
}

/// As Python's numbers, not as f32.
#[test]
fn numbers_of_a_file_are_double_precision() {
    let mut config = Dims::small(Family::Marian).config();
    let file = r#"{"do_sample": true, "temperature": 0.7, "encoder_repetition_penalty": 1.7}"#;
    config.set_generation_config(file).expect("settings");
    assert_eq!(config.settings.sample.temperature, 0.7);
    assert_eq!(config.search_options().encoder_repetition_penalty, 1.7);
    // All its 17 digits are read, perhaps not the last bit.
    config.settings.beam.length_penalty = 0.943_426_489_830_017_1;
    let text = config.to_json().expect("a configuration");
    let again = Config::from_hugging_face(&text).expect("a configuration");
    let difference = again.settings.beam.length_penalty - config.settings.beam.length_penalty;
    assert!(difference.abs() < 2e-16, "{difference}");
    config.settings.beam.length_penalty = 1.0;
    // As in transformers, numbers beyond the neutral one disable a rule of a file, too.
    let off = r#"{"do_sample": true, "top_k": 0, "top_p": 1.5, "typical_p": 1, "epsilon_cutoff": -1, "eta_cutoff": 0.0}"#;
    config.set_generation_config(off).expect("settings");
    let plain = simdformer::search::SampleOptions::default();
    let strategy = simdformer::search::Strategy::Sample(plain);
    let expected = SearchOptions { strategy, ..config.search_options() };
    assert_eq!(config.search_options(), expected);
    // Elsewhere they are mistakes.
    let top_p = Setting::named("top_p").expect("a setting");
    let mut settings = Settings::default();
    top_p.set_value(&mut settings, &1.5.into()).expect("a number");
    let error = top_p.check(&settings).expect_err("a sum of probabilities").to_string();
    assert_eq!(error, "top_p: expected a number in (0, 1], found 1.5");
}
