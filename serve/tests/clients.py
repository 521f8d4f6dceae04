"""Clients as their projects publish them, against a running server: not part of the daily tests.

    pip install openai cohere libretranslatepy prometheus_client requests
    simdformer serve --model models/fr-en --also EMBEDDER --also RERANKER --also WHISPER
    python serve/tests/clients.py http://127.0.0.1:8080 [RECORDING]

A client whose package or whose model is missing is reported and left out.
"""

import base64
import struct
import sys

import requests


def libretranslate(url):
    from libretranslatepy import LibreTranslateAPI

    api = LibreTranslateAPI(url + "/")
    assert api.translate("je suis étudiant", "fr", "en") == "i am a student"
    assert api.detect("Où est-ce qu'elle habite depuis son retour ?")[0]["language"] == "fr"
    assert [one["code"] for one in api.languages()] == ["fr", "en"]


def openai_embeddings(url):
    from openai import BadRequestError, OpenAI

    client = OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    texts = ["the house", "a river by the old house"]
    # The client asks for base64, and decodes it.
    found = client.embeddings.create(model="x", input=texts).data
    plain = requests.post(url + "/v1/embeddings", json={"input": texts}, timeout=60).json()["data"]
    for one, other in zip(found, plain):
        packed = struct.pack(f"<{len(other['embedding'])}f", *other["embedding"])
        assert struct.pack(f"<{len(one.embedding)}f", *one.embedding) == packed
    raw = client.embeddings.create(model="x", input=texts[0], encoding_format="base64").data[0]
    assert base64.b64decode(raw.embedding) == struct.pack(f"<{len(plain[0]['embedding'])}f", *plain[0]["embedding"])
    assert len(client.embeddings.create(model="x", input=["a"] * 3000).data) == 3000
    assert client.models.list().data
    try:
        client.embeddings.create(model="x", input=[])
        raise AssertionError("an empty list is accepted")
    except BadRequestError as error:
        assert "input: expected" in error.message, error


def openai_transcriptions(url):
    from openai import OpenAI

    client = OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    with open(sys.argv[2], "rb") as file:
        text = client.audio.transcriptions.create(model="whisper-1", file=file).text
    with open(sys.argv[2], "rb") as file:
        verbose = client.audio.transcriptions.create(
            model="whisper-1", file=file, response_format="verbose_json", timestamp_granularities=["word"]
        )
    # A sound without speech has no segments.
    assert verbose.text == text and verbose.segments is not None and verbose.duration > 0
    with open(sys.argv[2], "rb") as file:
        subtitles = client.audio.transcriptions.create(model="whisper-1", file=file, response_format="srt")
    assert subtitles.count("-->") == len(verbose.segments)


def cohere_rerank(url):
    import cohere

    client = cohere.ClientV2(api_key="none", base_url=url)
    found = client.rerank(model="x", query="who lives here?", documents=["people", "a car"], top_n=1)
    assert len(found.results) == 1 and 0 <= found.results[0].relevance_score <= 1


def prometheus(url):
    from prometheus_client.parser import text_string_to_metric_families

    families = {one.name for one in text_string_to_metric_families(requests.get(url + "/metrics", timeout=60).text)}
    assert {"simdformer_requests", "simdformer_request_seconds", "simdformer_queue_tokens"} <= families, families


def main():
    url = sys.argv[1]
    models = requests.get(url + "/info", timeout=60).json()["models"]
    checks = [(libretranslate, "translator"), (openai_embeddings, "embedder"), (cohere_rerank, "reranker")]
    checks += [(openai_transcriptions, "transcriber" if len(sys.argv) > 2 else "recording"), (prometheus, None)]
    for check, model in checks:
        if model and model not in models:
            print(f"SKIPPED {check.__name__}: no {model}")
            continue
        try:
            check(url)
            print(f"ok {check.__name__}")
        except ImportError as error:
            print(f"SKIPPED {check.__name__}: {error}")


main()
