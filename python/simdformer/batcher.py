"""`Batcher`: sentences from any threads and tasks in one running batch."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from types import TracebackType
from typing import Any

from . import _simdformer
from .errors import ClosedError, ForkError
from .generated import Finish
from .native_object import string, warn_of_cut, warn_of_cut_sources
from .options import queue_capacity
from .translator import Translator

# Why a sentence ended, its score, whether its source was cut, and its notes.
_End = tuple[int, float, bool, list[str]]
_Event = tuple[str, str, BaseException | None, _End | None]
_Receive = Callable[[_Event], None]


class _QueueLimit:
    """Places for the sentences that wait or are decoded: threads and tasks wait for one."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], object]] = deque()
        self._closed = False

    def _take(self, wake: Callable[[], object], waits: bool) -> bool:
        with self._lock:
            # The native batcher refuses a sentence after the end.
            if self._free > 0 or self._closed or not waits:
                self._free -= 1
                return True
            self._waiting.append(wake)
            return False

    def _give_up(self, wake: Callable[[], object]) -> None:
        """Ends to wait; a place that was given meanwhile is free again."""
        with self._lock:
            if wake in self._waiting:
                self._waiting.remove(wake)
                return
        self.release()

    def acquire(self, waits: bool) -> None:
        """Takes a place; without `waits` also one that there is not."""
        event = threading.Event()
        wake = event.set
        if not self._take(wake, waits):
            try:
                event.wait()
            except BaseException:
                self._give_up(wake)
                raise

    async def acquire_in_loop(self) -> None:
        """Takes a place without blocking the loop."""
        loop = asyncio.get_running_loop()
        free = loop.create_future()

        def give() -> None:
            if not free.done():
                free.set_result(None)

        def wake() -> None:
            loop.call_soon_threadsafe(give)

        if not self._take(wake, True):
            try:
                await free
            except BaseException:
                self._give_up(wake)
                raise

    def release(self) -> None:
        """Gives a place back, or to the first who waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                wake = self._waiting.popleft()
            # The loop of a task may be closed: then it waits no more.
            try:
                wake()
            except RuntimeError:
                continue
            return

    def close(self) -> None:
        """Ends every wait."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
        for wake in waiting:
            with contextlib.suppress(RuntimeError):
                wake()


def _closed() -> ClosedError:
    return ClosedError("expected an open Batcher, found one that was closed")


class _Running:
    """The native batcher of one process, and the thread that hands its events to those who wait."""

    def __init__(
        self, translator: Translator, threads: int, slots: int | None, capacity: int
    ) -> None:
        path, isa, dtype, options = translator.arguments()
        if slots is not None:
            options = replace(options, slots=slots)
        self.native = _simdformer.Batcher(
            path, isa=isa, dtype=dtype, threads=threads, options=options.to_dict()
        )
        # The receiver of each sentence. Each operation on a dictionary is atomic, with and without a GIL.
        self.waiting: dict[int, _Receive] = {}
        self.limit = _QueueLimit(capacity)
        arguments = (self.native, self.waiting, self.limit)
        self.thread = threading.Thread(
            target=_deliver, args=arguments, name="simdformer-replies", daemon=True
        )
        self.thread.start()


def _deliver(
    native: _simdformer.Batcher, waiting: dict[int, _Receive], limit: _QueueLimit
) -> None:
    while (replies := native.replies()) is not None:
        for number, kind, text, error, end in replies:
            receive = waiting.get(number)
            if receive is not None:
                receive((kind, text, error, end))
            # A batcher without another reference ends with the last sentence.
            receive = None
            # Not before it has the event: what waits when the process forks gets an error in the child.
            if kind != "text" and waiting.pop(number, None) is not None:
                limit.release()
    # Nothing will come any more.
    while waiting:
        _, receive = waiting.popitem()
        receive(("failed", "", _closed(), None))
    limit.close()


class TranslationFuture(Future[str]):
    """The future translation of a sentence. To cancel it ends the sentence at the next step of the decoder.

    Its batcher lives at least until the sentence is done.
    """

    finish: Finish | None = None
    """Why the translation ended; None before."""
    score: float | None = None
    """The score of the search, NaN in greedy search."""
    truncated: bool = False
    """Whether only the first tokens of the sentence are translated; never without the option ``truncate``."""

    notes: list[str]
    """The words that the model does not know, and what was done beside the translation; empty before its end."""

    def __init__(self, batcher: Batcher, stop: Callable[[], None]) -> None:
        super().__init__()
        self._stop = stop
        self.notes = []
        self._batcher: Batcher | None = batcher

    def result(self, timeout: float | None = None) -> str:
        """The translation, or its error. A `CutWarning` says that the maximum length was reached."""
        text = super().result(timeout)
        _warn(self.finish, self.truncated)
        return text

    def cancel(self) -> bool:
        """Ends the sentence; False if its translation is there already."""
        if self.cancelled():
            return True
        if not super().cancel():
            return False
        # Wakes `concurrent.futures.wait`.
        self.set_running_or_notify_cancel()
        self._stop()
        return True

    def receive(self, event: _Event) -> None:
        """Sets the result. An event of a cancelled sentence has none."""
        kind, text, error, end = event
        if kind == "text":
            return
        if not self.done():
            if end is not None:
                number, self.score, self.truncated, self.notes = end
                self.finish = Finish(number)
            try:
                if error is not None:
                    self.set_exception(error)
                elif kind == "stopped":
                    # It was not cancelled.
                    self.set_exception(_closed())
                else:
                    self.set_result(text)
            except InvalidStateError:
                # It was cancelled at the same time.
                if not self.cancelled():
                    raise
        self._batcher = None

    def after_fork(self) -> None:
        """In the child: a thread of the parent may have held the lock of the future."""
        self._condition = threading.Condition()


_open_batchers: weakref.WeakSet[Batcher] = weakref.WeakSet()


class Batcher:
    """Translates sentences of any threads and tasks in one batch: a service.

    One thread, outside Python, runs the decoder. A sentence joins the batch before the next step and leaves when it is
    done, so a short one does not wait for a long one. It gets the translation that
    ``translator.translate(text, split=False)`` gives it, whatever else is decoded.

    `translator` has the model and the options; its own calls can go on at the same time. `slots` is the number of
    sentences that are decoded at the same time (that of its options, or 32), `threads` the number of threads of the
    decoder (that of the translator). The threads start at the first sentence, and again in a child of a fork. At most
    `capacity` sentences wait or are decoded: `submit` and `stream` wait for a place, `asubmit` and `astream` await it.

    A sentence that cannot be translated raises an error as in `Translator.translate`. What was submitted keeps its batcher
    alive; one that is closed without waiting ends its sentences with `ClosedError`.

    >>> with Batcher(Translator(demo_model)) as batcher:
    ...     futures = [batcher.submit(text) for text in ["il fait froid", "je suis étudiant"]]
    ...     [future.result() for future in futures]
    ['it is cold', 'i am a student']
    """

    def __init__(
        self,
        translator: Translator,
        *,
        slots: int | None = None,
        threads: int | None = None,
        capacity: int = 1024,
    ) -> None:
        self._translator = translator
        self._slots = slots
        self._threads = translator.threads if threads is None else threads
        self._capacity = queue_capacity(capacity)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._finalizer: Any = None
        self._closed = False
        _open_batchers.add(self)

    def submit(
        self,
        text: str,
        *,
        stream: int = 0,
        source_lang: str | None = None,
        target_lang: str | None = None,
    ) -> TranslationFuture:
        """The future translation of one sentence, whatever is in it. ``Future.cancel()`` ends it at the next step, also
        when it is being decoded. `stream` is the random stream of samples. The languages are those of the options
        if they are None.

        >>> with Batcher(translator) as batcher:
        ...     batcher.submit("il fait froid").result(timeout=60)
        'it is cold'
        """
        running, number = self._begin(text)
        return self._future(running, number, text, stream, source_lang, target_lang)

    def _future(
        self,
        running: _Running,
        number: int,
        text: str,
        stream: int,
        source_lang: str | None,
        target_lang: str | None,
    ) -> TranslationFuture:
        future = TranslationFuture(self, lambda: running.native.cancel(number))
        self._submit(running, number, text, future.receive, stream, source_lang, target_lang, False)
        return future

    async def asubmit(
        self,
        text: str,
        *,
        stream: int = 0,
        source_lang: str | None = None,
        target_lang: str | None = None,
    ) -> str:
        """The translation of one sentence, for ``await``. To cancel the task ends the sentence."""
        running, number = await self._begin_in_loop(text)
        future = self._future(running, number, text, stream, source_lang, target_lang)
        found = await asyncio.wrap_future(future)
        _warn(future.finish, future.truncated)
        return found

    def stream(
        self,
        text: str,
        *,
        stream: int = 0,
        source_lang: str | None = None,
        target_lang: str | None = None,
    ) -> Iterator[str]:
        """The translation of one sentence in pieces, as tokens are chosen; with beams they come at the end. The pieces
        together are the translation. To close the iterator ends the sentence.

        >>> with Batcher(translator) as batcher:
        ...     "".join(batcher.stream("il fait froid"))
        'it is cold'
        """
        running, number = self._begin(text)
        events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._submit(running, number, text, events.put, stream, source_lang, target_lang, True)
        return _pieces(self, events, lambda: running.native.cancel(number))

    async def astream(
        self,
        text: str,
        *,
        stream: int = 0,
        source_lang: str | None = None,
        target_lang: str | None = None,
    ) -> AsyncIterator[str]:
        """As `stream`, for ``async for``."""
        running, number = await self._begin_in_loop(text)
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[_Event] = asyncio.Queue()

        def receive(event: _Event) -> None:
            # A loop that is closed waits for nothing.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(events.put_nowait, event)

        self._submit(running, number, text, receive, stream, source_lang, target_lang, True)
        ended = False
        try:
            while not ended:
                event = await events.get()
                ended = event[0] != "text"
                if (piece := _piece(event)) is not None:
                    yield piece
        finally:
            if not ended:
                running.native.cancel(number)

    def __len__(self) -> int:
        """The number of sentences that wait or are decoded."""
        running = self._running
        return 0 if running is None else running.native.unfinished()

    def __bool__(self) -> bool:
        return True

    def close(self, wait: bool = True) -> None:
        """Accepts no more sentences. Those that were submitted are done first; without `wait` they end with
        `ClosedError`."""
        with self._lock:
            self._closed = True
            running, self._running = self._running, None
            finalizer, self._finalizer = self._finalizer, None
        _open_batchers.discard(self)
        if finalizer is not None:
            finalizer.detach()
        if running is not None:
            running.native.close(wait)
            # A receiver of a sentence may close the batcher.
            if running.thread is not threading.current_thread():
                running.thread.join()

    def __enter__(self) -> Batcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(wait=kind is None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (type(self), self._translator, self._slots, self._threads, self._capacity)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self)} unfinished"
        return f"Batcher({self._translator!r}, slots={self._slots}, threads={self._threads}): {state}"

    def _begin(self, text: str) -> tuple[_Running, int]:
        """Waits for a place, and gives it a number. What runs when a sentence is done may not wait: it ends the wait of others."""
        string(text, "text")
        running = self._start()
        running.limit.acquire(running.thread is not threading.current_thread())
        return running, next(self._numbers)

    async def _begin_in_loop(self, text: str) -> tuple[_Running, int]:
        string(text, "text")
        running = self._start()
        await running.limit.acquire_in_loop()
        return running, next(self._numbers)

    def _start(self) -> _Running:
        running = self._running
        if running is not None:
            return running
        with self._lock:
            if self._closed:
                raise _closed()
            if self._running is None:
                self._running = _Running(
                    self._translator, self._threads, self._slots, self._capacity
                )
                # Also at the end of the interpreter, before its threads are frozen.
                self._finalizer = weakref.finalize(self, self._running.native.close, False)
            return self._running

    def _submit(
        self,
        running: _Running,
        number: int,
        text: str,
        receive: _Receive,
        stream: int,
        source_lang: str | None,
        target_lang: str | None,
        pieces: bool,
    ) -> None:
        running.waiting[number] = receive
        try:
            running.native.submit(
                number,
                text,
                source=source_lang,
                target=target_lang,
                stream=stream & (2**64 - 1),
                pieces=pieces,
            )
        except BaseException:
            if running.waiting.pop(number, None) is not None:
                running.limit.release()
            raise

    def _after_fork(self) -> None:
        """In the child: the threads are in the parent, and the lock may be held by one of them."""
        self._lock = threading.Lock()
        running, self._running = self._running, None
        finalizer, self._finalizer = self._finalizer, None
        if finalizer is not None:
            finalizer.detach()
        if running is not None:
            running.native.abandon()
            error = ForkError("the sentence is translated in the parent of this process")
            for receive in list(running.waiting.values()):
                future = getattr(receive, "__self__", None)
                if isinstance(future, TranslationFuture):
                    future.after_fork()
                receive(("failed", "", error, None))


def _pieces(
    batcher: Batcher, events: queue.SimpleQueue[_Event], stop: Callable[[], None]
) -> Iterator[str]:
    """The pieces of a sentence. The batcher lives as long as they do."""
    ended = False
    try:
        while not ended:
            event = events.get()
            ended = event[0] != "text"
            if (piece := _piece(event)) is not None:
                yield piece
    finally:
        if not ended:
            stop()
        del batcher


def _piece(event: _Event) -> str | None:
    """The text of an event; None at the end of a sentence that is done, an error at another end."""
    kind, piece, error, end = event
    if kind == "text":
        return piece
    if error is not None:
        raise error
    if kind != "done" or end is None:
        # Who stops a sentence does not read on.
        raise _closed()
    _warn(Finish(end[0]), end[2])
    return None


def _warn(finish: Finish | None, truncated: bool) -> None:
    if truncated:
        warn_of_cut_sources([0], 1, "text")
    if finish in (Finish.LENGTH, Finish.EXHAUSTED):
        warn_of_cut("the translation reached the maximum length; max_new_tokens changes it")


def _opened(
    kind: type[Batcher], translator: Translator, slots: int | None, threads: int, capacity: int
) -> Batcher:
    return kind(translator, slots=slots, threads=threads, capacity=capacity)


def _after_fork() -> None:
    for batcher in list(_open_batchers):
        batcher._after_fork()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
