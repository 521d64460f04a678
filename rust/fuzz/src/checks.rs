//! What must hold for any input.

use crate::hostile::Input;
use crate::memory::peak_of;
use crate::words::Context;
use branchmem_core::encode::{encode_blocks, skeleton_id};
use branchmem_core::event::{HEADER, decode_block};
use branchmem_core::ids::Ids;
use branchmem_core::msgpack::{Reader, Ref, write_array, write_str, write_uint};
use branchmem_core::{BlockError, Engine, Number};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What decoding may hold at most: this, and eight bytes for each of the input.
const ROOM: usize = 64 << 20;

/// Blocks are folded after logs that mention no more ids than this, which are folded again each time.
const FOLDED: usize = 1000;

/// What became of an input.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Read,
    Refused,
}

/// Decode an input, with all that is promised of it; the fate, and the most bytes that were held.
///
/// # Errors
/// The promise that was broken.
pub fn check(input: &Input, contexts: &mut [Context]) -> Result<(Fate, usize), String> {
    let context = &mut contexts[input.context];
    let before = context.ids.len();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let (read, peak) = peak_of(|| decode_block(input.first_seq, &input.bytes, &mut context.ids).is_ok());
        (judge(input, context, before, read), peak)
    }));
    let (fate, peak) = caught.map_err(|_| "it panics".to_owned())?;
    context.ids.truncate(before);
    if peak > ROOM + 8 * input.bytes.len() {
        return Err(format!("decoding holds {peak} bytes"));
    }
    match fate? {
        Fate::Refused if input.is_valid => Err("a valid block is refused".to_owned()),
        fate => Ok((fate, peak)),
    }
}

fn judge(input: &Input, context: &mut Context, before: usize, read: bool) -> Result<Fate, String> {
    let payload = input.bytes.get(HEADER..).unwrap_or_default();
    write_alone(payload)?;
    if !read {
        let left = context.ids.len() != before;
        return if left { Err("a refused block leaves ids behind".to_owned()) } else { Ok(Fate::Refused) };
    }
    let spelled = spelled_out(payload, &context.ids).map_err(|why| format!("its records: {why}"))?;
    context.ids.truncate(before);
    let slices: Vec<&[u8]> = spelled.iter().map(|(_, skeleton)| skeleton.as_slice()).collect();
    let again = encode_blocks(input.first_seq, &slices, &context.ids).map_err(|why| format!("writing again: {why}"))?;
    if again.len() != 1 || again[0].0 != input.first_seq || again[0].1 != input.bytes {
        return Err("an accepted block is written in other bytes".to_owned());
    }
    if before <= FOLDED {
        fold(input, context, &spelled)?;
    }
    Ok(Fate::Read)
}

/// Give bytes to the writer as a skeleton to be stored: what it takes is read again as it was.
fn write_alone(skeleton: &[u8]) -> Result<(), String> {
    let mut ids = Ids::new(0);
    let id = skeleton_id(skeleton);
    let Ok(blocks) = encode_blocks(0, &[skeleton], &ids) else {
        return Ok(());
    };
    decode_block(0, &blocks[0].1, &mut ids).map_err(|why| format!("what is written is refused: {why}"))?;
    let read = spelled_out(&blocks[0].1[HEADER..], &ids).map_err(|why| format!("what is written: {why}"))?;
    let is_the_same = read.len() == 1 && read[0].1 == skeleton && id.is_ok_and(|id| id == read[0].0);
    if is_the_same { Ok(()) } else { Err("what is written is read as another".to_owned()) }
}

/// Each record with its ids spelled out, as it was before it was written into a log, and its own id.
fn spelled_out(mut bytes: &[u8], ids: &Ids) -> Result<Vec<(String, Vec<u8>)>, BlockError> {
    let mut skeletons = Vec::new();
    while !bytes.is_empty() {
        let mut reader = Reader { bytes };
        let mut out = Vec::new();
        let items = reader.array()?;
        write_array(&mut out, items);
        write_uint(&mut out, reader.uint()? as u32);
        let id = spelled(&mut reader, ids, &mut out)?;
        for _ in 1..items / 2 {
            let tag = reader.uint()? as u32;
            write_uint(&mut out, tag);
            match tag {
                2..=4 | 10 | 14 => {
                    let len = reader.array()?;
                    write_array(&mut out, len);
                    for _ in 0..len {
                        spelled(&mut reader, ids, &mut out)?;
                    }
                }
                1 if reader.nil() => out.push(0xc0),
                1 | 5 | 8 | 13 => drop(spelled(&mut reader, ids, &mut out)?),
                6 | 7 => write_str(&mut out, reader.name()?),
                9 => write_uint(&mut out, reader.uint()? as u32),
                11 => {
                    let len = reader.array()?;
                    write_array(&mut out, len);
                    for _ in 0..len {
                        write_str(&mut out, reader.name()?);
                    }
                }
                _ => out.push(reader.byte()?),
            }
        }
        skeletons.push((id, out));
        bytes = reader.bytes;
    }
    Ok(skeletons)
}

fn spelled(reader: &mut Reader<'_>, ids: &Ids, out: &mut Vec<u8>) -> Result<String, BlockError> {
    let name = match reader.reference()? {
        Ref::Name(name) => name,
        Ref::Number(number) => ids.name(Number(number)),
    };
    write_str(out, name);
    Ok(name.to_owned())
}

/// Whether the engine takes the block in where no id is borne twice, and keeps of each event what it says.
fn fold(input: &Input, context: &Context, spelled: &[(String, Vec<u8>)]) -> Result<(), String> {
    let mut engine = Engine::new(0);
    for (first_seq, block) in &context.blocks {
        engine.fold(*first_seq, block).map_err(|why| format!("the log before: {why}"))?;
    }
    let mut borne: Vec<&str> = spelled.iter().map(|(id, _)| id.as_str()).collect();
    borne.extend(context.words.iter().filter(|word| word.is_borne).map(|word| word.name.as_str()));
    borne.sort_unstable();
    let is_borne_twice = borne.windows(2).any(|pair| pair[0] == pair[1]);
    let before = engine.ids().len();
    match engine.fold(input.first_seq, &input.bytes) {
        Err(_) if is_borne_twice && engine.ids().len() == before && engine.seq() == context.events => Ok(()),
        Err(error) => Err(format!("the engine refuses what was decoded: {error}")),
        Ok(_) if is_borne_twice => Err("the engine takes an id twice".to_owned()),
        Ok(count) if count != spelled.len() => Err(format!("{count} events were folded, not {}", spelled.len())),
        Ok(_) => spelled.iter().enumerate().try_for_each(|(at, (id, skeleton))| {
            let number = engine.ids().find(id).ok_or_else(|| format!("{id:?} is in no log"))?;
            let kept = (engine.skeleton(number), engine.ids().seq(number).map(u64::from));
            let expected = (Some(skeleton.clone()), Some(input.first_seq + at as u64));
            if kept == expected { Ok(()) } else { Err(format!("the engine has {kept:x?}, not {expected:x?}")) }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{Header, input};

    fn block(payload: &[u8], is_valid: bool) -> Input {
        let header = Header { version: 1, padding: [0; 3], count: 1, interned: 0 };
        Input { context: 0, first_seq: 0, bytes: header.sealed(0, payload), is_valid }
    }

    #[test]
    fn hostile_blocks_break_no_promise_and_a_part_of_them_is_read() {
        let mut contexts = Context::all();
        let mut read = 0;
        for number in 0..2000 {
            let input = input(number, 7, &contexts);
            let (fate, _) = check(&input, &mut contexts).unwrap_or_else(|why| panic!("seed 7, input {number}: {why}"));
            read += usize::from(fate == Fate::Read);
        }
        assert!((200..1800).contains(&read), "{read} of 2,000 were read");
    }

    #[test]
    fn a_valid_block_that_is_refused_breaks_a_promise() {
        let mut contexts = Context::all();
        assert!(check(&block(b"\x94\x00\xa1a\x01\xc0", true), &mut contexts).is_ok());
        let why = check(&block(b"\x94\x00\xa1a\x01\xc1", true), &mut contexts).err();
        assert_eq!(why.as_deref(), Some("a valid block is refused"));
    }

    #[test]
    fn an_input_follows_from_its_number() {
        let contexts = Context::all();
        for number in [0, 1, 1 << 40] {
            assert_eq!(input(number, 7, &contexts).bytes, input(number, 7, &contexts).bytes);
            assert_ne!(input(number, 7, &contexts).bytes, input(number, 8, &contexts).bytes);
        }
    }

    #[test]
    fn a_peak_is_what_was_held_at_once_on_top() {
        let kept = vec![0_u8; 1 << 20];
        let (len, peak) = peak_of(|| {
            drop(vec![1_u8; 3 << 20]);
            vec![1_u8; 2 << 20].len() + kept.len()
        });
        assert_eq!(len, 3 << 20);
        assert!((3 << 20..4 << 20).contains(&peak), "{peak}");
    }
}
