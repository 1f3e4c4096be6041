"""chat.py: a conversation on the terminal, or one question: chat.py MODEL ["question"].

Ctrl-C stops the answer and keeps what was said; a second one ends the program. In a conversation "/image PATH" shows a
picture with the next question. Exit codes: 0 answered, 1 failed, 2 wrong arguments, 130 stopped.
"""

import sys

import dsa_sdk as dsa


def ask(chat: dsa.Session, prompt: dsa.Prompt, question: str) -> int:
    code = 0
    with chat.run(prompt.text(question)) as run:
        try:
            for event in run:
                if isinstance(event, dsa.Text):
                    print(event.text, end="", flush=True)
                elif isinstance(event, dsa.Reasoning):
                    print(event.text, end="", file=sys.stderr, flush=True)  # beside the answer
        except KeyboardInterrupt:
            code = 130  # leaving the block stops the run
    print()
    return code


def converse(runtime: dsa.Runtime, chat: dsa.Session) -> int:
    prompt = dsa.Prompt(runtime).user()
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        try:
            line = input()
        except (EOFError, KeyboardInterrupt):
            return 0
        if line.startswith("/image "):
            try:
                prompt.image(dsa.Image.open(runtime, line.removeprefix("/image ")))
            except dsa.Error as error:
                print(f"{error.code.name}: {error}", file=sys.stderr)
        elif line:
            ask(chat, prompt, line)
            prompt.clear().user()


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        print('usage: chat.py MODEL ["question"]', file=sys.stderr)
        return 2
    try:
        with dsa.Runtime() as runtime, runtime.load(arguments[0]) as model, model.session() as chat:
            if len(arguments) == 1:
                return converse(runtime, chat)
            return ask(chat, dsa.Prompt(runtime).user(), arguments[1])
    except dsa.Error as error:
        print(f"{error.code.name}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
