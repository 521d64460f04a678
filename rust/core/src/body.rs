//! The bytes of a body, read strictly: what an event says and an erasure removes.
//!
//! A body is one msgpack array of tags and values in ascending order of tags, fields at
//! their default left out. The engine keeps none of it; it is read only to know that the
//! bytes are the canonical ones of such an event. No size is trusted before its bytes are there.

use crate::error::BlockError::{self, Damaged};
use crate::msgpack::Reader;
use crate::skeleton::Type;

type Result<T> = std::result::Result<T, BlockError>;

const ROLE: u64 = 32;
const TEXT: u64 = 33;
const IMPORTANCE: u64 = 34;
const CREATED: u64 = 35;
const META: u64 = 36;
const REASON: u64 = 37;

const MAX_TEXT: usize = 1 << 20;
const MAX_META: usize = 1 << 20;
const MAX_DEPTH: usize = 32;
/// Minutes of a day less one: what an offset stays below.
const MAX_OFFSET: i64 = 24 * 60 - 1;
/// The years 1 to 9999, in microseconds since 1970, on the clock of the place.
const TIMES: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

const fn allowed(kind: Type) -> &'static [u64] {
    match kind {
        Type::Message => &[ROLE, TEXT, CREATED, META],
        Type::Memory => &[TEXT, IMPORTANCE, CREATED, META],
        Type::Retraction => &[CREATED, REASON],
        Type::Restoration | Type::Erasure => &[CREATED],
    }
}

/// Read the canonical body of an event of this type. O(bytes).
///
/// # Errors
/// [`Damaged`] where another body is next, or none.
pub fn read_body(reader: &mut Reader<'_>, kind: Type) -> Result<()> {
    let items = reader.array()?;
    if items % 2 == 1 {
        return Err(Damaged("a body has a tag without a value"));
    }
    let (mut least, mut has_text) = (0, false);
    for _ in 0..items / 2 {
        let tag = reader.uint()?;
        if tag < least || !allowed(kind).contains(&tag) {
            return Err(Damaged("a body has a tag that does not belong there"));
        }
        least = tag + 1;
        match tag {
            ROLE => _ = reader.name()?,
            TEXT | REASON => {
                has_text |= tag == TEXT;
                reader.string(MAX_TEXT)?;
            }
            IMPORTANCE => {
                let value = reader.float()?;
                if !(0.0..1.0).contains(&value) || value.is_sign_negative() {
                    return Err(Damaged("an importance does not lie between 0 and 1"));
                }
            }
            CREATED => read_instant(reader)?,
            _ => read_meta(reader)?,
        }
    }
    if kind == Type::Memory && !has_text {
        return Err(Damaged("a memory has no text"));
    }
    Ok(())
}

fn read_instant(reader: &mut Reader<'_>) -> Result<()> {
    let out_of_range = Damaged("a time is out of range");
    if reader.array()? != 2 {
        return Err(out_of_range);
    }
    let (microseconds, minutes) = (reader.int()?, reader.int()?);
    let local = microseconds.checked_add(minutes.saturating_mul(60_000_000));
    if minutes.abs() > MAX_OFFSET || !local.is_some_and(|local| TIMES.contains(&local)) {
        return Err(out_of_range);
    }
    Ok(())
}

/// A list or a map whose items are not all read.
struct Open<'a> {
    items: usize,
    /// The last key of a map, None before the first.
    last: Option<&'a str>,
    is_map: bool,
}

fn read_meta(reader: &mut Reader<'_>) -> Result<()> {
    let before = reader.bytes.len();
    let first = reader.container()?;
    if !matches!(first, Some((1.., true))) {
        return Err(Damaged("meta is not a map with anything in it"));
    }
    let mut open = Vec::with_capacity(4);
    let mut next = first;
    loop {
        if let Some((items, is_map)) = next.take() {
            if open.len() == MAX_DEPTH {
                return Err(Damaged("meta is nested too deep"));
            }
            open.push(Open { items, last: None, is_map });
        }
        let Some(inner) = open.last_mut() else { break };
        if inner.items == 0 {
            open.pop();
            continue;
        }
        inner.items -= 1;
        if inner.is_map {
            let key = reader.string(MAX_META)?;
            if inner.last.is_some_and(|last| key <= last) {
                return Err(Damaged("keys of meta are not sorted"));
            }
            inner.last = Some(key);
        }
        next = reader.container()?;
        if next.is_none() {
            reader.scalar()?;
        }
    }
    if before - reader.bytes.len() > MAX_META { Err(Damaged("meta is too long")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_body(kind: Type, bytes: &[u8]) -> bool {
        let mut reader = Reader { bytes };
        read_body(&mut reader, kind).is_ok() && reader.bytes.is_empty()
    }

    #[test]
    fn a_memory_needs_a_text_and_nothing_else() {
        assert!(is_body(Type::Memory, b"\x92\x21\xa0"));
        assert!(!is_body(Type::Memory, b"\x90"));
        assert!(is_body(Type::Message, b"\x90"));
        assert!(!is_body(Type::Erasure, b"\x92\x21\xa0"));
    }

    #[test]
    fn a_default_is_not_spelled_out() {
        let importance = |value: f64| [b"\x94\x21\xa0\x22\xcb".as_slice(), &value.to_be_bytes()].concat();
        assert!(is_body(Type::Memory, &importance(0.5)));
        assert!(is_body(Type::Memory, &importance(0.0)));
        for refused in [1.0, -0.0, -0.5, 1.5, f64::NAN] {
            assert!(!is_body(Type::Memory, &importance(refused)), "{refused}");
        }
    }

    #[test]
    fn meta_is_sorted_and_at_most_32_levels_deep() {
        let meta = |bytes: &[u8]| [b"\x92\x24".as_slice(), bytes].concat();
        assert!(is_body(Type::Message, &meta(b"\x82\xa1a\x01\xa1b\x93\xc0\xc3\xff")));
        assert!(!is_body(Type::Message, &meta(b"\x82\xa1b\x01\xa1a\x01")));
        assert!(!is_body(Type::Message, &meta(b"\x82\xa1a\x01\xa1a\x01")));
        assert!(!is_body(Type::Message, &meta(b"\x80")));
        assert!(!is_body(Type::Message, &meta(b"\x81\xa1a\xcc\x01")));
        let nested = |levels: usize| meta(&[b"\x81\xa1a".repeat(levels), b"\x01".to_vec()].concat());
        assert!(is_body(Type::Message, &nested(32)));
        assert!(!is_body(Type::Message, &nested(33)));
        let empty = |levels: usize| meta(&[b"\x81\xa1a".repeat(levels), b"\x80".to_vec()].concat());
        assert!(is_body(Type::Message, &empty(31)));
        assert!(!is_body(Type::Message, &empty(32)));
    }
}
