"""Writes lines.jsonl: 500 lines of mixed Unicode, one JSON string a line, the same every time.

    python lines.py

What they hold: real sentences, words of 60 scripts, composed and decomposed letters, Hangul taken
apart, full width, ligatures, emoji with joiners, flags and skin tones, invisible characters, spaces
of every kind, runs that tie, what looks like a special token, one line of ten thousand characters,
nothing at all, unassigned code points, and characters drawn at random.
"""

import json
import random
import unicodedata
from pathlib import Path

SENTENCES = """
The quick brown fox jumps over the lazy dog.
Attention is all you need, isn't it?
It's 3.14159 km (approx. 10,000 ft.) -- or so they say; "quoted", 'single' & <tagged>.
You can't, won't and shouldn't: we'll see, they've left, I'm here, he'd go.
Dr. O'Neill paid $1,234.56 on 2024-02-29 at 23:59:59 UTC+02:00!
https://example.org/a/b?c=d&e=%20f#g user.name+tag@example.co.uk
Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë au delà des îles.
« Où est-ce qu'elle habite ? » demanda-t-il à l'étudiant.
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. STRASSE straße
El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío. ¿Qué? ¡Sí!
Luís argüia à Júlia que «brações, fé, chá, óxido, pôr, zângão» eram palavras do português.
Ma la volpe, col suo balzo, ha raggiunto il quieto Fido. Perché? È così.
Pchnąć w tę łódź jeża lub ośm skrzyń fig.
Příliš žluťoučký kůň úpěl ďábelské ódy.
Árvíztűrő tükörfúrógép, egy hűtlen vejét fülöncsípő.
Pijamalı hasta yağız şoföre çabucak güvendi. İSTANBUL ılık IŞIK
Съешь же ещё этих мягких французских булок, да выпей чаю.
Чуєш їх, доцю, га? Кумедна ж ти, прощайся без ґольфів!
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΟΔΥΣΣΕΥΣ ὁ Ὀδυσσεύς
עטלף אבק נס דרך מזגן שהתפוצץ כי חם. שָׁלוֹם
صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت
ایک ٹیلے پر واقع مزار خواجہ فرید الدین گنج شکر
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले।
আমার সোনার বাংলা, আমি তোমায় ভালোবাসি।
யாமறிந்த மொழிகளிலே தமிழ்மொழி போல் இனிதாவது எங்கும் காணோம்.
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน
다람쥐 헌 쳇바퀴에 타고파. 키스의 고유조건은 입술끼리 만나야 하고
いろはにほへと ちりぬるを わかよたれそ つねならむ。カタカナ、ひらがな、漢字。
我能吞下玻璃而不伤身体。視野無限廣,窗外有藍天。
Tôi có thể ăn thủy tinh mà không hại gì. Đường Nguyễn Huệ
Ko wai koe? E hea tō kāinga? Aloha kākou, ʻOkina!
Þú ert að læra íslensku. Æ, ö, ð, þ.
""".strip().split("\n")

# A first and a last code point of letters of 60 scripts.
SCRIPTS = {
    "latin extended": (0x0100, 0x024F), "ipa": (0x0250, 0x02AF), "greek": (0x0391, 0x03C9),
    "cyrillic": (0x0400, 0x045F), "armenian": (0x0561, 0x0586), "hebrew": (0x05D0, 0x05EA),
    "arabic": (0x0621, 0x064A), "syriac": (0x0710, 0x072F), "thaana": (0x0780, 0x07A5),
    "nko": (0x07CA, 0x07EA), "samaritan": (0x0800, 0x0815), "mandaic": (0x0840, 0x0858),
    "devanagari": (0x0904, 0x0939), "bengali": (0x0985, 0x09B9), "gurmukhi": (0x0A05, 0x0A39),
    "gujarati": (0x0A85, 0x0AB9), "oriya": (0x0B05, 0x0B39), "tamil": (0x0B85, 0x0BB9),
    "telugu": (0x0C05, 0x0C39), "kannada": (0x0C85, 0x0CB9), "malayalam": (0x0D05, 0x0D39),
    "sinhala": (0x0D85, 0x0DC6), "thai": (0x0E01, 0x0E33), "lao": (0x0E81, 0x0EB3),
    "tibetan": (0x0F40, 0x0F6C), "myanmar": (0x1000, 0x102A), "georgian": (0x10D0, 0x10F0),
    "hangul jamo": (0x1100, 0x11FF), "ethiopic": (0x1200, 0x1357), "cherokee": (0x13A0, 0x13F5),
    "canadian": (0x1401, 0x1676), "ogham": (0x1681, 0x169A), "runic": (0x16A0, 0x16EA),
    "tagalog": (0x1700, 0x1711), "khmer": (0x1780, 0x17B3), "mongolian": (0x1820, 0x1877),
    "limbu": (0x1900, 0x191E), "tai le": (0x1950, 0x1974), "new tai lue": (0x1980, 0x19AB),
    "buginese": (0x1A00, 0x1A16), "tai tham": (0x1A20, 0x1A54), "balinese": (0x1B05, 0x1B33),
    "sundanese": (0x1B83, 0x1BA0), "lepcha": (0x1C00, 0x1C23), "ol chiki": (0x1C5A, 0x1C7D),
    "glagolitic": (0x2C30, 0x2C5E), "coptic": (0x2C80, 0x2CE4), "tifinagh": (0x2D30, 0x2D67),
    "hiragana": (0x3041, 0x3096), "katakana": (0x30A1, 0x30FA), "bopomofo": (0x3105, 0x312F),
    "han": (0x4E00, 0x4FFF), "yi": (0xA000, 0xA48C), "vai": (0xA500, 0xA60C),
    "javanese": (0xA984, 0xA9B2), "hangul": (0xAC00, 0xD7A3), "linear b": (0x10000, 0x1003D),
    "gothic": (0x10330, 0x1034A), "deseret": (0x10400, 0x1044F), "adlam": (0x1E900, 0x1E943),
}

ODD = [
    "～", "a～b ~ c", "ＦＵＬＬ　ｗｉｄｔｈ　１２３", "ﬁne oﬀer ﬃ ﬆ ㎏ ㍿ ½ ² ① Ⅳ ™ …",
    "ｶﾞｷﾞｸﾞ ﾊﾟ ガ", "👩‍👩‍👧‍👦 family", "🇫🇷🇩🇪🇯🇵", "👍🏽👋🏿✌🏻", "❤️ ☎︎ ☺", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "a\ufeffb", "\ufeffstart",
    "so\u00adft hy\u00adphen", "no\u00a0break\u202fspace", "ideo\u3000graphic", "tab\tand\ttab", "line\r\nbreak",
    "line\nbreak\n\nagain\n", "vertical\x0bform\x0cfeed", "zero\u200bwidth\u200cnon\u200djoiner", "\u2028line\u2029par",
    "a\x00b", "bell\x07 esc\x1b[0m del\x7f nel\x85", "\u061carabic \u202eoverride\u202c mark", " leading", "trailing ",
    "  two   three    four  ", "\u3000\u3000both\u3000", "\u00a0\u00a0", " \t \n ", "", " ", "   ", "\t", "\n", "\u200b",
    "▁", "▁▁▁", "a▁b", "▁ a ▁", " ▁ ", "......", "................................", "----", "--------", "--- --- ---",
    "A" * 4, "A" * 31, "a" * 64, "ab" * 33, "abc" * 21, "aaaa aaaa aaaaa", "!!!!!!!", "?!?!?!", "=====", "____", "****",
    "00000", "1111111", "hahahahaha", "ΑΑΑΑ", "ーーーーー", "哈哈哈哈哈哈", "ㅋㅋㅋㅋ", "、、、、", "......a......", "x", "é", "字", "🙂",
    "</s>", "<s>", "<unk>", "<pad>", "<mask>", "</s></s>", "a</s>b", "a </s> b", "<s> a <s>", "x<unk>y", " <pad> ", "<PAD>",
    ">>fra<<", ">>fra<< ", " >>fra<<", ">>fra<< Hello", ">>fra<<Hello", "Hello >>fra<< there", ">>x", ">>", "<<", ">><<", ">>a<<>>b<<",
    ">>fr a<< b", ">>\n<<x", "</s>>>fra<< x", "<unk>  >>fra<<x",
    "<extra_id_0>", "a <extra_id_0> b <extra_id_1> c", "<extra_id_0><extra_id_1>", "<extra_id_99>", "<extra_id_100>", "<extra_id_>",
    "<2de>", "<2de> Hello", "__en__", "__fr__ x", "x__en__y", "__xx__", "eng_Latn", "eng_Latn x", "fra_Latnx", "en_XX", "fr_XX a en_XX",
    "[CLS]", "[SEP] x", "a [MASK] b", "[UNK]", "[PAD]x", "[cls]", "<|endoftext|>", "<|startoftranscript|>", "<|0.00|>", "<|en|> hi",
    "<0x41>", "<0xE2><0x96>", "a<0x0A>b", "⁇", " ⁇ ", "�", "a�b", "<", ">", "<<<>>>", "</s", "/s>", "<user>", "a<user>b", "<sep> <user>",
    "<USER>", "sym▁bol", "xsymbolx", "symbolsymbol", "sym bol", "foo▁bar", "foo bar", "naïve symbol", "＜user＞", "$$math$$",
    "İ", "ı", "ǅ", "ß ẞ", "ﬀ", "ς σ Σ", "Å Å Å", "ḍ̇ ḍ̇ ḍ̇", "ö ö", "ñ ñ", "가 각 까", "한국어", "각각", "क़ क़", "ｱ", "ﷺ", "㈱ ㌔",
    "１２３", "٣٤٥", "๓๔", "Ⅷ", "ⅷ", "㊗", "🄰", "𝐀𝐁𝐂", "𝔞𝔟", "ℌ", "ℵ", "K Å Ω", "µ μ", "ſ", "ʼn ŉ", "Ǆ", "ﬅ",
    "it's", "IT'S", "it’s", "don't 've 're 'll 'd 'm 't 's", "'S 'T", "''", "``", "“q” ‘q’ „q‚ ‹q›", "a—b–c-d‐e‑f−g", "a/b\\c|d",
    "#hash @at $dollar %percent ^caret &and *star", "C++ C# .NET", "e.g., i.e., etc.", "a.b.c", "1.2.3", "1,000,000", "1 000 000", "+1 (555) 010-9999",
    "\ue000\uf8ff private", "\U000f0000", "\u0378\u0379 unassigned", "\U0001fffe", "\ufdd0\ufffe", "\U0010ffff", "\u0300", "\u0300\u0301\u0302 a", "a" + "\u0301" * 40, "q̣̇̈",
]


def word(rng, first, last):
    letters = [chr(c) for c in range(first, last + 1) if unicodedata.category(chr(c))[0] == "L"]
    return "".join(rng.choice(letters) for _ in range(rng.randint(2, 8)))


def main():
    rng = random.Random(15)
    lines = list(SENTENCES)
    for first, last in SCRIPTS.values():
        lines.append(" ".join(word(rng, first, last) for _ in range(rng.randint(2, 6))))
    lines += ODD
    lines += [unicodedata.normalize("NFD", s) for s in SENTENCES if unicodedata.normalize("NFD", s) != s]
    lines += [s.upper() for s in SENTENCES[:8]]
    everyday = " ".join(SENTENCES[:5]).split()
    lines.append("".join(rng.choice("abcdefghijklmnopqrstuvwxyzàéîöüABC0123456789.,-") for _ in range(10_000)))
    lines.append(" ".join(rng.choice(everyday) for _ in range(300)))
    scripts = list(SCRIPTS.values())
    while len(lines) < 500:
        kind = rng.randrange(4)
        if kind == 0:  # Words of several scripts, and odd things between them.
            parts = [rng.choice([word(rng, *rng.choice(scripts)), rng.choice(everyday), rng.choice(ODD)]) for _ in range(rng.randint(2, 7))]
            lines.append(rng.choice([" ", "", "  "]).join(parts))
        elif kind == 1:  # Anything that is not a surrogate.
            lines.append("".join(chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)])) for _ in range(rng.randint(1, 24))))
        elif kind == 2:  # Printable ASCII.
            lines.append("".join(chr(rng.randrange(32, 127)) for _ in range(rng.randint(1, 60))))
        else:  # Few letters: many segmentations of the same score.
            lines.append("".join(rng.choice("aeno .▁-") for _ in range(rng.randint(1, 40))))
    assert len(lines) == 500, len(lines)
    path = Path(__file__).parent / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
