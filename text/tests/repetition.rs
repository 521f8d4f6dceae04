//! Runaway repetition: loops are found, and no sentence of 48 languages is taken for one.

use simdformer_text::Repetition;

/// A phrase of different tokens.
fn phrase(period: usize) -> Vec<u32> {
    (100..).take(period).collect()
}

#[test]
fn loops_of_every_period_are_found_wherever_they_begin() {
    for period in 1..=40 {
        for start in [0, 1, 7] {
            let times = 8;
            let mut ids: Vec<u32> = (0..).take(start).collect();
            ids.extend(phrase(period).repeat(times));
            let found = Repetition::find_in(20, &ids);
            assert_eq!(found, Some(Repetition::Loop { start, period, times }), "{period} {start}");
            // A loop that the last token has just begun again.
            ids.push(100);
            assert_eq!(
                Repetition::find_in(20, &ids),
                found
                    .filter(|_| period > 1)
                    .or(Some(Repetition::Loop { start, period, times: 9 },))
            );
        }
    }
}

#[test]
fn few_repetitions_are_no_loop() {
    // `ha ha ha ha`, `very, very, very, very`, `000 000 000`
    for (period, times) in [(1, 7), (2, 5), (3, 4), (4, 3), (7, 3), (8, 2), (20, 2)] {
        let ids = phrase(period).repeat(times);
        assert_eq!(Repetition::find_in(ids.len(), &ids), None, "{period} {times}");
    }
}

#[test]
fn a_sentence_twice_is_a_loop_if_the_source_has_it_once() {
    let ids = phrase(12).repeat(2);
    assert_eq!(
        Repetition::find_in(11, &ids),
        Some(Repetition::Loop { start: 0, period: 12, times: 2 })
    );
    assert_eq!(Repetition::find_in(22, &ids), None);
}

#[test]
fn phrases_that_return_with_something_between_them_are_found() {
    let ids: Vec<u32> = (0..12).flat_map(|i| (1..15).chain([50 + i])).collect();
    let found = Repetition::find_in(60, &ids);
    assert!(
        matches!(found, Some(Repetition::Ngrams { distinct, total: 177 }) if distinct < 71),
        "{found:?}"
    );
}

#[test]
fn an_output_that_is_far_too_long_is_found() {
    let ids = phrase(90);
    assert_eq!(Repetition::find_in(10, &ids), Some(Repetition::Length { source: 10, target: 90 }));
    assert_eq!(Repetition::find_in(12, &ids), None);
    assert_eq!(Repetition::find_in(0, &phrase(32)), None);
    assert_eq!(Repetition::find_in(usize::MAX, &ids), None);
    assert_eq!(Repetition::find_in(0, &[]), None);
}

/// With one token for each word, for each character and for each byte.
#[test]
fn no_sentence_of_any_language_is_repetition() {
    let mut sentences = 0;
    for entry in
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/documents/tests/sentences"))
            .unwrap()
    {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        for text in text.lines().filter(|line| !line.is_empty()) {
            let mut words: Vec<&str> = text.split_whitespace().collect();
            words.sort_unstable();
            let place = |word| u32::try_from(words.binary_search(&word).unwrap()).unwrap();
            let of_words: Vec<u32> = text.split_whitespace().map(place).collect();
            let of_characters: Vec<u32> = text.chars().map(u32::from).collect();
            let of_bytes: Vec<u32> = text.bytes().map(u32::from).collect();
            for ids in [of_words, of_characters, of_bytes] {
                assert_eq!(Repetition::find_in(ids.len(), &ids), None, "{text}");
                assert_eq!(Repetition::find_in(ids.len() / 3, &ids), None, "{text}");
            }
            sentences += 1;
        }
    }
    assert!(sentences > 1000, "{sentences}");
}
