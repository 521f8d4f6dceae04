//! `transcribe --stream`: text while the audio arrives.

use super::arguments::Transcribe;
use super::output::{cut, line, words};
use crate::progress;
use crate::streams::{Failure, Streams};
use indicatif::ProgressBar;
use serde_json::json;
use simdformer_speech::{
    AudioReader, Error, InputOptions, StreamingTranscriber, TranscribeEvent, Transcriber,
};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

/// Samples that are read at a time: a tenth of a second.
const CHUNK: usize = 1600;
/// Chunks that may wait while a window is decoded, a minute; then the pipe waits.
const WAITING: usize = 600;
/// Characters of the text that are shown on a terminal.
const SHOWN: usize = 76;

/// Samples, and when they were read.
type Chunk = (Vec<f32>, Instant);

/// Transcribes the one source; returns the exit code.
pub(crate) fn transcribe_stream(
    arguments: &Transcribe,
    transcriber: Transcriber,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let [path] = &arguments.files[..] else {
        let found = arguments.files.len();
        return Err(format!("--stream: expected one file or pipe, found {found}").into());
    };
    let mut stream = StreamingTranscriber::new(transcriber)?;
    stream.set_delay(arguments.delay)?;
    let chunks = read_chunks(path, arguments.input.options());
    let bar = progress::line(arguments.reports.quiet || arguments.output.json);
    let Streams { out, notes, .. } = streams;
    let (arrived, written) = (Instant::now(), Ok(()));
    let mut output = Output { arguments, path, bar: &bar, out, notes, arrived, written };
    let mut failed = None;
    while let Ok(first) = chunks.recv() {
        // What has arrived while the last window was decoded is decoded together.
        let mut samples = Vec::new();
        for chunk in core::iter::once(first).chain(chunks.try_iter().take(WAITING)) {
            match chunk {
                Ok((chunk, at)) => {
                    samples.extend(chunk);
                    output.arrived = at;
                }
                Err(error) => failed = Some(error),
            }
        }
        stream.push(&samples, &mut |event| output.take(event))?;
        output.flush()?;
    }
    stream.finish(&mut |event| output.take(event))?;
    output.flush()?;
    bar.finish_and_clear();
    match failed {
        None => Ok(0),
        Some(error) => {
            writeln!(output.notes, "simdformer: {}: {error}", path.display())?;
            Ok(1)
        }
    }
}

/// Reads a source in its own thread, so that a pipe does not overflow while a window is decoded. The thread ends with the
/// source, or after the receiver.
fn read_chunks(path: &Path, options: InputOptions) -> Receiver<Result<Chunk, Error>> {
    let (sender, receiver) = sync_channel(WAITING);
    let path = path.to_owned();
    std::thread::spawn(move || {
        if let Err(error) = send(&path, options, &sender) {
            // If the receiver is gone, the command has ended already.
            let _ = sender.send(Err(error));
        }
    });
    receiver
}

fn send(
    path: &Path,
    options: InputOptions,
    sender: &SyncSender<Result<Chunk, Error>>,
) -> Result<(), Error> {
    let mut audio = match path == Path::new("-") {
        true => AudioReader::new(io::stdin(), options)?,
        false => AudioReader::open(path, options)?,
    };
    loop {
        let mut chunk = vec![0.0; CHUNK];
        let read = audio.read_present(&mut chunk)?;
        chunk.truncate(read);
        let gone = sender.send(Ok((chunk, Instant::now()))).is_err();
        if gone || read < CHUNK {
            return audio.incomplete().map_or(Ok(()), |missing| Err(missing.clone().into()));
        }
    }
}

/// Where events are written.
struct Output<'o> {
    arguments: &'o Transcribe,
    path: &'o Path,
    bar: &'o ProgressBar,
    out: &'o mut (dyn Write + Send),
    notes: &'o mut (dyn Write + Send),
    /// When the newest samples were read.
    arrived: Instant,
    /// The first failure of writing.
    written: io::Result<()>,
}

impl Output<'_> {
    fn take(&mut self, event: TranscribeEvent<'_>) {
        if self.written.is_ok() {
            self.written = self.write(event);
        }
    }

    fn write(&mut self, event: TranscribeEvent<'_>) -> io::Result<()> {
        let Self { arguments, path, bar, out, notes, arrived, .. } = self;
        let behind = (arrived.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        let line = match event {
            TranscribeEvent::Window(window) => {
                let (path, cut) = (path.display(), cut(window));
                return bar.suspend(|| match cut {
                    Some(cut) => writeln!(notes, "simdformer: {path}: {cut}"),
                    None => Ok(()),
                });
            }
            TranscribeEvent::Segment(segment) if arguments.output.json => {
                let mut object = json!({
                    "final": true, "start": segment.start, "end": segment.end, "text": segment.text.trim(),
                    "ids": segment.tokens, "window": segment.window, "language": segment.language,
                    "behind": behind,
                });
                if !segment.words.is_empty() {
                    object["words"] = words(segment);
                }
                object.to_string()
            }
            TranscribeEvent::Tentative(now) if arguments.output.json => json!({
                "final": false, "start": now.start, "end": now.end, "text": now.text.trim(),
                "stable": now.stable_text().trim(), "language": now.language, "behind": behind,
            })
            .to_string(),
            TranscribeEvent::Segment(segment) => {
                let text = line(&segment.text);
                match arguments.output.timestamps {
                    true => format!("[{:.2} -> {:.2}] {text}", segment.start, segment.end),
                    false => text,
                }
            }
            TranscribeEvent::Tentative(now) => {
                let text = line(&now.text);
                let hidden = text.chars().count().saturating_sub(SHOWN);
                bar.set_message(text.chars().skip(hidden).collect::<String>());
                return Ok(());
            }
            _ => return Ok(()),
        };
        bar.suspend(|| writeln!(out, "{line}").and_then(|()| out.flush()))
    }

    /// What could not be written.
    fn flush(&mut self) -> io::Result<()> {
        core::mem::replace(&mut self.written, Ok(()))
    }
}
