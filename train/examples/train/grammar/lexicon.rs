//! The words of the demo language: meaning, agreement, and combinations.
//!
//! They are read from `models/fr-en/lexicon.txt`, which describes its format.

use std::collections::BTreeMap;
use std::sync::LazyLock;

const TEXT: &str = include_str!("../../../../models/fr-en/lexicon.txt");
const VOWELS: &str = "aeiouyhâàéèêëîïôöûùœ";

/// All words.
pub(super) static WORDS: LazyLock<Lexicon> = LazyLock::new(|| Lexicon::read(TEXT));

/// The subject pronouns, by person.
pub(super) const PERSONS: [&str; 6] = ["je", "tu", "il", "nous", "vous", "ils"];

/// French and English.
pub(super) type Entry = (&'static str, &'static str);

/// The gender of French words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gender {
    Masculine,
    Feminine,
}

impl Gender {
    fn of(letter: &str) -> Self {
        if letter == "f" { Self::Feminine } else { Self::Masculine }
    }

    pub(super) fn feminine(self) -> bool {
        self == Self::Feminine
    }
}

/// A noun in singular and plural in both languages.
pub(super) struct Noun {
    pub(super) french: &'static str,
    pub(super) french_plural: String,
    pub(super) gender: Gender,
    pub(super) english: &'static str,
    pub(super) english_plural: String,
    /// The category: `kin`, `food`, ...
    pub(super) kind: &'static str,
}

/// An adjective.
pub(super) struct Adjective {
    /// Masculine, feminine, and the plurals of both.
    forms: [String; 4],
    /// The masculine before a vowel: `bel`.
    pub(super) before_vowel: &'static str,
    pub(super) english: &'static str,
    pub(super) comparative: String,
    kinds: Vec<&'static str>,
}

impl Adjective {
    /// The French form.
    pub(super) fn agree(&self, gender: Gender, plural: bool) -> &str {
        &self.forms[usize::from(gender.feminine()) + 2 * usize::from(plural)]
    }

    /// Whether it can be used with nouns of this kind.
    pub(super) fn goes_with(&self, kind: &str) -> bool {
        self.kinds.contains(&kind)
    }
}

/// A verb: French forms, English forms, the kinds of its object and the referent of `le`.
#[derive(Clone, Default)]
pub(super) struct Verb {
    pub(super) infinitive: &'static str,
    /// The present, by person.
    pub(super) present: Vec<String>,
    pub(super) participle: String,
    stem: &'static str,
    /// The auxiliary of the passé composé.
    pub(super) auxiliary: &'static str,
    pub(super) base: String,
    pub(super) third: String,
    pub(super) past: String,
    pub(super) objects: Vec<&'static str>,
    /// The English object pronoun: `it`, `him` (or her), or empty.
    pub(super) pronoun: &'static str,
    /// An English auxiliary (`can`, `must`, `would`), or empty.
    pub(super) modal: &'static str,
}

impl Verb {
    pub(super) fn future(&self, person: usize) -> String {
        format!("{}{}", self.stem, ["ai", "as", "a", "ons", "ez", "ont"][person])
    }
}

/// Time phrases, by tense.
pub(super) struct Times {
    pub(super) present: Vec<Entry>,
    pub(super) past: Vec<Entry>,
    pub(super) future: Vec<Entry>,
}

/// Every table, in the order of the file.
pub(super) struct Lexicon {
    /// Nouns by kind, in the order of the file.
    pub(super) nouns: Vec<(&'static str, Vec<Noun>)>,
    pub(super) before: Vec<Adjective>,
    pub(super) after: Vec<Adjective>,
    pub(super) predicates: Vec<Adjective>,
    verbs: BTreeMap<&'static str, Verb>,
    pub(super) intransitive: Vec<&'static str>,
    pub(super) transitive: Vec<&'static str>,
    pub(super) names: Vec<(&'static str, Gender)>,
    pub(super) cities: Vec<Entry>,
    pub(super) countries: Vec<Entry>,
    pub(super) languages: Vec<Entry>,
    pub(super) sports: Vec<Entry>,
    /// French, its gender, English.
    pub(super) instruments: Vec<(&'static str, Gender, &'static str)>,
    pub(super) numbers: Vec<Entry>,
    /// The numbers of the hours.
    pub(super) hours: Vec<Entry>,
    pub(super) days: Vec<Entry>,
    pub(super) months: Vec<Entry>,
    pub(super) states: Vec<Entry>,
    pub(super) weather: Vec<Entry>,
    pub(super) adverbs: Vec<Entry>,
    pub(super) manners: Vec<Entry>,
    pub(super) times: Times,
    /// Complete sentences.
    pub(super) fixed: Vec<Entry>,
}

/// Verbs of movement that take no object.
pub(super) const MOVING: [&str; 5] = ["rester", "tomber", "arriver", "partir", "sortir"];

impl Lexicon {
    /// The verb of this infinitive, including names such as `aimer (love)`. The grammar uses only verbs of the file.
    pub(super) fn verb(&self, infinitive: &str) -> &Verb {
        &self.verbs[infinitive]
    }

    /// The nouns of these kinds, kind by kind.
    pub(super) fn nouns_of(&self, kinds: &[&str]) -> Vec<&Noun> {
        let of = |kind: &&str| self.nouns.iter().find(|(name, _)| name == kind);
        kinds.iter().filter_map(of).flat_map(|(_, nouns)| nouns).collect()
    }

    fn read(text: &'static str) -> Self {
        let sections = sections(text);
        let lines = |name: &str| sections[name].as_slice();
        let table = |name: &str| entries(lines(name));
        let plurals: BTreeMap<_, _> = table("plurals").into_iter().collect();
        let tags = table("tags");
        let mut before = adjectives(lines("before"), &tags);
        for (english, kinds) in [
            ("big", &["animal", "thing", "furniture", "home", "place", "vehicle", "nature"][..]),
            ("tall", &["kin", "person", "job"]),
        ] {
            before.push(Adjective {
                forms: ["grand", "grande", "grands", "grandes"].map(String::from),
                before_vowel: "grand",
                english,
                comparative: format!("{english}{}er", if english == "big" { "g" } else { "" }),
                kinds: kinds.to_vec(),
            });
        }
        let numbers = table("numbers");
        let hours = |entry: &&Entry| !["douze", "vingt"].contains(&entry.0);
        let mut intransitive: Vec<_> =
            lines("intransitive").iter().map(|line| first(line)).collect();
        intransitive.extend(["dormir", "courir", "rire"]);
        let verbs = verbs(&sections);
        let listed = lines("regular").iter().chain(lines("irregular")).map(|line| first(line));
        Self {
            nouns: lines("nouns").iter().map(|line| nouns(line, &plurals)).collect(),
            before,
            after: adjectives(lines("after"), &tags),
            predicates: adjectives(lines("predicates"), &tags),
            transitive: listed.filter(|name| !verbs[name].objects.is_empty()).collect(),
            verbs,
            intransitive,
            names: table("names")
                .into_iter()
                .map(|(name, letter)| (name, Gender::of(letter)))
                .collect(),
            cities: table("cities"),
            countries: table("countries"),
            languages: table("languages"),
            sports: table("sports"),
            instruments: table("instruments").into_iter().map(instrument).collect(),
            hours: numbers.iter().filter(hours).copied().collect(),
            numbers,
            days: table("days"),
            months: table("months"),
            states: table("states"),
            weather: table("weather"),
            adverbs: table("adverbs"),
            manners: table("manners"),
            times: Times {
                present: table("times present"),
                past: table("times past"),
                future: table("times future"),
            },
            fixed: table("fixed"),
        }
    }
}

/// Whether the first letter is a vowel, for elision and forms such as `bel`.
pub(super) fn starts_with_vowel(word: &str) -> bool {
    word.chars().next().is_some_and(|letter| VOWELS.contains(letter))
}

/// The lines under each name in brackets.
fn sections(text: &'static str) -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut name = "";
    for line in text.lines() {
        if let Some(next) = line.strip_prefix('[') {
            name = next.trim_end_matches(']');
        } else if !line.is_empty() && !line.starts_with('#') {
            found.entry(name).or_default().push(line);
        }
    }
    found
}

/// `french = english`, several per line.
fn entries(lines: &[&'static str]) -> Vec<Entry> {
    lines
        .iter()
        .flat_map(|line| line.split(", "))
        .filter_map(|entry| entry.split_once(" = "))
        .collect()
}

/// The first word of a line, without its trailing `;`.
fn first(line: &'static str) -> &'static str {
    word(line, 0).trim_end_matches(';')
}

fn word(line: &'static str, index: usize) -> &'static str {
    line.split_whitespace().nth(index).unwrap_or("")
}

fn instrument((french, said): Entry) -> (&'static str, Gender, &'static str) {
    (french, Gender::of(word(said, 0)), word(said, 1))
}

fn ends_with_any(word: &str, ends: &[&str]) -> bool {
    ends.iter().any(|end| word.ends_with(end))
}

/// The rule for plurals of nouns and third persons of verbs: `es`, `ies` or `s`.
fn with_s(word: &str, sharp: &[&str]) -> String {
    if ends_with_any(word, sharp) {
        return format!("{word}es");
    }
    match word.strip_suffix('y') {
        Some(root) if !root.ends_with(['a', 'e', 'o', 'u']) => format!("{root}ies"),
        _ => format!("{word}s"),
    }
}

fn english_plural(word: &str, irregular: &BTreeMap<&str, &str>) -> String {
    irregular.get(word).map_or_else(|| with_s(word, &["s", "x", "ch", "sh"]), ToString::to_string)
}

fn english_third(word: &str) -> String {
    if word == "have" { "has".to_string() } else { with_s(word, &["s", "x", "ch", "sh", "o"]) }
}

fn french_plural(word: &str) -> String {
    if ends_with_any(word, &["s", "x", "z"]) {
        return word.to_string();
    }
    if ends_with_any(word, &["eau", "eu"]) {
        return format!("{word}x");
    }
    word.strip_suffix("al").map_or_else(|| format!("{word}s"), |root| format!("{root}aux"))
}

fn nouns(line: &'static str, irregular: &BTreeMap<&str, &str>) -> (&'static str, Vec<Noun>) {
    let (kind, entries) = line.split_once(": ").unwrap_or((line, ""));
    let noun = |entry: &'static str| Noun {
        french: word(entry, 0),
        french_plural: french_plural(word(entry, 0)),
        gender: Gender::of(word(entry, 1)),
        english: word(entry, 2),
        english_plural: english_plural(word(entry, 2), irregular),
        kind,
    };
    (kind, entries.split(", ").map(noun).collect())
}

fn adjectives(lines: &[&'static str], tags: &[Entry]) -> Vec<Adjective> {
    let read = |line: &&'static str| {
        let (masculine, before_vowel) =
            word(line, 0).split_once('/').unwrap_or((word(line, 0), word(line, 0)));
        let feminine = match word(line, 1) {
            "=" => masculine.to_string(),
            "+" => format!("{masculine}e"),
            feminine => feminine.to_string(),
        };
        let (english, more) = (word(line, 2), word(line, 3));
        let plurals = [french_plural(masculine), french_plural(&feminine)];
        let [masculines, feminines] = plurals;
        Adjective {
            forms: [masculine.to_string(), feminine, masculines, feminines],
            before_vowel,
            english,
            comparative: if more == "-" { format!("more {english}") } else { more.to_string() },
            kinds: tags
                .iter()
                .filter(|tag| word(line, 4).contains(tag.1))
                .map(|tag| tag.0)
                .collect(),
        }
    };
    lines.iter().map(read).collect()
}

/// The present of a regular verb.
fn present_er(infinitive: &str) -> Vec<String> {
    let root = infinitive.strip_suffix("er").unwrap_or(infinitive);
    let soft = if root.ends_with('g') { "e" } else { "" };
    ["e", "es", "e", "ons", "ez", "ent"]
        .iter()
        .map(
            |end| if *end == "ons" { format!("{root}{soft}{end}") } else { format!("{root}{end}") },
        )
        .collect()
}

/// Adds the English forms and the last fields of a line: base, past, objects, pronoun.
fn with_english(verb: Verb, said: [&'static str; 4]) -> Verb {
    let [base, past, objects, pronoun] = said;
    let (base, past) = (base.replace('_', " "), past.replace('_', " "));
    let (head, rest) = base.split_once(' ').unwrap_or((&base, ""));
    Verb {
        third: format!("{} {rest}", english_third(head)).trim().to_string(),
        base,
        past,
        objects: objects.split(',').filter(|kind| !kind.is_empty()).collect(),
        pronoun: pronoun.trim_matches('-'),
        ..verb
    }
}

fn verbs(sections: &BTreeMap<&'static str, Vec<&'static str>>) -> BTreeMap<&'static str, Verb> {
    let mut found = BTreeMap::new();
    for line in sections["regular"].iter().chain(&sections["intransitive"]) {
        let infinitive = word(line, 0);
        let verb = Verb {
            infinitive,
            present: present_er(infinitive),
            participle: format!("{}é", infinitive.strip_suffix("er").unwrap_or(infinitive)),
            stem: infinitive,
            auxiliary: "avoir",
            ..Verb::default()
        };
        let said = [word(line, 1), word(line, 2), word(line, 3), word(line, 4)];
        found.insert(infinitive, with_english(verb, said));
    }
    for line in sections["irregular"].iter().chain(&sections["special"]) {
        let mut fields = line.split(';').map(str::trim);
        let mut next = || fields.next().unwrap_or("");
        let verb = Verb {
            infinitive: next(),
            present: next().split(' ').map(String::from).collect(),
            participle: next().to_string(),
            stem: next(),
            auxiliary: next(),
            ..Verb::default()
        };
        let modal = match verb.infinitive {
            "pouvoir" => "can",
            "devoir" => "must",
            "voudrais" => "would",
            _ => "",
        };
        let said = [next(), next(), next(), next()];
        found.insert(verb.infinitive, with_english(Verb { modal, ..verb }, said));
    }
    // "To like" for things and "to love" for persons.
    let love = Verb {
        base: "love".to_string(),
        third: "loves".to_string(),
        past: "loved".to_string(),
        objects: vec!["kin", "person"],
        pronoun: "him",
        ..found["aimer"].clone()
    };
    found.insert("aimer (love)", love);
    found
}
