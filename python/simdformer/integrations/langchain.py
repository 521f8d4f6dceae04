"""`SimdformerEmbeddings`: vectors for LangChain, on its base class. Needs ``langchain-core``."""

from __future__ import annotations

from typing import Any

from langchain_core.embeddings import Embeddings

from ..embedder import Embedder


class SimdformerEmbeddings(Embeddings):  # type: ignore[misc, unused-ignore]
    """LangChain's ``Embeddings`` over an `Embedder`. Keywords are those of `Embedder`.

    `query_prompt` and `document_prompt` are written before queries and documents.
    """

    def __init__(
        self, model: str, *, query_prompt: str = "", document_prompt: str = "", **options: Any
    ) -> None:
        self.embedder = Embedder(model, **options)
        self.query_prompt, self.document_prompt = query_prompt, document_prompt

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """A vector of length 1 for each text."""
        found: list[list[float]] = self.embedder.embed(texts, prompt=self.document_prompt or None).tolist()
        return found

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query, of length 1."""
        found: list[float] = self.embedder.embed(text, prompt=self.query_prompt or None).tolist()
        return found
