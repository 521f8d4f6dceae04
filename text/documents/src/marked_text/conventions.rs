//! How projects write placeholders: the table that finds them.

use super::scanners::{self, Place};
use std::ops::Range;

/// A way to write a placeholder, an address or a piece of code.
#[derive(Clone, Copy, Debug)]
pub struct Convention {
    /// What it is.
    pub name: &'static str,
    /// Whose documentation has it.
    pub projects: &'static str,
    /// How it looks. Each of them is found as a whole.
    pub examples: &'static [&'static str],
    /// The bytes at which [`find`](Self::find) looks.
    begins: &'static [u8],
    find: Find,
}

/// How a piece is found.
#[derive(Clone, Copy, Debug)]
enum Find {
    /// From the first text to the next second one, on one line.
    Between(&'static str, &'static str),
    Scan(fn(&Place<'_>) -> Option<Range<usize>>),
}

impl Convention {
    const fn between(
        name: &'static str,
        projects: &'static str,
        examples: &'static [&'static str],
        (open, close): (&'static str, &'static str),
    ) -> Self {
        let (begins, _) = open.as_bytes().split_at(1);
        Self { name, projects, examples, begins, find: Find::Between(open, close) }
    }

    const fn scan(
        name: &'static str,
        projects: &'static str,
        examples: &'static [&'static str],
        begins: &'static [u8],
        find: fn(&Place<'_>) -> Option<Range<usize>>,
    ) -> Self {
        Self { name, projects, examples, begins, find: Find::Scan(find) }
    }

    fn find(&self, place: &Place<'_>) -> Option<Range<usize>> {
        match self.find {
            Find::Between(open, close) => scanners::between(place, open, close),
            Find::Scan(find) => find(place),
        }
    }
}

/// All conventions. [`placeholders`](super::placeholders) finds what any of them finds.
#[must_use]
pub fn conventions() -> &'static [Convention] {
    &CONVENTIONS
}

const CONVENTIONS: [Convention; 28] = [
    Convention::scan(
        "names in braces",
        "ICU, .NET, Android, Symfony, Vue, Python, Perl, gettext (`python-brace-format`, `perl-brace-format`, `csharp-format`)",
        &[
            "{name}",
            "{0}",
            "{}",
            "{user.name}",
            "{0:N2}",
            "{0,-10:F2}",
            "{0:dd MMM yyyy}",
            "{name!r:>10}",
            "{'@'}",
            "{$INTERPOLATION}",
        ],
        b"{",
        scanners::braces,
    ),
    Convention::scan(
        "names in double and triple braces",
        "i18next, Angular, Symfony (Twig), Django, Jinja, Handlebars, Mustache",
        &[
            "{{name}}",
            "{{- name}}",
            "{{ user.name | date:'short' }}",
            "{{count, number}}",
            "{{{raw}}}",
        ],
        b"{",
        scanners::double_braces,
    ),
    Convention::scan(
        "names in braces after a sign",
        "Rails (`%`, Ruby `#`), Angular (`$localize`), shells, JavaScript, Java (`$`), Blade (`@`)",
        &["%{name}", "#{user.name}", "${name}", "@{name}", "@{{ name }}"],
        b"$%#@",
        scanners::signed_braces,
    ),
    Convention::scan(
        "messages with cases",
        "ICU, Angular, FormatJS, Flutter",
        &[
            "{n, plural, one {# file} other {# files}}",
            "{g, select, male {he} female {she} other {they}}",
            "{n, number, ::currency/EUR}",
            "{d, date, short}",
        ],
        b"{",
        scanners::message,
    ),
    Convention::between(
        "template tags",
        "Django, Jinja, Twig, Liquid",
        &["{% if x %}", "{%- endif -%}"],
        ("{%", "%}"),
    ),
    Convention::between("template comments", "Django, Jinja, Twig", &["{# note #}"], ("{#", "#}")),
    Convention::between("raw output", "Laravel (Blade)", &["{!! $name !!}"], ("{!!", "!!}")),
    Convention::between(
        "names in double brackets",
        "Polymer, Thymeleaf, MediaWiki",
        &["[[name]]", "[[ user.name ]]"],
        ("[[", "]]"),
    ),
    Convention::between(
        "embedded code",
        "Rails (ERB), EJS, Lodash, ASP.NET",
        &["<%= user.name %>", "<% if x %>", "<%- name -%>"],
        ("<%", "%>"),
    ),
    Convention::between(
        "processing instructions",
        "PHP, XML",
        &["<?php echo $name; ?>", "<?= $name ?>"],
        ("<?", "?>"),
    ),
    Convention::between(
        "comments",
        "HTML, WordPress (blocks)",
        &["<!-- more -->", "<!--nextpage-->"],
        ("<!--", "-->"),
    ),
    Convention::scan(
        "formats of printf",
        "C, Android, Qt (`%n`), WordPress, PHP, Python (`%(name)s`), Rails (`%<name>d`), Objective-C (`%@`), gettext (`c-format`, `php-format`)",
        &[
            "%s",
            "%1$s",
            "%d",
            "%5.2f",
            "%-5ld",
            "%'.2f",
            "%(name)s",
            "%(count)d",
            "%<name>d",
            "%@",
            "%1$@",
            "%n",
            "%Ln",
            "%%",
        ],
        b"%",
        |place| scanners::format(place.bytes(), place.at, place.last),
    ),
    Convention::scan(
        "numbers after a sign",
        "Qt, KDE, gettext (`qt-format`, `kde-format`)",
        &["%1", "%2", "%L1", "%99"],
        b"%",
        scanners::numbered,
    ),
    Convention::scan(
        "names between equal signs",
        "Symfony, Windows (`%name%`), WordPress (`###NAME###`, `%%name%%`), i18next before 2 (`__name__`), Boost (`%1%`), Ant (`@name@`), StringTemplate (`$name$`), Mailchimp (`*|NAME|*`), ColdFusion (`#name#`)",
        &[
            "%name%",
            "%product_title%",
            "%user.name%",
            "%%sitename%%",
            "__count__",
            "#name#",
            "###USERNAME###",
            "$name$",
            "@name@",
            "@@name@@",
            "~name~",
            "*|NAME|*",
            "<<name>>",
            "%1%",
        ],
        b"%$#@_~^|*<",
        scanners::wrapped,
    ),
    Convention::scan(
        "a name after a sign",
        "Laravel (`:name`), gettext (`sh-format`), PHP, Perl (`$name`), Drupal (`@name`, `%name`), MediaWiki (`$1`), Vue (`@:key`), Android (`@string/key`)",
        &[
            ":name",
            ":Name",
            ":NAME",
            ":smile:",
            "$name",
            "$user->name",
            "$user.name",
            "$list[0]",
            "$1",
            "@name",
            "@:message.key",
            "@.lower:key",
            "@:(key)",
            "@string/app_name",
            "%name",
            "#name",
        ],
        b":$@%#",
        scanners::sigil,
    ),
    Convention::scan(
        "calls after a sign",
        "i18next (nesting), Vue, shells, MSBuild",
        &["$t(common.name)", "$t(key, {\"count\": {{n}} })", "$tc('key', 2)", "$(name)"],
        b"$",
        scanners::nested_call,
    ),
    Convention::scan(
        "tags",
        "Android (`xliff:g`), Angular (`<x/>`), i18next, FormatJS (`<0>`, `<b>`), HTML",
        &["<x/>", "<x id=\"INTERPOLATION\"/>", "<br/>"],
        b"<",
        |place| scanners::tag(place.bytes(), place.at),
    ),
    Convention::scan(
        "shortcodes",
        "WordPress, BBCode",
        &["[gallery ids=\"1,2\"]", "[url=https://example.org]", "[/caption]"],
        b"[",
        scanners::shortcode,
    ),
    Convention::scan(
        "intervals of a plural",
        "Laravel, Symfony",
        &["[1,19]", "]1,Inf[", "[20,*]", "[-Inf,0]"],
        b"[]",
        scanners::interval,
    ),
    Convention::scan(
        "escapes and paths",
        "C, Java, JavaScript, Android, gettext; Windows",
        &["\\n", "\\\"", "\\u00e9", "\\x41", "C:\\Users\\name", "\\\\server\\share"],
        b"\\",
        scanners::backslash,
    ),
    Convention::scan(
        "character references",
        "HTML, XML",
        &["&nbsp;", "&#160;", "&#xA0;"],
        b"&",
        |place| scanners::entity(place.bytes(), place.at),
    ),
    Convention::scan("code", "Markdown", &["`ls -l`", "``a`b``"], b"`", |place| {
        scanners::quoted(place.bytes(), place.at)
    }),
    Convention::scan(
        "addresses",
        "RFC 3986",
        &["https://example.org/a?b=c#d", "ftp://example.org"],
        b":",
        |place| scanners::url(place.text, place.at),
    ),
    Convention::scan(
        "addresses without a scheme",
        "browsers",
        &["www.example.org/a"],
        b"wW",
        scanners::www,
    ),
    Convention::scan("mail addresses", "RFC 5322", &["me.you+x@mail.example.org"], b"@", |place| {
        scanners::mail(place.bytes(), place.at)
    }),
    Convention::scan(
        "identifiers",
        "programs",
        &["max_size", "MAX_SIZE", "user_name()"],
        b"_",
        scanners::identifier,
    ),
    Convention::scan("calls", "programs", &["open()", "std::open()"], b"(", |place| {
        scanners::call(place.bytes(), place.at)
    }),
    Convention::scan(
        "words with a sign",
        "programs, people",
        &["C#", "C++", "F#"],
        b"#+",
        scanners::signed_word,
    ),
];

/// Every match of every convention; they may overlap.
pub(super) fn scan(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut of_byte: [Vec<&Convention>; 128] = [const { Vec::new() }; 128];
    for convention in conventions() {
        for &byte in convention.begins {
            if let Some(list) = of_byte.get_mut(usize::from(byte)) {
                list.push(convention);
            }
        }
    }
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let listed = of_byte.get(usize::from(bytes[at])).map_or(&[][..], Vec::as_slice);
        let place = Place { text, at, last: found.last().map_or(0, |last| last.end) };
        let pieces = listed.iter().filter_map(|convention| convention.find(&place));
        match pieces.min_by_key(|piece| (piece.start, std::cmp::Reverse(piece.end))) {
            Some(piece) => {
                at = piece.end.max(at + 1);
                found.push(piece);
            }
            None => at += 1,
        }
    }
    found
}
