"""`Batcher`: sentences from any threads and tasks in one running batch."""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Any

from . import _simdformer
from .errors import ClosedError, ForkError, InputTypeError
from .translator import Translator

_Event = tuple[str, str, BaseException | None]
_Receive = Callable[[_Event], None]


class _Running:
    """The native batcher of one process, and the thread that hands its events to those who wait."""

    def __init__(self, translator: Translator, threads: int, slots: int | None) -> None:
        path, isa, dtype, options = translator.arguments()
        if slots is not None:
            options = replace(options, slots=slots)
        self.native = _simdformer.Batcher(
            path, isa=isa, dtype=dtype, threads=threads, options=options.to_dict()
        )
        # The receiver of each sentence. Each operation on a dictionary is atomic, with and without a GIL.
        self.waiting: dict[int, _Receive] = {}
        arguments = (self.native, self.waiting)
        self.thread = threading.Thread(
            target=_deliver, args=arguments, name="simdformer-replies", daemon=True
        )
        self.thread.start()


def _deliver(native: _simdformer.Batcher, waiting: dict[int, _Receive]) -> None:
    while (replies := native.replies()) is not None:
        for number, kind, text, error in replies:
            receive = waiting.get(number)
            if receive is not None:
                receive((kind, text, error))
            # Not before it has the event: what waits when the process forks gets an error in the child.
            if kind != "text":
                waiting.pop(number, None)
    # Nothing will come any more.
    while waiting:
        _, receive = waiting.popitem()
        receive(("failed", "", ClosedError("expected an open Batcher, found one that was closed")))


class _Translation(Future[str]):
    """The future of a sentence. To cancel it ends the sentence at the next step of the decoder."""

    def __init__(self, stop: Callable[[], None]) -> None:
        super().__init__()
        self._stop = stop

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
        kind, text, error = event
        if kind == "text" or self.done():
            return
        try:
            if error is not None:
                self.set_exception(error)
            elif kind == "stopped":
                self.cancel()
            else:
                self.set_result(text)
        except Exception:  # noqa: BLE001
            # It was cancelled at the same time.
            if not self.cancelled():
                raise

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
    decoder (that of the translator). The threads start at the first sentence, and again in a child of a fork.

    >>> with Batcher(Translator(demo_model)) as batcher:
    ...     futures = [batcher.submit(text) for text in ["il fait froid", "je suis étudiant"]]
    ...     [future.result() for future in futures]
    ['it is cold', 'i am a student']
    """

    def __init__(
        self, translator: Translator, *, slots: int | None = None, threads: int | None = None
    ) -> None:
        self._translator = translator
        self._slots = slots
        self._threads = translator.threads if threads is None else threads
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
    ) -> Future[str]:
        """The future translation of one sentence, whatever is in it. ``Future.cancel()`` ends it at the next step, also
        when it is being decoded. `stream` is the random stream of samples. The languages are those of the options
        if they are None.

        >>> with Batcher(translator) as batcher:
        ...     batcher.submit("il fait froid").result(timeout=60)
        'it is cold'
        """
        running, number = self._start(), next(self._numbers)
        future = _Translation(lambda: running.native.cancel(number))
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
        future = self.submit(text, stream=stream, source_lang=source_lang, target_lang=target_lang)
        return await asyncio.wrap_future(future)

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
        running, number = self._start(), next(self._numbers)
        events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._submit(running, number, text, events.put, stream, source_lang, target_lang, True)
        return _pieces(events, lambda: running.native.cancel(number))

    async def astream(
        self,
        text: str,
        *,
        stream: int = 0,
        source_lang: str | None = None,
        target_lang: str | None = None,
    ) -> AsyncIterator[str]:
        """As `stream`, for ``async for``."""
        running, number = self._start(), next(self._numbers)
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[_Event] = asyncio.Queue()

        def receive(event: _Event) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(events.put_nowait, event)

        self._submit(running, number, text, receive, stream, source_lang, target_lang, True)
        ended = False
        try:
            while not ended:
                kind, piece, error = await events.get()
                ended = kind != "text"
                if error is not None:
                    raise error
                if not ended:
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
        """Accepts no more sentences. Those that were submitted are done first; without `wait` they are cancelled."""
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
        return _opened, (type(self), self._translator, self._slots, self._threads)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self)} unfinished"
        return f"Batcher({self._translator!r}, slots={self._slots}, threads={self._threads}): {state}"

    def _start(self) -> _Running:
        running = self._running
        if running is not None:
            return running
        with self._lock:
            if self._closed:
                raise ClosedError("expected an open Batcher, found one that was closed")
            if self._running is None:
                self._running = _Running(self._translator, self._threads, self._slots)
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
        if not isinstance(text, str):
            raise InputTypeError(
                f"text: expected a string, found {text!r}",
                argument="text",
                expected="a string",
                found=repr(text),
            )
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
            running.waiting.pop(number, None)
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
                if isinstance(future, _Translation):
                    future.after_fork()
                receive(("failed", "", error))


def _pieces(events: queue.SimpleQueue[_Event], stop: Callable[[], None]) -> Iterator[str]:
    ended = False
    try:
        while not ended:
            kind, piece, error = events.get()
            ended = kind != "text"
            if error is not None:
                raise error
            if not ended:
                yield piece
    finally:
        if not ended:
            stop()


def _opened(
    kind: type[Batcher], translator: Translator, slots: int | None, threads: int
) -> Batcher:
    return kind(translator, slots=slots, threads=threads)


def _after_fork() -> None:
    for batcher in list(_open_batchers):
        batcher._after_fork()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
