//! The forests that are measured, as the parent of each message in order of arrival.
//!
//! A parent stands before its children; trees that grow side by side are
//! interleaved at random. Everything follows from the seed.

/// The seed of everything that is drawn.
pub const SEED: u64 = 20_240_607;
/// Parent of a root.
pub const ROOT: u32 = u32::MAX;

/// Share of the messages of a chat that start a branch, in ten thousandths.
const BRANCHING: u64 = 400;
/// How far above the latest message a branch starts: geometric, so long on average, in hundredths.
const MEAN_STEPS_BACK: u64 = 364;

/// Random numbers: `SplitMix64` (Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
pub struct Random(u64);

impl Random {
    /// A stream of its own for each name.
    pub fn of(name: &str) -> Self {
        Self(name.bytes().fold(SEED, |seed, byte| Self(seed ^ u64::from(byte)).next()))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`, which is below 2^32.
    pub fn below(&mut self, end: u32) -> u32 {
        (((self.next() >> 32) * u64::from(end)) >> 32) as u32
    }

    fn happens(&mut self, ten_thousandths: u64) -> bool {
        u64::from(self.below(10_000)) < ten_thousandths
    }
}

/// A shape by its name, and how to make so many messages of it.
pub struct Shape {
    /// As in the table.
    pub name: &'static str,
    /// The parents of so many messages.
    pub parents: fn(u32, &mut Random) -> Vec<u32>,
}

impl Shape {
    /// The parents of `count` messages.
    pub fn grow(&self, count: u32) -> Vec<u32> {
        (self.parents)(count, &mut Random::of(self.name))
    }
}

/// What is appended: the table's six shapes, in its order, and the broadest tree there is.
pub const SHAPES: [Shape; 7] = [
    Shape { name: "chain", parents: |count, _| (0..count).map(|at| at.wrapping_sub(1)).collect() },
    Shape { name: "random", parents: random },
    Shape { name: "chats-of-100", parents: |count, random| chats(count, 100, random) },
    Shape { name: "chats-of-2k", parents: |count, random| chats(count, 2_000, random) },
    Shape { name: "regenerated", parents: |count, _| spine(count, 1) },
    Shape { name: "dead-ends", parents: |count, _| spine(count, 2) },
    Shape { name: "star", parents: |count, _| (0..count).map(|at| if at == 0 { ROOT } else { 0 }).collect() },
];

/// A random recursive tree: every message answers any earlier one.
fn random(count: u32, random: &mut Random) -> Vec<u32> {
    (0..count).map(|at| if at == 0 { ROOT } else { random.below(at) }).collect()
}

/// Trees of about so many messages. 4 % of the messages start a branch a few messages above the
/// latest one of their tree, which is what the conversation then goes on with.
fn chats(count: u32, messages_a_tree: u32, random: &mut Random) -> Vec<u32> {
    let mut latest = vec![ROOT; (count / messages_a_tree).max(1) as usize];
    let mut parents: Vec<u32> = Vec::with_capacity(count as usize);
    let trees = latest.len() as u32;
    for at in 0..count {
        let tree = random.below(trees) as usize;
        let mut parent = latest[tree];
        if parent != ROOT && random.happens(BRANCHING) {
            loop {
                parent = if parents[parent as usize] == ROOT { parent } else { parents[parent as usize] };
                if random.happens(10_000 * 100 / MEAN_STEPS_BACK) {
                    break;
                }
            }
        }
        parents.push(parent);
        latest[tree] = at;
    }
    parents
}

/// One long conversation in which every message is first answered by a branch of `dead` messages
/// that is given up: the tip is regenerated again and again.
fn spine(count: u32, dead: u32) -> Vec<u32> {
    let step = dead + 1;
    let parent = |at: u32| match at % step {
        _ if at == 0 => ROOT,
        0 => at - step,
        _ => at - 1,
    };
    (0..count).map(parent).collect()
}

/// Trees, greatest depth and mean depth, for the head of the table.
pub fn description(parents: &[u32]) -> (usize, u32, f64) {
    let mut depths: Vec<u32> = Vec::with_capacity(parents.len());
    for &parent in parents {
        depths.push(if parent == ROOT { 0 } else { depths[parent as usize] + 1 });
    }
    let trees = parents.iter().filter(|&&parent| parent == ROOT).count();
    let deepest = depths.iter().copied().max().unwrap_or(0);
    let sum: f64 = depths.iter().map(|&depth| f64::from(depth)).sum();
    (trees, deepest, sum / f64::from(parents.len().max(1) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_stands_before_its_children() {
        for shape in SHAPES {
            for count in [1, 2, 5, 3_000] {
                let parents = shape.grow(count);
                assert_eq!(parents.len(), count as usize, "{}", shape.name);
                assert_eq!(parents[0], ROOT, "{}", shape.name);
                assert!(
                    (0..).zip(&parents).all(|(at, &parent)| parent == ROOT || parent < at),
                    "{} of {count}",
                    shape.name
                );
            }
        }
    }

    #[test]
    fn adversaries_are_as_deep_as_the_goals_say() {
        let depth = |dead| description(&spine(30_000, dead)).1;
        assert_eq!((depth(1), depth(2)), (15_000, 10_001));
    }
}
