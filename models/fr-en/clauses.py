"""One clause in both languages: tense, negation, adverb, pronouns, mood, and where each one stands."""

import lexicon as lex
from lexicon import VERBS, Verb
from phrases import Phrase, Phrases, Subject

# The object pronoun of each person: before a French verb, and in English.
ME = {0: ("me", "me"), 1: ("te", "you"), 3: ("nous", "us"), 4: ("vous", "you")}
NEGATIONS = {"pas": "not", "jamais": "never", "plus": "no longer"}


class Clauses(Phrases):
    """What every kind of sentence is made of."""

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
        self,
        subject: Subject,
        verb: Verb,
        tense: str,
        *,
        tail=("", ""),
        pron=("", ""),
        agree=None,
        mood="plain",
        negation="",
        adverb="",
        infinitive: tuple[Verb, str] | None = None,
        wh=("", ""),
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
            out["negation"] = self.pick(
                ["pas", "pas", "pas", "jamais", "plus"] if tense != "past" else ["pas", "pas", "jamais"]
            )
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
