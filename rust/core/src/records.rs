//! Events as they travel: skeletons and bodies one behind the other, each in its canonical bytes.
//!
//! Behind each skeleton, ids as strings, stands the body of the same event, or nil where its
//! content was erased. Only canonical bytes are read, so that what is read may be stored as it is.

use crate::body::read_body;
use crate::error::BlockError::{self, Damaged};
use crate::event::Resolve;
use crate::event::read_skeleton;
use crate::ids::Number;
use crate::msgpack::{Reader, Ref};
use crate::skeleton::{Block, Type};

type Result<T> = std::result::Result<T, BlockError>;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it is.
    pub kind: Type,
    /// Its id.
    pub id: &'a str,
    /// Its canonical skeleton.
    pub skeleton: &'a [u8],
    /// Its canonical body; None where it was erased.
    pub body: Option<&'a [u8]>,
}

/// Reads records; keeps what it allocates for the next one.
pub struct Records<'a> {
    reader: Reader<'a>,
    names: Vec<&'a str>,
    block: Block<'a>,
}

impl<'a> Records<'a> {
    /// The records in these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader { bytes }, names: Vec::new(), block: Block::default() }
    }

    fn read(&mut self) -> Result<Record<'a>> {
        self.names.clear();
        self.block.refs.clear();
        self.block.lists.clear();
        self.block.more.clear();
        let before = self.reader.bytes;
        let mut spelled = Spelled(&mut self.names);
        let skeleton = read_skeleton(&mut self.reader, &mut self.block, &mut spelled)?;
        self.block.check_lists(|number| self.names[number.at()].as_bytes())?;
        let after = self.reader.bytes;
        let body = if self.reader.nil() {
            if !matches!(skeleton.kind, Type::Message | Type::Memory) {
                return Err(Damaged("only messages and memories lose their content"));
            }
            None
        } else {
            read_body(&mut self.reader, skeleton.kind)?;
            Some(&after[..after.len() - self.reader.bytes.len()])
        };
        Ok(Record {
            kind: skeleton.kind,
            id: self.names[skeleton.id.at()],
            skeleton: &before[..before.len() - after.len()],
            body,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.bytes.is_empty() {
            return None;
        }
        let record = self.read();
        if record.is_err() {
            self.reader.bytes = &[];
        }
        Some(record)
    }
}

/// Numbers the names of one record as they come: none was mentioned before.
struct Spelled<'a, 'b>(&'b mut Vec<&'a str>);

impl<'a> Resolve<'a> for Spelled<'a, '_> {
    fn number(&mut self, reference: Ref<'a>) -> Result<Number> {
        let Ref::Name(name) = reference else {
            return Err(Damaged("a record refers to an id by number"));
        };
        self.0.push(name);
        Ok(Number(self.0.len() as u32 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{MemoryFields, memory_skeleton, message_skeleton};

    #[test]
    fn records_are_taken_apart_as_they_were_put_together() {
        let message = message_skeleton("u", Some(None));
        let memory = memory_skeleton("m", &MemoryFields { sources: &["a", "u"], ..MemoryFields::default() });
        let bytes = [&message, b"\x90".as_slice(), &memory, b"\xc0"].concat();
        let records: Vec<_> = Records::new(&bytes).collect::<Result<_>>().unwrap();
        assert_eq!(records[0], Record { kind: Type::Message, id: "u", skeleton: &message, body: Some(b"\x90") });
        assert_eq!(records[1], Record { kind: Type::Memory, id: "m", skeleton: &memory, body: None });
    }

    #[test]
    fn lists_must_be_sorted_and_retractions_keep_their_content() {
        let memory = memory_skeleton("m", &MemoryFields { sources: &["u", "a"], ..MemoryFields::default() });
        assert!(Records::new(&[&memory, b"\xc0".as_slice()].concat()).any(|record| record.is_err()));
        let erasure = b"\x94\x04\xa1e\x0e\x91\xa1u";
        assert!(Records::new(&[erasure, b"\x90".as_slice()].concat()).all(|record| record.is_ok()));
        assert!(Records::new(&[erasure, b"\xc0".as_slice()].concat()).any(|record| record.is_err()));
    }

    proptest::proptest! {
        /// Any bytes: records or an error, never a panic, and the records are the bytes.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            if let Ok(records) = Records::new(&bytes).collect::<Result<Vec<_>>>() {
                let put_together: Vec<u8> = records
                    .iter()
                    .flat_map(|record| [record.skeleton, record.body.unwrap_or(b"\xc0")])
                    .flatten()
                    .copied()
                    .collect();
                assert_eq!(put_together, bytes);
            }
        }
    }
}
