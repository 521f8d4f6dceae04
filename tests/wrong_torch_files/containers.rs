//! Zip archives and legacy streams that are wrong.

use super::{Files, Words, joined, text};
use crate::torch_file::{Archive, Entry};

pub(super) fn archives(files: &mut Files) {
    files.archive("no entries", |a| a.entries.clear(), &["zip archive or a pickle"]);
    files.archive(
        "no pickle",
        |a| drop(a.entries.remove(0)),
        &["expected one entry NAME/data.pkl"],
    );
    files.archive(
        "a pickle deeper",
        |a| a.entries[0].name = b"a/b/data.pkl".to_vec(),
        &["NAME/data.pkl"],
    );
    files.archive(
        "a pickle above",
        |a| a.entries[0].name = b"data.pkl".to_vec(),
        &["NAME/data.pkl"],
    );
    files.archive(
        "two pickles",
        |a| a.entries.push(Entry::new("b/data.pkl", vec![])),
        &["expected one entry"],
    );
    files.archive("an entry twice", |a| a.entries.push(a.entries[2].clone()), &["is there twice"]);
    files.archive(
        "a program",
        |a| a.entries.push(Entry::new("archive/constants.pkl", vec![])),
        &["TorchScript"],
    );
    files.archive("big endian", |a| a.entries[1].bytes = b"big".to_vec(), &["found \"big\""]);
    files.archive("no byte order", |a| a.entries[1].bytes.clear(), &["found \"\""]);
    files.archive(
        "a long byte order",
        |a| a.entries[1].bytes = vec![b'a'; 1000],
        &["found \"aaaaaaaa\""],
    );
    files.archive("an empty pickle", |a| a.entries[0].bytes.clear(), &["expected 1 more bytes"]);
    files.archive(
        "bytes behind the pickle",
        |a| a.entries[0].bytes.push(0),
        &["found 1 more bytes"],
    );
    files.archive("another checksum", |a| a.entries[0].crc = Some(1), &["checksum 00000001"]);
    for (index, name) in [(0, "the pickle"), (2, "a storage")] {
        for (method, found) in
            [(8, "8 (DEFLATE)"), (12, "12"), (93, "93"), (99, "99"), (0xffff, "65535")]
        {
            let words: Words =
                Box::leak(vec!["stored without compression", found].into_boxed_slice());
            files.archive(
                &format!("{name} by method {method}"),
                |a| a.entries[index].method = method,
                words,
            );
        }
        files.archive(
            &format!("a bomb: {name}"),
            |a| a.entries[index].sizes[1] = Some(u32::MAX - 1),
            &["4294967294 bytes"],
        );
        files.archive(
            &format!("{name} of 4 GB"),
            |a| a.entries[index].sizes = [Some(u32::MAX - 1); 2],
            &["ends at byte"],
        );
        files.archive(
            &format!("{name} without 64-bit sizes"),
            |a| a.entries[index].sizes = [Some(u32::MAX); 2],
            &["ends at byte"],
        );
        files.archive(
            &format!("{name} encrypted"),
            |a| a.entries[index].flags |= 1,
            &["not encrypted"],
        );
        files.archive(
            &format!("{name} behind the file"),
            |a| a.entries[index].begin = Some(1 << 30),
            &["truncated?"],
        );
        files.archive(
            &format!("{name} one byte off"),
            |a| a.entries[index].begin = Some(1),
            &["Invalid signature"],
        );
        files.archive(&format!("{name} shorter"), |a| a.entries[index].sizes = [Some(8); 2], &[]);
        files.archive(
            &format!("{name} at the last byte"),
            |a| {
                let entry = &mut a.entries[index];
                entry.begin = Some(u32::MAX);
                entry.extra = [&[1, 0, 8, 0][..], &[0xff; 8]].concat();
            },
            &[],
        );
        files.archive(
            &format!("{name} of all bytes"),
            |a| {
                let entry = &mut a.entries[index];
                entry.sizes = [Some(u32::MAX); 2];
                entry.extra = [&[1, 0, 16, 0][..], &[0xff; 16]].concat();
            },
            &[],
        );
    }
    files.archive(
        "shared bytes",
        |a| a.entries[3].begin = Some(0),
        &["found bytes that they share"],
    );
    files.archive(
        "an entry in an entry",
        |a| {
            let inner = Archive {
                entries: vec![Entry::new("archive/data/x", vec![1; 8])],
                ..Archive::default()
            };
            a.entries[0].bytes = inner.bytes();
            // The entry begins behind the header of 30 bytes, the name, and an extra field that fills 64 bytes.
            let mut outer = Entry::new("archive/data/y", vec![1; 8]);
            outer.begin = Some(64);
            a.entries.push(outer);
        },
        &["found bytes that they share"],
    );
    files.archive("more entries than there are", |a| a.count = Some(5_000), &["truncated?"]);
    files.archive("fewer entries than there are", |a| a.count = Some(3), &[]);
    files.archive("no entries are stated", |a| a.count = Some(0), &["NAME/data.pkl"]);
    files.archive("a directory behind the end", |a| a.directory = Some(1 << 31), &[]);
    files.archive("a directory at the begin", |a| a.directory = Some(0), &[]);
    files.archive("a directory one byte off", |a| a.directory = Some(77), &[]);
    files.archive(
        "millions of entries",
        |a| {
            (a.count, a.directory, a.end64) =
                (Some(u16::MAX), Some(u32::MAX), Some([1 << 40, 1 << 40, 0]))
        },
        &["Invalid end of central directory"],
    );
    files.archive(
        "a directory of all bytes",
        |a| (a.directory, a.end64) = (Some(u32::MAX), Some([9, u64::MAX, u64::MAX])),
        &[],
    );
    files.archive(
        "bytes before the archive",
        |a| a.prefix = b"MZ".repeat(50),
        &["zip archive or a pickle"],
    );
    files.archive(
        "another archive before it",
        |a| (a.prefix, a.directory) = (b"PK\x03\x04".repeat(50), Some(1234)),
        &[],
    );
    files.archive(
        "a name of bytes",
        |a| a.entries[2].name = b"archive/data/\xff".to_vec(),
        &["in UTF-8"],
    );
    files.archive(
        "a name of control characters",
        |a| a.entries[2].name = b"archive/data/\x1b[2J".to_vec(),
        &[],
    );
    files.archive("a long name", |a| a.entries[2].name = vec![b'a'; 65_000], &[]);
    files.archive(
        "a way out",
        |a| a.entries[2].name = b"archive/data/../../../etc/passwd".to_vec(),
        &[],
    );
    files.archive("a comment with an end", |a| a.comment = b"PK\x05\x06".repeat(20), &[]);
    files.archive(
        "an extra field without end",
        |a| {
            (a.entries[0].extra, a.entries[0].sizes) = (vec![1, 0, 0xff, 0xff], [Some(u32::MAX); 2])
        },
        &[],
    );
    files.archive(
        "many entries",
        |a| {
            let more = (0..33_000).map(|i| Entry::new(&format!("archive/more/{i}"), vec![]));
            a.entries.extend(more);
        },
        &["expected at most 32832 entries"],
    );
    files.add("archive: only its first bytes".into(), b"PK\x03\x04".to_vec(), &["truncated?"]);
    files.add(
        "archive: zeros".into(),
        [&b"PK\x03\x04"[..], &[0; 70_000]].concat(),
        &["truncated?"],
    );
    files.add(
        "archive: only its end".into(),
        [&b"PK\x03\x04PK\x05\x06"[..], &[0; 18]].concat(),
        &["NAME/data.pkl"],
    );
    files.add("archive: half an end".into(), b"PK\x03\x04PK\x05\x06\0\0".to_vec(), &[]);
    files.add(
        "archive: many ends".into(),
        [&b"PK\x03\x04"[..], &b"PK\x05\x06".repeat(100_000)].concat(),
        &[],
    );
}

pub(super) fn streams(files: &mut Files) {
    files.legacy("another magic number", |l| l.magic[5] ^= 1, &["expected the magic number"]);
    files.legacy(
        "a small magic number",
        |l| l.magic = b"\x80\x02K\x01.".to_vec(),
        &["magic number of torch.save, found an int"],
    );
    files.legacy("no magic number", |l| l.magic.clear(), &["expected the magic number"]);
    files.legacy(
        "a call in place of the number",
        |l| l.magic = b"\x80\x02cos\nsystem\n.".to_vec(),
        &["os.system"],
    );
    files.legacy(
        "another version",
        |l| l.version = b"\x80\x02M\xe8\x03.".to_vec(),
        &["1001 of the legacy format, found 1000"],
    );
    files.legacy("a version of words", |l| l.version = b"\x80\x02N.".to_vec(), &["found None"]);
    files.legacy(
        "a system of words",
        |l| l.system = b"\x80\x02N.".to_vec(),
        &["byte order, found None"],
    );
    files.legacy(
        "no byte order",
        |l| l.system = b"\x80\x02}.".to_vec(),
        &["little_endian, found none"],
    );
    let order = |value: &[u8]| joined(&[b"\x80\x02}", &text("little_endian"), value, b"s."]);
    let (big, number) = (order(b"\x89"), order(b"K\x01"));
    files.legacy("big endian", |l| l.system = big, &["found big_endian"]);
    files.legacy("a byte order of numbers", |l| l.system = number, &["found none"]);
    files.legacy(
        "no list of storages",
        |l| l.keys = b"\x80\x02N.".to_vec(),
        &["list of storages, found None"],
    );
    files.legacy(
        "an empty list of storages",
        |l| (l.keys, l.storages) = (b"\x80\x02].".to_vec(), vec![]),
        &["expected a storage"],
    );
    files.legacy(
        "a list of numbers",
        |l| l.keys = b"\x80\x02](K\x01e.".to_vec(),
        &["key of a storage, found an int"],
    );
    let unknown = joined(&[b"\x80\x02](", &text("zzz"), b"e."]);
    files.legacy("an unknown storage", |l| l.keys = unknown, &["found \"zzz\""]);
    let twice = joined(&[b"\x80\x02](", &text("0"), &text("0"), b"e."]);
    files.legacy(
        "a storage twice",
        |l| {
            l.keys = twice;
            l.storages[1] = l.storages[0].clone();
        },
        &["there twice"],
    );
    files.legacy(
        "bytes at the end",
        |l| l.storages.last_mut().expect("one").1.extend([0; 3]),
        &["found 3 more bytes"],
    );
    files.legacy("no storages", |l| l.storages.clear(), &["length of storage", "truncated?"]);
    files.legacy("a missing storage", |l| drop(l.storages.pop()), &["truncated?"]);
    files.legacy(
        "a shorter storage",
        |l| {
            l.storages.last_mut().expect("one").1.pop();
        },
        &["truncated?"],
    );
    for (name, len) in [("a negative length", -1), ("a huge length", i64::MAX), ("no length", 0)] {
        files.legacy(
            &format!("{name} of a storage"),
            |l| l.storages[0].0 = len,
            &["elements, found"],
        );
    }
    files.add("stream: two bytes".into(), b"\x80\x02".to_vec(), &["expected 1 more bytes"]);
    files.add("stream: none".into(), vec![], &["found 0 bytes"]);
    files.add("stream: zeros".into(), vec![0; 100_000], &["zip archive or a pickle"]);
    files.add(
        "stream: a page".into(),
        b"<!doctype html><title>Sign in</title>".to_vec(),
        &["a web page"],
    );
    files.add(
        "stream: a pointer".into(),
        b"version https://git-lfs.github.com/spec/v1\noid".to_vec(),
        &["git lfs pull"],
    );
    files.add("stream: GGUF".into(), b"GGUF\x03\0\0\0\x01\0\0\0".to_vec(), &["GGUF"]);
}
