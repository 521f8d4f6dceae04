"""Noun phrases, subjects, places and times in both languages, and the spelling of a sentence.

French is built as a list of plain words; elision (`le ami` -> `l' ami`) and contraction
(`de le` -> `du`) are done once, at the end, by `french`. English chooses `a` or `an` the same way.
"""

import random
from dataclasses import dataclass

import lexicon as lex
from lexicon import NOUNS, Adjective, Noun

EN_SUBJECTS = ["i", "you", "he", "we", "you", "they"]
POSSESSIVES = {
    0: ("mon ma mes", "my"),
    1: ("ton ta tes", "your"),
    3: ("notre notre nos", "our"),
    4: ("votre votre vos", "your"),
    5: ("leur leur leurs", "their"),
}
ELIDED = {"je", "me", "te", "le", "la", "ne", "de", "que"}
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}


def french(words: list[str]) -> str:
    """Elides and contracts."""
    words = " ".join(words).split()
    out: list[str] = []
    i = 0
    while i < len(words):
        word, after = words[i], words[i + 1] if i + 1 < len(words) else "."
        beyond = words[i + 2] if i + 2 < len(words) else "."
        if (word, after) in CONTRACTED and not (after == "le" and beyond[0] in lex.VOWELS):
            out.append(CONTRACTED[word, after])
            i += 2
            continue
        if word in ELIDED and after[0] in lex.VOWELS:
            word = word[:-1] + "'"
        out.append(word)
        i += 1
    return " ".join(out)


def english(words: list[str]) -> str:
    words = " ".join(words).split()
    for i, word in enumerate(words[:-1]):
        if word == "a" and words[i + 1][0] in "aeiou" and words[i + 1] not in ("university", "useful"):
            words[i] = "an"
    return " ".join(words)


@dataclass(frozen=True)
class Phrase:
    """A noun phrase. `none` is its French after a negation (`pas de pain`), where that differs."""

    fr: str
    en: str
    gender: str = "m"
    plural: bool = False
    kind: str = ""
    none: str = ""
    generic: str = ""

    @property
    def person(self) -> int:
        return 5 if self.plural else 2

    @property
    def human(self) -> bool:
        return self.kind in ("kin", "person", "job", "name")


@dataclass(frozen=True)
class Subject:
    fr: str
    en: str
    person: int
    gender: str
    plural: bool
    kind: str
    pronoun: bool

    @property
    def human(self) -> bool:
        return self.kind in ("kin", "person", "job", "name")


class Phrases:
    """Draws from one seeded stream; `Grammar` builds its sentences on it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def pick(self, items):
        return self.rng.choice(list(items))

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    # ---- noun phrases

    def adjectives(self, noun: Noun) -> tuple[Adjective | None, Adjective | None]:
        draw = self.rng.random()
        before = [a for a in lex.BEFORE if noun.kind in a.kinds]
        after = [a for a in lex.AFTER if noun.kind in a.kinds]
        return (
            self.pick(before) if before and (draw < 0.22 or draw > 0.95) else None,
            self.pick(after) if after and (0.22 <= draw < 0.42 or draw > 0.95) else None,
        )

    def noun_group(self, noun: Noun, plural: bool, plain: bool) -> tuple[str, str]:
        before, after = (None, None) if plain else self.adjectives(noun)
        word = noun.frs if plural else noun.fr
        fr, en = [word], [noun.ens if plural else noun.en]
        if before:
            form = before.agree(noun.gender, plural)
            if word[0] in lex.VOWELS and not plural and noun.gender == "m":
                form = before.bel
            fr.insert(0, form)
        if after:
            fr.append(after.agree(noun.gender, plural))
            en.insert(0, after.en)
        if before:
            en.insert(0, before.en)
        return " ".join(fr), " ".join(en)

    def possessive(self, owner: Subject | None, noun: Noun, plural: bool, first: str) -> tuple[str, str]:
        """`son` is his or her: only of an owner whose gender the sentence shows."""
        persons = [0, 1, 3, 4]
        if owner and owner.human and owner.person == 2:
            persons += [2] * 4
        if owner and owner.human and owner.person == 5:
            persons += [5] * 3
        if owner and owner.pronoun and owner.person in (0, 1, 3, 4):
            persons = [owner.person] * 3 + persons
        who = self.pick(persons)
        if who == 2:
            forms, en = "son sa ses", "her" if owner.gender == "f" else "his"
        else:
            forms, en = POSSESSIVES[who]
        m, f, many = forms.split()
        if plural:
            return many, en
        return (f if noun.gender == "f" and first[0] not in lex.VOWELS else m), en

    def phrase(
        self, kinds, owner: Subject | None = None, definite=False, plain=False, singular=False
    ) -> Phrase:
        noun = self.pick([n for kind in kinds for n in NOUNS[kind]])
        if noun.kind in ("mass", "drink") or noun.en == "music":
            return self.mass_phrase(noun, owner, definite, plain)
        plural = not singular and self.chance(0.35)
        fr, en = self.noun_group(noun, plural, plain)
        bare_plural = f"de {fr}" if noun.fr != noun.frs else ""
        adjective_first = plural and not fr.startswith(noun.frs)
        styles = ["the"] * 5 + ["this"]
        if noun.kind not in ("person", "nature", "place", "time"):
            styles += ["my"] * (6 if noun.kind == "kin" else 3)
        if not definite:
            styles += ["a"] * 6 + (["two", "some"] if plural else [])
        style = self.pick(styles)
        none = generic = ""
        if style == "the":
            article = "les" if plural else "la" if noun.gender == "f" else "le"
            generic = en if plural else ""
            fr, en = f"{article} {fr}", f"the {en}"
        elif style == "this":
            article = (
                "ces" if plural else "cette" if noun.gender == "f" else "cet" if fr[0] in lex.VOWELS else "ce"
            )
            fr, en = f"{article} {fr}", f"{'these' if plural else 'this'} {en}"
        elif style == "my":
            article, owned = self.possessive(owner, noun, plural, fr)
            fr, en = f"{article} {fr}", f"{owned} {en}"
        elif style == "a":
            none = bare_plural if plural else f"de {fr}"
            if plural:
                fr = f"de {fr}" if adjective_first else f"des {fr}"
            else:
                fr, en = f"{'une' if noun.gender == 'f' else 'un'} {fr}", f"a {en}"
        elif style == "two":
            number = self.pick(lex.NUMBERS)
            fr, en = f"{number} {fr}", f"{lex.NUMBERS[number]} {en}"
        else:
            word, meaning = self.pick(
                [("quelques", "some"), ("plusieurs", "several"), ("beaucoup de", "many")]
            )
            fr, en = f"{word} {fr}", f"{meaning} {en}"
        return Phrase(fr, en, noun.gender, plural, noun.kind, none, generic)

    def mass_phrase(self, noun: Noun, owner: Subject | None, definite: bool, plain: bool) -> Phrase:
        fr, en = self.noun_group(noun, False, plain)
        article = "la" if noun.gender == "f" else "le"
        style = self.pick(["the", "my"] if definite else ["the", "some", "some", "some", "much", "a", "my"])
        if style == "my":
            word, owned = self.possessive(owner, noun, False, fr)
            return Phrase(f"{word} {fr}", f"{owned} {en}", noun.gender, kind=noun.kind)
        if style == "a" and noun.en in ("coffee", "tea", "beer"):
            return Phrase(
                f"{'une' if noun.gender == 'f' else 'un'} {fr}", f"a {en}", noun.gender, kind=noun.kind
            )
        if style == "much":
            return Phrase(f"beaucoup de {fr}", f"a lot of {en}", noun.gender, kind=noun.kind)
        if style == "some":
            return Phrase(f"de {article} {fr}", en, noun.gender, kind=noun.kind, none=f"de {fr}")
        return Phrase(f"{article} {fr}", f"the {en}", noun.gender, kind=noun.kind, generic=en)

    def person_phrase(self, owner: Subject | None = None) -> Phrase:
        if self.chance(0.3):
            name = self.pick(lex.NAMES)
            return Phrase(name, name, lex.NAMES[name], kind="name")
        return self.phrase(("kin", "person", "job"), owner, definite=True, plain=self.chance(0.6))

    def owned_phrase(self) -> Phrase:
        """`la voiture de paul`: `paul 's car`."""
        noun = self.pick(
            [n for k in ("thing", "cloth", "vehicle", "animal", "read", "kin", "furniture") for n in NOUNS[k]]
        )
        plural = self.chance(0.3)
        fr, en = self.noun_group(noun, plural, self.chance(0.6))
        owner = self.person_phrase()
        while owner.plural:
            owner = self.person_phrase()
        article = "les" if plural else "la" if noun.gender == "f" else "le"
        return Phrase(f"{article} {fr} de {owner.fr}", f"{owner.en} 's {en}", noun.gender, plural, noun.kind)

    # ---- subjects

    def subject(self, animals=False, pronoun=False, third=False) -> Subject:
        draw = self.rng.random()
        if pronoun or draw < 0.58:
            person = self.pick([2, 5] if third else range(6))
            gender = self.pick("mf")
            plural = person in (3, 5) or (person == 4 and self.chance(0.5))
            fr, en = lex.PERSONS[person], EN_SUBJECTS[person]
            if gender == "f":
                fr, en = {2: ("elle", "she"), 5: ("elles", "they")}.get(person, (fr, en))
            return Subject(fr, en, person, gender, plural, "person", True)
        if draw < 0.62:
            one, two = self.rng.sample(sorted(lex.NAMES), 2)
            gender = "f" if lex.NAMES[one] == lex.NAMES[two] == "f" else "m"
            return Subject(f"{one} et {two}", f"{one} and {two}", 5, gender, True, "name", False)
        if animals and draw < 0.75:
            phrase = self.phrase(("animal",), definite=True, plain=self.chance(0.5))
        else:
            phrase = self.person_phrase()
        return self.as_subject(phrase)

    @staticmethod
    def as_subject(phrase: Phrase) -> Subject:
        return Subject(phrase.fr, phrase.en, phrase.person, phrase.gender, phrase.plural, phrase.kind, False)

    # ---- places, times, tails

    def place(self, motion: bool) -> tuple[str, str]:
        draw = self.rng.random()
        if draw < 0.4:
            noun = self.pick(NOUNS["place"])
            article = "la" if noun.gender == "f" else "le"
            return f"à {article} {noun.fr}", f"{'to' if motion else 'at'} the {noun.en}"
        if draw < 0.5:
            city = self.pick(lex.CITIES)
            return f"à {city}", f"{'to' if motion else 'in'} {lex.CITIES[city]}"
        if draw < 0.6:
            country = self.pick(lex.COUNTRIES)
            return country, f"{'to' if motion else 'in'} {lex.COUNTRIES[country]}"
        if draw < 0.7:
            if self.chance(0.5):
                return "à la maison", "home" if motion else "at home"
            return "à la école", "to school" if motion else "at school"
        if draw < 0.76 and not motion:
            who = self.pick([n for n in lex.NAMES])
            return f"avec {who}", f"with {who}"
        if draw < 0.82 or motion:
            near = self.phrase(("home", "nature", "place"), definite=True, plain=True, singular=True)
            return f"près de {near.fr}", f"near {near.en}"
        return self.inside()

    def inside(self) -> tuple[str, str]:
        fr, en, kinds = self.pick(
            [
                ("dans", "in", ("home", "vehicle")),
                ("sur", "on", ("furniture",)),
                ("sous", "under", ("furniture",)),
                ("devant", "in front of", ("home", "place", "furniture")),
                ("derrière", "behind", ("home", "place", "part")),
                ("avec", "with", ("kin",)),
                ("sans", "without", ("kin",)),
                ("dans", "in", ("home",)),
            ]
        )
        phrase = self.phrase(kinds, definite=True, plain=self.chance(0.7), singular=True)
        return f"{fr} {phrase.fr}", f"{en} {phrase.en}"

    def time(self, tense: str) -> tuple[str, str]:
        key = {"present": "present", "past": "past"}.get(tense, "future")
        draw = self.rng.random()
        if draw < 0.55:
            fr = self.pick(lex.TIMES[key])
            return fr, lex.TIMES[key][fr]
        if draw < 0.75:
            day = self.pick(lex.DAYS)
            name = lex.DAYS[day]
            if key == "present":
                return f"le {day}", f"on {name}"
            return (
                (f"{day} dernier", f"last {name}") if key == "past" else (f"{day} prochain", f"next {name}")
            )
        if draw < 0.88:
            month = self.pick(lex.MONTHS)
            return f"en {month}", f"in {lex.MONTHS[month]}"
        number = self.pick(lex.NUMBERS)
        noun = self.pick([n for n in NOUNS["time"] if n.en in ("day", "month", "year", "week", "hour")])
        count = f"{lex.NUMBERS[number]} {noun.ens}"
        if key == "past":
            return f"il y a {number} {noun.frs}", f"{count} ago"
        if key == "future":
            return f"dans {number} {noun.frs}", f"in {count}"
        return f"à {number} heures", f"at {lex.NUMBERS[number]} o'clock"
