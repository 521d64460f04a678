//! Inputs for the decoder: valid blocks, and what was done to them on four levels.
//!
//! Values of a record are deformed; what is then written is written in other
//! forms than the shortest; bytes of the records are changed; the header says
//! something else. But for the last, the checksum is made right again: else
//! nothing would get past it.

use crate::random::Random;
use crate::records::{Record, Value, deform, valid};
use crate::words::Context;
use branchmem_core::event::{BLOCK_EVENTS, HEADER};
use branchmem_core::msgpack::{write_array, write_str, write_uint};

const MAX_REFERENCES: usize = 4096;

/// A block and what it pretends to follow on.
pub struct Input {
    /// Its place among the contexts.
    pub context: usize,
    pub first_seq: u64,
    pub bytes: Vec<u8>,
    /// Whether nothing was done to it.
    pub is_valid: bool,
}

/// The input with this number.
pub fn input(number: u64, seed: u64, contexts: &[Context]) -> Input {
    let mut random = Random::of(seed, number);
    let at = random.below(contexts.len());
    let context = &contexts[at];
    let mut header = Header { version: 1, padding: [0; 3], count: 0, interned: context.ids.len() as u64 };
    let (mut payload, mut is_valid) = (Vec::new(), false);
    if random.once_in(32) {
        header.count = 1 + random.below(3) as u32;
        payload.extend((0..random.below(80)).map(|_| random.byte()));
    } else {
        let (records, odds, touches) = how(&mut random);
        let (mut batch, within_limits) = batch(context, &mut random);
        is_valid = within_limits && records + odds + touches == 0;
        for _ in 0..records {
            let one = random.below(batch.len());
            deform(&mut batch[one], context, &mut random);
        }
        header.count = batch.len() as u32;
        Writer::new(context, odds, &mut random).write(&batch, &mut payload);
        for _ in 0..touches {
            touch(&mut payload, &mut random);
        }
    }
    let mut bytes = header.sealed(context.events, &payload);
    if random.once_in(24) {
        is_valid = false;
        header.spoil(&mut random);
        bytes = header.sealed(context.events, &payload);
        spoil_bytes(&mut bytes, &mut random);
    }
    Input { context: at, first_seq: context.events, bytes, is_valid }
}

/// How many values of records are deformed, values written oddly, and bytes touched.
fn how(random: &mut Random) -> (usize, usize, usize) {
    let some = 1 + random.of_these(&[0, 0, 0, 1, 3]);
    match random.below(10) {
        0 | 1 => (0, 0, 0),
        2..5 => (some, 0, 0),
        5 | 6 => (0, some, 0),
        7 | 8 => (0, 0, some),
        _ => (some, 1, 1),
    }
}

/// Valid records, now and then about as many as there may be; and whether they are not too many.
fn batch(context: &Context, random: &mut Random) -> (Vec<Record>, bool) {
    if random.once_in(1000) {
        return long_lists(context, random);
    }
    let count = if random.once_in(1000) { 999 + random.below(3) } else { random.of_these(&[1, 1, 1, 2, 2, 3, 5]) };
    let record = |_| {
        let id = context.any_id(random);
        valid(id, context, random)
    };
    ((0..count).map(record).collect(), count <= BLOCK_EVENTS)
}

/// A memory whose lists are about as long as they may be; and whether they are not too long.
fn long_lists(context: &Context, random: &mut Random) -> (Vec<Record>, bool) {
    let total = MAX_REFERENCES - 1 + random.below(3);
    let first = random.of_these(&[1, 15, 16, total / 2, total - 1]);
    let names = |range: std::ops::Range<usize>| {
        let written = range.map(|at| {
            let mut name = Vec::new();
            write_str(&mut name, &format!("l{at:04}"));
            Value::Raw(name)
        });
        Value::List(written.collect())
    };
    let id = Value::Id(context.any_id(random));
    let record = vec![Value::Uint(1), id, Value::Uint(2), names(0..first), Value::Uint(3), names(first..total)];
    (vec![record], total <= MAX_REFERENCES)
}

/// Writes records as the log would, but for a number of oddities.
struct Writer<'a> {
    context: &'a Context,
    numbers: Vec<Option<u32>>,
    next: u32,
    /// How many values are still to be written oddly.
    odds: usize,
    random: &'a mut Random,
}

impl<'a> Writer<'a> {
    fn new(context: &'a Context, odds: usize, random: &'a mut Random) -> Self {
        let numbers = context.words.iter().map(|word| word.number).collect();
        Self { context, numbers, next: context.ids.len() as u32, odds, random }
    }

    fn write(&mut self, batch: &[Record], out: &mut Vec<u8>) {
        for record in batch {
            self.list(record, out);
        }
    }

    fn is_odd(&mut self) -> bool {
        let odd = self.odds > 0 && self.random.once_in(4);
        self.odds -= usize::from(odd);
        odd
    }

    fn value(&mut self, value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Nil => out.push(0xc0),
            Value::Bool(value) => out.push(0xc2 + u8::from(*value)),
            Value::Uint(value) => self.uint(*value, out),
            Value::Id(at) => self.id(*at, out),
            Value::Text(at) => self.text(*at, out),
            Value::List(list) => self.list(list, out),
            Value::Raw(bytes) => out.extend_from_slice(bytes),
        }
    }

    fn list(&mut self, list: &[Value], out: &mut Vec<u8>) {
        let head = if self.is_odd() { self.random.below(5) } else { usize::MAX };
        let len = list.len();
        match head {
            0 => out.extend_from_slice(&[0xdc, (len >> 8) as u8, len as u8]),
            1 => out.extend_from_slice(&[0xdd, 0, 0, (len >> 8) as u8, len as u8]),
            2 => write_array(out, len + 1),
            3 => write_array(out, len.saturating_sub(1)),
            4 => out.extend_from_slice(self.random.of_these(&[b"\xdc\xff\xff", b"\xdc\x10\x00", b"\xdc\x10\x01"])),
            _ => write_array(out, len),
        }
        for value in list {
            self.value(value, out);
        }
    }

    fn uint(&mut self, value: u64, out: &mut Vec<u8>) {
        let width = if self.is_odd() { self.random.below(5) } else { usize::MAX };
        let bytes = value.to_be_bytes();
        match (width, u32::try_from(value)) {
            (0, _) => out.extend_from_slice(&[0xcc, bytes[7]]),
            (1, _) => out.extend_from_slice(&[0xcd, bytes[6], bytes[7]]),
            (2, _) => out.extend_from_slice(&[0xce, bytes[4], bytes[5], bytes[6], bytes[7]]),
            (3, _) => out.extend_from_slice(&[0xd0, bytes[7]]),
            (usize::MAX, Ok(value)) => write_uint(out, value),
            _ => {
                out.push(0xcf);
                out.extend_from_slice(&bytes);
            }
        }
    }

    fn id(&mut self, at: usize, out: &mut Vec<u8>) {
        if self.is_odd() {
            let known = self.random.below(1 + self.next as usize) as u64;
            match self.random.below(4) {
                0 => self.uint(u64::from(self.next), out),
                1 => self.uint(known << 32 | known, out),
                2 => self.uint(known, out),
                _ => self.text(at, out),
            }
        } else if let Some(number) = self.numbers[at] {
            self.uint(u64::from(number), out);
        } else {
            self.numbers[at] = Some(self.next);
            self.next += 1;
            self.text(at, out);
        }
    }

    fn text(&mut self, at: usize, out: &mut Vec<u8>) {
        let name = &self.context.words[at].name;
        let len = name.len();
        let head = if self.is_odd() { self.random.below(7) } else { usize::MAX };
        match head {
            0 => out.extend_from_slice(&[0xd9, len as u8]),
            1 => out.extend_from_slice(&[0xda, (len >> 8) as u8, len as u8]),
            2 => out.extend_from_slice(&[0xdb, 0, 0, (len >> 8) as u8, len as u8]),
            3 => out.extend_from_slice(&[0xc4, len as u8]),
            4 => out.extend_from_slice(&[0xda, 1, self.random.of_these(&[0, 1])]),
            5 => {
                write_str(out, name);
                let end = out.len() - 1;
                out[end] = self.random.of_these(&[0x80, 0xc0, 0xed, 0xff]);
                return;
            }
            _ => {
                write_str(out, name);
                return;
            }
        }
        out.extend_from_slice(name.as_bytes());
    }
}

/// Bytes that begin something in msgpack, or end a range of it.
const TELLING: [u8; 32] = [
    0x00, 0x01, 0x7f, 0x80, 0x8f, 0x90, 0x92, 0x94, 0x9f, 0xa0, 0xa1, 0xbf, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc7, 0xca,
    0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd6, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xe0, 0xff,
];

/// Do one thing to bytes that knows nothing of what they mean.
fn touch(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        bytes.push(random.of_these(&TELLING));
        return;
    }
    let at = random.below(bytes.len());
    let end = (at + 1 + random.of_these(&[0, 0, 1, 3, 8, 40])).min(bytes.len());
    match random.below(9) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.byte(),
        2 => bytes[at] = random.of_these(&TELLING),
        3 => bytes[at] = bytes[at].wrapping_add(random.of_these(&[1, 0xff])),
        4 => bytes.insert(at, random.of_these(&TELLING)),
        5 => drop(bytes.drain(at..end)),
        6 => bytes.extend_from_within(at..end),
        7 => {
            let copied = bytes[at..end].to_vec();
            let to = random.below(bytes.len());
            bytes.splice(to..to, copied);
        }
        _ => bytes.truncate(at),
    }
}

/// What stands before the records of a block.
pub struct Header {
    pub version: u8,
    pub padding: [u8; 3],
    pub count: u32,
    pub interned: u64,
}

impl Header {
    /// A block with this header and a true checksum.
    pub fn sealed(&self, first_seq: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![self.version];
        bytes.extend_from_slice(&self.padding);
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.extend_from_slice(&self.interned.to_le_bytes());
        let mut sum = crc32fast::Hasher::new();
        sum.update(&first_seq.to_le_bytes());
        sum.update(&bytes);
        sum.update(payload);
        bytes.extend_from_slice(&sum.finalize().to_le_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    fn spoil(&mut self, random: &mut Random) {
        match random.below(6) {
            0 => self.version = random.of_these(&[0, 2, 255]),
            1 => self.padding[random.below(3)] = 1 + random.byte() / 2,
            2 => self.count = random.of_these(&[0, self.count + 1, self.count.saturating_sub(1), 1000, 1001, u32::MAX]),
            3 => {
                let before = self.interned.wrapping_sub(1);
                self.interned = random.of_these(&[self.interned + 1, before, 1 << 32, u64::MAX]);
            }
            _ => {}
        }
    }
}

/// Change bytes behind the back of the checksum, now and then.
fn spoil_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    match random.below(8) {
        0 => bytes.truncate(random.below(HEADER + 1)),
        1 => bytes[16 + random.below(4)] ^= 1 << random.below(8),
        2 => touch(bytes, random),
        _ => {}
    }
}
