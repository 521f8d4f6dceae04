//! Hostile files of sound, made from small ones: fields of sizes and counts replaced, tables repeated, atoms nested, tags and
//! tables of megabytes. Each is an error or samples, in 10 MB beyond the file and in a time that is linear in it.

use super::cpu_time::cpu_time;
use super::{MEMORY, most_bytes};
use simdformer_speech::{AudioReader, Error, InputOptions};
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_testing::{directories, effort};
use std::fs;
use std::time::Duration;

/// CPU time of a small file, and of a megabyte more.
const TIME: Duration = Duration::from_millis(if cfg!(debug_assertions) { 2000 } else { 200 });
const TIME_PER_MEGABYTE: Duration =
    Duration::from_millis(if cfg!(debug_assertions) { 1500 } else { 150 });
/// CPU time to decode a second of sound of 16,000 samples. Without optimization, Opus of 48 kHz takes 44 ms, whatever the
/// number of seconds.
const TIME_PER_SECOND: Duration =
    Duration::from_millis(if cfg!(debug_assertions) { 44 } else { 4 });

/// A name and a file.
type Hostile = (String, Vec<u8>);

fn golden(name: &str) -> Vec<u8> {
    fs::read(directories::golden("audio").join(name)).unwrap()
}

fn u32_be(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Numbers in place of `found`.
fn others(found: u32) -> Vec<u32> {
    let mut all =
        vec![0, 1, 7, found.wrapping_sub(1), found.wrapping_add(1), 0x7fff_ffff, u32::MAX];
    all.retain(|&number| number != found);
    all.sort_unstable();
    all.dedup();
    all
}

/// `bytes` with other numbers in a field of `width` bytes.
fn fields(
    name: &str,
    bytes: &[u8],
    (at, width, big): (usize, usize, bool),
    out: &mut Vec<Hostile>,
) {
    let field = &bytes[at..at + width];
    let found = field.iter().enumerate().fold(0, |sum, (i, &byte)| {
        let place = if big { width - 1 - i } else { i };
        sum | u32::from(byte) << (8 * place)
    });
    for number in others(found) {
        let mut file = bytes.to_vec();
        for i in 0..width {
            let place = if big { width - 1 - i } else { i };
            file[at + i] = (number >> (8 * place)) as u8;
        }
        if file != bytes {
            out.push((format!("{name}, {number:#x} at {at}"), file));
        }
    }
}

fn atom(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32 + 8).to_be_bytes(), &kind[..], content].concat()
}

/// The atoms of `bytes`: their types, places and ends.
fn atoms(bytes: &[u8], from: usize, end: usize) -> Vec<([u8; 4], usize, usize)> {
    let (mut at, mut all) = (from, Vec::new());
    while at + 8 <= end {
        let last = at + u32_be(bytes, at) as usize;
        all.push((bytes[at + 4..at + 8].try_into().unwrap(), at, last));
        at = last;
    }
    all
}

const CONTAINERS: [&[u8; 4]; 9] =
    [b"moov", b"trak", b"mdia", b"minf", b"stbl", b"udta", b"mvex", b"moof", b"traf"];

/// All atoms, also those in others, with the places of their parents.
fn all_atoms(bytes: &[u8]) -> Vec<([u8; 4], usize, usize, Vec<usize>)> {
    fn walk(
        bytes: &[u8],
        (from, end): (usize, usize),
        parents: &[usize],
        out: &mut Vec<([u8; 4], usize, usize, Vec<usize>)>,
    ) {
        for (kind, at, last) in atoms(bytes, from, end) {
            out.push((kind, at, last, parents.to_vec()));
            if CONTAINERS.contains(&&kind) {
                walk(bytes, (at + 8, last), &[parents, &[at]].concat(), out);
            }
        }
    }
    let mut out = Vec::new();
    walk(bytes, (0, bytes.len()), &[], &mut out);
    out
}

/// `bytes` with others in place of a range; the atoms around it get their new sizes.
fn spliced(bytes: &[u8], (at, end): (usize, usize), parents: &[usize], new: &[u8]) -> Vec<u8> {
    let mut file = [&bytes[..at], new, &bytes[end..]].concat();
    for &parent in parents {
        let size = u32_be(bytes, parent) as usize + new.len() - (end - at);
        file[parent..parent + 4].copy_from_slice(&(size as u32).to_be_bytes());
    }
    file
}

fn mp4() -> Vec<Hostile> {
    let mut all = Vec::new();
    const FRAGMENTS: [&str; 4] =
        ["aac-fragments.m4a", "aac-recorder.mp4", "opus-recorder.mp4", "aac-dash.m4a"];
    for name in [["aac.m4a", "aac-index-first.m4a", "alac.m4a", "opus.mp4"], FRAGMENTS].concat() {
        let bytes = golden(name);
        for (kind, at, end, parents) in all_atoms(&bytes) {
            let named = format!("{name}, {}", kind.escape_ascii());
            fields(&named, &bytes, (at, 4, true), &mut all);
            let counts: &[usize] = match &kind {
                b"stts" | b"stsc" | b"stco" | b"stsd" => &[12, 16],
                b"stsz" => &[12, 16, 20],
                b"mdhd" | b"mvhd" => &[20, 24],
                b"tkhd" => &[20],
                b"trun" => &[8, 12, 16, 20],
                b"tfhd" | b"trex" => &[8, 12, 16, 20, 24],
                b"sidx" => &[12, 24, 32],
                _ => &[],
            };
            for &field in counts.iter().filter(|&&field| at + field + 4 <= end) {
                fields(&format!("{named} field"), &bytes, (at + field, 4, true), &mut all);
            }
            if matches!(name, "aac-index-first.m4a" | "aac-recorder.mp4") && &kind != b"mdat" {
                let twice = bytes[at..end].repeat(2);
                all.push((format!("{named} twice"), spliced(&bytes, (at, end), &parents, &twice)));
                let many = bytes[at..end].repeat(500);
                all.push((
                    format!("{named} 500 times"),
                    spliced(&bytes, (at, end), &parents, &many),
                ));
                all.push((format!("no {named}"), spliced(&bytes, (at, end), &parents, &[])));
            }
        }
    }
    let nested = (0..5000).fold(Vec::new(), |inside, _| {
        // Sizes are set below: a copy for each level would take long.
        let mut inside: Vec<u8> = inside;
        inside.extend(*b"\0\0\0\0moov");
        inside
    });
    let length = nested.len();
    let mut nested = nested;
    for (i, head) in nested.chunks_exact_mut(8).enumerate() {
        head[..4].copy_from_slice(&((length - 8 * i) as u32).to_be_bytes());
    }
    let start = golden("aac-index-first.m4a");
    let begin = u32_be(&start, 0) as usize;
    all.push(("moov in moov".into(), [&start[..begin], &nested].concat()));
    let empty = atom(b"meta", &[]).repeat(9000);
    all.push(("9,000 meta".into(), [&start[..begin], &empty, &start[begin..]].concat()));
    all
}

/// The checksum of an Ogg page.
fn seal(page: &mut [u8]) {
    page[22..26].fill(0);
    let sum = page.iter().fold(0_u32, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte) << 24, |sum, _| {
            if sum >> 31 == 1 { sum << 1 ^ 0x04c1_1db7 } else { sum << 1 }
        })
    });
    page[22..26].copy_from_slice(&sum.to_le_bytes());
}

/// The pages of an Ogg file.
fn pages(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut at, mut all) = (0, Vec::new());
    while at + 27 <= bytes.len() {
        let table = &bytes[at + 27..][..usize::from(bytes[at + 26])];
        let length = 27 + table.len() + table.iter().map(|&n| usize::from(n)).sum::<usize>();
        all.push(bytes[at..at + length].to_vec());
        at += length;
    }
    all
}

fn page(flags: u8, (serial, sequence): (u32, u32), packets: &[&[u8]]) -> Vec<u8> {
    let mut table = Vec::new();
    for packet in packets {
        table.extend(std::iter::repeat_n(255, packet.len() / 255));
        table.push((packet.len() % 255) as u8);
    }
    let mut page = [b"OggS\0".as_slice(), &[flags], &[0; 8]].concat();
    page.extend([serial.to_le_bytes(), sequence.to_le_bytes(), [0; 4]].concat());
    page.push(u8::try_from(table.len()).unwrap());
    page.extend([table, packets.concat()].concat());
    seal(&mut page);
    page
}

/// Bits from the least significant one on.
#[derive(Default)]
struct Bits(Vec<u8>, usize);

impl Bits {
    fn put(&mut self, value: u32, bits: usize) {
        for i in 0..bits {
            if self.1.is_multiple_of(8) {
                self.0.push(0);
            }
            if u64::from(value) >> i.min(63) & 1 == 1 {
                *self.0.last_mut().unwrap() |= 1 << (self.1 % 8);
            }
            self.1 += 1;
        }
    }
}

const COMMENT: &[u8] = b"\x03vorbis\0\0\0\0\0\0\0\0\x01";

fn identification() -> Vec<u8> {
    let mut packet = b"\x01vorbis\0\0\0\0\x01".to_vec();
    packet.extend(16_000_u32.to_le_bytes());
    packet.extend([0; 12]);
    packet.extend([8 << 4 | 8, 1]);
    packet
}

/// An Ogg file with these codebooks, and a floor and a residue that do not use them.
fn vorbis(count: u32, codebook: &dyn Fn(&mut Bits)) -> Vec<u8> {
    vorbis_with_floor(count, codebook, &[])
}

/// The same with these points of the floor, one a partition.
fn vorbis_with_floor(count: u32, codebook: &dyn Fn(&mut Bits), points: &[u32]) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.put(count - 1, 8);
    for _ in 0..count {
        bits.put(0x56_4342, 24);
        codebook(&mut bits);
    }
    bits.put(0, 6 + 16); // a time
    bits.put(0, 6); // a floor of type 1
    bits.put(1, 16);
    bits.put(points.len() as u32, 5);
    bits.put(0, 4 * points.len());
    if !points.is_empty() {
        bits.put(0, 3 + 2 + 8); // a class of one point, without a codebook
    }
    bits.put(0, 2);
    bits.put(8, 4);
    for &point in points {
        bits.put(point, 8);
    }
    bits.put(0, 6 + 16 + 3 * 24 + 6 + 8 + 3 + 1); // a residue
    bits.put(0, 6 + 16 + 1 + 1 + 2 + 3 * 8); // a mapping
    bits.put(0, 6 + 1 + 16 + 16 + 8); // a mode
    bits.put(1, 1);
    let setup = [b"\x05vorbis".as_slice(), &bits.0].concat();
    let sound: [&[u8]; 3] = [&[0, 0]; 3];
    let pages = [
        page(2, (7, 0), &[&identification()]),
        page(0, (7, 1), &[COMMENT, &setup]),
        page(4, (7, 2), &sound),
    ];
    pages.concat()
}

/// A codebook whose codes have one length.
fn ordered(bits: &mut Bits, dimensions: u32, log: u32) {
    bits.put(dimensions, 16);
    bits.put(1 << log, 24);
    bits.put(1, 1);
    bits.put(log - 1, 5);
    bits.put(1 << log, log as usize + 1);
}

fn ogg() -> Vec<Hostile> {
    let mut all = Vec::new();
    for name in ["vorbis.ogg", "vorbis-48000.ogg", "opus.ogg", "flac.ogg"] {
        let whole = golden(name);
        let split = pages(&whole);
        for (number, at) in [(0, 5), (0, 14), (0, 18), (0, 26), (1, 26), (1, 27), (1, 28), (2, 26)]
        {
            for byte in [0, 1, 2, 4, 0x7f, 0xff] {
                let mut changed = split.clone();
                changed[number][at] = byte;
                seal(&mut changed[number]);
                all.push((format!("{name}, page {number}, {byte} at {at}"), changed.concat()));
            }
        }
        // The headers, with right checksums.
        for (number, from, step) in [(0, 28, 1), (1, 40, 61)] {
            for at in (from..split[number].len()).step_by(step).take(60) {
                let mut changed = split.clone();
                let byte = changed[number][at];
                changed[number][at] = if at.is_multiple_of(2) { !byte } else { 0xff };
                seal(&mut changed[number]);
                all.push((format!("{name}, header {number}, {at}"), changed.concat()));
            }
        }
        for number in 0..3 {
            let mut changed = split.clone();
            changed.insert(number, split[number].clone());
            all.push((format!("{name}, page {number} twice"), changed.concat()));
            changed = split.clone();
            changed.remove(number);
            all.push((format!("{name}, no page {number}"), changed.concat()));
        }
    }
    let lookup = |bits: &mut Bits| {
        bits.put(1, 4);
        bits.put(0, 32 + 32 - 32);
        bits.put(0, 32);
        bits.put(0, 4 + 1 + 1);
    };
    for count in [1, 15, 100, 255, 256] {
        let file = vorbis(count, &|bits| {
            ordered(bits, 31, 17);
            lookup(bits);
        });
        all.push((format!("vorbis, {count} codebooks of 16 MB"), file));
        let file = vorbis(count, &|bits| {
            ordered(bits, 1, 17);
            bits.put(0, 4);
        });
        all.push((format!("vorbis, {count} codebooks of 131072 codes"), file));
    }
    all.push((
        "vorbis, codes of more than 32 bits".into(),
        vorbis(1, &|bits| {
            bits.put(1, 16);
            bits.put(8, 24);
            bits.put(1, 1);
            bits.put(31, 5);
            bits.put(0, 4 * 4);
            bits.put(8, 4);
            bits.put(0, 4);
        }),
    ));
    all.push((
        "vorbis, a code that is none".into(),
        vorbis(1, &|bits| {
            bits.put(1, 16);
            bits.put(3, 24);
            bits.put(0, 1 + 1);
            bits.put(0, 3 * 5);
            bits.put(0, 4);
        }),
    ));
    // Streams that begin and never end; headers for ever.
    let begins: Vec<u8> =
        (0..20_000).flat_map(|serial| page(2, (serial, 0), &[&identification()])).collect();
    all.push(("ogg, 20,000 streams".into(), begins));
    let comments = |pages: u32| -> Vec<u8> {
        let entries = b"\x03\0\0\0a=b".repeat(9000);
        let count = (pages * 9000).to_le_bytes();
        let first = [b"\x03vorbis\0\0\0\0".as_slice(), &count, &entries].concat();
        let mut out = page(2, (7, 0), &[&identification()]);
        for sequence in 0..pages {
            // Packets that go on: the last segment has 255 bytes.
            let content = if sequence == 0 { &first } else { &entries };
            let segments = content.len() / 255;
            let mut one = page(u8::from(sequence > 0), (7, sequence + 1), &[]);
            one[26] = segments as u8;
            one.truncate(27);
            one.extend(vec![255; segments]);
            one.extend(&content[..255 * segments]);
            seal(&mut one);
            out.extend(one);
        }
        out
    };
    all.push(("vorbis, 2 MB of comments".into(), comments(32)));
    all
}

/// The bytes of the name and of the length at a place of a Matroska file, and the length.
fn ebml_head(bytes: &[u8], at: usize) -> (usize, usize, Option<usize>) {
    let name = bytes[at].leading_zeros() as usize + 1;
    let width = bytes[at + name].leading_zeros() as usize + 1;
    let field = &bytes[at + name..at + name + width];
    let all = field.iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
    let mask = u64::MAX >> (64 - 7 * width);
    (name, width, (all & mask != mask).then_some((all & mask) as usize))
}

/// The places of all elements up to the second cluster, with those of a track and a cluster.
fn ebml_places(bytes: &[u8]) -> Vec<usize> {
    let (mut at, mut all) = (0, Vec::new());
    while at + 12 <= bytes.len() {
        all.push(at);
        let (name, width, length) = ebml_head(bytes, at);
        let inside = matches!(
            bytes[at..at + name],
            [0x18, 0x53, 0x80, 0x67]
                | [0x16, 0x54, 0xae, 0x6b]
                | [0xae]
                | [0xe1]
                | [0xa0]
                | [0x1f, 0x43, 0xb6, 0x75]
                | [0x15, 0x49, 0xa9, 0x66]
        );
        at += name + width + if inside { 0 } else { length.unwrap_or(0) };
    }
    all
}

/// An element with a length of eight bytes.
fn element(name: &[u8], content: &[u8]) -> Vec<u8> {
    [name, &(1 << 56 | content.len() as u64).to_be_bytes(), content].concat()
}

fn ebml() -> Vec<Hostile> {
    let mut all = Vec::new();
    for name in ["opus.webm", "opus-live.webm", "vorbis.webm", "aac.mkv", "pcm-live.mkv"] {
        let bytes = golden(name);
        for at in ebml_places(&bytes).into_iter().take(60) {
            let (id, width, length) = ebml_head(&bytes, at);
            let place = at + id;
            for value in [0, 1, 7, 126, 127] {
                let mut file = bytes.clone();
                file[place] = 0x80 | value;
                all.push((format!("{name}, a length of {value} at {at}"), file));
            }
            let content = place + width..place + width + length.unwrap_or(0);
            for number in [0, 5, 1 << 24, 1 << 40, (1 << 56) - 1_u64] {
                let head = (1 << 56 | number).to_be_bytes();
                let file = [&bytes[..place], &head, &bytes[place + width..]].concat();
                all.push((format!("{name}, a length of {number:#x} at {at}"), file));
            }
            let file = [&bytes[..at], &bytes[at..content.end].repeat(200), &bytes[at..]].concat();
            all.push((format!("{name}, 200 times {at}"), file));
            for (number, byte) in [0, 1, 0x7f, 0xff].into_iter().enumerate() {
                let mut file = bytes.clone();
                let Some(found) = file.get_mut(content.start + number) else { continue };
                *found = byte;
                all.push((format!("{name}, {byte:#x} in {at}"), file));
            }
        }
    }
    let start = ebml_start();
    let setup = vorbis(15, &|bits| {
        ordered(bits, 31, 17);
        bits.put(0, 4);
    });
    let setup = pages(&setup)[1][28 + COMMENT.len() + 1..].to_vec();
    let setup = &setup[setup.windows(7).position(|part| part == b"\x05vorbis").unwrap()..];
    let identification = identification();
    let headers = [
        &[2, identification.len() as u8, COMMENT.len() as u8],
        &identification[..],
        COMMENT,
        setup,
    ]
    .concat();
    let track = [
        element(&[0xd7], &[1]),
        element(&[0x73, 0xc5], &[1]),
        element(&[0x83], &[2]),
        element(&[0x86], b"A_VORBIS"),
        element(&[0x63, 0xa2], &headers),
        element(
            &[0xe1],
            &[element(&[0x9f], &[1]), element(&[0xb5], &16e3_f32.to_be_bytes())].concat(),
        ),
    ]
    .concat();
    let file = [
        start,
        element(b"\x16\x54\xae\x6b", &element(&[0xae], &track)),
        element(b"\x1f\x43\xb6\x75", &[]),
    ];
    all.push(("webm, codebooks of 131072 codes".into(), file.concat()));
    all
}

/// The head of a Matroska file and of a segment, and what a segment begins with.
fn ebml_start() -> Vec<u8> {
    let bytes = golden("opus-live.webm");
    let tracks = bytes.windows(4).position(|part| part == b"\x16\x54\xae\x6b").unwrap();
    bytes[..tracks].to_vec()
}

fn opus() -> Vec<Hostile> {
    let mut all = Vec::new();
    for name in ["opus.ogg", "opus-voice.ogg", "opus.webm", "opus.mp4"] {
        let bytes = golden(name);
        let head = if name == "opus.mp4" { &b"dOps"[..] } else { b"OpusHead" };
        let at = bytes.windows(head.len()).position(|part| part == head).unwrap() + head.len();
        for place in at..at + 12 {
            for byte in [0, 1, 2, 3, 8, 0x10, 0x7f, 0x80, 0xff] {
                let mut file = bytes.clone();
                file[place] = byte;
                if name.ends_with("ogg") {
                    let mut pages = pages(&file);
                    seal(&mut pages[0]);
                    file = pages.concat();
                }
                all.push((format!("{name}, {byte:#x} at {place}"), file));
            }
        }
    }
    all
}

fn wave64() -> Vec<Hostile> {
    let bytes = golden("wave64.w64");
    let mut all = Vec::new();
    for at in [16, 20, 56, 60, 64, 66, 68, 76, 78] {
        fields("wave64", &bytes, (at, 4, false), &mut all);
    }
    let chunk = [&b"junk\xf3\xac\xd3\x11\x8c\xd1\0\xc0\x4f\x8e\xdb\x8a"[..], &24_u64.to_le_bytes()]
        .concat();
    all.push((
        "wave64, chunks".into(),
        [&bytes[..40], &chunk.repeat(20_000), &bytes[40..]].concat(),
    ));
    all
}

fn flac_head() -> Vec<u8> {
    let mut out = b"fLaC\0\0\0\x22\x10\0\x10\0\0\0\0\0\0\0".to_vec();
    out.extend((16_000_u64 << 44 | 15 << 36 | 4096).to_be_bytes());
    out.extend([0; 16]);
    out
}

/// Blocks of metadata, then no frame.
fn flac_blocks(kind: u8, contents: &[Vec<u8>]) -> Vec<u8> {
    let mut out = flac_head();
    for (i, content) in contents.iter().enumerate() {
        out.push(kind | if i + 1 == contents.len() { 0x80 } else { 0 });
        out.extend(&(content.len() as u32).to_be_bytes()[1..]);
        out.extend(content);
    }
    out
}

fn flac() -> Vec<Hostile> {
    let whole = golden("flac.flac");
    let mut all = Vec::new();
    let mut at = 4;
    loop {
        fields("flac, a block", &whole, (at + 1, 3, true), &mut all);
        for kind in [0, 1, 2, 3, 4, 5, 6, 7, 126, 127] {
            let mut changed = whole.clone();
            changed[at] = changed[at] & 0x80 | kind;
            all.push((format!("flac, type {kind} at {at}"), changed));
        }
        let last = whole[at] & 0x80 != 0;
        at += 4 + u32::from_be_bytes([0, whole[at + 1], whole[at + 2], whole[at + 3]]) as usize;
        if last {
            break;
        }
    }
    for field in [8, 10, 12, 15, 18, 20] {
        fields("flac, STREAMINFO", &whole, (field, 2, true), &mut all);
    }
    for (kind, name) in [(2, "applications"), (5, "cue sheets"), (6, "pictures")] {
        for size in [0, 3, 4, 32, 400] {
            let content = vec![0xff; size];
            all.push((format!("flac, {name} of {size} bytes"), flac_blocks(kind, &[content])));
        }
    }
    all
}

fn riff_and_others() -> Vec<Hostile> {
    let mut all = Vec::new();
    for (name, big) in [("alaw.wav", false), ("mulaw.wav", false), ("aiff.aiff", true)] {
        let bytes = golden(name);
        fields(name, &bytes, (4, 4, big), &mut all);
        let mut at = 12;
        while at + 8 <= bytes.len() {
            let size: [u8; 4] = bytes[at + 4..at + 8].try_into().unwrap();
            let size = if big { u32::from_be_bytes(size) } else { u32::from_le_bytes(size) };
            fields(name, &bytes, (at + 4, 4, big), &mut all);
            if matches!(&bytes[at..at + 4], b"fmt " | b"COMM") {
                for field in (at + 8..at + 8 + size as usize - 1).step_by(2) {
                    fields(name, &bytes, (field, 2, big), &mut all);
                }
            }
            at += 8 + size as usize + size as usize % 2;
        }
    }
    for name in ["mp3.mp3", "mp3-mono-22050.mp3", "adts.aac"] {
        let bytes = golden(name);
        let start = bytes.windows(2).position(|two| two[0] == 0xff && two[1] & 0xe0 == 0xe0);
        for field in (start.unwrap()..).step_by(2).take(30) {
            fields(name, &bytes, (field, 2, true), &mut all);
        }
        let tag = |size: [u8; 4], flags: u8| [b"ID3\x04\0", &[flags][..], &size, &bytes].concat();
        for size in [[0; 4], [0, 0, 0, 1], [0, 0, 1, 0], [0x7f; 4], [0xff; 4]] {
            for flags in [0, 0x10, 0x40, 0x80, 0xff] {
                all.push((format!("{name}, a tag of {size:?}, {flags:#x}"), tag(size, flags)));
            }
        }
        all.push((
            format!("{name}, 1,000 tags"),
            [b"ID3\x04\0\0\0\0\0\0".repeat(1000), bytes].concat(),
        ));
    }
    all
}

/// A tag of `megabytes` with frames of this content before frames of silence.
fn id3(megabytes: usize, frame: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let count = (megabytes << 20) / (10 + body.len());
    let size = count * (10 + body.len());
    let mut out = b"ID3\x04\0\0".to_vec();
    out.extend([21, 14, 7, 0].map(|shift| (size >> shift & 0x7f) as u8));
    for _ in 0..count {
        out.extend([&frame[..], &[0, 0, 0, body.len() as u8, 0, 0], body].concat());
    }
    for _ in 0..20 {
        out.extend([0xff, 0xfb, 0x90, 0xc4]);
        out.resize(out.len() + 413, 0);
    }
    out
}

/// Files with `megabytes` of tags, comments, pictures or tables.
fn large(megabytes: usize) -> Vec<Hostile> {
    let bytes = megabytes << 20;
    let comments = |bytes: usize| {
        let count = ((bytes - 8) / 7) as u32;
        [&[0; 4][..], &count.to_le_bytes(), &b"\x03\0\0\0a=b".repeat(count as usize)].concat()
    };
    let table = |bytes: usize| -> Vec<u8> {
        let points = (bytes / 18) as u64;
        let point = |i: u64| [&(points - i).to_be_bytes()[..], &[0; 8], &[0, 16]].concat();
        (0..points).flat_map(point).collect()
    };
    let picture = |bytes: usize| {
        let data = vec![0x55; bytes];
        [&[0; 28][..], &(bytes as u32).to_be_bytes(), &data].concat()
    };
    let blocks = |one: &dyn Fn(usize) -> Vec<u8>| vec![one(1 << 20); megabytes];
    let mut all = vec![
        ("flac, comments".into(), flac_blocks(4, &blocks(&comments))),
        ("flac, a seek table".into(), flac_blocks(3, &[table(bytes.min((1 << 24) - 18))])),
        ("flac, pictures".into(), flac_blocks(6, &blocks(&picture))),
        ("flac, applications".into(), flac_blocks(2, &blocks(&|bytes| vec![b'a'; bytes]))),
        ("id3, titles".into(), id3(megabytes, b"TIT2", b"\0x")),
        ("id3, texts".into(), id3(megabytes, b"TXXX", b"\0a\0b")),
        ("id3 after a byte".into(), [&[0], &id3(megabytes, b"TIT2", b"\0x")[..]].concat()),
    ];
    // Elements of a Matroska file, which begin a segment or are in a track.
    let webm = golden("opus-live.webm");
    let start = ebml_start().len();
    for (name, id, part) in [
        ("positions", &b"\x11\x4d\x9b\x74"[..], element(b"\x4d\xbb", &[])),
        (
            "tags",
            b"\x12\x54\xc3\x67",
            element(b"\x73\x73", &element(b"\x67\xc8", &element(b"\x45\xa3", b"x"))),
        ),
        ("chapters", b"\x10\x43\xa7\x70", element(b"\x45\xb9", &element(b"\xb6", &[]))),
        ("cues", b"\x1c\x53\xbb\x6b", element(b"\xbb", &element(b"\xb3", &[1]))),
        ("attachments", b"\x19\x41\xa4\x69", element(b"\x61\xa7", &element(b"\x46\x6e", b"x"))),
        (
            "tracks",
            b"\x16\x54\xae\x6b",
            element(
                b"\xae",
                &[element(b"\xd7", &[1]), element(b"\x73\xc5", &[1]), element(b"\x86", b"A_OPUS")]
                    .concat(),
            ),
        ),
        ("mappings", b"\x16\x54\xae\x6b", element(b"\xae", &b"\x41\xe4\x80".repeat(10_000))),
        ("nothing", b"\xec", vec![0]),
    ] {
        let count = bytes / part.len();
        let list = element(id, &part.repeat(count));
        let file = [&webm[..start], &list, &webm[start..]].concat();
        all.push((format!("webm, {name}"), file));
    }
    // Blocks of 256 frames of no bytes, after those of the file.
    let block = b"\xa3\x85\x81\0\0\x04\xff".repeat(bytes / 7);
    all.push(("webm, frames of nothing".into(), [&webm[..], &block].concat()));
    let small = b"\xa3\x85\x81\0\0\0\x08".repeat(bytes / 7);
    all.push(("webm, small frames".into(), [&webm[..], &small].concat()));
    // Fragments after those of a file: of no packets, of many of one size, of one byte each.
    let recorder = golden("aac-recorder.mp4");
    let whole =
        |parts: &[Vec<u8>]| atom(b"moof", &[&[atom(b"mfhd", &[0; 8])], parts].concat().concat());
    let part = |run: &[u32]| {
        let run: Vec<u8> = run.iter().flat_map(|field| field.to_be_bytes()).collect();
        atom(b"traf", &[atom(b"tfhd", &[0, 2, 0, 0, 0, 0, 0, 1]), atom(b"trun", &run)].concat())
    };
    for (name, fragment) in [
        ("no packets", whole(&[])),
        ("packets without a size", whole(&[part(&[0, u32::MAX])])),
        ("packets of no bytes", whole(&[part(&[0x200, 1, 0])])),
        ("packets of a byte", whole(&[part(&[0x200, 1, 1])])),
        ("a long run", whole(&[part(&[&[0x200, 100_000][..], &[1; 100_000]].concat())])),
    ] {
        let file = [&recorder[..], &fragment.repeat(bytes / fragment.len())].concat();
        all.push((format!("mp4, fragments of {name}"), file));
    }
    // A second track, whose times and sizes have many entries.
    for (kind, entry) in [(b"stts", 8), (b"stsz", 4), (b"stsc", 12), (b"stco", 4)] {
        let count = bytes / entry;
        let mut content = vec![0; 4];
        content.extend((kind == b"stsz").then_some([0; 4]).into_iter().flatten());
        content.extend((count as u32).to_be_bytes());
        content.resize(content.len() + count * entry, 0);
        let table = atom(kind, &content);
        for second in [false, true] {
            let track = if second { "a second track" } else { "the track" };
            let name = format!("m4a, {} of {track}", kind.escape_ascii());
            all.push((name, with_table("aac-index-first.m4a", kind, &table, second)));
        }
    }
    let tag = |name: &[u8; 4]| atom(name, &atom(b"data", b"\0\0\0\x01\0\0\0\0x"));
    let list = atom(b"ilst", &tag(b"\xa9nam").repeat(bytes / 33));
    let meta = atom(
        b"meta",
        &[&[0; 4], &atom(b"hdlr", b"\0\0\0\0\0\0\0\0mdirappl\0\0\0\0\0\0\0\0\0\0")[..], &list]
            .concat(),
    );
    let start = golden("aac-index-first.m4a");
    let begin = u32_be(&start, 0) as usize;
    // Without the offsets of the sound, which do not matter.
    all.push(("m4a, tags".into(), [&start[..begin], &meta, &start[begin..]].concat()));
    let (_, at, end, _) = all_atoms(&start).into_iter().find(|atom| &atom.0 == b"moov").unwrap();
    let user = [&start[at + 8..end], &atom(b"udta", &meta)].concat();
    let file = [&start[..at], &atom(b"moov", &user), &start[end..]].concat();
    all.push(("m4a, tags in the index".into(), file));
    all
}

/// A file with another table in its track, or in a second one of an unknown codec.
fn with_table(name: &str, kind: &[u8; 4], table: &[u8], second: bool) -> Vec<u8> {
    let file = golden(name);
    let all = all_atoms(&file);
    let place = |kind: &[u8; 4]| all.iter().find(|atom| &atom.0 == kind).unwrap();
    let &(_, at, end, ref parents) = place(kind);
    if !second {
        return spliced(&file, (at, end), parents, table);
    }
    let changed = spliced(&file, (at, end), parents, table);
    let &(_, track, track_end, ref above) = place(b"trak");
    let grown = track_end + table.len() - (end - at);
    let mut other = changed[track..grown].to_vec();
    let codec = other.windows(4).position(|four| four == b"mp4a").unwrap();
    other[codec..codec + 4].copy_from_slice(b"xxxx");
    spliced(&file, (track_end, track_end), above, &other)
}

/// Reads all samples and returns their number.
fn count(audio: Result<AudioReader<'_>, Error>) -> Result<u64, Error> {
    let (mut audio, mut samples, mut count) = (audio?, vec![0.0; 4096], 0);
    loop {
        let read = audio.read(&mut samples)?;
        assert!(samples[..read].iter().all(|sample| sample.is_finite()));
        count += read as u64;
        if read < samples.len() {
            return Ok(count);
        }
    }
}

/// Reads all samples of a source.
type Reading<'r> = &'r dyn Fn() -> Result<u64, Error>;

/// Reads each file and the same bytes from a pipe. Returns how many are read without an error.
fn check_all(kind: &str, files: &[Hostile]) -> usize {
    let place = TemporaryFolder::new(kind);
    let path = place.0.join("file");
    let (mut failures, mut readable) = (Vec::new(), 0);
    for (name, bytes) in files {
        fs::write(&path, bytes).unwrap();
        let sources: [(&str, Reading<'_>); 2] = [
            ("a file", &|| count(AudioReader::open(&path, InputOptions::default()))),
            ("a pipe", &|| count(AudioReader::new(&bytes[..], InputOptions::default()))),
        ];
        for (source, read) in sources {
            let started = cpu_time();
            let (found, most) =
                most_bytes(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)));
            let time = cpu_time() - started;
            let megabytes = bytes.len() as f64 / f64::from(1 << 20);
            let samples = found.as_ref().ok().and_then(|read| read.as_ref().ok()).copied();
            let seconds = samples.unwrap_or(0) as f64 / 16_000.0;
            let allowed =
                TIME + TIME_PER_MEGABYTE.mul_f64(megabytes) + TIME_PER_SECOND.mul_f64(seconds);
            if most > MEMORY + bytes.len() || time > allowed {
                failures.push(format!("{name}, from {source}: {most} bytes, {time:?}, {found:?}"));
            }
            match found {
                Ok(Ok(_)) => readable += 1,
                Ok(Err(error)) if error.to_string().len() < 400 => (),
                other => failures.push(format!("{name}, from {source}: {other:?}")),
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    readable
}

#[test]
fn changed_fields_are_errors_or_are_read() {
    let all = [mp4(), ogg(), ebml(), opus(), wave64(), flac(), riff_and_others()].concat();
    let files: Vec<Hostile> = all.into_iter().step_by(effort::cases(21, 1)).collect();
    let readable = check_all("fields", &files);
    assert!(files.len() > 250, "{}", files.len());
    assert!(readable > files.len() / 10, "{readable} of {}", files.len());
}

/// A decoder divides by the distance of two points: it must not see them.
#[test]
fn points_of_a_floor_that_are_equal_are_errors() {
    let codebook = |bits: &mut Bits| {
        ordered(bits, 1, 1);
        bits.put(0, 4);
    };
    for (points, found) in
        [(vec![5, 9], None), (vec![0], Some(0)), (vec![7, 7], Some(7)), (vec![9, 1, 0], Some(0))]
    {
        let file = vorbis_with_floor(1, &codebook, &points);
        let audio = AudioReader::new(&file[..], InputOptions::default());
        let error = audio.err().map(|error| error.to_string()).unwrap_or_default();
        let twice = found.map(|point| format!("points that differ, found {point} twice"));
        assert!(twice.as_ref().is_none_or(|twice| error.contains(twice)), "{points:?}: {error}");
        assert!(twice.is_some() || !error.contains("floor"), "{points:?}: {error}");
    }
}

#[test]
fn tags_and_tables_of_megabytes_take_no_memory() {
    let files = large(effort::cases(1, 12));
    let readable = check_all("tables", &files);
    assert!(files.len() > 15 && readable > 3, "{readable}");
}

/// An hour of film whose pictures have a time each.
#[test]
fn the_times_of_other_tracks_take_no_time() {
    let table = |count: u32| {
        let mut content = [[0; 4], count.to_be_bytes()].concat();
        for i in 0..count {
            content.extend([1_u32.to_be_bytes(), (500 + i % 2).to_be_bytes()].concat());
        }
        atom(b"stts", &content)
    };
    let time = |count: u32| {
        let file = with_table("aac.m4a", b"stts", &table(count), true);
        let started = cpu_time();
        (count_all(&file), cpu_time() - started)
    };
    let (few, short) = time(2);
    let (many, long) = time(108_000);
    assert_eq!(few, many);
    assert!(long < 3 * short + TIME / 4, "{short:?} {long:?}");
}

fn count_all(bytes: &[u8]) -> u64 {
    let place = TemporaryFolder::new("film");
    let path = place.0.join("film.m4a");
    fs::write(&path, bytes).unwrap();
    count(AudioReader::open(&path, InputOptions::default())).unwrap()
}
