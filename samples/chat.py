"""chat.py: a conversation on the terminal, or one question: chat.py MODEL ["question"].

Ctrl-C stops the answer and keeps what was said; a second one ends the program. Exit codes: 0 answered, 1 failed, 2 wrong
arguments, 130 stopped.
"""

import sys

import dsa_sdk as dsa


def ask(chat: dsa.Session, question: str) -> int:
    code, thinking = 0, False
    with chat.run(question) as run:
        try:
            for event in run:
                if isinstance(event, dsa.Text):
                    if thinking:
                        print(file=sys.stderr)
                    thinking = False
                    print(event.text, end="", flush=True)
                elif isinstance(event, dsa.Reasoning):
                    thinking = True
                    print(event.text, end="", file=sys.stderr, flush=True)  # beside the answer
        except KeyboardInterrupt:
            code = 130  # leaving the block stops the run
    print()
    return code


def converse(chat: dsa.Session) -> int:
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        try:
            line = input()
        except (EOFError, KeyboardInterrupt):
            return 0
        if line:
            ask(chat, line)


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        print('usage: chat.py MODEL ["question"]', file=sys.stderr)
        return 2
    try:
        with dsa.Runtime().load(arguments[0]) as model, model.session() as chat:
            return ask(chat, arguments[1]) if len(arguments) == 2 else converse(chat)
    except dsa.Error as error:
        print(f"{error.code.name}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
