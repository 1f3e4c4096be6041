"""What a streamed token costs in Python: overhead.py MODEL events|text|async. Prints nanoseconds."""

import asyncio
import sys
import time

import dsa_sdk as dsa


def events(run: dsa.Run) -> int:
    return sum(isinstance(event, dsa.Text) for event in run)


def text(run: dsa.Run) -> int:
    return sum(piece == " word" for piece in run.text())


async def text_async(chat: dsa.Session) -> float:
    run, tokens = chat.run("Hello.", max_tokens=1), 0
    begin = time.perf_counter_ns()
    async for piece in run.text():
        tokens += piece == " word"
    return (time.perf_counter_ns() - begin) / tokens


def main(model: str, how: str) -> None:
    with dsa.Runtime().load(model) as loaded, loaded.session() as chat:
        if how == "async":
            nanoseconds = asyncio.run(text_async(chat))
        else:
            run = chat.run("Hello.", max_tokens=1)
            begin = time.perf_counter_ns()
            tokens = (events if how == "events" else text)(run)
            nanoseconds = (time.perf_counter_ns() - begin) / tokens
        print(f"{nanoseconds:.1f}")


main(*sys.argv[1:])
