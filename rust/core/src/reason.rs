//! The reasons why a memory is hidden, as bits, and the counters of verdicts.
//!
//! The bits are those of the rule and never move. A policy is the set of bits
//! that it lets through.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A set of reasons; bit `i` is reason `i` of the rule.
pub type Reasons = u16;

/// The view was asked for without an anchor.
pub const NO_ANCHOR: Reasons = 1 << 0;
/// An anchor is not in the log.
pub const UNKNOWN_ANCHOR: Reasons = 1 << 1;
/// An anchor is known but not attached.
pub const DETACHED_ANCHOR: Reasons = 1 << 2;
/// No such memory in the log. No policy lets it through.
pub const UNKNOWN_MEMORY: Reasons = 1 << 3;
/// Its content has been erased.
pub const ERASED: Reasons = 1 << 4;
/// It, or a memory that it derives from at any remove, has no effective source.
pub const NO_SOURCES: Reasons = 1 << 5;
/// A memory that it derives from or adopts, at any remove, is not in the log.
pub const MISSING_UPSTREAM: Reasons = 1 << 6;
/// Following what it derives from or adopts meets a memory twice on one way.
pub const UPSTREAM_CYCLE: Reasons = 1 << 7;
/// An effective source is not in the log.
pub const MISSING_SOURCE: Reasons = 1 << 8;
/// An effective source is a legacy message.
pub const LEGACY_SOURCE: Reasons = 1 << 9;
/// An effective source is not attached.
pub const DETACHED_SOURCE: Reasons = 1 << 10;
/// An effective source lies in a tree that has no usable anchor.
pub const OTHER_TREE: Reasons = 1 << 11;
/// An effective source is off the path, and not below the anchor of its tree.
pub const SIBLING: Reasons = 1 << 12;
/// An effective source lies strictly below the anchor of its tree.
pub const FUTURE: Reasons = 1 << 13;

/// A retraction in effect here covers it.
pub const RETRACTED: Reasons = 1 << 14;
/// A memory that is live here replaces it.
pub const SUPERSEDED: Reasons = 1 << 15;

/// What its sources have against where the view stands.
pub const PLACED: Reasons = OTHER_TREE | SIBLING | FUTURE;

/// How many reasons there are.
pub const COUNT: usize = 16;

/// The reasons in `reasons`, lowest first, as bit positions.
pub fn bits(reasons: Reasons) -> impl Iterator<Item = usize> {
    (0..COUNT).filter(move |bit| reasons & (1 << bit) != 0)
}

/// A number for each reason.
pub type Counts = [u64; COUNT];

/// How often each reason was let through in a bulk answer; in strict, nothing.
#[derive(Clone, Debug, Default)]
pub struct Admitted(Option<Box<Counts>>);

impl Admitted {
    /// Add what one visible memory lets through.
    pub fn add(&mut self, reasons: Reasons) {
        if reasons != 0 {
            let counts = self.0.get_or_insert_default();
            bits(reasons).for_each(|bit| counts[bit] += 1);
        }
    }

    /// Take back what one memory was added for, which is not visible after all.
    pub fn remove(&mut self, reasons: Reasons) {
        if let Some(counts) = &mut self.0 {
            bits(reasons).for_each(|bit| counts[bit] -= 1);
        }
    }

    /// The counts by reason.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.as_deref().copied().unwrap_or_default()
    }

    /// Add another answer.
    pub fn merge(&mut self, other: &Self) {
        if let Some(others) = &other.0 {
            let counts = self.0.get_or_insert_default();
            counts.iter_mut().zip(&**others).for_each(|(count, other)| *count += other);
        }
    }
}

/// What verdicts were handed out. Safe under threads; never resets by itself.
#[derive(Default)]
pub struct Counters {
    hidden: [AtomicU64; COUNT],
    admitted: [AtomicU64; COUNT],
    unlisted: AtomicU64,
}

impl Counters {
    /// Count one verdict: hidden by its primary reason not let through, or
    /// visible with each reason let through.
    pub fn verdict(&self, reasons: Reasons, admit: Reasons) {
        let held = reasons & !(admit & !UNKNOWN_MEMORY);
        if held == 0 {
            bits(reasons).for_each(|bit| add(&self.admitted[bit], 1));
        } else {
            add(&self.hidden[held.trailing_zeros() as usize], 1);
        }
    }

    /// Count a bulk answer: what it let through, and how many it left out.
    pub fn bulk(&self, admitted: &Admitted, unlisted: u64) {
        if let Some(counts) = &admitted.0 {
            self.admitted.iter().zip(&**counts).filter(|(_, n)| **n > 0).for_each(|(counter, &n)| add(counter, n));
        }
        add(&self.unlisted, unlisted);
    }

    /// Hidden by reason, let through by reason, left out.
    #[must_use]
    pub fn read(&self) -> (Counts, Counts, u64) {
        let load = |counters: &[AtomicU64; COUNT]| std::array::from_fn(|bit| counters[bit].load(Relaxed));
        (load(&self.hidden), load(&self.admitted), self.unlisted.load(Relaxed))
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
