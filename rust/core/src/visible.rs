//! A set of memories, listed or as bits, and what was let through to it.

use crate::reason::Admitted;

/// A set of memories.
#[derive(Clone, Debug)]
pub enum Visible {
    /// Their ordinals, in no order, each once.
    Sparse(Vec<u32>),
    /// One bit a memory.
    Dense(Vec<u64>),
}

impl Visible {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Sparse(ordinals) => ordinals.len(),
            Self::Dense(words) => words.iter().map(|word| word.count_ones() as usize).sum(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their ordinals, ascending.
    #[must_use]
    pub fn ordinals(&self) -> Vec<u32> {
        match self {
            Self::Sparse(ordinals) => {
                let mut sorted = ordinals.clone();
                sorted.sort_unstable();
                sorted
            }
            Self::Dense(words) => {
                let mut out = Vec::with_capacity(self.len());
                for (at, &word) in words.iter().enumerate() {
                    let mut left = word;
                    while left != 0 {
                        out.push(at as u32 * 64 + left.trailing_zeros());
                        left &= left - 1;
                    }
                }
                out
            }
        }
    }

    /// Set the little-endian bit of each in zeroed bytes.
    pub fn set_bits(&self, bytes: &mut [u8]) {
        match self {
            Self::Sparse(ordinals) => {
                for &ordinal in ordinals {
                    bytes[ordinal as usize / 8] |= 1 << (ordinal % 8);
                }
            }
            Self::Dense(words) => {
                let (whole, rest) = bytes.as_chunks_mut::<8>();
                whole.iter_mut().zip(words).for_each(|(chunk, word)| *chunk = word.to_le_bytes());
                if let Some(word) = words.get(whole.len()) {
                    rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
                }
            }
        }
    }
}

/// A bulk answer: what is visible, and how often each reason was let through.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The memories.
    pub visible: Visible,
    /// By reason.
    pub admitted: Admitted,
}
