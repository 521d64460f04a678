//! Some memories as bits for a moment, in room that is kept.

use crate::bits::Bits;
use crate::ids::Mem;
use std::sync::Mutex;

/// Room for a set of memories, all zeros while nobody uses it. One question at a time does; others take new room.
#[derive(Default)]
pub struct Marked(Mutex<Bits>);

impl Marked {
    /// Ask something of a set. O(its members), once for all O(memories).
    pub fn with<T>(&self, members: &[&[u32]], ask: impl FnOnce(&Bits) -> T) -> T {
        if members.is_empty() {
            return ask(&Bits::default());
        }
        let Ok(mut marked) = self.0.try_lock() else {
            let mut marked = Bits::default();
            members.iter().copied().flatten().for_each(|&mem| _ = marked.insert(Mem(mem)));
            return ask(&marked);
        };
        members.iter().copied().flatten().for_each(|&mem| _ = marked.insert(Mem(mem)));
        let answer = ask(&marked);
        members.iter().copied().flatten().for_each(|&mem| marked.put(Mem(mem), false));
        answer
    }
}
