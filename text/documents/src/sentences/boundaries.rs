//! Where sentences end: the algorithm. The data of the languages is in [`rules_europe`](super::rules_europe) and
//! [`rules_world`](super::rules_world).
//!
//! The text is read once from left to right. At each run of terminators the characters before and after it decide:
//!
//! 1. Closing quotation marks and brackets after the run belong to the sentence.
//! 2. No space follows: only a full stop of a script without spaces ends a sentence.
//! 3. A small letter or a comma follows: the sentence continues.
//! 4. A single period: the word before it may be an abbreviation, an initial, an acronym, an ordinal or the number of an
//!    item of a list. Whether the next word often begins a sentence decides the doubtful cases.
//!
//! Each look-ahead ends at the next terminator or after a fixed number of characters, so that the time is linear.

use super::characters::{
    Terminator, closes, closes_only, continues, is_arabic_or_hebrew, is_dash, is_georgian,
    is_han_or_kana, is_hiragana, is_quote, opens, terminator,
};
use super::lexicon::{Abbreviation, Lexicon};
use super::rules::Ordinals;
use super::thai::ends_at_space;
use std::ops::Range;

/// How many characters after an opening bracket or quotation mark its counterpart is searched.
const NESTED: usize = 240;
/// How many characters of the next word, and after a quotation, are read.
const AHEAD: usize = 48;

/// The sentences of a text.
pub(super) fn sentences(text: &str, lexicon: &Lexicon) -> Vec<Range<usize>> {
    let mut scan = Scan {
        text,
        lexicon,
        small: !text.chars().any(char::is_uppercase),
        start: text.len() - text.trim_start().len(),
        nested_until: 0,
        quotes: 0,
        found: Vec::new(),
    };
    scan.find_sentences();
    scan.found
}

/// What follows a terminator and a space.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    /// A small letter.
    Small,
    /// A capital letter.
    Capital,
    /// A letter of a script without capitals.
    Letter,
    Digit,
    /// A comma, a closing bracket, another terminator.
    Continuation,
    /// Anything else: an emoji, a currency.
    Symbol,
}

/// The text after a terminator and its spaces.
struct Head<'t> {
    next: Next,
    /// From the first letter or digit on.
    rest: &'t str,
    /// `¿` or `¡` stands before it.
    inverted: bool,
}

struct Scan<'t> {
    text: &'t str,
    lexicon: &'t Lexicon,
    /// The text has no capital letters, so they cannot tell.
    small: bool,
    /// Where the current sentence begins.
    start: usize,
    /// Terminators before this place are inside of brackets or of a quotation that the sentence goes around.
    nested_until: usize,
    /// The `"` so far.
    quotes: usize,
    found: Vec<Range<usize>>,
}

impl Scan<'_> {
    fn find_sentences(&mut self) {
        let mut at = self.start;
        while let Some(c) = self.char_at(at) {
            let len = c.len_utf8();
            if c.is_whitespace() {
                at = self.space(at);
            } else if let Some(kind) = self.terminator(c) {
                at = self.terminators(at, kind);
            } else {
                self.quotes += usize::from(c == '"' && self.is_quote_at(at));
                if at >= self.nested_until {
                    self.open(at, c);
                }
                at += len;
            }
        }
        self.end(self.text.len(), self.text.len());
    }

    fn char_at(&self, at: usize) -> Option<char> {
        self.text[at..].chars().next()
    }

    /// Whether `"` is a quotation mark: in `ד"ר` and `5"x3"` it stands inside of a word.
    fn is_quote_at(&self, at: usize) -> bool {
        let before = self.text[..at].chars().next_back();
        let after = self.text[at + 1..].chars().next();
        let inside = |c: char| c.is_alphanumeric() && !is_han_or_kana(c);
        ![before, after].iter().all(|side| side.is_some_and(inside))
    }

    fn terminator(&self, c: char) -> Option<Terminator> {
        terminator(c).or_else(|| self.lexicon.marks.contains(c).then_some(Terminator::Mark))
    }

    /// Ends the current sentence at `end`. The next one begins at the first letter from `next` on.
    fn end(&mut self, end: usize, next: usize) {
        let sentence = self.text[self.start.min(end)..end].trim_end();
        if !sentence.is_empty() {
            self.found.push(self.start..self.start + sentence.len());
        }
        let rest = &self.text[next..];
        self.start = self.text.len() - rest.trim_start().len();
    }

    /// Spaces: a blank line ends a sentence, and in Thai a space may. Returns the place after them.
    fn space(&mut self, at: usize) -> usize {
        let rest = self.text[at..].trim_start();
        let after = self.text.len() - rest.len();
        let spaces = &self.text[at..after];
        let lines = spaces.matches('\n').count().max(spaces.matches('\r').count());
        if lines > 1 || spaces.contains('\u{2029}') {
            self.quotes = 0;
            self.nested_until = 0;
            self.end(at, after);
        } else if at >= self.nested_until
            && ends_at_space(&self.text[self.start.min(at)..at], rest, self.lexicon)
        {
            self.end(at, after);
        }
        after
    }

    /// An opening bracket or quotation mark: finds the place up to which no sentence ends.
    fn open(&mut self, at: usize, c: char) {
        let closing: &[char] = match c {
            '(' => &[')'],
            '（' => &['）'],
            '[' => &[']'],
            '「' => &['」'],
            '『' => &['』'],
            '“' => &['”'],
            '„' => &['“', '”'],
            '«' => &['»'],
            '»' => &['«'],
            '"' if self.quotes % 2 == 1 => &['"'],
            _ => return,
        };
        let before = self.text[..at].chars().next_back();
        if is_quote(c) && before.is_some_and(char::is_alphanumeric) {
            return;
        }
        // `»` opens where a letter follows.
        if c == '»' && !self.text[at + c.len_utf8()..].starts_with(char::is_alphanumeric) {
            return;
        }
        let mut depth = 1_usize;
        let mut end = None;
        for (offset, next) in self.text[at + c.len_utf8()..].char_indices().take(NESTED) {
            if closing.contains(&next) {
                depth -= 1;
            } else if next == c {
                depth += 1;
            } else if next == '\n' && self.text[at + c.len_utf8() + offset..].starts_with("\n\n") {
                return;
            }
            if depth == 0 {
                end = Some(at + c.len_utf8() + offset);
                break;
            }
        }
        let Some(end) = end else { return };
        let inside = match c {
            '「' | '『' => true,
            '(' | '（' | '[' => at > self.start,
            // The sentence goes on after the quotation.
            _ => {
                let skip = |c: &char| closing.contains(c) || c.is_whitespace() || is_dash(*c);
                let next = self.text[end..].chars().take(AHEAD).find(|c| !skip(c));
                next.is_some_and(|next| next.is_lowercase() || continues(next))
            }
        };
        if inside {
            self.nested_until = end;
        }
    }

    /// A run of terminators that begins at `at`. Returns the place after what belongs to it.
    fn terminators(&mut self, at: usize, first: Terminator) -> usize {
        let mut kind = first;
        let mut end = at;
        while let Some((c, next)) = self.char_at(end).and_then(|c| Some((c, self.terminator(c)?))) {
            kind = match (kind, next) {
                _ if end == at => next,
                (Terminator::Full, _) | (_, Terminator::Full) => Terminator::Full,
                (Terminator::Mark, _) | (_, Terminator::Mark) => Terminator::Mark,
                _ => Terminator::Ellipsis,
            };
            end += c.len_utf8();
        }
        let run = end;
        let mut quoted = false;
        let mut bracket = false;
        while let Some((c, len)) = self.closer(end, kind) {
            quoted |= is_quote(c);
            bracket |= closes_only(c) && !is_quote(c);
            self.quotes += usize::from(c == '"');
            end += len;
        }
        if end >= self.nested_until && self.ends(at..run, end, kind, quoted, bracket) {
            self.end(end, end);
        }
        end
    }

    /// The closing character at `at` and its length, with a space before it as in French.
    fn closer(&self, at: usize, kind: Terminator) -> Option<(char, usize)> {
        let rest = &self.text[at..];
        let c = rest.chars().next()?;
        let strict = kind == Terminator::Full;
        let open_quote = c == '"' && self.quotes % 2 == 1;
        if closes_only(c) || open_quote || (!strict && closes(c)) {
            return Some((c, c.len_utf8()));
        }
        // A reference to a note: `[12]`.
        if let Some(note) = rest.strip_prefix('[') {
            let digits = note.bytes().take(3).take_while(u8::is_ascii_digit).count();
            return (digits > 0 && note[digits..].starts_with(']')).then_some((']', digits + 2));
        }
        let quote = rest.strip_prefix([' ', '\u{a0}', '\u{202f}', '\u{2009}'])?;
        let after = quote.strip_prefix('»')?.chars().next();
        let closed = after.is_none_or(|after| !after.is_alphanumeric());
        closed.then_some(('»', rest.len() - quote.len() + '»'.len_utf8()))
    }

    /// Whether the terminators `run`, with the closing characters up to `end`, end a sentence.
    fn ends(
        &self,
        run: Range<usize>,
        end: usize,
        kind: Terminator,
        quoted: bool,
        bracket: bool,
    ) -> bool {
        let before = &self.text[self.start.min(run.start)..run.start];
        let after = &self.text[end..];
        let spaced = after.trim_start();
        if spaced.is_empty() {
            return true;
        }
        if kind == Terminator::Full {
            return self.full_stop(before, &self.text[run], spaced, quoted);
        }
        if spaced.len() == after.len() {
            // `!` between Chinese characters.
            let sides = [before.chars().next_back(), after.chars().next()];
            return kind == Terminator::Mark
                && sides.into_iter().all(|side| side.is_some_and(is_han_or_kana));
        }
        // `(!)` is a remark.
        if bracket && !quoted && before.ends_with(['(', '（', '[']) {
            return false;
        }
        let head = head(spaced);
        let next = if self.small && head.next == Next::Small { Next::Letter } else { head.next };
        match (kind, next) {
            (_, Next::Continuation | Next::Small) => false,
            (Terminator::Ellipsis | Terminator::Mark, _) => {
                !(quoted && self.speech_follows(head.rest))
            }
            _ => self.period(before, &head, next, bracket && !quoted),
        }
    }

    /// A full stop of a script without spaces.
    fn full_stop(&self, before: &str, run: &str, after: &str, quoted: bool) -> bool {
        let next = after.chars().next().unwrap_or(' ');
        if continues(next) || closes_only(next) || self.terminator(next).is_some() {
            return false;
        }
        match run.chars().next() {
            Some('．') => !before.ends_with(|c: char| c.is_numeric()) || !next.is_numeric(),
            // `។ល។` is `etc.`
            Some('។') => !after.starts_with("ល។"),
            _ if quoted && is_hiragana(next) => false,
            _ if quoted && is_han_or_kana(next) => {
                let clause = after.split(|c| continues(c) || terminator(c).is_some()).next();
                let clause: String = clause.unwrap_or("").chars().take(8).collect();
                !self.lexicon.speech().iter().any(|word| clause.contains(word))
            }
            _ => !(quoted && self.speech_follows(after)),
        }
    }

    /// A single period, a space, and no small letter.
    fn period(&self, before: &str, head: &Head<'_>, next: Next, bracket: bool) -> bool {
        let lexicon = self.lexicon;
        let word = last_word(before);
        let Some(last) = word.chars().next_back() else { return true };
        let begins = before[..before.len() - word.len()].trim_end().is_empty();
        let starter = || self.starts(head);
        if word.chars().all(char::is_numeric) {
            return self.number(word, begins, head, next);
        }
        if self.is_first_part(word, head) {
            return false;
        }
        if let Some(kind) = self.abbreviation(before, word) {
            return match kind {
                Abbreviation::Never => false,
                Abbreviation::Numeric => {
                    let number = next == Next::Digit || is_roman_or_letter(first_word(head.rest));
                    !number
                }
                Abbreviation::Weak => next != Next::Digit && starter(),
                Abbreviation::Strong => {
                    next != Next::Digit && (!bracket || starter()) && !self.is_month(head.rest)
                }
            };
        }
        let letters = word.chars().filter(|c| c.is_alphabetic()).count();
        let capital = last.is_uppercase();
        if letters == 1 && word.chars().count() == 1 {
            // An initial, or the letter of an item of a list.
            return match (capital, is_arabic_or_hebrew(last) || is_georgian(last)) {
                (false, false) => !(begins && last.is_lowercase()),
                (true, _) => !begins && starter() && !is_particle(first_word(head.rest)),
                (false, true) => false,
            };
        }
        if word.contains('.') && is_acronym(word) {
            return next != Next::Digit && starter();
        }
        let roman = capital && word.chars().all(|c| matches!(c, 'I' | 'V' | 'X' | 'L' | 'C'));
        if roman && (begins || lexicon.ordinals == Ordinals::Capitalized) {
            return !begins && starter();
        }
        // Two initials with a hyphen: `J.-P.`
        !(word.ends_with(|c: char| c.is_uppercase()) && word.contains(".-") && !starter())
    }

    /// A number and a period.
    fn number(&self, number: &str, begins: bool, head: &Head<'_>, next: Next) -> bool {
        let digits = number.chars().count();
        if begins && digits <= 2 {
            return false;
        }
        // `12. 5. 2020`, `3. 10. um acht`
        let date = || {
            let second = first_number(head.rest);
            let rest = &head.rest[second.len()..];
            let dated = rest.starts_with('.') || second.len() == 4;
            next == Next::Digit && digits <= 2 && dated
        };
        match self.lexicon.ordinals {
            _ if digits > 2 => true,
            _ if date() => false,
            Ordinals::None => true,
            Ordinals::Capitalized => next != Next::Digit && self.starts(head),
            Ordinals::Lowercase => !self.small,
        }
    }

    /// Whether an abbreviation consists of the word and the next one: `n. Chr.`
    fn is_first_part(&self, word: &str, head: &Head<'_>) -> bool {
        let next = first_word(head.rest);
        let short =
            word.len() <= 16 && next.len() <= 16 && head.rest[next.len()..].starts_with('.');
        short && self.lexicon.abbreviation(&format!("{word}.{next}")).is_some()
    }

    /// What the word before a period abbreviates: alone, with the abbreviation before it (`z. B.`), or its part after a
    /// hyphen or an apostrophe (`Dipl.-Ing.`, `l'art.`).
    fn abbreviation(&self, before: &str, word: &str) -> Option<Abbreviation> {
        let lexicon = self.lexicon;
        let front = before[..before.len() - word.len()].trim_end();
        if let Some(first) = front.strip_suffix('.').map(last_word).filter(|first| {
            !first.is_empty() && front.len() < before.len() - word.len() && first.len() <= 16
        }) {
            let joined = lexicon.abbreviation(&format!("{first}.{word}"));
            if joined.is_some() {
                return joined;
            }
        }
        lexicon.abbreviation(word).or_else(|| {
            let (front, part) = word.rsplit_once(['-', '\'', '’', '/', '–'])?;
            // `1970-an` is a word.
            let hyphen = word[front.len()..].starts_with(['-', '–']);
            let small = hyphen && part.starts_with(char::is_lowercase);
            lexicon.abbreviation(part).filter(|_| !part.is_empty() && !small)
        })
    }

    /// Whether the next word often begins a sentence. A language without a list of such words says no.
    fn starts(&self, head: &Head<'_>) -> bool {
        head.inverted || self.lexicon.is_starter(&first_word(head.rest).to_lowercase())
    }

    /// Whether the next word is one of the abbreviations before a number, such as a month.
    fn is_month(&self, rest: &str) -> bool {
        let word = first_word(rest);
        let dotted = rest[word.len()..].starts_with('.');
        dotted && self.lexicon.abbreviation(word) == Some(Abbreviation::Numeric)
    }

    /// Whether one of the next three words says who spoke.
    fn speech_follows(&self, rest: &str) -> bool {
        let end = rest.char_indices().nth(AHEAD).map_or(rest.len(), |(at, _)| at);
        let clause = rest[..end].split(|c| continues(c) || self.terminator(c).is_some()).next();
        let mut words = clause.unwrap_or("").split_whitespace().take(3);
        words.any(|word| self.lexicon.is_speech(&word.to_lowercase()))
    }
}

/// Reads over what may stand before the first word.
fn head(spaced: &str) -> Head<'_> {
    let mut head = Head { next: Next::Symbol, rest: spaced, inverted: false };
    // A dash or a guillemet stands before, and a space may follow.
    let mut open = false;
    for _ in 0..AHEAD {
        let mut chars = head.rest.chars();
        let Some(c) = chars.next() else { break };
        let second = chars.clone().next();
        let joined = second.is_some_and(|second| !second.is_whitespace());
        let skip = if is_quote(c) {
            // `'s Avonds`: the small letter is half a word.
            if matches!(c, '\'' | '’' | '‘') && half_word(chars.as_str()) {
                head.next = Next::Capital;
                return head;
            }
            open |= c == '«';
            joined || open
        } else if is_dash(c) {
            open = true;
            true
        } else if c.is_whitespace() {
            open
        } else if c == '.' {
            second.is_some_and(char::is_alphabetic)
        } else {
            head.inverted |= matches!(c, '¿' | '¡');
            opens(c)
        };
        if !skip {
            break;
        }
        head.rest = chars.as_str();
    }
    let mut chars = head.rest.chars();
    let Some(c) = chars.next() else {
        head.next = Next::Continuation;
        return head;
    };
    let brand = || chars.clone().next().is_some_and(char::is_uppercase);
    head.next = if c.is_numeric() {
        Next::Digit
    } else if is_georgian(c) {
        // Small letters for Unicode, but sentences begin with them.
        Next::Letter
    } else if c.is_lowercase() && !brand() {
        // After `¿` and `¡` a sentence may begin with a small letter, but seldom does.
        Next::Small
    } else if c.is_uppercase() || c.is_lowercase() {
        Next::Capital
    } else if c.is_alphabetic() {
        Next::Letter
    } else if continues(c) || closes_only(c) || terminator(c).is_some() || is_quote(c) {
        Next::Continuation
    } else {
        Next::Symbol
    };
    head
}

/// Whether the text after an apostrophe is a small letter, a space or a hyphen, and a capital letter.
fn half_word(rest: &str) -> bool {
    let mut chars = rest.chars();
    chars.next().is_some_and(char::is_lowercase)
        && chars.next().is_some_and(|c| c == ' ' || c == '-')
        && chars.next().is_some_and(char::is_uppercase)
}

/// The word at the end of a text, with periods, hyphens and apostrophes inside of it.
fn last_word(before: &str) -> &str {
    let inside = |c: char| {
        !c.is_whitespace()
            && !matches!(c, '(' | '[' | '{' | '"' | '«' | '»' | '“' | '„' | '”' | '‚' | '（' | ',')
    };
    let start = before.char_indices().rev().take_while(|&(_, c)| inside(c)).last();
    let word = start.map_or("", |(at, _)| &before[at..]);
    word.trim_start_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '№' | '§'))
}

/// The letters at the beginning of a text.
fn first_word(rest: &str) -> &str {
    let end = rest.char_indices().take(AHEAD).find(|&(_, c)| !is_word(c));
    let long = || rest.char_indices().nth(AHEAD).map_or(rest.len(), |(at, _)| at);
    &rest[..end.map_or_else(long, |(at, _)| at)]
}

fn is_word(c: char) -> bool {
    c.is_alphabetic() || super::characters::extends(c)
}

/// The digits at the beginning of a text.
fn first_number(rest: &str) -> &str {
    let digits = rest.bytes().take(8).take_while(u8::is_ascii_digit).count();
    &rest[..digits]
}

/// Parts of one or two letters with periods between them: `U.S`, `J.R.R`, `Ph.D`.
fn is_acronym(word: &str) -> bool {
    word.split('.').all(|part| {
        let count = part.chars().take(3).count();
        (1..=2).contains(&count) && part.chars().all(char::is_alphabetic)
    })
}

/// A word that may stand in place of a number: `IV`, `A`.
fn is_roman_or_letter(word: &str) -> bool {
    let roman = word.chars().all(|c| matches!(c, 'I' | 'V' | 'X' | 'L' | 'C' | 'D' | 'M'));
    !word.is_empty() && roman && word != "I" || word.len() == 1 && word != "A" && word != "I"
}

/// Words of names that look like articles: `J. De Vries`.
fn is_particle(word: &str) -> bool {
    matches!(
        word,
        "De" | "Van"
            | "Der"
            | "Den"
            | "Le"
            | "La"
            | "Di"
            | "Da"
            | "El"
            | "Al"
            | "Von"
            | "Du"
            | "Des"
    ) || matches!(word, "Del" | "Ten" | "Ter" | "Dos" | "Lo" | "Las" | "Los" | "San")
}
