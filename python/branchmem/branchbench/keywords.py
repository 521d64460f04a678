"""Whether a keyword stands in a text, and whether the text states or denies it; without a model, by rules.

A keyword is one or more forms with `|` between them, and stands in a text where any form does.  The one rule of
matching: keyword and text are made `normal` first, and a form that begins or ends with a letter or digit of Latin
script is not found inside a longer word or number (`rain` is not in `train`, `9` not in `19`, `800` not in `1,800`, and
`12` in `12.0` but not in `12.5`); Chinese is found anywhere.  Inflections and synonyms that no form lists are not
found.

The rule of denial, for Chinese and English alike, whatever the language of the text:

- A mention is looked at within its clause.  A clause ends at punctuation (an enumeration comma does not end it) and at
  words with which a sentence turns: but, and, because, 而是, 但, 却, 改去 …
- Words that deny what follows them count up to `WORDS` English words or `CHARACTERS` Chinese characters before the
  mention (not, n't, no longer, instead of, cancelled, used to; 不, 没, 别, 取消, 放弃, 除了 …); words that deny what
  precedes them, after it ("is off", "was ruled out"; 不去了, 取消了, 作罢 …).
- Words that only look so do not count (not only, no doubt, 不仅, 不错, 是不是, 除了 … 还 …).  Nor do a limit and a ban,
  which state what they are about: "cannot spend more than 800", "can't eat peanuts", 不能超过八百, 不能吃花生.
- The mention is negated where an odd number of them counts: "never cancelled Chengdu" and 不是不去成都 state it.

A text denies a keyword where it mentions it and every mention is negated.  In doubt the rule takes a mention for a
statement: irony, denial from another sentence ("Chengdu? No."), "I doubt that …" and a denial spread over a list
("no Chengdu, Xi'an or Beijing", but for its first) are not seen.  It does take for denied what is
merely qualified ("not all of Chengdu", "does not want to leave Chengdu"), and a fact that is itself a denial ("does not
eat peanuts"): the validator refuses to forbid those.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from branchmem.errors import ExtraMissing

WORDS: Final = 6
CHARACTERS: Final = 8

_LATIN: Final = "0-9a-zß-öø-ɏ"
_HAN: Final = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_CHINESE: Final = re.compile(f"[{_HAN}]")
_BETWEEN_SCRIPTS: Final = re.compile(f"(?<=[{_HAN}])[ \t]+(?=[{_LATIN}])|(?<=[{_LATIN}])[ \t]+(?=[{_HAN}])")
_BLANKS: Final = re.compile(r"\s+")


def normal(text: str) -> str:
    """The text in one width, case and script: NFKC, case folded, simplified characters, straight apostrophes.

    A run of white space becomes one space, or one line break where it has any; none is left at either end.  The space
    that some set between Chinese and Latin letters or digits is none: "3 月" is "3月".
    Raises: ExtraMissing where the text has Chinese characters and OpenCC is not installed.
    Cost: O(length) at first; texts of late are kept.
    """
    return _normal(text)


@lru_cache(maxsize=1 << 13)
def _normal(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'").replace("‘", "'")
    if _CHINESE.search(folded):
        folded = _BETWEEN_SCRIPTS.sub("", _simplifying()(folded))
    return _BLANKS.sub(lambda run: "\n" if "\n" in run[0] else " ", folded).strip()


@lru_cache(maxsize=1)
def _simplifying() -> Callable[[str], str]:
    try:
        from opencc import OpenCC
    except ModuleNotFoundError as error:
        if error.name != "opencc":
            raise
        raise ExtraMissing("keywords in Chinese texts", "OpenCC", "branchbench") from None
    convert: Callable[[str], str] = OpenCC("t2s").convert
    return convert


@lru_cache(maxsize=1 << 14)
def forms(keyword: str) -> tuple[str, ...]:
    """The forms of a keyword, normal, in its order; an empty one is left out."""
    return tuple(form for form in map(normal, keyword.split("|")) if form)


@lru_cache(maxsize=1 << 14)
def _pattern(form: str) -> re.Pattern[str]:
    before = f"(?<![{_LATIN}])" if re.match(f"[{_LATIN}]", form) else ""
    after = f"(?![{_LATIN}])" if re.search(f"[{_LATIN}]$", form) else ""
    if re.match("[0-9]", form):
        before += r"(?<![0-9]\.)" + (r"(?<![0-9],)" if re.match("[0-9]{3}(?![0-9])", form) else "")
    if re.search("[0-9]$", form):
        after += r"(?!\.[0-9]*[1-9])(?!,[0-9]{3}(?![0-9]))"
    return re.compile(before + re.escape(form).replace(r"\ ", r"\s") + after)


def stands_in(keyword: str, text: str) -> bool:
    """Whether any form of the keyword stands in the text.  Cost: two microseconds for a text of late."""
    return next(_spans(keyword, normal(text)), None) is not None


def _spans(keyword: str, shown: str) -> Iterator[tuple[int, int]]:
    """Where the forms of a keyword stand in a normal text, form by form."""
    for form in forms(keyword):
        if form in shown or " " in form:
            for found in _pattern(form).finditer(shown):
                yield found.span()


@dataclass(frozen=True, slots=True)
class Mention:
    """A form of a keyword in `normal(text)`, from `begin` to before `end`; `negated` where its clause denies it."""

    begin: int
    end: int
    negated: bool


def mentions(keyword: str, text: str) -> list[Mention]:
    """Every place where a form of the keyword stands, in the order of the text."""
    shown = normal(text)
    read = _without_false_cues(shown)
    return [Mention(*span, _is_denied(read, *span)) for span in sorted(set(_spans(keyword, shown)))]


def is_negated(keyword: str, text: str) -> bool:
    """Whether the text mentions the keyword, and denies every mention of it."""
    found = mentions(keyword, text)
    return bool(found) and all(mention.negated for mention in found)


def _table(*words: str) -> re.Pattern[str]:
    return re.compile("|".join(words))


# What follows is read in normal texts: lower case, simplified, ASCII punctuation but for 。 and 、.

#: Where a clause ends.  A comma or colon within a number and the dots of "a.m." end none.
_BREAK: Final = _table(
    r"[\n;!?。()]|\.\.\.|[—–]| - ",
    r"(?<!\d)[,:]|[,:](?!\d)|(?<!\.[a-z])\.(?![a-z0-9])",
    r"\b(?:but|however|though|although|yet|and|so|because|while|whereas|only|except that|instead(?! of))\b",
    r"\b(?:after|before|when|since|if|unless|it's|it is)\b",
    r"(?=\bnor\b)|(?=[也又更][不没别])",
    r"而是|但|可是|却|还是|反而|因为|所以|只[去要有是能会剩]|转[去到为]|换[成到为]|就[去选要]",
    r"(?<![不没别再想要会])改[去到成为用在住选订坐吃]",
    r"(?<![不非再没说能会该定])是",
)

#: What looks like a cue and is none.
_FALSE_CUE: Final = _table(
    r"\bnot (?:only|just|merely|to mention|until|far from)\b|n't (?:only|just|until|far from)\b",
    r"(?:\bnot|n't) (?:sure|know|mind)\b|\bno (?:doubt|problem|wonder)\b|\bwhy not\b|\bwhether or not\b|\bcan't wait\b",
    r"\b(?:no|not) (?:more|less|fewer|later|earlier) than\b",
    # a limit, a ban and a difference state what they are about
    r"(?:\b(?:not|never|cannot)|n't)(?:\s\w+){0,4}?\s(?:(?:more|less|fewer|later|earlier|longer) than\b|exceed)",
    r"(?:\b(?:not|never|cannot)|n't)(?:\s\w+){0,3}?\s(?:over|above|beyond)(?=\s[£$€]?\d)",
    r"\b(?:can't|cannot|can not|must(?:n't| not)|should(?:n't| not)) (?:eat|drink|touch|tolerate|have)\b",
    r"(?:\bnot|n't)(?:\s\w+){0,4}?\s(?:the )?same\b",
    r"(?:\b(?:is|are|am|was|were|be|been|get|gets|got|getting)|'m|'re|'s) used to\b",
    r"\bdrop(?:s|ped|ping)? (?:by|in|off)\b",
    r"不得不|不仅|不但|不只|不光|不止|不过|不错|不久|不同|不少|不断|不妨|不如|不管|不论|不然|不知|不清楚|不确定|不小心",
    r"不客气|不好意思|不要紧|不用说|不用谢|不低于|不高于|不晚于|不早于|要不|差不多|了不起|对不起|来不及",
    r"[不没别](?:能|要|想|会|得|可|可以|应|应该|允许|有)?超过|不(?:能|可|可以|得|应|应该)[吃喝碰沾]|不[在是用]?(?:同一|一样|相同)",
    r"没错|没问题|没关系|没事|没想到|别忘[了记]|不要忘[了记]|未来|未必",
    r"特别|分别|个别|级别|区别|性别|类别|别人|别的|别处|别墅",
    r"(\w)[不没]\1",  # 是不是, 要不要, 有没有: a question
    r"除了(?=[^。!?;\n]*[还也又])",  # "besides"
)

#: Denies what follows it, within reach.
_DENIES_NEXT_WORDS: Final = _table(
    r"\bno longer\b|\bno more\b|\bnot\b|n't\b|\bcannot\b|\bnever\b|\bneither\b|\bnor\b",
    r"\b(?:no|without|nothing)\b(?=(?:\s\S+){0,2}\s*$)|\bnone of\b",
    r"(?:\binstead of|\brather than|\bother than|\bexcept)\b(?=(?:\s\S+){0,3}\s*$)|\bused to\b",
    r"\b(?:changed|switched|moved|shifted|rescheduled)(?: \w+){0,3} from\b(?!.*\bto\b)",
    r"\bchanged (?:my|his|her|their|our) minds? about\b|\breplac(?:es|ed|ing)\b(?!.*\b(?:with|by)\b)",
    r"\bcancel(?:s|l?ed|l?ing)?\b|\bdrop(?:s|ped|ping)?\b|\bg(?:ave|ive|ives|iving|iven) up\b|\babandon(?:s|ed|ing)?\b",
    r"\brul(?:e|es|ed|ing) out\b|\bcall(?:s|ed|ing)? off\b|\bturned down\b|\bdecided against\b|\bbacked out of\b",
    r"\b(?:rejected|scrapped|stopped|quit|forget)\b|\bformerly\b",
    r"\boriginally (?:planned|meant|wanted|going|intended)\b",
)
_DENIES_NEXT_CHARACTERS: Final = _table(
    r"而不是|不再|不是|并非|绝非|不|没有|没|别|勿|甭|尚未|未|无须|无需",
    r"取消|放弃|作废|排除|否决|推掉|退掉|去掉|删掉|划掉|忘掉|撤销|除了|除去|原本|原先|原来(?=打算|计划|想|要)|本来(?!就)",
)

_WORDS_BETWEEN: Final = r"^(?:'s)?(?:\s[\w'-]+){0,4}?"
_IS: Final = r"(?:'s|\s(?:is|was|are|were|got|has been|have been))(?:\s(?:now|already|also|therefore))?\s"
_THE_PLAN: Final = (
    r"(?:an option|happening|needed|wanted|in question|"
    r"(?:the|my|his|her|their|our) (?:destination|plan|place|city|one|answer|choice|goal|target))\b"
)
_VOID: Final = "取消|作废|否决|排除|淘汰|放弃|推掉|退掉"
_WANTED: Final = "去|要|用|选|搬|住|订|买|做|走|吃|喝|学|养|来|办|租|考|看|坐|行|成|考虑|打算去|作数|算数"

#: Denies what precedes it, within reach: at most four words, or six characters, come between.
_DENIES_LAST: Final = _table(
    rf"{_WORDS_BETWEEN}{_IS}(?:off(?! (?:to|the|of|by)\b)|out(?! (?:of|there)\b)|no longer|no more)",
    rf"{_WORDS_BETWEEN}{_IS}(?:cancell?ed|dropped|ruled out|rejected|abandoned|scrapped|called off)",
    rf"{_WORDS_BETWEEN}{_IS}not {_THE_PLAN}",
    rf"{_WORDS_BETWEEN}(?: \w+n't|\snot)\s(?:{_THE_PLAN}|(?:\w+\s){{0,5}}any ?(?:more|longer)\b)",
    rf"{_WORDS_BETWEEN}\s(?:no longer|fell through|(?:won't|will not) happen|(?:didn't|did not) work out)\b",
    rf"^.{{0,6}}?不再?(?:{_WANTED})了",
    r"^.{0,6}?(?:不再|不行|不在考虑|算了(?=[吧啦]*$)|作罢|泡汤|黄了|没了|否了|不作数|不算数)",
    r"^.{0,6}?不是(?:目的地|首选|计划|选择|答案)",
    rf"^.{{0,6}}?(?<![没不未别有])(?:{_VOID})(?=[了掉吧啦]*$)",
    rf"^.{{0,6}}?被.{{0,4}}?(?:{_VOID})",
)

#: "changed X to": denies X where nothing else does.
_REPLACES: Final = _table("改成|改为|改到|换成|换为|换到|变成|变为|变更为|推迟到|提前到|挪到|调到|调整到|调整为")


@lru_cache(maxsize=1 << 12)
def _without_false_cues(shown: str) -> str:
    return _FALSE_CUE.sub(lambda found: "_" * len(found[0]), shown)


def _is_denied(read: str, begin: int, end: int) -> bool:
    starts = [found.end() for found in _BREAK.finditer(read, 0, begin)]
    before = read[starts[-1] if starts else 0 : begin]
    stops = (found.start() for found in _BREAK.finditer(read, end) if found[0])  # 也不 may deny what precedes it
    after = read[end : next(stops, len(read))]
    cues = sum(len(before[found.end() :].split()) <= WORDS for found in _DENIES_NEXT_WORDS.finditer(before))
    cues += sum(len(before) - found.end() <= CHARACTERS for found in _DENIES_NEXT_CHARACTERS.finditer(before))
    cues += _DENIES_LAST.search(after) is not None
    return cues % 2 == 1 or (cues == 0 and _REPLACES.match(read, end) is not None)
