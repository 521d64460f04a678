//! The largest blocks that a header allows, each made to cost the decoder as much as it can.

use crate::hostile::{Header, Input};
use branchmem_core::msgpack::{write_array, write_str, write_uint};

/// The most records, and the most references of each.
const RECORDS: usize = 1000;
const REFERENCES: usize = 4096;

/// Letters of one byte.
const LETTERS: usize = 128;

/// A name, and how to make the block.
type Named = (&'static str, fn() -> Input);

/// All of them.
pub const BLOCKS: [Named; 6] = [
    ("as many new ids as a block can name", || block(RECORDS, true, new_ids)),
    ("new ids that just do not fit into tables of two million", || block(513, true, new_ids)),
    ("as many new ids, the last of them the first again", || block(RECORDS, false, ids_and_one_again)),
    ("as many references as a block can have", || block(RECORDS, true, numbers)),
    ("as many keys as a block can have", || block(RECORDS, true, keys)),
    ("a list in a list, and so on", || block(RECORDS, false, |_, out| out.extend([0xdc, 0x10, 0x00].repeat(1000)))),
];

fn block(records: usize, is_valid: bool, record: fn(usize, &mut Vec<u8>)) -> Input {
    let mut payload = Vec::new();
    (0..records).for_each(|at| record(at, &mut payload));
    let header = Header { version: 1, padding: [0; 3], count: records as u32, interned: 0 };
    Input { context: 0, first_seq: 0, bytes: header.sealed(0, &payload), is_valid }
}

/// A memory whose sources are all new.
fn new_ids(at: usize, out: &mut Vec<u8>) {
    out.extend([0x94, 1]);
    write_str(out, &name(RECORDS * REFERENCES + at));
    out.push(2);
    write_array(out, REFERENCES);
    (0..REFERENCES).for_each(|number| write_str(out, &name(at * REFERENCES + number)));
}

fn ids_and_one_again(at: usize, out: &mut Vec<u8>) {
    if at + 1 < RECORDS {
        new_ids(at, out);
    } else {
        out.extend([0x92, 0]);
        write_str(out, &name(0));
    }
}

/// The first record names as many ids as it can, the others refer to the same by numbers.
fn numbers(at: usize, out: &mut Vec<u8>) {
    if at == 0 {
        return new_ids(0, out);
    }
    out.extend([0x94, 1, 0, 2]);
    write_array(out, REFERENCES);
    (0..REFERENCES).for_each(|number| write_uint(out, 1 + number as u32));
}

/// A retraction of as many keys as it can name.
fn keys(at: usize, out: &mut Vec<u8>) {
    out.extend([0x98, 2]);
    if at == 0 {
        write_str(out, "r");
    } else {
        out.push(0);
    }
    out.extend([8, 0, 9, 0, 11]);
    write_array(out, REFERENCES);
    (0..REFERENCES).for_each(|number| write_str(out, &letters(number, 2)));
}

/// Names as short as so many can be; those of one length sort by their numbers.
fn name(number: usize) -> String {
    letters(number, if number < LETTERS.pow(3) { 3 } else { 4 })
}

fn letters(number: usize, count: u32) -> String {
    (0..count).rev().map(|place| (number / LETTERS.pow(place) % LETTERS) as u8 as char).collect()
}
