//! Sentences of subtitles that run over several cues: translated whole, divided again, in a structure that stays.

use crate::effort;
use crate::translator::{Demo, sentences};
use simdformer_text::documents::Format;
use simdformer_text::translator::Translator;

/// Milliseconds as a time of the format.
fn time(millis: usize, format: Format) -> String {
    let sign = if format == Format::Srt { ',' } else { '.' };
    let (seconds, rest) = (millis / 1000, millis % 1000);
    format!("{:02}:{:02}:{:02}{sign}{rest:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A cue: its begin and end in milliseconds, and its text.
type Cue = (usize, usize, String);

fn file(cues: &[Cue], format: Format, newline: &str) -> String {
    let mut text =
        if format == Format::WebVtt { "WEBVTT\n\nNOTE x\n\n".to_owned() } else { String::new() };
    for (index, (begin, end, lines)) in cues.iter().enumerate() {
        let settings = match format {
            Format::WebVtt if index % 2 == 0 => " align:start position:10%",
            _ => "",
        };
        let (begin, end) = (time(*begin, format), time(*end, format));
        text += &format!("{}\n{begin} --> {end}{settings}\n{lines}\n\n", index + 7);
    }
    text.replace('\n', newline)
}

/// The texts of the cues, lines joined; and all other lines.
fn read(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut texts, mut others): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut inside = false;
    for line in text.lines() {
        if line.contains("-->") {
            texts.push(String::new());
            others.push(line.to_owned());
            inside = true;
        } else if line.is_empty() || !inside {
            others.push(line.to_owned());
            inside = false;
        } else {
            let last = texts.last_mut().unwrap();
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(line);
        }
    }
    (texts, others)
}

/// Divides the words of a sentence into `parts` at places that depend on `seed`.
fn parts(sentence: &str, parts: usize, seed: usize) -> Vec<String> {
    let words: Vec<&str> = sentence.split_whitespace().collect();
    let count = parts.min(words.len());
    let mut cuts: Vec<usize> = (1..count).map(|cut| cut * words.len() / count).collect();
    for (index, cut) in cuts.iter_mut().enumerate() {
        *cut = (*cut + (seed + index) % 2).min(words.len() - 1);
    }
    cuts.dedup();
    let mut begin = 0;
    let mut all = Vec::new();
    for end in cuts.into_iter().chain([words.len()]) {
        // Each part has a letter, and none begins as another speaker's.
        let rest = words[end..].concat();
        if !rest.is_empty() && (rest.starts_with('-') || !rest.contains(char::is_alphabetic)) {
            continue;
        }
        all.push(words[begin..end].join(" "));
        begin = end;
    }
    all
}

fn translate(translator: &Translator, text: &str, format: Format) -> String {
    translator.translate_document(text, format).unwrap()
}

fn whole(translator: &Translator, sentence: &str) -> String {
    translator.translate_texts(&[sentence]).unwrap()[0].text().to_owned()
}

#[test]
fn a_sentence_over_cues_is_translated_whole() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let all: Vec<String> = sentences(effort::cases(60, 400))
        .into_iter()
        .filter(|one| !one.trim().is_empty())
        .collect();
    let (mut cases, mut all_cues, mut fast) = (0, 0, 0);
    for (number, sentence) in all.iter().enumerate() {
        let next = &all[(number + 1) % all.len()];
        for count in 2..=4 {
            let format = if (number + count) % 2 == 0 { Format::Srt } else { Format::WebVtt };
            let newline = if number % 3 == 0 { "\r\n" } else { "\n" };
            // Two sentences; in some files the second begins in the cue in which the first ends.
            let (mut first, mut second) = (parts(sentence, count, number), parts(next, 2, number));
            for lines in [&mut first, &mut second] {
                let last = lines.last_mut().unwrap();
                if !last.ends_with(['.', '?', '!']) {
                    last.push_str(" .");
                }
            }
            let (one, two) = (first.join(" "), second.join(" "));
            let mut lines = first;
            if number % 4 == 1 {
                let last = lines.pop().unwrap();
                lines.push(format!("{last}\n{}", second.remove(0)));
            }
            lines.extend(second);
            let mut at = 1000;
            let cues: Vec<Cue> = lines
                .into_iter()
                .enumerate()
                .map(|(index, lines)| {
                    let begin = at;
                    at += 900 + 700 * ((number + index) % 3);
                    (begin, at - 40, lines)
                })
                .collect();
            let text = file(&cues, format, newline);
            let found = translate(&translator, &text, format);
            let (texts, others) = read(&found);
            assert_eq!(others, read(&text).1, "{text}\n{found}");
            let expected = [whole(&translator, &one), whole(&translator, &two)].join(" ");
            let filled: Vec<&str> =
                texts.iter().map(String::as_str).filter(|text| *text != "\u{200b}").collect();
            assert_eq!(filled.join(" "), expected, "{text}\n{found}");
            let words = |text: &str| text.split_whitespace().count();
            if words(&expected) >= 2 * cues.len() {
                assert_eq!(filled.len(), texts.len(), "{text}\n{found}");
            }
            // In the time of both sentences they can be read; then each cue can, but for a word.
            let total: usize = cues.iter().map(|(begin, end, _)| end - begin).sum();
            for ((begin, end, _), text) in cues.iter().zip(&texts) {
                let mean = expected.len() as f64 * 1000.0 / total as f64;
                let most = mean.max(17.0) * (end - begin) as f64 / 1000.0;
                fast += usize::from(text.len() as f64 > most + 10.0);
            }
            cases += 1;
            all_cues += cues.len();
        }
    }
    assert!(cases >= 150 && fast * 20 < all_cues, "{fast} of {all_cues}");
    let report = translator.report();
    assert_eq!((report.failed, report.lost), (0, 0), "{report:?}");
}

#[test]
fn what_is_no_continuation_stays_alone() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let alone = |cues: &[(usize, usize, &str)], format: Format, expected: &[&str]| {
        let cues: Vec<Cue> =
            cues.iter().map(|(begin, end, text)| (*begin, *end, (*text).to_owned())).collect();
        let text = file(&cues, format, "\n");
        let found = translate(&translator, &text, format);
        let (texts, others) = read(&found);
        assert_eq!(others, read(&text).1, "{found}");
        assert_eq!(texts, expected, "{found}");
    };
    let month = "what month";
    // Another speaker, by a dash, a voice or a label; a sound; a pause before a capital letter; at the same time.
    alone(
        &[(0, 900, "quel mois"), (1000, 2000, "- quel mois")],
        Format::Srt,
        &[month, "- what month"],
    );
    alone(
        &[(0, 900, "<v Ann>quel mois"), (1000, 2000, "<v Bob>quel mois")],
        Format::WebVtt,
        &["<v Ann>what month", "<v Bob>what month"],
    );
    let label = whole(&demo.translator(demo.options()), "ANNE: quel mois .");
    alone(
        &[(0, 900, "quel mois"), (1000, 2000, "ANNE: quel mois .")],
        Format::Srt,
        &[month, &label],
    );
    let sound = whole(&demo.translator(demo.options()), "[quel mois]");
    alone(
        &[(0, 900, "[quel mois]"), (1000, 2000, "quel mois .")],
        Format::Srt,
        &[&sound, "what month ."],
    );
    alone(
        &[(0, 900, "quel mois"), (1000, 2000, "♪"), (2000, 3000, "quel mois .")],
        Format::Srt,
        &[month, "♪", "what month ."],
    );
    alone(
        &[(0, 900, "quel mois"), (9000, 10_000, "Quel mois .")],
        Format::Srt,
        &[month, "what month ."],
    );
    alone(
        &[(0, 900, "quel mois"), (100, 1000, "quel mois .")],
        Format::Srt,
        &[month, "what month ."],
    );
    // Without punctuation, as songs have it.
    alone(
        &[(0, 900, "quel mois"), (1000, 2000, "quel mois"), (2000, 3000, "quel mois")],
        Format::Srt,
        &[month; 3],
    );
    // A line of tags alone stays a line.
    alone(
        &[(0, 900, "<v Ann>\nquel\nmois ?\n</v>"), (1000, 2000, "<i>\nquel mois .\n</i>")],
        Format::WebVtt,
        &["<v Ann> what month ? </v>", "<i> what month . </i>"],
    );
}

/// Each cue has words of a sentence, also if its translation has the words of two cues in another order.
#[test]
fn no_cue_is_empty_if_the_order_of_words_changes() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let check = |parts: &[&str]| {
        let cue =
            |(index, text): (usize, &&str)| (index * 2000, index * 2000 + 1900, (*text).to_owned());
        let cues: Vec<Cue> = parts.iter().enumerate().map(cue).collect();
        let found = translate(&translator, &file(&cues, Format::Srt, "\n"), Format::Srt);
        let (texts, _) = read(&found);
        assert_eq!(texts.join(" "), whole(&translator, &parts.join(" ")), "{found}");
        assert!(texts.iter().all(|text| text.contains(char::is_alphabetic)), "{found}");
    };
    check(&["emma et nicolas m'", "ont -ils", "donné leur parapluie ?"]);
    let words: Vec<&str> =
        "emma et nicolas m' ont -ils donné leur parapluie ?".split(' ').collect();
    for first in 1..7 {
        for second in first + 1..9 {
            let parts = [&words[..first], &words[first..second], &words[second..]];
            // A dash is another speaker's.
            if parts.iter().all(|part| !part[0].starts_with('-')) {
                check(&parts.map(|part| part.join(" ")).each_ref().map(String::as_str));
            }
        }
    }
}

/// The lines of a cue, in order.
#[test]
fn a_line_of_a_voice_tag_stays_a_line() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let text =
        "WEBVTT\n\n00:01.000 --> 00:03.000\n<v Ann>\nla vieille maison\n<v Bob>\nest belle .\n";
    let found = translate(&translator, text, Format::WebVtt);
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!((lines.len(), lines[3], lines[5]), (7, "<v Ann>", "<v Bob>"), "{found}");
    // Inline tags of a sentence over two cues are closed in each.
    let text = "1\n00:00:01,000 --> 00:00:02,000\nla <i>vieille maison\n\n2\n00:00:02,000 --> 00:00:03,000\nblanche</i> est belle .\n";
    let found = translate(&translator, text, Format::Srt);
    assert_eq!(read(&found).0.len(), 2, "{found}");
}

/// A file of 200 kB with sentences over two cues is read in blocks, and has the same result as its parts.
#[test]
fn sentences_run_over_the_blocks_of_a_long_file() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let cues: Vec<Cue> = (0..effort::cases(600, 4000))
        .map(|index| {
            let text = if index % 2 == 0 { "la vieille maison blanche" } else { "est belle." };
            (index * 2000, index * 2000 + 1900, text.to_owned())
        })
        .collect();
    let text = file(&cues, Format::Srt, "\n");
    let found = translate(&translator, &text, Format::Srt);
    for (index, cue) in read(&found).0.iter().enumerate() {
        let expected = if index % 2 == 0 { "the old white house" } else { "is beautiful ." };
        assert_eq!(cue, expected, "{index}");
    }
}
