//! Which memories have a token, how often, and what is that worth?
//!
//! BM25 (Robertson & Zaragoza, Foundations and Trends in IR 3(4), 2009) with the weight of rarity that cannot be
//! negative. All statistics are those of what is shown: what is hidden is neither counted nor measured.

use crate::Map;
use crate::best::Scored;
use crate::shown::Shown;
use crate::tokens::{Token, asked, tokens};
use foldhash::fast::FixedState;

const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Texts of up to so many tokens share what their length makes of a score.
const KEPT_NORMS: u32 = 255;

/// The length of a memory without content.
const GONE: u32 = u32::MAX;

/// From here on, so many times as many entries as memories are shown, a list is searched instead of read.
const SEARCH_FACTOR: usize = 16;

/// Where each token stands, by ordinal.
pub struct Lexical {
    /// The memories that have a token, ascending, each as often as it has it.
    lists: Map<Box<str>, Vec<u32>>,
    lengths: Vec<u32>,
}

impl Lexical {
    /// Of nothing yet; `seed` keeps those who choose the words from knowing where they meet.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { lists: Map::with_hasher(FixedState::with_seed(seed)), lengths: Vec::new() }
    }

    /// How many memories were taken in.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether none was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Take in what the next memory says, `None` for one without content. O(text).
    pub fn push(&mut self, text: Option<&str>) {
        let ordinal = self.lengths.len() as u32;
        let mut length = 0;
        if let Some(text) = text {
            tokens(text, |token, how| {
                length += u32::from(how == Token::Counted);
                match self.lists.get_mut(token) {
                    Some(list) => list.push(ordinal),
                    None => _ = self.lists.insert(token.into(), vec![ordinal]),
                }
            });
        }
        self.lengths.push(if text.is_some() { length } else { GONE });
    }

    /// Whether a memory was taken in and has content.
    #[must_use]
    pub fn has(&self, ordinal: u32) -> bool {
        self.lengths.get(ordinal as usize).is_some_and(|&length| length != GONE)
    }

    /// What a search ranks of these memories, which ascend: those that have content, and own texts after them.
    #[must_use]
    pub fn shown(&self, ordinals: &[u32], own: &[&str]) -> Shown {
        let length_at = |&ordinal: &u32| self.lengths.get(ordinal as usize).copied().unwrap_or(GONE);
        let mut ordinals = ordinals.to_vec();
        let mut lengths = Vec::with_capacity(ordinals.len() + own.len());
        lengths.extend(ordinals.iter().map(length_at));
        if lengths.contains(&GONE) {
            ordinals.retain(|ordinal| length_at(ordinal) != GONE);
            lengths.retain(|&length| length != GONE);
        }
        lengths.extend(own.iter().map(|text| length(text)));
        Shown::new(ordinals, lengths)
    }

    /// Drop all that is kept of some memories. O(everything).
    pub fn forget(&mut self, gone: &[u32]) {
        for &ordinal in gone {
            self.lengths[ordinal as usize] = GONE;
        }
        let lengths = &self.lengths;
        self.lists.retain(|_, list| {
            list.retain(|&ordinal| lengths[ordinal as usize] != GONE);
            !list.is_empty()
        });
    }

    /// The places that have a token, each with how often. O(entries), or O(shown · log entries) where that is less.
    fn matches(&self, token: &str, shown: &Shown) -> Vec<(u32, u32)> {
        let list = self.lists.get(token).map_or(&[][..], Vec::as_slice);
        let mut out = Vec::with_capacity(list.len().min(shown.ordinals().len()));
        if list.len() / SEARCH_FACTOR > shown.ordinals().len() {
            let mut rest = list;
            for (place, &ordinal) in shown.ordinals().iter().enumerate() {
                rest = &rest[rest.partition_point(|&other| other < ordinal)..];
                let times = rest.iter().take_while(|&&other| other == ordinal).count();
                if times > 0 {
                    out.push((place as u32, times as u32));
                }
            }
            return out;
        }
        let mut counted = u32::MAX;
        shown.each_shown(list, |ordinal| {
            if ordinal == counted {
                out.last_mut().into_iter().for_each(|(_, times)| *times += 1);
            } else {
                out.extend(shown.place(ordinal).map(|place| (place, 1)));
                counted = ordinal;
            }
        });
        out
    }

    /// The places that have something of a query, each once, and their scores. `own` are the texts of the last places.
    ///
    /// Tokens are added up in the order of the query, so that the same texts give the same score to the last bit.
    #[must_use]
    pub fn scores(&self, query: &str, shown: &Shown, own: &[&str]) -> Vec<Scored> {
        let asked = asked(query);
        if asked.is_empty() || shown.is_empty() {
            return Vec::new();
        }
        let own = own_matches(own, shown.ordinals().len() as u32, &asked);
        let average = shown.lengths().iter().map(|&length| u64::from(length)).sum::<u64>() as f64 / shown.len() as f64;
        let norm = |length: u32| K1 * (1.0 - B + B * f64::from(length) / average);
        // The same for each length, of which there are few; what depends on it is worked out once.
        let norms: Vec<_> = (0..=KEPT_NORMS).map(norm).collect();
        let count = shown.len() as f64;
        let (mut scores, mut places) = (vec![0.0; shown.len()], Vec::new());
        for (token, own) in asked.iter().zip(own) {
            let mut matches = self.matches(token, shown);
            matches.extend(own);
            let found = matches.len() as f64;
            let rarity = (1.0 + (count - found + 0.5) / (found + 0.5)).ln();
            for (place, times) in matches {
                let (length, times) = (shown.lengths()[place as usize], f64::from(times));
                let norm = norms.get(length as usize).copied().unwrap_or_else(|| norm(length));
                let score = &mut scores[place as usize];
                if *score == 0.0 {
                    places.push(place);
                }
                *score += rarity * times * (K1 + 1.0) / (times + norm);
            }
        }
        places.into_iter().map(|place| (scores[place as usize], place)).collect()
    }
}

/// How many tokens of a text count.
fn length(text: &str) -> u32 {
    let mut length = 0;
    tokens(text, |_, how| length += u32::from(how == Token::Counted));
    length
}

/// For each token that is asked for the own texts that have it, by their places from `first` on, each with how often.
fn own_matches(own: &[&str], first: u32, asked: &[String]) -> Vec<Vec<(u32, u32)>> {
    let mut out = vec![Vec::new(); asked.len()];
    let at: Map<&str, usize> = asked.iter().map(String::as_str).zip(0..).collect();
    for (place, text) in (first..).zip(own) {
        tokens(text, |token, _| {
            let Some(&at) = at.get(token) else { return };
            let matches: &mut Vec<(u32, u32)> = &mut out[at];
            match matches.last_mut() {
                Some((last, times)) if *last == place => *times += 1,
                _ => matches.push((place, 1)),
            }
        });
    }
    out
}

/// BM25 of each of some texts for a query, among these alone.
#[must_use]
pub fn rank_texts(texts: &[&str], query: &str) -> Vec<f64> {
    let nothing = Lexical::new(0);
    let mut scores = vec![0.0; texts.len()];
    for (score, place) in nothing.scores(query, &nothing.shown(&[], texts), texts) {
        scores[place as usize] = score;
    }
    scores
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(texts: &[&str]) -> Lexical {
        let mut index = Lexical::new(0);
        texts.iter().for_each(|text| index.push(Some(text)));
        index
    }

    #[test]
    fn a_list_says_the_same_read_or_searched() {
        let texts: Vec<String> =
            (0..500).map(|at| format!("tea tea {}", if at % 7 == 0 { "rare tea" } else { "x" })).collect();
        let mut index = index(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        index.push(Some("milk"));
        for shown in [vec![3, 7, 499, 500], (0..500).step_by(3).collect(), vec![500], vec![]] {
            let shown = index.shown(&shown, &[]);
            let times = |at: u32| if at == 500 { 0 } else { 2 + u32::from(at.is_multiple_of(7)) };
            let plain = (0..).zip(shown.ordinals()).map(|(place, &at)| (place, times(at)));
            let plain: Vec<(u32, u32)> = plain.filter(|&(_, times)| times > 0).collect();
            assert_eq!(index.matches("tea", &shown), plain);
        }
    }

    #[test]
    fn hidden_texts_change_no_score() {
        let few = index(&["green tea", "black tea please", "milk"]);
        let few = few.scores("tea milk", &few.shown(&[0, 1, 2], &[]), &[]);
        let many = index(&["tea", "green tea", "milk milk tea", "black tea please", "milk", "rare"]);
        assert_eq!(many.scores("tea milk", &many.shown(&[1, 3, 4], &[]), &[]), few);
        let ranked = rank_texts(&["green tea", "black tea please", "milk"], "tea milk");
        let mut few = few;
        few.sort_unstable_by_key(|&(_, place)| place);
        assert_eq!(few.into_iter().map(|(score, _)| score).collect::<Vec<_>>(), ranked);
    }

    #[test]
    fn what_is_forgotten_leaves_no_word_behind() {
        let mut index = index(&["green tea", "secret tea"]);
        index.forget(&[1]);
        assert!(index.has(0) && !index.has(1));
        let words: crate::Set<&str> = index.lists.keys().map(AsRef::as_ref).collect();
        assert_eq!(words, ["green", "tea"].into_iter().collect());
    }
}
