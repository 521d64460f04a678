"""What was said in Chinese, Japanese or Korean is found by a word of it, among thousands of other sentences."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import branchmem as bm
import pytest
from branchmem.reference import Reference
from searching import NOW, Asked, differences, of_engine, of_reference

PEOPLE = ["用户", "他的妻子", "小王", "李老师", "她的母亲", "我们组长", "隔壁邻居", "老同学", "项目经理", "他弟弟"]
TIMES = ["上周五", "昨天下午", "今年春天", "每个周末", "最近", "去年冬天", "明天早上", "这两个月"]
PLACES = ["公司", "杭州", "北京", "图书馆", "健身房", "咖啡馆", "医院", "机场", "学校", "超市"]
THINGS = ["新电脑", "自行车", "一本小说", "两张车票", "生日蛋糕", "雨伞", "耳机", "牛奶", "数据库", "会议记录"]
FEELINGS = ["很满意", "有点担心", "非常高兴", "不太习惯", "觉得太贵", "想再试一次"]
TEMPLATES = (
    "{person}{time}在{place}买了{thing}，{feeling}。",
    "{time}{person}去{place}取{thing}。",
    "{person}把{thing}忘在{place}了，{time}才想起来。",
    "关于{thing}，{person}{feeling}。",
    "{person}说{time}要去{place}，顺便还{thing}。",
    "{place}的{thing}{time}打折，{person}{feeling}。",
    "{time}，{person}在{place}跟朋友聊起{thing}。",
    "{person}打算{time}从{place}搬走{thing}。",
)
#: What is asked, and the one sentence that answers it.
PLANTED = {
    "花生": "用户对花生过敏，吃一点就会起疹子。",
    "护照": "护照放在书房第二个抽屉里。",
    "女儿": "用户的女儿叫小雨，今年上三年级。",
    "布达佩斯": "他们的婚礼是在布达佩斯办的。",
    "素食主义": "用户从大学起就是素食主义者。",
    "车牌": "家里的车牌尾号是八八六二。",
    "对象存储": "线上备份每晚写到对象存储，保留三十天。",
    "恐高": "用户恐高，不坐缆车。",
    "左撇子": "她是左撇子，剪刀要买专用的。",
    "鲁班锁": "爷爷留下一把紫檀的鲁班锁。",
}
JAPANESE = {
    "そば": "ユーザーはそばアレルギーがある。",
    "京都": "来月、京都へ引っ越す予定です。",
    "ピアノ": "娘は毎週ピアノを習っている。",
    "犬": "白い犬を二匹飼っています。",
}
KOREAN = {
    "땅콩": "사용자는 땅콩 알레르기가 있다.",
    "부산": "다음 달에 부산으로 이사한다.",
    "피아노": "딸은 매주 피아노를 배운다.",
    "개": "흰 개 두 마리를 키운다.",
}


def sentences(random: Random, count: int) -> list[str]:
    """Distinct sentences in the order in which somebody might have said them."""
    said: dict[str, None] = {}
    while len(said) < count:
        person, time, place = random.choice(PEOPLE), random.choice(TIMES), random.choice(PLACES)
        words = {"person": person, "time": time, "place": place, "thing": random.choice(THINGS)}
        said[random.choice(TEMPLATES).format(**words, feeling=random.choice(FEELINGS))] = None
    return list(said)


@pytest.fixture(scope="module")
def events() -> list[bm.Memory | bm.Message]:
    random = Random(20260301)
    planted = [*PLANTED.values(), *JAPANESE.values(), *KOREAN.values()]
    texts = [*sentences(random, 3_000), *planted]
    random.shuffle(texts)
    messages: list[bm.Memory | bm.Message] = [
        bm.Message("chat", None),
        bm.Message("u", "chat"),
        bm.Message("v", "chat"),
    ]
    return messages + [bm.Memory(f"m{number:04}", text, sources=["u"]) for number, text in enumerate(texts)]


@pytest.fixture(scope="module")
def view(events: list[bm.Memory | bm.Message]) -> Iterator[bm.View]:
    with bm.open_temporary() as store:
        store.append(events)
        yield store.at("u")


def found(view: bm.View, query: str) -> list[str]:
    return [hit.text for hit in view.search(query, now=NOW)]


def test_ten_planted_facts_are_found_by_a_keyword_among_three_thousand_sentences(view: bm.View) -> None:
    assert len(view) > 3_000
    hits = [keyword for keyword, fact in PLANTED.items() if fact in found(view, keyword)]
    assert len(hits) == 10, PLANTED.keys() - set(hits)


def test_the_keyword_ranks_its_fact_first(view: bm.View) -> None:
    for keyword, fact in {**PLANTED, **JAPANESE, **KOREAN}.items():
        assert found(view, keyword)[:1] == [fact], keyword


@pytest.mark.parametrize(
    ("question", "keyword"),
    [
        ("用户对什么过敏？是花生吗", "花生"),
        ("我的护照放哪儿了", "护照"),
        ("小雨是谁的女儿？", "女儿"),
        ("婚礼在哪儿办的：布达佩斯还是北京", "布达佩斯"),
        ("备份要写到对象存储吗", "对象存储"),
        ("他是不是恐高", "恐高"),
    ],
)
def test_a_whole_question_finds_the_fact_too(view: bm.View, question: str, keyword: str) -> None:
    assert PLANTED[keyword] in found(view, question)


@pytest.mark.parametrize("form", ["ピアノ", "ﾋﾟｱﾉ", "ヒ\u309aアノ"])
def test_half_width_and_decomposed_katakana_are_the_same_word(view: bm.View, form: str) -> None:
    assert found(view, form) == [JAPANESE["ピアノ"]]


@pytest.mark.parametrize("form", ["부산", "\u1107\u116e\u1109\u1161\u11ab"])
def test_hangul_in_jamo_is_the_same_word(view: bm.View, form: str) -> None:
    assert found(view, form) == [KOREAN["부산"]]


def test_a_single_character_is_found_wherever_it_stands() -> None:
    texts = {"a": "猫", "b": "我家的猫很懒。", "c": "熊猫", "d": "狗", "e": "Tom和猫"}
    with bm.open_temporary() as store:
        store.append([bm.Message("u", None)])
        store.append([bm.Memory(id, text, sources=["u"]) for id, text in texts.items()])
        view = store.at("u")
        assert sorted(view.search("猫", now=NOW).ids) == ["a", "b", "c", "e"]
        assert view.search("猫", now=NOW).ids[0] == "a"
        assert view.search("熊猫", now=NOW).ids == ["c"]
        assert view.search("猫熊", now=NOW).ids == []


def test_full_width_letters_and_figures_are_the_plain_ones() -> None:
    with bm.open_temporary() as store:
        store.append([bm.Message("u", None), bm.Memory("a", "用Ｄｏｃｋｅｒ部署到８０８０端口", sources=["u"])])
        for query in ("docker", "ＤＯＣＫＥＲ", "8080", "８０８０", "端口", "部署"):
            assert store.at("u").search(query, now=NOW).ids == ["a"], query


def test_engine_and_reference_agree_on_all_of_it(view: bm.View, events: list[bm.Memory | bm.Message]) -> None:
    right = Reference()
    right.add(events)
    theirs = right.at("u")
    for query in ("花生", "的", "用户对什么过敏", "会议记录，数据库"):
        asked = Asked(query)
        assert not differences(of_engine(view, asked)[0], of_reference(right, theirs, asked)[0]), query
