//! One clause in both languages: tense, negation, adverb, pronouns, mood, and the word order.

use super::lexicon::{Entry, Gender, Verb};
use super::phrases::{Both, Phrase, Speaker, Subject, Tense, both, of};

/// The object pronouns of `je`, `tu`, `nous`, `vous`: person, before a French verb, in English.
const ME: [(usize, Entry); 4] =
    [(0, ("me", "me")), (1, ("te", "you")), (3, ("nous", "us")), (4, ("vous", "you"))];

/// The mood of a clause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mood {
    #[default]
    Plain,
    /// A question with `est-ce que`, or marked only by `?`.
    EstCe,
    /// A question with inversion.
    Inversion,
}

/// The gender and number with which a participle agrees.
pub(super) type Agreement = (Gender, bool);

/// Choices that apply in every tense: the mood, and a negation or an adverb or nothing. An empty string is none.
#[derive(Clone, Copy, Default)]
pub(super) struct Manner {
    pub(super) mood: Mood,
    pub(super) negation: &'static str,
    pub(super) adverb: &'static str,
}

/// The parts of a clause other than subject and verb.
#[derive(Clone, Default)]
pub(super) struct Around<'a> {
    pub(super) tail: Both,
    pub(super) pronoun: Both,
    pub(super) agree: Option<Agreement>,
    pub(super) manner: Manner,
    /// A verb under a modal, and the English words between them.
    pub(super) infinitive: Option<(&'a Verb, &'static str)>,
    /// A question word.
    pub(super) question: Both,
}

/// Auxiliary, the words after it, the form without an auxiliary, and the support `do`.
struct EnglishVerb<'a> {
    auxiliary: &'static str,
    base: String,
    form: &'a str,
    support: &'static str,
}

fn english_verb<'a>(verb: &'a Verb, subject: &Subject, tense: Tense) -> EnglishVerb<'a> {
    let third = subject.person == 2;
    let alone = |auxiliary, base: &str| EnglishVerb {
        auxiliary,
        base: base.to_string(),
        form: "",
        support: "",
    };
    match tense {
        Tense::Near => return alone(be(subject), &format!("going to {}", verb.base)),
        Tense::Future => return alone("will", &verb.base),
        _ => {}
    }
    let past = tense == Tense::Past;
    if verb.infinitive == "être" {
        let was = if [0, 2].contains(&subject.person) { "was" } else { "were" };
        return alone(if past { was } else { be(subject) }, "");
    }
    if !verb.modal.is_empty() {
        return alone(verb.modal, if verb.modal == "would" { "like" } else { "" });
    }
    let (form, support) = match (past, third) {
        (true, _) => (&verb.past, "did"),
        (false, true) => (&verb.third, "does"),
        (false, false) => (&verb.base, "do"),
    };
    EnglishVerb { auxiliary: "", base: verb.base.clone(), form, support }
}

/// `am`, `is` or `are`.
pub(super) fn be(subject: &Subject) -> &'static str {
    match subject.person {
        0 => "am",
        2 => "is",
        _ => "are",
    }
}

/// The English of a negation or an adverb.
fn negated(negation: &str) -> &'static str {
    match negation {
        "pas" => "not",
        "jamais" => "never",
        "plus" => "no longer",
        _ => "",
    }
}

impl Speaker {
    /// The finite form, and the words after the negation.
    pub(super) fn french_verb(
        &self,
        verb: &Verb,
        subject: &Subject,
        tense: Tense,
        agree: Option<Agreement>,
    ) -> (String, String) {
        let person = subject.person;
        match tense {
            Tense::Present => return (verb.present[person].clone(), String::new()),
            Tense::Future => return (verb.future(person), String::new()),
            Tense::Near => {
                let goes = self.words.verb("aller").present[person].clone();
                return (goes, verb.infinitive.to_string());
            }
            Tense::Past => {}
        }
        let mut participle = verb.participle.clone();
        let agree = if verb.auxiliary == "être" {
            Some((subject.gender, subject.plural))
        } else {
            agree.map(|(gender, plural)| {
                // `pris` already ends in s; `prise` takes one.
                (gender, plural && (gender.feminine() || !participle.ends_with('s')))
            })
        };
        if let Some((gender, plural)) = agree {
            participle += of(gender, "", "e");
            participle += if plural { "s" } else { "" };
        }
        (self.words.verb(verb.auxiliary).present[person].clone(), participle)
    }

    /// Draws one clause. The pronoun of a verb under a modal precedes that verb.
    pub(super) fn clause(
        &mut self,
        subject: &Subject,
        verb: &Verb,
        tense: Tense,
        around: Around<'_>,
    ) -> Both {
        let Around { tail, pronoun, agree, manner, infinitive, question } = around;
        let Manner { mood, negation, adverb } = manner;
        let (finite, mut rest) = self.french_verb(verb, subject, tense, agree);
        let mut before = pronoun.french.as_str();
        if let Some((under, _)) = infinitive {
            rest = format!("{before} {}", under.infinitive);
            before = "";
        } else if tense == Tense::Near {
            rest = format!("{before} {rest}");
            before = "";
        }
        let ne = if negation.is_empty() { "" } else { "ne" };
        let mut core = format!("{ne} {before} {finite}");
        let after = if negation.is_empty() { adverb } else { negation };
        let who = &subject.words.french;
        let mut french = if mood == Mood::Inversion {
            let open = subject.person == 2 && finite.ends_with(['a', 'e', 'é']);
            let link = if open { "-t" } else { "" };
            core = if subject.pronoun {
                format!("{core} {link}-{who}")
            } else {
                let again = match subject.person {
                    2 => of(subject.gender, "il", "elle"),
                    _ => of(subject.gender, "ils", "elles"),
                };
                format!("{who} {core} {link}-{again}")
            };
            format!("{} {core} {after} {rest} {}", question.french, tail.french)
        } else {
            let rising = mood == Mood::EstCe && question.english.is_empty() && self.chance(0.25);
            let start = if mood == Mood::EstCe && !rising {
                format!("{} est-ce que", question.french)
            } else {
                String::new()
            };
            format!("{start} {who} {core} {after} {rest} {}", tail.french)
        };

        let EnglishVerb { auxiliary, base, form, support } = english_verb(verb, subject, tense);
        let middle = match negated(negation) {
            "" => self.words.adverbs.iter().find(|a| a.0 == adverb).map_or("", |a| a.1),
            not => not,
        };
        let mut after = format!("{} {}", pronoun.english, tail.english);
        if let Some((under, link)) = infinitive {
            after = format!("{link} {} {after}", under.base);
        }
        let first = if auxiliary.is_empty() { support } else { auxiliary };
        let who = &subject.words.english;
        let mut english = if mood != Mood::Plain {
            format!("{} {first} {who} {middle} {base} {after}", question.english)
        } else if auxiliary == "can" && negation == "pas" {
            format!("{who} cannot {after}")
        } else if !auxiliary.is_empty() || negation == "pas" {
            format!("{who} {first} {middle} {base} {after}")
        } else {
            format!("{who} {middle} {form} {after}")
        };
        if mood != Mood::Plain {
            french += " ?";
            english += " ?";
        }
        both(french, english)
    }

    pub(super) fn manner_of_speaking(&mut self, subject: &Subject, tense: Tense) -> Manner {
        let mut manner = Manner::default();
        let draw = self.draws.uniform();
        if draw < 0.1 {
            manner.mood = Mood::EstCe;
        } else if draw < 0.22 && subject.person != 0 && (!subject.pronoun || tense != Tense::Near) {
            let named = self.words.names.iter().any(|name| name.0 == subject.words.french);
            if !named || self.chance(0.3) {
                manner.mood = Mood::Inversion;
            }
        }
        let draw = self.draws.uniform();
        if draw < 0.26 && manner.mood != Mood::Inversion {
            manner.negation = self.pick(if tense == Tense::Past {
                &["pas", "pas", "jamais"][..]
            } else {
                &["pas", "pas", "pas", "jamais", "plus"]
            });
        } else if draw < 0.36 && tense != Tense::Near {
            manner.adverb = self.pick(&self.words.adverbs).0;
        }
        manner
    }

    pub(super) fn tense(&mut self) -> Tense {
        let tenses = [Tense::Present, Tense::Past, Tense::Future, Tense::Near];
        tenses[self.draws.weighted(&[50, 25, 17, 8])]
    }

    /// Draws an object pronoun, and its agreement. `l'` before a vowel does not show the gender, so only `it` is used
    /// then.
    pub(super) fn object_pronoun(
        &mut self,
        verb: &Verb,
        subject: &Subject,
        elides: bool,
        shown: bool,
    ) -> Option<(Both, Option<Agreement>)> {
        let mut choices: Vec<Entry> = Vec::new();
        if verb.pronoun == "him" {
            choices.extend(others(subject));
        }
        let gender = self.pick(&[Gender::Masculine, Gender::Feminine]);
        let plural = self.chance(0.35);
        let shown = shown && !verb.participle.ends_with('s');
        if plural {
            choices.extend([("les", "them"); 4]);
        } else if verb.pronoun == "it" || shown || !elides {
            let english = if verb.pronoun == "it" { "it" } else { of(gender, "him", "her") };
            choices.extend([(of(gender, "le", "la"), english); 4]);
        }
        if choices.is_empty() {
            return None;
        }
        let chosen = self.pick(&choices);
        let third = ["le", "la", "les"].contains(&chosen.0);
        Some((chosen.into(), third.then_some((gender, plural))))
    }

    /// Draws an indirect object. It never has the person of the subject, because that would be a reflexive.
    pub(super) fn indirect(&mut self, subject: &Subject) -> Both {
        let mut choices = others(subject);
        choices.push(("leur", "them"));
        self.pick(&choices).into()
    }
}

/// `me` to `vous`, without the subject's own person.
fn others(subject: &Subject) -> Vec<Entry> {
    ME.iter()
        .filter(|(person, _)| person % 3 != subject.person % 3)
        .map(|(_, words)| *words)
        .collect()
}

/// The object as the verb requires it: in its generic form, or in its form after a negation.
pub(super) fn spoken_object(verb: &Verb, phrase: &Phrase, negation: &str) -> Both {
    let Both { french, english } = phrase.words.clone();
    if ["like", "hate"].contains(&verb.base.as_str())
        && verb.modal.is_empty()
        && !phrase.generic.is_empty()
    {
        return both(french, phrase.generic.clone());
    }
    if !negation.is_empty() && !phrase.none.is_empty() {
        return both(phrase.none.clone(), english);
    }
    both(french, english)
}
