//! The bytes of skeletons, read strictly.
//!
//! A skeleton is one msgpack array: type, id, then tags and values in
//! ascending order of tags, fields at their default left out. On disk they
//! stand in blocks, where an id that was mentioned before is its number. Only
//! canonical bytes are read: every block has one reading, every reading one
//! block. No size is trusted before the bytes behind it are there.

use crate::error::BlockError::{self, Damaged};
use crate::ids::{Ids, Number};
use crate::msgpack::{Reader, Ref};
use crate::skeleton::{Block, Keys, More, Parent, Scope, Skeleton, Type};
use std::ops::Range;

/// The bytes before the records of a block.
pub const HEADER: usize = 20;
/// The most records that one block holds.
pub const BLOCK_EVENTS: usize = 1000;
pub(crate) const VERSION: u8 = 1;
const MAX_REFERENCES: usize = 4096;

type Result<T> = std::result::Result<T, BlockError>;

pub(crate) const PARENT: u8 = 1;
pub(crate) const SOURCES: u8 = 2;
pub(crate) const DERIVED_FROM: u8 = 3;
pub(crate) const SUPERSEDES: u8 = 4;
pub(crate) const ADOPTS: u8 = 5;
pub(crate) const KIND: u8 = 6;
pub(crate) const KEY: u8 = 7;
pub(crate) const AT: u8 = 8;
pub(crate) const SCOPE: u8 = 9;
pub(crate) const MEMORIES: u8 = 10;
pub(crate) const KEYS: u8 = 11;
pub(crate) const STANDING: u8 = 12;
pub(crate) const RETRACTION: u8 = 13;
pub(crate) const TARGETS: u8 = 14;
pub(crate) const CASCADE: u8 = 15;

const fn set(tags: &[u8]) -> u32 {
    let mut out = 0;
    let mut i = 0;
    while i < tags.len() {
        out |= 1 << tags[i];
        i += 1;
    }
    out
}

impl Scope {
    fn of(code: u64) -> Result<Self> {
        match code {
            0 => Ok(Self::Branch),
            1 => Ok(Self::Tree),
            2 => Ok(Self::Everywhere),
            _ => Err(Damaged("a record has a value that its tag does not take")),
        }
    }
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

/// Turns references into numbers, in the order of the bytes.
pub(crate) trait Resolve<'a> {
    fn number(&mut self, reference: Ref<'a>) -> Result<Number>;
}

/// Read a block and number its new ids. O(bytes); memory: a fixed record for each of at most 1,000
/// events, 4 bytes a reference, and the new ids.
///
/// # Errors
/// [`BlockError`]; no id of the block is kept.
pub fn decode_block<'a>(first_seq: u64, bytes: &'a [u8], ids: &mut Ids) -> Result<Block<'a>> {
    let (count, payload) = check_header(first_seq, bytes, ids.len() as u64)?;
    let mut block = Block::default();
    let mut reader = Reader { bytes: payload };
    let mut mentions = Mentions { ids, payload, new: Vec::with_capacity(count.next_power_of_two()) };
    for _ in 0..count {
        let skeleton = read_skeleton(&mut reader, &mut block, &mut mentions)?;
        block.skeletons.push(skeleton);
    }
    if !reader.bytes.is_empty() {
        return Err(Damaged("bytes are left after the last record of a block"));
    }
    ids.warm(&block.refs);
    block.check_lists(|number| mentions.bytes(number))?;
    let Mentions { new, .. } = mentions;
    if ids.add_all(new.iter().map(|&head| text(payload, head))) {
        Ok(block)
    } else {
        Err(Damaged("an id is mentioned first twice"))
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
    if payload.len() > u32::MAX as usize {
        return Err(Damaged("a block is longer than its records can be"));
    }
    if u64::from(word(&header[8..])) | u64::from(word(&header[12..])) << 32 != interned {
        return Err(Damaged("a block numbers its ids from elsewhere"));
    }
    Ok((count, payload))
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

pub(crate) fn checksum(first_seq: u64, header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&first_seq.to_le_bytes());
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

pub(crate) fn read_skeleton<'a>(
    reader: &mut Reader<'a>,
    block: &mut Block<'a>,
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
        label: None,
        key: None,
        more: None,
    };
    let mut more = More::default();
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
            SOURCES => out.sources = list(reader, block, resolve, &mut references)?,
            DERIVED_FROM => out.derived_from = list(reader, block, resolve, &mut references)?,
            SUPERSEDES => more.supersedes = list(reader, block, resolve, &mut references)?,
            MEMORIES | TARGETS => more.named = list(reader, block, resolve, &mut references)?,
            ADOPTS => more.adopts = Some(resolve.number(reader.reference()?)?),
            AT => more.at = Some(resolve.number(reader.reference()?)?),
            RETRACTION => more.retraction = Some(resolve.number(reader.reference()?)?),
            KIND => out.label = Some(reader.name().and_then(|kind| distinct(kind, "fact"))?),
            KEY => out.key = Some(reader.name()?),
            KEYS => more.keys = keys(reader, &mut references)?,
            SCOPE => more.scope = reader.uint().and_then(Scope::of)?,
            STANDING if reader.byte()? == 0xc3 => more.standing = true,
            CASCADE if reader.byte()? == 0xc2 => more.alone = true,
            _ => return Err(Damaged("a record has a value that its tag does not take")),
        }
    }
    let named = kind != Type::Retraction || seen & set(&[SOURCES, MEMORIES, KEYS]) != 0;
    if seen & kind.required() != kind.required() || !named {
        return Err(Damaged("a record lacks a field"));
    }
    if seen & !set(&[PARENT, SOURCES, DERIVED_FROM, KIND, KEY]) != 0 {
        out.more = Some(block.more.len() as u32);
        block.more.push(more);
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
    block: &mut Block<'a>,
    resolve: &mut impl Resolve<'a>,
    references: &mut usize,
) -> Result<Range<usize>> {
    let start = block.refs.len();
    for _ in 0..counted(reader, references)? {
        block.refs.push(resolve.number(reader.reference()?)?);
    }
    block.lists.push(start..block.refs.len());
    Ok(start..block.refs.len())
}

fn keys<'a>(reader: &mut Reader<'a>, references: &mut usize) -> Result<Keys<'a>> {
    let count = counted(reader, references)?;
    let (bytes, mut last) = (reader.bytes, "");
    for _ in 0..count {
        let key = reader.name()?;
        if key <= last {
            return Err(Damaged("a list is not sorted"));
        }
        last = key;
    }
    Ok(Keys(&bytes[..bytes.len() - reader.bytes.len()]))
}

/// Reading from disk: a name is a first mention and gets the next number. Whether it truly is one is
/// asked of all names of a block together, so that no look-up waits for another.
struct Mentions<'a, 'b> {
    ids: &'b Ids,
    payload: &'a [u8],
    /// Where in the payload each begins, in four bytes: a block may hold four million.
    new: Vec<u32>,
}

/// The bytes of the string, known to be one, that begins here.
fn text(payload: &[u8], head: u32) -> &[u8] {
    let bytes = &payload[head as usize..];
    let (skip, len) = match bytes[0] {
        0xd9 => (2, usize::from(bytes[1])),
        0xda => (3, usize::from(bytes[1]) << 8 | usize::from(bytes[2])),
        byte => (1, usize::from(byte & 0x1f)),
    };
    &bytes[skip..][..len]
}

impl<'a> Resolve<'a> for Mentions<'a, '_> {
    fn number(&mut self, reference: Ref<'a>) -> Result<Number> {
        let next = self.ids.len() + self.new.len();
        match reference {
            Ref::Number(number) if (number as usize) < next => Ok(Number(number)),
            Ref::Number(_) => Err(Damaged("a record refers to an id that was never mentioned")),
            Ref::Name(_) if self.ids.is_full_with(self.new.len()) => Err(Damaged("the log has too many ids")),
            Ref::Name(name) => {
                let head = match name.len() {
                    0..32 => 1,
                    32..256 => 2,
                    _ => 3,
                };
                self.new.push((name.as_ptr() as usize - self.payload.as_ptr() as usize - head) as u32);
                Ok(Number(next as u32))
            }
        }
    }
}

impl Mentions<'_, '_> {
    fn bytes(&self, number: Number) -> &[u8] {
        let at = number.at();
        if at < self.ids.len() { self.ids.bytes(number) } else { text(self.payload, self.new[at - self.ids.len()]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{MemoryFields, encode_blocks, memory_skeleton, message_skeleton};

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
        let memory = MemoryFields {
            sources: &sources,
            derived_from: &["m"],
            label: Some("summary"),
            key: Some("city"),
            ..MemoryFields::default()
        };
        let memory = memory_skeleton("m", &memory);
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
        let memory = memory_skeleton("memory", &MemoryFields { sources: &["s"], ..MemoryFields::default() });
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
