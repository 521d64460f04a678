//! Which memories does a search rank?
//!
//! Those that a view shows and that have content, and after them the caller's own, which the log does not have yet.
//! A search numbers them anew from 0, its *places*; all that it keeps about them is as long as what is shown.

/// So many are looked at before those that are shown are handed on.
const BLOCK: usize = 256;

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
    /// Memories of the log by ascending ordinal, and the lengths of these and of own ones after them.
    /// O(the log / 64 + what is shown).
    #[must_use]
    pub fn new(ordinals: Vec<u32>, lengths: Vec<u32>) -> Self {
        let mut words = vec![0; ordinals.last().map_or(0, |&last| last as usize / 64 + 1)];
        // Neighbours share a word: it is put together before it is stored, or they would wait for each other.
        let (mut at, mut word) = (0, 0_u64);
        for &ordinal in &ordinals {
            if ordinal as usize / 64 != at {
                words[at] = word;
                (at, word) = (ordinal as usize / 64, 0);
            }
            word |= 1 << (ordinal % 64);
        }
        if let Some(last) = words.get_mut(at) {
            *last = word;
        }
        let before = words.iter().scan(0, |sum, word| {
            let before = *sum;
            *sum += word.count_ones();
            Some(before)
        });
        Self { before: before.collect(), ordinals, lengths, words }
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

    /// Those of some memories, which ascend, that are shown, to `each` in order; one that comes several times each time.
    /// O(these), without a guess for each whether it is shown.
    pub fn each_shown(&self, some: &[u32], mut each: impl FnMut(u32)) {
        let Some(&last) = self.ordinals.last() else { return };
        let mut kept = [0; BLOCK];
        for block in some[..some.partition_point(|&ordinal| ordinal <= last)].chunks(BLOCK) {
            let mut count = 0;
            for &ordinal in block {
                kept[count] = ordinal;
                count += usize::from(self.words[ordinal as usize / 64] >> (ordinal % 64) & 1 == 1);
            }
            kept[..count].iter().for_each(|&ordinal| each(ordinal));
        }
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
        let shown = Shown::new(vec![3, 63, 64, 200], vec![1, 1, 1, 1, 5, 6]);
        assert_eq!((shown.len(), shown.place(64), shown.place(65), shown.place(1000)), (6, Some(2), None, None));
        for (place, &ordinal) in shown.ordinals().iter().enumerate() {
            assert_eq!(shown.place(ordinal), Some(place as u32));
            assert_eq!(shown.at(place as u32), At::Log(ordinal));
        }
        assert_eq!((shown.at(4), shown.at(5)), (At::Own(0), At::Own(1)));
        assert_eq!(shown.lengths(), [1, 1, 1, 1, 5, 6]);
        assert!(Shown::new(Vec::new(), Vec::new()).is_empty());
    }

    #[test]
    fn those_that_are_shown_are_handed_on_as_often_as_they_come() {
        let shown = Shown::new((0..2000).filter(|at| at % 3 == 0).collect(), vec![1; 667]);
        let some: Vec<u32> = (0..3000).flat_map(|at| vec![at; at as usize % 4]).collect();
        let mut found = Vec::new();
        shown.each_shown(&some, |ordinal| found.push(ordinal));
        assert_eq!(found, some.into_iter().filter(|&at| shown.place(at).is_some()).collect::<Vec<_>>());
        Shown::new(Vec::new(), Vec::new()).each_shown(&[0, 1], |_| panic!("nothing is shown"));
    }
}
