//! The subset of msgpack that events use, in its shortest forms only.

use crate::error::BlockError::{self, Damaged};

type Result<T> = std::result::Result<T, BlockError>;

/// The longest id, kind or key.
const MAX_ID: usize = 256;

/// A reference as it stands in the bytes.
pub enum Ref<'a> {
    /// An id that was mentioned before.
    Number(u32),
    /// An id at its first mention.
    Name(&'a str),
}

/// Reads the subset of msgpack that events use, in its shortest forms only.
pub struct Reader<'a> {
    /// What is not read yet.
    pub bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(Damaged("a record ends early"))?;
        self.bytes = rest;
        Ok(taken)
    }

    /// The next byte.
    ///
    /// # Errors
    /// [`Damaged`] where something else is next.
    pub fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// Whether a nil is next; takes it if so.
    pub fn nil(&mut self) -> bool {
        let nil = self.bytes.first() == Some(&0xc0);
        if nil {
            self.bytes = &self.bytes[1..];
        }
        nil
    }

    fn big_endian(&mut self, len: usize) -> Result<u64> {
        Ok(self.take(len)?.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    /// The next number.
    ///
    /// # Errors
    /// [`Damaged`] where something else is next.
    pub fn uint(&mut self) -> Result<u64> {
        let (value, least) = match self.byte()? {
            value @ 0..0x80 => (u64::from(value), 0),
            0xcc => (self.big_endian(1)?, 0x80),
            0xcd => (self.big_endian(2)?, 0x100),
            0xce => (self.big_endian(4)?, 0x1_0000),
            _ => return Err(Damaged("a record has no number where one belongs")),
        };
        if value < least { Err(Damaged("a number is not in its shortest form")) } else { Ok(value) }
    }

    /// The length of the array that begins next.
    ///
    /// # Errors
    /// [`Damaged`] where something else is next.
    pub fn array(&mut self) -> Result<usize> {
        match self.byte()? {
            byte @ 0x90..0xa0 => Ok(usize::from(byte & 0x0f)),
            0xdc => match self.big_endian(2)? as usize {
                len @ 16.. => Ok(len),
                _ => Err(Damaged("a list is not in its shortest form")),
            },
            _ => Err(Damaged("a record has no list where one belongs")),
        }
    }

    /// The next string: 1 to 256 bytes of UTF-8.
    ///
    /// # Errors
    /// [`Damaged`] where something else is next.
    pub fn name(&mut self) -> Result<&'a str> {
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

    /// The next string, of at most so many bytes of UTF-8.
    ///
    /// # Errors
    /// [`Damaged`] where something else is next.
    pub fn string(&mut self, most: usize) -> Result<&'a str> {
        let (len, least) = match self.byte()? {
            byte @ 0xa0..0xc0 => (usize::from(byte & 0x1f), 0),
            0xd9 => (self.big_endian(1)? as usize, 32),
            0xda => (self.big_endian(2)? as usize, 0x100),
            0xdb => (self.big_endian(4)? as usize, 0x1_0000),
            _ => return Err(Damaged("a record has no string where one belongs")),
        };
        if len < least || len > most {
            return Err(Damaged("a text has no valid length"));
        }
        std::str::from_utf8(self.take(len)?).map_err(|_| Damaged("a text is not valid UTF-8"))
    }

    /// The next number of at most 63 bits and a sign.
    ///
    /// # Errors
    /// [`Damaged`] where something else is next.
    pub fn int(&mut self) -> Result<i64> {
        let wide = |value: i128| i64::try_from(value).map_err(|_| Damaged("a number is too large"));
        wide(self.integer()?)
    }

    /// The next number of 64 bits, with or without a sign.
    ///
    /// # Errors
    /// [`Damaged`] where something else is next.
    pub fn integer(&mut self) -> Result<i128> {
        let (value, shortest) = match self.byte()? {
            value @ 0..0x80 => (i128::from(value), true),
            value @ 0xe0.. => (i128::from(value.cast_signed()), true),
            head @ 0xcc..=0xcf => {
                let bytes = 1 << (head - 0xcc);
                let value = self.big_endian(bytes)?;
                let least = if bytes == 1 { 0x80 } else { 1 << (bytes * 4) };
                (i128::from(value), value >= least)
            }
            head @ 0xd0..=0xd3 => {
                let bytes = 1 << (head - 0xd0);
                let bits = 64 - bytes as u32 * 8;
                let value = (self.big_endian(bytes)? << bits).cast_signed() >> bits;
                let most = if bytes == 1 { -0x21 } else { -(1 << (bytes * 4 - 1)) - 1 };
                (i128::from(value), value <= most)
            }
            _ => return Err(Damaged("a record has no number where one belongs")),
        };
        if shortest { Ok(value) } else { Err(Damaged("a number is not in its shortest form")) }
    }

    /// The next number with a fraction, of 64 bits.
    ///
    /// # Errors
    /// [`Damaged`] where something else is next.
    pub fn float(&mut self) -> Result<f64> {
        match self.byte()? {
            0xcb => Ok(f64::from_bits(self.big_endian(8)?)),
            _ => Err(Damaged("a record has no fraction where one belongs")),
        }
    }

    /// Where a list or a map is next: takes its head, and says how many items it has and whether it is a map.
    ///
    /// # Errors
    /// [`Damaged`] where its head is not in the shortest form.
    pub fn container(&mut self) -> Result<Option<(usize, bool)>> {
        let Some(&head) = self.bytes.first() else { return Ok(None) };
        let (bytes, is_map) = match head {
            0x80..0x90 => (0, true),
            0x90..0xa0 => (0, false),
            0xdc | 0xdd => (2 * usize::from(head - 0xdb), false),
            0xde | 0xdf => (2 * usize::from(head - 0xdd), true),
            _ => return Ok(None),
        };
        self.take(1)?;
        let items = if bytes == 0 { usize::from(head & 0x0f) } else { self.big_endian(bytes)? as usize };
        let least = [0, 16, 0x1_0000][bytes / 2];
        if items < least { Err(Damaged("a list is not in its shortest form")) } else { Ok(Some((items, is_map))) }
    }

    /// Take a nil, a truth value, a number or a string.
    ///
    /// # Errors
    /// [`Damaged`] where something else is next.
    pub fn scalar(&mut self) -> Result<()> {
        match self.bytes.first() {
            Some(0xc0 | 0xc2 | 0xc3) => self.take(1).map(|_| ()),
            Some(0xcb) if self.float()?.is_finite() => Ok(()),
            Some(0xa0..0xc0 | 0xd9..=0xdb) => self.string(usize::MAX).map(|_| ()),
            Some(0..0x80 | 0xcc..=0xd3 | 0xe0..) => self.integer().map(|_| ()),
            _ => Err(Damaged("a record has a value that its tag does not take")),
        }
    }

    /// The next reference.
    ///
    /// # Errors
    /// [`Damaged`] where something else is next.
    pub fn reference(&mut self) -> Result<Ref<'a>> {
        match self.bytes.first() {
            Some(0xa0..0xc0 | 0xd9 | 0xda) => Ok(Ref::Name(self.name()?)),
            _ => Ok(Ref::Number(self.uint()? as u32)),
        }
    }
}

/// Append a number.
pub fn write_uint(out: &mut Vec<u8>, value: u32) {
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

/// Append a string of up to 65,535 bytes.
pub fn write_str(out: &mut Vec<u8>, text: &str) {
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

/// Append the head of an array of up to 65,535 items.
pub fn write_array(out: &mut Vec<u8>, len: usize) {
    if len < 16 {
        out.push(0x90 | len as u8);
    } else {
        out.push(0xdc);
        out.extend_from_slice(&(len as u16).to_be_bytes());
    }
}
