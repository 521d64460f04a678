//! One bit a memory. Takes no room until one is set.

use crate::ids::Mem;

/// A set of memories as bits.
#[derive(Clone, Debug, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// Whether a memory is in it; one beyond all is not.
    #[inline]
    #[must_use]
    pub fn has(&self, mem: Mem) -> bool {
        self.0.get(mem.at() / 64).is_some_and(|word| word & 1 << (mem.0 % 64) != 0)
    }

    /// Put a memory in; false where it was there.
    pub fn insert(&mut self, mem: Mem) -> bool {
        if self.0.len() <= mem.at() / 64 {
            self.0.resize(mem.at() / 64 + 1, 0);
        }
        let (word, bit) = (&mut self.0[mem.at() / 64], 1 << (mem.0 % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Put a memory in, or take it out.
    pub fn put(&mut self, mem: Mem, is_in: bool) {
        if is_in {
            self.insert(mem);
        } else if let Some(word) = self.0.get_mut(mem.at() / 64) {
            *word &= !(1 << (mem.0 % 64));
        }
    }

    /// Whether nothing was ever put in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by ordinal.
    pub fn iter(&self) -> impl Iterator<Item = Mem> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| each_bit(word).map(move |bit| Mem(at as u32 * 64 + bit)))
    }

    /// Sixty-four memories at once, from the first one of a word on.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.0
    }
}

/// The places of the bits of a word, lowest first.
pub fn each_bit(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}
