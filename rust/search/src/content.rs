//! What does the body of a memory say?

use branchmem_core::msgpack::Reader;

const TEXT: u64 = 33;
const IMPORTANCE: u64 = 34;
const CREATED: u64 = 35;
const MOST: usize = 1 << 21;

/// The content of a memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Content<'a> {
    /// What it says.
    pub text: &'a str,
    /// Between 0 and 1.
    pub importance: f64,
    /// Microseconds since 1970.
    pub created: Option<i64>,
    /// A map, as it stands in the body; empty where there is none.
    pub meta: &'a [u8],
}

impl<'a> Content<'a> {
    /// Read the canonical body of a memory; `None` where it is not one. O(body).
    #[must_use]
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let mut reader = Reader { bytes: body };
        let mut content = Self { text: "", importance: 1.0, created: None, meta: &[] };
        let mut has_text = false;
        for _ in 0..reader.array().ok()? / 2 {
            match reader.uint().ok()? {
                TEXT => {
                    content.text = reader.string(MOST).ok()?;
                    has_text = true;
                }
                IMPORTANCE => content.importance = reader.float().ok()?,
                CREATED => {
                    reader.array().ok()?;
                    content.created = Some(reader.int().ok()?);
                    reader.int().ok()?;
                }
                // Tags ascend, and meta is the last of a memory.
                _ => content.meta = std::mem::take(&mut reader.bytes),
            }
        }
        (has_text && reader.bytes.is_empty()).then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_as_it_is_written() {
        let body =
            [b"\x98\x21\xa3tea\x22\xcb".as_slice(), &0.5_f64.to_be_bytes(), b"\x23\x92\x05\x00\x24\x81\xa1a\x01"];
        let body = body.concat();
        let content = Content { text: "tea", importance: 0.5, created: Some(5), meta: b"\x81\xa1a\x01" };
        assert_eq!(Content::read(&body), Some(content));
        assert_eq!(Content::read(b"\x92\x21\xa0").map(|content| content.importance), Some(1.0));
        for damaged in [b"\x90".as_slice(), b"", b"\x92\x21", b"\x92\x21\xa1"] {
            assert_eq!(Content::read(damaged), None, "{damaged:?}");
        }
    }
}
