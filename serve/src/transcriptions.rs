//! `/v1/audio/transcriptions`, in the dialect of OpenAI.

use crate::body::{check_address, media_type, read_body};
use crate::error::{Refusal, json_response, with_type};
use crate::queue::Place;
use crate::shared::{Deadline, Shared, run_blocking};
use axum::body::Body;
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Value, json};
use simdformer::Cancel;
use simdformer::search::Finish;
use simdformer_speech::subtitles::{SubtitleFormat, SubtitleOptions, cues};
use simdformer_speech::{
    AudioReader, Error, InputOptions, Segment, TranscribeEvent, TranscribeOptions, Transcriber,
    Transcription,
};
use std::collections::BTreeSet;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

/// A field that may stand several times, also with brackets after it.
const GRANULARITIES: &str = "timestamp_granularities";
/// The forms of the answer.
const FORMS: [&str; 5] = ["json", "text", "verbose_json", "srt", "vtt"];
/// What a second of sound counts in the queue, about as many tokens as the model reads and writes for it.
const TOKENS_PER_SECOND: usize = 50;
/// The bytes of a second of compressed speech. The length is known only when the recording is decoded.
const BYTES_PER_SECOND: usize = 4000;

/// The frames of a second.
const FRAMES: f64 = 100.0;

/// A form with a recording.
struct Asked {
    file: Bytes,
    form: &'static str,
    language: Option<String>,
    prompt: Option<String>,
    temperature: Option<f64>,
    words: bool,
}

/// `POST /v1/audio/transcriptions`.
pub(crate) async fn transcribe(shared: Arc<Shared>, request: Request) -> Result<Response, Refusal> {
    let config = &shared.config;
    check_address(request.uri())?;
    let (parts, body) = request.into_parts();
    let found = media_type(&parts.headers);
    if found != "multipart/form-data" {
        let text = format!("content type: expected multipart/form-data, found {found:?}");
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let place = shared.queue.enter()?;
    let Ok(recording) = shared.recordings.clone().try_acquire_owned() else {
        let text =
            format!("expected at most {} recordings at a time, found more", config.recordings);
        return Err(Refusal {
            retry_after: Some(1),
            ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, text)
        });
    };
    // Whole, in bounded time and memory, before its parts are looked for.
    let body = read_body(&parts.headers, body, config.audio_bytes, config.audio_read_time).await?;
    let deadline = Deadline::new(config.deadline);
    let form = Request::from_parts(parts, Body::from(body));
    // The body is there, so reading waits for nothing.
    let runtime = Handle::current();
    let asked = run_blocking(deadline, place, move |_, place| {
        Ok((runtime.block_on(read_form(form))?, place))
    });
    let (asked, mut place) = asked.await?;
    let transcriber =
        shared.transcriber.as_ref().ok_or_else(|| Refusal::no_model("transcribes recordings"))?;
    let mut options = transcriber.options().clone();
    options.language = asked.language.or(options.language);
    options.initial_prompt = asked.prompt.or(options.initial_prompt);
    // 0 is the default of the dialect: rising temperatures, as without it.
    if let Some(temperature) = asked.temperature.filter(|&temperature| temperature > 0.0) {
        options.temperatures = vec![temperature];
    }
    options.words |= asked.words;
    place.set_tokens((1 + asked.file.len() / BYTES_PER_SECOND) * TOKENS_PER_SECOND)?;
    let found =
        transcribe_in_turn(&shared, deadline, (place, recording), options, asked.file).await?;
    let subtitles = |format: SubtitleFormat, media| -> Result<Response, Refusal> {
        let mut file = Vec::new();
        let written = format.write(&cues(&found.segments, &SubtitleOptions::default()), &mut file);
        // Writing to memory cannot fail.
        written.map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error))?;
        Ok(with_type(media, file))
    };
    let note = cut(&found);
    let with_note = |mut answer: Value| {
        if let Some(note) = &note {
            answer["notes"] = json!([note]);
        }
        json_response(&answer)
    };
    let mut answer = match asked.form {
        "text" => with_type("text/plain; charset=utf-8", found.text() + "\n"),
        "srt" => subtitles(SubtitleFormat::Srt, "application/x-subrip; charset=utf-8")?,
        "vtt" => subtitles(SubtitleFormat::Vtt, "text/vtt; charset=utf-8")?,
        "verbose_json" => return Ok(with_note(verbose(&found, asked.words))),
        _ => return Ok(with_note(json!({"text": found.text()}))),
    };
    if let Some(note) = note {
        // A text has no place for it.
        let value = HeaderValue::from_str(&note);
        let value = value.map_err(|e| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e))?;
        answer.headers_mut().insert("simdformer-notes", value);
    }
    Ok(answer)
}

/// What is said of windows whose text did not end.
fn cut(found: &Transcription) -> Option<String> {
    let mut cut = found.windows.iter().filter(|window| window.finish != Finish::End);
    let first = cut.next()?.first_frame as f64 / FRAMES;
    let windows = 1 + cut.count();
    Some(format!("the text from {first:.1} s on reached the maximum length; {windows} windows did"))
}

/// Reads the parts of a form. One that the dialect does not know, that this server cannot do, or that has no effect, is an
/// error.
async fn read_form(request: Request) -> Result<Asked, Refusal> {
    let wrong = |error: &dyn core::fmt::Display| {
        Refusal::invalid(format_args!("body: expected the parts of a form, found: {error}"))
    };
    let mut form = Multipart::from_request(request, &()).await.map_err(|error| wrong(&error))?;
    let mut file = None;
    let (mut names, mut granular) = (BTreeSet::new(), false);
    let mut asked = Asked {
        file: Bytes::new(),
        form: FORMS[0],
        language: None,
        prompt: None,
        temperature: None,
        words: false,
    };
    while let Some(part) = form.next_field().await.map_err(|error| wrong(&error))? {
        let name = part.name().unwrap_or_default().to_owned();
        let bytes = part.bytes().await.map_err(|error| wrong(&error))?;
        if !name.starts_with(GRANULARITIES) && !names.insert(name.clone()) {
            return Err(Refusal::invalid(format_args!("{name}: expected it once, found it twice")));
        }
        if name == "file" {
            file = Some(bytes);
            continue;
        }
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            Refusal::invalid(format_args!("{name}: expected UTF-8, found: {error}"))
        })?;
        let refused = |expected: &str| Refusal::field(&name, expected, &Value::from(text));
        let given = Some(text.to_owned()).filter(|text| !text.is_empty());
        match &name[..] {
            // There is one model.
            "model" => (),
            "language" => asked.language = given,
            "prompt" => asked.prompt = given,
            "response_format" => {
                let form = FORMS.iter().find(|form| **form == text);
                asked.form = form.ok_or_else(|| refused(&FORMS.join(" or ")))?;
            }
            "temperature" => {
                let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
                asked.temperature = Some(number.ok_or_else(|| refused("a number from 0 to 1"))?);
            }
            "timestamp_granularities[]" | GRANULARITIES => {
                granular = true;
                match text {
                    "word" => asked.words = true,
                    "segment" => (),
                    _ => return Err(refused("word or segment")),
                }
            }
            "stream" if text == "false" => (),
            _ => {
                let expected = "a field of /openapi.json";
                return Err(Refusal::field("form", expected, &Value::from(name)));
            }
        }
    }
    if granular && asked.form != "verbose_json" {
        let found = Value::from(asked.form);
        let operand = format!("response_format, with {GRANULARITIES}");
        return Err(Refusal::field(&operand, "verbose_json", &found));
    }
    let missing = || Refusal::invalid("file: expected a recording, found none");
    asked.file = file.filter(|file| !file.is_empty()).ok_or_else(missing)?;
    Ok(asked)
}

/// Transcribes a file, after those before it.
async fn transcribe_in_turn(
    shared: &Shared,
    deadline: Deadline,
    (place, recording): (Place, OwnedSemaphorePermit),
    options: TranscribeOptions,
    file: Bytes,
) -> Result<Transcription, Refusal> {
    let of = shared.transcriber.as_ref().ok_or_else(Refusal::closed)?.clone();
    let turn = deadline.limit(shared.transcribing.clone().acquire_owned()).await?;
    let turn = turn.map_err(|_| Refusal::closed())?;
    let found = run_blocking(deadline, place, move |cancel, _place| {
        // Until the thread ends, also when its request has ended before.
        let _held = (turn, recording);
        transcribe_file(&of, options, &file, cancel).map_err(refusal)
    });
    let found = found.await?;
    match &found.summary.incomplete {
        // The text of a part would look like that of the whole.
        Some(incomplete) => Err(Refusal::invalid(format_args!("file: {incomplete}"))),
        None => Ok(found),
    }
}

fn transcribe_file(
    of: &Transcriber,
    options: TranscribeOptions,
    file: &Bytes,
    cancel: &Cancel,
) -> Result<Transcription, Error> {
    let (engine, tokenizer) = (of.engine().clone(), of.tokenizer().clone());
    let mut transcriber = Transcriber::new(engine, tokenizer, of.extractor().clone(), options)?;
    transcriber.set_cancel(cancel.clone());
    let mut open = || AudioReader::new(Cursor::new(file.clone()), InputOptions::default());
    let mut found = Transcription::default();
    found.summary = transcriber.transcribe_reopened(&mut open, None, &mut |event| {
        match event {
            TranscribeEvent::Window(window) => found.windows.push(window.clone()),
            TranscribeEvent::Segment(segment) => found.segments.push(segment.clone()),
            _ => (),
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn refusal(error: Error) -> Refusal {
    match error {
        Error::Cancelled => Refusal::closed(),
        Error::Unsupported { .. }
        | Error::Corrupt { .. }
        | Error::InvalidOption { .. }
        | Error::InvalidInput { .. }
        | Error::Language { .. }
        | Error::Incomplete(_)
        | Error::Io { .. } => Refusal::invalid(error),
        _ => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

/// `verbose_json`.
fn verbose(found: &Transcription, words: bool) -> Value {
    let segment = |(id, segment): (usize, &Segment)| {
        let seek = found.windows.get(segment.window).map_or(0, |window| window.first_frame);
        json!({
            "id": id,
            "seek": seek,
            "start": segment.start,
            "end": segment.end,
            "text": segment.text,
            "tokens": segment.tokens,
            "temperature": segment.temperature,
            "avg_logprob": segment.avg_logprob,
            "compression_ratio": segment.compression_ratio,
            "no_speech_prob": segment.no_speech_prob,
        })
    };
    let mut answer = json!({
        "task": "transcribe",
        "language": found.summary.language,
        "duration": found.summary.duration,
        "text": found.text(),
        "segments": found.segments.iter().enumerate().map(segment).collect::<Vec<_>>(),
    });
    if words {
        let words = found.segments.iter().flat_map(|segment| &segment.words);
        let words = words
            .map(|word| json!({"word": word.text.trim(), "start": word.start, "end": word.end}));
        answer["words"] = words.collect();
    }
    answer
}

/// Transcribes a short tone, to see whether the model runs.
pub(crate) async fn transcribe_a_tone(shared: &Arc<Shared>) -> Result<(), Refusal> {
    let Some(transcriber) = shared.transcriber.clone() else { return Ok(()) };
    let turn = shared.transcribing.clone().acquire_owned().await.map_err(|_| Refusal::closed())?;
    let tone = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let samples: Vec<f32> = (0..8000).map(|i| (i as f32 * 0.3).sin() * 0.1).collect();
        transcriber.transcribe(&samples).map(drop).map_err(refusal)
    });
    tone.await.map_err(|error| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error))?
}
