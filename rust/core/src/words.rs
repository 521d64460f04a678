//! Kinds and keys: words that many memories share, each kept once.

use crate::Map;
use crate::ids::Mem;
use foldhash::fast::FixedState;

const NONE: u32 = u32::MAX;

/// All words, numbered in the order in which they came.
#[derive(Default)]
pub struct Words {
    texts: Vec<Box<str>>,
    numbers: Map<Box<str>, u32>,
}

impl Words {
    /// No words. They come from texts, so the hasher must be seeded.
    #[must_use]
    pub fn new(hasher: FixedState) -> Self {
        Self { texts: Vec::new(), numbers: Map::with_hasher(hasher) }
    }

    /// The number of a word, given to it now if it has none.
    pub fn number(&mut self, word: &str) -> u32 {
        if let Some(&number) = self.numbers.get(word) {
            return number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(word.into());
        self.numbers.insert(word.into(), number);
        number
    }

    /// The word with this number.
    #[must_use]
    pub fn text(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }
}

/// The word of each memory that has one, and the memories of each word. Takes no room until one has.
#[derive(Default)]
pub struct WordOf {
    words: Vec<u32>,
    /// By word, the latest memory that has it.
    latest: Vec<u32>,
    /// By memory, the one before it that has the same word.
    before: Vec<u32>,
}

impl WordOf {
    /// The word of a memory.
    #[must_use]
    pub fn get(&self, mem: Mem) -> Option<u32> {
        self.words.get(mem.at()).copied().filter(|&word| word != NONE)
    }

    /// Say once which word a memory has.
    pub fn set(&mut self, mem: Mem, word: u32) {
        for table in [&mut self.words, &mut self.before] {
            table.resize(table.len().max(mem.at() + 1), NONE);
        }
        self.latest.resize(self.latest.len().max(word as usize + 1), NONE);
        self.words[mem.at()] = word;
        self.before[mem.at()] = std::mem::replace(&mut self.latest[word as usize], mem.0);
    }

    /// The memories that have a word, the latest first.
    pub fn all(&self, word: u32) -> impl Iterator<Item = Mem> + '_ {
        let mut at = self.latest.get(word as usize).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let mem = (at != NONE).then_some(Mem(at))?;
            at = self.before[mem.at()];
            Some(mem)
        })
    }
}
