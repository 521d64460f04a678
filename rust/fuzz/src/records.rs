//! Records before they are bytes: valid ones of all five types, and what can be wrong with one.

use crate::random::Random;
use crate::words::Context;

/// One value of a record.
#[derive(Clone)]
pub enum Value {
    Nil,
    Bool(bool),
    Uint(u64),
    /// An id by the place of its word: written as its number where it has one.
    Id(usize),
    /// A word that is no id.
    Text(usize),
    List(Vec<Value>),
    /// Bytes as they are.
    Raw(Vec<u8>),
}

use Value::{Bool, Id, List, Nil, Raw, Text, Uint};

/// Type, id, then tags and values.
pub type Record = Vec<Value>;

/// What no record holds, in msgpack: other types, and sizes that nothing stands behind.
const STRANGE: [&[u8]; 20] = [
    b"",
    b"\xc0",
    b"\xc1",
    b"\xc2",
    b"\xc3",
    b"\xc4\x00",
    b"\xc6\xff\xff\xff\xff",
    b"\xc7\x00\x05",
    b"\xca\x3f\x80\x00\x00",
    b"\xcb\x7f\xf8\0\0\0\0\0\0",
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xd0\xff",
    b"\xd6\xff\x00\x00\x00\x00",
    b"\xdb\xff\xff\xff\xff",
    b"\xdc\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\x80",
    b"\xdf\xff\xff\xff\xff",
    b"\xa0",
    b"\xa3\xed\xa0\x80",
];

/// A valid record whose own id is the word at this place.
pub fn valid(id: usize, context: &Context, random: &mut Random) -> Record {
    let kind = random.of_these(&[0, 0, 1, 1, 1, 2, 3, 4]);
    let mut record = vec![Uint(kind), Id(id)];
    let mut field = |tag: u64, value| record.extend([Uint(tag), value]);
    match kind {
        0 => match random.below(6) {
            0 => {}
            1 => field(1, Nil),
            _ => field(1, one(context, random)),
        },
        1 => {
            for tag in 2..=4 {
                if random.once_in(2) {
                    field(tag, list(Id, context, random));
                }
            }
            if random.once_in(4) {
                field(5, one(context, random));
            }
            if random.once_in(3) {
                field(6, Text(other_than_fact(context, random)));
            }
            if random.once_in(3) {
                field(7, Text(random.below(context.words.len())));
            }
        }
        2 => {
            let named = 1 + random.below(7);
            if named & 1 != 0 {
                field(2, list(Id, context, random));
            }
            field(8, one(context, random));
            field(9, Uint(random.below(3) as u64));
            if named & 2 != 0 {
                field(10, list(Id, context, random));
            }
            if named & 4 != 0 {
                field(11, list(Text, context, random));
            }
            if random.once_in(2) {
                field(12, Bool(true));
            }
        }
        3 => {
            field(8, one(context, random));
            field(9, Uint(random.below(3) as u64));
            field(13, one(context, random));
        }
        _ => {
            field(14, list(Id, context, random));
            if random.once_in(2) {
                field(15, Bool(false));
            }
        }
    }
    record
}

fn one(context: &Context, random: &mut Random) -> Value {
    Id(random.below(context.words.len()))
}

fn list(value: fn(usize) -> Value, context: &Context, random: &mut Random) -> Value {
    let count = random.of_these(&[1, 1, 2, 2, 3, 5, 16, 24]);
    List(context.some(count, random).into_iter().map(value).collect())
}

fn other_than_fact(context: &Context, random: &mut Random) -> usize {
    loop {
        let at = random.below(context.words.len());
        if context.words[at].name != "fact" {
            return at;
        }
    }
}

/// Do one thing to a record that may make it another's, or nobody's.
pub fn deform(record: &mut Record, context: &Context, random: &mut Random) {
    if record.len() < 2 {
        return record.push(any(context, random));
    }
    let fields = record.len() / 2 - 1;
    // Where the tag of a field stands; of a record without fields, its type.
    let tag = if fields == 0 { 0 } else { 2 + 2 * random.below(fields) };
    let at = random.below(record.len());
    match random.below(10) {
        0 if fields > 1 => {
            let other = 2 + 2 * random.below(fields);
            record.swap(tag, other);
            if random.once_in(2) {
                record.swap(tag + 1, other + 1);
            }
        }
        1 => record.extend_from_within(tag..tag + 2),
        2 => drop(record.drain(tag..tag + 2)),
        3 => {
            let tags = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 31, 33, 99];
            record[tag] = Uint(random.of_these(&tags));
        }
        4 => record[0] = Uint(random.of_these(&[0, 1, 2, 3, 4, 5, 255, 256])),
        5 => drop(record.pop()),
        6 => {
            let added = valid(random.below(context.words.len()), context, random);
            record.extend_from_slice(&added[2..]);
        }
        7 | 8 => {
            match record.iter_mut().filter_map(|value| if let List(list) = value { Some(list) } else { None }).last() {
                Some(list) => deform_list(list, context, random),
                None => record[at] = any(context, random),
            }
        }
        _ => record[at] = any(context, random),
    }
}

fn deform_list(list: &mut Vec<Value>, context: &Context, random: &mut Random) {
    match random.below(5) {
        0 => list.reverse(),
        1 => list.extend_from_within(..list.len().min(1)),
        2 => list.clear(),
        3 => list.push(any(context, random)),
        _ => list.push(one(context, random)),
    }
}

/// A value of any kind.
fn any(context: &Context, random: &mut Random) -> Value {
    let at = random.below(context.words.len());
    match random.below(9) {
        0 => Nil,
        1 => Bool(random.once_in(2)),
        2 => Uint(random.below(17) as u64),
        3 => Uint(random.next() >> random.below(64)),
        4 => Id(at),
        5 => Text(at),
        6 => list(if random.once_in(2) { Id } else { Text }, context, random),
        7 => Raw(vec![0x91; random.of_these(&[1, 2, 600, 990, 1020, 1100])]),
        _ => Raw(random.of_these(&STRANGE).to_vec()),
    }
}
