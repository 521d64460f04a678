//! Writing skeletons: the blocks of a batch, and single skeletons in their string form.

use crate::Map;
use crate::error::BlockError::{self, Damaged};
use crate::event::{
    ADOPTS, AT, BLOCK_EVENTS, CASCADE, DERIVED_FROM, HEADER, KEY, KEYS, KIND, MEMORIES, PARENT, RETRACTION, Resolve,
    SCOPE, SOURCES, STANDING, SUPERSEDES, TARGETS, VERSION, checksum, read_skeleton,
};
use crate::ids::{Ids, Number};
use crate::msgpack::{Reader, Ref, write_array, write_str, write_uint};
use crate::skeleton::{Block, Scope, Type};

type Result<T> = std::result::Result<T, BlockError>;

const SPELLED_OUT: &str = "a skeleton to be written refers to an id by number";

/// The numbers that the new ids of a batch will have, beside those that ids have.
struct Numbering<'a, 'b> {
    ids: &'b Ids,
    new: Map<&'a str, u32>,
    names: Vec<&'a str>,
}

impl<'a> Numbering<'a, '_> {
    /// The number of an id, and whether it was mentioned before.
    fn numbered(&mut self, name: &'a str) -> Result<(Number, bool)> {
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

/// Read string-form skeletons without appending them: ids that have no number get the next ones for the time being.
///
/// # Errors
/// [`BlockError::Damaged`] where a skeleton is not canonical.
pub fn read_batch<'a>(skeletons: &[&'a [u8]], ids: &Ids) -> Result<Block<'a>> {
    let mut numbering = Numbering { ids, new: Map::with_hasher(ids.hasher()), names: Vec::new() };
    let mut block = Block::default();
    for bytes in skeletons {
        let skeleton = read_skeleton(&mut Reader { bytes }, &mut block, &mut numbering)?;
        block.skeletons.push(skeleton);
    }
    Ok(block)
}

impl<'a> Resolve<'a> for Numbering<'a, '_> {
    fn number(&mut self, reference: Ref<'a>) -> Result<Number> {
        match reference {
            Ref::Name(name) => Ok(self.numbered(name)?.0),
            Ref::Number(_) => Err(Damaged(SPELLED_OUT)),
        }
    }
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
            return Err(Damaged(SPELLED_OUT));
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
        match self.numbering.numbered(name)? {
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

/// Whether a string-form skeleton is that of an erasure.
#[must_use]
pub fn is_erasure(skeleton: &[u8]) -> bool {
    let mut reader = Reader { bytes: skeleton };
    reader.array().is_ok() && reader.uint() == Ok(Type::Erasure as u64)
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
        Ref::Number(_) => Err(Damaged(SPELLED_OUT)),
    }
}

/// What a field of a skeleton holds.
enum Value<'a> {
    Nil,
    Name(&'a str),
    Names(&'a [&'a str]),
    Code(u8),
}

/// The canonical string form of a skeleton, fields in ascending order of tags; those at their default are left out.
fn skeleton(kind: Type, id: &str, fields: &[(u8, Option<Value<'_>>)]) -> Vec<u8> {
    let given = || fields.iter().filter_map(|(tag, value)| Some((*tag, value.as_ref()?)));
    let mut out = Vec::with_capacity(64);
    write_array(&mut out, 2 + 2 * given().count());
    out.push(kind as u8);
    write_str(&mut out, id);
    for (tag, value) in given() {
        out.push(tag);
        match value {
            Value::Nil => out.push(0xc0),
            Value::Name(name) => write_str(&mut out, name),
            Value::Names(names) => {
                write_array(&mut out, names.len());
                names.iter().for_each(|name| write_str(&mut out, name));
            }
            Value::Code(code) => out.push(*code),
        }
    }
    out
}

fn names<'a>(list: &'a [&'a str]) -> Option<Value<'a>> {
    (!list.is_empty()).then_some(Value::Names(list))
}

/// The canonical string form of a message's skeleton; `None` is a legacy parent, `Some(None)` a root.
#[must_use]
pub fn message_skeleton(id: &str, parent: Option<Option<&str>>) -> Vec<u8> {
    skeleton(Type::Message, id, &[(PARENT, parent.map(|parent| parent.map_or(Value::Nil, Value::Name)))])
}

/// What a memory's skeleton says.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryFields<'a> {
    /// The messages that it was derived from.
    pub sources: &'a [&'a str],
    /// The memories that it was derived from.
    pub derived_from: &'a [&'a str],
    /// The memories that it replaces.
    pub supersedes: &'a [&'a str],
    /// The memory that it takes over.
    pub adopts: Option<&'a str>,
    /// Its kind, where it is not `fact`.
    pub label: Option<&'a str>,
    /// What it is about.
    pub key: Option<&'a str>,
}

/// The canonical string form of a memory's skeleton.
#[must_use]
pub fn memory_skeleton(id: &str, fields: &MemoryFields<'_>) -> Vec<u8> {
    let fields = [
        (SOURCES, names(fields.sources)),
        (DERIVED_FROM, names(fields.derived_from)),
        (SUPERSEDES, names(fields.supersedes)),
        (ADOPTS, fields.adopts.map(Value::Name)),
        (KIND, fields.label.map(Value::Name)),
        (KEY, fields.key.map(Value::Name)),
    ];
    skeleton(Type::Memory, id, &fields)
}

/// What a retraction's skeleton says.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetractionFields<'a> {
    /// The message at which it stands.
    pub at: &'a str,
    /// Where it is in effect.
    pub scope: Scope,
    /// The memories, messages and keys that it names.
    pub memories: &'a [&'a str],
    /// See `memories`.
    pub sources: &'a [&'a str],
    /// See `memories`.
    pub keys: &'a [&'a str],
    /// Whether it covers what is stated afresh.
    pub standing: bool,
}

/// The canonical string form of a retraction's skeleton.
#[must_use]
pub fn retraction_skeleton(id: &str, fields: &RetractionFields<'_>) -> Vec<u8> {
    let fields = [
        (SOURCES, names(fields.sources)),
        (AT, Some(Value::Name(fields.at))),
        (SCOPE, Some(Value::Code(fields.scope as u8))),
        (MEMORIES, names(fields.memories)),
        (KEYS, names(fields.keys)),
        (STANDING, fields.standing.then_some(Value::Code(0xc3))),
    ];
    skeleton(Type::Retraction, id, &fields)
}

/// The canonical string form of a restoration's skeleton.
#[must_use]
pub fn restoration_skeleton(id: &str, at: &str, scope: Scope, retraction: &str) -> Vec<u8> {
    let fields = [
        (AT, Some(Value::Name(at))),
        (SCOPE, Some(Value::Code(scope as u8))),
        (RETRACTION, Some(Value::Name(retraction))),
    ];
    skeleton(Type::Restoration, id, &fields)
}

/// The canonical string form of an erasure's skeleton; one `alone` takes only what it names.
#[must_use]
pub fn erasure_skeleton(id: &str, targets: &[&str], alone: bool) -> Vec<u8> {
    skeleton(Type::Erasure, id, &[(TARGETS, names(targets)), (CASCADE, alone.then_some(Value::Code(0xc2)))])
}
