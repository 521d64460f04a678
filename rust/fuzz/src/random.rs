//! Chance that follows from a seed and the number of an input, so that any input can be made again alone.

/// Random numbers: `SplitMix64` (Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
pub struct Random(u64);

impl Random {
    /// The stream of one input.
    pub fn of(seed: u64, input: u64) -> Self {
        Self(Self(seed).next() ^ input.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    /// Any 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`, which is not zero and below 2^32.
    pub fn below(&mut self, end: usize) -> usize {
        (((self.next() >> 32) * end as u64) >> 32) as usize
    }

    /// Once in `many`.
    pub fn once_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    /// One of these.
    pub fn of_these<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }
}
