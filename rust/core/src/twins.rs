//! Clever against plain: the same question asked in two ways, on random logs.
//!
//! Engine and reference are held together from Python; here each structure is
//! held against its plain twin, on logs in which everything goes wrong.

use crate::encode::{
    MemoryFields, RetractionFields, erasure_skeleton, memory_skeleton, message_skeleton, restoration_skeleton,
    retraction_skeleton,
};
use crate::engine::Engine;
use crate::ids::{Mem, Node};
use crate::reason::{Admitted, OTHER_TREE, RETRACTED, Reasons, SUPERSEDED, UNKNOWN_MEMORY};
use crate::seen::{is_lasting, lasting};
use crate::skeleton::Scope;
use crate::visible::Visible;
use proptest::prelude::*;
use std::sync::atomic::AtomicU32;

/// An event; what it refers to is given by place.
#[derive(Clone, Debug)]
enum Made {
    Message(usize),
    Memory { sources: Vec<usize>, upstreams: Vec<usize>, supersedes: Vec<usize>, adopts: usize, key: usize },
    Retraction { at: usize, scope: usize, named: Vec<usize>, how: usize },
    Restoration { at: usize, scope: usize, of: usize },
    Erasure(Vec<usize>, bool),
}

fn made() -> impl Strategy<Value = Made> {
    let place = || 0_usize..40;
    let places = |most| prop::collection::vec(place(), 0..most);
    let some = || prop::collection::vec(place(), 1..4);
    let memory = (places(4), places(3), places(3), 0_usize..160, 0_usize..4);
    prop_oneof![
        12 => place().prop_map(Made::Message),
        8 => memory.prop_map(|(sources, upstreams, supersedes, adopts, key)| {
            Made::Memory { sources, upstreams, supersedes, adopts, key }
        }),
        3 => (place(), 0_usize..3, some(), 0_usize..6).prop_map(|(at, scope, named, how)| {
            Made::Retraction { at, scope, named, how }
        }),
        2 => (place(), 0_usize..3, place()).prop_map(|(at, scope, of)| Made::Restoration { at, scope, of }),
        1 => (some(), any::<bool>()).prop_map(|(targets, alone)| Made::Erasure(targets, alone)),
    ]
}

/// Skeletons in which ids of the wrong type, missing ones, circles and legacy messages occur.
fn skeletons(log: &[Made]) -> Vec<Vec<u8>> {
    let id = |place: usize| format!("{place:02}");
    let sorted = |places: &[usize]| {
        let mut ids: Vec<_> = places.iter().map(|&place| id(place)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    let scopes = [Scope::Branch, Scope::Tree, Scope::Everywhere];
    let skeleton = |(place, made): (usize, &Made)| match made {
        Made::Message(0) => message_skeleton(&id(place), Some(None)),
        Made::Message(1) => message_skeleton(&id(place), None),
        // Mostly near the end of what is there, as in a chat.
        Made::Message(at) => {
            let parent = if *at < 30 { id(place.saturating_sub(at / 8 + 1)) } else { id(*at) };
            message_skeleton(&id(place), Some(Some(&parent)))
        }
        Made::Memory { sources, upstreams, supersedes, adopts, key } => {
            let lists = [sources, upstreams, supersedes].map(|places| sorted(places));
            let [sources, upstreams, supersedes] =
                lists.each_ref().map(|ids| ids.iter().map(String::as_str).collect::<Vec<_>>());
            let adopts = (*adopts < 40).then(|| id(*adopts));
            let fields = MemoryFields {
                sources: &sources,
                derived_from: &upstreams,
                supersedes: &supersedes,
                adopts: adopts.as_deref(),
                label: None,
                key: ["home", "work"].get(*key).copied(),
            };
            memory_skeleton(&id(place), &fields)
        }
        Made::Retraction { at, scope, named, how } => {
            let named = sorted(named);
            let named: Vec<_> = named.iter().map(String::as_str).collect();
            let at = id(*at);
            let fields = RetractionFields { at: &at, scope: scopes[*scope], ..RetractionFields::default() };
            let fields = match how {
                0 | 1 => RetractionFields { memories: &named, ..fields },
                2 | 3 => RetractionFields { sources: &named, ..fields },
                _ => RetractionFields { keys: &["home"], standing: *how == 5, ..fields },
            };
            retraction_skeleton(&id(place), &fields)
        }
        Made::Restoration { at, scope, of } => restoration_skeleton(&id(place), &id(*at), scopes[*scope], &id(*of)),
        Made::Erasure(targets, alone) => {
            let targets = sorted(targets);
            erasure_skeleton(&id(place), &targets.iter().map(String::as_str).collect::<Vec<_>>(), *alone)
        }
    };
    log.iter().enumerate().map(skeleton).collect()
}

fn from<'a>(sources: &'a [&'a str]) -> MemoryFields<'a> {
    MemoryFields { sources, ..MemoryFields::default() }
}

fn folded(skeletons: &[&[u8]], batch: usize, prepare: bool) -> Engine {
    let mut engine = Engine::new(1);
    for batch in skeletons.chunks(batch) {
        for (first_seq, block) in engine.encode(batch).unwrap() {
            engine.fold(first_seq, &block).unwrap();
        }
        if prepare {
            engine.prepare();
        }
    }
    engine.update();
    engine
}

fn set(visible: &Visible, len: usize) -> Vec<bool> {
    let mut out = vec![false; len];
    visible.ordinals().into_iter().for_each(|mem| out[mem as usize] = true);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Walk, scan, pairs, single reasons, all reasons and explanations agree at every message and
    /// at pairs of messages, however the log was cut and whenever the tour was frozen.
    #[test]
    fn every_way_to_ask_gives_one_answer(
        log in prop::collection::vec(made(), 1..40),
        order in prop::collection::vec(any::<u32>(), 40),
        batch in 1_usize..9,
        prepare in any::<bool>(),
    ) {
        let all = skeletons(&log);
        let mut shuffled: Vec<_> = all.iter().zip(order).collect();
        shuffled.sort_by_key(|&(_, key)| key);
        let shuffled: Vec<&[u8]> = shuffled.into_iter().map(|(skeleton, _)| &**skeleton).collect();
        let engine = folded(&shuffled, batch, prepare);
        let mems = engine.memories().len();
        let nodes: Vec<_> = (0..engine.forest().len() as u32).map(Node).collect();
        let numbers: Vec<_> = nodes.iter().map(|&node| Some(engine.ids().of_message(node))).collect();
        let pairs = numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| vec![a, b]));
        let anchors = std::iter::once(vec![]).chain(numbers.iter().map(|&a| vec![a])).chain(pairs.step_by(7));
        for anchors in anchors {
            let Ok(stand) = engine.stand(&anchors) else { continue };
            for policy in [0, 0x0761_u16, OTHER_TREE | 0x0400, SUPERSEDED | RETRACTED, Reasons::MAX] {
                let policy = policy & !UNKNOWN_MEMORY;
                let reasons = engine.all_reasons(&stand, policy);
                for (at, &expected) in reasons.iter().enumerate() {
                    let mem = Mem(at as u32);
                    let replaced = if engine.is_replaced(mem, &stand, policy) { SUPERSEDED } else { 0 };
                    prop_assert_eq!(engine.reasons(Some(mem), &stand) | replaced, expected);
                    prop_assert_eq!(engine.explain(mem, &stand, policy).reasons, expected);
                    let by_tour = engine.reasons_by_tour(mem, &stand);
                    prop_assert!(by_tour.is_none_or(|reasons| reasons == expected));
                }
                let shown: Vec<_> = reasons.iter().map(|&reasons| reasons & !policy == 0).collect();
                let answer = engine.answer(&stand, policy);
                prop_assert_eq!(&set(&answer.visible, mems), &shown);
                let mut admitted = Admitted::default();
                reasons.iter().filter(|&&reasons| reasons & !policy == 0).for_each(|&reasons| admitted.add(reasons));
                prop_assert_eq!(admitted.counts(), answer.admitted.counts());
                if policy == 0 {
                    if let Some(answer) = engine.walk(&stand) {
                        prop_assert_eq!(&set(&answer.visible, mems), &shown);
                    }
                    if stand.is_usable() {
                        let by_sources = |mem| stand.reasons_of_sources(Mem(mem as u32), engine.facts()) == 0;
                        let on_path: Vec<_> = (0..mems).map(by_sources).collect();
                        prop_assert_eq!(&set(&engine.scan(&stand), mems), &on_path);
                    }
                }
            }
        }
        for policy in [0, 0x0761] {
            let pairs: Vec<_> =
                (0..=mems as u32).flat_map(|mem| (0..=nodes.len() as u32).map(move |node| (mem, node))).collect();
            let (of, at): (Vec<_>, Vec<_>) =
                pairs.iter().map(|&(mem, node)| (AtomicU32::new(mem), AtomicU32::new(node))).unzip();
            let mut visible = vec![2; pairs.len()];
            engine.pairs(&of, &at, policy, &mut visible);
            for (&(mem, node), visible) in pairs.iter().zip(visible) {
                let number = numbers.get(node as usize).copied().flatten();
                let stand = engine.stand(&[number]).unwrap();
                let mem = ((mem as usize) < mems).then_some(Mem(mem));
                let replaced = mem.is_some_and(|mem| engine.is_replaced(mem, &stand, policy));
                prop_assert_eq!(visible == 1, engine.reasons(mem, &stand) & !policy == 0 && !replaced);
            }
        }
    }

    /// The same events in another order, cut otherwise: the same reasons for every memory at every message.
    #[test]
    fn the_order_of_arrival_does_not_matter(
        log in prop::collection::vec(made(), 1..30),
        order in prop::collection::vec(any::<u32>(), 40),
        batch in 1_usize..9,
    ) {
        let all = skeletons(&log);
        let straight: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let mut shuffled: Vec<_> = straight.iter().zip(order).collect();
        shuffled.sort_by_key(|&(_, key)| key);
        let shuffled: Vec<_> = shuffled.into_iter().map(|(&skeleton, _)| skeleton).collect();
        let (a, b) = (folded(&straight, 1000, false), folded(&shuffled, batch, true));
        for node in (0..a.forest().len() as u32).map(Node) {
            let id = a.ids().name(a.ids().of_message(node));
            let stand_a = a.stand(&[a.ids().find(id)]).unwrap();
            let stand_b = b.stand(&[b.ids().find(id)]).unwrap();
            let (all_a, all_b) = (a.all_reasons(&stand_a, 0), b.all_reasons(&stand_b, 0));
            for (at, &reasons) in all_a.iter().enumerate() {
                let number = b.ids().find(a.ids().name(a.memories().number(Mem(at as u32)))).unwrap();
                prop_assert_eq!(all_b[b.ids().memory(number).unwrap().at()], reasons);
            }
        }
    }
}

/// What hangs in the middle of a long chain, last first: found as if it had come in order.
#[test]
fn memories_that_arrive_backwards_are_found_in_order() {
    let messages = (0..300).map(|at| {
        let parent = (at > 0).then(|| format!("u{:03}", at - 1));
        message_skeleton(&format!("u{at:03}"), Some(parent.as_deref()))
    });
    let memories = (0..300).rev().map(|at| memory_skeleton(&format!("m{at:03}"), &from(&[&format!("u{at:03}")])));
    let all: Vec<_> = messages.chain(memories).collect();
    let engine = folded(&all.iter().map(Vec::as_slice).collect::<Vec<_>>(), 7, false);
    for at in [0, 1, 7, 8, 9, 150, 298, 299] {
        let stand = engine.stand(&[engine.ids().find(&format!("u{at:03}"))]).unwrap();
        assert_eq!(engine.answer(&stand, 0).visible.len(), at + 1);
    }
}

/// A retraction that adds nothing to an adopted memory, whose sources lie elsewhere, may cover what derives from the adopter.
#[test]
fn what_derives_from_an_adopter_is_covered_where_its_sources_are() {
    let message = |id: &str, parent| message_skeleton(id, Some(parent));
    let retraction =
        |id: &str, at| retraction_skeleton(id, &RetractionFields { at, memories: &["m"], ..Default::default() });
    let adopter = MemoryFields { adopts: Some("m"), ..from(&["v"]) };
    let derived = MemoryFields { derived_from: &["n"], ..MemoryFields::default() };
    let log = [
        message("c", None),
        message("u", Some("c")),
        message("v", Some("c")),
        memory_skeleton("m", &from(&["u"])),
        memory_skeleton("n", &adopter),
        memory_skeleton("o", &derived),
        retraction("r", "u"),
        retraction("s", "v"),
    ];
    let engine = folded(&log.each_ref().map(Vec::as_slice), 1, false);
    let stand = engine.stand(&[engine.ids().find("v")]).unwrap();
    assert_eq!(engine.answer(&stand, 0).visible.len(), 0);
}

/// Marks are made when the tour is frozen: what is derived of old messages after that must make it stale.
#[test]
fn memories_derived_later_make_a_frozen_tour_stale() {
    let messages = (0..40).map(|at| {
        let parent = (at > 0).then(|| format!("u{:02}", at - 1));
        message_skeleton(&format!("u{at:02}"), Some(parent.as_deref()))
    });
    let messages: Vec<_> = messages.collect();
    let mut engine = folded(&messages.iter().map(Vec::as_slice).collect::<Vec<_>>(), 7, true);
    assert!(engine.is_toured());
    let memories: Vec<_> =
        (0..40).map(|at| memory_skeleton(&format!("m{at:02}"), &from(&[&format!("u{at:02}")]))).collect();
    for (first_seq, block) in engine.encode(&memories.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap() {
        engine.fold(first_seq, &block).unwrap();
    }
    assert!(!engine.is_toured());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// What is foreseen to be erased by a batch is what is erased once it is folded.
    #[test]
    fn what_a_batch_erases_is_foreseen(
        log in prop::collection::vec(made(), 1..40),
        order in prop::collection::vec(any::<u32>(), 40),
        cut in 0_usize..40,
    ) {
        let all = skeletons(&log);
        let mut shuffled: Vec<_> = all.iter().map(Vec::as_slice).zip(order).collect();
        shuffled.sort_by_key(|&(_, key)| key);
        let shuffled: Vec<_> = shuffled.into_iter().map(|(skeleton, _)| skeleton).collect();
        let (before, batch) = shuffled.split_at(cut.min(shuffled.len()));
        let mut engine = folded(before, 7, false);
        let gone = |engine: &Engine| -> Vec<_> {
            let numbers = engine.events(0, u32::MAX).into_iter();
            numbers.filter(|&number| engine.changes().erasures.has(number, engine.ids())).collect()
        };
        let was = gone(&engine).len();
        // What is stored already may stand in the batch again.
        let again: Vec<_> = before.iter().step_by(3).chain(batch).copied().collect();
        let (places, positions) = engine.erased_by(&again).unwrap();
        prop_assert_eq!(gone(&engine).len(), was);
        for (first_seq, block) in engine.encode(batch).unwrap() {
            engine.fold(first_seq, &block).unwrap();
        }
        let erased: Vec<_> = gone(&engine).into_iter().filter_map(|number| engine.ids().seq(number)).collect();
        let expected = again.iter().enumerate().filter(|(_, skeleton)| {
            let id = crate::encode::skeleton_id(skeleton).unwrap();
            engine.ids().find(id).is_some_and(|number| engine.changes().erasures.has(number, engine.ids()))
        });
        prop_assert_eq!(places, expected.map(|(at, _)| at).collect::<Vec<_>>());
        let stored = erased.iter().copied().filter(|&seq| (seq as usize) < before.len());
        let erased_before = folded(before, 7, false);
        let newly = stored.filter(|&seq| !gone(&erased_before).iter().any(|&number| erased_before.ids().seq(number) == Some(seq)));
        prop_assert_eq!(positions, newly.collect::<Vec<_>>());
    }

    /// What live memories replace, by chains of versions or by a walk, is what following every link says.
    #[test]
    fn what_is_replaced_is_what_the_links_reach(
        links in prop::collection::vec(prop::collection::vec(0_usize..30, 0..3), 1..30),
        straight in prop::collection::vec(0_u8..8, 30),
        order in prop::collection::vec(any::<u32>(), 30),
        live in prop::collection::vec(any::<bool>(), 30),
    ) {
        // Mostly chains: one in eight replaces what the dice said.
        let targets: Vec<Vec<usize>> = links
            .iter()
            .enumerate()
            .map(|(at, links)| match straight[at] {
                0 => links.clone(),
                1 => links.iter().map(|&link| link.min(at.saturating_sub(1))).take(1).collect(),
                _ => at.checked_sub(1).into_iter().collect(),
            })
            .collect();
        let skeleton = |at: usize| {
            let mut ids: Vec<_> = targets[at].iter().map(|target| format!("{target:02}")).collect();
            ids.sort_unstable();
            ids.dedup();
            let ids: Vec<_> = ids.iter().map(String::as_str).collect();
            memory_skeleton(&format!("{at:02}"), &MemoryFields { supersedes: &ids, ..MemoryFields::default() })
        };
        let all: Vec<_> = (0..targets.len()).map(skeleton).collect();
        let mut shuffled: Vec<_> = (0..all.len()).collect();
        shuffled.sort_by_key(|&at| order[at]);
        let engine = folded(&shuffled.iter().map(|&at| &*all[at]).collect::<Vec<_>>(), 5, false);
        let mem = |at: usize| engine.ids().memory(engine.ids().find(&format!("{at:02}")).unwrap()).unwrap();
        let supersession = &engine.changes().supersession;
        let alive = (0..targets.len()).filter(|&at| live[at]);
        let replaced = supersession.replaced(alive.clone().map(mem), engine.ids(), engine.memories());
        let mut expected = vec![false; targets.len()];
        let mut replacing = vec![vec![]; targets.len()];
        for from in 0..targets.len() {
            let (mut next, mut met) = (targets[from].clone(), vec![false; 30]);
            while let Some(at) = next.pop() {
                if at < targets.len() && !std::mem::replace(&mut met[at], true) {
                    next.extend(&targets[at]);
                }
            }
            for at in (0..targets.len()).filter(|&at| met[at] && at != from) {
                expected[at] |= live[from];
                replacing[at].push(mem(from));
            }
        }
        for at in 0..targets.len() {
            prop_assert_eq!(replaced.has(mem(at)), expected[at], "{} of {:?} in {:?}", at, &targets, &shuffled);
            let mut found: Vec<_> = supersession.replacements(mem(at), engine.memories()).collect();
            found.sort_unstable();
            replacing[at].sort_unstable();
            prop_assert_eq!(&found, &replacing[at]);
        }
    }
}

/// Ten messages, twelve memories that derive from or adopt earlier ones, and what takes back and brings back.
fn lively() -> impl Strategy<Value = Vec<Made>> {
    let messages = prop::collection::vec((0_usize..40).prop_map(Made::Message), 9);
    let few = |range: std::ops::Range<usize>| prop::collection::vec(range, 0..3);
    let memory = (few(0..10), few(10..24), prop_oneof![10_usize..22, Just(40)], 0_usize..5);
    let memory = memory.prop_map(|(sources, upstreams, adopts, key)| {
        let sources = sources.into_iter().take(2).collect();
        Made::Memory { sources, upstreams, supersedes: vec![], adopts, key }
    });
    let retraction = (0_usize..11, 0_usize..7, prop::collection::vec(0_usize..22, 1..3), 0_usize..6)
        .prop_map(|(at, scope, named, how)| Made::Retraction { at, scope: scope.saturating_sub(4), named, how });
    let restoration = (0_usize..11, 0_usize..7, 22_usize..40).prop_map(|(at, scope, of)| Made::Restoration {
        at,
        scope: scope.saturating_sub(4),
        of,
    });
    let changes = prop::collection::vec(prop_oneof![3 => retraction, 1 => restoration], 1..18);
    (messages, prop::collection::vec(memory, 12), changes).prop_map(|(messages, mut memories, changes)| {
        for (at, made) in memories.iter_mut().enumerate() {
            if let Made::Memory { upstreams, adopts, .. } = made {
                // One in a few refers to what comes later, or to what never does.
                upstreams.retain(|&up| up < 10 + at || up > 21);
                if *adopts >= 10 + at && *adopts != 11 {
                    *adopts = 40;
                }
            }
        }
        [vec![Made::Message(0)], messages, memories, changes].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// What is judged beforehand keeps up with every event, in any order of arrival: after each one, sets that rest on it are
    /// what the retractions in effect say.
    #[test]
    fn what_is_judged_beforehand_keeps_up_with_every_event(
        log in lively(),
        order in prop::collection::vec(0_u32..100, 40),
        mixed in 1_u32..8,
        batch in 1_usize..4,
    ) {
        let all = skeletons(&log);
        let mut shuffled: Vec<_> = all.iter().map(Vec::as_slice).zip(0..).zip(order).collect();
        // From nearly in order to any order.
        shuffled.sort_by_key(|&((_, at), key)| at * 8 + key * mixed * mixed / 8);
        let shuffled: Vec<_> = shuffled.into_iter().map(|((skeleton, _), _)| skeleton).collect();
        let mut engine = Engine::new(1);
        for batch in shuffled.chunks(batch) {
            for (first_seq, block) in engine.encode(batch).unwrap() {
                engine.fold(first_seq, &block).unwrap();
            }
            engine.update();
            let mems = engine.memories().len();
            let nodes: Vec<_> = (0..engine.forest().len() as u32).map(Node).collect();
            let numbers: Vec<_> = nodes.iter().map(|&node| Some(engine.ids().of_message(node))).collect();
            let others = numbers.iter().rev().zip(&numbers).map(|(&a, &b)| vec![a, b]);
            for anchors in numbers.iter().map(|&a| vec![a]).chain(others).chain(numbers.iter().map(|&a| vec![a, None])) {
                let Ok(stand) = engine.stand(&anchors) else { continue };
                let reasons = engine.all_reasons(&stand, 0);
                let shown: Vec<_> = reasons.iter().map(|&reasons| reasons == 0).collect();
                prop_assert_eq!(&set(&engine.answer(&stand, 0).visible, mems), &shown, "{:?}", &anchors);
                let single: Vec<_> = (0..mems).map(|at| engine.reasons(Some(Mem(at as u32)), &stand)).collect();
                prop_assert_eq!(&single, &reasons, "{:?}", &anchors);
            }
            let lasting = lasting(engine.facts());
            for mem in (0..mems as u32).map(Mem) {
                prop_assert_eq!(lasting.has(mem), is_lasting(mem, engine.facts()));
            }
        }
    }
}
