"""The words of the demo language: what they mean, how they agree, what they go with.

The words themselves are in `lexicon.txt`, which says how its lines are written; the grammar in Rust reads them, too.
"""

from dataclasses import dataclass, replace
from pathlib import Path

VOWELS = "aeiouyhâàéèêëîïôöûùœ"
PERSONS = ["je", "tu", "il", "nous", "vous", "ils"]


@dataclass(frozen=True)
class Noun:
    """A noun with both its numbers in both languages. `kin` nouns take possessives."""

    fr: str
    frs: str
    gender: str
    en: str
    ens: str
    kind: str


@dataclass(frozen=True)
class Adjective:
    """Forms in the order m. sg., f. sg., m. pl., f. pl.; `bel` is the m. sg. before a vowel."""

    forms: tuple[str, str, str, str]
    bel: str
    en: str
    more: str
    before: bool
    kinds: frozenset[str]

    def agree(self, gender: str, plural: bool) -> str:
        return self.forms[(gender == "f") + 2 * plural]


@dataclass(frozen=True)
class Verb:
    """A verb: French forms, English forms, the noun classes of its object and what `le` stands for.

    `aux` is the auxiliary of the passé composé, `modal` an English auxiliary (can, must, would),
    `pron` the object pronoun in English: `it`, `him` (or her), or nothing.
    """

    inf: str
    present: tuple[str, ...]
    participle: str
    stem: str
    aux: str
    base: str
    third: str
    past: str
    objects: tuple[str, ...] = ()
    pron: str = ""
    modal: str = ""

    def future(self, person: int) -> str:
        return self.stem + ("ai", "as", "a", "ons", "ez", "ont")[person]


def _sections() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / "lexicon.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            lines = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return found


SECTIONS = _sections()


def table(section: str) -> dict[str, str]:
    """`french = english`, several a line."""
    return dict(entry.split(" = ") for line in SECTIONS[section] for entry in line.split(", "))


IRREGULAR_PLURALS = table("plurals")


def en_plural(word: str) -> str:
    if word in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[word]
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + "s"


def fr_plural(word: str) -> str:
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith(("eau", "eu")):
        return word + "x"
    if word.endswith("al"):
        return word[:-2] + "aux"
    return word + "s"


def en_third(word: str) -> str:
    if word == "have":
        return "has"
    if word.endswith(("s", "x", "ch", "sh", "o")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + "s"


KIND_TAGS = table("tags")
NAMES = table("names")
CITIES = table("cities")
COUNTRIES = table("countries")
LANGUAGES = table("languages")
SPORTS = table("sports")
INSTRUMENTS = table("instruments")
NUMBERS = table("numbers")
HOURS = [n for n in NUMBERS if n not in ("douze", "vingt")]
DAYS = table("days")
MONTHS = table("months")
STATES = table("states")
WEATHER = table("weather")
ADVERBS = table("adverbs")
MANNERS = table("manners")
TIMES = {tense: table(f"times {tense}") for tense in ("present", "past", "future")}


def _nouns() -> dict[str, list[Noun]]:
    table: dict[str, list[Noun]] = {}
    for line in SECTIONS["nouns"]:
        kind, words = line.split(": ")
        for entry in words.split(", "):
            fr, gender, en = entry.split()
            table.setdefault(kind, []).append(Noun(fr, fr_plural(fr), gender, en, en_plural(en), kind))
    return table


def _adjectives(section: str, before: bool) -> list[Adjective]:
    out = []
    for line in SECTIONS[section]:
        m, f, en, more, tags = line.split()
        m, _, bel = m.partition("/")
        f = {"=": m, "+": m + "e"}.get(f, f)
        kinds = frozenset(kind for kind, tag in KIND_TAGS.items() if tag in tags)
        forms = (m, f, fr_plural(m), fr_plural(f))
        out.append(Adjective(forms, bel or m, en, "more " + en if more == "-" else more, before, kinds))
    return out


def _present_er(inf: str) -> tuple[str, ...]:
    root = inf[:-2]
    soft = root + "e" if root.endswith("g") else root
    return (root + "e", root + "es", root + "e", soft + "ons", root + "ez", root + "ent")


def _verb(inf, present, participle, stem, aux, base, past, objects="", pron="", modal="") -> Verb:
    base, past = base.replace("_", " "), past.replace("_", " ")
    head, _, rest = base.partition(" ")
    third = (en_third(head) + " " + rest).strip()
    classes = tuple(objects.split(",")) if objects else ()
    return Verb(inf, tuple(present), participle, stem, aux, base, third, past, classes, pron.strip("-"), modal)


def _verbs() -> dict[str, Verb]:
    table = {}
    for section in ("regular", "intransitive"):
        for line in SECTIONS[section]:
            inf, base, past, *rest = line.split()
            table[inf] = _verb(inf, _present_er(inf), inf[:-2] + "é", inf, "avoir", base, past, *rest)
    modal = {"pouvoir": "can", "devoir": "must", "voudrais": "would"}
    for section in ("irregular", "special"):
        for line in SECTIONS[section]:
            inf, present, *rest = [field.strip() for field in line.split(";")]
            rest += [""] * (7 - len(rest))
            table[inf] = _verb(inf, present.split(), *rest, modal.get(inf, ""))
    return table


NOUNS = _nouns()
BEFORE = _adjectives("before", True)
AFTER = _adjectives("after", False)
PREDICATES = _adjectives("predicates", False)
_BIG_KINDS = frozenset(("animal", "thing", "furniture", "home", "place", "vehicle", "nature"))
_GRAND = ("grand", "grande", "grands", "grandes")
BEFORE += [
    Adjective(_GRAND, "grand", "big", "bigger", True, _BIG_KINDS),
    Adjective(_GRAND, "grand", "tall", "taller", True, frozenset(("kin", "person", "job"))),
]
VERBS = _verbs()
# `aimer` is to like a thing and to love a person.
VERBS["aimer (love)"] = replace(
    VERBS["aimer"], base="love", third="loves", past="loved", objects=("kin", "person"), pron="him"
)
INTRANSITIVE = [line.split()[0] for line in SECTIONS["intransitive"]] + ["dormir", "courir", "rire"]
MOVING = ["rester", "tomber", "arriver", "partir", "sortir"]
TRANSITIVE = [
    v for v in dict.fromkeys(
        line.split()[0].rstrip(";") for section in ("regular", "irregular") for line in SECTIONS[section]
    ) if VERBS[v].objects
]
