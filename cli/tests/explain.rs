//! `translate --explain`: the words of the steps, and whether what they say about each rule is true.

use crate::command::{err, out, run_command};
use serde_json::Value;
use simdformer_testing::published::french;
use simdformer_testing::temporary_folder::TemporaryFolder;

fn explain(place: &TemporaryFolder, listed: usize, options: &[&str], text: &str) -> String {
    let listed = format!("--explain={listed}");
    let model = ["translate", "--model", place.0.to_str().unwrap(), &listed];
    let output = run_command(&[&model, options, &[text]].concat(), "");
    let reached = "simdformer: text 1: the translation reached the maximum length";
    let known = |note: &str| {
        let unknown = note.starts_with("simdformer: text 1: the model does not know ");
        let first = note.contains(": the steps are those of its first search");
        unknown || note == reached || first || note.ends_with(" words are unknown to the model")
    };
    let notes = err(&output);
    assert!(output.status.code() == Some(0) && notes.lines().all(known), "{options:?}: {notes}");
    out(&output).to_owned()
}

fn json(place: &TemporaryFolder, options: &[&str], text: &str) -> Value {
    serde_json::from_str(&explain(place, 3000, &[&["--json"], options].concat(), text)).unwrap()
}

/// Tokens with their probabilities, all of the vocabulary.
fn words(list: &Value) -> Vec<(String, f64)> {
    let word = |word: &Value| {
        (word["token"].as_str().unwrap().to_owned(), word["probability"].as_f64().unwrap())
    };
    list.as_array().unwrap().iter().map(word).collect()
}

/// The same tokens with the same probabilities; `found` is sorted. Equal probabilities may have another order.
fn same(found: &[(String, f64)], expected: &[(String, f64)], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    assert!(found.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{what}: {found:?}");
    for (token, p) in found {
        let known = expected.iter().find(|(known, _)| known == token);
        let (_, q) = known.unwrap_or_else(|| panic!("{what}: {token} is not expected"));
        assert!((p - q).abs() <= 2e-6, "{what}: {token} {p}, expected {q}");
    }
}

/// Divides by the sum.
fn normalized(mut words: Vec<(String, f64)>) -> Vec<(String, f64)> {
    let sum: f64 = words.iter().map(|(_, p)| p).sum();
    words.iter_mut().for_each(|(_, p)| *p /= sum);
    words
}

#[test]
fn steps_are_explained_in_words() {
    let place = french();
    let greedy = "\
text                    quel mois
encoder                 reads 3 tokens, once:  quel  mois  </s>
search                  greedy, the most probable token of each step
numbers                 after a token: its probability, and of the model its score in brackets
score                   sum of the log-probabilities of its tokens

step 1                  the decoder reads <pad>
  model                   ▁what 0.943 (10.951)  ▁? 0.001 (4.337)  ▁how 5e-4 (3.324)
                          ▁finish 3e-4 (2.976)
  banned words            removes 1 of 2318 tokens, 2e-5 of the probability:  <pad> 2e-5
  chosen                  ▁what 0.943

step 2                  the decoder reads ▁what, after <pad>
  model                   ▁month 0.848 (10.590)  ▁months 0.048 (7.726)  ▁last 0.002 (4.759)
                          ▁shy 0.001 (4.152)
  banned words            removes 1 of 2318 tokens, 4e-5 of the probability:  <pad> 4e-5
  chosen                  ▁month 0.848

step 3                  the decoder reads ▁month, after <pad> ▁what
  model                   </s> 0.953 (10.470)  ▁. 4e-5 (0.434)  ▁longer 4e-5 (0.374)
                          ▁her 4e-5 (0.338)
  banned words            removes 1 of 2318 tokens, 2e-5 of the probability:  <pad> 2e-5
  chosen                  </s> 0.953

result                  what month (score -0.272, end)
";
    assert_eq!(explain(&place, 4, &["--strategy", "greedy"], "quel mois"), greedy);
    let options = ["--strategy", "beam", "--beams", "2", "--max-new-tokens", "3"];
    let beams = explain(&place, 1, &options, "quel mois");
    let end = "
step 3
  hypothesis 1, -0.224  the decoder reads ▁month, after <pad> ▁what
    model                   </s> 0.953 (-0.048)
    banned words            removes 1 of 2318 tokens, 2e-5 of the probability:  <pad> 2e-5
    forced end              removes 2316 of 2317 tokens, 0.047 of the probability:  ▁. 4e-5  ...
                            changes 1 token:  </s> 0.953 to 1.000 (score -0.048 to 0.000)
                            </s> 1.000
  hypothesis 2, -3.087  the decoder reads ▁months, after <pad> ▁what
    model                   </s> 0.951 (-0.050)
    banned words            removes 1 of 2318 tokens, 2e-5 of the probability:  <pad> 2e-5
    forced end              removes 2316 of 2317 tokens, 0.049 of the probability:  ▁? 5e-5  ...
                            changes 1 token:  </s> 0.951 to 1.000 (score -0.050 to 0.000)
                            </s> 1.000
  candidates: the hypothesis, its next token, and the sum of the log-probabilities after all rules
     1. 1 + </s>              -0.224  ends with the score -0.075, divided by its length 3
     2. 2 + </s>              -3.087  ends with the score -1.029, divided by its length 3

result                  what month (score -0.075, length)
";
    assert!(beams.ends_with(end), "{beams}");
    let mean = "of its tokens, divided by their number (a mean)\n";
    assert!(beams.contains(mean), "{beams}");
    assert!(beams.lines().all(|line| line.chars().count() <= 100), "{beams}");
    // A blank text has no steps.
    assert_eq!(explain(&place, 4, &[], " "), " \n");
}

/// Words of which the vocabulary has no token are named. French without accents, an emoji, a script, two symbols.
#[test]
fn unknown_words_are_named() {
    let place = french();
    for (text, unknown) in [
        ("je suis étudiant", None),
        ("je suis etudiant", Some("etudiant")),
        ("😀 quel mois", Some("😀")),
        ("quel mois привет x€", Some("привет  x€")),
    ] {
        let found = explain(&place, 1, &["--strategy", "greedy"], text);
        let line = found.lines().find_map(|line| line.strip_prefix("unknown"));
        let expected = unknown.map(|words| format!("the model does not know:  {words}"));
        assert_eq!(line.map(str::trim), expected.as_deref(), "{text}: {found}");
        let read = found.lines().nth(1).expect("the encoder's line");
        // Symbols are copied to their places, and not read.
        let words = unknown.is_some_and(|unknown| unknown.contains(char::is_alphabetic));
        assert_eq!(read.contains("(unknown)"), words, "{read}");
        assert!(!read.contains(['😀', '€']), "{read}");
    }
}

/// What a rule says about scores: their softmax are the probabilities, a penalty divides a positive score and multiplies
/// a negative one, a temperature divides; and the draw is as wide as the probability of its token.
#[test]
fn scores_and_draws_are_true() {
    let place = french();
    let options = ["--strategy", "sample", "--temperature", "2.5", "--repetition-penalty", "1.5"];
    let answer = json(&place, &options, "La vieille maison blanche est belle");
    let mut changes = [0, 0];
    for step in answer["steps"].as_array().unwrap() {
        let row = &step["rows"][0];
        for rule in row["rules"].as_array().unwrap() {
            let tokens = rule["changed_tokens"].as_array().unwrap();
            for change in tokens {
                let number = |key: &str| change[key].as_f64().unwrap();
                let (before, after) = (number("score_before"), number("score_after"));
                let (kind, expected) = match rule["rule"].as_str().unwrap() {
                    "repetition penalty 1.5" if before > 0.0 => (0, before / 1.5),
                    "repetition penalty 1.5" => (0, before * 1.5),
                    "temperature 2.5" => (1, before / 2.5),
                    _ => continue,
                };
                assert!((after - expected).abs() < 1e-4, "{change}: expected {expected}");
                changes[kind] += 1;
            }
            // The difference of two scores is the logarithm of the ratio of their probabilities.
            for pair in tokens.windows(2).filter(|_| rule["rule"] == "temperature 2.5").take(20) {
                let ratio =
                    |key: &str| pair[0][key].as_f64().unwrap() / pair[1][key].as_f64().unwrap();
                let score = |at: usize| pair[at]["score_after"].as_f64().unwrap();
                assert!((ratio("after").ln() - (score(0) - score(1))).abs() < 1e-3, "{pair:?}");
            }
        }
        let chosen = &row["chosen"][0];
        let [number, from, to] =
            ["number", "from", "to"].map(|key| chosen["draw"][key].as_f64().unwrap());
        assert!(from - 1e-6 <= number && number <= to + 1e-6 && number < 1.0, "{chosen}");
        let p = chosen["probability"].as_f64().unwrap();
        assert!(0.0 <= from && to <= 1.0 + 1e-9 && (to - from - p).abs() < 1e-5, "{chosen}");
    }
    assert!(changes[0] > 2 && changes[1] > 1000, "{changes:?}");
    let text = explain(&place, 1, &options, "quel mois");
    assert!(
        text.contains(", the draw 0.")
            && text.contains(" between 0.")
            && text.contains("changes every score:  "),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

/// The scores of all tokens of a list: their softmax are the probabilities beside them.
fn check_scores(list: &Value, what: &str) -> usize {
    let list = list.as_array().unwrap();
    let number = |word: &Value, key: &str| word[key].as_f64().expect("a number");
    let max = list.iter().map(|word| number(word, "score")).fold(f64::MIN, f64::max);
    let power = |word: &Value| (number(word, "score") - max).exp();
    let sum: f64 = list.iter().map(power).sum();
    for word in list {
        let found = number(word, "probability");
        assert!((found - power(word) / sum).abs() < 1e-6, "{what}: {word}");
    }
    list.len()
}

/// Every strategy gives the scores of the model, those after each rule, and the score of the token that it chose.
#[test]
fn every_strategy_gives_its_scores() {
    let place = french();
    let mut checked = 0;
    for options in [
        &["--strategy", "greedy"][..],
        &["--strategy", "beam", "--beams", "2"],
        &["--strategy", "sample"],
        &["--strategy", "top-k", "--top-k", "5"],
        &["--strategy", "top-p", "--top-p", "0.9"],
        &["--strategy", "sample", "--temperature", "3"],
        &["--strategy", "greedy", "--repetition-penalty", "1.5"],
        &["--strategy", "greedy", "--no-repeat-ngram-size", "2"],
    ] {
        let answer = json(&place, options, "quel mois");
        for step in answer["steps"].as_array().unwrap() {
            for row in step["rows"].as_array().unwrap() {
                checked += check_scores(&row["model"], &format!("{options:?}, model"));
                for rule in row["rules"].as_array().unwrap() {
                    checked +=
                        check_scores(&rule["best"], &format!("{options:?}, {}", rule["rule"]));
                }
                let last = row["rules"].as_array().unwrap().last().map(|rule| &rule["best"]);
                let left = last.unwrap_or(&row["model"]).as_array().unwrap();
                for chosen in row["chosen"].as_array().into_iter().flatten() {
                    let known = left.iter().find(|word| word["token"] == chosen["token"]);
                    assert_eq!(chosen["score"], known.unwrap()["score"], "{options:?}: {chosen}");
                }
            }
        }
        // The line of the model has each score in brackets.
        let text = explain(&place, 3, options, "quel mois");
        let lines = text.lines().filter(|line| line.trim_start().starts_with("model "));
        for line in lines {
            let scores = line.split(['(', ')']).skip(1).step_by(2);
            let scores: Vec<f64> = scores.map(|score| score.parse().unwrap()).collect();
            assert!(scores.len() == 3 && scores.is_sorted_by(|a, b| a >= b), "{line}");
        }
    }
    assert!(checked > 100_000, "{checked}");
}

#[test]
fn several_sequences_are_lines_and_fields() {
    let place = french();
    let options = ["--strategy", "sample", "--temperature", "3", "--num-return-sequences", "3"];
    let model = ["translate", "--lines", "--model", place.0.to_str().unwrap()];
    let with = |more: &[&str]| {
        let output = run_command(
            &[&model, &options[..], more, &["quel mois", "", "je suis étudiant"]].concat(),
            "",
        );
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output).to_owned()
    };
    let lines = with(&["--max-new-tokens", "4"]);
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!((lines.len(), &lines[3..6]), (9, &["", "", ""][..]));
    let objects = with(&["--max-new-tokens", "4", "--json"]);
    let objects: Vec<Value> =
        objects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (object, lines) in objects.iter().zip(lines.chunks(3)) {
        let texts = object["sequences"].as_array().unwrap().iter().map(|one| one["text"].as_str());
        let expected = lines.iter().filter(|line| !line.is_empty());
        assert!(texts.eq(expected.map(|line| Some(*line))), "{object} {lines:?}");
    }
    let refused = run_command(&[&model[..], &["--num-return-sequences", "2", "x"]].concat(), "");
    assert_eq!(refused.status.code(), Some(2));
    let message = "simdformer: num_return_sequences: expected at most 1, found 2\n";
    assert_eq!(err(&refused), message);
}

/// Each filter is computed again from the probabilities before it, by its definition.
#[test]
fn what_is_said_about_each_filter_is_true() {
    let place = french();
    let text = "La vieille maison blanche est belle";
    let options = [
        "--strategy",
        "top-k",
        "--top-k",
        "9",
        "--temperature",
        "2.5",
        "--top-p",
        "0.95",
        "--min-p",
        "0.05",
        "--repetition-penalty",
        "1.5",
        "--seed",
        "5",
    ];
    let answer = json(&place, &options, text);
    let steps = answer["steps"].as_array().unwrap();
    assert!(steps.len() > 3, "{answer}");
    let mut removed_by = std::collections::BTreeMap::new();
    for step in steps {
        let row = &step["rows"][0];
        let mut before = words(&row["model"]);
        assert!((before.iter().map(|(_, p)| p).sum::<f64>() - 1.0).abs() < 1e-6);
        for rule in row["rules"].as_array().unwrap() {
            let name = rule["rule"].as_str().unwrap();
            let best = words(&rule["best"]);
            let count = |key: &str| rule[key].as_u64().unwrap() as usize;
            let kept = match name {
                "temperature 2.5" => {
                    let powers = before.iter().map(|(token, p)| (token.clone(), p.powf(1.0 / 2.5)));
                    assert_eq!(count("changed"), count("left"));
                    let expected = normalized(powers.collect());
                    // Probabilities that are 0 in f64 stay 0.
                    same(&best, &expected[..best.len()], name);
                    before = best;
                    continue;
                }
                "top-k 9" => 9,
                // The shortest list whose probabilities add up to 0.95.
                "top-p 0.95" => {
                    let mut sum = 0.0;
                    1 + before
                        .iter()
                        .take_while(|(_, p)| {
                            sum += p;
                            sum < 0.95
                        })
                        .count()
                }
                "min-p 0.05" => before.iter().filter(|(_, p)| *p >= 0.05 * before[0].1).count(),
                "repetition penalty 1.5" => {
                    let read = row["after"].as_array().unwrap().iter().chain([&row["fed"]]);
                    let read: Vec<&str> = read.map(|word| word.as_str().unwrap()).collect();
                    for change in rule["changed_tokens"].as_array().unwrap() {
                        assert!(read.contains(&change["token"].as_str().unwrap()), "{change}");
                        assert!(change["after"].as_f64() <= change["before"].as_f64(), "{change}");
                    }
                    assert_eq!(count("removed"), 0);
                    before = best;
                    continue;
                }
                // The start token, and the end at the maximum length.
                _ => {
                    before = best;
                    continue;
                }
            };
            let kept = kept.min(before.len());
            same(&best, &normalized(before[..kept].to_vec()), name);
            same(&words(&rule["removed_tokens"])[..before.len() - kept], &before[kept..], name);
            let mass: f64 = before[kept..].iter().map(|(_, p)| p).sum();
            assert!((rule["removed_probability"].as_f64().unwrap() - mass).abs() < 1e-6, "{rule}");
            assert_eq!((count("left"), count("changed")), (kept, 0), "{name}");
            *removed_by.entry(name.to_owned()).or_insert(0) += count("removed");
            before = best;
        }
        let chosen = words(&row["chosen"]);
        let (token, p) = &chosen[0];
        let last = before.iter().find(|(known, _)| known == token).expect("a token that is left");
        assert!((last.1 - p).abs() < 1e-6, "{token}: {p}, expected {}", last.1);
    }
    // Every filter had something to do, and the explanation changes no token.
    assert!(removed_by.len() == 3 && removed_by.values().all(|&count| count > 0), "{removed_by:?}");
    let plain = ["translate", "--model", place.0.to_str().unwrap(), text];
    let output = run_command(&[&plain[..], &options].concat(), "");
    assert_eq!(out(&output).trim_end(), answer["text"].as_str().unwrap());
}

/// The candidates of beam search: the best continue, and the result is one that ended.
#[test]
fn what_is_said_about_beams_is_true() {
    let place = french();
    let answer =
        json(&place, &["--strategy", "beam", "--beams", "3"], "Où est-ce qu'elle habite ?");
    let steps = answer["steps"].as_array().unwrap();
    let mut ended = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let rows = step["rows"].as_array().unwrap();
        let candidates = step["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), 6, "twice the beams, because there is one end token");
        for candidate in candidates {
            let row = &rows[candidate["hypothesis"].as_u64().unwrap() as usize - 1];
            let token = candidate["token"].as_str().unwrap();
            // No rule but a ban of the padding token: the scores are those of the model.
            let list = words(&row["model"]);
            let p = list.iter().find(|(known, _)| known == token).expect("a candidate").1;
            let expected = row["score"].as_f64().unwrap() + p.ln();
            let score = candidate["score"].as_f64().unwrap();
            assert!((score - expected).abs() < 1e-4, "{candidate}: expected {expected}");
            if let Some(score) = candidate["ends"].as_f64() {
                assert_eq!(token, "</s>");
                ended.push(score);
            }
        }
        let next = candidates.iter().filter(|c| c["becomes"].is_u64()).count();
        assert!(
            next == 3
                && steps.get(number + 1).is_none_or(|s| s["rows"].as_array().unwrap().len() == 3)
        );
    }
    let score = answer["score"].as_f64().unwrap();
    assert!(
        ended.contains(&score) && ended.iter().all(|&other| other <= score),
        "{score} {ended:?}"
    );
}
