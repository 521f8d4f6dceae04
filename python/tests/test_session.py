"""`Model` and `Session`: step by step, with logits and intermediate tensors."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import simdformer
from simdformer import Limits, Model, Session, Translator

TEXT = "je suis étudiant"


@pytest.fixture(scope="module")
def model(demo_model: str) -> Model:
    return Model(demo_model)


@pytest.fixture
def session(model: Model) -> Session:
    return Session(model, Limits(sentences=2, source_tokens=16, target_tokens=16, beams=2))


def greedy(model: Model, session: Session, text: str) -> list[int]:
    [source] = session.encode([model.encode(text)])
    hypothesis, target = session.start(source), [model.decoder_start or 0]
    while target[-1] not in model.end_tokens:
        logits = session.step([hypothesis], target[-1:])
        # The decoder start is the pad token, which Marian never writes.
        logits[0, model.decoder_start] = -np.inf
        target.append(int(logits[0].argmax()))
    session.release_source(source)
    return target


def test_a_loop_of_steps_is_greedy_search(
    model: Model, session: Session, translator: Translator
) -> None:
    found = translator.generate([model.encode(TEXT)]).tokens[0]
    assert greedy(model, session, TEXT)[1:] == found.tolist()
    assert model.decode(found) == "i am a student"


def test_a_prefill_has_the_logits_of_steps(model: Model, session: Session) -> None:
    target = greedy(model, session, TEXT)
    [source] = session.encode([model.encode(TEXT)])
    first, second = session.start(source), session.start(source)
    together = session.prefill(first, target[:-1])
    alone = np.concatenate([session.step([second], [token]) for token in target[:-1]])
    assert together.shape == (len(target) - 1, model.target_vocabulary)
    assert np.array_equal(together, alone)
    assert session.length(first) == len(target) - 1


def test_a_fork_continues_alone(model: Model, session: Session) -> None:
    [source] = session.encode([model.encode(TEXT)])
    first = session.start(source)
    session.step([first], [model.decoder_start or 0])
    second = session.fork(first)
    with pytest.raises(simdformer.LimitError):
        session.fork(first)
    one, other = session.step([first, second], [5, 9])
    assert not np.array_equal(one, other)
    session.rewind(second, 1)
    assert np.array_equal(session.step([second], [5])[0], one)
    session.release(first)
    with pytest.raises(simdformer.HandleError):
        session.step([first], [5])


def test_traces_attention(model: Model, session: Session) -> None:
    ids, target = model.encode(TEXT), greedy(model, session, TEXT)[:-1]
    [source] = session.encode([ids])
    plain, _ = session.encoder_output([ids])
    with session.trace("weights", "memory") as trace:
        hypothesis = session.start(source)
        for token in target:
            session.step([hypothesis], [token])
        traced, _ = session.encoder_output([ids])
    assert np.array_equal(plain, traced)
    assert np.array_equal(trace.array("memory", stack="encoder"), plain)
    weights = trace.array("weights", stack="decoder", layer=0, block="cross-attention")
    assert weights.shape == (model.decoder_heads, len(target), len(ids))
    assert np.abs(weights.sum(-1) - 1).max() < 1e-5
    own = trace.array("weights", stack="decoder", layer=0, block="self-attention")
    assert own.shape[1:] == (len(target), len(target)) and np.triu(own[0], 1).max() == 0
    assert len(trace.select("weights", head=0, layer=0, stack="encoder")) == 1
    with pytest.raises(simdformer.OptionError, match="expected one of embedding"), session.trace("x"):
        pass


def test_alignment_is_the_traced_attention(model: Model, translator: Translator) -> None:
    target = translator.generate([model.encode(TEXT)]).tokens[0]
    session = Session(model, Limits(source_tokens=16, target_tokens=16))
    [source] = session.encode([model.encode(TEXT)])
    with session.trace("weights") as trace:
        session.prefill(session.start(source), [model.decoder_start or 0, *target[:-1]])
    layer = (model.decoder_layers or 0) - 1
    expected = trace.array("weights", layer=layer, block="cross-attention").mean(0)
    found = translator.align(model.encode(TEXT), target.tolist(), layers=[layer])
    assert np.abs(found.weights - expected).max() < 1e-6
    one = translator.align(TEXT, "i am a student", layers=[layer])
    assert np.array_equal(one.weights, found.weights)


def test_scores_are_those_of_the_search(model: Model, translator: Translator) -> None:
    ids = [model.encode(text) for text in (TEXT, "il fait froid")]
    found = translator.generate(ids, scores=True)
    scores = translator.score(ids, found.tokens)
    assert found.scores is not None and np.abs(scores.totals - found.scores).max() < 1e-4
    assert len(scores.tokens) == len(found.tokens.ids)


def test_a_session_is_used_by_one_thread_at_a_time(model: Model) -> None:
    sizes = Limits(sentences=64, source_tokens=120, target_tokens=4)
    session, rows = Session(model, sizes), [[5] * 120] * 64
    failures: list[BaseException] = []

    def run() -> None:
        for _ in range(3):
            try:
                session.encoder_output(rows)
            except simdformer.BusyError as error:
                failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures, "the calls of two threads did not overlap"
    assert session.encoder_output([[5, 0]])[0].shape == (2, model.d_model)


def test_models_and_sessions_are_pickled(model: Model, session: Session) -> None:
    for one in (pickle.loads(pickle.dumps(session)), copy.deepcopy(session)):
        assert one.limits == session.limits and one.free_sources == 2
        assert greedy(model, one, TEXT) == greedy(model, session, TEXT)
    assert len(pickle.dumps(session)) <= 500
    assert pickle.loads(pickle.dumps(model)).fingerprint == model.fingerprint


def test_says_what_it_holds(model: Model, session: Session) -> None:
    assert sum(tensor.bytes for tensor in model.tensors) == model.bytes
    assert f"{model.d_model}" in repr(model) and "bytes" in repr(session)
    session.close()
    with pytest.raises(simdformer.ClosedError):
        session.clear()
