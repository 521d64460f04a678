"""What a supplied context and an answer give away: one probe, one method, one judgement, without a judge model.

*Exposed*: a forbidden keyword stands in the supplied context; no model is needed to see it.  *Leaked*: one stands in
the answer as a statement.  *Negated*: the answer mentions one, but only to deny it ("not Chengdu any more"), by the
rule of `keywords`; no leak, and told apart, so that who takes a denial for a leak can add the two.  *Correct*: an
accepted keyword stands in the answer, as a statement, and nothing is leaked.  *Starved*: no accepted keyword stands in
the context, so that no reader of it could know.

A context counts as what stands in it: a denial in it exposes too, since what a model makes of it is the model's
affair.

Rates come with Wilson's 95 % interval, which holds for rates of 0 and 1 and for few probes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Final

from branchmem.branchbench import keywords
from branchmem.branchbench.scenario import Language, Part, Probe, Scenario

Z: Final = 1.959963984540054  # the 97.5th percentile of the normal distribution


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one context and one answer give away, and whether they serve.  `leaked` excludes `negated` and `correct`."""

    exposed: bool
    leaked: bool
    negated: bool
    correct: bool
    starved: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One probe put to one method: what was supplied, what was answered, and what that gives away.

    `tokens` are the context's, as `Tools.count` counts them.  `seconds` is what the method took for it: an equal share
    of taking the scenario in, and finding the context, its own model calls included as long as they took when first
    asked; without the answer, and without embedding texts that no method had asked for before.  A `leak_probe` has
    forbidden keywords; a `contested` one some reader could call unfair.
    """

    scenario: str
    part: Part
    language: Language
    probe: str
    operation: str
    contested: bool
    leak_probe: bool
    method: str
    context: tuple[str, ...]
    tokens: int
    seconds: float
    answer: str
    exposed: bool
    leaked: bool
    negated: bool
    correct: bool
    starved: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"context": list(self.context)}


def row_from_dict(form: dict[str, Any]) -> Row:
    """A row from its JSON form; KeyError or TypeError where it is none."""
    row = Row(**{**form, "context": tuple(form["context"])})
    texts = (row.scenario, row.part, row.language, row.probe, row.operation, row.method, row.answer, *row.context)
    measured = isinstance(row.tokens, int) and isinstance(row.seconds, int | float)
    if not (measured and isinstance(form["context"], list) and all(isinstance(text, str) for text in texts)):
        raise TypeError("a value is of another kind than its field")
    return row


def judge(probe: Probe, context: Sequence[str], answer: str) -> Judgement:
    """What this context and this answer give away.  O(their length)."""
    leaked = any(_is_stated(keyword, answer) for keyword in probe.forbidden)
    return Judgement(
        exposed=_supplied(probe.forbidden, context),
        leaked=leaked,
        negated=not leaked and any(keywords.stands_in(keyword, answer) for keyword in probe.forbidden),
        correct=not leaked and any(_is_stated(keyword, answer) for keyword in probe.accepted),
        starved=not _supplied(probe.accepted, context),
    )


def _is_stated(keyword: str, answer: str) -> bool:
    return keywords.stands_in(keyword, answer) and not keywords.is_negated(keyword, answer)


def _supplied(wanted: Sequence[str], context: Sequence[str]) -> bool:
    return any(keywords.stands_in(keyword, line) for line in context for keyword in wanted)


def judged(
    scenario: Scenario, probe: Probe, method: str, context: Sequence[str], tokens: int, seconds: float, answer: str
) -> Row:
    """The row of a probe that has been answered.  `seconds` are kept to the microsecond."""
    judgement = judge(probe, context, answer)
    return Row(
        scenario=scenario.id,
        part=scenario.part,
        language=scenario.language,
        probe=probe.id,
        operation=probe.operation,
        contested=probe.contested is not None,
        leak_probe=bool(probe.forbidden),
        method=method,
        context=tuple(context),
        tokens=tokens,
        seconds=round(seconds, 6),
        answer=answer,
        **asdict(judgement),
    )


@dataclass(frozen=True, slots=True)
class Rate:
    """`hits` of `of`, with Wilson's 95 % interval."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        """The rate in 0..1; NaN of nothing."""
        return self.hits / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Low and high in 0..1; (0, 1) of nothing.

        Source: Wilson, Probable inference, the law of succession, and statistical inference, JASA 22, 1927.
        """
        if not self.of:
            return 0.0, 1.0
        share, n = self.value, self.of
        middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
        half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
        low = middle - half if self.hits else 0.0  # exactly, where rounding would leave a trace
        high = middle + half if self.hits < n else 1.0
        return low, high

    def to_dict(self) -> dict[str, Any]:
        """Hits, of how many, and the interval."""
        return {"hits": self.hits, "of": self.of, "interval": list(self.interval)}


def rate(values: Iterable[bool]) -> Rate:
    """How many of them hold."""
    counted = list(values)
    return Rate(sum(counted), len(counted))


@dataclass(frozen=True, slots=True)
class Figures:
    """What some rows of one method come to.  Exposure, leaks and negations count leak probes only.

    `tokens` and `seconds` are means over the rows; NaN of none.
    """

    exposure: Rate
    leak: Rate
    negated: Rate
    correct: Rate
    starved: Rate
    tokens: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The figures for a machine; rates as `Rate.to_dict` gives them, what was never measured as None."""
        found = {name: getattr(self, name) for name in self.__slots__}
        plain = {
            name: None if math.isnan(value) else value for name, value in found.items() if isinstance(value, float)
        }
        return {name: value.to_dict() for name, value in found.items() if isinstance(value, Rate)} | plain


def figures(rows: Sequence[Row]) -> Figures:
    """The measures over some rows of one method, each row counted once.  O(rows)."""
    guarded = [row for row in rows if row.leak_probe]
    return Figures(
        exposure=rate(row.exposed for row in guarded),
        leak=rate(row.leaked for row in guarded),
        negated=rate(row.negated for row in guarded),
        correct=rate(row.correct for row in rows),
        starved=rate(row.starved for row in rows),
        tokens=fmean(row.tokens for row in rows) if rows else math.nan,
        seconds=fmean(row.seconds for row in rows) if rows else math.nan,
    )
