//! Which memories does a search rank?
//!
//! Those that a view shows and that have content, and after them the caller's own, which the log does not have yet.
//! A search numbers them anew from 0, its *places*; all that it keeps about them is as long as what is shown.

/// The memories of one search, by place.
pub struct Shown {
    ordinals: Vec<u32>,
    /// How many tokens each counts, own ones too.
    lengths: Vec<u32>,
    /// One bit an ordinal.
    words: Vec<u64>,
    /// How many bits are set before each word.
    before: Vec<u32>,
}

impl Shown {
    /// Memories of the log with their lengths, by ascending ordinal, and the lengths of own ones after them.
    /// O(the log / 64 + what is shown).
    #[must_use]
    pub fn new(logged: impl Iterator<Item = (u32, u32)>, own: &[u32]) -> Self {
        let most = logged.size_hint().1.unwrap_or_default();
        let (mut ordinals, mut lengths) = (Vec::with_capacity(most), Vec::with_capacity(most + own.len()));
        for (ordinal, length) in logged {
            ordinals.push(ordinal);
            lengths.push(length);
        }
        lengths.extend(own);
        let mut words = vec![0; ordinals.last().map_or(0, |&last| last as usize / 64 + 1)];
        for &ordinal in &ordinals {
            words[ordinal as usize / 64] |= 1 << (ordinal % 64);
        }
        let before = words.iter().scan(0, |sum, word: &u64| {
            let before = *sum;
            *sum += word.count_ones();
            Some(before)
        });
        let before = before.collect();
        Self { ordinals, lengths, words, before }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// How many tokens each counts, by place.
    #[must_use]
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// Those of the log, ascending; the first places are theirs.
    #[must_use]
    pub fn ordinals(&self) -> &[u32] {
        &self.ordinals
    }

    /// The place of a memory of the log, if it is shown. O(1).
    #[inline]
    #[must_use]
    pub fn place(&self, ordinal: u32) -> Option<u32> {
        let word = self.words.get(ordinal as usize / 64)?;
        let bit = 1 << (ordinal % 64);
        (word & bit != 0).then(|| self.before[ordinal as usize / 64] + (word & (bit - 1)).count_ones())
    }

    /// What stands at a place.
    #[must_use]
    pub fn at(&self, place: u32) -> At {
        match self.ordinals.get(place as usize) {
            Some(&ordinal) => At::Log(ordinal),
            None => At::Own(place as usize - self.ordinals.len()),
        }
    }
}

/// What stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A memory of the log.
    Log(u32),
    /// One of the caller's own.
    Own(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_ordinals_and_own_ones_come_last() {
        let shown = Shown::new([3, 63, 64, 200].map(|ordinal| (ordinal, 1)).into_iter(), &[5, 6]);
        assert_eq!((shown.len(), shown.place(64), shown.place(65), shown.place(1000)), (6, Some(2), None, None));
        for (place, &ordinal) in shown.ordinals().iter().enumerate() {
            assert_eq!(shown.place(ordinal), Some(place as u32));
            assert_eq!(shown.at(place as u32), At::Log(ordinal));
        }
        assert_eq!((shown.at(4), shown.at(5)), (At::Own(0), At::Own(1)));
        assert_eq!(shown.lengths(), [1, 1, 1, 1, 5, 6]);
        assert!(Shown::new(std::iter::empty(), &[]).is_empty());
    }
}
