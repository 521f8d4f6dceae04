"""The native module. Private: use the classes of `simdformer`."""

from os import PathLike
from typing import Any, final

def available_isas() -> list[str]: ...
def default_isa() -> str: ...
@final
class Translator:
    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        isa: str | None,
        dtype: str | None,
        threads: int,
        options: dict[str, Any],
    ) -> Translator: ...
    def translate(self, texts: list[str], split: bool, stream: int) -> list[str]: ...
    @property
    def isa(self) -> str: ...
    @property
    def model_bytes(self) -> int: ...
    def summary(self) -> str: ...
