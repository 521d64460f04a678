//! Writing skeletons: the blocks of a batch, and single skeletons in their string form.

use crate::Map;
use crate::error::BlockError::{self, Damaged};
use crate::event::{
    BLOCK_EVENTS, Block, DERIVED_FROM, HEADER, KEY, KIND, PARENT, Resolve, SOURCES, VERSION, checksum, read_skeleton,
};
use crate::ids::{Ids, Number};
use crate::msgpack::{Reader, Ref, write_array, write_str, write_uint};

type Result<T> = std::result::Result<T, BlockError>;

/// The numbers that the new ids of a batch will have, beside those that ids have.
struct Numbering<'a, 'b> {
    ids: &'b Ids,
    new: Map<&'a str, u32>,
    names: Vec<&'a str>,
}

impl<'a> Numbering<'a, '_> {
    /// The number of an id, and whether it was mentioned before.
    fn number(&mut self, name: &'a str) -> Result<(Number, bool)> {
        let known = self.ids.find(name).or_else(|| self.new.get(name).map(|&number| Number(number)));
        if let Some(number) = known {
            return Ok((number, true));
        }
        if self.ids.is_full_with(self.names.len()) {
            return Err(Damaged("the log has too many ids"));
        }
        let next = (self.ids.len() + self.names.len()) as u32;
        self.new.insert(name, next);
        self.names.push(name);
        Ok((Number(next), false))
    }

    fn bytes(&self, number: Number) -> &[u8] {
        let at = number.at();
        if at < self.ids.len() { self.ids.bytes(number) } else { self.names[at - self.ids.len()].as_bytes() }
    }
}

/// The blocks of a batch whose first event has position `first_seq`, each with its own first seq. O(bytes).
///
/// # Errors
/// [`BlockError::Damaged`] where a skeleton is not canonical.
pub fn encode_blocks(first_seq: u64, skeletons: &[&[u8]], ids: &Ids) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut numbering = Numbering { ids, new: Map::with_hasher(ids.hasher()), names: Vec::new() };
    let mut blocks = Vec::with_capacity(skeletons.len().div_ceil(BLOCK_EVENTS));
    let mut seq = first_seq;
    for chunk in skeletons.chunks(BLOCK_EVENTS) {
        let mut bytes = vec![VERSION, 0, 0, 0];
        bytes.extend_from_slice(&(chunk.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&((ids.len() + numbering.names.len()) as u64).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for skeleton in chunk {
            transcode(skeleton, &mut numbering, &mut bytes)?;
        }
        let sum = checksum(seq, &bytes[..16], &bytes[HEADER..]);
        bytes[16..HEADER].copy_from_slice(&sum.to_le_bytes());
        blocks.push((seq, bytes));
        seq += chunk.len() as u64;
    }
    Ok(blocks)
}

/// Copy a skeleton, each id replaced by its reference.
fn transcode<'a>(skeleton: &'a [u8], numbering: &mut Numbering<'a, '_>, out: &mut Vec<u8>) -> Result<()> {
    let mut check = Reader { bytes: skeleton };
    let mut copying = Copying { out, from: skeleton, numbering };
    let mut block = Block::default();
    read_skeleton(&mut check, &mut block, &mut copying)?;
    block.check_lists(|number| copying.numbering.bytes(number))?;
    if !check.bytes.is_empty() {
        return Err(Damaged("bytes are left after a skeleton"));
    }
    let rest = copying.from;
    out.extend_from_slice(rest);
    Ok(())
}

/// Copies what stands between references, and each reference as its number.
struct Copying<'a, 'b, 'c> {
    out: &'b mut Vec<u8>,
    from: &'a [u8],
    numbering: &'b mut Numbering<'a, 'c>,
}

impl<'a> Resolve<'a> for Copying<'a, '_, '_> {
    fn number(&mut self, reference: Ref<'a>) -> Result<Number> {
        let Ref::Name(name) = reference else {
            return Err(Damaged("a skeleton to be written refers to an id by number"));
        };
        // Where the name begins in what is left to copy: both are parts of one slice.
        let offset = name.as_ptr() as usize - self.from.as_ptr() as usize;
        let head = offset
            - if name.len() < 32 {
                1
            } else if name.len() < 256 {
                2
            } else {
                3
            };
        self.out.extend_from_slice(&self.from[..head]);
        self.from = &self.from[offset + name.len()..];
        match self.numbering.number(name)? {
            (number, true) => {
                write_uint(self.out, number.0);
                Ok(number)
            }
            (number, false) => {
                write_str(self.out, name);
                Ok(number)
            }
        }
    }
}

/// The id of a string-form skeleton.
///
/// # Errors
/// [`BlockError::Damaged`] where the bytes do not begin as a skeleton does.
pub fn skeleton_id(skeleton: &[u8]) -> Result<&str> {
    let mut reader = Reader { bytes: skeleton };
    reader.array()?;
    reader.uint()?;
    match reader.reference()? {
        Ref::Name(name) => Ok(name),
        Ref::Number(_) => Err(Damaged("a skeleton to be written refers to an id by number")),
    }
}

/// The canonical string form of a message's skeleton; `None` is a legacy parent, `Some(None)` a root.
#[must_use]
pub fn message_skeleton(id: &str, parent: Option<Option<&str>>) -> Vec<u8> {
    let mut out = vec![0x90 + if parent.is_some() { 4 } else { 2 }, 0];
    write_str(&mut out, id);
    if let Some(parent) = parent {
        out.push(PARENT);
        match parent {
            Some(parent) => write_str(&mut out, parent),
            None => out.push(0xc0),
        }
    }
    out
}

/// The canonical string form of a memory's skeleton.
#[must_use]
pub fn memory_skeleton(
    id: &str,
    sources: &[&str],
    derived_from: &[&str],
    label: Option<&str>,
    key: Option<&str>,
) -> Vec<u8> {
    let lists = [(SOURCES, sources), (DERIVED_FROM, derived_from)];
    let texts = [(KIND, label), (KEY, key)];
    let fields = lists.iter().filter(|(_, list)| !list.is_empty()).count()
        + texts.iter().filter(|(_, text)| text.is_some()).count();
    let mut out = vec![0x90 + 2 + 2 * fields as u8, 1];
    write_str(&mut out, id);
    for (tag, list) in lists {
        if !list.is_empty() {
            out.push(tag);
            write_array(&mut out, list.len());
            list.iter().for_each(|name| write_str(&mut out, name));
        }
    }
    for (tag, text) in texts {
        if let Some(text) = text {
            out.push(tag);
            write_str(&mut out, text);
        }
    }
    out
}
