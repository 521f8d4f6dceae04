//! The journal of an output: what the run is, and how far it has come.
//!
//! | bytes | content |
//! |---|---|
//! | 16 | [`MAGIC`] |
//! | 8 | the length of the next field |
//! | n | JSON: the identity of the run, a list of names with values |
//! | 8 | the checksum of the bytes before, XXH3 |
//! | 56 each | records: six numbers and the checksum of all bytes before it |
//!
//! Numbers are little-endian. A record is written after the output that it counts is on the disk. The records from the
//! first one that is cut or damaged are ignored: the run continues from the one before it.

use std::io::{self, Read, Seek, Write};
use xxhash_rust::xxh3::Xxh3;

/// The last byte is the version. Version 1 had other checksums.
const MAGIC: &[u8; 16] = b"simdformer bulk\x02";
/// The largest identity that is read.
const IDENTITY: u64 = 1 << 20;
/// The bytes of a record.
const RECORD: usize = 56;

/// What a run is: the names and values of everything on which the bytes of its output depend.
pub(super) type Identity = Vec<(String, String)>;

/// How far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// The bytes of the input that were read.
    pub(super) input: u64,
    /// Their checksum.
    pub(super) checksum: u64,
    /// The bytes of the output.
    pub(super) output: u64,
    /// The rows.
    pub(super) rows: u64,
    /// The rows without a text.
    pub(super) failed: u64,
    /// Whether the output is complete.
    pub(super) complete: bool,
}

/// The end of a journal, to which records are appended.
#[derive(Clone)]
pub(super) struct Journal {
    /// Its state has half a kilobyte.
    checksum: Box<Xxh3>,
    /// The bytes up to the last record.
    pub(super) len: u64,
}

/// What a journal says.
pub(super) struct Found {
    pub(super) identity: Identity,
    /// The last valid record.
    pub(super) last: Option<Record>,
    /// The journal up to this record.
    pub(super) journal: Journal,
}

impl Journal {
    /// Begins a journal.
    pub(super) fn create(file: &mut impl Write, identity: &Identity) -> io::Result<Self> {
        let identity = serde_json::to_vec(identity)?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend((identity.len() as u64).to_le_bytes());
        bytes.extend(identity);
        let mut journal = Self { checksum: Box::default(), len: 0 };
        journal.append(file, bytes)?;
        Ok(journal)
    }

    pub(super) fn record(&mut self, file: &mut impl Write, record: &Record) -> io::Result<()> {
        let Record { input, checksum, output, rows, failed, complete } = *record;
        let numbers = [input, checksum, output, rows, failed, u64::from(complete)];
        self.append(file, numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    /// Appends bytes and the checksum up to them.
    fn append(&mut self, file: &mut impl Write, mut bytes: Vec<u8>) -> io::Result<()> {
        self.checksum.update(&bytes);
        bytes.extend(self.checksum.digest().to_le_bytes());
        self.len += bytes.len() as u64;
        file.write_all(&bytes)
    }

    /// The versions of this release and of a journal of another one, of which nothing more is read.
    pub(super) fn other_version(file: &mut (impl Read + Seek)) -> io::Result<Option<[u8; 2]>> {
        let mut head = [0; MAGIC.len()];
        let is_whole = fill(file, &mut head)?;
        file.rewind()?;
        let ([name @ .., expected], [begins @ .., found]) = (MAGIC, &head);
        let is_other = is_whole && begins == name && found != expected;
        Ok(is_other.then_some([*expected, *found]))
    }

    /// Reads a journal, up to the last record whose output has at most `output` bytes; `None` if it has no valid
    /// begin.
    pub(super) fn read_up_to(file: &mut impl Read, output: u64) -> io::Result<Option<Found>> {
        let mut head = [0; MAGIC.len() + 8];
        if !fill(file, &mut head)? || !head.starts_with(MAGIC) {
            return Ok(None);
        }
        let mut checksum = Box::<Xxh3>::default();
        checksum.update(&head);
        let len = number(&head[MAGIC.len()..]);
        if len > IDENTITY {
            return Ok(None);
        }
        let mut identity = vec![0; len as usize];
        let mut sum = [0; 8];
        if !fill(file, &mut identity)? || !fill(file, &mut sum)? {
            return Ok(None);
        }
        checksum.update(&identity);
        let Ok(identity) = serde_json::from_slice(&identity) else { return Ok(None) };
        if checksum.digest() != number(&sum) {
            return Ok(None);
        }
        let len = head.len() as u64 + len + 8;
        let mut found = Found { identity, last: None, journal: Self { checksum, len } };
        let mut bytes = [0; RECORD];
        while fill(file, &mut bytes)? {
            let (content, sum) = bytes.split_at(RECORD - 8);
            let mut journal = found.journal.clone();
            journal.checksum.update(content);
            journal.len += RECORD as u64;
            let mut numbers = content.chunks(8).map(number);
            let mut next = || numbers.next().unwrap_or_default();
            let record = Record {
                input: next(),
                checksum: next(),
                output: next(),
                rows: next(),
                failed: next(),
                complete: next() == 1,
            };
            if journal.checksum.digest() != number(sum) || record.output > output {
                break;
            }
            found.journal = journal;
            found.last = Some(record);
        }
        Ok(Some(found))
    }
}

/// Fills `bytes`; `false` if the file ends before.
fn fill(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| true),
    }
}

/// The number in up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
