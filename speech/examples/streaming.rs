//! A recording as it would be transcribed while it is spoken.
//!
//! `cargo run --release -p simdformer-speech --example streaming MODEL DELAY FILE...` prints a JSON object for each event, with the
//! time at which a listener would see it: samples arrive as fast as they were spoken, and computing takes the CPU time of this
//! thread (so that other programs do not matter; Linux). Nothing waits: hours of audio take the time of computing. The
//! last line of a file has its length, the CPU time, the number of decodings that were not final, and whether the final
//! text is that of the whole file.

#![allow(missing_docs, unreachable_pub)]

use serde_json::json;
use simdformer::Model;
use simdformer_speech::{
    AudioReader, FeatureExtractor, InputOptions, Recording, StreamingTranscriber, Tokenizer,
    TranscribeEvent, TranscribeOptions, Transcriber,
};
use std::error::Error;
use std::io::{Write, stdout};
use std::ops::ControlFlow;

const RATE: usize = 16_000;
/// Samples that arrive at a time: a twentieth of a second.
const CHUNK: usize = 800;

/// The CPU time of this thread, in seconds.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse().ok());
    nanoseconds.unwrap_or(f64::NAN) / 1e9
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, delay, files @ ..] = &arguments[..] else {
        return Err("expected MODEL DELAY FILE...".into());
    };
    let (model, tokenizer) = (Model::open(directory)?, Tokenizer::from_dir(directory)?);
    let extractor = FeatureExtractor::from_dir(directory)?;
    let options = TranscribeOptions::new(model.config());
    let transcriber = Transcriber::new(model, tokenizer, extractor, options)?;
    let mut stream = StreamingTranscriber::new(transcriber)?;
    stream.set_delay(delay.parse()?)?;
    let mut out = stdout().lock();
    for file in files {
        let mut audio = AudioReader::open(file, InputOptions::default())?;
        let mut samples = Vec::new();
        loop {
            let at = samples.len();
            samples.resize(at + RATE, 0.0);
            let read = audio.read(&mut samples[at..])?;
            samples.truncate(at + read);
            if read < RATE {
                break;
            }
        }
        let (mut clock, mut taken, mut computing, mut updates) = (0.0_f64, 0, 0.0, 0);
        let mut text = Vec::new();
        let mut ended = false;
        while !ended {
            // A chunk, or all that arrived while the last one was decoded.
            clock = clock.max((taken + CHUNK).min(samples.len()) as f64 / RATE as f64);
            let arrived = ((clock * RATE as f64) as usize).min(samples.len());
            let began = cpu();
            let mut lines = Vec::new();
            let mut show = |event: TranscribeEvent<'_>| match event {
                TranscribeEvent::Segment(s) => {
                    text.push(s.clone());
                    let at = clock + cpu() - began;
                    lines.push(json!({"at": at, "final": true, "start": s.start, "end": s.end, "text": s.text}));
                }
                TranscribeEvent::Tentative(now) => {
                    updates += 1;
                    let at = clock + cpu() - began;
                    lines.push(json!({
                        "at": at, "final": false, "start": now.start, "end": now.end, "text": now.text,
                        "stable": now.stable_text(), "cost": cpu() - began,
                    }));
                }
                _ => (),
            };
            ended = taken == samples.len();
            match ended {
                true => drop(stream.finish(&mut show)?),
                false => stream.push(&samples[taken..arrived], &mut show)?,
            }
            let cost = cpu() - began;
            (clock, computing, taken) = (clock + cost, computing + cost, arrived);
            for line in lines {
                writeln!(out, "{line}")?;
            }
        }
        let mut whole = Vec::new();
        let mut source = &samples[..];
        stream.transcriber().transcribe_recording(Recording::new(&mut source), &mut |event| {
            if let TranscribeEvent::Segment(segment) = event {
                whole.push(segment.clone());
            }
            ControlFlow::Continue(())
        })?;
        let seconds = samples.len() as f64 / RATE as f64;
        let equal = whole == text;
        let end = json!({"file": file, "seconds": seconds, "cpu": computing, "updates": updates, "equal": equal});
        writeln!(out, "{end}")?;
        out.flush()?;
    }
    Ok(())
}
