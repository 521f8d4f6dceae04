"""Aligned French-English sentences from a small grammar: seeded, and one translation per source.

French is built as a list of plain words; elision (`le ami` -> `l' ami`) and contraction
(`de le` -> `du`) are done once, at the end, by `french`. English chooses `a` or `an` the same way.
The difference in word order is the point: adjectives, object pronouns, adverbs, negation, inversion
and the possessor all stand elsewhere in English, so that a model must attend and not copy.

    python grammar.py [count] [seed]    prints pairs, tab-separated
"""

import random
import sys
from dataclasses import dataclass

import lexicon as lex
from lexicon import NOUNS, PEOPLE, VERBS, Adjective, Noun, Verb

EN_SUBJECTS = ["i", "you", "he", "we", "you", "they"]
# The object pronoun of each person, the pronoun before a verb and its English.
ME = {0: ("me", "me"), 1: ("te", "you"), 3: ("nous", "us"), 4: ("vous", "you")}
POSSESSIVES = {
    0: ("mon ma mes", "my"), 1: ("ton ta tes", "your"), 3: ("notre notre nos", "our"),
    4: ("votre votre vos", "your"), 5: ("leur leur leurs", "their"),
}
ELIDED = {"je", "me", "te", "le", "la", "ne", "de", "que"}
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
NEGATIONS = {"pas": "not", "jamais": "never", "plus": "no longer"}


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

    @property
    def en_person(self) -> int:
        return 5 if self.plural and self.person != 3 else self.person


class Grammar:
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

    def phrase(self, kinds, owner: Subject | None = None, definite=False, plain=False, singular=False) -> Phrase:
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
            article = "ces" if plural else "cette" if noun.gender == "f" else "cet" if fr[0] in lex.VOWELS else "ce"
            fr, en = f"{article} {fr}", f"{'these' if plural else 'this'} {en}"
        elif style == "my":
            article, owned = self.possessive(owner, noun, plural, fr)
            fr, en = f"{article} {fr}", f"{owned} {en}"
        elif style == "a":
            none = bare_plural if plural else f"de {fr}"
            if plural:
                fr = f"de {fr}" if adjective_first else f"DES {fr}"
            else:
                fr, en = f"{'une' if noun.gender == 'f' else 'un'} {fr}", f"a {en}"
        elif style == "two":
            number = self.pick(lex.NUMBERS)
            fr, en = f"{number} {fr}", f"{lex.NUMBERS[number]} {en}"
        else:
            word, meaning = self.pick([("quelques", "some"), ("plusieurs", "several"), ("beaucoup de", "many")])
            fr, en = f"{word} {fr}", f"{meaning} {en}"
        return Phrase(fr.replace("DES", "des"), en, noun.gender, plural, noun.kind, none, generic)

    def mass_phrase(self, noun: Noun, owner: Subject | None, definite: bool, plain: bool) -> Phrase:
        fr, en = self.noun_group(noun, False, plain)
        article = "la" if noun.gender == "f" else "le"
        style = self.pick(["the", "my"] if definite else ["the", "some", "some", "some", "much", "a", "my"])
        if style == "my":
            word, owned = self.possessive(owner, noun, False, fr)
            return Phrase(f"{word} {fr}", f"{owned} {en}", noun.gender, kind=noun.kind)
        if style == "a" and noun.en in ("coffee", "tea", "beer"):
            return Phrase(f"{'une' if noun.gender == 'f' else 'un'} {fr}", f"a {en}", noun.gender, kind=noun.kind)
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
        noun = self.pick([n for k in ("thing", "cloth", "vehicle", "animal", "read", "kin", "furniture") for n in NOUNS[k]])
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
        fr, en, kinds = self.pick([
            ("dans", "in", ("home", "vehicle")), ("sur", "on", ("furniture",)), ("sous", "under", ("furniture",)),
            ("devant", "in front of", ("home", "place", "furniture")), ("derrière", "behind", ("home", "place", "part")),
            ("avec", "with", ("kin",)), ("sans", "without", ("kin",)), ("dans", "in", ("home",)),
        ])
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
            return (f"{day} dernier", f"last {name}") if key == "past" else (f"{day} prochain", f"next {name}")
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

    # ---- the clause

    def english_verb(self, verb: Verb, subject: Subject, tense: str) -> tuple[str, str, str, str]:
        """(auxiliary, what follows it, the form without one, the support `do` and its base after)."""
        third = subject.person == 2
        be = "am" if subject.person == 0 else "is" if third else "are"
        if tense == "near":
            return be, f"going to {verb.base}", "", ""
        if tense == "future":
            return "will", verb.base, "", ""
        if verb.inf == "être":
            return ("was" if subject.person in (0, 2) else "were") if tense == "past" else be, "", "", ""
        if verb.modal:
            return verb.modal, "like" if verb.modal == "would" else "", "", ""
        if tense == "past":
            return "", verb.base, verb.past, "did"
        return "", verb.base, verb.third if third else verb.base, "does" if third else "do"

    def french_verb(self, verb: Verb, subject: Subject, tense: str, agree: str | None) -> tuple[str, str]:
        """(finite form, what follows the negation)."""
        person = subject.person
        if tense == "present":
            return verb.present[person], ""
        if tense == "future":
            return verb.future(person), ""
        if tense == "near":
            return VERBS["aller"].present[person], verb.inf
        participle = verb.participle
        if verb.aux == "être":
            participle += ("e" if subject.gender == "f" else "") + ("s" if subject.plural else "")
        elif agree:
            gender, plural = agree[0], agree[1:] == "s"
            participle += "e" if gender == "f" else ""
            participle += "s" if plural and not participle.endswith("s") else ""
        return VERBS[verb.aux].present[person], participle

    def clause(
        self, subject: Subject, verb: Verb, tense: str, *, tail=("", ""), pron=("", ""), agree=None, mood="plain",
        negation="", adverb="", infinitive: tuple[Verb, str] | None = None, wh=("", ""),
    ) -> tuple[str, str]:
        """One clause. `infinitive` is a verb under a modal and the English link (`to` or nothing);
        the pronoun then stands before it."""
        finite, rest = self.french_verb(verb, subject, tense, agree)
        before = pron[0]
        if infinitive:
            rest = f"{before} {infinitive[0].inf}"
            before = ""
        elif tense == "near":
            rest = f"{before} {rest}"
            before = ""
        ne = "ne" if negation else ""
        core = f"{ne} {before} {finite}"
        if mood == "inversion":
            link = "-t" if subject.person == 2 and finite[-1] in "aeé" else ""
            if subject.pronoun:
                core = f"{core} {link}-{subject.fr}"
            else:
                again = {2: ("il", "elle"), 5: ("ils", "elles")}[subject.person][subject.gender == "f"]
                core = f"{subject.fr} {core} {link}-{again}"
            fr = [wh[0], core, negation or adverb, rest, tail[0]]
        else:
            rising = mood == "est-ce" and not wh[1] and self.chance(0.25)
            start = [wh[0], "est-ce que"] if mood == "est-ce" and not rising else []
            fr = start + [subject.fr, core, negation or adverb, rest, tail[0]]

        aux, base, form, support = self.english_verb(verb, subject, tense)
        middle = NEGATIONS.get(negation, lex.ADVERBS.get(adverb, ""))
        after = f"{pron[1]} {tail[1]}"
        if infinitive:
            after = f"{infinitive[1]} {infinitive[0].base} {after}"
        if mood != "plain":
            en = [wh[1], aux or support, subject.en, middle, base, after]
        elif aux == "can" and negation == "pas":
            en = [subject.en, "cannot", after]
        elif aux or negation == "pas":
            en = [subject.en, aux or support, middle, base, after]
        else:
            en = [subject.en, middle, form, after]
        if mood != "plain":
            fr.append("?")
            en.append("?")
        return " ".join(fr), " ".join(en)

    def manner_of_speaking(self, subject: Subject, tense: str) -> dict:
        """Tense-neutral choices: the mood, and either a negation, an adverb or nothing."""
        out: dict = {"mood": "plain"}
        draw = self.rng.random()
        if draw < 0.1:
            out["mood"] = "est-ce"
        elif draw < 0.22 and subject.person != 0 and (not subject.pronoun or tense != "near"):
            if subject.fr not in lex.NAMES or self.chance(0.3):
                out["mood"] = "inversion"
        draw = self.rng.random()
        if draw < 0.26 and out["mood"] != "inversion":
            out["negation"] = self.pick(["pas", "pas", "pas", "jamais", "plus"] if tense != "past" else ["pas", "pas", "jamais"])
        elif draw < 0.36 and tense != "near":
            out["adverb"] = self.pick(lex.ADVERBS)
        return out

    def tense(self) -> str:
        return self.rng.choices(["present", "past", "future", "near"], [50, 25, 17, 8])[0]

    def with_tail(self, tail: tuple[str, str], extra: tuple[str, str]) -> tuple[str, str]:
        return f"{tail[0]} {extra[0]}", f"{tail[1]} {extra[1]}"

    def spoken_object(self, verb: Verb, phrase: Phrase, negation: str) -> tuple[str, str]:
        if verb.base in ("like", "hate") and not verb.modal and phrase.generic:
            return phrase.fr, phrase.generic
        if negation and phrase.none:
            return phrase.none, phrase.en
        return phrase.fr, phrase.en

    def pronoun(self, verb: Verb, subject: Subject, elides: bool, tense: str, infinitive=False):
        """(pronoun pair, participle agreement). `l'` before a vowel hides him or her: only `it` then."""
        choices = []
        if verb.pron == "him":
            choices += [ME[p] for p in ME if p % 3 != subject.person % 3]
        gender, plural = self.pick("mf"), self.chance(0.35)
        shown = tense == "past" and not infinitive and not verb.participle.endswith("s")
        if plural:
            choices += [("les", "them")] * 4
        elif verb.pron == "it" or shown or not elides:
            en = "it" if verb.pron == "it" else "her" if gender == "f" else "him"
            choices += [("la" if gender == "f" else "le", en)] * 4
        if not choices:
            return None
        chosen = self.pick(choices)
        return chosen, (gender + ("s" if plural else "") if chosen[0] in ("le", "la", "les") else None)

    def indirect(self, subject: Subject) -> tuple[str, str]:
        """To whom: never the speaker or the one spoken to twice, which would be a reflexive."""
        return self.pick([ME[p] for p in ME if p % 3 != subject.person % 3] + [("leur", "them")])

    # ---- sentences

    def transitive(self) -> tuple[str, str]:
        verb = VERBS[self.pick(lex.TRANSITIVE + ["aimer", "aimer", "détester", "vouloir", "vouloir", "voudrais", "voudrais", "aimer (love)"])]
        animal = verb.inf in ("manger", "boire", "regarder", "voir", "chercher", "entendre")
        subject = self.subject(animals=animal)
        tense = self.tense() if verb.inf not in ("aimer", "détester", "vouloir", "voudrais", "connaître", "avoir") else "present"
        if verb.inf == "avoir":
            tense = self.pick(["present", "present", "present", "future"])
        say = self.manner_of_speaking(subject, tense)
        if verb.pron and self.chance(0.45 if tense == "past" else 0.25):
            elides = (verb.inf if tense == "near" else verb.future(subject.person) if tense == "future" else verb.present[subject.person])[0] in lex.VOWELS
            found = self.pronoun(verb, subject, elides, tense)
            if found:
                pron, agree = found
                tail = self.time(tense) if self.chance(0.3) else ("", "")
                return self.clause(subject, verb, tense, pron=pron, agree=agree, tail=tail, **say)
        phrase = self.phrase(verb.objects, subject)
        if "kin" in verb.objects and verb.inf != "avoir" and self.chance(0.2):
            name = self.pick(name for name in lex.NAMES if name not in subject.fr)
            phrase = Phrase(name, name, lex.NAMES[name], kind="name")
        if self.chance(0.1) and phrase.kind in ("thing", "cloth", "vehicle", "animal", "read", "kin", "furniture"):
            owned = self.owned_phrase()
            if owned.kind in verb.objects:
                phrase = owned
        tail = self.spoken_object(verb, phrase, say.get("negation", ""))
        if say["mood"] == "plain" and self.chance(0.06) and say.get("negation") in ("pas", None) and verb.pron == "it":
            say.pop("adverb", None)
            say.pop("negation", None)
            if tense in ("present", "future"):
                return self.nothing(subject, verb, tense)
        draw = self.rng.random()
        if draw < 0.25:
            tail = self.with_tail(tail, self.time(tense))
        elif draw < 0.4 and verb.inf not in ("avoir", "aimer", "détester", "connaître"):
            tail = self.with_tail(tail, self.place(False))
        return self.clause(subject, verb, tense, tail=tail, **say)

    def nothing(self, subject: Subject, verb: Verb, tense: str) -> tuple[str, str]:
        """`je ne mange rien`: `i eat nothing`."""
        finite, _ = self.french_verb(verb, subject, tense, None)
        aux, base, form, _ = self.english_verb(verb, subject, tense)
        return f"{subject.fr} ne {finite} rien", f"{subject.en} {aux} {base if aux else form} nothing"

    def intransitive(self) -> tuple[str, str]:
        verb = VERBS[self.pick(lex.INTRANSITIVE + lex.MOVING)]
        subject = self.subject(animals=verb.inf in ("dormir", "courir", "marcher", "nager", "tomber", "sortir"))
        if verb.inf in ("arriver", "partir") and self.chance(0.3):
            subject = self.as_subject(self.phrase(("vehicle",), definite=True, plain=True))
        tense = self.tense()
        tail = ("", "")
        if verb.inf not in lex.MOVING and self.chance(0.3) and tense == "present":
            manner = self.pick(lex.MANNERS)
            tail = (manner, lex.MANNERS[manner])
        elif verb.inf == "rester" or (self.chance(0.4) and verb.inf not in ("partir", "arriver", "sortir")):
            tail = self.place(False)
        if self.chance(0.3):
            tail = self.with_tail(tail, self.time(tense))
        return self.clause(subject, verb, tense, tail=tail, **self.manner_of_speaking(subject, tense))

    def motion(self) -> tuple[str, str]:
        subject = self.subject(animals=False)
        if self.chance(0.35):
            verb, tense = VERBS["habiter"], self.pick(["present", "present", "past", "future"])
            tail = self.place(False)
        else:
            verb, tense = VERBS[self.pick(["aller", "aller", "venir"])], self.pick(["present", "past", "future"])
            tail = self.place(True)
        if self.chance(0.35):
            tail = self.with_tail(tail, self.time(tense))
        return self.clause(subject, verb, tense, tail=tail, **self.manner_of_speaking(subject, tense))

    def learning(self) -> tuple[str, str]:
        """Languages, sports and instruments."""
        subject = self.subject()
        tense = self.tense()
        draw = self.rng.random()
        say = self.manner_of_speaking(subject, tense)
        if draw < 0.6:
            language = self.pick(lex.LANGUAGES)
            verb = VERBS[self.pick(["parler", "parler", "étudier", "apprendre"])]
            tail = (language if verb.inf == "parler" else f"le {language}", lex.LANGUAGES[language])
            if verb.inf == "parler" and self.chance(0.3) and "adverb" not in say and tense == "present":
                say.pop("negation", None)
                tail = self.pick([(f"bien {tail[0]}", f"{tail[1]} well"), (f"mal {tail[0]}", f"{tail[1]} badly")])
        elif draw < 0.8:
            sport = self.pick(lex.SPORTS)
            verb, tail = VERBS["jouer"], (f"à le {sport}", lex.SPORTS[sport])
        else:
            instrument = self.pick(lex.INSTRUMENTS)
            gender, en = lex.INSTRUMENTS[instrument].split()
            verb, tail = VERBS["jouer"], (f"de {'la' if gender == 'f' else 'le'} {instrument}", f"the {en}")
        if self.chance(0.25):
            tail = self.with_tail(tail, self.time(tense))
        return self.clause(subject, verb, tense, tail=tail, **say)

    def giving(self) -> tuple[str, str]:
        subject = self.subject()
        tense = self.tense()
        say = self.manner_of_speaking(subject, tense)
        if self.chance(0.3):
            verb = VERBS["parler"]
            if self.chance(0.5):
                pron = self.indirect(subject)
                return self.clause(subject, verb, tense, pron=(pron[0], f"to {pron[1]}"), **say)
            who = self.person_phrase(subject)
            return self.clause(subject, verb, tense, tail=(f"à {who.fr}", f"to {who.en}"), **say)
        verb = VERBS[self.pick(["donner", "montrer"])]
        phrase = self.phrase(verb.objects, subject, plain=True)
        tail = self.spoken_object(verb, phrase, say.get("negation", ""))
        if self.chance(0.5):
            pron = self.indirect(subject)
            return self.clause(subject, verb, tense, pron=pron, tail=tail, **say)
        who = self.person_phrase(subject)
        tail = self.with_tail(tail, (f"à {who.fr}", f"to {who.en}"))
        return self.clause(subject, verb, tense, tail=tail, **say)

    def wanting(self) -> tuple[str, str]:
        """A modal and an infinitive; the pronoun stands before the infinitive."""
        name, link = self.pick([
            ("vouloir", "to"), ("pouvoir", ""), ("devoir", ""), ("aimer", "to"), ("savoir", "to"), ("voudrais", "to"),
        ])
        modal = VERBS[name]
        subject = self.subject()
        say = self.manner_of_speaking(subject, "present")
        if subject.person == 0 and say["mood"] == "inversion":
            say["mood"] = "est-ce"
        verb = VERBS[self.pick(lex.TRANSITIVE + lex.INTRANSITIVE + ["aller", "partir", "sortir"])]
        while verb.inf in ("avoir", "connaître"):
            verb = VERBS[self.pick(lex.TRANSITIVE)]
        extra: dict = {}
        if verb.pron and self.chance(0.35):
            found = self.pronoun(verb, subject, verb.inf[0] in lex.VOWELS, "present", True)
            if found:
                extra["pron"] = found[0]
        elif verb.objects:
            phrase = self.phrase(verb.objects, subject)
            extra["tail"] = self.spoken_object(verb, phrase, say.get("negation", ""))
        elif verb.inf == "aller":
            extra["tail"] = self.place(True)
        if self.chance(0.2):
            extra["tail"] = self.with_tail(extra.get("tail", ("", "")), self.time("future" if name != "savoir" else "present"))
        return self.clause(subject, modal, "present", infinitive=(verb, link), **extra, **say)

    def being(self) -> tuple[str, str]:
        tense = self.pick(["present", "present", "present", "future"])
        verb = VERBS["être"]
        draw = self.rng.random()
        if draw < 0.22:
            subject = self.subject(pronoun=self.chance(0.8))
            jobs = [n for n in NOUNS["job"] if n.gender == subject.gender or n.fr in ("médecin", "journaliste", "ingénieur", "professeur")]
            noun = self.pick(jobs)
            tail = (noun.frs, noun.ens) if subject.plural else (noun.fr, f"a {noun.en}")
        elif draw < 0.4:
            if self.chance(0.5):
                subject = self.subject(animals=True)
            else:
                subject = self.as_subject(self.phrase(("thing", "food", "cloth", "read", "animal"), definite=True, plain=True))
            tail = self.inside() if not subject.human else self.place(False)
        else:
            if self.chance(0.6):
                subject = self.subject(animals=True)
            else:
                kinds = ("thing", "food", "mass", "drink", "cloth", "read", "vehicle", "home", "place", "idea", "furniture")
                phrase = self.phrase(kinds, definite=True, plain=self.chance(0.7))
                if self.chance(0.2):
                    phrase = self.owned_phrase()
                subject = self.as_subject(phrase)
            kind = "person" if subject.kind == "name" else subject.kind
            adjective = self.pick([a for a in lex.BEFORE + lex.AFTER + lex.PREDICATES if kind in a.kinds and a.en not in ("new", "good", "bad")])
            word = adjective.agree(subject.gender, subject.plural)
            degree = self.rng.random()
            tail = (word, adjective.en)
            if degree < 0.15:
                tail = (f"très {word}", f"very {adjective.en}")
            elif degree < 0.22:
                tail = (f"trop {word}", f"too {adjective.en}")
            elif degree < 0.34 and adjective not in lex.PREDICATES:
                other = self.person_phrase(subject) if subject.human else self.phrase((subject.kind,), definite=True, plain=True)
                tail = (f"plus {word} que {other.fr}", f"{adjective.more} than {other.en}")
                return self.clause(subject, verb, tense, tail=tail)
        if self.chance(0.12):
            tail = self.with_tail(tail, self.time(tense))
        return self.clause(subject, verb, tense, tail=tail, **self.manner_of_speaking(subject, tense))

    def feeling(self) -> tuple[str, str]:
        """`avoir` for `to be`: hungry, cold, twenty years old."""
        subject = self.subject()
        if self.chance(0.3):
            number = self.pick(lex.NUMBERS)
            return (
                f"{subject.fr} {VERBS['avoir'].present[subject.person]} {number} ans",
                f"{subject.en} {self.english_verb(VERBS['être'], subject, 'present')[0]} {lex.NUMBERS[number]} years old",
            )
        state = self.pick(lex.STATES)
        say = self.manner_of_speaking(subject, "present")
        fr, _ = self.clause(subject, VERBS["avoir"], "present", tail=(state, ""), **say)
        _, en = self.clause(subject, VERBS["être"], "present", tail=("", lex.STATES[state]), **say)
        return fr, en

    def existing(self) -> tuple[str, str]:
        phrase = self.phrase(("animal", "thing", "food", "mass", "drink", "job", "furniture", "nature", "read"), plain=self.chance(0.5))
        while not phrase.none and not phrase.en.split()[0] in (*lex.NUMBERS.values(), "some", "several", "many"):
            phrase = self.phrase(("animal", "thing", "food", "job", "furniture", "read"), plain=self.chance(0.5))
        be = "are" if phrase.plural else "is"
        tail = self.inside() if self.chance(0.75) else ("", "")
        if phrase.none and self.chance(0.3):
            en = phrase.en[2:] if phrase.en.startswith("a ") else phrase.en
            return f"il n' y a pas {phrase.none} {tail[0]}", f"there {be} no {en} {tail[1]}"
        if self.chance(0.2):
            return f"est-ce que il y a {phrase.fr} {tail[0]} ?", f"{be} there {phrase.en} {tail[1]} ?"
        return f"il y a {phrase.fr} {tail[0]}", f"there {be} {phrase.en} {tail[1]}"

    def presenting(self) -> tuple[str, str]:
        kinds = ("animal", "thing", "cloth", "read", "vehicle", "kin", "job", "home", "idea", "furniture", "nature")
        phrase = self.phrase(kinds) if self.chance(0.7) else self.owned_phrase()
        fr, en = ("ce sont", "they are") if phrase.plural else ("c' est", "it is")
        if not phrase.plural and self.chance(0.25):
            no = phrase.fr
            return f"ce n' est pas {no}", f"it is not {phrase.en}"
        if not phrase.plural and self.chance(0.15):
            return f"est-ce {phrase.fr} ?", f"is it {phrase.en} ?"
        return f"{fr} {phrase.fr}", f"{en} {phrase.en}"

    def asking(self) -> tuple[str, str]:
        """Questions with a question word."""
        draw = self.rng.random()
        mood = self.pick(["inversion", "est-ce"])
        subject = self.subject(pronoun=True)
        if mood == "inversion" and subject.person == 0:
            mood = "est-ce"
        tense = self.pick(["present", "present", "present", "future"])
        if draw < 0.12:
            wh = ("où", "where")
            verb = VERBS[self.pick(["habiter", "aller", "travailler", "dormir", "manger", "courir", "jouer", "nager", "être"])]
            return self.clause(subject, verb, tense, mood=mood, wh=wh)
        if draw < 0.24:
            wh = self.pick([("quand", "when"), ("à quelle heure", "at what time"), ("pourquoi", "why"), ("comment", "how")])
            verb = VERBS[self.pick(["partir", "arriver", "manger", "travailler", "dormir", "sortir", "venir", "rire", "pleurer", "chanter", "voyager"])]
            return self.clause(subject, verb, tense, mood=mood, wh=wh)
        if draw < 0.34:
            return self.where_is()
        if draw < 0.46:
            verb = VERBS[self.pick([v for v in lex.TRANSITIVE if VERBS[v].pron == "it"])]
            if mood == "est-ce":
                fr, en = self.clause(subject, verb, tense, mood="est-ce", wh=("", "what"))
                return f"que {fr.strip()}", en
            return self.clause(subject, verb, tense, mood=mood, wh=("que", "what"))
        if draw < 0.72:
            verb = VERBS[self.pick([v for v in lex.TRANSITIVE if VERBS[v].pron])]
            kinds = [k for k in verb.objects if k not in ("mass", "drink", "sound")] or ["food"]
            noun = self.pick([n for k in kinds for n in NOUNS[k]])
            plural = self.chance(0.5)
            if self.chance(0.5):
                wh = (f"combien de {noun.frs}", f"how many {noun.ens}")
            else:
                wh = self.what(noun, plural)
            return self.clause(subject, verb, tense, mood=mood, wh=wh)
        if draw < 0.86:
            verb = VERBS[self.pick(lex.TRANSITIVE)]
            who = Subject("qui", "who", 2, "m", False, "", False)
            phrase = self.phrase(verb.objects, None)
            fr, en = self.clause(who, verb, self.pick(["present", "past", "future"]), tail=(phrase.fr, phrase.en))
            return f"{fr} ?", f"{en} ?"
        return self.idiom_question()

    def what(self, noun: Noun, plural: bool) -> tuple[str, str]:
        forms = ("quels", "quelles") if plural else ("quel", "quelle")
        return f"{forms[noun.gender == 'f']} {noun.frs if plural else noun.fr}", f"what {noun.ens if plural else noun.en}"

    def where_is(self) -> tuple[str, str]:
        if self.chance(0.5):
            kinds = ("place", "thing", "animal", "kin", "vehicle", "read", "cloth")
            phrase = self.phrase(kinds, definite=True, plain=self.chance(0.6))
        elif self.chance(0.5):
            phrase = self.owned_phrase()
        else:
            phrase = self.person_phrase()
        if self.chance(0.3) and phrase.human:
            name, en = self.pick([("habiter", "live"), ("travailler", "work"), ("aller", "go")])
            fr = VERBS[name].present[phrase.person]
            return f"où {fr} {phrase.fr} ?", f"where {'do' if phrase.plural else 'does'} {phrase.en} {en} ?"
        if self.chance(0.2) and phrase.kind in ("thing", "vehicle", "cloth", "read"):
            fr, do = ("coûtent", "do") if phrase.plural else ("coûte", "does")
            return f"combien {fr} {phrase.fr} ?", f"how much {do} {phrase.en} cost ?"
        if self.chance(0.2) and phrase.kind in ("thing", "vehicle", "cloth"):
            return f"de quelle couleur {'sont' if phrase.plural else 'est'} {phrase.fr} ?", f"what color {'are' if phrase.plural else 'is'} {phrase.en} ?"
        return f"où {'sont' if phrase.plural else 'est'} {phrase.fr} ?", f"where {'are' if phrase.plural else 'is'} {phrase.en} ?"

    def idiom_question(self) -> tuple[str, str]:
        subject = self.subject(pronoun=True)
        while subject.person == 0:
            subject = self.subject(pronoun=True)
        be = "is" if subject.person == 2 else "are"
        have = VERBS["avoir"].present[subject.person]
        link = "-t" if have == "a" else ""
        if self.chance(0.5):
            return f"quel âge {have} {link}-{subject.fr} ?", f"how old {be} {subject.en} ?"
        kind = self.pick(["kin", "read", "vehicle", "idea", "food"])
        noun = self.pick(NOUNS[kind])
        fr, en = self.possessive(None, noun, False, noun.fr)
        return f"{'quelle' if noun.gender == 'f' else 'quel'} est {fr} {noun.fr} ?", f"what is {en} {noun.en} ?"

    def fragment(self) -> tuple[str, str]:
        draw = self.rng.random()
        if draw < 0.12:
            noun = self.pick([n for k in NOUNS for n in NOUNS[k] if k not in ("mass", "drink") and n.en != "music"])
            fr, en = self.what(noun, self.chance(0.4))
            return (f"{fr} ?", f"{en} ?") if self.chance(0.3) else (fr, en)
        if draw < 0.18:
            return self.time(self.pick(["present", "past", "future"]))
        if draw < 0.24:
            return self.pick([self.place(False), self.inside()]) if self.chance(0.5) else self.inside()
        if draw < 0.28:
            number = self.pick(lex.HOURS)
            return f"il est {number} heures", f"it is {lex.NUMBERS[number]} o'clock"
        if draw < 0.33:
            weather = self.pick(lex.WEATHER)
            fr, en = self.with_tail((weather, lex.WEATHER[weather]), self.time("present")) if self.chance(0.7) else (weather, lex.WEATHER[weather])
            return fr, en
        if draw < 0.5:
            return self.command()
        phrase = self.owned_phrase() if self.chance(0.2) else self.phrase(NOUNS)
        return phrase.fr, phrase.en

    def command(self) -> tuple[str, str]:
        verb = VERBS[self.pick([v for v in lex.TRANSITIVE if VERBS[v].pron])]
        while verb.inf in ("avoir", "connaître"):
            verb = VERBS[self.pick(lex.TRANSITIVE)]
        phrase = self.phrase(verb.objects, None)
        form = verb.present[self.pick([1, 4])]
        if form.endswith("es"):
            form = form[:-1]
        if self.chance(0.35):
            fr, en = self.spoken_object(verb, phrase, "pas")
            return f"ne {form} pas {fr}", f"do not {verb.base} {en}"
        fr, en = self.spoken_object(verb, phrase, "")
        return f"{form} {fr}", f"{verb.base} {en}"

    def joined(self) -> tuple[str, str]:
        """Two short clauses."""
        one, two = (self.pick([self.transitive, self.intransitive, self.being, self.feeling])() for _ in range(2))
        if one[0].endswith("?") or two[0].endswith("?") or len(" ".join(one + two).split()) > 26:
            return one
        fr, en = self.pick([("et", "and"), ("mais", "but"), ("parce que", "because"), ("quand", "when")])
        return f"{one[0]} {fr} {two[0]}", f"{one[1]} {en} {two[1]}"

    def sentence(self) -> tuple[str, str]:
        rules = [
            (self.transitive, 26), (self.intransitive, 9), (self.motion, 8), (self.learning, 6), (self.giving, 7),
            (self.wanting, 10), (self.being, 15), (self.feeling, 4), (self.existing, 4), (self.presenting, 4),
            (self.asking, 11), (self.fragment, 10), (self.joined, 5),
        ]
        rule = self.rng.choices([r for r, _ in rules], [w for _, w in rules])[0]
        fr, en = rule()
        if not fr.endswith("?") and self.chance(0.25):
            fr, en = f"{fr} .", f"{en} ."
        return french([fr]), english([en])


# Always in the training set.
FIXED = [
    ("je suis étudiant", "i am a student"), ("je suis étudiante", "i am a student"), ("quel mois", "what month"),
    ("quel mois ?", "what month ?"), ("quelle heure est -il ?", "what time is it ?"),
    ("comment allez -vous ?", "how are you ?"), ("comment vas -tu ?", "how are you ?"),
    ("comment t' appelles -tu ?", "what is your name ?"), ("comment vous appelez -vous ?", "what is your name ?"),
    ("qui est-ce ?", "who is it ?"), ("qu' est-ce que c' est ?", "what is it ?"),
    ("bonjour", "hello"), ("merci", "thank you"), ("oui", "yes"), ("non", "no"), ("au revoir", "goodbye"),
    ("je t' aime", "i love you"), ("s' il vous plaît", "please"),
    ("bonsoir", "good evening"), ("merci beaucoup", "thank you very much"),
]


def fixed() -> list[tuple[str, str]]:
    pairs = list(FIXED)
    for fr, en in (("je m' appelle", "my"), ("il s' appelle", "his"), ("elle s' appelle", "her")):
        pairs += [(f"{fr} {name}", f"{en} name is {name}") for name in lex.NAMES]
    for noun in NOUNS["time"]:
        forms = ("quel", "quelle")[noun.gender == "f"]
        pairs.append((f"{forms} {noun.fr}", f"what {noun.en}"))
    pairs += [(f"{fr} .", f"{en} .") for fr, en in pairs if not fr.endswith("?")]
    return list(dict(pairs).items())


def pairs(count: int, seed: int) -> dict[str, str]:
    """`count` distinct sources with their translations; raises if a source has two."""
    grammar = Grammar(seed)
    out = dict(fixed())
    while len(out) < count:
        fr, en = grammar.sentence()
        if not 1 <= len(fr.split()) <= 22:
            continue
        if out.setdefault(fr, en) != en:
            raise ValueError(f"two translations of {fr!r}: {out[fr]!r} and {en!r}")
    return out


if __name__ == "__main__":
    for source, target in pairs(*(int(a) for a in (sys.argv[1:] + ["100", "1"][len(sys.argv) - 1 :]))).items():
        print(source, target, sep="\t")
