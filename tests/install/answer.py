"""Ten lines for a wheel in a fresh environment: answer.py MODEL "question"."""

import sys

import dsa_sdk as dsa

with dsa.Runtime().load(sys.argv[1]) as model, model.session() as chat:
    for text in chat.run(sys.argv[2]).text():
        print(text, end="", flush=True)
