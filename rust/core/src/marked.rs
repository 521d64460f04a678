//! Some memories as bits for a moment, in room that is kept.

use std::sync::Mutex;

/// Room for a set of memories, all zeros while nobody uses it. One question at a time does; others take new room.
#[derive(Default)]
pub struct Marked(Mutex<Vec<u64>>);

impl Marked {
    /// Ask something of a set of the first `len` memories, as words of bits. O(its members), once for all O(len).
    pub fn with<T>(&self, members: &[&[u32]], len: usize, ask: impl FnOnce(&[u64]) -> T) -> T {
        if members.is_empty() {
            return ask(&[]);
        }
        let words = len.div_ceil(64);
        let Ok(mut room) = self.0.try_lock() else {
            let mut room = vec![0; words];
            each(members, |mem| room[mem / 64] |= 1 << (mem % 64));
            return ask(&room);
        };
        if room.len() < words {
            room.resize(words, 0);
        }
        each(members, |mem| room[mem / 64] |= 1 << (mem % 64));
        let answer = ask(&room);
        each(members, |mem| room[mem / 64] = 0);
        answer
    }
}

fn each(members: &[&[u32]], mut of: impl FnMut(usize)) {
    for some in members {
        for &mem in *some {
            of(mem as usize);
        }
    }
}
