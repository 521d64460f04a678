//! Spans of an Euler tour, side by side: what a span covers is decided by one comparison.
//!
//! The two loops over many spans live here: a scan of all, which is compiled for
//! several instruction sets and chosen when called, and random places.

use multiversion::multiversion;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// No position of the tour.
pub const NOWHERE: u32 = u32::MAX;

/// What a message covers: positions `start..start + size` of the tour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its position; for a message that is not in the tour that of its nearest ancestor there.
    pub start: u32,
    /// How many messages it covers; 0 for one that is not in the tour.
    pub size: u32,
}

impl Span {
    /// Covers nothing, and nothing is asked about it: no check can succeed.
    pub const NEVER: Self = Self { start: NOWHERE, size: 0 };
    /// Covers nothing by the tour: ask the chain labels.
    pub const LATER: Self = Self { start: 0, size: 0 };

    /// Whether a position lies at or below this message. One comparison.
    #[must_use]
    pub fn covers(self, position: u32) -> bool {
        position.wrapping_sub(self.start) < self.size
    }
}

/// Many spans. 8 bytes each.
#[derive(Default)]
pub struct Spans {
    starts: Vec<u32>,
    sizes: Vec<u32>,
}

impl Spans {
    /// The span at a place.
    #[must_use]
    pub fn get(&self, at: usize) -> Span {
        Span { start: self.starts[at], size: self.sizes[at] }
    }

    /// Change the span at a place.
    pub fn set(&mut self, at: usize, span: Span) {
        self.starts[at] = span.start;
        self.sizes[at] = span.size;
    }

    /// Keep room for `len` spans, new ones [`Span::NEVER`].
    pub fn grow(&mut self, len: usize) {
        self.starts.resize(len, Span::NEVER.start);
        self.sizes.resize(len, Span::NEVER.size);
    }

    /// Where each begins.
    #[must_use]
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }
}

/// Set the bit of each span that covers `position`, as far as there are words. O(spans).
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512vl+avx512dq", "x86_64+avx2"))]
pub fn mark_covering(spans: &[Span], position: u32, words: &mut [u64]) {
    for (spans, word) in spans.chunks(64).zip(words) {
        let mut halves = [0_u32; 64];
        for (at, (half, span)) in halves.iter_mut().zip(spans).enumerate() {
            *half = u32::from(span.covers(position)) << (at % 32);
        }
        let low = halves[..32].iter().fold(0, |all, half| all | half);
        let high = halves[32..].iter().fold(0, |all, half| all | half);
        *word |= u64::from(low) | u64::from(high) << 32;
    }
}

/// Whether span `places[i]` covers the position at `at[i]`: 1 or 0. O(places).
///
/// Places are atomic because they lie in arrays of the caller's, who may write to them meanwhile.
/// Both tables end with an entry that covers nothing and stands nowhere; a place beyond the end
/// is taken for it, so that the loop has no branch.
#[inline(never)] // Alone it keeps its tables in registers, which is half of its cost.
pub fn covers_each(spans: &[Span], places: &[AtomicU32], positions: &[u32], at: &[AtomicU32], covers: &mut [u8]) {
    let (last, last_position) = (spans.len() - 1, positions.len() - 1);
    for ((place, at), covers) in places.iter().zip(at).zip(covers) {
        let span = spans[(place.load(Relaxed) as usize).min(last)];
        let position = positions[(at.load(Relaxed) as usize).min(last_position)];
        *covers = u8::from(span.covers(position));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atomic(places: &[u32]) -> Vec<AtomicU32> {
        places.iter().map(|&place| AtomicU32::new(place)).collect()
    }

    /// Both loops against one comparison at a time, for lengths around the width of a word.
    #[test]
    fn many_at_once_are_judged_as_one_by_one() {
        for len in [0_u32, 1, 31, 32, 63, 64, 65, 130] {
            let mut spans = Spans::default();
            spans.grow(len as usize);
            for at in 0..len {
                let span = if at % 5 == 0 { Span::NEVER } else { Span { start: at, size: at * 7 % 50 } };
                spans.set(at as usize, span);
            }
            let table: Vec<_> = (0..len as usize).map(|at| spans.get(at)).chain([Span::NEVER]).collect();
            for position in [0, 1, 17, 64, NOWHERE] {
                let mut words = vec![0; (len as usize).div_ceil(64)];
                mark_covering(&table, position, &mut words);
                for at in 0..len as usize {
                    assert_eq!(words[at / 64] >> (at % 64) & 1 == 1, spans.get(at).covers(position), "{len} {at}");
                }
            }
            let positions = [0, 3, 40, NOWHERE];
            let places: Vec<_> = (0..len + 3).chain([NOWHERE]).collect();
            for node in [0_u32, 1, 2, 3, 4, NOWHERE] {
                let mut covers = vec![9; places.len()];
                let at: Vec<_> = places.iter().map(|_| AtomicU32::new(node)).collect();
                covers_each(&table, &atomic(&places), &positions, &at, &mut covers);
                for (&place, covers) in places.iter().zip(covers) {
                    let position = positions.get(node as usize).copied();
                    let expected = place < len && position.is_some_and(|at| spans.get(place as usize).covers(at));
                    assert_eq!(covers == 1, expected, "{len} {place} {node}");
                }
            }
        }
    }
}
