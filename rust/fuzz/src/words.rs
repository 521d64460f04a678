//! What inputs speak of: logs that came before a block, and names that sort and encode in every way there is.

use crate::random::Random;
use branchmem_core::encode::encode_blocks;
use branchmem_core::event::decode_block;
use branchmem_core::ids::Ids;
use branchmem_core::msgpack::{write_array, write_str};

/// How many ids the logs have that a block may follow on: numbers of one, two, three and five bytes.
const SIZES: [usize; 4] = [0, 3, 300, 66_000];

/// A name that blocks may mention.
pub struct Word {
    pub name: String,
    /// Its number, where the log before mentions it.
    pub number: Option<u32>,
    /// Whether an event of that log bears it.
    pub is_borne: bool,
}

/// A log that a block may follow on.
pub struct Context {
    pub blocks: Vec<(u64, Vec<u8>)>,
    pub ids: Ids,
    /// How many events it has.
    pub events: u64,
    /// Sorted by the bytes of the names.
    pub words: Vec<Word>,
}

impl Context {
    /// All logs that a block may follow on.
    pub fn all() -> Vec<Self> {
        SIZES.map(Self::with).into()
    }

    fn with(size: usize) -> Self {
        let mentioned: Vec<String> = (0..size).map(|at| format!("c{at:05}")).collect();
        let mut skeletons = Vec::new();
        // A memory each mentions its own id and 3,999 others.
        for chunk in mentioned.chunks(4000) {
            let mut memory = vec![0x94, 1];
            write_str(&mut memory, &chunk[0]);
            memory.push(2);
            write_array(&mut memory, chunk.len() - 1);
            chunk[1..].iter().for_each(|source| write_str(&mut memory, source));
            skeletons.push(memory);
        }
        if size > 1 {
            let mut root = vec![0x94, 0];
            write_str(&mut root, &mentioned[1]);
            root.extend([1, 0xc0]);
            skeletons.push(root);
        }
        let borne = |at: usize| at == 1 || at.is_multiple_of(4000);
        let spread = (0..size).filter(|at| size < 40 || at.is_multiple_of(size / 40) || *at == size - 1 || borne(*at));
        let mut words: Vec<Word> =
            names().into_iter().map(|name| Word { name, number: None, is_borne: false }).collect();
        words.extend(spread.map(|at| Word {
            name: mentioned[at].clone(),
            number: Some(at as u32),
            is_borne: borne(at),
        }));
        words.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));

        let mut ids = Ids::new(0);
        let slices: Vec<&[u8]> = skeletons.iter().map(Vec::as_slice).collect();
        let blocks = if size == 0 { Vec::new() } else { encode_blocks(0, &slices, &ids).expect("they are canonical") };
        for (first_seq, block) in &blocks {
            decode_block(*first_seq, block, &mut ids).expect("it is canonical");
        }
        assert_eq!(ids.len(), size, "every id of the log is mentioned once");
        Self { blocks, ids, events: skeletons.len() as u64, words }
    }

    /// The place of a word, seldom of one that is borne.
    pub fn any_id(&self, random: &mut Random) -> usize {
        let at = random.below(self.words.len());
        if self.words[at].is_borne { random.below(self.words.len()) } else { at }
    }

    /// Places of `count` words or fewer, in their order.
    pub fn some(&self, count: usize, random: &mut Random) -> Vec<usize> {
        let mut places: Vec<_> = (0..count).map(|_| random.below(self.words.len())).collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// Names at the limits of lengths and of their encodings, beginnings of each other, and of one to four bytes a letter.
fn names() -> Vec<String> {
    let lengths = [1, 2, 30, 31, 32, 33, 254, 255, 256];
    let mut names: Vec<String> = lengths.iter().map(|&length| "x".repeat(length)).collect();
    for letter in ["\0", "\u{7f}", "é", "\u{7ff}", "日", "\u{ffff}", "𝄞", "\u{10ffff}"] {
        names.extend([letter.to_owned(), format!("a{letter}"), letter.repeat(256 / letter.len())]);
    }
    names.extend(('a'..='p').map(String::from));
    names.extend(["fact", "summary", "ab", "A", "-1", "0", "c00001 "].map(String::from));
    names
}
