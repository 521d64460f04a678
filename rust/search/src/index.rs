//! What a search keeps about all memories of a log, in the order in which they came.

use crate::conditions::Facts;
use crate::content::Content;
use crate::fields::Fields;
use crate::lexical::Lexical;
use crate::texts::Texts;
use branchmem_core::{Engine, Mem};

/// Words, texts and fields, by ordinal.
pub struct Index {
    /// Where words stand.
    pub lexical: Lexical,
    /// Which texts are equal.
    pub texts: Texts,
    /// What conditions and fading ask for.
    pub fields: Fields,
}

impl Index {
    /// Of nothing yet; `key` and `seed` are drawn anew for each index.
    #[must_use]
    pub fn new(key: [u8; 16], seed: u64) -> Self {
        Self { lexical: Lexical::new(seed), texts: Texts::new(key), fields: Fields::default() }
    }

    /// Take in the next memory, `None` for one without content. O(text).
    pub fn push(&mut self, content: Option<&Content<'_>>) {
        self.texts.push(content.map(|content| content.text));
        self.fields.push(content);
        self.lexical.push(content.map(|content| content.text));
    }

    /// Drop all that is kept of what is erased by now. O(everything) where there is any.
    pub fn forget_erased(&mut self, engine: &Engine) -> usize {
        let erased = engine.changes().erasures.erased().iter().map(|mem| mem.0);
        let gone: Vec<_> = erased.filter(|&ordinal| self.lexical.has(ordinal)).collect();
        if !gone.is_empty() {
            self.lexical.forget(&gone);
            self.fields.forget(&gone);
            let lexical = &self.lexical;
            self.texts.forget(|ordinal| !lexical.has(ordinal));
        }
        gone.len()
    }

    /// What conditions ask of a memory that has content.
    #[must_use]
    pub fn facts<'a>(&'a self, engine: &'a Engine, ordinal: u32) -> Facts<'a> {
        let mem = Mem(ordinal);
        Facts {
            kind: engine.memories().label(mem).unwrap_or("fact"),
            key: engine.memories().key(mem),
            importance: self.fields.importance(ordinal),
            created: self.fields.created(ordinal),
            meta: self.fields.meta(ordinal),
        }
    }
}
