"""From a folder to an answer: what each object says and does."""

import errno
import logging
import math
import unittest

import dsa_sdk as dsa
from support import ENDLESS, FRANCE, MODEL, model, runtime


class Talking(unittest.TestCase):
    def test_events_come_in_order_and_their_text_is_the_answer(self):
        with model().session() as chat, chat.run(FRANCE, sampling="greedy") as run:
            events = list(run)
        self.assertIsInstance(events[0], dsa.Start)
        self.assertIsInstance(events[1], dsa.Prefill)
        self.assertEqual(events[-1], dsa.Done(dsa.Finish.STOP, run.result.stop_index))
        text = "".join(event.text for event in events if isinstance(event, dsa.Text))
        self.assertEqual(text, run.answer)
        self.assertIn("Paris", text)
        self.assertEqual(run.result.status, dsa.Status.OK)
        self.assertGreater(run.result.output_tokens, 0)
        self.assertGreater(run.stats.total_ms, 0)
        self.assertIsNone(run.error)
        self.assertTrue(run.closed)

    def test_a_session_remembers(self):
        with model().session() as chat:
            chat.ask(FRANCE)
            before = chat.info
            chat.ask("What is the capital of Japan?")
            self.assertGreater(chat.info.num_tokens, before.num_tokens)
            self.assertEqual(chat.info.turns, 2)

    def test_the_same_seed_gives_the_same_answer(self):
        answers = set()
        for _ in range(3):
            with model().session() as chat:
                answers.add(chat.ask("Tell me a story.", seed=5, max_tokens=20, sampling=dsa.Sampling(temperature=0.9)))
        self.assertEqual(len(answers), 1)

    def test_text_pieces_and_waiting(self):
        with model().session() as chat:
            self.assertIn("Paris", "".join(chat.run(FRANCE).text()))
            run = chat.run("Hello.")
            self.assertEqual(run.wait().finish, dsa.Finish.STOP)
            self.assertEqual(list(run), [])  # nothing comes after the end
            self.assertTrue(run.finished)

    def test_poll(self):
        with model().session() as chat, chat.run(FRANCE) as run:
            seen = []
            while not run.finished:
                event = run.poll(timeout=0.05)
                if event is not None:
                    seen.append(event)
            self.assertIsInstance(seen[-1], dsa.Done)
            self.assertIsNone(run.poll())

    def test_leaving_early_keeps_the_text_and_frees_the_session(self):
        with model().session() as chat:
            run = chat.run("Tell me a story.", sampling=ENDLESS)
            for event in run:
                if isinstance(event, dsa.Text):
                    break
            self.assertEqual(run.result.finish, dsa.Finish.CANCELLED)
            self.assertGreater(chat.info.num_tokens, 0)
            self.assertIn("Paris", chat.ask(FRANCE))

    def test_rollback(self):
        with model().session() as chat:
            chat.ask(FRANCE)
            before = chat.info.num_tokens
            with chat.run("Tell me a story.", sampling=ENDLESS) as run:
                with self.assertRaises(dsa.Cancelled):
                    for event in run:
                        if isinstance(event, dsa.Text):
                            run.cancel(rollback=True)
            self.assertEqual(chat.info.num_tokens, before)

    def test_limits(self):
        with model().session() as chat:
            with chat.run("Tell me a story.", max_tokens=3) as run:
                self.assertEqual(run.wait().finish, dsa.Finish.LENGTH)
            with chat.run("Count.", sampling=ENDLESS, deadline=0.2) as run:
                self.assertEqual(run.wait().finish, dsa.Finish.DEADLINE)
            with chat.run(FRANCE, sampling="greedy", stops=["never", "of France"]) as run:
                self.assertEqual(run.wait().finish, dsa.Finish.STOP_TEXT)
            self.assertEqual(run.result.stop_index, 1)
            self.assertNotIn("of France", run.answer)

    def test_prompts(self):
        prompt = dsa.Prompt(runtime()).system("Be brief.").user("What is the capital", " of France?")
        self.assertIn("Be brief.", prompt.render(model()))
        cost = prompt.measure(model())
        self.assertTrue(cost.fits)
        self.assertEqual(cost.num_tokens, cost.text_tokens)
        with model().session() as first, model().session() as second:
            self.assertEqual(first.ask(prompt, sampling="greedy"), second.ask(prompt, sampling="greedy"))
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": FRANCE}]
        with model().session() as chat:
            self.assertIn("Paris", chat.ask(messages))
        prompt.clear()
        with self.assertRaises(dsa.ArgumentError), model().session() as chat:
            chat.ask(prompt)

    def test_prefill(self):
        seen = []
        with model().session() as chat:
            count = chat.prefill([{"role": "system", "content": "Be brief."}], on_progress=seen.append)
            self.assertEqual(count, chat.info.num_tokens)
        self.assertEqual(seen[-1], dsa.Progress(count, count, dsa.Stage.PREFILL))

    def test_tokens(self):
        text = "Grüße, 世界 🌍"
        self.assertEqual(model().detokenize(model().tokenize(text)).decode(), text)
        self.assertEqual(model().tokenize(""), [])
        with self.assertRaises(dsa.ArgumentError):
            model().detokenize([-1])
        with self.assertRaises(dsa.ArgumentError) as caught:
            model().detokenize([5, 1 << 30])
        self.assertEqual(caught.exception.position, 1)

    def test_what_there_is(self):
        package = runtime().open(MODEL)
        self.assertEqual(package.info.family, "kimi_k3")
        self.assertGreater(package.info.weight_bytes, 1 << 20)
        self.assertTrue(package.meta("model_type").startswith("kimi_k3"))
        self.assertEqual(runtime().devices[0].id, "cpu:0")
        self.assertTrue(dsa.has_feature("cpu"))
        self.assertFalse(dsa.has_feature("telepathy"))
        self.assertTrue(dsa.version().startswith(dsa.__version__))
        self.assertEqual(model().stats.state, dsa.ModelState.READY)

    def test_constants_of_a_later_library(self):
        self.assertEqual(dsa.Finish(77), 77)
        self.assertEqual(dsa.Finish(77).name, "UNKNOWN_77")


class Errors(unittest.TestCase):
    def test_no_folder(self):
        with self.assertRaises(FileNotFoundError) as caught:
            runtime().load("/nowhere")
        self.assertIsInstance(caught.exception, dsa.FileFault)
        self.assertEqual(caught.exception.code, dsa.Status.NOT_FOUND)
        self.assertEqual(caught.exception.errno, errno.ENOENT)
        self.assertIn("/nowhere", str(caught.exception))

    def test_context_full_says_by_how_much(self):
        with model().session(context_tokens=32) as chat:
            with self.assertRaises(dsa.ContextFull) as caught:
                chat.ask("word " * 100)
            error = caught.exception
            self.assertEqual(error.available, 32)
            self.assertGreater(error.needed, 100)
            self.assertEqual(error.fix, dsa.Fix.SHORTEN)
            self.assertIsInstance(error, dsa.RoomError)
            self.assertIn("Hello", chat.ask("Hello.", max_tokens=4))  # nothing was changed

    def test_text_that_is_not_utf8(self):
        with self.assertRaises(dsa.ContentError) as caught:
            dsa.Prompt(runtime()).user("abc\ud800")
        self.assertEqual(caught.exception.position, 3)
        self.assertIsInstance(caught.exception, ValueError)

    def test_json(self):
        with self.assertRaises(dsa.ContentError) as caught:
            dsa.Prompt(runtime()).messages('[{"role": "user", "content": }]')
        self.assertEqual(caught.exception.code, dsa.Status.JSON)
        self.assertGreater(caught.exception.position, 0)

    def test_busy(self):
        with model().session() as chat, chat.run("Tell me a story.", sampling=ENDLESS):
            with self.assertRaises(dsa.Busy):
                chat.run("Hello.")

    def test_options_that_cannot_be(self):
        with model().session() as chat:
            for options in (
                {"max_tokens": -1},
                {"seed": 1 << 64},
                {"sampling": "hot"},
                {"effort": "all"},
                {"stops": "text"},
                {"stops": [""]},
                {"sampling": dsa.Sampling(temperature=-1)},
                {"sampling": dsa.Sampling(top_p=math.nan)},
                {"sampling": dsa.Sampling(bias={1 << 30: 1.0})},
            ):
                with self.subTest(options), self.assertRaises(dsa.ArgumentError):
                    chat.run("Hello.", **options)
            with self.assertRaises(dsa.Unsupported):
                chat.run("Hello.", effort="high")
            with self.assertRaises(TypeError):
                chat.run("Hello.", temperature=1)
        with self.assertRaises(dsa.LimitExceeded):
            model().session(context_tokens=1 << 30)

    def test_not_yet(self):
        with model().session() as chat, chat.run("Tell me a story.", sampling=ENDLESS) as run:
            for read in (lambda: run.result, lambda: run.stats, lambda: run.error, lambda: run.answer):
                with self.assertRaises(dsa.StateError):
                    read()

    def test_every_code_has_a_class(self):
        from dsa_sdk._errors import class_of

        for status in dsa.Status:
            if status < 0:
                self.assertTrue(issubclass(class_of(status), dsa.Error), status)
                self.assertIsNot(class_of(status), dsa.Error, status)
        self.assertIs(class_of(-299), dsa.RoomError)
        self.assertIs(class_of(-799), dsa.Error)

    def test_errors_travel_between_processes(self):
        import pickle

        error = dsa.ContextFull("too long", dsa.Status.CONTEXT_FULL, dsa.Fix.SHORTEN, 0, 10, 5)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again), again.needed, again.available), (dsa.ContextFull, "too long", 10, 5))


class Log(unittest.TestCase):
    def test_lines_go_to_the_logger_when_it_is_enabled(self):
        with self.assertLogs("dsa_sdk", logging.DEBUG) as lines:
            with dsa.Runtime() as talkative, talkative.load(MODEL) as loaded:
                with loaded.session() as chat:
                    chat.ask("Hello.", max_tokens=2)
        self.assertGreater(len(lines.output), 0)


if __name__ == "__main__":
    unittest.main()
