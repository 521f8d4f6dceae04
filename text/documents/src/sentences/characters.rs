//! The characters that end sentences, and those around them.

/// What a run of terminators is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terminator {
    /// One `.`: the end of a sentence, of an abbreviation, of an ordinal, or a decimal point.
    Period,
    /// `...` or `…`
    Ellipsis,
    /// `!`, `?`, or both, also in other scripts where a space follows.
    Mark,
    /// The full stop of a script, which needs no space after it: `。`, `।`, `።`
    Full,
}

/// The kind of one character that may end a sentence.
pub(super) fn terminator(c: char) -> Option<Terminator> {
    Some(match c {
        '.' => Terminator::Period,
        '…' | '‥' => Terminator::Ellipsis,
        // The last four are Arabic, Urdu, Armenian and Syriac.
        '!' | '?' | '‼' | '‽' | '⁇' | '⁈' | '⁉' | '\u{37e}' | '؟' | '۔' | '։' | '܀'..='܂' => {
            Terminator::Mark
        }
        // East Asia; Devanagari and its neighbors; Ethiopic; Tibetan; Burmese; Khmer; Mongolian; Santali; Meetei;
        // Javanese; Balinese.
        '。' | '｡' | '．' | '！' | '？' | '।' | '॥' | '።' | '፧' | '፨' | '།' | '༎' | '။' | '។'
        | '៕' | '᠃' | '᠉' | '᱾' | '᱿' | '꯫' | '꧈' | '꧉' | '᭞' | '᭟' => {
            Terminator::Full
        }
        _ => return None,
    })
}

/// What stands directly after a terminator and still belongs to the sentence. `“` closes a quotation in German, `«` in
/// Danish: after a terminator without a space they close.
pub(super) fn closes(c: char) -> bool {
    closes_only(c)
        || matches!(c, '"' | '\'' | '“' | '‘' | '«' | '‹' | '＂' | '״')
        || matches!(c, '¹' | '²' | '³' | '⁰' | '⁴'..='⁹')
}

/// What closes and never opens.
pub(super) fn closes_only(c: char) -> bool {
    matches!(
        c,
        ')' | ']'
            | '}'
            | '”'
            | '’'
            | '»'
            | '›'
            | '」'
            | '』'
            | '）'
            | '】'
            | '》'
            | '〉'
            | '〕'
            | '］'
    ) || matches!(c, '｝' | '〗' | '｣')
}

/// A quotation mark of any script, opening or closing.
pub(super) fn is_quote(c: char) -> bool {
    matches!(
        c,
        '"' | '\''
            | '“'
            | '”'
            | '„'
            | '‟'
            | '‘'
            | '’'
            | '‚'
            | '«'
            | '»'
            | '‹'
            | '›'
            | '＂'
            | '״'
    ) || matches!(c, '「' | '」' | '『' | '』' | '｢' | '｣')
}

/// What may stand before the first word of a sentence, quotation marks aside.
pub(super) fn opens(c: char) -> bool {
    matches!(c, '(' | '[' | '{' | '¿' | '¡' | '（' | '【' | '《' | '〈' | '〔' | '［')
        || is_dash(c)
        || is_bullet(c)
}

/// A dash, as before a line of dialogue.
pub(super) fn is_dash(c: char) -> bool {
    matches!(c, '-' | '–' | '—' | '―' | '‒' | '−')
}

/// A mark of a list.
pub(super) fn is_bullet(c: char) -> bool {
    matches!(c, '•' | '*' | '·' | '▪' | '‣' | '◦' | '●' | '#' | '_')
}

/// What cannot begin a sentence.
pub(super) fn continues(c: char) -> bool {
    matches!(
        c,
        ',' | ';'
            | ':'
            | '、'
            | '，'
            | '；'
            | '：'
            | '،'
            | '؛'
            | '·'
            | '၊'
            | '፣'
            | '፤'
            | '፥'
            | '/'
            | '='
    )
}

/// Chinese characters and kana: words without spaces between them.
pub(super) fn is_han_or_kana(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
        || matches!(c, '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{323af}' | '々' | '〆')
}

/// Hiragana.
pub(super) fn is_hiragana(c: char) -> bool {
    matches!(c, '\u{3041}'..='\u{309f}')
}

/// Thai.
pub(super) fn is_thai(c: char) -> bool {
    matches!(c, '\u{e01}'..='\u{e5b}')
}

/// Letters of Arabic or Hebrew: one letter before a period is an abbreviation.
pub(super) fn is_arabic_or_hebrew(c: char) -> bool {
    matches!(c, '\u{5d0}'..='\u{5ea}' | '\u{620}'..='\u{64a}' | '\u{66e}'..='\u{6d3}' | '\u{6fa}'..='\u{6ff}')
}

/// Georgian.
pub(super) fn is_georgian(c: char) -> bool {
    matches!(c, '\u{10d0}'..='\u{10ff}')
}

/// A mark that is drawn with the character before it. A cut before it would change that character.
pub(super) fn extends(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5bd}' | '\u{5bf}' | '\u{5c1}' | '\u{5c2}')
        || matches!(c, '\u{610}'..='\u{61a}' | '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{6d6}'..='\u{6dc}')
        || is_brahmic_mark(c)
        || matches!(c, '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{200c}' | '\u{200d}' | '\u{20d0}'..='\u{20f0}')
        || matches!(c, '\u{302a}'..='\u{302f}' | '\u{3099}' | '\u{309a}' | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}')
        || matches!(c, '\u{ff9e}' | '\u{ff9f}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0020}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Vowel signs and other marks of the scripts of India, Sri Lanka, Tibet and South-East Asia. The nine blocks from
/// Devanagari to Malayalam have the same layout.
fn is_brahmic_mark(c: char) -> bool {
    let code = u32::from(c);
    match code {
        0x900..=0xd7f => {
            let at = code & 0x7f;
            at <= 3
                || (0x3a..=0x4f).contains(&at) && at != 0x3d
                || (0x55..=0x57).contains(&at)
                || at == 0x62
                || at == 0x63
        }
        0xdca..=0xddf | 0xe31 | 0xe33..=0xe3a | 0xe47..=0xe4e => true,
        0xeb1
        | 0xeb3..=0xebc
        | 0xec8..=0xece
        | 0xf35
        | 0xf37
        | 0xf39
        | 0xf71..=0xf84
        | 0xf8d..=0xfbc => true,
        0x102b..=0x103e | 0x1056..=0x1059 | 0x17b4..=0x17d3 | 0x17dd => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_belong_to_the_character_before_them() {
        for text in ["e\u{301}", "नि", "ก่", "မြ", "ខ្", "தி", "క్", "👍🏽"]
        {
            let mut chars = text.chars();
            assert!(chars.next().is_some_and(|c| !extends(c)), "{text}");
            assert!(chars.all(extends), "{text}");
        }
        for c in "abcéяαאبनกမខதక한漢か👍 .,'".chars() {
            assert!(!extends(c), "{c}");
        }
    }

    #[test]
    fn what_ends_a_sentence_does_not_open_one() {
        for c in ('\u{0}'..='\u{1ffff}').filter(|&c| terminator(c).is_some()) {
            assert!(!opens(c) && !closes(c) && !continues(c) && !c.is_alphanumeric(), "{c}");
        }
    }
}
