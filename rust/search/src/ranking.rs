//! Which texts of those shown fit a query best?
//!
//! The view comes first: what is not shown is neither counted nor scored. Each ranker nominates its best texts;
//! two are fused by reciprocal ranks (Cormack, Clarke & Buettcher, SIGIR 2009).

use crate::Map;
use crate::best::{Scored, best, best_labels};
use crate::conditions::{Condition, Facts};
use crate::content::Content;
use crate::fields::{Pacing, effective};
use crate::index::Index;
use crate::shown::{At, Shown};
use crate::vectors::{Vectors, cosine};
use branchmem_core::{Engine, Mem};
use std::cmp::Ordering;

/// Damps the head of each list, so that one first place does not outvote two seconds.
const RRF_K: f64 = 60.0;
/// So many texts each ranker nominates at least, and so many times as many as are wanted.
const LEAST_DEPTH: usize = 100;
const DEPTH_FACTOR: usize = 10;

/// A memory that the log does not have yet.
pub struct Own<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its key.
    pub key: Option<&'a str>,
    /// What it says.
    pub content: Content<'a>,
    /// Its vector, where vectors are asked.
    pub vector: Option<&'a [f32]>,
}

/// How fading is judged.
pub struct Fading {
    /// Microseconds since 1970.
    pub now: i64,
    /// For kinds that have none of their own.
    pub pace: Pacing,
    /// By kind.
    pub kinds: Map<String, Pacing>,
}

impl Fading {
    /// How a memory of the log fades.
    #[must_use]
    pub fn pace(&self, engine: &Engine, ordinal: u32) -> &Pacing {
        if self.kinds.is_empty() {
            return &self.pace;
        }
        self.of(engine.memories().label(Mem(ordinal)).unwrap_or("fact"))
    }

    /// Whether a memory that the log does not have yet is faded.
    fn has_faded(&self, own: &Own<'_>) -> bool {
        let pace = self.of(own.kind).pace;
        effective(own.content.importance, own.content.created, pace, self.now) < pace.floor
    }

    fn of(&self, kind: &str) -> &Pacing {
        self.kinds.get(kind).unwrap_or(&self.pace)
    }
}

/// One search.
pub struct Query<'a> {
    /// Asked of the words, where there is any.
    pub text: Option<&'a str>,
    /// Asked of the vectors, where there are any.
    pub vector: Option<(&'a Vectors, &'a [f32])>,
    /// The vectors of these alone are compared, where that gives enough texts; they ascend.
    pub near: Option<&'a [u32]>,
    /// So many texts are wanted.
    pub count: usize,
    /// All must hold.
    pub conditions: &'a [Condition],
    /// Leaves out what is faded.
    pub fading: Option<&'a Fading>,
}

/// A text that fits, and those who say it.
#[derive(Debug, PartialEq)]
pub struct Hit {
    /// The memories, none of which is hidden, faded or unfit.
    pub members: Vec<At>,
    /// The best of them.
    pub first: At,
    /// Fused, or that of the only ranker.
    pub score: f64,
    /// Rank from 1, and score.
    pub lexical: Option<(usize, f64)>,
    /// Rank from 1, and cosine.
    pub vector: Option<(usize, f64)>,
}

/// Rank the memories at these ordinals, which ascend, and own ones. Also says how many that fit are faded.
///
/// O(shown), and for words the entries of their lists, for vectors shown · dim.
#[must_use]
pub fn search(
    index: &Index,
    engine: &Engine,
    ordinals: &[u32],
    own: &[Own<'_>],
    query: &Query<'_>,
) -> (Vec<Hit>, usize) {
    let texts: Vec<_> = own.iter().map(|own| own.content.text).collect();
    let shown = index.lexical.shown(ordinals, &texts);
    let search = Search { index, engine, own, shown, labels: own_labels(index, own) };
    let (candidates, faded) = search.candidates(query);
    let fused = query.text.is_some() && query.vector.is_some();
    let depth = if fused { LEAST_DEPTH.max(DEPTH_FACTOR.saturating_mul(query.count)) } else { query.count.max(1) };
    let nominate = |found: &[Scored]| {
        best_labels(found, depth, |a, b| search.id(a).cmp(search.id(b)), |place| search.label(place))
    };
    let lexical = query.text.map(|text| nominate(&search.lexical(text, &candidates)));
    let vector = query.vector.map(|asked| search.vector(asked, query.near, &candidates, depth, nominate));
    (search.fused(lexical.as_deref(), vector.as_deref(), query.count, &candidates), faded)
}

/// Labels for own texts, beyond all ordinals where no memory of the log says the same.
fn own_labels(index: &Index, own: &[Own<'_>]) -> Vec<u32> {
    let mut new: Map<&str, u32> = Map::default();
    let beyond = (0..u32::MAX).rev().zip(own);
    let labels = beyond.map(|(beyond, own)| {
        let text = own.content.text;
        index.texts.find(text).unwrap_or_else(|| *new.entry(text).or_insert(beyond))
    });
    labels.collect()
}

struct Search<'a> {
    index: &'a Index,
    engine: &'a Engine,
    own: &'a [Own<'a>],
    shown: Shown,
    labels: Vec<u32>,
}

/// The places that may be ranked; `None` for all.
type Candidates = Option<Vec<bool>>;

fn may(candidates: &Candidates, place: u32) -> bool {
    candidates.as_ref().is_none_or(|candidates| candidates[place as usize])
}

impl<'a> Search<'a> {
    fn places(&self) -> std::ops::Range<u32> {
        0..self.shown.len() as u32
    }

    fn id(&self, place: u32) -> &'a str {
        match self.shown.at(place) {
            At::Log(ordinal) => self.engine.ids().name(self.engine.memories().number(Mem(ordinal))),
            At::Own(at) => self.own[at].id,
        }
    }

    fn label(&self, place: u32) -> u32 {
        match self.shown.at(place) {
            At::Log(ordinal) => self.index.texts.label(ordinal),
            At::Own(at) => self.labels[at],
        }
    }

    fn facts(&self, place: u32) -> Facts<'a> {
        match self.shown.at(place) {
            At::Log(ordinal) => self.index.facts(self.engine, ordinal),
            At::Own(at) => Facts::new(self.own[at].kind, self.own[at].key, &self.own[at].content),
        }
    }

    fn candidates(&self, query: &Query<'_>) -> (Candidates, usize) {
        let fits = |place| query.conditions.iter().all(|condition| condition.fits(&self.facts(place)));
        let mut candidates: Candidates = (!query.conditions.is_empty()).then(|| self.places().map(fits).collect());
        let mut faded = 0;
        if let Some(fading) = query.fading {
            let all = || vec![true; self.shown.len()];
            let fields = &self.index.fields;
            let logged = self
                .shown
                .ordinals()
                .iter()
                .map(|&ordinal| fields.is_faded(ordinal, fading.pace(self.engine, ordinal), fading.now));
            let own = self.own.iter().map(|own| fading.has_faded(own));
            for (place, _) in self.places().zip(logged.chain(own)).filter(|&(_, is_faded)| is_faded) {
                let may = &mut candidates.get_or_insert_with(all)[place as usize];
                faded += usize::from(*may);
                *may = false;
            }
        }
        (candidates, faded)
    }

    fn lexical(&self, text: &str, candidates: &Candidates) -> Vec<Scored> {
        let own: Vec<_> = self.own.iter().map(|own| own.content.text).collect();
        let mut scores = self.index.lexical.scores(text, &self.shown, &own);
        scores.retain(|&(_, place)| may(candidates, place));
        scores
    }

    /// The best texts by vector: of the memories that are thought to be near, or of all where these are too few.
    fn vector(
        &self,
        (vectors, vector): (&Vectors, &[f32]),
        near: Option<&[u32]>,
        candidates: &Candidates,
        depth: usize,
        nominate: impl Fn(&[Scored]) -> Vec<Scored>,
    ) -> Vec<Scored> {
        let near = near.map(|near| near.iter().filter_map(|&ordinal| Some((ordinal, self.shown.place(ordinal)?))));
        if let Some(near) = near {
            let nominated = self.nominated(vectors, vector, near, candidates, depth, &nominate);
            if nominated.len() >= depth {
                return nominated;
            }
        }
        let all = self.shown.ordinals().iter().copied().zip(self.places());
        self.nominated(vectors, vector, all, candidates, depth, nominate)
    }

    /// The best texts of some memories by vector, and of own ones.
    fn nominated(
        &self,
        vectors: &Vectors,
        vector: &[f32],
        some: impl Iterator<Item = (u32, u32)>,
        candidates: &Candidates,
        depth: usize,
        nominate: impl Fn(&[Scored]) -> Vec<Scored>,
    ) -> Vec<Scored> {
        let mut places = Vec::with_capacity(some.size_hint().1.unwrap_or_default());
        let mut rows = Vec::with_capacity(places.capacity());
        for (ordinal, place) in some {
            if let Some(row) = vectors.row(ordinal).filter(|_| may(candidates, place)) {
                places.push(place);
                rows.push(row);
            }
        }
        let own = (self.shown.ordinals().len() as u32..).zip(self.own).filter(|&(place, _)| may(candidates, place));
        let own: Vec<_> =
            own.filter_map(|(place, own)| Some((f64::from(cosine(own.vector?, vector)), place))).collect();
        let mut wanted = depth;
        loop {
            let (contenders, cosines, complete_from) = vectors.contenders(&rows, vector, wanted);
            let scores = contenders.iter().map(|&at| places[at as usize]).zip(cosines);
            let scores = scores.map(|(place, cosine)| (f64::from(cosine), place)).chain(own.iter().copied());
            let nominated = nominate(&scores.collect::<Vec<_>>());
            // Equal texts are one, and own ones come on top: below where rows were left out, one of these may be better.
            let last = nominated.get(depth - 1);
            if contenders.len() == rows.len() || last.is_some_and(|last| last.0 >= f64::from(complete_from)) {
                return nominated;
            }
            wanted *= 4;
        }
    }

    fn fused(
        &self,
        lexical: Option<&[Scored]>,
        vector: Option<&[Scored]>,
        count: usize,
        candidates: &Candidates,
    ) -> Vec<Hit> {
        let mut hits: Vec<(u32, Hit)> = Vec::new();
        let mut known: Map<u32, usize> = Map::default();
        let is_fused = lexical.is_some() && vector.is_some();
        let ranked = |list: Option<&[Scored]>| list.map(<[Scored]>::to_vec).unwrap_or_default().into_iter().zip(1..);
        let lists = ranked(lexical).map(|one| (true, one)).chain(ranked(vector).map(|one| (false, one)));
        for (is_lexical, ((score, place), rank)) in lists {
            let at = *known.entry(self.label(place)).or_insert_with(|| {
                let first = self.shown.at(place);
                hits.push((place, Hit { members: Vec::new(), first, score: 0.0, lexical: None, vector: None }));
                hits.len() - 1
            });
            let hit = &mut hits[at].1;
            *(if is_lexical { &mut hit.lexical } else { &mut hit.vector }) = Some((rank, score));
            hit.score += if is_fused { 1.0 / (RRF_K + rank as f64) } else { score };
        }
        let order = |a: &(u32, Hit), b: &(u32, Hit)| -> Ordering {
            b.1.score.total_cmp(&a.1.score).then_with(|| self.id(a.0).cmp(self.id(b.0)))
        };
        hits.sort_unstable_by(order);
        hits.truncate(count);
        for (place, hit) in &mut hits {
            hit.members = self.members(*place, candidates);
        }
        hits.into_iter().map(|(_, hit)| hit).collect()
    }

    /// The candidates that say what one of them says, sorted by id.
    fn members(&self, place: u32, candidates: &Candidates) -> Vec<At> {
        let label = self.label(place);
        let ring = self.index.texts.ring(label).filter_map(|ordinal| self.shown.place(ordinal));
        let first = self.shown.ordinals().len() as u32;
        let own = (first..).zip(&self.labels).filter(|&(_, &other)| other == label).map(|(place, _)| place);
        let mut places: Vec<_> = ring.chain(own).filter(|&place| may(candidates, place)).collect();
        places.sort_unstable_by(|&a, &b| self.id(a).cmp(self.id(b)));
        places.into_iter().map(|place| self.shown.at(place)).collect()
    }
}

/// Those of the memories at these ordinals, which ascend, whose text is this one. O(memories that say it).
#[must_use]
pub fn saying(index: &Index, ordinals: &[u32], text: &str) -> Vec<u32> {
    let ring = index.texts.find(text).map(|label| index.texts.ring(label));
    let has = |&ordinal: &u32| index.lexical.has(ordinal) && ordinals.binary_search(&ordinal).is_ok();
    ring.into_iter().flatten().filter(has).collect()
}

/// The nearest of the memories at these ordinals to a vector, best first, each by itself; `None` where one that is not
/// erased has no vector. O(ordinals · dim).
#[must_use]
pub fn nearest(
    vectors: &Vectors,
    engine: &Engine,
    ordinals: &[u32],
    vector: &[f32],
    count: usize,
) -> Option<Vec<Scored>> {
    let mut kept = Vec::with_capacity(ordinals.len());
    let mut rows = Vec::with_capacity(ordinals.len());
    for &ordinal in ordinals {
        if let Some(row) = vectors.row(ordinal) {
            kept.push(ordinal);
            rows.push(row);
        } else if !engine.changes().erasures.erased().has(Mem(ordinal)) {
            return None;
        }
    }
    let (places, cosines, _) = vectors.contenders(&rows, vector, count);
    let found = cosines.into_iter().map(f64::from).zip(places.into_iter().map(|place| kept[place as usize])).collect();
    let id = |ordinal| engine.ids().name(engine.memories().number(Mem(ordinal)));
    Some(best(found, count, |a, b| id(a).cmp(id(b))))
}
