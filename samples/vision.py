"""vision.py: one question about a picture: vision.py MODEL PICTURE "question".

Exit codes: 0 answered, 1 failed, 2 wrong arguments.
"""

import sys

import dsa_sdk as dsa


def main(arguments: list[str]) -> int:
    if len(arguments) != 3:
        print('usage: vision.py MODEL PICTURE "question"', file=sys.stderr)
        return 2
    folder, picture, question = arguments
    try:
        runtime = dsa.Runtime()
        prompt = dsa.Prompt(runtime).user(dsa.Image.open(runtime, picture), question)
        with runtime.load(folder) as model, model.session() as chat:
            for text in chat.run(prompt).text():
                print(text, end="", flush=True)
        print()
        return 0
    except dsa.Error as error:
        print(f"{error.code.name}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
