"""Mem0 without a network: an endpoint on loopback that speaks as OpenAI's does, and extracts what it was told to."""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import gettempdir
from typing import Any

os.environ["MEM0_TELEMETRY"] = "False"
os.environ.setdefault("MEM0_DIR", str(Path(gettempdir()) / "branchmem-test-mem0"))

USER = {"user_id": "alice"}
DIMS = 64


class Model:
    """Answers each extraction with the facts of every text that stands among the new messages of its prompt."""

    def __init__(self) -> None:
        self.facts: dict[str, list[str]] = {}
        self.prompts: list[str] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = model.embedded(asked) if self.path.endswith("/embeddings") else model.extracted(asked)
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def extracted(self, asked: dict[str, Any]) -> dict[str, Any]:
        prompt = asked["messages"][-1]["content"]
        self.prompts.append(prompt)
        new = prompt.partition("## New Messages")[2].partition("\n## ")[0]
        found = [fact for text, facts in self.facts.items() if text in new for fact in facts]
        content = json.dumps({"memory": [{"id": str(n), "text": fact} for n, fact in enumerate(found)]})
        message = {"role": "assistant", "content": content}
        return {"id": "1", "object": "chat.completion", "choices": [{"index": 0, "message": message}]}

    def embedded(self, asked: dict[str, Any]) -> dict[str, Any]:
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        rows = [{"object": "embedding", "index": n, "embedding": vector(text)} for n, text in enumerate(texts)]
        return {"object": "list", "data": rows, "model": "words"}

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


def vector(text: str) -> list[float]:
    """Words in common make texts alike; no text is without any likeness to another."""
    row = [0.1] * DIMS
    for word in text.lower().replace(":", " ").split():
        row[int(hashlib.sha256(word.encode()).hexdigest(), 16) % DIMS] += 1.0
    length = math.sqrt(sum(x * x for x in row))
    return [x / length for x in row]


def config(url: str, folder: Path | None) -> dict[str, Any]:
    openai = {"api_key": "unused", "openai_base_url": url}
    place = {"path": ":memory:"} if folder is None else {"path": str(folder / "qdrant"), "on_disk": True}
    return {
        "llm": {"provider": "openai", "config": {**openai, "model": "scripted"}},
        "embedder": {"provider": "openai", "config": {**openai, "model": "words", "embedding_dims": DIMS}},
        "vector_store": {"provider": "qdrant", "config": {**place, "embedding_model_dims": DIMS}},
        "history_db_path": ":memory:" if folder is None else str(folder / "history.db"),
    }


def said(*texts: str) -> list[dict[str, str]]:
    """User and assistant in turns."""
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def texts(found: dict[str, Any]) -> list[str]:
    return sorted(one["memory"] for one in found["results"])


def seen(memory: Any) -> list[str]:
    """What a Mem0 lists, which is also what it finds."""
    listed = texts(memory.get_all(filters=USER, top_k=1000))
    assert texts(memory.search("what does the user like", filters=USER, top_k=1000, threshold=0.0)) == listed
    return listed
