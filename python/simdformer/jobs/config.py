"""What a job computes: a value that travels to the workers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Literal, get_args

from ..errors import OptionError
from ..options import TranslatorOptions

Task = Literal["translate", "generate", "embed"]
Errors = Literal["raise", "column"]

#: The result column of each task, unless `Config.target` names another.
TARGETS: Mapping[str, str] = MappingProxyType(
    {"translate": "translation", "generate": "target_ids", "embed": "embedding"}
)
#: The source column of each task, unless `Config.source` names another.
SOURCES: Mapping[str, str] = MappingProxyType({"translate": "text", "generate": "source_ids", "embed": "text"})
#: The options of `embed`: keywords of `Embedder` and of its `embed`.
_EMBED_OPTIONS = ("truncate", "slots", "normalize", "dim", "prompt", "prompt_name")
#: What Python, numpy and pyarrow take in a worker, in bytes.
INTERPRETER_BYTES = 150 << 20


@dataclass(frozen=True)
class Config:
    """What a job computes. It holds no model and no open file: pickled it has a few hundred bytes.

    A worker opens the model when it computes its first rows, once per process.

    `task` is one of

    ========== ============================ =========================================== ===================
    task       source column                result column                               class
    ========== ============================ =========================================== ===================
    translate  `text`: strings              `translation`: strings                      `Translator`
    generate   `source_ids`: lists of ids   `target_ids`: lists of `uint32`             `Translator`
    embed      `text`: strings              `embedding`: fixed-size lists of `float32`  `Embedder`
    ========== ============================ =========================================== ===================

    Errors: `OptionError` names the field, what was expected and what was found.

    >>> from simdformer.jobs import Config
    >>> config = Config(demo_model, id="id", options={"beams": 4})
    >>> config.target
    'translation'
    >>> import pickle
    >>> len(pickle.dumps(config)) <= 500
    True
    """

    #: The model: a directory that every worker has under this path.
    path: str
    #: What is computed: `translate`, `generate` or `embed`.
    task: Task = "translate"
    #: The column with the sources; the default depends on the task.
    source: str = ""
    #: The new column with the results; the default depends on the task.
    target: str = ""
    #: The new column with the scores, which vectors do not have; none if empty.
    score: str = ""
    #: The new column with why each row ended, a name of `Finish` in lower case: `length` for a result that reached the
    #: maximum length. Vectors do not have it; none if empty.
    finish: str = ""
    #: The column with the row numbers: integers of at least 0, each once. Needed for sampling and for restarts.
    id: str = ""
    #: Options of the translator, fields of `TranslatorOptions`, for example `{"beams": 4}`; for `embed` keywords of
    #: `Embedder` and `Embedder.embed`, for example `{"normalize": false}`.
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    #: The instruction set that a worker must have, for example `avx2`. If `None`, each uses its best.
    isa: str | None = None
    #: Threads of one worker. If `None`: `SIMDFORMER_NUM_THREADS`, else `OMP_NUM_THREADS`, else 1.
    threads: int | None = None
    #: Sessions of one worker, which share the rows of a table. If `None`, one for each thread.
    sessions: int | None = None
    #: The dtype of the weights, for example `int8`. If `None`, that of the checkpoint.
    dtype: str | None = None
    #: What a row that cannot be computed does: `raise` ends the job, `column` gives null and a text in `error`.
    errors: Errors = "raise"

    def __post_init__(self) -> None:
        _expect("task", self.task, get_args(Task))
        _expect("errors", self.errors, get_args(Errors))
        for name in ("threads", "sessions"):
            number = getattr(self, name)
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise _option(name, "an integer of at least 1", number)
        if self.task == "embed" and self.sessions is not None:
            raise _option("sessions", "none, since the task embed has threads only", self.sessions)
        for name, column in (("score", self.score), ("finish", self.finish)):
            if column and self.task == "embed":
                raise _option(name, "no column, since the task embed has none", column)
        object.__setattr__(self, "path", str(self.path))
        object.__setattr__(self, "source", self.source or SOURCES[self.task])
        object.__setattr__(self, "target", self.target or TARGETS[self.task])
        names = [name for name in (self.source, self.target, self.score, self.finish, self.id) if name]
        if self.errors == "column":
            names.append("error")
        if len(set(names)) != len(names):
            raise _option("source, target, score, finish, id", "names that differ", names)
        try:
            options = json.loads(json.dumps(dict(self.options), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise _option("options", "values that JSON has", f"{self.options!r} ({error})") from None
        known = _EMBED_OPTIONS if self.task == "embed" else TranslatorOptions.__dataclass_fields__
        for name in options:
            if name not in known:
                close = get_close_matches(name, known, 1)
                hint = f"; is it {close[0]}?" if close else ""
                message = f"{name}: expected an option of {self.task}, found {name!r}{hint}"
                raise OptionError(message, option=name, expected=", ".join(known), found=name)
        if options.get("num_return", 1) != 1:
            raise _option("num_return", "1, since a row has one result", options["num_return"])
        object.__setattr__(self, "options", MappingProxyType(options))

    def json(self) -> str:
        """All fields that differ from their defaults, as canonical JSON: sorted keys, no spaces."""
        values: dict[str, object] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            value = dict(value) if each.name == "options" else value
            default: Any = {} if each.name == "options" else each.default
            if value != default:
                values[each.name] = value
        return canonical(values)

    @classmethod
    def from_json(cls, text: str) -> Config:
        """The configuration that `json` wrote."""
        return cls(**json.loads(text))

    def __hash__(self) -> int:
        return hash(self.json())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.json() == other.json()

    def __reduce__(self) -> tuple[Any, ...]:
        return Config.from_json, (self.json(),)

    def bytes(self, source_tokens: int = 256) -> int:
        """The memory of one worker in bytes, for the scheduler: Ray's `memory=`, `spark.executor.pyspark.memory`.

        Weights, the plan for sources of at most `source_tokens` tokens (or as many as the model reads), and 150 MiB for
        Python, numpy and pyarrow. Opens the model in this process. Workers that map one packed file share its weights;
        each counts them here.
        """
        from .worker import worker

        return worker(self).bytes(source_tokens) + INTERPRETER_BYTES

    def samples(self) -> bool:
        """Whether tokens are drawn at random. Then each row draws from the random stream of its row number."""
        return bool(self.options.get("sample", False))

    def require_id(self, reason: str) -> None:
        """Raises `OptionError` if there is no column of row numbers."""
        if not self.id:
            raise _option("id", f"a column of row numbers, since {reason}", None)


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces: equal values give equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _option(name: str, expected: str, found: object) -> OptionError:
    message = f"{name}: expected {expected}, found {found!r}"
    return OptionError(message, option=name, expected=expected, found=found)


def _expect(name: str, found: object, values: tuple[str, ...]) -> None:
    if found not in values:
        raise _option(name, " or ".join(values), found)
