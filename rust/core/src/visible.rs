//! A set of memories, listed or as bits, and what was let through to it.

use crate::bits::{Bits, each_bit};
use crate::ids::Mem;
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

    /// Put in a memory that is not in it.
    pub fn push(&mut self, mem: Mem) {
        match self {
            Self::Sparse(ordinals) => ordinals.push(mem.0),
            Self::Dense(words) => words[mem.at() / 64] |= 1 << (mem.0 % 64),
        }
    }

    /// Those that are among `some`, too.
    pub fn among<'a>(&'a self, some: &'a Bits) -> impl Iterator<Item = Mem> + 'a {
        let (ordinals, words) = match self {
            Self::Sparse(ordinals) => (&ordinals[..], &[][..]),
            Self::Dense(words) => (&[][..], &words[..]),
        };
        let both = words.iter().zip(some.words()).enumerate();
        let dense = both.flat_map(|(at, (word, some))| each_bit(word & some).map(move |bit| Mem(at as u32 * 64 + bit)));
        ordinals.iter().map(|&mem| Mem(mem)).filter(|&mem| some.has(mem)).chain(dense)
    }

    /// Leave out those among `some` that are not to be kept.
    pub fn retain(&mut self, some: &Bits, mut keep: impl FnMut(Mem) -> bool) {
        match self {
            Self::Sparse(ordinals) => ordinals.retain(|&mem| !some.has(Mem(mem)) || keep(Mem(mem))),
            Self::Dense(words) => {
                for (at, (word, some)) in words.iter_mut().zip(some.words()).enumerate() {
                    let gone = each_bit(*word & some).filter(|&bit| !keep(Mem(at as u32 * 64 + bit)));
                    *word &= !gone.fold(0, |gone, bit| gone | 1 << bit);
                }
            }
        }
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
                    out.extend(each_bit(word).map(|bit| at as u32 * 64 + bit));
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
