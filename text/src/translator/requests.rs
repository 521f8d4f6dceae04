//! The sentences of a batcher: those that wait, and those in the slots of its session.

use super::first_search::Begun;
use super::model_and_tokenizer::Translator;
use super::options::TranslateOptions;
use super::translation::{Failure, Translation};
use super::window::{Encoding, Reads, Unit, encode_unit, finish_translation};
use crate::error::Error;
use crate::{DecodeStream, Encoded, Tokenizer};
use core::fmt;
use core::ops::ControlFlow;
use simdformer::search::Finish;
use simdformer::{Cancel, DecodeStats, Event, Model, RequestQueue, Session, Source, Stop};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Sentences whose first search is done are finished together, because a pass of the model for one alone costs as much as for
/// several: after so many steps of the batch, or when there are so many.
const TOGETHER: usize = 8;

/// What is called with the events of a sentence.
type OnEvent = Box<dyn FnMut(BatchEvent) + Send>;

/// What happens to a sentence of a [`Batcher`](super::Batcher).
#[derive(Debug)]
#[non_exhaustive]
pub enum BatchEvent {
    /// The next piece of the text; the pieces together are [`Translation::text`]. Greedy search and sampling report it
    /// as tokens are chosen, beam search at the end.
    Text(String),
    /// The translation. That of a cancelled sentence has the tokens so far and [`Finish::Stopped`].
    Done(Translation),
    /// There is none: [`Error::Closed`] if the batcher was dropped before the sentence was done. The sentence gets
    /// no further event.
    Failed(Error),
}

/// What the callers and the decoding thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) model: Arc<Model>,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) options: TranslateOptions,
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    /// Set when the batcher is dropped: every sentence ends.
    pub(super) abort: AtomicBool,
    /// Set then, too: ends what is done for a sentence between two steps of the batch.
    pub(super) cancel: Cancel,
    /// The most sentences that wait or are decoded.
    pub(super) capacity: AtomicUsize,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Arrived, and not yet seen by the decoding thread.
    pub(super) arrived: Vec<Request>,
    /// The same, of those that are translated as sentences of a text.
    pub(super) marked: Vec<MarkedRequest>,
    /// No more sentences are accepted.
    pub(super) closed: bool,
    /// Sentences that wait or are decoded.
    pub(super) unfinished: usize,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sentence that waits.
#[derive(Debug)]
pub(super) struct Request {
    encoded: Encoded,
    stream: u64,
    state: RequestState,
    /// If it is translated as a sentence of a text.
    marked: Option<Box<FirstSearch>>,
}

impl Request {
    pub(super) fn new(encoded: Encoded, stream: u64, state: RequestState) -> Self {
        Self { encoded, stream, state, marked: None }
    }

    fn source(&self) -> Source<'_> {
        Source {
            prefix: self.encoded.prefix.get(1..).unwrap_or_default(),
            forced_bos: self.encoded.forced_bos,
            stream: self.stream,
            ..Source::new(&self.encoded.ids)
        }
    }
}

/// A sentence that is translated as one of a text: its first search is one of the batch.
#[derive(Debug)]
struct FirstSearch {
    begun: Begun,
    /// The language of the translation.
    target: Option<String>,
}

/// A sentence that has arrived and is translated as one of a text: with symbols that are copied, or in capitals.
#[derive(Debug)]
pub(super) struct MarkedRequest {
    pub(super) text: String,
    pub(super) source: Option<String>,
    pub(super) target: Option<String>,
    pub(super) stream: u64,
    pub(super) state: RequestState,
}

/// What is known of a sentence and who waits for it.
pub(super) struct RequestState {
    shared: Arc<Shared>,
    translation: Translation,
    cancel: Cancel,
    /// `None` after the last event, and after it has panicked.
    on_event: Option<OnEvent>,
    /// Whether it is one of [`State::unfinished`](State::unfinished).
    counted: bool,
}

impl fmt::Debug for RequestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestState").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}

impl RequestState {
    pub(super) fn new(
        shared: Arc<Shared>,
        translation: Translation,
        cancel: Cancel,
        on_event: OnEvent,
    ) -> Self {
        Self { shared, translation, cancel, on_event: Some(on_event), counted: true }
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled() || self.shared.abort.load(Ordering::Relaxed)
    }

    fn text(&mut self, text: &str) {
        if let Some(mut on_event) = self.on_event.take() {
            on_event(BatchEvent::Text(text.to_owned()));
            self.on_event = Some(on_event);
        }
    }

    /// Sends the last event.
    fn end(&mut self, event: BatchEvent) {
        if core::mem::take(&mut self.counted) {
            self.shared.state().unfinished -= 1;
            // A caller of `submit` may wait until the queue is shorter.
            self.shared.changed.notify_all();
        }
        if let Some(mut on_event) = self.on_event.take() {
            on_event(event);
        }
    }

    fn done(mut self) {
        let translation = core::mem::take(&mut self.translation);
        let dropped = self.shared.abort.load(Ordering::Relaxed);
        self.end(match translation.finish {
            // The sentence was not cancelled, so a part of it is not expected.
            Some(Finish::Stopped) if dropped => BatchEvent::Failed(Error::Closed),
            _ => BatchEvent::Done(translation),
        });
    }

    /// Sends the whole text, and the last event.
    fn done_whole(mut self) {
        if self.translation.failure.is_none() && !self.translation.text.is_empty() {
            let text = self.translation.text.clone();
            self.text(&text);
        }
        self.done();
    }

    /// Ends with an error.
    fn fail(mut self, error: &Error) {
        self.end(BatchEvent::Failed(match error {
            // Only the end of the batcher cancels it.
            Error::Cancelled => Error::Closed,
            error => error.again(),
        }));
    }

    /// Ends a sentence that is cancelled before it is decoded.
    fn stopped(mut self) {
        self.translation.finish = Some(Finish::Stopped);
        self.done();
    }
}

impl Drop for RequestState {
    /// A sentence that is dropped without a result, because the decoding thread ended, gets an error.
    fn drop(&mut self) {
        let mut end = || self.end(BatchEvent::Failed(Error::Closed));
        if std::thread::panicking() {
            // A second panic would end the process.
            drop(catch_unwind(AssertUnwindSafe(end)));
        } else {
            end();
        }
    }
}

/// A sentence in a slot, and the text of its tokens if that is reported as they are chosen.
type Active<'t> = (RequestState, SlotText<'t>);

enum SlotText<'t> {
    Parts(DecodeStream<'t>),
    Whole(Box<FirstSearch>),
}

/// The queue of the decoding thread.
pub(super) struct Requests<'t> {
    shared: &'t Arc<Shared>,
    tokenizer: &'t Tokenizer,
    /// Translates what takes more than the search of the batch.
    others: Translator,
    waiting: VecDeque<Request>,
    /// Those that are translated as sentences of a text, after their first search.
    searched: Vec<(RequestState, Box<FirstSearch>)>,
    /// The steps since the first of them.
    steps: usize,
    slots: Vec<Option<Active<'t>>>,
    /// The most source tokens of the session.
    planned: usize,
}

impl<'t> Requests<'t> {
    pub(super) fn new(
        shared: &'t Arc<Shared>,
        tokenizer: &'t Tokenizer,
        others: Translator,
        slots: usize,
    ) -> Self {
        let slots = (0..slots).map(|_| None).collect();
        let (waiting, searched) = Default::default();
        Self { shared, tokenizer, others, waiting, searched, steps: 0, slots, planned: 0 }
    }

    /// The session has this many slots, and takes sources of this length.
    pub(super) fn plan(&mut self, slots: usize, source_tokens: usize) {
        self.slots.resize_with(slots.max(self.slots.len()), || None);
        self.planned = source_tokens;
    }

    /// Waits for sentences, and returns the most tokens of one; `None` if the batcher is closed and nothing is left.
    pub(super) fn wait_for_work(&mut self) -> Option<usize> {
        loop {
            self.finish_searched();
            self.receive(true);
            if self.searched.is_empty() {
                return self.waiting.iter().map(|request| request.encoded.ids.len()).max();
            }
        }
    }

    /// Takes what has arrived, and drops what was cancelled. If `wait` is set and there is nothing, waits until something
    /// arrives or the batcher is closed.
    fn receive(&mut self, wait: bool) {
        loop {
            let mut state = self.shared.state();
            let idle = self.waiting.is_empty() && self.searched.is_empty();
            while wait
                && idle
                && state.arrived.is_empty()
                && state.marked.is_empty()
                && !state.closed
            {
                state = self.shared.wait(state);
            }
            let (arrived, closed) = (core::mem::take(&mut state.arrived), state.closed);
            let marked = core::mem::take(&mut state.marked);
            // A callback of a sentence may submit another one.
            drop(state);
            self.waiting.extend(arrived);
            let cancelled = |request: &Request| request.state.is_cancelled();
            if self.waiting.iter().any(cancelled) {
                let all = core::mem::take(&mut self.waiting).into_iter();
                let (ended, waiting): (VecDeque<_>, _) = all.partition(cancelled);
                self.waiting = waiting;
                ended.into_iter().for_each(|request| request.state.stopped());
            }
            for request in marked {
                if request.state.is_cancelled() {
                    request.state.stopped();
                } else {
                    self.begin(request);
                }
            }
            if !wait || closed || !(self.waiting.is_empty() && self.searched.is_empty()) {
                return;
            }
        }
    }

    /// Prepares a sentence that is translated as one of a text, for its first search.
    fn begin(&mut self, request: MarkedRequest) {
        let MarkedRequest { text, source, target, stream, mut state } = request;
        self.others.options.target.clone_from(&target);
        let source = source.as_deref();
        let unit = Unit {
            text: &text,
            source,
            stream,
            force: &[],
            reads: Reads::WholeSentence,
            options: None,
        };
        let begun = match self.others.begin_sentence(&unit) {
            Ok(begun) => begun,
            Err(error) => return state.fail(&error),
        };
        state.translation = Translation::default();
        let Shared { model, tokenizer, options, .. } = &**self.shared;
        let encoding = begun.unit().map(|unit| {
            let target = target.as_deref();
            encode_unit(model, tokenizer, options, target, &unit, &mut state.translation)
        });
        let search = Box::new(FirstSearch { begun, target });
        match encoding.transpose() {
            Ok(Some(Encoding::Ids(encoded))) => {
                self.waiting.push_back(Request { encoded, stream, state, marked: Some(search) });
            }
            Ok(_) => self.searched.push((state, search)),
            Err(error) => state.fail(&error),
        }
    }

    /// Ends the sentences whose first search is done: symbols are put in their places, and some are searched again.
    fn finish_searched(&mut self) {
        self.steps = 0;
        let mut left = core::mem::take(&mut self.searched);
        while let Some((_, first)) = left.first() {
            let target = first.target.clone();
            let (those, others): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|(_, one)| one.target == target);
            left = others;
            self.others.options.target = target;
            let (mut states, begun): (Vec<RequestState>, Vec<Begun>) =
                those.into_iter().map(|(state, search)| (state, search.begun)).unzip();
            let found = states.iter_mut().zip(&begun).filter(|(_, begun)| begun.unit().is_some());
            let found = found.map(|(state, _)| core::mem::take(&mut state.translation)).collect();
            match self.others.finish_sentences(&begun, Some(found)) {
                Ok(found) => {
                    for (mut state, translation) in states.into_iter().zip(found) {
                        state.translation = translation;
                        state.done_whole();
                    }
                }
                Err(error) => states.into_iter().for_each(|state| state.fail(&error)),
            }
        }
    }

    /// Ends the sentences that are decoded, or if there are none those that wait.
    pub(super) fn fail(&mut self, error: &Error) {
        let active: Vec<Active<'_>> = self.slots.iter_mut().filter_map(Option::take).collect();
        let none = active.is_empty();
        active.into_iter().for_each(|(state, _)| state.fail(error));
        if none {
            let waiting = core::mem::take(&mut self.waiting);
            waiting.into_iter().for_each(|request| request.state.fail(error));
        }
    }

    fn active(&mut self, slot: usize) -> Option<&mut Active<'t>> {
        self.slots.get_mut(slot)?.as_mut()
    }
}

impl RequestQueue for Requests<'_> {
    fn before_step(
        &mut self,
        _: &mut Session<'_>,
        active: usize,
        _: &DecodeStats,
    ) -> ControlFlow<()> {
        if !self.searched.is_empty() {
            self.steps += 1;
            if active == 0 || self.searched.len().max(self.steps) >= TOGETHER {
                self.finish_searched();
            }
        }
        self.receive(active == 0);
        // One that is too long for the session waits until the session is empty; then it is planned again.
        match self.waiting.front() {
            Some(first) if active == 0 && first.encoded.ids.len() > self.planned => {
                ControlFlow::Break(())
            }
            None if active == 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn waiting<'q>(&'q self, waiting: &mut [Source<'q>]) -> usize {
        let fits = |request: &&Request| request.encoded.ids.len() <= self.planned;
        let fill = waiting.iter_mut().zip(self.waiting.iter().take_while(fits));
        fill.map(|(source, request)| *source = request.source()).count()
    }

    fn admitted(&mut self, slots: &[u32]) {
        let requests: Vec<Request> = self.waiting.drain(..slots.len()).collect();
        for (request, &slot) in requests.into_iter().zip(slots) {
            if let Some(place) = self.slots.get_mut(slot as usize) {
                let text = match request.marked {
                    Some(search) => SlotText::Whole(search),
                    None => SlotText::Parts(self.tokenizer.stream()),
                };
                *place = Some((request.state, text));
            }
        }
    }

    fn refused(&mut self, error: simdformer::Error) {
        let Some(mut request) = self.waiting.pop_front() else { return };
        match Failure::of_refused(&error) {
            Some(failure) => {
                request.state.translation.failure = Some(failure);
                match request.marked {
                    Some(search) => self.searched.push((request.state, search)),
                    None => request.state.done(),
                }
            }
            None => request.state.end(BatchEvent::Failed(error.into())),
        }
    }

    fn is_cancelled(&self, slot: u32) -> bool {
        let active = self.slots.get(slot as usize).and_then(Option::as_ref);
        active.is_some_and(|(state, _)| state.is_cancelled())
    }

    fn on_event(&mut self, event: Event<'_>) -> ControlFlow<Stop> {
        match event {
            Event::Token { source, token } if token.sequence == 0 => {
                if let Some((state, stream)) = self.active(source) {
                    state.translation.token_scores.extend(token.log_probability);
                    if let SlotText::Parts(stream) = stream
                        && let Some(text) = stream.push(token.id)
                    {
                        state.text(text);
                    }
                }
            }
            Event::Done(done) => {
                let active = self.slots.get_mut(done.source).and_then(Option::take);
                let Some((mut state, text)) = active else { return ControlFlow::Continue(()) };
                finish_translation(&mut state.translation, &done, &[], self.tokenizer);
                match text {
                    SlotText::Parts(mut stream) => {
                        let rest = stream.finish();
                        if !rest.is_empty() {
                            state.text(rest);
                        }
                        state.done();
                    }
                    // The text of a sentence that was cancelled is that of its tokens.
                    SlotText::Whole(_) if done.finish == Finish::Stopped => state.done_whole(),
                    SlotText::Whole(search) => self.searched.push((state, search)),
                }
            }
            _ => (),
        }
        ControlFlow::Continue(())
    }
}
