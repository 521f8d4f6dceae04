"""`SimdformerEmbedding`: vectors for LlamaIndex, on its base class. Needs ``llama-index-core``."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from ..embedder import Embedder


class SimdformerEmbedding(BaseEmbedding):  # type: ignore[misc, unused-ignore]
    """LlamaIndex's ``BaseEmbedding`` over an `Embedder`. `options` are keywords of `Embedder`."""

    query_prompt: str = ""
    text_prompt: str = ""
    _embedder: Embedder = PrivateAttr()

    def __init__(self, model_name: str, *, options: dict[str, Any] | None = None, **fields: Any) -> None:
        super().__init__(model_name=model_name, **fields)  # pyright: ignore[reportUnknownMemberType]
        self._embedder = Embedder(model_name, **options or {})

    def _vectors(self, texts: list[str], prompt: str) -> list[list[float]]:
        found: list[list[float]] = self._embedder.embed(texts, prompt=prompt or None).tolist()
        return found

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._vectors([query], self.query_prompt)[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._vectors([text], self.text_prompt)[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._vectors(texts, self.text_prompt)
