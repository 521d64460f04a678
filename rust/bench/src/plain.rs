//! Which message is above which, found without any structure of the engine, and the pairs to be asked.

use crate::shapes::{ROOT, Random};

/// For each message the positions of what hangs at or below it, from one pass up and one down.
pub struct Intervals {
    start: Vec<u32>,
    size: Vec<u32>,
}

impl Intervals {
    /// The intervals of a forest.
    pub fn of(parents: &[u32]) -> Self {
        let mut size = vec![1; parents.len()];
        for at in (0..parents.len()).rev().filter(|&at| parents[at] != ROOT) {
            size[parents[at] as usize] += size[at];
        }
        let (mut start, mut free, mut free_root) = (vec![0; parents.len()], vec![0; parents.len()], 0);
        for (at, &parent) in parents.iter().enumerate() {
            let place = if parent == ROOT { &mut free_root } else { &mut free[parent as usize] };
            start[at] = *place;
            *place += size[at];
            free[at] = start[at] + 1;
        }
        Self { start, size }
    }

    /// Whether `a` is `b` or above it.
    pub fn is_ancestor(&self, a: u32, b: u32) -> bool {
        (self.start[a as usize]..self.start[a as usize] + self.size[a as usize]).contains(&self.start[b as usize])
    }
}

/// As many pairs as messages: `b` is any, and `a` is by turns any and one on the path of `b`.
pub fn pairs(parents: &[u32]) -> Vec<(u32, u32)> {
    let count = parents.len() as u32;
    let mut random = Random::of("pairs");
    let mut wanted: Vec<(u32, u32)> = (0..count).map(|_| (random.below(count), random.below(count))).collect();
    let mut waiting = vec![Vec::new(); parents.len()];
    for (at, pair) in wanted.iter().enumerate().skip(1).step_by(2) {
        waiting[pair.1 as usize].push(at);
    }
    let mut children = vec![Vec::new(); parents.len()];
    let mut open = Vec::new();
    for (at, &parent) in parents.iter().enumerate() {
        if parent == ROOT { open.push((at, 0)) } else { children[parent as usize].push(at) }
    }
    let mut path = Vec::new();
    while let Some((node, depth)) = open.pop() {
        path.truncate(depth);
        path.push(node as u32);
        for &at in &waiting[node] {
            wanted[at].0 = path[random.below(path.len() as u32) as usize];
        }
        open.extend(children[node].iter().map(|&child| (child, depth + 1)));
    }
    wanted
}
