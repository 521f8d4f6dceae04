//! Statements, one method per kind of sentence. Questions, commands and incomplete sentences are in `questions.rs`.

use super::clauses::{Around, Manner, Mood, be, spoken_object};
use super::lexicon::{MOVING, Verb, starts_with_vowel};
use super::phrases::{Both, Look, Speaker, Subject, Tense, both, of};

/// One kind of sentence.
type Rule = fn(&mut Speaker) -> Both;

/// Every kind with its weight.
const RULES: [(Rule, u32); 13] = [
    (Speaker::transitive, 26),
    (Speaker::intransitive, 9),
    (Speaker::motion, 8),
    (Speaker::learning, 6),
    (Speaker::giving, 7),
    (Speaker::wanting, 10),
    (Speaker::being, 15),
    (Speaker::feeling, 4),
    (Speaker::existing, 4),
    (Speaker::presenting, 4),
    (Speaker::asking, 11),
    (Speaker::fragment, 10),
    (Speaker::joined, 5),
];

fn plain_the(plain: bool) -> Look {
    Look { definite: true, plain, singular: false }
}

impl Speaker {
    /// A sentence of any kind, before spelling.
    pub(super) fn sentence(&mut self) -> Both {
        let rule = RULES[self.draws.weighted(&RULES.map(|rule| rule.1))].0;
        let said = rule(self);
        if !said.french.ends_with('?') && self.chance(0.25) {
            return said.then(&both(".", "."));
        }
        said
    }

    fn transitive(&mut self) -> Both {
        let mut names = self.words.transitive.clone();
        names.extend(["aimer", "aimer", "détester", "vouloir", "vouloir", "voudrais", "voudrais"]);
        names.push("aimer (love)");
        let name = self.pick(&names);
        let verb = self.words.verb(name);
        let animals = ["manger", "boire", "regarder", "voir", "chercher", "entendre"];
        let subject = self.subject(animals.contains(&verb.infinitive));
        let timeless = ["aimer", "détester", "vouloir", "voudrais", "connaître", "avoir"];
        let mut tense =
            if timeless.contains(&verb.infinitive) { Tense::Present } else { self.tense() };
        if verb.infinitive == "avoir" {
            tense = self.present_or_future();
        }
        let mut manner = self.manner_of_speaking(&subject, tense);
        let often = if tense == Tense::Past { 0.45 } else { 0.25 };
        if !verb.pronoun.is_empty() && self.chance(often) {
            let elides = match tense {
                Tense::Near => starts_with_vowel(verb.infinitive),
                Tense::Future => starts_with_vowel(&verb.future(subject.person)),
                _ => starts_with_vowel(&verb.present[subject.person]),
            };
            let found = self.object_pronoun(verb, &subject, elides, tense == Tense::Past);
            if let Some((pronoun, agree)) = found {
                let tail = if self.chance(0.3) { self.time(tense) } else { Both::default() };
                let around = Around { tail, pronoun, agree, manner, ..Around::default() };
                return self.clause(&subject, verb, tense, around);
            }
        }
        let mut phrase = self.phrase(&verb.objects, Some(&subject), Look::default());
        if verb.objects.contains(&"kin") && verb.infinitive != "avoir" && self.chance(0.2) {
            let mut names = self.words.names.clone();
            names.retain(|name| !subject.words.french.contains(name.0));
            phrase = Self::named(self.pick(&names));
        }
        let ownable = ["thing", "cloth", "vehicle", "animal", "read", "kin", "furniture"];
        if self.chance(0.1) && ownable.contains(&phrase.kind) {
            let owned = self.owned_phrase();
            if verb.objects.contains(&owned.kind) {
                phrase = owned;
            }
        }
        let mut tail = spoken_object(verb, &phrase, manner.negation);
        if manner.mood == Mood::Plain
            && self.chance(0.06)
            && ["pas", ""].contains(&manner.negation)
            && verb.pronoun == "it"
        {
            manner = Manner { mood: manner.mood, ..Manner::default() };
            if [Tense::Present, Tense::Future].contains(&tense) {
                return self.nothing(&subject, verb, tense);
            }
        }
        let draw = self.draws.uniform();
        if draw < 0.25 {
            tail = tail.then(&self.time(tense));
        } else if draw < 0.4
            && !["avoir", "aimer", "détester", "connaître"].contains(&verb.infinitive)
        {
            tail = tail.then(&self.place(false));
        }
        self.clause(&subject, verb, tense, Around { tail, manner, ..Around::default() })
    }

    fn present_or_future(&mut self) -> Tense {
        self.pick(&[Tense::Present, Tense::Present, Tense::Present, Tense::Future])
    }

    /// `je ne mange rien`: `i eat nothing`.
    fn nothing(&mut self, subject: &Subject, verb: &Verb, tense: Tense) -> Both {
        let said = self.clause(subject, verb, tense, Around::default());
        let (finite, _) = self.french_verb(verb, subject, tense, None);
        let french = format!("{} ne {finite} rien", subject.words.french);
        both(french, format!("{} nothing", said.english))
    }

    fn intransitive(&mut self) -> Both {
        let names: Vec<_> = self.words.intransitive.iter().copied().chain(MOVING).collect();
        let name = self.pick(&names);
        let verb = self.words.verb(name);
        let animals = ["dormir", "courir", "marcher", "nager", "tomber", "sortir"];
        let mut subject = self.subject(animals.contains(&name));
        if ["arriver", "partir"].contains(&name) && self.chance(0.3) {
            subject = self.phrase(&["vehicle"], None, plain_the(true)).into();
        }
        let tense = self.tense();
        let mut tail = Both::default();
        if !MOVING.contains(&name) && self.chance(0.3) && tense == Tense::Present {
            tail = self.pick(&self.words.manners).into();
        } else if name == "rester"
            || (self.chance(0.4) && !["partir", "arriver", "sortir"].contains(&name))
        {
            tail = self.place(false);
        }
        if self.chance(0.3) {
            tail = tail.then(&self.time(tense));
        }
        self.said(&subject, verb, tense, tail)
    }

    /// A clause; its manner is drawn last.
    fn said(&mut self, subject: &Subject, verb: &Verb, tense: Tense, tail: Both) -> Both {
        let manner = self.manner_of_speaking(subject, tense);
        self.clause(subject, verb, tense, Around { tail, manner, ..Around::default() })
    }

    fn motion(&mut self) -> Both {
        let subject = self.subject(false);
        let (name, tense, mut tail);
        if self.chance(0.35) {
            name = "habiter";
            tense = self.pick(&[Tense::Present, Tense::Present, Tense::Past, Tense::Future]);
            tail = self.place(false);
        } else {
            name = self.pick(&["aller", "aller", "venir"]);
            tense = self.pick(&[Tense::Present, Tense::Past, Tense::Future]);
            tail = self.place(true);
        }
        if self.chance(0.35) {
            tail = tail.then(&self.time(tense));
        }
        self.said(&subject, self.words.verb(name), tense, tail)
    }

    /// Languages, sports and instruments.
    fn learning(&mut self) -> Both {
        let subject = self.subject(false);
        let tense = self.tense();
        let draw = self.draws.uniform();
        let mut manner = self.manner_of_speaking(&subject, tense);
        let (name, mut tail);
        if draw < 0.6 {
            let (language, english) = self.pick(&self.words.languages);
            name = self.pick(&["parler", "parler", "étudier", "apprendre"]);
            let speaks = name == "parler";
            let article = if speaks { "" } else { "le " };
            tail = both(format!("{article}{language}"), english);
            if speaks && self.chance(0.3) && manner.adverb.is_empty() && tense == Tense::Present {
                manner.negation = "";
                let (well, english) = self.pick(&[("bien", "well"), ("mal", "badly")]);
                tail =
                    both(format!("{well} {}", tail.french), format!("{} {english}", tail.english));
            }
        } else if draw < 0.8 {
            let (sport, english) = self.pick(&self.words.sports);
            name = "jouer";
            tail = both(format!("à le {sport}"), english);
        } else {
            let (instrument, gender, english) = self.pick(&self.words.instruments);
            name = "jouer";
            let article = of(gender, "le", "la");
            tail = both(format!("de {article} {instrument}"), format!("the {english}"));
        }
        if self.chance(0.25) {
            tail = tail.then(&self.time(tense));
        }
        let around = Around { tail, manner, ..Around::default() };
        self.clause(&subject, self.words.verb(name), tense, around)
    }

    fn giving(&mut self) -> Both {
        let subject = self.subject(false);
        let tense = self.tense();
        let manner = self.manner_of_speaking(&subject, tense);
        let around = Around { manner, ..Around::default() };
        if self.chance(0.3) {
            let verb = self.words.verb("parler");
            if self.chance(0.5) {
                let Both { french, english } = self.indirect(&subject);
                let pronoun = both(french, format!("to {english}"));
                return self.clause(&subject, verb, tense, Around { pronoun, ..around });
            }
            let who = self.person_phrase(Some(&subject)).words;
            let tail = both(format!("à {}", who.french), format!("to {}", who.english));
            return self.clause(&subject, verb, tense, Around { tail, ..around });
        }
        let name = self.pick(&["donner", "montrer"]);
        let verb = self.words.verb(name);
        let look = Look { plain: true, ..Look::default() };
        let phrase = self.phrase(&verb.objects, Some(&subject), look);
        let tail = spoken_object(verb, &phrase, manner.negation);
        if self.chance(0.5) {
            let pronoun = self.indirect(&subject);
            return self.clause(&subject, verb, tense, Around { pronoun, tail, ..around });
        }
        let who = self.person_phrase(Some(&subject)).words;
        let to = both(format!("à {}", who.french), format!("to {}", who.english));
        self.clause(&subject, verb, tense, Around { tail: tail.then(&to), ..around })
    }

    /// A modal and an infinitive; the pronoun precedes the infinitive.
    fn wanting(&mut self) -> Both {
        let modals = [
            ("vouloir", "to"),
            ("pouvoir", ""),
            ("devoir", ""),
            ("aimer", "to"),
            ("savoir", "to"),
            ("voudrais", "to"),
        ];
        let (name, link) = self.pick(&modals);
        let modal = self.words.verb(name);
        let subject = self.subject(false);
        let manner = self.manner_of_speaking(&subject, Tense::Present);
        let mut names = self.words.transitive.clone();
        names.extend(&self.words.intransitive);
        names.extend(["aller", "partir", "sortir"]);
        let verb = self.verb_of_command(&names);
        let infinitive = Some((verb, link));
        let mut around = Around { manner, infinitive, ..Around::default() };
        let pronoun = !verb.pronoun.is_empty() && self.chance(0.35);
        if pronoun {
            let elides = starts_with_vowel(verb.infinitive);
            if let Some((found, _)) = self.object_pronoun(verb, &subject, elides, false) {
                around.pronoun = found;
            }
        } else if !verb.objects.is_empty() {
            let phrase = self.phrase(&verb.objects, Some(&subject), Look::default());
            around.tail = spoken_object(verb, &phrase, manner.negation);
        } else if verb.infinitive == "aller" {
            around.tail = self.place(true);
        }
        if self.chance(0.2) {
            let tense = if name == "savoir" { Tense::Present } else { Tense::Future };
            around.tail = around.tail.then(&self.time(tense));
        }
        self.clause(&subject, modal, Tense::Present, around)
    }

    /// One of these verbs; `avoir` and `connaître` are replaced by another verb with an object.
    pub(super) fn verb_of_command(&mut self, names: &[&'static str]) -> &'static Verb {
        let mut name = self.pick(names);
        while ["avoir", "connaître"].contains(&name) {
            name = self.pick(&self.words.transitive);
        }
        self.words.verb(name)
    }

    fn being(&mut self) -> Both {
        let tense = self.present_or_future();
        let verb = self.words.verb("être");
        let draw = self.draws.uniform();
        let (subject, mut tail);
        if draw < 0.22 {
            subject = if self.chance(0.8) { self.pronoun_subject() } else { self.subject(false) };
            let both_genders = ["médecin", "journaliste", "ingénieur", "professeur"];
            let mut jobs = self.words.nouns_of(&["job"]);
            jobs.retain(|n| n.gender == subject.gender || both_genders.contains(&n.french));
            let noun = self.pick(&jobs);
            tail = if subject.plural {
                both(noun.french_plural.as_str(), noun.english_plural.as_str())
            } else {
                both(noun.french, format!("a {}", noun.english))
            };
        } else if draw < 0.4 {
            subject = if self.chance(0.5) {
                self.subject(true)
            } else {
                let kinds = ["thing", "food", "cloth", "read", "animal"];
                self.phrase(&kinds, None, plain_the(true)).into()
            };
            tail = if subject.human() { self.place(false) } else { self.inside() };
        } else {
            subject = self.described();
            let kind = if subject.kind == "name" { "person" } else { subject.kind };
            let words = self.words;
            let beside = words.before.iter().chain(&words.after).map(|a| (a, true));
            let all = beside.chain(words.predicates.iter().map(|a| (a, false)));
            let vague = ["new", "good", "bad"];
            let fit: Vec<_> =
                all.filter(|(a, _)| a.goes_with(kind) && !vague.contains(&a.english)).collect();
            let (adjective, compared) = self.pick(&fit);
            let word = adjective.agree(subject.gender, subject.plural);
            let degree = self.draws.uniform();
            tail = both(word, adjective.english);
            if degree < 0.15 {
                tail = both("très", "very").then(&tail);
            } else if degree < 0.22 {
                tail = both("trop", "too").then(&tail);
            } else if degree < 0.34 && compared {
                let other = if subject.human() {
                    self.person_phrase(Some(&subject))
                } else {
                    self.phrase(&[subject.kind], None, plain_the(true))
                };
                tail = both(format!("plus {word} que"), format!("{} than", adjective.comparative))
                    .then(&other.words);
                return self.clause(&subject, verb, tense, Around { tail, ..Around::default() });
            }
        }
        if self.chance(0.12) {
            tail = tail.then(&self.time(tense));
        }
        self.said(&subject, verb, tense, tail)
    }

    /// The subject of a sentence with an adjective.
    fn described(&mut self) -> Subject {
        if self.chance(0.6) {
            return self.subject(true);
        }
        let kinds = [
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
        ];
        let plain = self.chance(0.7);
        let phrase = self.phrase(&kinds, None, plain_the(plain));
        if self.chance(0.2) { self.owned_phrase().into() } else { phrase.into() }
    }

    /// `avoir` for `to be`: hungry, cold, twenty years old.
    fn feeling(&mut self) -> Both {
        let subject = self.subject(false);
        let (have, is) = (self.words.verb("avoir"), self.words.verb("être"));
        if self.chance(0.3) {
            let (number, count) = self.pick(&self.words.numbers);
            return both(
                format!("{} {} {number} ans", subject.words.french, have.present[subject.person]),
                format!("{} {} {count} years old", subject.words.english, be(&subject)),
            );
        }
        let (state, english) = self.pick(&self.words.states);
        let manner = self.manner_of_speaking(&subject, Tense::Present);
        let tail =
            |french, english| Around { tail: both(french, english), manner, ..Around::default() };
        let french = self.clause(&subject, have, Tense::Present, tail(state, "")).french;
        let english = self.clause(&subject, is, Tense::Present, tail("", english)).english;
        both(french, english)
    }

    fn existing(&mut self) -> Both {
        let kinds =
            ["animal", "thing", "food", "mass", "drink", "job", "furniture", "nature", "read"];
        let plain = self.chance(0.5);
        let mut phrase = self.phrase(&kinds, None, Look { plain, ..Look::default() });
        while phrase.none.is_empty() && !self.counted(&phrase.words.english) {
            let kinds = ["animal", "thing", "food", "job", "furniture", "read"];
            let plain = self.chance(0.5);
            phrase = self.phrase(&kinds, None, Look { plain, ..Look::default() });
        }
        let be = if phrase.plural { "are" } else { "is" };
        let tail = if self.chance(0.75) { self.inside() } else { Both::default() };
        let Both { french, english } = &phrase.words;
        if !phrase.none.is_empty() && self.chance(0.3) {
            let english = english.strip_prefix("a ").unwrap_or(english);
            return both(
                format!("il n' y a pas {}", phrase.none),
                format!("there {be} no {english}"),
            )
            .then(&tail);
        }
        if self.chance(0.2) {
            return both(format!("est-ce que il y a {french}"), format!("{be} there {english}"))
                .then(&tail)
                .then(&both("?", "?"));
        }
        both(format!("il y a {french}"), format!("there {be} {english}")).then(&tail)
    }

    /// Whether the text begins with a number.
    fn counted(&self, english: &str) -> bool {
        let first = english.split_whitespace().next().unwrap_or("");
        ["some", "several", "many"].contains(&first)
            || self.words.numbers.iter().any(|number| number.1 == first)
    }

    fn presenting(&mut self) -> Both {
        let kinds = [
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
        ];
        let phrase = if self.chance(0.7) {
            self.phrase(&kinds, None, Look::default())
        } else {
            self.owned_phrase()
        };
        if !phrase.plural && self.chance(0.25) {
            return both("ce n' est pas", "it is not").then(&phrase.words);
        }
        if !phrase.plural && self.chance(0.15) {
            return both("est-ce", "is it").then(&phrase.words).then(&both("?", "?"));
        }
        let this = if phrase.plural { ("ce sont", "they are") } else { ("c' est", "it is") };
        Both::from(this).then(&phrase.words)
    }

    /// Two short clauses.
    fn joined(&mut self) -> Both {
        let rules: [Rule; 4] = [Self::transitive, Self::intransitive, Self::being, Self::feeling];
        let one = self.pick(&rules)(self);
        let two = self.pick(&rules)(self);
        let count = |text: &str| text.split_whitespace().count();
        let words: usize =
            [&one, &two].iter().map(|said| count(&said.french) + count(&said.english)).sum();
        if one.french.ends_with('?') || two.french.ends_with('?') || words > 26 {
            return one;
        }
        let links = [("et", "and"), ("mais", "but"), ("parce que", "because"), ("quand", "when")];
        one.then(&self.pick(&links).into()).then(&two)
    }
}
