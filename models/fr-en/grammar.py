"""Aligned French-English sentences from a small grammar: seeded, and one translation per source.

The difference in word order is the point: adjectives, object pronouns, adverbs, negation, inversion
and the possessor all stand elsewhere in English, so that a model must attend and not copy.

    python grammar.py [count] [seed]    prints pairs, tab-separated
"""

import sys

import lexicon as lex
from clauses import Clauses
from lexicon import NOUNS, VERBS, Noun, Verb
from phrases import Phrase, Subject, english, french


class Grammar(Clauses):
    """One method per kind of sentence; `sentence` draws among them."""

    def transitive(self) -> tuple[str, str]:
        verb = VERBS[
            self.pick(
                lex.TRANSITIVE
                + ["aimer", "aimer", "détester", "vouloir", "vouloir", "voudrais", "voudrais", "aimer (love)"]
            )
        ]
        animal = verb.inf in ("manger", "boire", "regarder", "voir", "chercher", "entendre")
        subject = self.subject(animals=animal)
        tense = (
            self.tense()
            if verb.inf not in ("aimer", "détester", "vouloir", "voudrais", "connaître", "avoir")
            else "present"
        )
        if verb.inf == "avoir":
            tense = self.pick(["present", "present", "present", "future"])
        say = self.manner_of_speaking(subject, tense)
        if verb.pron and self.chance(0.45 if tense == "past" else 0.25):
            elides = (
                verb.inf
                if tense == "near"
                else verb.future(subject.person) if tense == "future" else verb.present[subject.person]
            )[0] in lex.VOWELS
            found = self.pronoun(verb, subject, elides, tense)
            if found:
                pron, agree = found
                tail = self.time(tense) if self.chance(0.3) else ("", "")
                return self.clause(subject, verb, tense, pron=pron, agree=agree, tail=tail, **say)
        phrase = self.phrase(verb.objects, subject)
        if "kin" in verb.objects and verb.inf != "avoir" and self.chance(0.2):
            name = self.pick(name for name in lex.NAMES if name not in subject.fr)
            phrase = Phrase(name, name, lex.NAMES[name], kind="name")
        if self.chance(0.1) and phrase.kind in (
            "thing",
            "cloth",
            "vehicle",
            "animal",
            "read",
            "kin",
            "furniture",
        ):
            owned = self.owned_phrase()
            if owned.kind in verb.objects:
                phrase = owned
        tail = self.spoken_object(verb, phrase, say.get("negation", ""))
        if (
            say["mood"] == "plain"
            and self.chance(0.06)
            and say.get("negation") in ("pas", None)
            and verb.pron == "it"
        ):
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
        subject = self.subject(
            animals=verb.inf in ("dormir", "courir", "marcher", "nager", "tomber", "sortir")
        )
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
            verb, tense = VERBS[self.pick(["aller", "aller", "venir"])], self.pick(
                ["present", "past", "future"]
            )
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
                tail = self.pick(
                    [(f"bien {tail[0]}", f"{tail[1]} well"), (f"mal {tail[0]}", f"{tail[1]} badly")]
                )
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
        name, link = self.pick(
            [
                ("vouloir", "to"),
                ("pouvoir", ""),
                ("devoir", ""),
                ("aimer", "to"),
                ("savoir", "to"),
                ("voudrais", "to"),
            ]
        )
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
            extra["tail"] = self.with_tail(
                extra.get("tail", ("", "")), self.time("future" if name != "savoir" else "present")
            )
        return self.clause(subject, modal, "present", infinitive=(verb, link), **extra, **say)

    def being(self) -> tuple[str, str]:
        tense = self.pick(["present", "present", "present", "future"])
        verb = VERBS["être"]
        draw = self.rng.random()
        if draw < 0.22:
            subject = self.subject(pronoun=self.chance(0.8))
            jobs = [
                n
                for n in NOUNS["job"]
                if n.gender == subject.gender or n.fr in ("médecin", "journaliste", "ingénieur", "professeur")
            ]
            noun = self.pick(jobs)
            tail = (noun.frs, noun.ens) if subject.plural else (noun.fr, f"a {noun.en}")
        elif draw < 0.4:
            if self.chance(0.5):
                subject = self.subject(animals=True)
            else:
                subject = self.as_subject(
                    self.phrase(("thing", "food", "cloth", "read", "animal"), definite=True, plain=True)
                )
            tail = self.inside() if not subject.human else self.place(False)
        else:
            if self.chance(0.6):
                subject = self.subject(animals=True)
            else:
                kinds = (
                    "thing",
                    "food",
                    "mass",
                    "drink",
                    "cloth",
                    "read",
                    "vehicle",
                    "home",
                    "place",
                    "idea",
                    "furniture",
                )
                phrase = self.phrase(kinds, definite=True, plain=self.chance(0.7))
                if self.chance(0.2):
                    phrase = self.owned_phrase()
                subject = self.as_subject(phrase)
            kind = "person" if subject.kind == "name" else subject.kind
            adjective = self.pick(
                [
                    a
                    for a in lex.BEFORE + lex.AFTER + lex.PREDICATES
                    if kind in a.kinds and a.en not in ("new", "good", "bad")
                ]
            )
            word = adjective.agree(subject.gender, subject.plural)
            degree = self.rng.random()
            tail = (word, adjective.en)
            if degree < 0.15:
                tail = (f"très {word}", f"very {adjective.en}")
            elif degree < 0.22:
                tail = (f"trop {word}", f"too {adjective.en}")
            elif degree < 0.34 and adjective not in lex.PREDICATES:
                other = (
                    self.person_phrase(subject)
                    if subject.human
                    else self.phrase((subject.kind,), definite=True, plain=True)
                )
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
        phrase = self.phrase(
            ("animal", "thing", "food", "mass", "drink", "job", "furniture", "nature", "read"),
            plain=self.chance(0.5),
        )
        while not phrase.none and phrase.en.split()[0] not in (
            *lex.NUMBERS.values(),
            "some",
            "several",
            "many",
        ):
            phrase = self.phrase(
                ("animal", "thing", "food", "job", "furniture", "read"), plain=self.chance(0.5)
            )
        be = "are" if phrase.plural else "is"
        tail = self.inside() if self.chance(0.75) else ("", "")
        if phrase.none and self.chance(0.3):
            en = phrase.en[2:] if phrase.en.startswith("a ") else phrase.en
            return f"il n' y a pas {phrase.none} {tail[0]}", f"there {be} no {en} {tail[1]}"
        if self.chance(0.2):
            return f"est-ce que il y a {phrase.fr} {tail[0]} ?", f"{be} there {phrase.en} {tail[1]} ?"
        return f"il y a {phrase.fr} {tail[0]}", f"there {be} {phrase.en} {tail[1]}"

    def presenting(self) -> tuple[str, str]:
        kinds = (
            "animal",
            "thing",
            "cloth",
            "read",
            "vehicle",
            "kin",
            "job",
            "home",
            "idea",
            "furniture",
            "nature",
        )
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
            verb = VERBS[
                self.pick(
                    ["habiter", "aller", "travailler", "dormir", "manger", "courir", "jouer", "nager", "être"]
                )
            ]
            return self.clause(subject, verb, tense, mood=mood, wh=wh)
        if draw < 0.24:
            wh = self.pick(
                [
                    ("quand", "when"),
                    ("à quelle heure", "at what time"),
                    ("pourquoi", "why"),
                    ("comment", "how"),
                ]
            )
            verb = VERBS[
                self.pick(
                    [
                        "partir",
                        "arriver",
                        "manger",
                        "travailler",
                        "dormir",
                        "sortir",
                        "venir",
                        "rire",
                        "pleurer",
                        "chanter",
                        "voyager",
                    ]
                )
            ]
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
            fr, en = self.clause(
                who, verb, self.pick(["present", "past", "future"]), tail=(phrase.fr, phrase.en)
            )
            return f"{fr} ?", f"{en} ?"
        return self.idiom_question()

    def what(self, noun: Noun, plural: bool) -> tuple[str, str]:
        forms = ("quels", "quelles") if plural else ("quel", "quelle")
        return (
            f"{forms[noun.gender == 'f']} {noun.frs if plural else noun.fr}",
            f"what {noun.ens if plural else noun.en}",
        )

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
            return (
                f"de quelle couleur {'sont' if phrase.plural else 'est'} {phrase.fr} ?",
                f"what color {'are' if phrase.plural else 'is'} {phrase.en} ?",
            )
        return (
            f"où {'sont' if phrase.plural else 'est'} {phrase.fr} ?",
            f"where {'are' if phrase.plural else 'is'} {phrase.en} ?",
        )

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
        return (
            f"{'quelle' if noun.gender == 'f' else 'quel'} est {fr} {noun.fr} ?",
            f"what is {en} {noun.en} ?",
        )

    def fragment(self) -> tuple[str, str]:
        draw = self.rng.random()
        if draw < 0.12:
            noun = self.pick(
                [n for k in NOUNS for n in NOUNS[k] if k not in ("mass", "drink") and n.en != "music"]
            )
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
            fr, en = (
                self.with_tail((weather, lex.WEATHER[weather]), self.time("present"))
                if self.chance(0.7)
                else (weather, lex.WEATHER[weather])
            )
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
        one, two = (
            self.pick([self.transitive, self.intransitive, self.being, self.feeling])() for _ in range(2)
        )
        if one[0].endswith("?") or two[0].endswith("?") or len(" ".join(one + two).split()) > 26:
            return one
        fr, en = self.pick([("et", "and"), ("mais", "but"), ("parce que", "because"), ("quand", "when")])
        return f"{one[0]} {fr} {two[0]}", f"{one[1]} {en} {two[1]}"

    def sentence(self) -> tuple[str, str]:
        rules = [
            (self.transitive, 26),
            (self.intransitive, 9),
            (self.motion, 8),
            (self.learning, 6),
            (self.giving, 7),
            (self.wanting, 10),
            (self.being, 15),
            (self.feeling, 4),
            (self.existing, 4),
            (self.presenting, 4),
            (self.asking, 11),
            (self.fragment, 10),
            (self.joined, 5),
        ]
        rule = self.rng.choices([r for r, _ in rules], [w for _, w in rules])[0]
        fr, en = rule()
        if not fr.endswith("?") and self.chance(0.25):
            fr, en = f"{fr} .", f"{en} ."
        return french([fr]), english([en])


# Always in the training set.
FIXED = list(lex.table("fixed").items())


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
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    always = len(fixed())
    for source, target in list(pairs(always + count, seed).items())[always:]:
        print(source, target, sep="\t")
