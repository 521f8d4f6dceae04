//! Prints the spans of speech of an audio file, or the probability of each of its chunks:
//! `cargo run --release -p simdformer-speech --example speech -- [--probabilities] FILE`

use simdformer_speech::vad::{SpeechDetector, VadOptions, speech_spans};
use simdformer_speech::{AudioReader, InputOptions};
use std::env::args;
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path =
        args().nth(args().count() - 1).filter(|_| args().count() > 1).ok_or("expected a file")?;
    let mut audio = AudioReader::open(path, InputOptions::default())?;
    let mut detector = SpeechDetector::new()?;
    let mut out = std::io::stdout().lock();
    if !args().any(|argument| argument == "--probabilities") {
        for (start, end) in speech_spans(&mut audio, detector, VadOptions::default())? {
            writeln!(out, "{start:.3} {end:.3}")?;
        }
        return Ok(());
    }
    let mut block = vec![0.0; 16_000];
    loop {
        let read = audio.read(&mut block)?;
        let mut found = Vec::new();
        detector.push(&block[..read], &mut |probability| found.push(probability))?;
        if read < block.len() {
            detector.finish(&mut |probability| found.push(probability))?;
        }
        for probability in found {
            writeln!(out, "{probability}")?;
        }
        if read < block.len() {
            return Ok(());
        }
    }
}
