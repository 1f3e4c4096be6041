"""Many threads at once: runs, cancels, closes, and an interpreter lock that nobody waits for in vain."""

import threading
import time
import unittest

import dsa_sdk as dsa
from support import ENDLESS, FRANCE, MODEL, model, runtime


def in_threads(count, work):
    """Runs work(index) in threads; raises the first failure. Nobody may hang."""
    failures = []

    def guarded(index):
        try:
            work(index)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 120
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            raise AssertionError("a thread hangs")
    if failures:
        raise failures[0]


class Threads(unittest.TestCase):
    def test_eight_threads_with_fifty_runs_each(self):
        with model().session() as chat:
            expected = chat.ask("Hello.", sampling="greedy", max_tokens=3)
        before = model().stats.runs

        def work(index):
            for turn in range(50):
                with model().session() as chat, chat.run("Hello.", sampling="greedy", max_tokens=3) as run:
                    if turn % 10 == index:
                        run.cancel()
                        run.wait()
                        assert run.result.finish in (dsa.Finish.CANCELLED, dsa.Finish.LENGTH), run.result
                    else:
                        text = "".join(run.text())
                        assert text == expected, text

        in_threads(8, work)
        self.assertEqual(model().stats.runs - before, 400)
        self.assertEqual(model().stats.running, 0)

    def test_cancel_from_another_thread(self):
        with model().session() as chat, chat.run("Story.", sampling=ENDLESS) as run:
            timer = threading.Timer(0.2, run.cancel)
            timer.start()
            self.assertEqual(run.wait().finish, dsa.Finish.CANCELLED)
            timer.join()
        with model().session() as chat:
            timer = threading.Timer(0.2, chat.cancel, kwargs={"rollback": True})
            timer.start()
            with self.assertRaises(dsa.Cancelled):
                chat.ask("Story.", sampling=ENDLESS)
            timer.join()
            self.assertEqual(chat.info.num_tokens, 0)

    def test_close_while_others_use_it(self):
        """Handles that are in use are not pulled away."""
        for _ in range(20):
            chat = model().session()
            run = chat.run("Story.", sampling=ENDLESS)
            stop = threading.Event()

            def watch(index):
                while not stop.is_set():
                    try:
                        run.cancel() if index == 0 else chat.info
                    except dsa.Closed:
                        return

            def read_and_close(index):
                if index < 2:
                    watch(index)
                elif index == 2:
                    run.close()
                    chat.close()
                    stop.set()

            in_threads(3, read_and_close)

    def test_two_readers_share_the_events(self):
        with model().session() as chat:
            alone = chat.ask("Hello.", sampling="greedy")
        with model().session() as chat, chat.run("Hello.", sampling="greedy") as run:
            pieces = [[], []]
            in_threads(2, lambda index: pieces[index].extend(list(run)))
            self.assertEqual(sum(isinstance(event, dsa.Done) for part in pieces for event in part), 1)
            self.assertEqual(run.answer, alone)

    def test_a_callback_runs_while_others_close_log_and_generate(self):
        """BIND-03: no blocking call holds the interpreter lock."""

        def work(index):
            if index == 0:
                for _ in range(5):
                    runtime().load(MODEL, on_progress=lambda progress: time.sleep(0.02)).close()
            elif index == 1:
                for _ in range(5):
                    with self.assertLogs("dsa_sdk", "DEBUG"), dsa.Runtime() as talkative:
                        talkative.load(MODEL).close()
            else:
                for _ in range(5):
                    with model().session() as chat:
                        chat.ask(FRANCE, on_event=lambda event: time.sleep(0.001), max_tokens=8)

        in_threads(4, work)


if __name__ == "__main__":
    unittest.main()
