//! Requests and texts without a result: the exit code, and what is noted.

use crate::command::{err, out, run_command};
use simdformer_testing::published::french;

/// The commands on ids have no text to copy: a request without finite scores is their error.
#[test]
fn ids_without_finite_scores_are_an_error() {
    let input = "{\"input_ids\": [6, 11, 0]}\n{\"input_ids\": [8, 0]}\n";
    for (overflows, more) in [false, true]
        .into_iter()
        .flat_map(|fault| [&[][..], &["--beams", "2"], &["--compare-weights"]].map(|m| (fault, m)))
    {
        let place = french();
        if overflows {
            let path = place.0.join("model.safetensors");
            let mut bytes = std::fs::read(&path).unwrap();
            let table = {
                let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
                let data = tensors.tensor("model.shared.weight").unwrap();
                let start = data.data().as_ptr() as usize - bytes.as_ptr() as usize;
                start..start + data.data().len()
            };
            // One row is not enough for all sentences: a logit of minus infinity is a token that is never chosen.
            for number in bytes[table].as_chunks_mut::<4>().0 {
                *number = 3e38f32.to_le_bytes();
            }
            std::fs::write(&path, bytes).unwrap();
        }
        let command = ["generate", "--model", place.0.to_str().unwrap()];
        let output = run_command(&[&command, more].concat(), input);
        let (code, notes) = (output.status.code(), err(&output));
        if !overflows {
            assert_eq!(code, Some(0), "{more:?}: {notes}");
        } else {
            assert_eq!((code, out(&output)), (Some(1), ""), "{more:?}: {notes}");
            assert!(notes.contains("the model's scores are NaN or infinite"), "{more:?}: {notes}");
        }
    }
}

#[test]
fn what_reached_the_maximum_length_is_noted() {
    let place = french();
    let translate = |lines: &[&str]| {
        let model = ["translate", "--model", place.0.to_str().unwrap(), "--max-new-tokens", "3"];
        run_command(&[&model, lines, &["je suis étudiant."]].concat(), "")
    };
    for lines in [&["--lines"][..], &["--lines", "--stream"], &[]] {
        let output = translate(lines);
        let notes = err(&output);
        assert!(notes.contains("reached the maximum length"), "{lines:?}: {notes}");
    }
}
