//! Questions with a question word, commands, and incomplete sentences.

use super::clauses::{Around, Manner, Mood, spoken_object};
use super::lexicon::{Gender, Noun};
use super::phrases::{Both, Look, Phrase, Speaker, Subject, Tense, both, of};

fn plain_the(plain: bool) -> Look {
    Look { definite: true, plain, singular: false }
}

/// Adds the question mark.
fn asked(french: String, english: String) -> Both {
    both(french, english).then(&both("?", "?"))
}

impl Speaker {
    pub(super) fn asking(&mut self) -> Both {
        let draw = self.draws.uniform();
        let mut mood = self.pick(&[Mood::Inversion, Mood::EstCe]);
        let subject = self.pronoun_subject();
        if mood == Mood::Inversion && subject.person == 0 {
            mood = Mood::EstCe;
        }
        let tense = self.pick(&[Tense::Present, Tense::Present, Tense::Present, Tense::Future]);
        let with = |question| Around {
            question,
            manner: Manner { mood, ..Manner::default() },
            ..Around::default()
        };
        if draw < 0.12 {
            let name = self.pick(&[
                "habiter",
                "aller",
                "travailler",
                "dormir",
                "manger",
                "courir",
                "jouer",
                "nager",
                "être",
            ]);
            let around = with(both("où", "where"));
            return self.clause(&subject, self.words.verb(name), tense, around);
        }
        if draw < 0.24 {
            let question = self.pick(&[
                ("quand", "when"),
                ("à quelle heure", "at what time"),
                ("pourquoi", "why"),
                ("comment", "how"),
            ]);
            let name = self.pick(&[
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
            ]);
            let around = with(question.into());
            return self.clause(&subject, self.words.verb(name), tense, around);
        }
        if draw < 0.34 {
            return self.where_is();
        }
        let words = self.words;
        let mut names = words.transitive.clone();
        if draw < 0.46 {
            names.retain(|name| words.verb(name).pronoun == "it");
            let verb = words.verb(self.pick(&names));
            if mood == Mood::EstCe {
                let said = self.clause(&subject, verb, tense, with(both("", "what")));
                return both("que", "").then(&said);
            }
            return self.clause(&subject, verb, tense, with(both("que", "what")));
        }
        if draw < 0.72 {
            names.retain(|name| !words.verb(name).pronoun.is_empty());
            let verb = words.verb(self.pick(&names));
            let mut kinds = verb.objects.clone();
            kinds.retain(|kind| !["mass", "drink", "sound"].contains(kind));
            if kinds.is_empty() {
                kinds.push("food");
            }
            let nouns = words.nouns_of(&kinds);
            let noun = self.pick(&nouns);
            let plural = self.chance(0.5);
            let question = if self.chance(0.5) {
                let french = format!("combien de {}", noun.french_plural);
                both(french, format!("how many {}", noun.english_plural))
            } else {
                what(noun, plural)
            };
            return self.clause(&subject, verb, tense, with(question));
        }
        if draw < 0.86 {
            return self.who_does(&names);
        }
        self.idiom_question()
    }

    /// `qui coupe le beurre ?`
    fn who_does(&mut self, names: &[&'static str]) -> Both {
        let verb = self.words.verb(self.pick(names));
        let who = Subject {
            words: both("qui", "who"),
            person: 2,
            gender: Gender::Masculine,
            plural: false,
            kind: "",
            pronoun: false,
        };
        let tail = self.phrase(&verb.objects, None, Look::default()).words;
        let tense = self.pick(&[Tense::Present, Tense::Past, Tense::Future]);
        let said = self.clause(&who, verb, tense, Around { tail, ..Around::default() });
        asked(said.french, said.english)
    }

    fn where_is(&mut self) -> Both {
        let phrase: Phrase = if self.chance(0.5) {
            let kinds = ["place", "thing", "animal", "kin", "vehicle", "read", "cloth"];
            let plain = self.chance(0.6);
            self.phrase(&kinds, None, plain_the(plain))
        } else if self.chance(0.5) {
            self.owned_phrase()
        } else {
            self.person_phrase(None)
        };
        let plural = phrase.plural;
        let Both { french, english } = &phrase.words;
        let (do_, person) = if plural { ("do", 5) } else { ("does", 2) };
        if self.chance(0.3) && phrase.human() {
            let (name, base) =
                self.pick(&[("habiter", "live"), ("travailler", "work"), ("aller", "go")]);
            let verb = &self.words.verb(name).present[person];
            return asked(format!("où {verb} {french}"), format!("where {do_} {english} {base}"));
        }
        if self.chance(0.2) && ["thing", "vehicle", "cloth", "read"].contains(&phrase.kind) {
            let costs = if plural { "coûtent" } else { "coûte" };
            return asked(
                format!("combien {costs} {french}"),
                format!("how much {do_} {english} cost"),
            );
        }
        let (is, be) = if plural { ("sont", "are") } else { ("est", "is") };
        if self.chance(0.2) && ["thing", "vehicle", "cloth"].contains(&phrase.kind) {
            return asked(
                format!("de quelle couleur {is} {french}"),
                format!("what color {be} {english}"),
            );
        }
        asked(format!("où {is} {french}"), format!("where {be} {english}"))
    }

    fn idiom_question(&mut self) -> Both {
        let mut subject = self.pronoun_subject();
        while subject.person == 0 {
            subject = self.pronoun_subject();
        }
        let be = if subject.person == 2 { "is" } else { "are" };
        let have = &self.words.verb("avoir").present[subject.person];
        let link = if have == "a" { "-t" } else { "" };
        if self.chance(0.5) {
            let Both { french, english } = &subject.words;
            return asked(
                format!("quel âge {have} {link}-{french}"),
                format!("how old {be} {english}"),
            );
        }
        let kind = self.pick(&["kin", "read", "vehicle", "idea", "food"]);
        let nouns = self.words.nouns_of(&[kind]);
        let noun = self.pick(&nouns);
        let (owner, english) = self.possessive(None, noun, false, noun.french);
        asked(
            format!("{} est {owner} {}", of(noun.gender, "quel", "quelle"), noun.french),
            format!("what is {english} {}", noun.english),
        )
    }

    pub(super) fn fragment(&mut self) -> Both {
        let draw = self.draws.uniform();
        let words = self.words;
        let kinds: Vec<_> = words.nouns.iter().map(|(kind, _)| *kind).collect();
        if draw < 0.12 {
            let mut nouns = words.nouns_of(&kinds);
            nouns.retain(|n| !["mass", "drink"].contains(&n.kind) && n.english != "music");
            let noun = self.pick(&nouns);
            let plural = self.chance(0.4);
            let said = what(noun, plural);
            return if self.chance(0.3) { asked(said.french, said.english) } else { said };
        }
        if draw < 0.18 {
            let tense = self.pick(&[Tense::Present, Tense::Past, Tense::Future]);
            return self.time(tense);
        }
        if draw < 0.24 {
            if self.chance(0.5) {
                let ways = [self.place(false), self.inside()];
                return ways[self.draws.below(2)].clone();
            }
            return self.inside();
        }
        if draw < 0.28 {
            let (number, count) = self.pick(&words.hours);
            return both(format!("il est {number} heures"), format!("it is {count} o'clock"));
        }
        if draw < 0.33 {
            let weather = Both::from(self.pick(&words.weather));
            return if self.chance(0.7) {
                weather.then(&self.time(Tense::Present))
            } else {
                weather
            };
        }
        if draw < 0.5 {
            return self.command();
        }
        if self.chance(0.2) {
            return self.owned_phrase().words;
        }
        self.phrase(&kinds, None, Look::default()).words
    }

    fn command(&mut self) -> Both {
        let words = self.words;
        let mut names = words.transitive.clone();
        names.retain(|name| !words.verb(name).pronoun.is_empty());
        let verb = self.verb_of_command(&names);
        let phrase = self.phrase(&verb.objects, None, Look::default());
        let form = &verb.present[self.pick(&[1, 4])];
        let form = if form.ends_with("es") { &form[..form.len() - 1] } else { form };
        if self.chance(0.35) {
            let object = spoken_object(verb, &phrase, "pas");
            return both(format!("ne {form} pas"), format!("do not {}", verb.base)).then(&object);
        }
        both(form, verb.base.as_str()).then(&spoken_object(verb, &phrase, ""))
    }
}

/// `quelle ville`: `what city`.
fn what(noun: &Noun, plural: bool) -> Both {
    if plural {
        let which = of(noun.gender, "quels", "quelles");
        both(format!("{which} {}", noun.french_plural), format!("what {}", noun.english_plural))
    } else {
        let which = of(noun.gender, "quel", "quelle");
        both(format!("{which} {}", noun.french), format!("what {}", noun.english))
    }
}
