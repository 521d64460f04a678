"""Keywords are found whatever their spelling, and a mention that its clause denies is told from one that it states."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from branchmem.branchbench.keywords import Mention, forms, is_negated, mentions, normal, stands_in
from branchmem.errors import ExtraMissing


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("ＣＨＥＮＧＤＵ　２０２６", "chengdu 2026"),
        ("成都，杭州：３月", "成都,杭州:3月"),
        ("三月要搬到臺灣", "三月要搬到台湾"),
        ("頭髮與發財", "头发与发财"),
        ("  one \t two ", "one two"),
        ("one \n\n two", "one\ntwo"),
        ("don’t", "don't"),
        ("用 API key 鉴权，3 月", "用api key鉴权,3月"),
        ("Straße", "strasse"),
    ],
)
def test_width_case_script_and_white_space_make_no_difference(text: str, same: str) -> None:
    assert normal(text) == same


def test_a_normal_text_stays_as_it_is() -> None:
    for text in ("乾燥的天氣，ＡＢＣ", "Zoë’s CAFÉ", "著名的顯著", "İstanbul"):
        assert normal(normal(text)) == normal(text)


def test_the_forms_of_a_keyword_are_normal_and_in_order() -> None:
    assert forms("9 a.m.|９ AM | nine  in the morning") == ("9 a.m.", "9 am", "nine in the morning")
    assert forms("三月|") == ("三月",)


@pytest.mark.parametrize(
    ("keyword", "text"),
    [
        ("rain", "No rain."),
        ("peanut|peanuts", "PEANUTS are out"),
        ("9", "at 9, sharp"),
        ("9 a.m.", "at 9 a.m. on Monday"),
        ("9 a.m.", "at 9 A.M."),
        ("nine in the morning", "at nine in\nthe morning"),
        ("Chengdu", "Chengdu's parks"),
        ("Chengdu", "去Chengdu玩"),
        ("杭州", "用户三月要搬到杭州。"),
        ("台湾", "臺灣"),
        ("頭髮", "剪头发"),
        ("3月|三月", "三月份"),
        ("C++", "written in C++."),
        ("café", "the CAFÉ"),
        ("3月", "３月"),
        ("3月", "今年 3 月份"),
        ("API key", "用 API key 鉴权"),
        ("1,500", "£1,500.00"),
        ("12", "12.0%"),
        ("12", "12, or 13"),
        ("2.7", "version 2.7."),
        ("140", "约 140 毫秒"),
    ],
)
def test_a_keyword_is_found(keyword: str, text: str) -> None:
    assert stands_in(keyword, text)


@pytest.mark.parametrize(
    ("keyword", "text"),
    [
        ("rain", "the train"),
        ("rain", "rainy"),
        ("9", "19"),
        ("9", "9th"),
        ("9", "é9"),
        ("3月", "13月"),
        ("800", "£1,800"),
        ("1", "1,800"),
        ("12", "12.5%"),
        ("5", "2.5"),
        ("140", "1４0,000"),
        ("peanut", "peanuts"),
        ("杭州", "杭 州"),
        ("nine in the morning", "nine in the evening"),
        ("", "anything"),
        ("|", "a|b"),
    ],
)
def test_a_keyword_is_not_found_within_another_word(keyword: str, text: str) -> None:
    assert not stands_in(keyword, text)


DENIED_EN = [
    "Not Chengdu.",
    "Not Chengdu any more.",
    "No, not Chengdu, but Hangzhou.",
    "The user is no longer moving to Chengdu.",
    "She doesn't want to go to Chengdu.",
    "She doesn’t want to go to Chengdu.",
    "They won't be moving to Chengdu.",
    "He cannot go to Chengdu.",
    "I never liked Chengdu.",
    "A trip without Chengdu.",
    "Hangzhou instead of Chengdu.",
    "Hangzhou rather than Chengdu.",
    "Anywhere except Chengdu.",
    "There is no Chengdu trip.",
    "The user cancelled the trip to Chengdu.",
    "The user canceled Chengdu.",
    "They dropped Chengdu.",
    "She gave up the plan to move to Chengdu.",
    "He has abandoned the move to Chengdu.",
    "They ruled out Chengdu.",
    "They called off the Chengdu visit.",
    "The user used to live in Chengdu.",
    "The user originally planned to go to Chengdu.",
    "The city changed from Chengdu to Hangzhou.",
    "The meeting was moved from Chengdu to Hangzhou.",
    "They moved the annual meeting from Chengdu to Hangzhou.",
    "She changed her mind about Chengdu.",
    "The user replaced Chengdu with Hangzhou.",
    "Not Chengdu it's Hangzhou.",
    "Neither Chengdu nor Xi'an.",
    "Neither Xi'an nor Chengdu.",
    "Not Xi'an nor Chengdu.",
    "Not Xi'an, and not Chengdu.",
    "Chengdu is off.",
    "Chengdu's off.",
    "Chengdu's two-day trip isn't on any more.",
    "Chengdu is off, Hangzhou is on.",
    "Chengdu was ruled out.",
    "Chengdu has been cancelled.",
    "The Chengdu trip in March was cancelled.",
    "Chengdu is no longer the plan.",
    "Chengdu is not the destination.",
    "Chengdu isn't the destination any more.",
    "Chengdu isn't on the list any more.",
    "Chengdu is not an option.",
    "The Chengdu flat fell through.",
    "Forget Chengdu.",
    "Not at 9 a.m. in Chengdu.",
    "It is Hangzhou now: Chengdu was dropped.",
    "Hangzhou, formerly Chengdu.",
    "Without going to Chengdu.",
    "Nothing in Chengdu.",
]
STATED_EN = [
    "Chengdu.",
    "The user is moving to Chengdu in March.",
    "I do not like rain but Chengdu is great.",
    "I do not like rain. Chengdu is great.",
    "It isn't raining, Chengdu is sunny.",
    "She is not going to Hangzhou; she is going to Chengdu.",
    "They dropped Hangzhou and chose Chengdu.",
    "Not Hangzhou but Chengdu.",
    "Not Hangzhou, instead Chengdu.",
    "Chengdu instead of Hangzhou.",
    "Chengdu rather than Hangzhou.",
    "Chengdu, not Hangzhou.",
    "Chengdu was chosen after Hangzhou was ruled out.",
    "They moved the annual meeting from Hangzhou to Chengdu.",
    "The city changed from Hangzhou to Chengdu.",
    "The user replaced Hangzhou with Chengdu.",
    "Not Hangzhou it's Chengdu.",
    "Instead of Hangzhou she is going to Chengdu.",
    "She never cancelled Chengdu.",
    "He did not give up Chengdu.",
    "They haven't ruled out Chengdu.",
    "Chengdu was not ruled out.",
    "Chengdu is not cancelled.",
    "Not without Chengdu.",
    "Don't forget Chengdu.",
    "Not only Chengdu.",
    "No doubt it is Chengdu.",
    "Why not Chengdu?",
    "She is used to Chengdu.",
    "Drop by Chengdu.",
    "I'm not sure, maybe Chengdu.",
    "Not far from Chengdu.",
    "Not until Chengdu.",
    "No more than 9 days in Chengdu.",
    "Chengdu is off the motorway.",
    "No: Chengdu.",
    "No reason was given for the user to choose Chengdu.",
    "He is not one of those people who would ever say no to a trip to Chengdu.",
    "The user is moving to a flat without a lift in Chengdu.",
    "She must not spend more than Chengdu costs.",
    "She does not want to go over 800 in Chengdu.",
    "It cannot exceed the Chengdu budget.",
    "He can't eat Chengdu peppers.",
    "They do not live in the same Chengdu street.",
]
DENIED_ZH = [
    "不去成都。",
    "不去成都了，改去杭州。",
    "不去成都改去杭州。",
    "用户不再考虑成都。",
    "他没有去成都。",
    "沒去成都。",
    "别再提成都了。",
    "請勿再提成都。",
    "不是成都，而是杭州。",
    "不是成都是杭州。",
    "是杭州而不是成都。",
    "去杭州，並非成都。",
    "取消了三月去成都的行程。",
    "用户放弃了成都的计划。",
    "除了成都都可以。",
    "原本打算去成都，现在改去杭州。",
    "不打算在今年搬到成都。",
    "不去重庆也不去成都。",
    "不去重庆、成都。",
    "忘掉成都吧。",
    "成都不去了。",
    "成都就不考虑了。",
    "成都那边不去了，去杭州。",
    "成都的行程取消了。",
    "成都也不去了。",
    "成都不是目的地。",
    "会议从成都挪到杭州。",
    "成都的计划作废了。",
    "成都的方案被否决。",
    "成都就算了。",
    "成都作罢。",
    "目的地从成都改成杭州。",
    "不去成都改成杭州。",
    "不可能是成都。",
    "不去 Chengdu，改去杭州。",
    "排除成都。",
    "原来打算去成都，现在改成杭州。",
    "原先要去成都。",
]
STATED_ZH = [
    "成都。",
    "用户三月要搬到成都。",
    "不去杭州，去成都。",
    "不去杭州改去成都。",
    "不是杭州而是成都。",
    "不是杭州是成都。",
    "去成都而不是杭州。",
    "杭州取消了，改成成都。",
    "天气不好但成都很好。",
    "目的地从杭州改成成都。",
    "不是不去成都。",
    "没有取消成都的行程。",
    "没有放弃成都。",
    "成都的行程没取消。",
    "别忘了成都。",
    "不仅去成都。",
    "除了成都，还去杭州。",
    "除了成都以外也去杭州。",
    "要不要去成都？",
    "是不是成都？",
    "有没有去成都？",
    "不如去成都。",
    "不得不去成都。",
    "没问题，成都可以。",
    "特别喜欢成都。",
    "未来要去成都。",
    "不知道，可能是成都。",
    "成都不错。",
    "成都的钱算了一下。",
    "去成都取消重庆的会。",
    "不超过成都的预算。",
    "不能超过成都的预算。",
    "不能吃成都的辣椒。",
    "和他不在同一个成都小区。",
    "这一次不管怎么说大家最后都同意一起去成都。",
]


@pytest.mark.parametrize("text", [*DENIED_EN, *DENIED_ZH])
def test_a_denied_mention_is_negated(text: str) -> None:
    assert stands_in("成都|Chengdu", text)
    assert is_negated("成都|Chengdu", text)


@pytest.mark.parametrize("text", [*STATED_EN, *STATED_ZH])
def test_a_stated_mention_is_not_negated(text: str) -> None:
    assert stands_in("成都|Chengdu", text)
    assert not is_negated("成都|Chengdu", text)


def test_a_text_denies_a_keyword_only_where_every_mention_is_denied() -> None:
    assert is_negated("Chengdu", "Not Chengdu. Chengdu is off.")
    assert not is_negated("Chengdu", "Not Chengdu? Yes, Chengdu.")
    assert not is_negated("成都|重庆", "不去成都，去重庆。")
    assert not is_negated("Chengdu", "Not Hangzhou.")


def test_mentions_say_where_they_stand_in_the_order_of_the_text() -> None:
    text = "Xi'an, not Chengdu."

    assert mentions("Chengdu|Xi'an", text) == [Mention(0, 5, False), Mention(11, 18, True)]
    assert normal(text)[11:18] == "chengdu"


def test_a_form_may_bear_a_word_that_denies() -> None:
    assert not is_negated("不辣", "用户要不辣的。")
    assert not is_negated("not spicy", "The user wants it not spicy.")
    assert is_negated("不辣", "不是不辣。")


def test_without_opencc_chinese_is_refused_and_english_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    from branchmem.branchbench import keywords

    def missing(*_: Any) -> Any:
        raise ModuleNotFoundError(name="opencc")

    keywords._simplifying.cache_clear()
    monkeypatch.setattr("builtins.__import__", missing)
    try:
        assert normal("Nobody has asked for OpenCC here") == "nobody has asked for opencc here"
        with pytest.raises(ExtraMissing, match=r"branchmem\[branchbench\]"):
            normal("这里需要转换")
    finally:
        monkeypatch.undo()
        keywords._simplifying.cache_clear()


def test_importing_keywords_does_not_import_opencc() -> None:
    code = "import sys, branchmem.branchbench.keywords; print('opencc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
