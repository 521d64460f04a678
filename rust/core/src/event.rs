//! Skeletons: the bytes of what decides visibility, read strictly.
//!
//! A skeleton is one msgpack array: type, id, then tags and values in
//! ascending order of tags, fields at their default left out. On disk they
//! stand in blocks, where an id that was mentioned before is its number. Only
//! canonical bytes are read: every block has one reading, every reading one
//! block. No size is trusted before the bytes behind it are there.

use crate::Map;
use crate::ids::{Ids, Number};
use std::ops::Range;

/// The bytes before the records of a block.
pub const HEADER: usize = 20;
/// The most records that one block holds.
pub const BLOCK_EVENTS: usize = 1000;
const VERSION: u8 = 1;
const MAX_ID: usize = 256;
const MAX_REFERENCES: usize = 4096;
/// So that ordinals fit their arrays.
const MAX_IDS: usize = 1 << 30;

/// Why a block was refused. Trust nothing from its first seq on.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BlockError {
    /// The bytes are not those that were written.
    #[error("{0}")]
    Damaged(&'static str),
    /// A later branchmem wrote it: upgrade.
    #[error("skeleton blocks of version {0} are newer than this version")]
    TooNew(u8),
    /// The format has it, this version does not act upon it.
    #[error("this version does not support {0} yet")]
    Unsupported(&'static str),
    /// The block does not follow on what was folded.
    #[error("events are missing before it: the log stands at seq {0}")]
    Gap(u64),
}
use BlockError::Damaged;

type Result<T> = std::result::Result<T, BlockError>;

/// The five types, by their codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Has a place in a tree.
    Message,
    /// Derived from messages.
    Memory,
    /// Takes memories back.
    Retraction,
    /// Lifts a retraction.
    Restoration,
    /// Removes content.
    Erasure,
}

/// What stands above a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// Never recorded.
    Legacy,
    /// Nothing.
    Root,
    /// This message.
    Id(Number),
}

const PARENT: u8 = 1;
const SOURCES: u8 = 2;
const DERIVED_FROM: u8 = 3;
const SUPERSEDES: u8 = 4;
const ADOPTS: u8 = 5;
const KIND: u8 = 6;
const KEY: u8 = 7;
const AT: u8 = 8;
const SCOPE: u8 = 9;
const MEMORIES: u8 = 10;
const KEYS: u8 = 11;
const STANDING: u8 = 12;
const RETRACTION: u8 = 13;
const TARGETS: u8 = 14;
const CASCADE: u8 = 15;

const fn set(tags: &[u8]) -> u32 {
    let mut out = 0;
    let mut i = 0;
    while i < tags.len() {
        out |= 1 << tags[i];
        i += 1;
    }
    out
}

impl Type {
    fn of(code: u64) -> Result<Self> {
        [Self::Message, Self::Memory, Self::Retraction, Self::Restoration, Self::Erasure]
            .get(usize::try_from(code).unwrap_or(usize::MAX))
            .copied()
            .ok_or(Damaged("an event has an unknown type"))
    }

    const fn allowed(self) -> u32 {
        match self {
            Self::Message => set(&[PARENT]),
            Self::Memory => set(&[SOURCES, DERIVED_FROM, SUPERSEDES, ADOPTS, KIND, KEY]),
            Self::Retraction => set(&[SOURCES, AT, SCOPE, MEMORIES, KEYS, STANDING]),
            Self::Restoration => set(&[AT, SCOPE, RETRACTION]),
            Self::Erasure => set(&[TARGETS, CASCADE]),
        }
    }

    const fn required(self) -> u32 {
        match self {
            Self::Message | Self::Memory => 0,
            Self::Retraction => set(&[AT, SCOPE]),
            Self::Restoration => set(&[AT, SCOPE, RETRACTION]),
            Self::Erasure => set(&[TARGETS]),
        }
    }
}

/// One skeleton of a block; lists are ranges of [`Block::refs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skeleton<'a> {
    /// Its type.
    pub kind: Type,
    /// Its id.
    pub id: Number,
    /// What a message continues.
    pub parent: Parent,
    /// The messages that a memory was derived from, or that a retraction names.
    pub sources: Range<usize>,
    /// The memories that a memory was derived from.
    pub derived_from: Range<usize>,
    /// Whether it replaces or adopts a memory.
    pub supersedes_or_adopts: bool,
    /// The kind of a memory, where it is not `fact`.
    pub label: Option<&'a str>,
    /// What a memory is about.
    pub key: Option<&'a str>,
}

/// The skeletons of one block.
#[derive(Debug, Default)]
pub struct Block<'a> {
    /// In the order of the log.
    pub skeletons: Vec<Skeleton<'a>>,
    /// The ids that lists refer to.
    pub refs: Vec<Number>,
}

/// A reference as it stands in the bytes.
enum Ref<'a> {
    Number(u32),
    Name(&'a str),
}

/// Turns references into numbers, in the order of the bytes.
trait Resolve<'a> {
    fn number(&mut self, reference: Ref<'a>) -> Result<Number>;
    fn name(&self, number: Number) -> &str;
}

/// Read a block and number its new ids. O(bytes); memory at most 8x the bytes.
///
/// # Errors
/// [`BlockError`]; no id of the block is kept.
pub fn decode_block<'a>(first_seq: u64, bytes: &'a [u8], ids: &mut Ids) -> Result<Block<'a>> {
    let (count, payload) = check_header(first_seq, bytes, ids.len() as u64)?;
    let before = ids.len();
    let mut block = Block::default();
    let mut reader = Reader { bytes: payload };
    let read = (0..count).try_for_each(|_| {
        let skeleton = read_skeleton(&mut reader, &mut block.refs, &mut Interning(ids))?;
        block.skeletons.push(skeleton);
        Ok(())
    });
    match read {
        Ok(()) if reader.bytes.is_empty() => Ok(block),
        Ok(()) => {
            ids.truncate(before);
            Err(Damaged("bytes are left after the last record of a block"))
        }
        Err(error) => {
            ids.truncate(before);
            Err(error)
        }
    }
}

fn check_header(first_seq: u64, bytes: &[u8], interned: u64) -> Result<(usize, &[u8])> {
    let Some((header, payload)) = bytes.split_at_checked(HEADER) else {
        return Err(Damaged("a block is shorter than its header"));
    };
    if header[0] > VERSION {
        return Err(BlockError::TooNew(header[0]));
    }
    if header[0] != VERSION || header[1..4] != [0; 3] {
        return Err(Damaged("a block has no valid version"));
    }
    if word(&header[16..]) != checksum(first_seq, &header[..16], payload) {
        return Err(Damaged("the checksum of a block does not match"));
    }
    let count = word(&header[4..]) as usize;
    if !(1..=BLOCK_EVENTS).contains(&count) {
        return Err(Damaged("a block has no valid count"));
    }
    if u64::from(word(&header[8..])) | u64::from(word(&header[12..])) << 32 != interned {
        return Err(Damaged("a block numbers its ids from elsewhere"));
    }
    Ok((count, payload))
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn checksum(first_seq: u64, header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&first_seq.to_le_bytes());
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

fn read_skeleton<'a>(
    reader: &mut Reader<'a>,
    refs: &mut Vec<Number>,
    resolve: &mut impl Resolve<'a>,
) -> Result<Skeleton<'a>> {
    let items = reader.array()?;
    if items < 2 || items % 2 == 1 {
        return Err(Damaged("a record has a tag without a value"));
    }
    let kind = Type::of(reader.uint()?)?;
    let id = resolve.number(reader.reference()?)?;
    let mut out = Skeleton {
        kind,
        id,
        parent: Parent::Legacy,
        sources: 0..0,
        derived_from: 0..0,
        supersedes_or_adopts: false,
        label: None,
        key: None,
    };
    let (mut seen, mut references, mut least) = (0_u32, 0, 0);
    for _ in 1..items / 2 {
        let tag = reader.uint()?;
        if tag < least || tag > u64::from(CASCADE) || kind.allowed() & (1 << tag) == 0 {
            return Err(Damaged("a record has a tag that does not belong there"));
        }
        least = tag + 1;
        seen |= 1 << tag;
        match tag as u8 {
            PARENT if reader.nil() => out.parent = Parent::Root,
            PARENT => out.parent = Parent::Id(resolve.number(reader.reference()?)?),
            SOURCES => out.sources = list(reader, refs, resolve, &mut references)?,
            DERIVED_FROM => out.derived_from = list(reader, refs, resolve, &mut references)?,
            SUPERSEDES => {
                out.supersedes_or_adopts = true;
                list(reader, refs, resolve, &mut references)?;
            }
            MEMORIES | TARGETS => {
                list(reader, refs, resolve, &mut references)?;
            }
            ADOPTS => {
                out.supersedes_or_adopts = true;
                resolve.number(reader.reference()?)?;
            }
            AT | RETRACTION => {
                resolve.number(reader.reference()?)?;
            }
            KIND => out.label = Some(reader.name().and_then(|kind| distinct(kind, "fact"))?),
            KEY => out.key = Some(reader.name()?),
            KEYS => keys(reader, &mut references)?,
            SCOPE if reader.uint()? <= 2 => {}
            STANDING if reader.byte()? == 0xc3 => {}
            CASCADE if reader.byte()? == 0xc2 => {}
            _ => return Err(Damaged("a record has a value that its tag does not take")),
        }
    }
    let named = kind != Type::Retraction || seen & set(&[SOURCES, MEMORIES, KEYS]) != 0;
    if seen & kind.required() != kind.required() || !named {
        return Err(Damaged("a record lacks a field"));
    }
    Ok(out)
}

fn distinct<'a>(value: &'a str, default: &str) -> Result<&'a str> {
    if value == default { Err(Damaged("a record spells a default out")) } else { Ok(value) }
}

fn counted(reader: &mut Reader<'_>, references: &mut usize) -> Result<usize> {
    let len = reader.array()?;
    *references += len;
    if len == 0 || *references > MAX_REFERENCES || len > reader.bytes.len() {
        return Err(Damaged("a list has no valid length"));
    }
    Ok(len)
}

fn list<'a>(
    reader: &mut Reader<'a>,
    refs: &mut Vec<Number>,
    resolve: &mut impl Resolve<'a>,
    references: &mut usize,
) -> Result<Range<usize>> {
    let start = refs.len();
    for at in 0..counted(reader, references)? {
        let number = resolve.number(reader.reference()?)?;
        if at > 0 && resolve.name(refs[refs.len() - 1]) >= resolve.name(number) {
            return Err(Damaged("a list is not sorted"));
        }
        refs.push(number);
    }
    Ok(start..refs.len())
}

fn keys(reader: &mut Reader<'_>, references: &mut usize) -> Result<()> {
    let mut last = "";
    for _ in 0..counted(reader, references)? {
        let key = reader.name()?;
        if key <= last {
            return Err(Damaged("a list is not sorted"));
        }
        last = key;
    }
    Ok(())
}

/// Reading from disk: a name is a first mention and gets the next number.
struct Interning<'b>(&'b mut Ids);

impl<'a> Resolve<'a> for Interning<'_> {
    fn number(&mut self, reference: Ref<'a>) -> Result<Number> {
        match reference {
            Ref::Number(number) if (number as usize) < self.0.len() => Ok(Number(number)),
            Ref::Number(_) => Err(Damaged("a record refers to an id that was never mentioned")),
            Ref::Name(name) if self.0.find(name).is_some() => Err(Damaged("an id is mentioned first twice")),
            Ref::Name(_) if self.0.len() >= MAX_IDS => Err(Damaged("the log has too many ids")),
            Ref::Name(name) => Ok(self.0.add(name)),
        }
    }

    fn name(&self, number: Number) -> &str {
        self.0.name(number)
    }
}

/// The numbers that the new ids of a batch will have, beside those that ids have.
struct Numbering<'a, 'b> {
    ids: &'b Ids,
    new: Map<&'a str, u32>,
    names: Vec<&'a str>,
}

impl<'a> Numbering<'a, '_> {
    /// The number of an id, and whether it was mentioned before.
    fn number(&mut self, name: &'a str) -> (Number, bool) {
        let known = self.ids.find(name).or_else(|| self.new.get(name).map(|&number| Number(number)));
        if let Some(number) = known {
            return (number, true);
        }
        let next = (self.ids.len() + self.names.len()) as u32;
        self.new.insert(name, next);
        self.names.push(name);
        (Number(next), false)
    }

    fn name(&self, number: Number) -> &str {
        let at = number.at();
        if at < self.ids.len() { self.ids.name(number) } else { self.names[at - self.ids.len()] }
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
    let mut refs = Vec::new();
    read_skeleton(&mut check, &mut refs, &mut copying)?;
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
        match self.numbering.number(name) {
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

    fn name(&self, number: Number) -> &str {
        self.numbering.name(number)
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

fn write_uint(out: &mut Vec<u8>, value: u32) {
    match value {
        0..0x80 => out.push(value as u8),
        0x80..0x100 => out.extend_from_slice(&[0xcc, value as u8]),
        0x100..0x1_0000 => {
            out.push(0xcd);
            out.extend_from_slice(&(value as u16).to_be_bytes());
        }
        _ => {
            out.push(0xce);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

fn write_str(out: &mut Vec<u8>, text: &str) {
    match text.len() {
        len @ 0..32 => out.push(0xa0 | len as u8),
        len @ 32..256 => out.extend_from_slice(&[0xd9, len as u8]),
        len => {
            out.push(0xda);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(text.as_bytes());
}

fn write_array(out: &mut Vec<u8>, len: usize) {
    if len < 16 {
        out.push(0x90 | len as u8);
    } else {
        out.push(0xdc);
        out.extend_from_slice(&(len as u16).to_be_bytes());
    }
}

/// Reads the subset of msgpack that skeletons use, in its shortest forms only.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(Damaged("a record ends early"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn nil(&mut self) -> bool {
        let nil = self.bytes.first() == Some(&0xc0);
        if nil {
            self.bytes = &self.bytes[1..];
        }
        nil
    }

    fn big_endian(&mut self, len: usize) -> Result<u64> {
        Ok(self.take(len)?.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn uint(&mut self) -> Result<u64> {
        let (value, least) = match self.byte()? {
            value @ 0..0x80 => (u64::from(value), 0),
            0xcc => (self.big_endian(1)?, 0x80),
            0xcd => (self.big_endian(2)?, 0x100),
            0xce => (self.big_endian(4)?, 0x1_0000),
            _ => return Err(Damaged("a record has no number where one belongs")),
        };
        if value < least { Err(Damaged("a number is not in its shortest form")) } else { Ok(value) }
    }

    fn array(&mut self) -> Result<usize> {
        match self.byte()? {
            byte @ 0x90..0xa0 => Ok(usize::from(byte & 0x0f)),
            0xdc => match self.big_endian(2)? as usize {
                len @ 16.. => Ok(len),
                _ => Err(Damaged("a list is not in its shortest form")),
            },
            _ => Err(Damaged("a record has no list where one belongs")),
        }
    }

    fn name(&mut self) -> Result<&'a str> {
        let (len, least) = match self.byte()? {
            byte @ 0xa0..0xc0 => (usize::from(byte & 0x1f), 1),
            0xd9 => (self.big_endian(1)? as usize, 32),
            0xda => (self.big_endian(2)? as usize, 256),
            _ => return Err(Damaged("a record has no string where one belongs")),
        };
        if len < least || len > MAX_ID {
            return Err(Damaged("an id has no valid length"));
        }
        std::str::from_utf8(self.take(len)?).map_err(|_| Damaged("an id is not valid UTF-8"))
    }

    fn reference(&mut self) -> Result<Ref<'a>> {
        match self.bytes.first() {
            Some(0xa0..0xc0 | 0xd9 | 0xda) => Ok(Ref::Name(self.name()?)),
            _ => Ok(Ref::Number(self.uint()? as u32)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_keeps_its_bytes() {
        let ids = Ids::new(0);
        let root = message_skeleton("c", Some(None));
        let turn = message_skeleton("u", Some(Some("c")));
        let blocks = encode_blocks(0, &[&root, &turn], &ids).unwrap();
        assert_eq!(blocks[0].1[HEADER..], *b"\x94\x00\xa1c\x01\xc0\x94\x00\xa1u\x01\x00");
        assert_eq!(blocks[0].1[..16], *b"\x01\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0");
    }

    #[test]
    fn what_is_written_is_read() {
        let sources = ["a", "b"];
        let memory = memory_skeleton("m", &sources, &["m"], Some("summary"), Some("city"));
        let mut ids = Ids::new(0);
        let blocks = encode_blocks(0, &[&memory], &ids).unwrap();
        let block = decode_block(0, &blocks[0].1, &mut ids).unwrap();
        let skeleton = &block.skeletons[0];
        assert_eq!((skeleton.label, skeleton.key), (Some("summary"), Some("city")));
        let names: Vec<_> = block.refs.iter().map(|&number| ids.name(number)).collect();
        assert_eq!(names, ["a", "b", "m"]);
        assert_eq!((skeleton.sources.clone(), skeleton.derived_from.clone()), (0..2, 2..3));
    }

    #[test]
    fn every_changed_byte_is_refused_and_leaves_no_id() {
        let memory = memory_skeleton("memory", &["s"], &[], None, None);
        let mut ids = Ids::new(0);
        let bytes = encode_blocks(0, &[&memory], &ids).unwrap().remove(0).1;
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(decode_block(0, &damaged, &mut ids).is_err());
                assert!(ids.is_empty());
            }
        }
        assert_eq!(decode_block(1, &bytes, &mut ids).unwrap_err(), Damaged("the checksum of a block does not match"));
    }

    proptest::proptest! {
        /// Any bytes behind a valid header: an answer or an error, never a panic.
        #[test]
        fn any_bytes_are_read_or_refused(payload in proptest::collection::vec(proptest::num::u8::ANY, 0..200), count in 1_u32..4) {
            let mut bytes = vec![VERSION, 0, 0, 0];
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(&[0; 8]);
            bytes.extend_from_slice(&checksum(0, &bytes[..16], &payload).to_le_bytes());
            bytes.extend_from_slice(&payload);
            let mut ids = Ids::new(0);
            if decode_block(0, &bytes, &mut ids).is_err() {
                assert!(ids.is_empty());
            }
        }
    }
}
