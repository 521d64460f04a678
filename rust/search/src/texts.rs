//! Which memories say the same?
//!
//! Equal texts share a label, and stand in a ring. Texts are told apart by a keyed 128-bit hash (`SipHash` 1-3), whose
//! key the caller draws anew for each index, so that nobody can make two that meet; no hash leaves the memory of
//! the process.

use crate::Map;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

/// The text of no memory.
const NONE: u32 = u32::MAX;

/// The labels of texts, by ordinal.
pub struct Texts {
    key: [u8; 16],
    labels: Vec<u32>,
    /// The next one around the ring of those that say the same.
    next: Vec<u32>,
    /// The label of each text.
    known: Map<u128, u32>,
}

impl Texts {
    /// None yet.
    #[must_use]
    pub fn new(key: [u8; 16]) -> Self {
        Self { key, labels: Vec::new(), next: Vec::new(), known: Map::default() }
    }

    fn hash(&self, text: &str) -> u128 {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(text.as_bytes());
        hasher.finish128().as_u128()
    }

    /// Take in what the next memory says, `None` for one without content.
    pub fn push(&mut self, text: Option<&str>) {
        let ordinal = self.labels.len() as u32;
        let label = text.map_or(NONE, |text| *self.known.entry(self.hash(text)).or_insert(ordinal));
        self.labels.push(label);
        self.next.push(ordinal);
        if label != NONE && label != ordinal {
            self.next.swap(ordinal as usize, label as usize);
        }
    }

    /// What tells the text of a memory from others; the same for the same text.
    #[must_use]
    pub fn label(&self, ordinal: u32) -> u32 {
        self.labels[ordinal as usize]
    }

    /// The label of a text that a memory has.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<u32> {
        self.known.get(&self.hash(text)).copied()
    }

    /// The memories that say what has this label, forgotten ones among them. O(answer).
    pub fn ring(&self, label: u32) -> impl Iterator<Item = u32> + '_ {
        let step = move |&at: &u32| Some(self.next[at as usize]).filter(|&next| next != label);
        std::iter::successors(((label as usize) < self.next.len()).then_some(label), step)
    }

    /// Forget the texts that no memory says any more. O(texts).
    pub fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        let mut known = std::mem::take(&mut self.known);
        known.retain(|_, &mut label| self.ring(label).any(|ordinal| !is_gone(ordinal)));
        self.known = known;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_a_label_and_a_ring() {
        let mut texts = Texts::new([7; 16]);
        for text in [Some("tea"), Some("Tea"), None, Some("tea"), Some("tea")] {
            texts.push(text);
        }
        assert_eq!((texts.find("tea"), texts.find("Tea"), texts.find("milk")), (Some(0), Some(1), None));
        assert_eq!([0, 3, 4].map(|ordinal| texts.label(ordinal)), [0; 3]);
        let mut ring: Vec<_> = texts.ring(0).collect();
        ring.sort_unstable();
        assert_eq!(ring, [0, 3, 4]);

        texts.forget(|ordinal| ordinal != 4);
        assert_eq!((texts.find("tea"), texts.find("Tea")), (Some(0), None));
        texts.push(Some("tea"));
        assert_eq!(texts.label(5), 0);
    }
}
