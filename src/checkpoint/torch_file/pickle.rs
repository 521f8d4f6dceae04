//! A reader of the pickles that `torch.save` writes.
//!
//! A pickle is a program for a stack machine. This machine has only the instructions that build numbers, strings,
//! tuples, lists and dictionaries; a function call makes a value in the tables of [`Values`] ([`call`]). Everything else
//! is an error with its name. Instructions, stack, nesting and memory are limited.

use core::ops::Range;

use super::constructors::{call, storage};
use super::values::{Global, Span, Value, Values};
use crate::checkpoint::byte_source::Source;
use crate::checkpoint::faults::wrong_state_dict;
use crate::error::Error;
use crate::printable_text::{quoted, sanitized};

/// Maximum size of the pickles of a file. A tensor takes about 200 bytes.
const MAX_PICKLE: u64 = 8 << 20;

/// Maximum number of instructions of a small file. A tensor has about 35.
const MAX_INSTRUCTIONS: u64 = 1 << 18;

/// Bytes of a file that allow one more instruction.
const BYTES_PER_INSTRUCTION: u64 = 256;

/// Maximum number of values on the stack. Picklers write a dictionary in pieces of a thousand entries.
const MAX_STACK: usize = 1 << 14;

/// Maximum number of open marks. A tensor in a dictionary has four.
const MAX_MARKS: usize = 64;

/// Maximum bytes of the name of a module or of a class.
const MAX_NAME: usize = 256;

/// Bytes that are read at a time.
const BLOCK: u64 = 1 << 16;

/// The machine, and the bytes of the file that it reads.
pub(super) struct Unpickler<'s, 'c> {
    source: &'s Source<'c>,
    /// Where the first pickle begins in the source.
    begin: u64,
    /// Where the pickles must end.
    end: u64,
    /// The bytes that were read; strings are ranges of it.
    text: Vec<u8>,
    /// The next byte.
    at: usize,
    instructions: u64,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
    pub(super) values: Values,
}

impl<'s, 'c> Unpickler<'s, 'c> {
    /// A machine for the pickles in a range of the source.
    pub(super) fn new(source: &'s Source<'c>, range: Range<u64>) -> Result<Self, Error> {
        let (begin, end) = (range.start, range.end);
        let most = (end - begin).min(MAX_PICKLE) as usize;
        let mut text = Vec::new();
        if text.try_reserve_exact(most).is_err() {
            return Err(Error::out_of_memory(source.name().to_owned(), most));
        }
        Ok(Self {
            source,
            begin,
            end,
            text,
            at: 0,
            instructions: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            values: Values::new(source.len() - most as u64),
        })
    }

    /// The offset in the source after the last pickle.
    pub(super) fn position(&self) -> u64 {
        self.begin + self.at as u64
    }

    /// The bytes of the pickles up to [`position`](Self::position).
    pub(super) fn text(&self) -> &[u8] {
        &self.text[..self.at]
    }

    /// The bytes of a string.
    pub(super) fn string(&self, span: Span) -> &[u8] {
        self.text.get(span.range()).unwrap_or_default()
    }

    /// An error at the current position.
    pub(super) fn wrong(&self, message: impl core::fmt::Display) -> Error {
        let message = format!("{message} (pickle, before byte {})", self.position());
        wrong_state_dict(self.source, message)
    }

    /// Reads one pickle, and forgets its stack and its memo.
    pub(super) fn load(&mut self) -> Result<Value, Error> {
        let loaded = self.run_opcodes();
        self.stack = Vec::new();
        self.marks = Vec::new();
        self.memo = Vec::new();
        loaded
    }

    /// Reads one pickle, of whose value `take` returns the content; `expected` is what it should be.
    pub(super) fn load_content<T>(
        &mut self,
        expected: &str,
        take: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, Error> {
        let value = self.load()?;
        let found = || self.wrong(format_args!("expected {expected}, found {}", value.kind()));
        take(value).ok_or_else(found)
    }

    fn run_opcodes(&mut self) -> Result<Value, Error> {
        loop {
            self.instructions += 1;
            let most = MAX_INSTRUCTIONS + self.source.len() / BYTES_PER_INSTRUCTION;
            if self.instructions > most {
                return Err(self.wrong(format_args!(
                    "more than {most} instructions, which no real file of this size has"
                )));
            }
            let opcode = self.byte()?;
            if opcode == b'.' {
                let value = self.pop()?;
                return match self.stack.len() + self.marks.len() {
                    0 => Ok(value),
                    left => Err(self.wrong(format_args!(
                        "expected an empty stack at the end of a pickle, found {left} more values"
                    ))),
                };
            }
            self.execute(opcode)?;
        }
    }

    fn execute(&mut self, opcode: u8) -> Result<(), Error> {
        let operand = self.operand(opcode)?;
        match opcode {
            b'\x80' if !(2..=5).contains(&operand) => Err(self.wrong(format_args!(
                "expected version 2 to 5 of the pickle protocol, found {operand}"
            ))),
            // A frame only announces how many bytes follow.
            b'\x80' | b'\x95' => Ok(()),
            b'N' => self.push(Value::None),
            b'\x88' | b'\x89' => self.push(Value::Bool(opcode == b'\x88')),
            b'J' => self.push(Value::Int((operand as i32).into())),
            b'K' | b'M' => self.push(Value::Int(operand as i64)),
            b'\x8a' => self.long(operand),
            b'G' => self.push(Value::Float),
            b'U' | b'\x8c' | b'X' | b'T' | b'\x8d' => self.push_text(operand),
            b'(' => {
                if self.marks.len() == MAX_MARKS {
                    return Err(self.wrong(format_args!(
                        "more than {MAX_MARKS} open marks, which no real file has"
                    )));
                }
                self.marks.push(self.stack.len());
                Ok(())
            }
            b')' => self.push_tuple(0),
            b'\x85' => self.push_tuple(1),
            b'\x86' => self.push_tuple(2),
            b'\x87' => self.push_tuple(3),
            b't' => {
                let count = self.marked()?;
                self.push_tuple(count)
            }
            b']' => {
                let list = self.values.new_list();
                self.push_result(list)
            }
            b'a' | b'e' => {
                let count = if opcode == b'a' { 1 } else { self.marked()? };
                self.append(count)
            }
            b'}' => {
                let dict = self.values.new_dict();
                self.push_result(dict)
            }
            b's' | b'u' => {
                let count = if opcode == b's' { 2 } else { self.marked()? };
                self.set_items(count)
            }
            b'q' | b'r' => self.memoize(operand as usize),
            b'\x94' => self.memoize(self.memo.len()),
            b'h' | b'j' => self.recall(operand as usize),
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)
            }
            b'\x93' => match (self.pop()?, self.pop()?) {
                (Value::Text(name), Value::Text(module)) => {
                    self.global(module.range(), name.range())
                }
                (name, module) => Err(self.wrong(format_args!(
                    "expected the names of a module and of a class, found {} and {}",
                    module.kind(),
                    name.kind()
                ))),
            },
            b'Q' => {
                let id = self.pop()?;
                let found = storage(&mut self.values, id, &self.text);
                self.push_result(found)
            }
            b'R' => self.reduce(),
            b'b' => self.build(),
            _ => Err(self.wrong(match other_opcode(opcode) {
                Some(name) => format!(
                    "expected the instructions of a state dict, found {name}, which is not executed"
                ),
                None => format!("expected an instruction of a pickle, found byte {opcode:#04x}"),
            })),
        }
    }

    /// The number that follows an instruction, little-endian; 0 if none does.
    fn operand(&mut self, opcode: u8) -> Result<u64, Error> {
        let bytes = match opcode {
            b'\x80' | b'K' | b'\x8a' | b'U' | b'\x8c' | b'q' | b'h' => 1,
            b'M' => 2,
            b'J' | b'X' | b'T' | b'r' | b'j' => 4,
            b'\x95' | b'G' | b'\x8d' => 8,
            _ => 0,
        };
        let range = self.take(bytes)?;
        Ok(self.text[range].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// The next `len` bytes, as a range of the text.
    fn take(&mut self, len: u64) -> Result<Range<usize>, Error> {
        let have = (self.text.len() - self.at) as u64;
        if len > have {
            self.fill(len)?;
        }
        let range = self.at..self.at + len as usize;
        self.at = range.end;
        Ok(range)
    }

    /// Reads until at least `len` bytes follow the position.
    fn fill(&mut self, len: u64) -> Result<(), Error> {
        let (at, available) = (self.at as u64, self.end - self.begin);
        if len > available - at {
            return Err(self.wrong(format_args!(
                "expected {len} more bytes of a pickle, found {}: truncated?",
                available - at
            )));
        }
        if len > MAX_PICKLE - at {
            return Err(self.wrong(format_args!(
                "more than {MAX_PICKLE} bytes of pickles, which no real file has"
            )));
        }
        let start = self.text.len();
        let wanted = (at + len).max(start as u64 + BLOCK).min(available).min(MAX_PICKLE);
        self.text.resize(wanted as usize, 0);
        self.source.read_at(self.begin + start as u64, &mut self.text[start..])
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let range = self.take(1)?;
        Ok(self.text[range.start])
    }

    /// The bytes up to a newline, and behind it.
    fn line(&mut self) -> Result<Range<usize>, Error> {
        let start = self.at;
        while self.at - start <= MAX_NAME {
            let byte = self.byte()?;
            if byte == b'\n' {
                return Ok(start..self.at - 1);
            }
        }
        Err(self.wrong(format_args!(
            "expected the name of a module or of a class, found more than {MAX_NAME} bytes"
        )))
    }

    fn long(&mut self, len: u64) -> Result<(), Error> {
        let range = self.take(len)?;
        let bytes = &self.text[range.clone()];
        let value = if bytes.len() <= 8 {
            // Two's complement: the last byte has the sign.
            let negative = bytes.last().is_some_and(|&last| last >= 0x80);
            let mut wide = [if negative { 0xff } else { 0 }; 8];
            wide[..bytes.len()].copy_from_slice(bytes);
            Value::Int(i64::from_le_bytes(wide))
        } else {
            Span::new(range).map_or(Value::None, Value::LongInt)
        };
        self.push(value)
    }

    fn push(&mut self, value: Value) -> Result<(), Error> {
        if self.stack.len() == MAX_STACK {
            return Err(self.wrong(format_args!(
                "more than {MAX_STACK} values on the stack, which no real file has"
            )));
        }
        self.stack.push(value);
        Ok(())
    }

    fn push_result(&mut self, value: Result<Value, String>) -> Result<(), Error> {
        match value {
            Ok(value) => self.push(value),
            Err(message) => Err(self.wrong(message)),
        }
    }

    fn push_text(&mut self, len: u64) -> Result<(), Error> {
        let range = self.take(len)?;
        self.push(Span::new(range).map_or(Value::None, Value::Text))
    }

    /// How many values are above the last mark. Those below belong to what is being built there.
    fn above(&self) -> usize {
        self.stack.len() - self.marks.last().copied().unwrap_or(0)
    }

    fn empty(&self) -> Error {
        self.wrong("expected a value on the stack, found none")
    }

    fn pop(&mut self) -> Result<Value, Error> {
        let value = if self.above() > 0 { self.stack.pop() } else { None };
        value.ok_or_else(|| self.empty())
    }

    /// Removes the last mark. Returns how many values are above it.
    fn marked(&mut self) -> Result<usize, Error> {
        let count = self.above();
        match self.marks.pop() {
            Some(_) => Ok(count),
            None => Err(self.wrong("expected a mark on the stack, found none")),
        }
    }

    /// The start of the last `count` values.
    fn last(&self, count: usize) -> Result<usize, Error> {
        if count > self.above() {
            return Err(self.empty());
        }
        Ok(self.stack.len() - count)
    }

    fn push_tuple(&mut self, count: usize) -> Result<(), Error> {
        let start = self.last(count)?;
        let tuple = self.values.tuple(&self.stack[start..]);
        self.stack.truncate(start);
        self.push_result(tuple)
    }

    fn append(&mut self, count: usize) -> Result<(), Error> {
        let start = self.last(count + 1)?;
        let (list, items) = (self.stack[start], &self.stack[start + 1..]);
        let Value::List(index) = list else {
            return Err(self.wrong(format_args!("expected a list, found {}", list.kind())));
        };
        let appended = self.values.append(index, items);
        self.stack.truncate(start + 1);
        appended.map_err(|message| self.wrong(message))
    }

    fn set_items(&mut self, count: usize) -> Result<(), Error> {
        let start = self.last(count + 1)?;
        let (dict, items) = (self.stack[start], &self.stack[start + 1..]);
        let Value::Dict(index) = dict else {
            return Err(self.wrong(format_args!("expected a dict, found {}", dict.kind())));
        };
        let (pairs, odd) = items.as_chunks::<2>();
        if !odd.is_empty() {
            return Err(self.wrong("expected a value for each key of a dict, found a key without"));
        }
        let inserted = self.values.insert(index, pairs);
        self.stack.truncate(start + 1);
        inserted.map_err(|message| self.wrong(message))
    }

    /// Stores the last value. Picklers count from 0, that of Python 2 from 1.
    fn memoize(&mut self, index: usize) -> Result<(), Error> {
        let start = self.last(1)?;
        let value = self.stack[start];
        let next = self.memo.len();
        if index > next + 1 {
            return Err(self.wrong(format_args!(
                "expected at most {} as the next number of the memo, found {index}",
                next + 1
            )));
        }
        if index >= next {
            let charged = self.values.charge::<Option<Value>>(index + 1 - next);
            charged.map_err(|message| self.wrong(message))?;
            self.memo.resize(index + 1, None);
        }
        self.memo[index] = Some(value);
        Ok(())
    }

    fn recall(&mut self, index: usize) -> Result<(), Error> {
        match self.memo.get(index).copied().flatten() {
            Some(value) => self.push(value),
            None => Err(self.wrong(format_args!(
                "expected a number of the memo, which has {} values, found {index}",
                self.memo.len()
            ))),
        }
    }

    fn global(&mut self, module: Range<usize>, name: Range<usize>) -> Result<(), Error> {
        let [module, name] = [module, name].map(|range| String::from_utf8_lossy(&self.text[range]));
        match Global::named(&module, &name) {
            Some(global) => self.push(Value::Global(global)),
            None => Err(self.wrong(format_args!(
                "expected a class or a function of a state dict, found {}.{}, which is not imported",
                sanitized(&module, MAX_NAME),
                sanitized(&name, MAX_NAME)
            ))),
        }
    }

    fn reduce(&mut self) -> Result<(), Error> {
        match (self.pop()?, self.pop()?) {
            (Value::Tuple(arguments), Value::Global(function)) => {
                let result = call(&mut self.values, function, arguments);
                self.push_result(result)
            }
            (arguments, function) => Err(self.wrong(format_args!(
                "expected a function and a tuple of arguments, found {} and {}",
                function.kind(),
                arguments.kind()
            ))),
        }
    }

    /// Sets the attributes of an object. An `OrderedDict` of tensors has one, `_metadata`, which is not used.
    fn build(&mut self) -> Result<(), Error> {
        let (state, object) = (self.pop()?, self.pop()?);
        let (Value::Dict(attributes), Value::Dict(_)) = (state, object) else {
            let (state, object) = (state.kind(), object.kind());
            return Err(self.wrong(format_args!(
                "expected the attributes of a dict, found {state} for {object}"
            )));
        };
        let metadata =
            |key: Value| matches!(key, Value::Text(key) if self.string(key) == b"_metadata");
        let mut keys = self.values.dict(attributes).iter().map(|&(key, _)| key);
        let other = keys.find(|&key| !metadata(key));
        let found = match other {
            None => return self.push(object),
            Some(Value::Text(key)) => quoted(&String::from_utf8_lossy(self.string(key)), 80),
            Some(key) => key.kind().to_owned(),
        };
        Err(self.wrong(format_args!(
            "expected no attribute of a dict but \"_metadata\", found {found}"
        )))
    }
}

/// The name of an instruction that the pickle of a state dict does not have.
fn other_opcode(opcode: u8) -> Option<&'static str> {
    const NAMES: [(u8, &str); 30] = [
        (b'0', "POP"),
        (b'1', "POP_MARK"),
        (b'2', "DUP"),
        (b'F', "FLOAT"),
        (b'I', "INT"),
        (b'L', "LONG"),
        (b'P', "PERSID"),
        (b'S', "STRING"),
        (b'V', "UNICODE"),
        (b'd', "DICT"),
        (b'l', "LIST"),
        (b'p', "PUT"),
        (b'g', "GET"),
        (b'i', "INST"),
        (b'o', "OBJ"),
        (b'B', "BINBYTES"),
        (b'C', "SHORT_BINBYTES"),
        (b'\x81', "NEWOBJ"),
        (b'\x82', "EXT1"),
        (b'\x83', "EXT2"),
        (b'\x84', "EXT4"),
        (b'\x8b', "LONG4"),
        (b'\x8e', "BINBYTES8"),
        (b'\x8f', "EMPTY_SET"),
        (b'\x90', "ADDITEMS"),
        (b'\x91', "FROZENSET"),
        (b'\x92', "NEWOBJ_EX"),
        (b'\x96', "BYTEARRAY8"),
        (b'\x97', "NEXT_BUFFER"),
        (b'\x98', "READONLY_BUFFER"),
    ];
    NAMES.into_iter().find_map(|(known, name)| (known == opcode).then_some(name))
}
