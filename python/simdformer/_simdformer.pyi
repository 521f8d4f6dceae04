"""The native module. Private: use the classes of `simdformer`."""

from collections.abc import Callable
from os import PathLike
from typing import Any, final

import numpy as np
import numpy.typing as npt

_Rows = tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]
_Progress = Callable[[int], object] | None

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
    def translate(
        self, texts: list[str], split: bool, stream: int, progress: _Progress
    ) -> list[str]: ...
    def generate(
        self,
        ids: _Rows,
        options: dict[str, Any] | None,
        prefixes: _Rows | None,
        streams: npt.NDArray[np.uint64] | None,
        scores: bool,
        skips_errors: bool,
        progress: _Progress,
    ) -> tuple[
        npt.NDArray[np.uint32],
        npt.NDArray[np.int64],
        npt.NDArray[np.float32],
        npt.NDArray[np.uint8],
        list[tuple[int, Exception]],
        int,
    ]: ...
    @property
    def isa(self) -> str: ...
    @property
    def model_bytes(self) -> int: ...
    def summary(self) -> str: ...
