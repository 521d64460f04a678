"""An agent that remembers on branches: it is asked, edited, asked again, switched back, and helped by a swarm.

    pip install branchmem
    python examples/agent.py

As it stands it talks to a scripted endpoint of its own on this machine.  With a model of yours, at any endpoint that
speaks as OpenAI's does:

    AGENT_MODEL=gpt-5-mini OPENAI_API_KEY=… python examples/agent.py
    AGENT_MODEL=qwen3 OPENAI_BASE_URL=http://127.0.0.1:11434/v1 python examples/agent.py

Each step says what it shows, and asserts it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import branchmem as bm
from branchmem.agent import Agent, Answer, Swarm
from branchmem.chat import Chat
from branchmem.extract import ModelExtractor

SYSTEM = "You help somebody to move house. Answer in one short sentence. Look the weather up; never guess it."


def weather(city: str) -> str:
    """The weather that a city has in May."""
    found = f"In May it is warm and humid in {city}."
    bm.current_step().remember(found)  # it belongs to the answer that asked for it
    return found


def main() -> None:
    with an_endpoint() as model, bm.open_temporary() as store:
        session = store.session("chat")
        agent = Agent(session, model, system=SYSTEM, tools=[weather], extractor=ModelExtractor(model))

        first = agent.send("I'm moving to Chengdu in May.")
        tell("I'm moving to Chengdu in May.", first, session)
        print("\n> What is the weather like there?")
        for piece in agent.stream("What is the weather like there?"):
            print(piece if isinstance(piece, str) else "", end="", flush=True)
        print()
        chengdu = session.head
        known = set(session.view().ids())

        edited = agent.edit(user_message(session, first), "I'm moving to Hangzhou in May.")
        tell("(edited) I'm moving to Hangzhou in May.", edited, session)
        assert not known & set(session.view().ids())
        print("Nothing that was learned below the first version is visible on this branch.")

        before = set(session.view().ids())
        again = agent.regenerate()
        tell("(asked again)", again, session)
        assert not before & set(session.view().ids())
        print("What the rejected answer taught stays with it.")

        seq = store.seq
        agent.switch(chengdu)
        assert set(session.view().ids()) == known
        assert store.seq == seq
        print("\nSwitched back, which writes nothing. Chengdu again:")
        print(*(f"  {memory.text}" for memory in session.view().memories()), sep="\n")

        swarm = Swarm(session)
        tasks = {name: partial(look_into, agent, name) for name in ("schools", "flats")}
        for name, finding in asyncio.run(swarm.run(tasks)).items():
            assert finding.adopted is not None
            print(f"\nThe member for {name} says: {finding.result()}")
            print(f"  {len(finding.adopted.adopted)} of its memories adopted by the lead")
            assert swarm.adopt(name).message is None  # nothing twice
        print("\nThe lead knows by now:")
        print(*(f"  {memory.text}" for memory in session.view().memories()), sep="\n")


async def look_into(lead: Agent, topic: str, session: bm.Session) -> Answer:
    """What a member of the swarm does, on its fork."""
    member = Agent(session, lead.model, system=SYSTEM, extractor=lead.extractor)
    return await member.asend(f"I decided that the {topic} should be near the river.")


def user_message(session: bm.Session, answer: Answer) -> str:
    """The message of the user that an answer stands below."""
    path = [session.store.log.get(id) for id in session.store.tree.path(answer.id)]
    return [message.id for message in path if isinstance(message, bm.Message) and message.role == "user"][-1]


def tell(said: str, answer: Answer, session: bm.Session) -> None:
    """Print a turn, and what is visible after it."""
    print(f"\n> {said}\n{answer}")
    print(*(f"  remembers: {memory.text}" for memory in session.view().memories()), sep="\n")


@contextmanager
def an_endpoint() -> Iterator[Chat]:
    """The model that the environment names, or the scripted one for as long as it is asked."""
    model = os.environ.get("AGENT_MODEL")
    if model:
        print(f"Answered by {model}.")
        yield Chat(model)
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), Script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    print("Answered by a scripted endpoint: set AGENT_MODEL to ask a real one.")
    os.environ["no_proxy"] = "127.0.0.1"
    try:
        yield Chat("script", base_url=f"http://127.0.0.1:{server.server_address[1]}/v1", key="none")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Script(BaseHTTPRequestHandler):
    """Answers as a model might: looks the weather up, and finds decisions of the user."""

    def do_POST(self) -> None:
        form = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message, finish = self.answered(form), "stop"
        if "tool_calls" in message:
            finish = "tool_calls"
        kind = "text/event-stream" if form.get("stream") else "application/json"
        if form.get("stream"):
            deltas: list[dict[str, Any]] = [{"content": f"{word} "} for word in (message["content"] or "").split()]
            if "tool_calls" in message:
                deltas.append({"tool_calls": message["tool_calls"]})
            ends = [None] * len(deltas) + [finish]
            chunks = [{"delta": delta, "finish_reason": end} for delta, end in zip([*deltas, {}], ends, strict=True)]
            body = "".join(f"data: {json.dumps({'choices': [chunk]})}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        else:
            body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": finish}]})
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def answered(self, form: dict[str, Any]) -> dict[str, Any]:
        last = form["messages"][-1]
        if "response_format" in form:
            return {"role": "assistant", "content": json.dumps({"memories": found(last["content"])})}
        if last["role"] == "tool":
            return {"role": "assistant", "content": last["content"]}
        if "weather" in last["content"]:
            city = re.findall(r"moving to (\w+)", str(form["messages"]))[-1]
            function = {"name": "weather", "arguments": json.dumps({"city": city})}
            calls = [{"index": 0, "id": "call_1", "type": "function", "function": function}]
            return {"role": "assistant", "content": None, "tool_calls": calls}
        return {"role": "assistant", "content": f"Noted: {last['content'].removeprefix('I ')}"}

    def log_message(self, *args: Any) -> None:
        pass


def found(shown: str) -> list[dict[str, Any]]:
    """What the script finds in the messages that it is shown: what the user is doing or has decided."""
    memories = []
    for message in json.loads(shown)["messages"]:
        for begins, says in (("I'm ", "The user is "), ("I decided ", "The user decided ")):
            if message["role"] == "user" and message["text"].startswith(begins):
                text = says + message["text"].removeprefix(begins)
                links: dict[str, Any] = {"sources": [message["id"]], "builds_on": [], "replaces": []}
                memories.append({"text": text, **links, "kind": "fact", "key": None, "importance": 1.0})
    return memories


if __name__ == "__main__":
    main()
