//! The codes of languages: ISO 639-1, ISO 639-3, and those of models.

use std::str::SplitWhitespace;

/// The ISO 639-1 codes, each with its ISO 639-3 codes: first the one of the model NLLB-200, then others, of which some are
/// those of single languages of a group.
const CODES: &str = "
    af afr|ak aka twi|am amh|an arg|ar arb ara acm acq aeb ajp apc ars ary arz arq|as asm|av ava|ay ayr aym|az azj aze|ba bak|
    be bel|bg bul|bm bam|bn ben|bo bod tib|br bre|bs bos|ca cat|ce che|co cos|cs ces cze|cv chv|cy cym wel|da dan|de deu ger|
    dv div|dz dzo|ee ewe|el ell gre|en eng|eo epo|es spa|et est ekk|eu eus baq|fa pes fas per prs|ff fuv ful|fi fin|fj fij|
    fo fao|fr fra fre|fy fry|ga gle|gd gla|gl glg|gn grn|gu guj|ha hau|he heb iw|hi hin|hr hrv|ht hat|hu hun|hy hye arm|
    id ind|ig ibo|is isl ice|it ita|ja jpn|jv jav jw|ka kat geo|kg kon|ki kik|kk kaz|km khm|kn kan|ko kor|ks kas|ku kmr kur|
    ky kir|la lat|lb ltz|lg lug|li lim|ln lin|lo lao|lt lit|lv lvs lav|mg plt mlg|mi mri mao|mk mkd mac|ml mal|mn khk mon|
    mr mar|ms zsm msa may|mt mlt|my mya bur|nb nob no nor|ne npi nep|nl nld dut|nn nno|ns nso|ny nya|oc oci|om gaz orm|
    or ory ori|pa pan|pl pol|ps pbt pus|pt por|qu quy que|rn run|ro ron rum|ru rus|rw kin|sa san|sc srd|sd snd|sg sag|
    si sin|sk slk slo|sl slv|sm smo|sn sna|so som|sq als sqi alb|sr srp|ss ssw|st sot|su sun|sv swe|sw swh swa|ta tam|te tel|
    tg tgk|th tha|ti tir|tk tuk|tl tgl fil|tn tsn|tr tur|ts tso|tt tat|ug uig|uk ukr|ur urd|uz uzn uzb|vi vie|wo wol|xh xho|
    yi ydd yid|yo yor|zh zho chi cmn|zu zul";

/// The ISO 639-1 code of a language, or its ISO 639-3 code if it has no shorter one.
///
/// `code` may be either of them or the code of a model: `fr`, `fra`, `fra_Latn`, `fr_XX` and `fr-CA` are `fr`. A code that
/// is in no list is returned without its script and region.
///
/// ```
/// use simdformer_documents::sentences::language_code;
/// assert_eq!(language_code("fra_Latn"), "fr");
/// assert_eq!(language_code("zh_CN"), "zh");
/// assert_eq!(language_code("ceb"), "ceb");
/// ```
#[must_use]
pub fn language_code(code: &str) -> &str {
    let primary = primary(code);
    entry(primary).and_then(|mut codes| codes.next()).unwrap_or(primary)
}

/// Which of a model's languages a code names, whatever kind of code it is: of NLLB-200 (`fra_Latn`), of M2M100 (`fr`), of
/// mBART (`fr_XX`) or of OPUS-MT (`fra`). `None` if the model does not have the language.
///
/// A code that the model has is returned as it is. Of several, such as `zho_Hans` and `zho_Hant`, it is the one with the
/// script of `code`, if that has one, and otherwise the first in the list.
///
/// ```
/// use simdformer_documents::sentences::model_language;
/// assert_eq!(model_language("fr", ["eng_Latn", "fra_Latn"]), Some("fra_Latn"));
/// assert_eq!(model_language("fra", ["en_XX", "fr_XX"]), Some("fr_XX"));
/// assert_eq!(model_language("fra_Latn", ["en", "fr"]), Some("fr"));
/// assert_eq!(model_language("zh-Hant", ["zho_Hans", "zho_Hant"]), Some("zho_Hant"));
/// assert_eq!(model_language("cy", ["en", "fr"]), None);
/// ```
pub fn model_language<'l>(
    code: &str,
    languages: impl IntoIterator<Item = &'l str>,
) -> Option<&'l str> {
    let known = entry(primary(code));
    let script = code.split_once(['_', '-']).map(|(_, script)| script);
    let mut found: Option<(u8, &str)> = None;
    for language in languages {
        if language == code {
            return Some(language);
        }
        let own = primary(language);
        let place = match &known {
            Some(codes) => codes.clone().position(|known| known.eq_ignore_ascii_case(own)),
            None => primary(code).eq_ignore_ascii_case(own).then_some(0),
        };
        if let Some(place) = place {
            let same_script =
                script.is_some() && language.split_once(['_', '-']).map(|(_, s)| s) == script;
            // `arb_Arab` is one of the first two codes of `ar` in the list; `acm_Arab` is another.
            let score = 4 * u8::from(own == primary(code))
                + 2 * u8::from(same_script)
                + u8::from(place < 2);
            if found.is_none_or(|(best, _)| score > best) {
                found = Some((score, language));
            }
        }
    }
    found.map(|(_, language)| language)
}

/// Whether two codes name one language, and no different scripts or regions: `en` agrees with `en-US` and `eng_Latn`, and
/// `en-GB` does not agree with `en-US`.
pub(crate) fn codes_agree(one: &str, other: &str) -> bool {
    let subtag = |code: &'_ str, is: fn(&str) -> bool| {
        let mut tags = code.split(['_', '-']).skip(1);
        tags.find(|tag| is(tag)).map(str::to_ascii_lowercase)
    };
    let agree = |is| match (subtag(one, is), subtag(other, is)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    // mBART writes `XX` for any region.
    let is_region = |tag: &str| tag.len() == 3 || tag.len() == 2 && tag != "XX";
    language_code(one).eq_ignore_ascii_case(language_code(other))
        && agree(|tag| tag.len() == 4)
        && agree(is_region)
}

/// A code without its script and region.
fn primary(code: &str) -> &str {
    code.split(['_', '-']).next().unwrap_or(code)
}

/// The codes of the language that has this one.
fn entry(primary: &str) -> Option<SplitWhitespace<'static>> {
    CODES
        .split('|')
        .map(str::split_whitespace)
        .find(|codes| codes.clone().any(|known| known.eq_ignore_ascii_case(primary)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_agree_without_regard_to_their_form() {
        for (one, other, expected) in [
            ("en", "EN-us", true),
            ("eng_Latn", "en-US", true),
            ("en_XX", "en-GB", true),
            ("en-GB", "en-US", false),
            ("zh-Hant", "zho_Hans", false),
            ("zh-Hant-TW", "zh-TW", true),
            ("es-419", "es-ES", false),
            ("fr", "en", false),
        ] {
            assert_eq!(codes_agree(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn no_code_is_in_two_entries() {
        let mut all: Vec<&str> = CODES.split('|').flat_map(str::split_whitespace).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
