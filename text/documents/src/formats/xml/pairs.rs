//! Pairs of a source and a target, for translators: TMX and XLIFF. A source whose target is missing or not translated is a
//! segment, and its place is the target.

use super::reader::{paragraph, wrong};
use super::runs::Pair;
use super::styles::attribute;
use super::vocabulary::PAIRS;
use crate::error::Error;
use crate::formats::format::Format;
use crate::formats::inline::Found;
use crate::formats::places::{Places, Writing};
use crate::sentences::{codes_agree, language_code};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use std::ops::Range;

/// Elements in each other.
const DEEPEST: usize = 256;

/// Finds the segments. `target`: the language of the translation, if it is known.
///
/// # Errors
/// It is not well-formed, or the language of a target is not known.
pub(crate) fn parse(
    source: &str,
    start: usize,
    format: Format,
    target: Option<&str>,
    places: &mut Places<'_>,
) -> Result<(), Error> {
    let name = format!("the {format} document");
    let mut reader = Reader::from_str(&source[start..]);
    let mut file =
        File { source, name: &name, places, unit: None, languages: Languages::default() };
    file.languages.target = target.map(str::to_owned);
    let mut open: Vec<Element> = Vec::new();
    let mut at = start;
    loop {
        let event = reader.read_event();
        let end = start + reader.buffer_position() as usize;
        let range = at..end;
        let fault = match event {
            Ok(Event::Eof) if open.is_empty() => return Ok(()),
            Ok(Event::Eof) => Some(("the end of each element", "the end of the file".to_owned())),
            Ok(Event::Start(_)) if open.len() == DEEPEST => {
                Some(("at most 256 elements in each other", "another one".to_owned()))
            }
            Ok(Event::Start(tag)) => {
                let element = Element::new(&tag, range, open.last());
                let fault = file.start(format, &tag, &element);
                open.push(element);
                fault
            }
            Ok(Event::Empty(tag)) => {
                let element = Element::new(&tag, range, open.last());
                let fault = file.start(format, &tag, &element);
                if fault.is_none() {
                    file.end(format, &element, end..end)?;
                }
                fault
            }
            Ok(Event::End(_)) => {
                if let Some(element) = open.pop() {
                    file.end(format, &element, range)?;
                }
                None
            }
            Ok(Event::DocType(declaration)) if declaration.contains(['[', '<']) => Some((
                "no entities that the file defines",
                "a DOCTYPE with declarations".to_owned(),
            )),
            Ok(_) => None,
            Err(error) => Some(("well-formed XML", error.to_string())),
        };
        if let Some((expected, found)) = fault {
            return Err(wrong(source, at, &name, expected, found));
        }
        at = end;
    }
}

/// An element that is open.
struct Element {
    local: String,
    /// Its begin tag.
    tag: Range<usize>,
    /// What is in it is not translated.
    closed: bool,
    /// It lies directly in a unit or in a variant, not in something else there: another translation of the same source, or a
    /// match.
    part: bool,
}

impl Element {
    fn new(tag: &BytesStart<'_>, range: Range<usize>, around: Option<&Self>) -> Self {
        let closed = match attribute(tag, "translate").as_deref() {
            Some("no") => true,
            Some("yes") => false,
            _ => around.is_some_and(|around| around.closed),
        };
        let is_unit = |one: &Self| matches!(&*one.local, "tu" | "tuv" | "trans-unit" | "segment");
        let part = around.is_some_and(is_unit);
        Self { local: tag.local_name().as_ref().to_owned(), tag: range, closed, part }
    }
}

#[derive(Default)]
struct Languages {
    /// That of the sources, of TMX.
    source: Option<String>,
    /// That of the translation, as the caller names it.
    target: Option<String>,
    /// That of the first target, as the file names it.
    other: Option<String>,
    /// The tag of XLIFF that does not name the language of the targets, and the attribute that would.
    unnamed: Option<(Range<usize>, &'static str)>,
    /// Whether it is XLIFF 2.
    two: bool,
}

/// A pair that is open.
#[derive(Default)]
struct Unit {
    /// The begin tag of the segment of XLIFF 2.
    tag: Range<usize>,
    /// Its state.
    state: Option<String>,
    approved: bool,
    /// The whole source and what is between its tags.
    source: Option<(Range<usize>, Range<usize>)>,
    /// After what a target is inserted: an end tag.
    last: Range<usize>,
    target: Option<Target>,
    /// The language of its source, of TMX.
    language: Option<String>,
    /// The variants, of TMX: their language, begin tag, and the text.
    variants: Vec<Variant>,
}

struct Target {
    whole: Range<usize>,
    inside: Range<usize>,
    /// Its begin tag.
    tag: Range<usize>,
    state: Option<String>,
}

struct Variant {
    language: String,
    tag: Range<usize>,
    /// The whole `<seg>` and what is between its tags.
    text: Option<(Range<usize>, Range<usize>)>,
}

struct File<'s, 'n, 'p, 'q> {
    source: &'s str,
    name: &'n str,
    places: &'p mut Places<'q>,
    /// The pair that is open.
    unit: Option<Unit>,
    languages: Languages,
}

impl File<'_, '_, '_, '_> {
    fn raw(&self, range: &Range<usize>) -> &str {
        self.source.get(range.clone()).unwrap_or_default()
    }

    /// The begin of an element. What was expected and found, if it stands in the wrong place or lacks its language.
    fn start(
        &mut self,
        format: Format,
        tag: &BytesStart<'_>,
        element: &Element,
    ) -> Option<(&'static str, String)> {
        let value = |name| attribute(tag, name);
        let local = element.local.as_str();
        let new = match (format, local) {
            (Format::Tmx, "tu") => Unit { language: value("srclang"), ..Unit::default() },
            (Format::Xliff, "trans-unit") if !self.languages.two => {
                Unit { approved: value("approved").as_deref() == Some("yes"), ..Unit::default() }
            }
            (Format::Xliff, "segment") if self.languages.two => {
                Unit { tag: element.tag.clone(), state: value("state"), ..Unit::default() }
            }
            (Format::Tmx, "header") => {
                self.languages.source = value("srclang");
                return None;
            }
            (Format::Xliff, "xliff") => {
                self.languages.two = value("version").is_some_and(|two| two.starts_with('2'));
                let unnamed = self.languages.two && value("trgLang").is_none();
                self.languages.unnamed = unnamed.then(|| (element.tag.clone(), "trgLang"));
                return None;
            }
            (Format::Xliff, "file") if !self.languages.two => {
                let unnamed = value("target-language").is_none();
                self.languages.unnamed = unnamed.then(|| (element.tag.clone(), "target-language"));
                if !unnamed {
                    // What is inserted into the file before ends here.
                    self.places.insertions.push((element.tag.end, String::new()));
                }
                return None;
            }
            _ => {
                let unit = self.unit.as_mut().filter(|_| element.part)?;
                match (format, local) {
                    (Format::Tmx, "tuv") => {
                        let Some(language) = value("lang") else {
                            return Some(("a <tuv> with xml:lang", "one without it".to_owned()));
                        };
                        let tag = element.tag.clone();
                        unit.variants.push(Variant { language, tag, text: None });
                    }
                    (Format::Xliff, "target") => {
                        let tag = element.tag.clone();
                        let (whole, inside) = (tag.clone(), tag.end..tag.end);
                        unit.target = Some(Target { whole, inside, tag, state: value("state") });
                    }
                    _ => {}
                }
                return None;
            }
        };
        match self.unit {
            None => self.unit = Some(new),
            Some(_) => {
                return Some(("units that are not in each other", format!("<{local}> in one")));
            }
        }
        None
    }

    /// The end of an element, and its end tag, if it has one.
    fn end(&mut self, format: Format, element: &Element, tag: Range<usize>) -> Result<(), Error> {
        let whole = element.tag.start..tag.end;
        let inside = element.tag.end..tag.start;
        let local = element.local.as_str();
        let ends_unit = match (format, local) {
            (Format::Tmx, "tu") => true,
            (Format::Xliff, "trans-unit") => !self.languages.two,
            (Format::Xliff, "segment") => self.languages.two,
            _ => false,
        };
        if ends_unit && let Some(unit) = self.unit.take() {
            return match local {
                _ if element.closed => Ok(()),
                "tu" => self.end_memory_unit(&unit),
                "segment" => self.end_segment(&unit),
                _ => self.end_old_unit(&unit),
            };
        }
        let Some(unit) = self.unit.as_mut().filter(|_| element.part) else { return Ok(()) };
        match (format, local) {
            (Format::Tmx, "seg") => {
                if let Some(variant) = unit.variants.last_mut() {
                    variant.text = Some((whole, inside));
                }
            }
            (Format::Tmx, "tuv") | (Format::Xliff, "seg-source") => unit.last = tag,
            (Format::Xliff, "source") => {
                unit.last = tag;
                unit.source = Some((whole, inside));
            }
            (Format::Xliff, "target") => {
                if let Some(target) = &mut unit.target {
                    (target.whole, target.inside) = (whole, inside);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A unit of XLIFF 1.2.
    fn end_old_unit(&mut self, unit: &Unit) -> Result<(), Error> {
        const STATE: &str = " state=\"needs-review-translation\"";
        let Some((source, inside)) = &unit.source else { return Ok(()) };
        if inside.is_empty() || unit.approved && unit.target.is_some() {
            return Ok(());
        }
        match &unit.target {
            Some(target) => {
                let open = matches!(target.state.as_deref(), Some("new" | "needs-translation"));
                if !open && !self.raw(&target.inside).trim().is_empty() {
                    return Ok(());
                }
                let tag = self.tag(&target.tag, &["state", "state-qualifier"], STATE);
                let end = self.end_tag(&target.tag);
                self.push(inside, target.whole.clone(), [tag, end])
            }
            None if unit.last.is_empty() => Ok(()),
            None => {
                let prefix = prefix_of(self.raw(source)).to_owned();
                let begin = format!(
                    "{}{}<{prefix}target{STATE}>",
                    self.raw(&unit.last),
                    self.indentation(source.start)
                );
                self.push(inside, unit.last.clone(), [begin, format!("</{prefix}target>")])
            }
        }
    }

    /// A segment of XLIFF 2.
    fn end_segment(&mut self, unit: &Unit) -> Result<(), Error> {
        let Some((source, inside)) = &unit.source else { return Ok(()) };
        let state = unit.state.as_deref();
        let empty = unit.target.as_ref().is_none_or(|one| self.raw(&one.inside).trim().is_empty());
        if inside.is_empty()
            || !matches!(state, None | Some("initial"))
            || state.is_none() && !empty
        {
            return Ok(());
        }
        let tag = self.tag(&unit.tag, &["state", "subState"], " state=\"translated\"");
        match &unit.target {
            Some(target) => {
                let between = self.raw(&(unit.tag.end..target.whole.start));
                let begin = [&tag, between, &self.tag(&target.tag, &[], "")].concat();
                let end = self.end_tag(&target.tag);
                self.push(inside, unit.tag.start..target.whole.end, [begin, end])
            }
            None => {
                let prefix = prefix_of(self.raw(source)).to_owned();
                let between = self.raw(&(unit.tag.end..source.end));
                let indentation = self.indentation(source.start);
                let begin = format!("{tag}{between}{indentation}<{prefix}target>");
                self.push(inside, unit.tag.start..source.end, [begin, format!("</{prefix}target>")])
            }
        }
    }

    /// A unit of TMX.
    fn end_memory_unit(&mut self, unit: &Unit) -> Result<(), Error> {
        let stated = unit.language.as_deref().or(self.languages.source.as_deref());
        let stated = stated.filter(|language| *language != "*all*");
        let with_text = || unit.variants.iter().filter(|one| one.text.is_some());
        let Some(source) = closest(with_text(), stated) else { return Ok(()) };
        let Some((_, inside)) = source.text.clone().filter(|(_, inside)| !inside.is_empty()) else {
            return Ok(());
        };
        let others =
            unit.variants.iter().filter(|one| !codes_agree(&one.language, &source.language));
        let wanted = self.languages.target.clone();
        let named = self.languages.other.clone();
        let found = closest(others, wanted.as_deref().or(named.as_deref()));
        if named.is_none() {
            self.languages.other = found.map(|one| one.language.clone());
        }
        match found {
            Some(Variant { text: Some((whole, text)), .. }) => {
                if !self.raw(text).trim().is_empty() {
                    return Ok(());
                }
                // `<seg/>` and `<seg></seg>`.
                let name = name_of(self.raw(whole)).to_owned();
                self.push(&inside, whole.clone(), [format!("<{name}>"), format!("</{name}>")])
            }
            Some(_) => Ok(()),
            None => {
                // As the file names it: the caller's code may have no region.
                let Some(language) = named.as_deref().or(wanted.as_deref().map(language_code))
                else {
                    let expected = "a unit with two languages, or the language of the translation";
                    let found = format!("a unit in {:?} alone", source.language);
                    return Err(wrong(self.source, source.tag.start, self.name, expected, found));
                };
                let begin = format!(
                    "{}{}<tuv xml:lang=\"{language}\"><seg>",
                    self.raw(&unit.last),
                    self.indentation(source.tag.start)
                );
                self.push(&inside, unit.last.clone(), [begin, "</seg></tuv>".to_owned()])
            }
        }
    }

    /// A pair whose source stands in a range, and whose target is written in place of another.
    fn push(
        &mut self,
        source: &Range<usize>,
        range: Range<usize>,
        around: [String; 2],
    ) -> Result<(), Error> {
        if let Some((segment, runs)) = paragraph(self.source, source, self.name, &PAIRS)? {
            self.name_target()?;
            let found = Found { range, segment, markup: Vec::new() };
            self.places.push(found, Writing::Pair(Box::new(Pair { runs, around })));
        }
        Ok(())
    }

    /// The first target of XLIFF: the tag above it must name the language, in XLIFF 2, or it may, in XLIFF 1.2.
    fn name_target(&mut self) -> Result<(), Error> {
        let Some((tag, attribute)) = self.languages.unnamed.take() else { return Ok(()) };
        match self.languages.target.as_deref().map(language_code) {
            Some(language) => {
                let insertion = format!(" {attribute}=\"{language}\"");
                self.places.insertions.push((tag.end - 1, insertion));
            }
            None if self.languages.two => {
                let expected = "an attribute trgLang, or the language of the translation";
                return Err(wrong(self.source, tag.start, self.name, expected, "neither"));
            }
            None => {}
        }
        Ok(())
    }

    /// The white space between the line end and a place.
    fn indentation(&self, at: usize) -> &str {
        let before = self.raw(&(0..at));
        let white = &before[before.trim_end_matches([' ', '\t']).len()..];
        let from = before.len() - white.len();
        match before[..from].strip_suffix('\n') {
            Some(rest) if rest.ends_with('\r') => &before[from - 2..],
            Some(_) => &before[from - 1..],
            None => "",
        }
    }

    /// A begin tag without some attributes, with others.
    fn tag(&self, range: &Range<usize>, without: &[&str], with: &str) -> String {
        let raw = self.raw(range);
        let mut reader = Reader::from_str(raw);
        let (Ok(Event::Start(tag)) | Ok(Event::Empty(tag))) = reader.read_event() else {
            return raw.to_owned();
        };
        let mut out = super::styles::canonical_tag(&tag, without, false);
        out.insert_str(out.len() - 1, with);
        out
    }

    fn end_tag(&self, range: &Range<usize>) -> String {
        format!("</{}>", name_of(self.raw(range)))
    }
}

/// The first variant in a language, or the first one in the same language with or without a region or a script. Without a
/// language the first one.
fn closest<'v>(
    mut variants: impl Iterator<Item = &'v Variant> + Clone,
    language: Option<&str>,
) -> Option<&'v Variant> {
    let Some(language) = language else { return variants.next() };
    let mut near = variants.clone().filter(|one| codes_agree(language, &one.language));
    variants.find(|one| one.language.eq_ignore_ascii_case(language)).or_else(|| near.next())
}

/// The name of the element that a text begins with.
fn name_of(raw: &str) -> &str {
    let inside = raw.trim_start_matches('<');
    inside.split(|c: char| c.is_ascii_whitespace() || matches!(c, '>' | '/')).next().unwrap_or("")
}

/// The prefix of its name, with the colon.
fn prefix_of(raw: &str) -> &str {
    let name = name_of(raw);
    name.rfind(':').map_or("", |colon| &name[..=colon])
}
