//! What are the tokens of a text?
//!
//! A text is brought to NFKC and lower case, without what only says how a character looks or where a line may break. A
//! word is a run of letters, marks and numbers, not of marks alone; a run of Chinese, Japanese or Korean characters has no words that could be told without a dictionary, so its pairs of neighbours
//! stand for them. A character that stands alone is a token; those in a run are found by themselves too, but do
//! not count in the length of a text, which they would double.

use std::borrow::Cow;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// How a token counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// A word, two neighbours of a run, or a character alone: in the length of a text, and asked for by a query.
    Counted,
    /// A character of a run: found by a query for this character alone.
    Within,
}

/// The characters that are written without spaces between words, by their blocks.
const CJK: [(u32, u32); 21] = [
    (0x1100, 0x11FF),
    (0x2E80, 0x2FDF),
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3031, 0x3035),
    (0x3038, 0x303C),
    (0x3041, 0x3096),
    (0x309D, 0x309F),
    (0x30A1, 0x30FA),
    (0x30FC, 0x30FF),
    (0x3105, 0x312F),
    (0x3131, 0x318E),
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7FF),
    (0xF900, 0xFAFF),
    (0x1B000, 0x1B16F),
    (0x20000, 0x323AF),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    Word,
    Cjk,
    Between,
}

/// Give each token of a text to `each`, in order. O(text).
pub fn tokens(text: &str, mut each: impl FnMut(&str, Token)) {
    let text = normal(text);
    let mut run = Run::Between;
    let mut start = 0;
    for (at, character) in text.char_indices() {
        let next = run_of(character);
        if next != run {
            close(run, &text[start..at], &mut each);
            (run, start) = (next, at);
        }
    }
    close(run, &text[start..], &mut each);
}

/// The distinct tokens that a query asks for, in the order in which they first stand in it.
#[must_use]
pub fn asked(query: &str) -> Vec<String> {
    let mut seen = crate::Set::default();
    let mut out = Vec::new();
    tokens(query, |token, how| {
        if how == Token::Counted && seen.insert(token.to_owned()) {
            out.push(token.to_owned());
        }
    });
    out
}

fn normal(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        return if is_lower { text.into() } else { text.to_ascii_lowercase().into() };
    }
    if is_nfkc_quick(text.chars()) == IsNormalized::Yes && !text.contains(is_ignored) {
        return text.to_lowercase().into();
    }
    text.nfkc().filter(|&character| !is_ignored(character)).collect::<String>().to_lowercase().into()
}

/// Soft hyphens and variation selectors.
fn is_ignored(character: char) -> bool {
    matches!(character, '\u{AD}' | '\u{FE00}'..='\u{FE0F}' | '\u{E0100}'..='\u{E01EF}')
}

fn is_mark(character: char) -> bool {
    character.general_category_group() == GeneralCategoryGroup::Mark
}

fn run_of(character: char) -> Run {
    if character.is_ascii() {
        return if character.is_ascii_alphanumeric() { Run::Word } else { Run::Between };
    }
    let code = character as u32;
    if code >= CJK[0].0 && CJK.iter().any(|&(first, last)| (first..=last).contains(&code)) {
        return Run::Cjk;
    }
    match character.general_category_group() {
        GeneralCategoryGroup::Letter | GeneralCategoryGroup::Mark | GeneralCategoryGroup::Number => Run::Word,
        _ => Run::Between,
    }
}

fn close(run: Run, text: &str, each: &mut impl FnMut(&str, Token)) {
    match run {
        Run::Between => {}
        Run::Word if text.chars().all(is_mark) => {}
        Run::Word => each(text, Token::Counted),
        Run::Cjk => {
            let mut before = None;
            for (at, character) in text.char_indices() {
                let end = at + character.len_utf8();
                if end == text.len() && at == 0 {
                    return each(text, Token::Counted);
                }
                each(&text[at..end], Token::Within);
                if let Some(before) = before {
                    each(&text[before..end], Token::Counted);
                }
                before = Some(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str) -> Vec<String> {
        let mut out = Vec::new();
        tokens(text, |token, how| out.extend((how == Token::Counted).then(|| token.to_owned())));
        out
    }

    #[test]
    fn words_are_runs_of_letters_marks_and_numbers() {
        assert_eq!(
            counted("Don't stop: C3PO, naïve Ｗｉｄｅ हिन्दी"),
            ["don", "t", "stop", "c3po", "naïve", "wide", "हिन्दी"]
        );
        assert_eq!(counted(" … — \u{301}"), [""; 0]);
        assert_eq!(
            counted("soft\u{AD}ware 1\u{FE0F}\u{20E3} ✔\u{FE0F} 葛\u{E0100}城"),
            ["software", "1\u{20E3}", "葛城"]
        );
    }

    #[test]
    fn neighbours_stand_for_words_where_there_are_no_spaces() {
        assert_eq!(counted("我住在杭州"), ["我住", "住在", "在杭", "杭州"]);
        assert_eq!(counted("用docker部署"), ["用", "docker", "部署"]);
        assert_eq!(counted("ﾃﾞﾓ 서울"), ["デモ", "서울"]);
    }

    #[test]
    fn a_character_of_a_run_is_found_by_itself() {
        let mut within = Vec::new();
        tokens("我住 猫", |token, how| within.extend((how == Token::Within).then(|| token.to_owned())));
        assert_eq!(within, ["我", "住"]);
        assert_eq!(asked("猫 cat 猫 Cat"), ["猫", "cat"]);
    }

    #[test]
    fn the_blocks_are_in_order() {
        assert!(CJK.windows(2).all(|pair| pair[0].1 < pair[1].0) && CJK.iter().all(|&(first, last)| first <= last));
    }
}
