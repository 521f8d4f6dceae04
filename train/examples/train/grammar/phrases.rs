//! Noun phrases, subjects, places and times in both languages.

use super::draws::Draws;
use super::lexicon::{Adjective, Entry, Gender, Lexicon, Noun, PERSONS, WORDS, starts_with_vowel};

const ENGLISH_SUBJECTS: [&str; 6] = ["i", "you", "he", "we", "you", "they"];

/// A text in French and in English. Spaces may be irregular: [`super::spelling`] splits the words again.
#[derive(Clone, Debug, Default)]
pub(super) struct Both {
    pub(super) french: String,
    pub(super) english: String,
}

/// Creates a text in both languages.
pub(super) fn both(french: impl Into<String>, english: impl Into<String>) -> Both {
    Both { french: french.into(), english: english.into() }
}

impl From<Entry> for Both {
    fn from((french, english): Entry) -> Self {
        both(french, english)
    }
}

impl Both {
    /// Concatenates two texts.
    pub(super) fn then(&self, more: &Self) -> Self {
        both(
            format!("{} {}", self.french, more.french),
            format!("{} {}", self.english, more.english),
        )
    }
}

/// A noun phrase.
#[derive(Clone)]
pub(super) struct Phrase {
    pub(super) words: Both,
    pub(super) gender: Gender,
    pub(super) plural: bool,
    pub(super) kind: &'static str,
    /// The French form after a negation (`pas de pain`) if it differs; otherwise empty.
    pub(super) none: String,
    /// The English generic form if there is one; otherwise empty.
    pub(super) generic: String,
}

/// Who does it.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) words: Both,
    /// 0 to 5: `je` to `ils`.
    pub(super) person: usize,
    pub(super) gender: Gender,
    pub(super) plural: bool,
    pub(super) kind: &'static str,
    pub(super) pronoun: bool,
}

impl Subject {
    pub(super) fn human(&self) -> bool {
        is_human(self.kind)
    }
}

impl Phrase {
    pub(super) fn human(&self) -> bool {
        is_human(self.kind)
    }

    fn new(words: Both, noun: &Noun, plural: bool) -> Self {
        let (none, generic) = (String::new(), String::new());
        Self { words, gender: noun.gender, plural, kind: noun.kind, none, generic }
    }
}

fn is_human(kind: &str) -> bool {
    ["kin", "person", "job", "name"].contains(&kind)
}

impl From<Phrase> for Subject {
    fn from(phrase: Phrase) -> Self {
        let person = if phrase.plural { 5 } else { 2 };
        let Phrase { words, gender, plural, kind, .. } = phrase;
        Self { words, person, gender, plural, kind, pronoun: false }
    }
}

/// Restrictions on a noun phrase.
#[derive(Clone, Copy, Default)]
pub(super) struct Look {
    /// No `a`, no numbers.
    pub(super) definite: bool,
    /// No adjectives.
    pub(super) plain: bool,
    pub(super) singular: bool,
}

/// The tense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tense {
    Present,
    Past,
    Future,
    /// `il va manger`.
    Near,
}

/// Selects by gender.
pub(super) fn of<T>(gender: Gender, masculine: T, feminine: T) -> T {
    if gender.feminine() { feminine } else { masculine }
}

/// The definite article.
fn the(noun: &Noun, plural: bool) -> &'static str {
    if plural { "les" } else { of(noun.gender, "le", "la") }
}

/// The generator of one sentence: the words, and the random draws. Phrases have one method each here, clauses in
/// `clauses.rs`, sentences in `sentences.rs` and `questions.rs`.
pub(super) struct Speaker {
    pub(super) words: &'static Lexicon,
    pub(super) draws: Draws,
}

impl Speaker {
    pub(super) fn new(seed: u64, sentence: u64) -> Self {
        Self { words: &WORDS, draws: Draws::new(seed, sentence) }
    }

    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        self.draws.pick(items)
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.draws.chance(probability)
    }

    fn adjectives(&mut self, noun: &Noun) -> [Option<&'static Adjective>; 2] {
        let draw = self.draws.uniform();
        let both = draw > 0.95;
        let wanted = [both || draw < 0.22, both || (0.22..0.42).contains(&draw)];
        let words = self.words;
        let mut found = [None; 2];
        for (i, table) in [&words.before, &words.after].into_iter().enumerate() {
            let some: Vec<_> = table.iter().filter(|a| a.goes_with(noun.kind)).collect();
            if !some.is_empty() && wanted[i] {
                found[i] = Some(self.pick(&some));
            }
        }
        found
    }

    /// A noun and its adjectives, without an article.
    fn noun_group(&mut self, noun: &Noun, plural: bool, plain: bool) -> Both {
        let [before, after] = if plain { [None; 2] } else { self.adjectives(noun) };
        let word = if plural { &noun.french_plural } else { noun.french };
        let mut french = word.to_string();
        let mut english =
            if plural { noun.english_plural.clone() } else { noun.english.to_string() };
        if let Some(adjective) = before {
            let vowel = starts_with_vowel(word) && !plural && !noun.gender.feminine();
            let form =
                if vowel { adjective.before_vowel } else { adjective.agree(noun.gender, plural) };
            french = format!("{form} {french}");
        }
        if let Some(adjective) = after {
            french = format!("{french} {}", adjective.agree(noun.gender, plural));
            english = format!("{} {english}", adjective.english);
        }
        if let Some(adjective) = before {
            english = format!("{} {english}", adjective.english);
        }
        both(french, english)
    }

    /// `son` means his or her, so it is used only if the sentence shows the owner's gender. `group` is the noun group
    /// after it.
    pub(super) fn possessive(
        &mut self,
        owner: Option<&Subject>,
        noun: &Noun,
        plural: bool,
        group: &str,
    ) -> Entry {
        let mut persons = vec![0, 1, 3, 4];
        if let Some(owner) = owner {
            if owner.human() && owner.person == 2 {
                persons.extend([2; 4]);
            }
            if owner.human() && owner.person == 5 {
                persons.extend([5; 3]);
            }
            if owner.pronoun && [0, 1, 3, 4].contains(&owner.person) {
                persons.splice(0..0, [owner.person; 3]);
            }
        }
        let ([masculine, feminine, many], english) = match self.pick(&persons) {
            0 => (["mon", "ma", "mes"], "my"),
            1 => (["ton", "ta", "tes"], "your"),
            2 => {
                let gender = owner.map_or(Gender::Masculine, |owner| owner.gender);
                (["son", "sa", "ses"], of(gender, "his", "her"))
            }
            3 => (["notre", "notre", "nos"], "our"),
            4 => (["votre", "votre", "vos"], "your"),
            _ => (["leur", "leur", "leurs"], "their"),
        };
        if plural {
            return (many, english);
        }
        let shown = noun.gender.feminine() && !starts_with_vowel(group);
        (if shown { feminine } else { masculine }, english)
    }

    /// A noun of one of these kinds, with an article or another determiner.
    pub(super) fn phrase(&mut self, kinds: &[&str], owner: Option<&Subject>, look: Look) -> Phrase {
        let nouns = self.words.nouns_of(kinds);
        let noun = self.pick(&nouns);
        if ["mass", "drink"].contains(&noun.kind) || noun.english == "music" {
            return self.mass_phrase(noun, owner, look);
        }
        let plural = !look.singular && self.chance(0.35);
        let Both { french, english } = self.noun_group(noun, plural, look.plain);
        let mut styles = vec!["the", "the", "the", "the", "the", "this"];
        if !["person", "nature", "place", "time"].contains(&noun.kind) {
            styles.extend(vec!["my"; if noun.kind == "kin" { 6 } else { 3 }]);
        }
        if !look.definite {
            styles.extend(["a"; 6]);
            if plural {
                styles.extend(["two", "some"]);
            }
        }
        let (mut none, mut generic) = (String::new(), String::new());
        let words = match self.pick(&styles) {
            "the" => {
                if plural {
                    generic.clone_from(&english);
                }
                both(format!("{} {french}", the(noun, plural)), format!("the {english}"))
            }
            "this" => {
                let masculine = if starts_with_vowel(&french) { "cet" } else { "ce" };
                let article = if plural { "ces" } else { of(noun.gender, masculine, "cette") };
                let this = if plural { "these" } else { "this" };
                both(format!("{article} {french}"), format!("{this} {english}"))
            }
            "my" => {
                let (article, owned) = self.possessive(owner, noun, plural, &french);
                both(format!("{article} {french}"), format!("{owned} {english}"))
            }
            "a" if plural => {
                let adjective_first = !french.starts_with(&noun.french_plural);
                if noun.french != noun.french_plural {
                    none = format!("de {french}");
                }
                let article = if adjective_first { "de" } else { "des" };
                both(format!("{article} {french}"), english)
            }
            "a" => {
                none = format!("de {french}");
                both(format!("{} {french}", of(noun.gender, "un", "une")), format!("a {english}"))
            }
            "two" => {
                let (number, count) = self.pick(&self.words.numbers);
                both(format!("{number} {french}"), format!("{count} {english}"))
            }
            _ => {
                let some =
                    [("quelques", "some"), ("plusieurs", "several"), ("beaucoup de", "many")];
                let (word, meaning) = self.pick(&some);
                both(format!("{word} {french}"), format!("{meaning} {english}"))
            }
        };
        Phrase { none, generic, ..Phrase::new(words, noun, plural) }
    }

    /// A phrase of an uncountable noun.
    fn mass_phrase(&mut self, noun: &Noun, owner: Option<&Subject>, look: Look) -> Phrase {
        let Both { french, english } = self.noun_group(noun, false, look.plain);
        let article = the(noun, false);
        let styles: &[_] = if look.definite {
            &["the", "my"]
        } else {
            &["the", "some", "some", "some", "much", "a", "my"]
        };
        let (mut none, mut generic) = (String::new(), String::new());
        let words = match self.pick(styles) {
            "my" => {
                let (word, owned) = self.possessive(owner, noun, false, &french);
                both(format!("{word} {french}"), format!("{owned} {english}"))
            }
            "a" if ["coffee", "tea", "beer"].contains(&noun.english) => {
                both(format!("{} {french}", of(noun.gender, "un", "une")), format!("a {english}"))
            }
            "much" => both(format!("beaucoup de {french}"), format!("a lot of {english}")),
            "some" => {
                none = format!("de {french}");
                both(format!("de {article} {french}"), english)
            }
            _ => {
                generic.clone_from(&english);
                both(format!("{article} {french}"), format!("the {english}"))
            }
        };
        Phrase { none, generic, ..Phrase::new(words, noun, false) }
    }

    pub(super) fn person_phrase(&mut self, owner: Option<&Subject>) -> Phrase {
        if self.chance(0.3) {
            let name = self.pick(&self.words.names);
            return Self::named(name);
        }
        let plain = self.chance(0.6);
        self.phrase(
            &["kin", "person", "job"],
            owner,
            Look { definite: true, plain, singular: false },
        )
    }

    /// A person with a name.
    pub(super) fn named((name, gender): (&'static str, Gender)) -> Phrase {
        let (none, generic) = (String::new(), String::new());
        Phrase { words: both(name, name), gender, plural: false, kind: "name", none, generic }
    }

    /// `la voiture de paul`: `paul 's car`.
    pub(super) fn owned_phrase(&mut self) -> Phrase {
        let kinds = ["thing", "cloth", "vehicle", "animal", "read", "kin", "furniture"];
        let nouns = self.words.nouns_of(&kinds);
        let noun = self.pick(&nouns);
        let plural = self.chance(0.3);
        let plain = self.chance(0.6);
        let group = self.noun_group(noun, plural, plain);
        let mut owner = self.person_phrase(None);
        while owner.plural {
            owner = self.person_phrase(None);
        }
        let words = both(
            format!("{} {} de {}", the(noun, plural), group.french, owner.words.french),
            format!("{} 's {}", owner.words.english, group.english),
        );
        Phrase::new(words, noun, plural)
    }

    /// Any subject; with `animals`, also animals.
    pub(super) fn subject(&mut self, animals: bool) -> Subject {
        let draw = self.draws.uniform();
        if draw < 0.58 {
            return self.pronoun_drawn();
        }
        if draw < 0.62 {
            let mut names = self.words.names.clone();
            names.sort_unstable_by_key(|name| name.0);
            let (one, two) = self.draws.two_below(names.len());
            let ((one, first), (two, second)) = (names[one], names[two]);
            let gender = if first == second { first } else { Gender::Masculine };
            let words = both(format!("{one} et {two}"), format!("{one} and {two}"));
            return Subject {
                words,
                person: 5,
                gender,
                plural: true,
                kind: "name",
                pronoun: false,
            };
        }
        if animals && draw < 0.75 {
            let plain = self.chance(0.5);
            let look = Look { definite: true, plain, singular: false };
            return self.phrase(&["animal"], None, look).into();
        }
        self.person_phrase(None).into()
    }

    /// `je` to `elles`.
    pub(super) fn pronoun_subject(&mut self) -> Subject {
        let _ = self.draws.uniform();
        self.pronoun_drawn()
    }

    fn pronoun_drawn(&mut self) -> Subject {
        let person = self.draws.below(6);
        let gender = self.pick(&[Gender::Masculine, Gender::Feminine]);
        let plural = [3, 5].contains(&person) || (person == 4 && self.chance(0.5));
        let words = match (person, gender) {
            (2, Gender::Feminine) => both("elle", "she"),
            (5, Gender::Feminine) => both("elles", "they"),
            _ => both(PERSONS[person], ENGLISH_SUBJECTS[person]),
        };
        Subject { words, person, gender, plural, kind: "person", pronoun: true }
    }

    /// A place; with `motion`, a destination.
    pub(super) fn place(&mut self, motion: bool) -> Both {
        let draw = self.draws.uniform();
        let to = |other| if motion { "to" } else { other };
        if draw < 0.4 {
            let nouns = self.words.nouns_of(&["place"]);
            let noun = self.pick(&nouns);
            return both(
                format!("à {} {}", the(noun, false), noun.french),
                format!("{} the {}", to("at"), noun.english),
            );
        }
        if draw < 0.5 {
            let (city, english) = self.pick(&self.words.cities);
            return both(format!("à {city}"), format!("{} {english}", to("in")));
        }
        if draw < 0.6 {
            let (country, english) = self.pick(&self.words.countries);
            return both(country, format!("{} {english}", to("in")));
        }
        if draw < 0.7 {
            if self.chance(0.5) {
                return both("à la maison", if motion { "home" } else { "at home" });
            }
            return both("à la école", format!("{} school", to("at")));
        }
        if draw < 0.76 && !motion {
            let (who, _) = self.pick(&self.words.names);
            return both(format!("avec {who}"), format!("with {who}"));
        }
        if draw < 0.82 || motion {
            let look = Look { definite: true, plain: true, singular: true };
            let near = self.phrase(&["home", "nature", "place"], None, look).words;
            return both(format!("près de {}", near.french), format!("near {}", near.english));
        }
        self.inside()
    }

    pub(super) fn inside(&mut self) -> Both {
        let ways: [(Entry, &[&str]); 8] = [
            (("dans", "in"), &["home", "vehicle"]),
            (("sur", "on"), &["furniture"]),
            (("sous", "under"), &["furniture"]),
            (("devant", "in front of"), &["home", "place", "furniture"]),
            (("derrière", "behind"), &["home", "place", "part"]),
            (("avec", "with"), &["kin"]),
            (("sans", "without"), &["kin"]),
            (("dans", "in"), &["home"]),
        ];
        let (how, kinds) = self.pick(&ways);
        let plain = self.chance(0.7);
        let phrase = self.phrase(kinds, None, Look { definite: true, plain, singular: true });
        Both::from(how).then(&phrase.words)
    }

    pub(super) fn time(&mut self, tense: Tense) -> Both {
        let draw = self.draws.uniform();
        if draw < 0.55 {
            let times = &self.words.times;
            return self
                .pick(match tense {
                    Tense::Present => &times.present,
                    Tense::Past => &times.past,
                    Tense::Future | Tense::Near => &times.future,
                })
                .into();
        }
        if draw < 0.75 {
            let (day, name) = self.pick(&self.words.days);
            return match tense {
                Tense::Present => both(format!("le {day}"), format!("on {name}")),
                Tense::Past => both(format!("{day} dernier"), format!("last {name}")),
                Tense::Future | Tense::Near => {
                    both(format!("{day} prochain"), format!("next {name}"))
                }
            };
        }
        if draw < 0.88 {
            let (month, name) = self.pick(&self.words.months);
            return both(format!("en {month}"), format!("in {name}"));
        }
        let (number, count) = self.pick(&self.words.numbers);
        let mut nouns = self.words.nouns_of(&["time"]);
        nouns.retain(|n| ["day", "month", "year", "week", "hour"].contains(&n.english));
        let noun = self.pick(&nouns);
        let (french, english) = (&noun.french_plural, &noun.english_plural);
        match tense {
            Tense::Past => {
                both(format!("il y a {number} {french}"), format!("{count} {english} ago"))
            }
            Tense::Future | Tense::Near => {
                both(format!("dans {number} {french}"), format!("in {count} {english}"))
            }
            Tense::Present => both(format!("à {number} heures"), format!("at {count} o'clock")),
        }
    }
}
